//! Small files that have lost their names are freed many in one batch, and a crash between two
//! batches leaves each of them whole, to be found again, or gone.

use crate::{Bench, PLAIN, USER, name, pattern};
use bytes::Bytes;
use marram_posix::{Posix, PosixOptions};
use marram_store::{
    Batch, Block, Capabilities, DatasetName, Edit, Error, Item, Key, Properties, Result, Source,
    Store, View, kind,
};
use marram_vfs::{FileSystem, Ino, XattrMode};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const FILES: u64 = 100;

/// A view that keeps in mind which keys each batch removed, and takes only so many batches.
struct CountedView {
    inner: Arc<dyn View>,
    removed: Mutex<Vec<BTreeSet<Key>>>,
    batches_max: usize,
}

impl View for CountedView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        self.inner.get(key)
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        self.inner.scan(from, to, visit)
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        self.inner.last(from, to)
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        let mut removed = self.removed.lock().unwrap();
        if removed.len() >= self.batches_max {
            return Err(Error::Io("the power is cut".to_owned()));
        }
        let gone = |edit: &Edit<'_>| matches!(edit, Edit::Remove { .. }).then(|| edit.key());
        removed.push(batch.edits.iter().filter_map(gone).collect());
        self.inner.apply(batch)
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        self.inner.read_block(block)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn writable(&self) -> bool {
        self.inner.writable()
    }

    fn properties(&self) -> Properties {
        self.inner.properties()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        self.inner.capabilities()
    }
}

/// A file system with files of every kind that reclaiming meets; all but `kept` have no name and
/// wait to be freed.
struct Removed {
    bench: Bench,
    small: Vec<Ino>,
    large: Ino,
    kept: Vec<Ino>,
}

impl Removed {
    fn new() -> Removed {
        let bench = Bench::new();
        let (mut small, mut kept) = (Vec::new(), Vec::new());
        for number in 0..FILES {
            let ino = bench.file(&format!("small{number}"));
            bench.write(ino, 0, &pattern(number as u8, 5000));
            small.push(ino);
            if number % 10 == 0 {
                let ino = bench.file(&format!("kept{number}"));
                bench.write(ino, 0, &pattern(number as u8, 5000));
                kept.push(ino);
            }
        }
        bench.files.set_xattr(small[3], b"user.x", b"value", XattrMode::Any).unwrap();
        let large = bench.file("large");
        for at in 0..400 {
            bench.write(large, at * 200_000, &pattern(at as u8, 100));
        }
        let cut = bench.file("cut");
        for at in 0..3000 {
            bench.write(cut, at * 200_000, &pattern(at as u8, 100));
        }
        bench.set_size(cut, 50);
        kept.push(cut);
        for number in 0..FILES {
            bench.files.unlink(Ino::ROOT, name(&format!("small{number}"))).unwrap();
        }
        bench.files.unlink(Ino::ROOT, name("large")).unwrap();
        Removed { bench, small, large, kept }
    }

    /// Opens the file system after a crash and frees what it left, in at most so many batches;
    /// returns the keys that each batch removed.
    fn reclaim(&self, batches_max: usize) -> Vec<BTreeSet<Key>> {
        let root = Source { dataset: DatasetName::root(), snapshot: None };
        let inner = self.bench.store.open(&root).unwrap();
        let view = Arc::new(CountedView { inner, removed: Mutex::default(), batches_max });
        let files =
            Posix::new(Arc::clone(&view) as Arc<dyn View>, PosixOptions::default()).unwrap();
        while files.reclaim_step(1000).is_ok_and(|more| more) {}
        drop(files);
        view.removed.lock().unwrap().clone()
    }

    fn is_orphan(&self, ino: Ino) -> bool {
        self.bench.keys(0).contains(&Key::new(0, kind::ORPHAN, ino.0))
    }

    fn check_kept(&mut self) {
        self.bench.crash();
        for (number, ino) in self.kept.iter().enumerate().take(10) {
            assert_eq!(self.bench.read(*ino, 0, 9000), pattern(number as u8 * 10, 5000));
        }
    }
}

#[test]
fn small_files_are_freed_many_in_one_batch() {
    let mut removed = Removed::new();
    let batches = removed.reclaim(usize::MAX);
    let of_small = batches.iter().filter(|batch| batch.iter().any(|key| key.object == 0));
    assert!(of_small.count() <= 20, "{} batches for {FILES} files", batches.len());
    for ino in removed.small.iter().chain([&removed.large]) {
        assert_eq!(removed.bench.keys(ino.0), [], "{ino:?}");
        assert!(!removed.is_orphan(*ino));
    }
    removed.check_kept();
    assert_eq!(removed.bench.files.space().unwrap().inodes_used, 1 + removed.kept.len() as u64);
    assert!(removed.reclaim(usize::MAX).is_empty(), "nothing is left to be freed");
}

#[test]
fn a_crash_between_batches_leaves_each_file_an_orphan_or_gone() {
    for batches_max in 0..12 {
        let mut removed = Removed::new();
        removed.reclaim(batches_max);
        for ino in &removed.small {
            let is_there = !removed.bench.keys(ino.0).is_empty();
            assert_eq!(is_there, removed.is_orphan(*ino), "{ino:?} after {batches_max} batches");
        }
        removed.check_kept();
        removed.reclaim(usize::MAX);
        assert!(!removed.bench.keys(0).iter().any(|key| key.kind == kind::ORPHAN));
        let used = |bench: &Bench| bench.files.space().unwrap().inodes_used;
        removed.bench.crash();
        assert_eq!(used(&removed.bench), 1 + removed.kept.len() as u64, "after {batches_max}");
    }
}

#[test]
fn of_files_that_go_together_one_in_use_stays() {
    let bench = Bench::new();
    let inos: Vec<Ino> = (0..10).map(|number| bench.file(&number.to_string())).collect();
    for (number, ino) in inos.iter().enumerate() {
        bench.write(*ino, 0, &pattern(number as u8, 5000));
        bench.files.unlink(Ino::ROOT, name(&number.to_string())).unwrap();
    }
    inos.iter().filter(|ino| **ino != inos[4]).for_each(|ino| bench.files.forget(*ino, 1));
    // It comes into the queue all the same, as after a rollback.
    bench.files.link(inos[4], Ino::ROOT, name("again")).unwrap();
    bench.files.unlink(Ino::ROOT, name("again")).unwrap();
    bench.reclaim(1000);
    assert_eq!(bench.read(inos[4], 0, 9000), pattern(4, 5000));
    bench.files.write(inos[4], 0, b"still in use", PLAIN).unwrap();
    bench.files.forget(inos[4], 2);
    bench.reclaim(1000);
    assert_eq!(bench.files.space().unwrap().inodes_used, 1);
    assert!(bench.files.create_anonymous(USER, Ino::ROOT, 0o600).unwrap().ino > inos[9]);
}
