//! A range that is taken out of a file, or put into it, in pieces, of which one finds no space
//! while something else is being freed: no byte of the file is lost, and none moves twice.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use marram_posix::{Posix, PosixOptions};
use marram_store::memory::MemoryStore;
use marram_store::{
    Batch, Block, Capabilities, DatasetName, Error as StoreError, Item, Key, Properties,
    Result as Stored, Source, Store, View,
};
use marram_vfs::{
    Allocate, Caller, Error, ExtentMap, FileSystem, Ino, Kind, Name, NewNode, Ranges, WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Edits of a batch that moves many sections.
const MANY_EDITS: usize = 500;
/// More sections than one batch moves.
const CRUMBS: u64 = 3000;
/// From one section to the next, in bytes.
const STRIDE: u64 = 300_000;
/// The range is as long.
const RANGE: u64 = 100 * STRIDE;

/// A view that refuses one batch among those that are large.
struct Scarce {
    view: Arc<dyn View>,
    /// How many large ones are taken before that; 0 refuses none.
    refused: AtomicU64,
}

impl View for Scarce {
    fn get(&self, key: Key) -> Stored<Option<Item>> {
        self.view.get(key)
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Stored<()> {
        self.view.scan(from, to, visit)
    }

    fn last(&self, from: Key, to: Key) -> Stored<Option<(Key, Item)>> {
        self.view.last(from, to)
    }

    fn apply(&self, batch: Batch<'_>) -> Stored<()> {
        let less = |left: u64| left.checked_sub(1);
        let is_counted = batch.edits.len() >= MANY_EDITS;
        let left = is_counted.then(|| {
            self.refused.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or(0)
        });
        if left == Some(1) { Err(StoreError::NoSpace) } else { self.view.apply(batch) }
    }

    fn read_block(&self, block: &Block) -> Stored<Bytes> {
        self.view.read_block(block)
    }

    fn sync(&self) -> Stored<()> {
        self.view.sync()
    }

    fn writable(&self) -> bool {
        self.view.writable()
    }

    fn properties(&self) -> Properties {
        self.view.properties()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        self.view.capabilities()
    }
}

fn file(files: &Posix, text: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let name = Name::new(text.as_bytes()).unwrap();
    files.create(Caller { uid: 0, gid: 0 }, Ino::ROOT, name, node).unwrap().ino
}

fn byte(crumb: u64) -> u8 {
    1 + (crumb % 250) as u8
}

/// Changes a file of many sections, of which each has a byte that says which it is, while something
/// waits to be freed; the piece numbered `refused` is refused once. Returns the answer, the size
/// then, and where each byte is.
fn change(how: Allocate, refused: u64) -> (Result<(), Error>, u64, Vec<(u64, u8)>) {
    let store = MemoryStore::new();
    let root = Source { dataset: DatasetName::root(), snapshot: None };
    let view = store.open(&root).unwrap();
    let scarce = Arc::new(Scarce { view, refused: AtomicU64::new(0) });
    let files = Posix::new(scarce.clone(), PosixOptions::default()).unwrap();
    let ino = file(&files, "crumbs");
    for crumb in 0..CRUMBS {
        files.write(ino, crumb * STRIDE, &[byte(crumb)], WriteOptions::default()).unwrap();
    }
    let gone = file(&files, "gone");
    files.unlink(Ino::ROOT, Name::new(b"gone").unwrap()).unwrap();
    files.forget(gone, 1);

    scarce.refused.store(refused, Ordering::Release);
    let done = files.allocate(ino, how, 1, RANGE);
    assert_eq!(scarce.refused.load(Ordering::Acquire), 0, "there are as many pieces");
    let size = files.attributes(ino).unwrap().size;
    let mut found = Vec::new();
    let extents = files.extents(ino, 0, usize::MAX).unwrap();
    for extent in extents {
        let mut out = Vec::new();
        files.read(ino, extent.offset, 1, &mut out).unwrap();
        assert_eq!(extent.len, 1);
        found.push((extent.offset, out[0]));
    }
    (done, size, found)
}

/// Where crumbs are in a file of which this range was taken out or put in, if any are.
fn expected(gone: u64, place: impl Fn(u64) -> u64) -> Vec<(u64, u8)> {
    let stays = |crumb: &u64| !(1..=gone).contains(crumb);
    (0..CRUMBS).filter(stays).map(|crumb| (place(crumb), byte(crumb))).collect()
}

#[test]
fn a_range_is_put_in_once_or_only_in_part() {
    let size = (CRUMBS - 1) * STRIDE + 1;
    let moved = |crumb: u64| crumb * STRIDE + if crumb == 0 { 0 } else { RANGE };
    // Nothing had moved when the first piece was refused, so it is all done anew.
    let (done, found_size, found) = change(Allocate::Insert, 1);
    assert_eq!((done, found_size), (Ok(()), size + RANGE));
    assert!(found == expected(0, moved));
    for refused in [2, 3] {
        let (done, found_size, found) = change(Allocate::Insert, refused);
        assert_eq!((done, found_size), (Err(Error::NoSpace), size + RANGE));
        let bytes: Vec<u8> = found.iter().map(|(_, byte)| *byte).collect();
        assert!(bytes == (0..CRUMBS).map(byte).collect::<Vec<u8>>(), "all, in their order");
        let places = (0..)
            .zip(&found)
            .all(|(crumb, (at, _))| [crumb * STRIDE, crumb * STRIDE + RANGE].contains(at));
        assert!(places, "no byte has moved twice");
    }
}

#[test]
fn a_range_is_taken_out_once_or_only_in_part() {
    let size = (CRUMBS - 1) * STRIDE + 1;
    let moved = |crumb: u64| crumb * STRIDE - if crumb == 0 { 0 } else { RANGE };
    let (done, found_size, found) = change(Allocate::Collapse, 1);
    assert_eq!((done, found_size), (Ok(()), size - RANGE));
    assert!(found == expected(100, moved));
    for refused in [2, 3] {
        let (done, found_size, found) = change(Allocate::Collapse, refused);
        assert_eq!((done, found_size), (Err(Error::NoSpace), size));
        let bytes: Vec<u8> = found.iter().map(|(_, byte)| *byte).collect();
        let kept: Vec<u8> = expected(100, |crumb| crumb).iter().map(|(_, byte)| *byte).collect();
        assert!(bytes == kept, "all outside of the range, in their order");
    }
}
