//! A pool with a history: limits, a hold, a fork that was merged, a directory that went back, a
//! name that was taken back, a snapshot that was destroyed and is kept, and the log of all that.

use super::{
    CALLER, NOW_SECONDS, POOL_BYTES, content, directory, empty_pool, file, mounted, mounted_with,
    name, open, root, source,
};
use marram_device::Device;
use marram_format::version::FormatVersion;
use marram_history::{DirectoryRollback, MergeOptions, MergeSides};
use marram_pool::{Operation, Pool, ReceiveRequest, Reversal, SendRequest};
use marram_posix::{Limit, OwnerClass, OwnerId, Posix};
use marram_sim::pattern;
use marram_store::{Holds, PropertySource, Store};
use marram_vfs::{Clock, FileSystem, Ino, SteppedClock, WriteOptions};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The label that the pool got after it was made.
pub(crate) const LABEL: &str = "with a history";
const FORK: &str = "forks/try";
const QUOTA: &str = "25165824";
const OWNER: OwnerId = OwnerId { class: OwnerClass::User, id: CALLER.uid };
const LIMIT: Limit = Limit { bytes: 9_000_000, inodes: 99 };

/// What was done, as the log has it: number, what, the names; and what it took back.
const LOG: [&str; 12] = [
    "1 set root quota  25165824",
    "2 snapshot root@before",
    "3 hold root@before golden",
    "4 fork forks/try root",
    "5 merge root forks/try",
    "6 snapshot root@before-rollback-1",
    "7 merge root root@before",
    "8 clone copy root@before",
    "9 rename copy renamed",
    "10 rename renamed copy, undoes 9",
    "11 snapshot root@gone",
    "12 destroy root@gone",
];
/// What version 1.6 has besides: what was done to the pool and to owners.
const LOG_SINCE_1_6: [&str; 4] = [
    "13 label no history yet with a history",
    "14 limit root none none 5000000 none",
    "15 grow 33554432 37748736",
    "16 abort part@before",
];
/// The rollback of a directory, and the destruction: they are taken back.
const WENT_BACK: u64 = 7;
const DESTROYED: u64 = 12;
/// What can be taken back: not what is held, was taken back or is destroyed.
const CAN_UNDO: [u64; 9] = [1, 3, 4, 5, 6, 7, 8, 10, 12];
/// The same of what version 1.6 has besides.
const LABELLED: u64 = 13;
const LIMITED: u64 = 14;
/// What the pool was called when it was made.
const FIRST_LABEL: &str = "no history yet";
/// The group that got a limit, since version 1.6.
const GROUP: OwnerId = OwnerId { class: OwnerClass::Group, id: 100 };
const GROUP_LIMIT: Limit = Limit { bytes: 5_000_000, ..Limit::NONE };
/// By how much the pool has grown.
const GROWN_BYTES: usize = 4 << 20;

pub(crate) fn new_image() -> Vec<u8> {
    let memory = empty_pool(FIRST_LABEL);
    let device: Arc<dyn Device> = memory.clone();
    let pool = open(&device);
    fill(&pool);
    memory.grow(POOL_BYTES + GROWN_BYTES);
    change_pool(&pool);
    pool.close().expect("memory takes it");
    drop(pool);
    memory.snapshot()
}

fn fill(pool: &Pool) {
    let clock: Arc<dyn Clock> = Arc::new(SteppedClock::default());
    let files = mounted_with(pool, "root", Arc::clone(&clock));
    let (work, kept) = (directory(&files, "work"), directory(&files, "kept"));
    file(&files, work, "text", b"one\ntwo\nthree\n");
    file(&files, kept, "a", &pattern(1, 20_000));
    file(&files, kept, "removed", b"removed");
    files.set_limit(OWNER, LIMIT).expect("a limit");
    files.sync_all().expect("memory takes it");
    pool.set_property(&root(), "quota", Some(QUOTA)).expect("a quota");
    pool.snapshot(&root(), "before").expect("a snapshot");
    pool.hold(&source("root@before"), "golden").expect("it is held");
    merge_a_fork(pool, &files, work, clock);
    roll_back(pool, &files, kept);
    pool.clone_snapshot(&source("root@before"), &source("copy").dataset).expect("a clone");
    pool.rename(&source("copy"), &source("renamed")).expect("another name");
    pool.undo(9).expect("its own name again");
    pool.snapshot(&root(), "gone").expect("a snapshot");
    pool.move_to_trash(&[source("root@gone")]).expect("it is destroyed");
}

