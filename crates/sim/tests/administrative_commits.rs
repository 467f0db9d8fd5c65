//! What administrative operations cost, counted in group commits, and that merges which cost one
//! are as safe as any: a change that adds a commit to one of them meets this table.

use crate::paths::{find, make, open};
use crate::small_pool;
use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_history::{Choice, DirectoryRollback, MergeOptions, MergeReport, MergeSides, diff};
use marram_pool::{Author, OpenOptions, Pool, Reversal};
use marram_posix::Posix;
use marram_sim::device::{CrashState, RecordingDevice};
use marram_sim::pattern;
use marram_store::{DatasetName, Holds, Lineage, Source, Store};
use marram_vfs::{FileSystem, Ino, Kind, NewNode, WriteOptions};
use std::cell::Cell;
use std::sync::Arc;

/// Torn states that are looked at, besides every prefix of the writes.
const TORN: usize = 60;
/// Bytes of each file: more than lies beside an item.
const FILE_BYTES: usize = 20_000;

fn open_pool(device: Arc<dyn Device>) -> Pool {
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
    pool.acting_for(Author { user: Some(1), command: "test".to_owned() })
}

fn source(text: &str) -> Source {
    text.parse().unwrap()
}

fn name(text: &str) -> DatasetName {
    text.parse().unwrap()
}

fn write(files: &Posix, path: &str, seed: u64) {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let ino = find(files, path).or_else(|_| make(files, path, node)).unwrap();
    files.write(ino, 0, &pattern(seed, FILE_BYTES), WriteOptions::default()).unwrap();
}

fn holds(files: &Posix, path: &str, seed: u64) -> bool {
    let mut content = Vec::new();
    files.read(find(files, path).unwrap(), 0, FILE_BYTES, &mut content).unwrap();
    content == pattern(seed, FILE_BYTES)
}

/// A file system with a directory and some files, and nothing that waits for a commit.
fn prepare(pool: &Pool) -> Posix {
    let files = open(pool, "root");
    make(&files, "/d", NewNode::Directory { permissions: 0o755 }).unwrap();
    for (seed, path) in ["/a", "/b", "/d/a", "/d/b"].iter().enumerate() {
        write(&files, path, seed as u64);
    }
    pool.commit().unwrap();
    files
}

fn pool_with_files() -> (Arc<MemoryDevice>, Pool, Posix) {
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("commits")));
    let pool = open_pool(memory.clone());
    let files = prepare(&pool);
    (memory, pool, files)
}

/// Forks the file system, and changes some of the fork.
fn fork(pool: &Pool, fork: &str, seed: u64) -> Posix {
    pool.fork(&DatasetName::root(), &name(fork), 1).unwrap();
    let files = open(pool, fork);
    write(&files, "/d/b", seed);
    write(&files, &format!("/{fork}"), seed);
    files
}

fn names(pool: &Pool) -> Vec<String> {
    pool.list().unwrap().into_iter().map(|report| report.source.to_string()).collect()
}

fn base_of(pool: &Pool, fork: &str) -> Source {
    pool.report(&source(fork)).unwrap().origin.unwrap()
}

fn merge(pool: &Pool, files: &Posix, fork: &str, options: &MergeOptions<'_>) -> MergeReport {
    let (dataset, base, fork) = (DatasetName::root(), base_of(pool, fork), source(fork));
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
    marram_history::merge(files, pool, sides, options).unwrap()
}

fn undo_merge(pool: &Pool, files: &Posix) {
    let (number, reversal) = pool.reversal(None).unwrap();
    let Reversal::Merge { dataset, base, back_to, root_object, .. } = reversal else {
        panic!("{reversal:?}");
    };
    let root = Ino(root_object);
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &back_to, root };
    let report =
        marram_history::merge(files, &pool.taking_back(number), sides, &MergeOptions::default())
            .unwrap();
    assert!(report.applied, "{:?}", report.conflicts);
}

fn compare(pool: &Pool, before: &str, after: &str) -> usize {
    let mut count = 0;
    diff(pool, &source(before), &source(after), Ino::ROOT, &mut |_| {
        count += 1;
        true
    })
    .unwrap();
    count
}

fn roll_back_directory(pool: &Pool, files: &Posix, keep: Option<&str>) {
    let (dataset, to) = (DatasetName::root(), source("root@s"));
    let directory = find(files, "/d").unwrap();
    let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep };
    assert!(marram_history::roll_back_directory(files, pool, rollback).unwrap().is_some());
}

