//! A file that a merge brings a time or nothing into and takes the last name from: of it nothing is
//! left. What the parent changed goes only if the fork's side was chosen.

use crate::paths::{find, make, open};
use crate::small_pool;
use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_history::{Choice, MergeOptions, MergeSides};
use marram_pool::{OpenOptions, Pool};
use marram_posix::Posix;
use marram_sim::pattern;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{FileSystem, Ino, Kind, Name, NewNode, WriteOptions, XattrMode};
use std::sync::Arc;

const NAMES: [&str; 2] = ["a", "b"];

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// A file with two names, of which the fork takes the first and the parent the second, after each
/// has done something to it.
fn merge_away(pool: &Pool, (by_fork, by_parent): (Change, Change)) -> Posix {
    let parent = open(pool, "root");
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let file = make(&parent, NAMES[0], node).unwrap();
    parent.write(file, 0, &pattern(1, 20_000), WriteOptions::default()).unwrap();
    parent.set_xattr(file, b"user.x", b"value", XattrMode::Any).unwrap();
    parent.link(file, Ino::ROOT, name(NAMES[1])).unwrap();
    parent.forget(file, 1);
    pool.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
    let fork = open(pool, "f");
    by_fork(&fork, file);
    by_parent(&parent, file);
    fork.unlink(Ino::ROOT, name(NAMES[0])).unwrap();
    parent.unlink(Ino::ROOT, name(NAMES[1])).unwrap();
    let (dataset, fork): (_, Source) = (DatasetName::root(), "f".parse().unwrap());
    let base = pool.report(&fork).unwrap().origin.unwrap();
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
    let options = MergeOptions { choose: &|_| Choice::Theirs, ..MergeOptions::default() };
    let report = marram_history::merge(&parent, pool, sides, &options).unwrap();
    assert!(report.applied, "{:?}", report.conflicts);
    parent
}

type Change = fn(&Posix, Ino);

/// Writes over a file with what it holds: to a user it has not changed.
fn rewrite(files: &Posix, file: Ino) {
    files.write(file, 0, &pattern(1, 20_000), WriteOptions::default()).unwrap();
}

fn write(files: &Posix, file: Ino) {
    files.write(file, 1 << 20, &pattern(2, 20_000), WriteOptions::default()).unwrap();
}

#[test]
fn nothing_is_left_of_a_file_that_loses_its_last_name() {
    let changes: [(Change, Change); 4] = [
        (rewrite, |_, _| ()),
        (|fork, file| fork.set_xattr(file, b"user.x", b"value", XattrMode::Any).unwrap(), rewrite),
        (|_, _| (), write),
        (rewrite, |parent, file| parent.remove_xattr(file, b"user.x").unwrap()),
    ];
    for (number, changes) in changes.into_iter().enumerate() {
        let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("merged away")));
        let device: Arc<dyn Device> = memory.clone();
        let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
        let parent = merge_away(&pool, changes);
        assert!(NAMES.iter().all(|name| find(&parent, name).is_err()));
        assert_eq!(parent.space().unwrap().inodes_used, 1);
        drop(parent);
        pool.close().unwrap();
        drop(pool);
        assert_sound(&*memory, &format!("change {number}"));
    }
}
