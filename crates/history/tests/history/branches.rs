//! A fork is a branch: each merge and each update brings what is new, as
//! `docs/decisions/0047-a-fork-is-a-branch.md` has it.

use super::directories::roll_back;
use super::family::{Family, Tree, open, source};
use ConflictKind::{Content, Removed};
use Direction::{Merge, Update};
use marram_history::{Branch, Choice, Conflict, ConflictKind, Direction, MergeOptions};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, Lineage, Store};
use marram_vfs::{Clock, FileSystem, Ino, SteppedClock};
use std::sync::Arc;

fn prepare(tree: &Tree) {
    tree.directory("/d");
    tree.file("/a", b"a of the base");
    tree.file("/b", b"b of the base");
    tree.file("/d/c", b"c of the base");
}

fn family() -> Family {
    Family::new(prepare)
}

fn conflicts(family: &Family, direction: Direction) -> Vec<(ConflictKind, String)> {
    let report = family.bring(direction, &MergeOptions::default());
    assert!(!report.applied);
    let told = |it: &Conflict| (it.kind, String::from_utf8_lossy(&it.path).into_owned());
    report.conflicts.iter().map(told).collect()
}

fn choosing(family: &Family, direction: Direction, choice: Choice) {
    let choose = |_: &Conflict| choice;
    let report =
        family.bring(direction, &MergeOptions { choose: &choose, ..MergeOptions::default() });
    assert!(report.applied && !report.decided.is_empty(), "{report:?}");
}

fn base(family: &Family) -> String {
    let branch = Branch::of(&family.store, &"fork".parse().unwrap()).unwrap();
    branch.unwrap().base.to_string()
}

fn unmerged(family: &Family) -> Vec<String> {
    family.diff(&base(family), "fork")
}

#[test]
fn a_second_merge_brings_only_what_is_new() {
    let family = family();
    family.fork.file("/a", b"a of the fork");
    family.fork.file("/new", b"made in the fork");
    family.fork.directory("/made");
    family.fork.file("/made/in", b"inside");
    family.parent.file("/own", b"of the parent");
    assert_eq!(family.brings(Merge).len(), 4);
    assert_eq!(unmerged(&family), [""; 0]);
    // Both go on, each with what the merge has brought.
    family.parent.file("/a", b"a of the parent, after the merge");
    family.parent.rename("/made", "/named");
    family.fork.file("/new", b"changed after the merge");
    family.fork.file("/made/more", b"more");
    assert_eq!(unmerged(&family).len(), 2, "{:?}", unmerged(&family));
    assert_eq!(family.brings(Merge).len(), 2);
    assert_eq!(family.parent.read("/a"), b"a of the parent, after the merge");
    assert_eq!(family.parent.read("/new"), b"changed after the merge");
    assert_eq!(family.parent.read("/named/more"), b"more");
    assert_eq!(family.parent.read("/named/in"), b"inside");
    assert!(family.parent.find("/made").is_err());
    assert_eq!(family.brings(Merge), [""; 0]);
}

#[test]
fn what_the_parent_removed_after_a_merge_does_not_come_again() {
    let family = family();
    family.fork.file("/new", b"new");
    family.fork.file("/other", b"other");
    family.brings(Merge);
    family.parent.unlink("/new");
    family.fork.file("/third", b"third");
    family.brings(Merge);
    assert!(family.parent.find("/new").is_err());
    assert_eq!(family.parent.read("/third"), b"third");
    family.fork.file("/new", b"changed again");
    assert_eq!(conflicts(&family, Merge), [(Removed, "/new".to_owned())]);
}

#[test]
fn what_was_decided_against_comes_only_if_it_is_changed_again() {
    let family = family();
    family.fork.file("/a", b"a of the fork");
    family.fork.file("/d/new", b"of the fork");
    family.parent.file("/a", b"a of the parent");
    family.parent.file("/d/new", b"of the parent");
    choosing(&family, Merge, Choice::Ours);
    assert_eq!(family.parent.read("/a"), b"a of the parent");
    assert_eq!(family.brings(Merge), [""; 0]);
    family.fork.file("/b", b"b of the fork");
    family.brings(Merge);
    assert_eq!(family.parent.read("/a"), b"a of the parent");
    assert_eq!(family.parent.read("/d/new"), b"of the parent");
    assert_eq!(family.parent.read("/b"), b"b of the fork");
    family.fork.file("/a", b"a of the fork, again");
    family.fork.file("/d/new", b"of the fork, again");
    let both = [(Content, "/a".to_owned()), (Content, "/d/new".to_owned())];
    assert_eq!(conflicts(&family, Merge), both);
}

