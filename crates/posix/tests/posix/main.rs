//! Rules of the file system that `docs/semantics.md` states, on the store in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access_times;
mod concurrency;
mod damage;
mod dedup;
mod directories;
mod files;
mod folding;
mod marks;
mod nfs4_lists;
mod orphans;
mod posix_lists;
mod privileges;
mod quota;
mod ranges;
mod reclaimed_together;
mod renames;
mod shifts;
mod shutdown;
mod space;

use marram_posix::{AccessTimes, DamagedRange, Posix, PosixOptions};
use marram_store::memory::MemoryStore;
use marram_store::{Block, DatasetName, Key, Source, Store, View, kind};
use marram_vfs::{
    Attributes, Caller, FileSystem, Ino, Kind, Name, NewNode, SetAttributes, SteppedClock,
    WriteOptions,
};
use std::sync::{Arc, Mutex};

const USER: Caller = Caller { uid: 1000, gid: 1000 };
const PLAIN: WriteOptions =
    WriteOptions { clear_privileges: false, keep_times: false, accepted: false, memory: None };

/// A file system and the store that it is on.
struct Bench {
    store: MemoryStore,
    view: Arc<dyn View>,
    files: Posix,
    damage: Arc<Mutex<Vec<DamagedRange>>>,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(AccessTimes::Never, 131_072)
    }

    fn with(access_times: AccessTimes, record_bytes: u64) -> Bench {
        let store = MemoryStore::new();
        let record = record_bytes.to_string();
        store.set_property(&DatasetName::root(), "recordsize", Some(&record)).unwrap();
        let root = Source { dataset: DatasetName::root(), snapshot: None };
        let view = store.open(&root).unwrap();
        let damage = Arc::new(Mutex::new(Vec::new()));
        let files = open(&view, access_times, &damage);
        Bench { store, view, files, damage }
    }

    /// A file system whose dataset has this property.
    fn with_property(name: &str, value: &str) -> Bench {
        let mut bench = Bench::new();
        bench.set_property(name, value);
        bench.crash();
        bench
    }

    /// Sets a property; those that are read once count from the next opening on.
    fn set_property(&self, name: &str, value: &str) {
        self.store.set_property(&DatasetName::root(), name, Some(value)).unwrap();
    }

    /// Opens the file system anew, as after a crash: without telling the old one.
    fn crash(&mut self) {
        self.files = open(&self.view, AccessTimes::Never, &self.damage);
    }

    fn file(&self, text: &str) -> Ino {
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        self.files.create(USER, Ino::ROOT, name(text), node).unwrap().ino
    }

    fn directory(&self, parent: Ino, text: &str) -> Ino {
        let node = NewNode::Directory { permissions: 0o755 };
        self.files.create(USER, parent, name(text), node).unwrap().ino
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) {
        self.files.write(ino, offset, data, PLAIN).unwrap();
    }

    fn read(&self, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.files.read(ino, offset, len, &mut out).unwrap();
        out
    }

    fn set_size(&self, ino: Ino, size: u64) {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.files.set_attributes(USER, ino, &set).unwrap();
    }

    fn attributes(&self, ino: Ino) -> Attributes {
        self.files.attributes(ino).unwrap()
    }

    /// Everything that is to be reclaimed, in steps of `items`.
    fn reclaim(&self, items: usize) {
        while self.files.reclaim_step(items).unwrap() {}
    }

    /// Keys of all items of an object.
    fn keys(&self, object: u64) -> Vec<Key> {
        let mut keys = Vec::new();
        let (from, to) = (Key::new(object, 0, 0), Key::new(object, u8::MAX, u64::MAX));
        let mut visit = |key: Key, _: &marram_store::Item| {
            keys.push(key);
            true
        };
        self.view.scan(from, to, &mut visit).unwrap();
        keys
    }

    /// Offsets and lengths of the blocks of a file's sections; `None` where there is no block.
    fn sections(&self, ino: Ino) -> Vec<(u64, Option<usize>)> {
        let block = |key: &Key| self.view.get(*key).unwrap().unwrap().block;
        let keys = self.keys(ino.0);
        let sections = keys.iter().filter(|key| key.kind == kind::SECTION);
        sections.map(|key| (key.offset, block(key).as_ref().map(Block::len))).collect()
    }
}

fn open(
    view: &Arc<dyn View>,
    access_times: AccessTimes,
    damage: &Arc<Mutex<Vec<DamagedRange>>>,
) -> Posix {
    let damage = Arc::clone(damage);
    let options = PosixOptions {
        clock: Arc::new(SteppedClock::default()),
        access_times,
        on_damage: Arc::new(move |range| damage.lock().unwrap().push(range)),
        ..PosixOptions::default()
    };
    Posix::new(Arc::clone(view), options).unwrap()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// Bytes that differ from place to place.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| seed.wrapping_add((at / 3 + at / 251) as u8)).collect()
}
