//! What a comparison, a merge and the rollback of a directory read follows what has changed, not
//! what is there: one change in 1,000 files and in 100,000 takes the same reads of the device, but
//! for the deeper tree. And what has just been committed is compared without reading it, also
//! when memory is full of other things.

use marram_device::{Device, MemoryDevice, Result};
use marram_history::{DirectoryRollback, MergeOptions, MergeSides, change_set, diff};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::{DatasetName, Lineage, Properties, Source, Store};
use marram_vfs::{Caller, Error, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const DEVICE_BYTES: usize = 1 << 30;
const ROOT: Caller = Caller { uid: 0, gid: 0 };
/// Files of a directory.
const DIRECTORY_FILES: u64 = 500;
/// How many more reads the larger tree may take: some nodes on each way down.
const DEEPER_READS_MAX: u64 = 40;
/// Files whose tree takes more memory than a cache of [`FULL_CACHE_BYTES`].
const MANY_FILES: u64 = 100_000;
const FULL_CACHE_BYTES: usize = 16 << 20;
/// So many of them are changed, each in another leaf.
const CHANGED_FILES: usize = 100;
/// Nodes that a full cache may have let go of before they were compared.
const LOST_NODES_MAX: u64 = 10;

/// Memory that counts how often it is read.
struct CountingDevice {
    memory: MemoryDevice,
    reads: AtomicU64,
}

impl Device for CountingDevice {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn size(&self) -> Result<u64> {
        self.memory.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
}

/// Reads of the device.
#[derive(Debug)]
struct Reads {
    diff: u64,
    merge: u64,
    rollback: u64,
}

fn open(pool: &Pool, source: &str) -> Arc<Posix> {
    let options = PosixOptions { access_times: AccessTimes::Never, ..PosixOptions::default() };
    let view = pool.open(&source.parse().unwrap()).unwrap();
    Arc::new(Posix::new(view, options).unwrap())
}

fn open_pool(device: &Arc<CountingDevice>, options: OpenOptions) -> Arc<Pool> {
    let device = Arc::clone(device) as Arc<dyn Device>;
    Pool::open(vec![device], options).unwrap()
}

fn device_with_pool() -> Arc<CountingDevice> {
    let device = Arc::new(CountingDevice {
        memory: MemoryDevice::new(DEVICE_BYTES),
        reads: AtomicU64::new(0),
    });
    let options = CreateOptions {
        label: "costs".to_owned(),
        properties: Properties::default(),
        pool_id: [3; 16],
        secret: 7,
        now_seconds: 1_700_000_000,
    };
    create(&[Arc::clone(&device) as Arc<dyn Device>], &options).unwrap();
    device
}

fn make(files: &Posix, directory: Ino, name: &str, node: NewNode<'_>) -> Ino {
    let made = files.create(ROOT, directory, Name::new(name.as_bytes()).unwrap(), node).unwrap();
    files.forget(made.ino, 1);
    made.ino
}

fn file(files: &Posix, directory: Ino, name: &str, content: &[u8]) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let ino = make(files, directory, name, node);
    files.write(ino, 0, content, WriteOptions::default()).unwrap();
    ino
}

/// Makes so many files; the last directory and all files.
fn tree(files: &Posix, count: u64) -> (Ino, Vec<Ino>) {
    let (mut directory, mut all) = (Ino::ROOT, Vec::new());
    for number in 0..count / DIRECTORY_FILES {
        let node = NewNode::Directory { permissions: 0o755 };
        directory = make(files, Ino::ROOT, &format!("d{number}"), node);
        for number in 0..DIRECTORY_FILES {
            all.push(file(files, directory, &format!("f{number}"), b"content"));
        }
    }
    (directory, all)
}

/// Changes one file of so many in a fork, with nothing in memory, and compares and merges it.
fn reads_of_one_change(count: u64) -> Reads {
    let device = device_with_pool();
    let pool = open_pool(&device, OpenOptions::new(|| 0));
    let files = open(&pool, "root");
    let (directory, all) = tree(&files, count);
    let changed = *all.last().unwrap();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    let fork: DatasetName = "fork".parse().unwrap();
    pool.fork(&DatasetName::root(), &fork, Ino::ROOT.0).unwrap();
    open(&pool, "fork").write(changed, 3, b"changed", WriteOptions::default()).unwrap();
    file(&files, Ino::ROOT, "beside", b"of the parent");
    drop(files);
    pool.close().unwrap();
    drop(pool);

    let pool = open_pool(&device, OpenOptions::new(|| 0));
    let files = open(&pool, "root");
    let before = device.reads.load(Ordering::Relaxed);
    let (root, live): (Source, Source) =
        ("root@fork:fork".parse().unwrap(), "fork".parse().unwrap());
    let mut found = 0;
    diff(&*pool, &root, &live, Ino::ROOT, &mut |_| {
        found += 1;
        true
    })
    .unwrap();
    assert_eq!(found, 1);
    let between = device.reads.load(Ordering::Relaxed);
    let dataset = DatasetName::root();
    let sides = MergeSides { dataset: &dataset, base: &root, fork: &live, root: Ino::ROOT };
    assert!(
        marram_history::merge(&*files, &*pool, sides, &MergeOptions::default()).unwrap().applied
    );
    let after = device.reads.load(Ordering::Relaxed);
    let to: Source = "root@s".parse().unwrap();
    let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
    let change_set =
        marram_history::roll_back_directory(&*files, &*pool, rollback).unwrap().unwrap();
    assert_eq!(change_set.inodes.iter().map(|inode| inode.ino).collect::<Vec<_>>(), [changed]);
    let end = device.reads.load(Ordering::Relaxed);
    Reads { diff: between - before, merge: after - between, rollback: end - after }
}

#[test]
fn one_change_costs_the_same_in_a_small_and_in_a_large_tree() {
    let (small, large) = (reads_of_one_change(1_000), reads_of_one_change(100_000));
    println!("1,000 files {small:?}; 100,000 files {large:?}");
    assert!(small.diff > 0, "nothing was read: {small:?}");
    assert!(large.diff <= small.diff + DEEPER_READS_MAX, "{small:?} {large:?}");
    assert!(large.merge <= small.merge + DEEPER_READS_MAX, "{small:?} {large:?}");
    assert!(large.rollback <= small.rollback + DEEPER_READS_MAX, "{small:?} {large:?}");
}

/// Memory is full of what programs look at all the time, and has little room for anything else.
#[test]
fn what_was_committed_lately_is_forked_and_compared_without_reading_it() {
    let device = device_with_pool();
    let options = OpenOptions { cache_bytes: FULL_CACHE_BYTES, ..OpenOptions::new(|| 0) };
    let pool = open_pool(&device, options);
    let files = open(&pool, "root");
    let (_, all) = tree(&files, MANY_FILES);
    let look_at_all = || {
        for ino in &all {
            files.attributes(*ino).unwrap();
        }
    };
    let reads_of = |work: &dyn Fn()| {
        let before = device.reads.load(Ordering::Relaxed);
        work();
        device.reads.load(Ordering::Relaxed) - before
    };
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    assert!(reads_of(&look_at_all) > CHANGED_FILES as u64, "all of the tree is in memory");
    look_at_all();
    let fork: DatasetName = "fork".parse().unwrap();
    let fork = reads_of(&|| pool.fork(&DatasetName::root(), &fork, Ino::ROOT.0).unwrap());
    for ino in all.iter().step_by(all.len() / CHANGED_FILES) {
        files.write(*ino, 3, b"changed", WriteOptions::default()).unwrap();
    }
    pool.commit().unwrap();
    let (to, kept): (Source, Source) = ("root@s".parse().unwrap(), "root@was".parse().unwrap());
    let rollback = reads_of(&|| {
        let go_back = || pool.rollback(&to, "was").map_err(|error| Error::Io(error.to_string()));
        files.roll_back(go_back).unwrap();
        assert_eq!(change_set(&*pool, &kept, &to).unwrap().inodes.len(), CHANGED_FILES);
    });
    println!("reads of a fork {fork}, of a rollback {rollback}");
    assert!(fork + rollback <= LOST_NODES_MAX, "reads of a fork {fork}, of a rollback {rollback}");
}