/// Goes back while the file system is open.
fn going_back(
    files: &Posix,
    go_back: &dyn Fn() -> marram_store::Result<()>,
) -> marram_store::Result<()> {
    let failed = |error: marram_store::Error| marram_vfs::Error::Io(error.to_string());
    let done = files.roll_back(|| go_back().map_err(failed));
    done.map_err(|error: marram_vfs::Error| marram_store::Error::Io(error.to_string()))
}

/// Does something that is to take so many group commits, of two flushes each.
fn takes<T>(pool: &Pool, commits: u64, what: &str, work: impl FnOnce() -> T) -> T {
    let before = pool.status();
    let done = work();
    let after = pool.status();
    // A commit may have several moments, each with a group of its own.
    assert!(after.group - before.group >= commits, "commits of {what}");
    let flushes = after.devices[0].flushes - before.devices[0].flushes;
    assert_eq!(flushes, 2 * commits, "flushes of {what}");
    done
}

#[test]
fn what_changes_records_is_one_commit_with_all_that_was_written_before() {
    let (memory, pool, files) = pool_with_files();
    let root = DatasetName::root();
    let last = || pool.reversal(None).unwrap().0;
    let one = |what: &str, work: &dyn Fn() -> marram_store::Result<()>| {
        write(&files, "/a", 9);
        takes(&pool, 1, what, work).unwrap();
    };
    let undo = || pool.undo(last()).map(|_| ());
    one("a snapshot", &|| pool.snapshot(&root, "s"));
    one("a fork", &|| pool.fork(&root, &name("f"), 1));
    one("a clone", &|| pool.clone_snapshot(&source("root@s"), &name("c")));
    one("a name", &|| pool.rename(&source("c"), &source("e")));
    one("the old name", &undo);
    one("a hold", &|| pool.hold(&source("root@s"), "tag"));
    one("a release", &|| pool.release(&source("root@s"), "tag"));
    one("a property", &|| pool.set_property(&root, "undo", Some("2h")));
    one("a destruction", &|| pool.move_to_trash(&[source("c")]).map(|_| ()));
    one("what was destroyed", &undo);
    one("a promotion", &|| pool.promote(&name("c")));
    one("a promotion taken back", &undo);
    one("a rollback", &|| going_back(&files, &|| pool.rollback(&source("root@s"), "was")));
    one("a rollback taken back", &|| going_back(&files, &undo));
    one("a destruction for good", &|| pool.destroy(&source("f"), false).map(|_| ()));
    pool.close().unwrap();
    drop((files, pool));
    assert_sound(&*memory, "after all");
}

#[test]
fn a_comparison_and_what_is_brought_back_take_no_more_than_they_must() {
    let (memory, pool, files) = pool_with_files();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    let forked = fork(&pool, "f", 20);
    assert_eq!(takes(&pool, 1, "a diff of what waits", || compare(&pool, "root@s", "f")), 2);
    takes(&pool, 0, "a diff of what is committed", || compare(&pool, "root", "f"));
    let preview = MergeOptions { preview: true, ..MergeOptions::default() };
    takes(&pool, 0, "a preview", || merge(&pool, &files, "f", &preview));
    let whole = MergeOptions::default();
    takes(&pool, 1, "a merge", || assert!(merge(&pool, &files, "f", &whole).applied));
    assert!(holds(&files, "/d/b", 20) && holds(&files, "/f", 20));
    write(&files, "/b", 30);
    takes(&pool, 2, "its undo, where something waits", || undo_merge(&pool, &files));
    assert!(holds(&files, "/d/b", 3) && holds(&files, "/b", 30));
    write(&forked, "/d/a", 21);
    write(&files, "/d/a", 31);
    pool.commit().unwrap();
    let refused = takes(&pool, 0, "a conflict", || merge(&pool, &files, "f", &whole));
    assert!(!refused.applied);
    write(&forked, "/a", 22);
    let theirs = MergeOptions { choose: &|_| Choice::Theirs, ..MergeOptions::default() };
    takes(&pool, 2, "a merge of what waits", || merge(&pool, &files, "f", &theirs));
    assert!(holds(&files, "/a", 22) && holds(&files, "/d/a", 21));
    pool.commit().unwrap();
    let keep = Some("was");
    pool.snapshot(&DatasetName::root(), "t").unwrap();
    write(&files, "/a", 40);
    pool.commit().unwrap();
    pool.set_property(&name("f"), "undo", Some("2h")).unwrap();
    takes(&pool, 1, "a directory's way back", || roll_back_directory(&pool, &files, keep));
    assert!(holds(&files, "/d/a", 2) && holds(&files, "/a", 40));
    let was = open(&pool, "root@was");
    assert!(holds(&was, "/d/a", 21) && holds(&was, "/a", 40));
    write(&files, "/d/a", 41);
    let again = || roll_back_directory(&pool, &files, Some("then"));
    takes(&pool, 2, "that, where something waits and two states are kept", again);
    write(&files, "/d/a", 42);
    takes(&pool, 2, "that, with one", || roll_back_directory(&pool, &files, None));
    undo_merge(&pool, &files);
    assert!(holds(&files, "/d/a", 42));
    drop((files, forked, was));
    pool.close().unwrap();
    drop(pool);
    assert_sound(&*memory, "after all");
}