#[test]
fn a_merge_that_takes_nothing_moves_the_base_all_the_same() {
    let family = family();
    family.fork.file("/a", b"a of the fork");
    family.parent.file("/a", b"a of the parent");
    choosing(&family, Merge, Choice::Ours);
    assert_eq!(family.brings(Merge), [""; 0]);
    assert_eq!(family.parent.read("/a"), b"a of the parent");
}

#[test]
fn an_update_brings_the_parents_changes_and_leaves_the_forks_to_be_merged() {
    let family = family();
    family.fork.file("/mine", b"of the fork");
    family.parent.file("/theirs", b"of the parent");
    family.parent.rename("/d/c", "/moved");
    family.parent.directory("/e");
    family.parent.file("/e/f", b"in a new directory");
    family.brings(Update);
    assert_eq!(family.fork.read("/theirs"), b"of the parent");
    assert_eq!(family.fork.read("/moved"), b"c of the base");
    assert_eq!(family.fork.read("/mine"), b"of the fork");
    assert!(family.parent.find("/mine").is_err(), "an update changes nothing of the parent");
    assert_eq!(unmerged(&family), ["created /mine"]);
    family.fork.file("/e/f", b"changed in the fork");
    family.fork.file("/e/g", b"made in the fork");
    assert_eq!(family.brings(Merge).len(), 3);
    assert_eq!(family.parent.read("/e/f"), b"changed in the fork");
    assert_eq!(family.parent.read("/e/g"), b"made in the fork");
    assert_eq!(family.parent.content(), family.fork.content());
}

#[test]
fn merges_and_updates_in_turn_end_alike_on_both_sides() {
    let family = family();
    for round in 0..6 {
        let text = format!("round {round}");
        family.fork.file(&format!("/fork{round}"), text.as_bytes());
        family.parent.file(&format!("/parent{round}"), text.as_bytes());
        family.fork.directory(&format!("/dir{round}"));
        if round > 0 {
            family.fork.file(&format!("/parent{}", round - 1), text.as_bytes());
            family.parent.file(&format!("/fork{}", round - 1), text.as_bytes());
            family.parent.file(&format!("/dir{}/in", round - 1), text.as_bytes());
            family.parent.link(&format!("/dir{}/in", round - 1), &format!("/link{round}"));
        }
        let (first, second) = if round % 2 == 0 { (Merge, Update) } else { (Update, Merge) };
        family.brings(first);
        family.brings(second);
        assert_eq!(family.parent.content(), family.fork.content(), "round {round}");
        assert_eq!(unmerged(&family), [""; 0]);
    }
}

#[test]
fn directories_that_became_one_stay_one() {
    let family = family();
    family.fork.directory("/both");
    family.fork.file("/both/fork", b"fork");
    family.fork.file("/both/same", b"same");
    family.parent.directory("/both");
    family.parent.file("/both/parent", b"parent");
    family.parent.file("/both/same", b"same");
    family.brings(Merge);
    family.fork.file("/both/same", b"not the same any more");
    family.fork.file("/both/again", b"again");
    family.brings(Merge);
    assert_eq!(family.parent.read("/both/same"), b"not the same any more");
    assert_eq!(family.parent.read("/both/again"), b"again");
    family.brings(Update);
    assert_eq!(family.parent.content(), family.fork.content());
}

#[test]
fn numbers_that_both_gave_out_for_different_files_are_kept_apart() {
    let mut family = family();
    // Opened anew, it takes new numbers, as the fork does.
    family.parent = open(&family.store, "root", family.root, &family.clock);
    let (mine, theirs) = (family.fork.file("/mine", b"fork"), family.parent.file("/theirs", b"p"));
    assert_eq!(mine, theirs, "each gives out the same numbers");
    family.brings(Merge);
    family.parent.unlink("/theirs");
    family.parent.file("/mine", b"changed in the parent");
    family.brings(Update);
    assert_eq!(family.fork.read("/mine"), b"changed in the parent");
    assert!(family.fork.find("/theirs").is_err());
    family.fork.unlink("/mine");
    family.brings(Merge);
    assert!(family.parent.find("/mine").is_err());
}

