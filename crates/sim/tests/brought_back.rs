//! A file that was taken away and brought back has the blocks that it had, adopted anew: a merge
//! and an undo that cut those into pieces count the references that the file has now.

use crate::paths::{ROOT, find, make, open, place};
use crate::small_pool;
use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_history::{DirectoryRollback, MergeOptions, MergeSides};
use marram_pool::{Author, OpenOptions, Pool, Reversal};
use marram_posix::Posix;
use marram_sim::Random;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{Allocate, FileSystem, Ino, Kind, NewNode, Ranges, SetAttributes, WriteOptions};
use std::sync::Arc;

/// Two blocks.
const FILE_BYTES: usize = 115_847;
const FILE: &str = "/d/file";

/// A pool with a file, a snapshot `s` of it, and a fork `f` that began as that.
struct Scene {
    memory: Arc<MemoryDevice>,
    pool: Arc<Pool>,
    files: Posix,
}

type Way = (&'static str, fn(&Scene));
type Cut = (&'static str, fn(&Posix, Ino));

impl Scene {
    fn new() -> Scene {
        let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("brought back")));
        let device: Arc<dyn Device> = memory.clone();
        let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
        let author = Author { user: Some(1), command: "test".to_owned() };
        let pool = Arc::new(pool.acting_for(author));
        let files = open(&pool, "root");
        make(&files, "/d", NewNode::Directory { permissions: 0o755 }).unwrap();
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let file = make(&files, FILE, node).unwrap();
        files.write(file, 0, &bytes(), WriteOptions::default()).unwrap();
        pool.snapshot(&DatasetName::root(), "s").unwrap();
        pool.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
        Scene { memory, pool, files }
    }

    fn remove(&self) {
        let (directory, name) = place(&self.files, FILE).unwrap();
        self.files.unlink(directory, name).unwrap();
    }

    fn commit(&self) {
        self.pool.commit().unwrap();
    }

    fn go_back(&self, to: &str) {
        let (dataset, to) = (DatasetName::root(), to.parse().unwrap());
        let directory = find(&self.files, "/d").unwrap();
        let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
        assert!(
            marram_history::roll_back_directory(&self.files, &*self.pool, rollback)
                .unwrap()
                .is_some()
        );
    }

    fn merge(&self, fork: &str) {
        let (dataset, fork): (_, Source) = (DatasetName::root(), fork.parse().unwrap());
        let base = self.pool.report(&fork).unwrap().origin.unwrap();
        let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
        self.apply(&*self.pool, sides);
    }

    fn apply(&self, store: &dyn Store, sides: MergeSides<'_>) {
        let report =
            marram_history::merge(&self.files, store, sides, &MergeOptions::default()).unwrap();
        assert!(report.applied, "{:?}", report.conflicts);
    }

    fn last_operation(&self) -> u64 {
        self.pool.operations().unwrap().last().unwrap().number
    }

    /// Takes a merge back.
    fn undo(&self, operation: u64) {
        let (number, reversal) = self.pool.reversal(Some(operation)).unwrap();
        let Reversal::Merge { dataset, base, back_to, root_object, .. } = reversal else {
            panic!("{reversal:?}");
        };
        let root = Ino(root_object);
        let sides = MergeSides { dataset: &dataset, base: &base, fork: &back_to, root };
        self.apply(&self.pool.taking_back(number), sides);
    }

    /// The file has these bytes, the pool takes changes, and nothing of the file is left behind.
    fn assert_holds(self, bytes: &[u8], what: &str) {
        assert_eq!(content(&self.files), bytes, "{what}");
        self.commit();
        assert_sound(&*self.memory, what);
        self.remove();
        while self.files.reclaim_step(1000).unwrap() {}
        let Scene { memory, pool, files } = self;
        drop(files);
        pool.close().unwrap();
        drop(pool);
        assert_sound(&*memory, &format!("{what}, then removed"));
    }
}

/// What the file begins with: bytes that no compression makes fewer.
fn bytes() -> Vec<u8> {
    let mut random = Random::new(1);
    std::iter::repeat_with(|| random.below(256) as u8).take(FILE_BYTES).collect()
}

fn content(files: &Posix) -> Vec<u8> {
    let mut bytes = Vec::new();
    files.read(find(files, FILE).unwrap(), 0, 2 * FILE_BYTES, &mut bytes).unwrap();
    bytes
}

