//! The past of directories, on a store in memory.

use super::tests::{Bench, ROOT_USER, name};
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{Error, FileSystem, Ino, NewNode, RenameMode, SetAttributes, StoredAccessLists};

fn snapshot(bench: &Bench, name: &str) {
    bench.store.snapshot(&DatasetName::root(), name).unwrap();
}

fn folder(bench: &Bench, parent: Ino, folder: &str, permissions: u32) -> Ino {
    let node = NewNode::Directory { permissions };
    bench.files.create(ROOT_USER, parent, name(folder), node).unwrap().ino
}

fn change(bench: &Bench, ino: Ino, set: SetAttributes) {
    bench.files.set_attributes(ROOT_USER, ino, &set).unwrap();
}

fn permissions(permissions: u32) -> SetAttributes {
    SetAttributes { permissions: Some(permissions), ..SetAttributes::default() }
}

fn owners(uid: u32, gid: u32) -> SetAttributes {
    SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() }
}

#[test]
fn each_directory_has_its_past_which_is_found_and_not_listed() {
    let bench = Bench::new();
    let late = folder(&bench, bench.folder, "late", 0o755);
    bench.make(late, "g", b"late");
    snapshot(&bench, "t");
    bench.make(bench.folder, "h", b"new");
    assert_eq!(bench.names(bench.folder), ["f", "h", "late"]);
    let hidden = bench.find("d/.marram").unwrap().ino;
    assert_eq!(bench.names(hidden), ["snapshots"]);
    let shelf = bench.find("d/.marram/snapshots").unwrap().ino;
    assert_eq!(bench.names(shelf), ["s", "t"]);
    let old = bench.find("d/.marram/snapshots/s").unwrap();
    assert_eq!(bench.names(old.ino), ["f"]);
    let file = bench.find("d/.marram/snapshots/s/f").unwrap();
    assert_eq!(bench.read(file.ino), b"before");
    let written = bench.files.write(file.ino, 0, b"x", Default::default());
    assert_eq!(written, Err(Error::ReadOnly));
    let whole = bench.find(".marram/snapshots/s/d/f").unwrap();
    assert_ne!(whole.ino, file.ino, "each way has numbers of its own");
    assert_eq!(bench.files.volumes().len(), 2, "and one file system serves both");

    assert_eq!(bench.names(bench.find("d/late/.marram/snapshots").unwrap().ino), ["t"]);
    assert_eq!(bench.find("d/late/.marram/snapshots/s"), Err(Error::NotFound));
    assert_eq!(bench.find("d/.marram/snapshots/none"), Err(Error::NotFound));
    assert_eq!(bench.find("d/.marram/forks"), Err(Error::NotFound));
    assert!(bench.find("d/f/.marram").is_err(), "a file has none");
    assert_eq!(bench.find("d/.marram/.marram"), Err(Error::NotFound));
    assert_eq!(bench.find("d/.marram/snapshots/s/.marram"), Err(Error::NotFound));

    let above = |ino| bench.files.parent(ino).unwrap().ino;
    assert_eq!((above(old.ino), above(shelf), above(hidden)), (shelf, hidden, bench.folder));
}

#[test]
fn a_directory_that_moves_has_its_past_with_it_and_one_that_goes_has_none() {
    let bench = Bench::new();
    let moved = folder(&bench, Ino::ROOT, "elsewhere", 0o755);
    let mode = RenameMode::Replace;
    bench.files.rename(ROOT_USER, Ino::ROOT, name("d"), moved, name("e"), mode).unwrap();
    let file = bench.find("elsewhere/e/.marram/snapshots/s/f").unwrap().ino;
    assert_eq!(bench.read(file), b"before");
    assert_eq!(bench.find("elsewhere/.marram/snapshots/s"), Err(Error::NotFound));
    let gone = folder(&bench, Ino::ROOT, "gone", 0o755);
    let hidden = bench.find("gone/.marram/snapshots").unwrap().ino;
    bench.files.remove_directory(Ino::ROOT, name("gone")).unwrap();
    bench.files.forget(gone, 2);
    assert_eq!(bench.files.attributes(hidden), Err(Error::Stale));
    assert_eq!(bench.files.lookup(hidden, name("s")), Err(Error::Stale));
    // The next directory of that name has another past.
    folder(&bench, Ino::ROOT, "gone", 0o755);
    assert_ne!(bench.find("gone/.marram/snapshots").unwrap().ino, hidden);
}

