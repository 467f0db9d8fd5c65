//! What a merge, its undo and the rollback of a directory bring into a dataset counts for its
//! quota, though blocks are shared and not written. A merge that would go too far is refused and
//! changes nothing, and its preview says so.

use marram_device::{Device, MemoryDevice};
use marram_history::{DirectoryRollback, MergeOptions, MergeReport, MergeSides};
use marram_pool::{Author, CreateOptions, OpenOptions, Pool, Reversal, create};
use marram_posix::{Posix, PosixOptions};
use marram_sim::pattern;
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{
    Caller, Error, FileSystem, Ino, Kind, Name, NewNode, Result, SteppedClock, WriteOptions,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const QUOTA: u64 = 16 * MIB;
const ROOT: Caller = Caller { uid: 0, gid: 0 };
const FORK: &str = "fork";

/// A pool whose root dataset has a quota.
fn pool_with_quota(author: bool) -> Arc<Pool> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
    let options = CreateOptions {
        label: "quota".to_owned(),
        properties: Properties::default(),
        pool_id: [3; 16],
        secret: 7,
        now_seconds: 1_700_000_000,
    };
    create(std::slice::from_ref(&device), &options).unwrap();
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
    pool.set_property(&DatasetName::root(), "quota", Some(&QUOTA.to_string())).unwrap();
    match author {
        true => {
            let author = Author { user: Some(1), command: "test".to_owned() };
            Arc::new(pool.acting_for(author))
        }
        false => pool,
    }
}

fn open(pool: &Pool, source: &str) -> Posix {
    let options = PosixOptions { clock: Arc::new(SteppedClock::default()), ..Default::default() };
    Posix::new(pool.open(&source.parse().unwrap()).unwrap(), options).unwrap()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn make_directory(files: &Posix, text: &str) -> Ino {
    let node = NewNode::Directory { permissions: 0o755 };
    let made = files.create(ROOT, Ino::ROOT, name(text), node).unwrap();
    files.forget(made.ino, 1);
    made.ino
}

/// Makes a file of so many MiB that do not compress.
fn fill(files: &Posix, directory: Ino, text: &str, mebibytes: u64) -> Result<Ino> {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let ino = files.create(ROOT, directory, name(text), node)?.ino;
    files.forget(ino, 1);
    for piece in 0..mebibytes {
        let noise = pattern(3 * (directory.0 * 1000 + piece) + 2, 1 << 20);
        files.write(ino, piece * MIB, &noise, WriteOptions::default())?;
    }
    Ok(ino)
}

fn has(files: &Posix, directory: Ino, text: &str) -> bool {
    let found = files.lookup(directory, name(text)).map(|found| files.forget(found.ino, 1));
    found.is_ok()
}

/// What the root dataset refers to.
fn referenced(pool: &Pool) -> u64 {
    pool.commit().unwrap();
    let rows = pool.list().unwrap();
    rows.iter()
        .find(|row| row.source == Source::live(DatasetName::root()))
        .unwrap()
        .referenced_bytes
}

fn fork(pool: &Pool) -> Posix {
    pool.fork(&DatasetName::root(), &FORK.parse().unwrap(), Ino::ROOT.0).unwrap();
    open(pool, FORK)
}

fn merge(pool: &Pool, files: &Posix, preview: bool) -> Result<MergeReport> {
    let dataset = DatasetName::root();
    let (base, fork) = (format!("{dataset}@fork:{FORK}").parse().unwrap(), FORK.parse().unwrap());
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
    marram_history::merge(files, pool, sides, &MergeOptions { preview, ..MergeOptions::default() })
}

/// Takes the last operation, a merge or the rollback of a directory, back.
fn undo(pool: &Pool, files: &Posix) -> Result<MergeReport> {
    let (number, reversal) = pool.reversal(None).unwrap();
    let Reversal::Merge { dataset, base, back_to, root_object, .. } = reversal else {
        panic!("{reversal:?}");
    };
    let root = Ino(root_object);
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &back_to, root };
    marram_history::merge(files, &pool.taking_back(number), sides, &MergeOptions::default())
}