/// How a file goes and comes back.
const WAYS: &[Way] = &[
    ("the way back of its directory", |scene| {
        scene.remove();
        scene.go_back("root@s");
    }),
    ("the same, with commits in between", |scene| {
        scene.remove();
        scene.commit();
        scene.go_back("root@s");
        scene.commit();
    }),
    ("the way back of its directory, twice", |scene| {
        for _ in 0..2 {
            scene.remove();
            scene.go_back("root@s");
        }
    }),
    ("the way back of its directory, while it is open", |scene| {
        let (directory, name) = place(&scene.files, FILE).unwrap();
        let ino = scene.files.lookup(directory, name).unwrap().ino;
        scene.remove();
        scene.go_back("root@s");
        scene.files.forget(ino, 1);
    }),
    ("the way back of a directory that was removed too", |scene| {
        scene.remove();
        let (root, name) = place(&scene.files, "/d").unwrap();
        scene.files.remove_directory(root, name).unwrap();
        make(&scene.files, "/d", NewNode::Directory { permissions: 0o755 }).unwrap();
        scene.go_back("root@s");
    }),
    ("the way back to a state of a clone", |scene| {
        let clone: DatasetName = "c".parse().unwrap();
        scene.pool.clone_snapshot(&"root@s".parse().unwrap(), &clone).unwrap();
        scene.pool.snapshot(&clone, "t").unwrap();
        scene.remove();
        scene.go_back("c@t");
    }),
    ("the undo of a merge that removed it", |scene| {
        scene.pool.fork(&DatasetName::root(), &"g".parse().unwrap(), 1).unwrap();
        let fork = open(&scene.pool, "g");
        let (directory, name) = place(&fork, FILE).unwrap();
        fork.unlink(directory, name).unwrap();
        scene.merge("g");
        scene.undo(scene.last_operation());
    }),
    ("a copy of its content from a snapshot", |scene| {
        let (past, file) = (open(&scene.pool, "root@s"), find(&scene.files, FILE).unwrap());
        let from = (find(&past, FILE).unwrap(), 0);
        scene.files.share_range_from(&past, from, (file, 0), FILE_BYTES as u64).unwrap();
    }),
];

/// What makes slices of the file's blocks.
const CUTS: &[Cut] = &[
    ("a hole", |files, file| punch(files, file, 40_000)),
    ("a hole over both blocks", |files, file| punch(files, file, 60_000)),
    ("a hole at its beginning", |files, file| punch(files, file, 0)),
    ("two holes", |files, file| {
        punch(files, file, 20_000);
        punch(files, file, 70_000);
    }),
    ("another size", |files, file| {
        let set = SetAttributes { size: Some(50_000), ..SetAttributes::default() };
        files.set_attributes(ROOT, file, &set).unwrap();
    }),
];

fn punch(files: &Posix, file: Ino, offset: u64) {
    files.allocate(file, Allocate::PunchHole, offset, 10_000).unwrap();
}

#[test]
fn a_fork_is_merged_into_a_file_that_was_brought_back() {
    for (way, bring_back) in WAYS {
        for (cut, cut_up) in CUTS {
            let scene = Scene::new();
            let fork = open(&scene.pool, "f");
            cut_up(&fork, find(&fork, FILE).unwrap());
            bring_back(&scene);
            assert_eq!(content(&scene.files), bytes(), "{way}");
            scene.merge("f");
            let wanted = content(&fork);
            drop(fork);
            scene.assert_holds(&wanted, &format!("{way}, then {cut}"));
        }
    }
}

#[test]
fn a_merge_is_taken_back_in_a_file_that_was_brought_back() {
    for (cut, cut_up) in CUTS {
        let scene = Scene::new();
        let fork = open(&scene.pool, "f");
        cut_up(&fork, find(&fork, FILE).unwrap());
        drop(fork);
        scene.merge("f");
        let merge = scene.last_operation();
        scene.pool.snapshot(&DatasetName::root(), "merged").unwrap();
        scene.remove();
        scene.go_back("root@merged");
        scene.undo(merge);
        scene.assert_holds(&bytes(), &format!("the undo of {cut}"));
    }
}