/// What is done to the pool itself, to an owner and to a stream.
fn change_pool(pool: &Pool) {
    pool.set_label(LABEL).expect("a label");
    let limit = (GROUP, GROUP_LIMIT);
    mounted(pool, "root").set_limit_in(pool, &root(), limit).expect("a limit");
    pool.grow().expect("it grows");
    let request = SendRequest { snapshot: source("root@before"), base: None, resume: None };
    let mut stream = Vec::new();
    pool.send(&request, &mut stream, &mut |_| {}).expect("a stream");
    let dataset = source("part").dataset;
    let request = ReceiveRequest { dataset: dataset.clone(), force: false, resumable: true };
    let mut cut = &stream[..stream.len() - 8];
    assert!(pool.receive(&request, &mut cut, &mut |_| {}).is_err(), "it is cut");
    pool.drop_partial(&dataset).expect("a part is dropped");
}

/// A fork of a directory, and what was changed in both, brought together.
fn merge_a_fork(pool: &Pool, files: &Posix, work: Ino, clock: Arc<dyn Clock>) {
    let fork = source(FORK);
    pool.fork(&root(), &fork.dataset, work.0).expect("a fork");
    let forked = mounted_with(pool, FORK, clock);
    let text = find(&forked, work, "text");
    forked.write(text, 0, b"ONE", WriteOptions::default()).expect("written");
    file(&forked, work, "new", &pattern(4, 10_000));
    forked.sync_all().expect("memory takes it");
    file(files, work, "beside", b"beside");
    let base = pool.report(&fork).expect("it is there").origin.expect("it began as that");
    merge(pool, files, MergeSides { dataset: &root(), base: &base, fork: &fork, root: work });
}

fn merge(pool: &Pool, files: &Posix, sides: MergeSides<'_>) {
    let report =
        marram_history::merge(files, pool, sides, &MergeOptions::default()).expect("it is merged");
    assert!(report.applied, "{:?}", report.conflicts);
}

/// A directory goes back after changes of every kind.
fn roll_back(pool: &Pool, files: &Posix, kept: Ino) {
    let changed = find(files, kept, "a");
    files.write(changed, 5000, &pattern(7, 300), WriteOptions::default()).expect("written");
    files.unlink(kept, name("removed")).expect("it goes");
    file(files, kept, "new", b"new");
    let (dataset, to) = (root(), source("root@before"));
    let keep = Some("before-rollback-1");
    let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory: kept, keep };
    let change_set =
        marram_history::roll_back_directory(files, pool, rollback).expect("it goes back");
    assert!(change_set.is_some(), "something changes");
}

fn told(operation: &Operation) -> String {
    let Operation { number, record, .. } = operation;
    let texts = record.texts.join(" ");
    let undoes = match record.undoes {
        0 => String::new(),
        other => format!(", undoes {other}"),
    };
    format!("{number} {} {texts}{undoes}", record.kind.name())
}

fn tells_of_the_pool(version: FormatVersion) -> bool {
    version.minor >= 6
}

/// The log, what is kept for it, and what was said of datasets and users is as it was written.
pub(crate) fn assert_history(pool: &Pool, version: FormatVersion) {
    let log = pool.operations().expect("the log is read");
    let (mut expected, mut undoable) = (LOG.to_vec(), CAN_UNDO.to_vec());
    if tells_of_the_pool(version) {
        expected.extend(LOG_SINCE_1_6);
        undoable.extend([LABELLED, LIMITED]);
        let group = mounted(pool, "root").owner(GROUP).expect("the group is known");
        assert_eq!(group.limit, GROUP_LIMIT);
    }
    assert_eq!(log.iter().map(told).collect::<Vec<_>>(), expected);
    for entry in &log {
        let record = &entry.record;
        let who = (entry.user(), record.command.as_str(), record.seconds);
        assert_eq!(who, (Some(CALLER.uid), "marram golden", NOW_SECONDS), "{record:?}");
        assert_eq!(entry.undone_by, (entry.number == 9).then_some(10), "{record:?}");
    }
    let can_undo = log.iter().filter(|entry| entry.obstacle.is_none()).map(|entry| entry.number);
    assert_eq!(can_undo.collect::<Vec<_>>(), undoable);
    let kept = ["undo:12", "undo:5:after", "undo:5:before", "undo:7:after", "undo:7:before"];
    let kept = kept.map(|name| format!("root@{name}"));
    assert_eq!(names(pool.list_trash().expect("a list")), BTreeSet::from(kept));
    let before = pool.report(&source("root@before")).expect("it is there");
    assert_eq!(before.holds, ["golden"]);
    let fork = pool.report(&source(FORK)).expect("it is there");
    assert!(fork.origin.is_some_and(|origin| origin.is_fork_base()));
    assert_eq!(fork.root_object, find(&mounted(pool, "root"), Ino::ROOT, "work").0);
    let quota = pool.properties(&root()).expect("properties").remove("quota");
    assert_eq!(quota, Some((QUOTA.to_owned(), PropertySource::Local)));
    let owner = mounted(pool, "root").owner(OWNER).expect("the owner is known");
    assert_eq!((owner.limit, owner.usage.inodes), (LIMIT, 7));
    assert_eq!(pool.status().label, LABEL);
}