#[test]
fn a_rollback_past_a_merge_takes_the_base_back() {
    let family = family();
    family.store.snapshot(&DatasetName::root(), "before").unwrap();
    family.fork.file("/new", b"new");
    family.brings(Merge);
    let back = || family.store.rollback(&source("root@before"), "kept");
    family.parent.0.roll_back(|| back().map_err(|_| marram_vfs::Error::Busy)).unwrap();
    assert!(family.parent.find("/new").is_err());
    assert_eq!(base(&family), "root@fork:fork");
    family.brings(Merge);
    assert_eq!(family.parent.read("/new"), b"new");
}

#[test]
fn a_fork_takes_its_bases_along_when_it_goes() {
    let family = family();
    let names = |family: &Family| -> Vec<String> {
        family.store.list().unwrap().iter().map(|it| it.source.to_string()).collect()
    };
    family.fork.file("/new", b"new");
    family.brings(Merge);
    family.parent.file("/news", b"news");
    family.brings(Update);
    assert!(names(&family).iter().any(|name| name.starts_with("root@base:")));
    let Family { store, fork, .. } = family;
    drop(fork);
    store.destroy(&source("fork"), false).unwrap();
    let left: Vec<String> = store.list().unwrap().iter().map(|it| it.source.to_string()).collect();
    assert_eq!(left, ["root"]);
}

/// A family whose parent goes back to before it had `/kept`, and gives the number of that again:
/// to the file `/other`.
fn with_a_number_given_again() -> Family {
    let store = MemoryStore::new();
    let clock: Arc<dyn Clock> = Arc::new(SteppedClock::default());
    let opened = |name| open(&store, name, Ino::ROOT, &clock);
    let parent = opened("root");
    prepare(&parent);
    store.commit();
    store.snapshot(&DatasetName::root(), "s").unwrap();
    // Opened anew, it takes new numbers.
    let parent = opened("root");
    let kept = parent.directory("/kept");
    parent.file("/kept/x", b"x");
    store.commit();
    store.fork(&DatasetName::root(), &"fork".parse().unwrap(), Ino::ROOT.0).unwrap();
    let fork = opened("fork");
    let back = || store.rollback(&source("root@s"), "undone");
    parent.0.roll_back(|| back().map_err(|_| marram_vfs::Error::Busy)).unwrap();
    let parent = opened("root");
    assert_eq!(parent.file("/other", b"other"), kept, "the number is given again");
    let base = source("root@fork:fork");
    Family { store, clock, parent, fork, base, root: Ino::ROOT }
}

#[test]
fn a_number_that_is_given_again_after_a_rollback_is_of_another_inode() {
    let family = with_a_number_given_again();
    family.fork.file("/mine", b"mine");
    family.brings(Merge);
    family.brings(Update);
    assert!(family.fork.find("/kept").is_err(), "what the parent went back from goes");
    assert_eq!(family.fork.read("/other"), b"other");
    family.fork.file("/other", b"changed in the fork");
    family.brings(Merge);
    assert_eq!(family.parent.read("/other"), b"changed in the fork");
    assert_eq!(unmerged(&family), [""; 0]);
}

#[test]
fn what_the_fork_changed_under_such_a_number_is_a_conflict_and_stays() {
    let family = with_a_number_given_again();
    family.fork.file("/mine", b"mine");
    family.brings(Merge);
    family.fork.file("/kept/y", b"y");
    let refused = conflicts(&family, Update);
    assert!(refused.iter().any(|(_, path)| path.starts_with("/kept")), "{refused:?}");
    choosing(&family, Update, Choice::Ours);
    assert_eq!(family.fork.read("/kept/y"), b"y");
    assert_eq!(family.fork.read("/other"), b"other");
    family.fork.file("/kept/z", b"z");
    family.brings(Merge);
    assert_eq!(family.parent.read("/other"), b"other");
}