/// The states before and after each are moments of its own commit.
#[test]
fn merges_one_after_the_other_keep_their_states_apart() {
    let (memory, pool, files) = pool_with_files();
    let forks = [fork(&pool, "f", 50), fork(&pool, "g", 50)];
    pool.commit().unwrap();
    let theirs = MergeOptions { choose: &|_| Choice::Theirs, ..MergeOptions::default() };
    takes(&pool, 1, "a merge", || assert!(merge(&pool, &files, "f", &theirs).applied));
    takes(&pool, 1, "the next", || assert!(merge(&pool, &files, "g", &theirs).applied));
    undo_merge(&pool, &files);
    assert!(find(&files, "/f").is_ok() && find(&files, "/g").is_err());
    drop((files, forks));
    pool.close().unwrap();
    while pool.reclaim_step().unwrap() {}
    drop(pool);
    assert_sound(&*memory, "after all");
}

/// Blocks that a fork has let go of since they were read are never adopted.
#[test]
fn a_fork_that_is_written_to_while_it_is_merged_is_read_anew() {
    let (memory, pool, files) = pool_with_files();
    let forked = fork(&pool, "f", 60);
    write(&forked, "/a", 61);
    write(&files, "/a", 62);
    pool.commit().unwrap();
    let asked = Cell::new(0);
    let write_meanwhile = || {
        for seed in [70, 71] {
            for path in ["/d/b", "/f"] {
                write(&forked, path, seed);
            }
            pool.commit().unwrap();
        }
    };
    let choose = |_: &marram_history::Conflict| {
        asked.set(asked.get() + 1);
        if asked.get() == 1 {
            std::thread::scope(|scope| scope.spawn(write_meanwhile).join()).unwrap();
        }
        Choice::Theirs
    };
    let options = MergeOptions { choose: &choose, ..MergeOptions::default() };
    assert!(merge(&pool, &files, "f", &options).applied);
    assert!(asked.get() > 1, "it was read twice");
    assert!(!names(&pool).iter().any(|name| name.contains("@merge")));
    for seed in 80..90 {
        write(&forked, "/d/b", seed);
        pool.commit().unwrap();
    }
    assert!(holds(&files, "/d/b", 71) && holds(&files, "/f", 71) && holds(&files, "/a", 61));
    drop((files, forked));
    pool.close().unwrap();
    drop(pool);
    assert_sound(&*memory, "after all");
}

#[test]
fn a_power_cut_leaves_a_merge_with_its_entry_and_states_or_nothing_of_it() {
    let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("commits")));
    let pool = open_pool(device.clone());
    let files = prepare(&pool);
    let forked = fork(&pool, "f", 90);
    pool.commit().unwrap();
    write(&forked, "/d/a", 91);
    let entries = pool.operations().unwrap().len();
    device.mark(0);
    assert!(merge(&pool, &files, "f", &MergeOptions::default()).applied);
    device.mark(1);
    drop((files, forked, pool));
    let trace = device.trace();
    let all = trace.prefixes().chain(trace.seeded(1, TORN));
    let all: Vec<CrashState> = all.filter(|state| trace.last_mark(state.cut).is_some()).collect();
    let mut with = 0;
    for state in &all {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(*state)));
        let pool = open_pool(memory.clone());
        let files = open(&pool, "root");
        let is_merged = pool.operations().unwrap().len() > entries;
        assert!(is_merged || trace.last_mark(state.cut) == Some(0), "{state} lost a merge");
        assert_eq!(find(&files, "/f").is_ok(), is_merged, "{state}");
        assert!(holds(&files, "/d/b", if is_merged { 90 } else { 3 }), "{state}");
        assert!(holds(&files, "/d/a", if is_merged { 91 } else { 2 }), "{state}");
        assert_eq!(pool.list_trash().unwrap().len(), if is_merged { 2 } else { 0 }, "{state}");
        assert!(!names(&pool).iter().any(|name| name.contains("@merge")), "{state}");
        with += usize::from(is_merged);
        drop((files, pool));
        assert_sound(&*memory, &state.to_string());
    }
    assert!(with > 0 && with < all.len(), "{with} of {}", all.len());
}
