//! The base of a fork and its parent in a pool: it moves with the merge in one commit, back with
//! its undo, and goes with the fork; a promotion makes no fork of the former parent.

use crate::paths::{find, make, open};
use crate::small_pool;
use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_format::record::{Inode, Time};
use marram_history::{
    Branch, Direction, HeldParent, MergeOptions, MergeSides, Parent, ParentChange,
};
use marram_pool::{Author, OpenOptions, Pool, Reversal};
use marram_posix::Posix;
use marram_sim::device::{CrashState, RecordingDevice};
use marram_sim::pattern;
use marram_store::{Batch, DatasetName, Lineage, Source, Store, View};
use marram_vfs::{FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::cell::Cell;
use std::sync::Arc;

/// Torn states that are looked at, besides every prefix of the writes.
const TORN: usize = 60;

fn open_pool(device: Arc<dyn Device>) -> Pool {
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
    pool.acting_for(Author { user: Some(1), command: "test".to_owned() })
}

fn name(text: &str) -> DatasetName {
    text.parse().unwrap()
}

fn write(files: &Posix, path: &str, seed: u64) {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let ino = find(files, path).or_else(|_| make(files, path, node)).unwrap();
    files.write(ino, 0, &pattern(seed, 5_000), WriteOptions::default()).unwrap();
}

fn has(files: &Posix, path: &str) -> bool {
    find(files, path).is_ok()
}

/// A pool on a device, with files in it and a fork.
struct Forked {
    pool: Pool,
    files: Posix,
    fork: Posix,
}

fn forked(device: Arc<dyn Device>) -> Forked {
    let pool = open_pool(device);
    let files = open(&pool, "root");
    write(&files, "/a", 1);
    write(&files, "/b", 2);
    pool.fork(&DatasetName::root(), &name("f"), 1).unwrap();
    let fork = open(&pool, "f");
    Forked { pool, files, fork }
}

fn in_memory() -> Forked {
    forked(Arc::new(MemoryDevice::from_bytes(small_pool::empty("bases"))))
}

impl Forked {
    fn bring(&self, direction: Direction) -> usize {
        let into = if direction == Direction::Merge { &self.files } else { &self.fork };
        let branch = (&name("f"), direction);
        let report =
            marram_history::bring_across(into, &self.pool, branch, &MergeOptions::default());
        let report = report.unwrap();
        assert!(report.applied, "{report:?}");
        report.differences.len()
    }

    fn base(&self) -> Source {
        Branch::of(&self.pool, &name("f")).unwrap().unwrap().base
    }

    /// Takes the last operation back, a merge.
    fn undo(&self) {
        self.undo_of(&self.pool, None);
    }

    /// Takes a merge back, by its number or the last operation.
    fn undo_of(&self, pool: &Pool, number: Option<u64>) {
        let (number, reversal) = pool.reversal(number).unwrap();
        let Reversal::Merge { dataset, base, back_to, root_object, moved_base, .. } = reversal
        else {
            panic!("{reversal:?}");
        };
        let into = if dataset == name("f") { &self.fork } else { &self.files };
        let root = Ino(root_object);
        let sides = MergeSides { dataset: &dataset, base: &base, fork: &back_to, root };
        let pool = pool.taking_back(number);
        let options = MergeOptions { always: moved_base, ..MergeOptions::default() };
        let report = marram_history::merge(into, &pool, sides, &options).unwrap();
        assert!(report.applied, "{:?}", report.conflicts);
    }

    fn names(&self) -> Vec<String> {
        names(&self.pool)
    }

    /// The number of the last operation.
    fn last(&self) -> u64 {
        self.pool.operations().unwrap().last().unwrap().number
    }

    /// Lets the parent or the fork go back to a snapshot of it.
    fn roll_back(&self, files: &Posix, to: &str, keep: &str) {
        let to: Source = to.parse().unwrap();
        let failed = |error: marram_store::Error| marram_vfs::Error::Io(error.to_string());
        files.roll_back(|| self.pool.rollback(&to, keep).map_err(failed)).unwrap();
    }
}

fn names(pool: &Pool) -> Vec<String> {
    pool.list().unwrap().into_iter().map(|report| report.source.to_string()).collect()
}

#[test]
fn an_undo_moves_the_base_back_and_its_undo_forth() {
    let forked = in_memory();
    let origin = forked.base();
    assert_eq!(origin.to_string(), "root@fork:f");
    write(&forked.fork, "/one", 3);
    forked.bring(Direction::Merge);
    let first = forked.base();
    assert!(first.to_string().starts_with("f@base:"), "{first}");
    forked.undo();
    assert_eq!(forked.base(), origin);
    assert!(!has(&forked.files, "/one"));
    assert_eq!(forked.bring(Direction::Merge), 1, "what was taken back comes again");
    assert!(has(&forked.files, "/one"));
    let second = forked.base();
    write(&forked.files, "/two", 4);
    forked.bring(Direction::Update);
    let third = forked.base();
    assert!(third.to_string().starts_with("root@base:"), "{third}");
    forked.undo();
    assert_eq!(forked.base(), second);
    assert!(!has(&forked.fork, "/two"));
    forked.undo();
    assert_eq!(forked.base(), third, "the undo is taken back");
    assert!(has(&forked.fork, "/two"));
    let seen = forked.names();
    let bases: Vec<&String> = seen.iter().filter(|name| name.contains("@base:")).collect();
    assert_eq!(bases, [&third.to_string()], "the others are kept under other names");
}

#[test]
fn an_undo_moves_the_base_back_also_of_a_merge_that_took_nothing() {
    let forked = in_memory();
    let origin = forked.base();
    for files in [&forked.fork, &forked.files] {
        write(files, "/both", 3);
    }
    assert_eq!(forked.bring(Direction::Merge), 0, "both have it");
    let moved = forked.base();
    assert_ne!(moved, origin);
    forked.undo();
    assert_eq!(forked.base(), origin);
    forked.undo();
    assert_eq!(forked.base(), moved, "the undo is taken back");
    assert!(has(&forked.files, "/both") && has(&forked.fork, "/both"));
}

#[test]
fn a_base_that_is_kept_for_nothing_goes_in_the_background() {
    let forked = in_memory();
    for dataset in [DatasetName::root(), name("f")] {
        forked.pool.set_property(&dataset, "undo", Some("off")).unwrap();
    }
    for seed in 3..6 {
        write(&forked.fork, "/one", seed);
        forked.bring(Direction::Merge);
        write(&forked.files, "/two", seed);
        forked.bring(Direction::Update);
        while forked.pool.reclaim_step().unwrap() {}
        let bases = forked.names().into_iter().filter(|name| name.contains("base:"));
        assert_eq!(bases.collect::<Vec<_>>(), [forked.base().to_string()]);
    }
    // One that a rollback has taken away goes too.
    forked.pool.snapshot(&DatasetName::root(), "before").unwrap();
    write(&forked.fork, "/one", 7);
    forked.bring(Direction::Merge);
    forked.roll_back(&forked.files, "root@before", "kept");
    while forked.pool.reclaim_step().unwrap() {}
    assert_eq!(forked.names().iter().filter(|name| name.contains("base:")).count(), 0);
}

#[test]
fn a_rollback_past_a_merge_takes_the_base_away() {
    let forked = in_memory();
    let origin = forked.base();
    forked.pool.snapshot(&DatasetName::root(), "before").unwrap();
    write(&forked.fork, "/one", 3);
    forked.bring(Direction::Merge);
    forked.pool.snapshot(&DatasetName::root(), "after").unwrap();
    write(&forked.files, "/own", 4);
    let base = forked.base();
    forked.roll_back(&forked.files, "root@after", "k1");
    assert_eq!(forked.base(), base, "it has the merge");
    forked.roll_back(&forked.files, "root@before", "k2");
    assert_eq!(forked.base(), origin);
    assert!(!has(&forked.files, "/one"));
    forked.bring(Direction::Merge);
    assert!(has(&forked.files, "/one"), "nothing of the fork is left out");
}

/// A fork with `/one` and `/two`, merged one after the other; the number of the second merge.
fn merged_twice() -> (Forked, u64) {
    let forked = in_memory();
    for dataset in ["root", "f"] {
        forked.pool.snapshot(&name(dataset), "before").unwrap();
    }
    for (path, seed) in [("/one", 3), ("/two", 4)] {
        write(&forked.fork, path, seed);
        forked.bring(Direction::Merge);
    }
    let number = forked.last();
    (forked, number)
}

#[test]
fn an_undo_brings_no_base_back_that_the_fork_has_gone_back_from() {
    let (forked, second) = merged_twice();
    forked.roll_back(&forked.fork, "f@before", "kept");
    forked.undo_of(&forked.pool, Some(second));
    assert_eq!(forked.base().to_string(), "root@fork:f");
    assert!(has(&forked.files, "/one") && !has(&forked.files, "/two"));
    forked.bring(Direction::Merge);
    assert!(has(&forked.files, "/one"), "the fork never had it, as it is now");
}

#[test]
fn an_undo_brings_no_base_back_that_the_parent_has_gone_back_from() {
    let (forked, second) = merged_twice();
    forked.roll_back(&forked.files, "root@before", "kept");
    forked.undo_of(&forked.pool.past_later_changes(), Some(second));
    assert_eq!(forked.base().to_string(), "root@fork:f");
    forked.bring(Direction::Merge);
    assert!(has(&forked.files, "/one") && has(&forked.files, "/two"), "nothing is left out");
}

#[test]
fn a_fork_takes_its_bases_along_and_a_promoted_one_leaves_no_fork_behind() {
    let forked = in_memory();
    write(&forked.fork, "/one", 3);
    forked.bring(Direction::Merge);
    write(&forked.files, "/two", 4);
    forked.bring(Direction::Update);
    let is_fork = |name: &str| {
        let report = forked.pool.report(&name.parse().unwrap()).unwrap();
        (report.is_fork, report.origin.is_some())
    };
    assert_eq!((is_fork("root"), is_fork("f")), ((false, false), (true, true)));
    forked.pool.promote(&name("f")).unwrap();
    assert_eq!((is_fork("root"), is_fork("f")), ((false, true), (false, false)));
    assert_eq!(Branch::of(&forked.pool, &DatasetName::root()).unwrap(), None);
    let (number, _) = forked.pool.reversal(None).unwrap();
    forked.pool.undo(number).unwrap();
    assert_eq!((is_fork("root"), is_fork("f")), ((false, false), (true, true)));
    let Forked { pool, fork, .. } = forked;
    drop(fork);
    pool.destroy(&"f".parse().unwrap(), false).unwrap();
    assert_eq!(names(&pool), ["root"]);
}

/// A parent beside which something else is done, once, after a merge was judged and before its
/// commit.
struct Overtaken<'a> {
    files: &'a Posix,
    meanwhile: &'a (dyn Fn() + Sync),
    is_done: Cell<bool>,
}