#[test]
fn what_has_no_name_hides_no_change_of_what_has_its_number_on_the_other_side() {
    let family = family();
    family.parent.file("/i", b"i of the parent");
    family.fork.file("/f", b"f of the fork");
    family.brings(Update);
    family.parent.mode("/i", 0o600);
    // What programs hold open of the parent has the numbers that the fork has given out.
    let number = family.fork.find("/i").unwrap().ino;
    let mut held = Vec::new();
    let opened: Vec<Tree> = (0..3)
        .map(|_| {
            // Opened anew, it takes the next numbers.
            let parent = open(&family.store, "root", Ino::ROOT, &family.clock);
            for path in ["/g", "/h", "/j"] {
                held.push(parent.file(path, b"held open"));
                parent.0.pin(held[held.len() - 1]).unwrap();
                parent.unlink(path);
            }
            parent
        })
        .collect();
    assert!(held.contains(&number), "{number:?} {held:?}");
    family.brings(Update);
    assert_eq!(family.fork.find("/i").unwrap().permissions, 0o600);
    drop(opened);
}

/// Keeps the state of the parent, to which [`back`] lets `/d` go back.
fn keep(family: &Family) {
    family.store.snapshot(&DatasetName::root(), "s").unwrap();
}

fn back(family: &Family) {
    let directory = family.parent.find("/d").unwrap().ino;
    assert!(roll_back(family, directory).unwrap().is_some(), "something changes");
}

#[test]
fn what_came_back_to_the_parent_stays_what_it_is_in_the_fork() {
    let family = Family::new(|tree| {
        prepare(tree);
        tree.directory("/d/s");
        tree.file("/d/s/f", b"f of the base");
    });
    keep(&family);
    family.parent.unlink("/d/s/f");
    family.parent.remove_directory("/d/s");
    family.brings(Update);
    back(&family);
    family.brings(Update);
    assert_eq!(family.fork.read("/d/s/f"), b"f of the base");
    family.parent.file("/d/s/new", b"new");
    assert_eq!(family.brings(Update), ["created /d/s/new"]);
    family.fork.rename("/d/s/f", "/f");
    family.fork.file("/f", b"changed in the fork");
    family.fork.rename("/d/s", "/s");
    family.parent.file("/d/s/more", b"more");
    family.brings(Merge);
    assert_eq!(family.parent.read("/f"), b"changed in the fork");
    assert_eq!(family.parent.read("/s/more"), b"more");
    assert_eq!(family.parent.read("/s/new"), b"new");
    family.parent.unlink("/f");
    assert!(family.brings(Update).contains(&"removed /f".to_owned()));
    assert_eq!(family.parent.content(), family.fork.content());
}

#[test]
fn a_copy_has_the_changes_of_what_stands_under_its_paths() {
    let family = family();
    family.fork.file("/d/x", b"x of the fork");
    family.fork.link("/d/x", "/d/too");
    family.fork.link("/d/x", "/y");
    family.fork.unlink("/y");
    family.brings(Merge);
    keep(&family);
    family.parent.rename("/d/x", "/e");
    back(&family);
    family.fork.file("/d/x", b"changed in the fork");
    family.brings(Merge);
    assert_eq!(family.parent.read("/d/x"), b"changed in the fork");
    assert_eq!(family.parent.read("/d/too"), b"changed in the fork");
    assert_eq!(family.parent.read("/e"), b"x of the fork");
}

#[test]
fn names_that_lead_to_different_files_do_not_tell_which_is_which() {
    let family = family();
    family.fork.file("/d/x", b"x of the fork");
    family.fork.link("/d/x", "/y");
    family.brings(Merge);
    keep(&family);
    family.parent.rename("/d/x", "/e");
    family.parent.file("/e", b"e of the parent");
    back(&family);
    // `/d/x` is a copy, which has none of the other names; `/y` is still the one with `/e`.
    assert_eq!(family.parent.read("/d/x"), b"x of the fork");
    family.fork.mode("/d/x", 0o600);
    let refused = conflicts(&family, Merge);
    assert!(refused.iter().all(|(kind, _)| *kind == Removed), "{refused:?}");
    choosing(&family, Merge, Choice::Ours);
    assert_eq!(family.parent.find("/y").unwrap().permissions, 0o644);
}