#[test]
fn nothing_can_be_made_where_a_past_is_and_a_real_entry_is_shown_instead() {
    let bench = Bench::new();
    let node = || NewNode::Directory { permissions: 0o755 };
    let create = |parent| bench.files.create(ROOT_USER, parent, name(".marram"), node());
    assert_eq!(create(bench.folder), Err(Error::Exists));
    let file = bench.find("d/f").unwrap().ino;
    assert_eq!(bench.files.link(file, bench.folder, name(".marram")), Err(Error::Exists));
    let removed = bench.files.remove_directory(bench.folder, name(".marram"));
    assert_eq!(removed, Err(Error::NotPermitted));
    let mode = RenameMode::Replace;
    let (from, to) = (name("f"), name(".marram"));
    let onto = bench.files.rename(ROOT_USER, bench.folder, from, bench.folder, to, mode);
    assert_eq!(onto, Err(Error::NotPermitted));
    let shelf = bench.find("d/.marram").unwrap().ino;
    assert_eq!(create(shelf), Err(Error::NotPermitted));

    // As from another version, or in a stream.
    let base = bench.files.base();
    let real = base.create(ROOT_USER, bench.folder, name(".marram"), node()).unwrap();
    assert_eq!(bench.find("d/.marram").unwrap().ino, real.ino);
    assert_eq!(bench.names(bench.folder), [".marram", "f"]);
    bench.files.remove_directory(bench.folder, name(".marram")).unwrap();
    assert_eq!(bench.find("d/.marram").unwrap().ino, shelf);
}

/// The mode under which `a/b/c` is shown in its past, after both above it were opened to all.
fn shown(bench: &Bench, [a, b, c]: [Ino; 3], number: u32) -> u32 {
    let then = format!("then{number}");
    snapshot(bench, &then);
    for ino in [a, b, c] {
        change(bench, ino, permissions(0o777));
    }
    bench.find(&format!("a/b/c/.marram/snapshots/{then}")).unwrap().permissions
}

#[test]
fn what_was_out_of_reach_then_is_not_shown_to_those_that_come_to_it_now() {
    let bench = Bench::new();
    let a = folder(&bench, Ino::ROOT, "a", 0o755);
    let b = folder(&bench, a, "b", 0o755);
    let c = folder(&bench, b, "c", 0o755);
    let all = [a, b, c];
    change(&bench, c, owners(7, 70));
    // Modes and owners above, the mode of the directory, and what is left of that.
    let cases: [(u32, (u32, u32), u32, u32); 9] = [
        (0o755, (0, 0), 0o755, 0o755),
        (0o711, (1, 1), 0o750, 0o750),
        (0o700, (0, 0), 0o755, 0o000),
        (0o700, (7, 0), 0o755, 0o700),
        (0o600, (7, 0), 0o755, 0o000),
        (0o750, (7, 70), 0o755, 0o750),
        (0o750, (0, 70), 0o2755, 0o2050),
        (0o050, (7, 70), 0o755, 0o000),
        (0o701, (0, 0), 0o755, 0o000),
    ];
    for (number, (above, (uid, gid), of, left)) in (0..).zip(cases) {
        for closed in [a, b] {
            for ino in [a, b] {
                change(&bench, ino, owners(0, 0));
                change(&bench, ino, permissions(0o755));
            }
            change(&bench, c, permissions(of));
            change(&bench, closed, owners(uid, gid));
            change(&bench, closed, permissions(above));
            let number = number * 2 + u32::from(closed == b);
            assert_eq!(shown(&bench, all, number), left, "{above:o} {uid} {gid} {of:o}");
        }
    }
    // By the way from the root the kernel has asked all of them.
    let whole = bench.find(".marram/snapshots/then4/a/b/c").unwrap();
    assert_eq!(whole.permissions, 0o755);
}