struct HeldOvertaken<'a> {
    held: Box<dyn HeldParent + 'a>,
    parent: &'a Overtaken<'a>,
}

impl Parent for Overtaken<'_> {
    fn view(&self) -> &dyn View {
        self.files.view()
    }
    fn root(&self) -> Ino {
        self.files.root()
    }
    fn check_running(&self) -> marram_vfs::Result<()> {
        self.files.check_running()
    }
    fn hold_still(&self) -> marram_vfs::Result<Box<dyn HeldParent + '_>> {
        Ok(Box::new(HeldOvertaken { held: self.files.hold_still()?, parent: self }))
    }
    fn with_space(
        &self,
        attempt: &mut dyn FnMut() -> marram_vfs::Result<()>,
    ) -> marram_vfs::Result<()> {
        self.files.with_space(attempt)
    }
    fn free_removed(&self) -> marram_vfs::Result<()> {
        self.files.free_removed()
    }
    fn give_back(&self, ino: u64) {
        self.files.give_back(ino);
    }
}

impl HeldParent for HeldOvertaken<'_> {
    fn now(&self) -> Time {
        self.held.now()
    }
    fn first_number(&self) -> u64 {
        self.held.first_number()
    }
    fn is_in_use(&self, ino: u64) -> bool {
        self.held.is_in_use(ino)
    }
    fn complete(&self, ino: u64, inode: &mut Inode) {
        self.held.complete(ino, inode);
    }
    fn dry_run(&self, change: ParentChange<'_>) -> marram_vfs::Result<()> {
        self.held.dry_run(change)
    }
    fn complete_batch(
        &mut self,
        change: &mut ParentChange<'_>,
    ) -> marram_vfs::Result<Batch<'static>> {
        if !self.parent.is_done.replace(true) {
            let meanwhile = self.parent.meanwhile;
            std::thread::scope(|scope| scope.spawn(meanwhile).join().unwrap());
        }
        self.held.complete_batch(change)
    }
    fn applied(&mut self, change: &ParentChange<'_>) {
        self.held.applied(change);
    }
}