fn a_merge_over_the_quota_does_nothing(author: bool) {
    let pool = pool_with_quota(author);
    let files = open(&pool, "root");
    let forked = fork(&pool);
    fill(&files, Ino::ROOT, "ours", 10).unwrap();
    fill(&forked, Ino::ROOT, "theirs", 10).unwrap();
    let before = referenced(&pool);
    let preview = merge(&pool, &files, true).unwrap();
    assert_eq!(preview.obstacle, Some(Error::QuotaExceeded));
    assert_eq!(merge(&pool, &files, false).unwrap_err(), Error::QuotaExceeded);
    assert!(!has(&files, Ino::ROOT, "theirs"));
    assert_eq!(referenced(&pool), before);
    // With room for it, it goes.
    files.unlink(Ino::ROOT, name("ours")).unwrap();
    while files.reclaim_step(1000).unwrap() {}
    assert_eq!(merge(&pool, &files, true).unwrap().obstacle, None);
    assert!(merge(&pool, &files, false).unwrap().applied);
    let after = referenced(&pool);
    assert!((10 * MIB..=QUOTA).contains(&after), "{after} bytes");
    // What came by the merge is in what is left.
    let (count, refused) = (0..20)
        .find_map(|count| Some((count, fill(&files, Ino::ROOT, &count.to_string(), 1).err()?)))
        .unwrap();
    assert_eq!(refused, Error::QuotaExceeded);
    assert!((4..=6).contains(&count), "{count} MiB more");
}

#[test]
fn a_merge_over_the_quota_is_refused_and_foreseen() {
    a_merge_over_the_quota_does_nothing(false);
}

#[test]
fn a_merge_that_is_logged_is_refused_by_the_quota_too() {
    a_merge_over_the_quota_does_nothing(true);
}

#[test]
fn a_merge_that_replaces_as_much_as_it_brings_keeps_the_quota() {
    let pool = pool_with_quota(false);
    let files = open(&pool, "root");
    let ino = fill(&files, Ino::ROOT, "file", 10).unwrap();
    let forked = fork(&pool);
    for piece in 0..10 {
        let noise = pattern(3 * (5000 + piece) + 2, 1 << 20);
        forked.write(ino, piece * MIB, &noise, WriteOptions::default()).unwrap();
    }
    assert_eq!(merge(&pool, &files, true).unwrap().obstacle, None);
    assert!(merge(&pool, &files, false).unwrap().applied);
    let after = referenced(&pool);
    assert!((10 * MIB..12 * MIB).contains(&after), "{after} bytes");
}

#[test]
fn an_undo_of_a_merge_over_the_quota_is_refused() {
    let pool = pool_with_quota(true);
    let files = open(&pool, "root");
    fill(&files, Ino::ROOT, "file", 10).unwrap();
    let forked = fork(&pool);
    forked.unlink(Ino::ROOT, name("file")).unwrap();
    assert!(merge(&pool, &files, false).unwrap().applied);
    while files.reclaim_step(1000).unwrap() {}
    fill(&files, Ino::ROOT, "since", 10).unwrap();
    let before = referenced(&pool);
    assert_eq!(undo(&pool, &files).unwrap_err(), Error::QuotaExceeded);
    assert!(!has(&files, Ino::ROOT, "file"));
    assert_eq!(referenced(&pool), before);
    files.unlink(Ino::ROOT, name("since")).unwrap();
    while files.reclaim_step(1000).unwrap() {}
    assert!(undo(&pool, &files).unwrap().applied);
    assert!(has(&files, Ino::ROOT, "file"));
}

#[test]
fn a_directory_that_would_go_back_over_the_quota_stays() {
    let pool = pool_with_quota(true);
    let files = open(&pool, "root");
    let directory = make_directory(&files, "d");
    fill(&files, directory, "past", 10).unwrap();
    let root = DatasetName::root();
    pool.snapshot(&root, "s").unwrap();
    files.unlink(directory, name("past")).unwrap();
    while files.reclaim_step(1000).unwrap() {}
    fill(&files, Ino::ROOT, "since", 10).unwrap();
    let to = "root@s".parse().unwrap();
    let rollback = DirectoryRollback { dataset: &root, to: &to, directory, keep: None };
    let refused = marram_history::roll_back_directory(&files, &*pool, rollback).err();
    assert_eq!(refused, Some(Error::QuotaExceeded));
    assert!(!has(&files, directory, "past"));
    files.unlink(Ino::ROOT, name("since")).unwrap();
    let rollback = DirectoryRollback { dataset: &root, to: &to, directory, keep: None };
    marram_history::roll_back_directory(&files, &*pool, rollback).unwrap();
    assert!(has(&files, directory, "past"));
    assert!(referenced(&pool) <= QUOTA);
}