#[test]
fn lists_of_access_above_keep_out_and_one_of_its_own_is_hidden_where_it_would_let_in() {
    const LIST: &[u8] = b"system.posix_acl_access";
    // Version 2; owner rwx, user 7 rwx, group r-x, mask rwx, others r-x.
    let list: Vec<u8> = [
        &[2, 0, 0, 0][..],
        &[1, 0, 7, 0, 255, 255, 255, 255],
        &[2, 0, 7, 0, 7, 0, 0, 0],
        &[4, 0, 5, 0, 255, 255, 255, 255],
        &[16, 0, 7, 0, 255, 255, 255, 255],
        &[32, 0, 5, 0, 255, 255, 255, 255],
    ]
    .concat();
    let bench = Bench::new();
    let a = folder(&bench, Ino::ROOT, "a", 0o755);
    let b = folder(&bench, a, "b", 0o755);
    let set = |ino| {
        bench.files.set_access_list(ino, LIST, &list, false).unwrap();
    };
    set(b);
    snapshot(&bench, "own");
    set(a);
    snapshot(&bench, "both");
    let past = |name: &str| bench.find(&format!("a/b/.marram/snapshots/{name}")).unwrap();
    let own = past("own");
    assert_eq!(bench.files.xattr(own.ino, LIST).unwrap(), list);
    let both = past("both");
    assert_eq!(both.permissions, 0o700, "the owner of both is one");
    assert_eq!(bench.files.xattr(both.ino, LIST), Err(Error::NoAttribute));
}

#[test]
fn all_ways_to_a_snapshot_go_with_it_and_the_kernel_hears_of_those_that_it_knows() {
    let bench = Bench::new();
    let other = folder(&bench, bench.folder, "e", 0o755);
    snapshot(&bench, "t");
    let ways = [".marram/snapshots/t", "d/.marram/snapshots/t", "d/e/.marram/snapshots/t"];
    let found = ways.map(|way| bench.find(way).unwrap());
    let shelves: Vec<Ino> = ["d", "d/e"]
        .iter()
        .map(|at| bench.find(&format!("{at}/.marram/snapshots")).unwrap().ino)
        .collect();
    let mut known = bench.files.known_pasts();
    known.sort();
    assert_eq!(known, shelves);
    assert_eq!(bench.files.places_of_snapshot("new").len(), 3);
    bench.files.forget(shelves[1], 1);
    assert_eq!(bench.files.known_pasts().len(), 2, "one lookup is not forgotten");
    bench.files.forget(shelves[1], 1);
    assert_eq!(bench.files.known_pasts(), [shelves[0]]);

    let source: Source = "root@t".parse().unwrap();
    assert_eq!(bench.files.evict(&source).len(), 3);
    bench.store.destroy(&source, false).unwrap();
    for (way, found) in ways.iter().zip(&found) {
        assert_eq!(bench.files.attributes(found.ino), Err(Error::Stale));
        assert_eq!(bench.find(way), Err(Error::NotFound));
    }
    assert_eq!(bench.find("d/e/.marram/snapshots/s"), Err(Error::NotFound), "{other:?} is younger");
}

#[test]
fn members_that_share_a_file_system_are_closed_one_by_one() {
    let bench = Bench::new();
    let one = bench.find("d/.marram/snapshots/s").unwrap();
    let whole = bench.find(".marram/snapshots/s").unwrap();
    bench.files.forget(one.ino, 1);
    for _ in 0..20 {
        bench.files.close_unused();
    }
    assert_eq!(bench.files.attributes(one.ino), Err(Error::Stale));
    let inside = bench.files.lookup(whole.ino, name("d")).unwrap().ino;
    assert_eq!(bench.names(inside), ["f"]);
    assert_eq!(bench.files.known_of_member(&"root@s".parse().unwrap()).len(), 2);
}