#[test]
fn a_merge_beside_an_update_is_made_again_on_the_base_that_there_is_then() {
    let forked = in_memory();
    write(&forked.fork, "/one", 3);
    write(&forked.files, "/two", 4);
    let Forked { pool, files, fork } = &forked;
    let across = |into: &dyn Parent, direction| {
        let options = MergeOptions::default();
        let branch = (&name("f"), direction);
        let report = marram_history::bring_across(into, pool, branch, &options).unwrap();
        assert!(report.applied, "{report:?}");
        report.differences.len()
    };
    let meanwhile = || assert_eq!(across(fork, Direction::Update), 1);
    let overtaken = Overtaken { files, meanwhile: &meanwhile, is_done: Cell::new(false) };
    assert_eq!(across(&overtaken, Direction::Merge), 1);
    assert!(has(files, "/one") && has(fork, "/two"));
    files.unlink(Ino::ROOT, Name::new(b"two").unwrap()).unwrap();
    assert_eq!(across(files, Direction::Merge), 0, "both had it: the fork brings nothing");
    assert!(!has(files, "/two"), "what was removed does not come again");
}

/// The content and the base of a state after a power cut, as what has been merged says it is.
fn assert_moved_together(device: Arc<dyn Device>, state: CrashState) {
    let pool = open_pool(device);
    let branch = Branch::of(&pool, &name("f")).unwrap().unwrap();
    let (files, fork) = (open(&pool, "root"), open(&pool, "f"));
    let merged = has(&files, "/one");
    let updated = has(&fork, "/two");
    let base = branch.base.to_string();
    let wanted = match (merged, updated) {
        (_, true) => "root@base:",
        (true, false) => "f@base:",
        (false, false) => "root@fork:",
    };
    assert!(base.starts_with(wanted), "state {state}: {merged} {updated} {base}");
}

#[test]
fn content_and_base_survive_together_or_not_at_all() {
    let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("bases")));
    let recorded = forked(device.clone());
    write(&recorded.fork, "/one", 3);
    recorded.pool.commit().unwrap();
    device.mark(1);
    recorded.bring(Direction::Merge);
    recorded.undo();
    recorded.undo();
    write(&recorded.files, "/two", 4);
    recorded.bring(Direction::Update);
    drop(recorded);
    let trace = device.trace();
    let all = trace.prefixes().chain(trace.seeded(7, TORN));
    let after = |state: &CrashState| trace.last_mark(state.cut).is_some();
    let all: Vec<CrashState> = all.filter(after).collect();
    assert!(all.len() > 30, "{} states", all.len());
    for state in all {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        assert_moved_together(memory.clone(), state);
        assert_sound(&*memory, &format!("state {state}"));
    }
}
