//! A file that a merge brings changes into and takes the last name from: of it nothing is left.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod paths;
mod small_pool;
mod soundness;

use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_posix::{MergeOptions, MergeSides, Posix};
use marram_sim::pattern;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{FileSystem, Ino, Kind, Name, NewNode, WriteOptions, XattrMode};
use paths::{find, make, open};
use soundness::assert_sound;
use std::sync::Arc;

const NAMES: [&str; 2] = ["a", "b"];

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// A file with two names, of which the fork takes the first and the parent the second.
fn merge_away(pool: &Pool, change: impl FnOnce(&Posix, Ino)) -> Posix {
    let parent = open(pool, "root");
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let file = make(&parent, NAMES[0], node).unwrap();
    parent.write(file, 0, &pattern(1, 20_000), WriteOptions::default()).unwrap();
    parent.link(file, Ino::ROOT, name(NAMES[1])).unwrap();
    parent.forget(file, 1);
    pool.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
    let fork = open(pool, "f");
    change(&fork, file);
    fork.unlink(Ino::ROOT, name(NAMES[0])).unwrap();
    parent.unlink(Ino::ROOT, name(NAMES[1])).unwrap();
    let (dataset, fork): (_, Source) = (DatasetName::root(), "f".parse().unwrap());
    let base = pool.report(&fork).unwrap().origin.unwrap();
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
    let report = parent.merge(pool, sides, &MergeOptions::default()).unwrap();
    assert!(report.applied, "{:?}", report.conflicts);
    parent
}

#[test]
fn nothing_is_left_of_a_changed_file_that_loses_its_last_name() {
    let changes: [fn(&Posix, Ino); 3] = [
        |fork, file| {
            fork.write(file, 1 << 20, &pattern(2, 20_000), WriteOptions::default()).unwrap();
        },
        |fork, file| fork.set_xattr(file, b"user.x", b"value", XattrMode::Any).unwrap(),
        |fork, file| fork.write(file, 0, &pattern(3, 20_000), WriteOptions::default()).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("merged away")));
        let device: Arc<dyn Device> = memory.clone();
        let pool = Pool::open(vec![device], OpenOptions::default()).unwrap();
        let parent = merge_away(&pool, change);
        assert!(NAMES.iter().all(|name| find(&parent, name).is_err()));
        assert_eq!(parent.space().unwrap().inodes_used, 1);
        drop(parent);
        pool.close().unwrap();
        drop(pool);
        assert_sound(&*memory, &format!("change {number}"));
    }
}