fn names(reports: Vec<marram_store::DatasetReport>) -> BTreeSet<String> {
    reports.into_iter().map(|report| report.source.to_string()).collect()
}

fn find(files: &Posix, directory: Ino, text: &str) -> Ino {
    let ino = files.lookup(directory, name(text)).expect(text).ino;
    files.forget(ino, 1);
    ino
}

fn entries(files: &Posix, directory: Ino) -> BTreeSet<String> {
    let mut entries = BTreeSet::new();
    let mut note = |entry: marram_vfs::DirectoryEntry<'_>| {
        entries.insert(String::from_utf8_lossy(entry.name).into_owned());
        true
    };
    files.read_directory(directory, 0, false, &mut note).expect("it is read");
    entries
}

/// The names below a directory at the root of what is shown.
fn assert_entries(files: &Posix, directory: &str, expected: &[&str]) {
    let expected = expected.iter().map(|name| (*name).to_owned()).collect();
    let ino = find(files, files.root_directory(), directory);
    assert_eq!(entries(files, ino), expected, "{directory}");
}

/// Each state has what it had.
pub(crate) fn assert_contents(pool: &Pool) {
    assert_merged(pool);
    let live = mounted(pool, "root");
    assert_entries(&live, "kept", &["a", "removed"]);
    assert_eq!(content(&live, "kept/a"), pattern(1, 20_000));
    for state in ["root@before", "copy"] {
        let files = mounted(pool, state);
        assert_eq!(content(&files, "work/text"), b"one\ntwo\nthree\n");
        assert_entries(&files, "work", &["text"]);
        assert_eq!(content(&files, "kept/removed"), b"removed");
    }
    assert_changed(&mounted(pool, "root@before-rollback-1"));
    let forked = mounted(pool, FORK);
    assert_eq!(content(&forked, "text"), b"ONE\ntwo\nthree\n");
    assert_eq!(content(&forked, "new"), pattern(4, 10_000));
}

/// What the fork changed is there, and what was changed beside it.
fn assert_merged(pool: &Pool) {
    let live = mounted(pool, "root");
    assert_entries(&live, "work", &["beside", "new", "text"]);
    assert_eq!(content(&live, "work/text"), b"ONE\ntwo\nthree\n");
    assert_eq!(content(&live, "work/new"), pattern(4, 10_000));
}

/// The directory is as it was before it went back.
fn assert_changed(files: &Posix) {
    let mut changed = pattern(1, 20_000);
    changed[5000..5300].copy_from_slice(&pattern(7, 300));
    assert_entries(files, "kept", &["a", "new"]);
    assert_eq!(content(files, "kept/a"), changed);
    assert_eq!(content(files, "kept/new"), b"new");
}

/// Takes back the destruction, the rollback of the directory, and what was done to the pool.
pub(crate) fn take_back(pool: &Pool, version: FormatVersion) {
    if tells_of_the_pool(version) {
        pool.undo(LABELLED).expect("nothing is in the way");
        pool.undo(LIMITED).expect("nothing is in the way");
    }
    pool.undo(DESTROYED).expect("nothing is in the way");
    let (_, reversal) = pool.reversal(Some(WENT_BACK)).expect("nothing is in the way");
    let Reversal::Merge { dataset, base, back_to, root_object, .. } = reversal else {
        panic!("a directory comes again by a merge: {reversal:?}");
    };
    let root = Ino(root_object);
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &back_to, root };
    merge(&pool.taking_back(WENT_BACK), &mounted(pool, "root"), sides);
}

pub(crate) fn assert_taken_back(pool: &Pool, version: FormatVersion) {
    assert_changed(&mounted(pool, "root"));
    assert_merged(pool);
    assert_eq!(content(&mounted(pool, "root@gone"), "kept/removed"), b"removed");
    let log = pool.operations().expect("the log is read");
    let undone = log.iter().filter_map(|entry| Some((entry.number, entry.undone_by?)));
    let undone: Vec<(u64, u64)> = undone.collect();
    if !tells_of_the_pool(version) {
        assert_eq!(undone, [(WENT_BACK, 14), (9, 10), (DESTROYED, 13)]);
        return;
    }
    assert_eq!(undone[..3], [(WENT_BACK, 20), (9, 10), (DESTROYED, 19)]);
    assert_eq!(undone[3..], [(LABELLED, 17), (LIMITED, 18)]);
    assert_eq!(pool.status().label, FIRST_LABEL);
    let group = mounted(pool, "root").owner(GROUP).expect("the group is known");
    assert_eq!(group.limit, Limit::NONE);
}
