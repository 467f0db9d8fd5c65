//! Pools in memory, with a file system in them, and what a check says of them.

use marram_check::{CheckOptions, Finding, Summary, check};
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_store::{Properties, Store};
use marram_vfs::{Attributes, Caller, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::sync::Arc;

pub(crate) const CALLER: Caller = Caller { uid: 1, gid: 2 };

/// A pool in memory.
pub(crate) struct Home {
    pub(crate) memory: Arc<MemoryDevice>,
    pub(crate) pool: Arc<Pool>,
}

pub(crate) fn create_pool(devices: &[Arc<dyn Device>], properties: &[(&str, &str)]) {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let options = CreateOptions {
        label: "test".to_owned(),
        properties: Properties(properties.collect()),
        pool_id: [7; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(devices, &options).unwrap();
}

/// Opens a pool that gives back what destroyed snapshots had in the smallest steps.
pub(crate) fn open_pool(devices: Vec<Arc<dyn Device>>) -> Arc<Pool> {
    let options = OpenOptions { reclaim_pointers_max: 1, ..OpenOptions::new(|| 0) };
    Pool::open(devices, options).unwrap()
}

pub(crate) fn new_home(mebibytes: usize, properties: &[(&str, &str)]) -> Home {
    let memory = Arc::new(MemoryDevice::new(mebibytes << 20));
    create_pool(&[memory.clone() as Arc<dyn Device>], properties);
    open_home(memory)
}

pub(crate) fn open_home(memory: Arc<MemoryDevice>) -> Home {
    let pool = open_pool(vec![memory.clone() as Arc<dyn Device>]);
    Home { memory, pool }
}

impl Home {
    pub(crate) fn mount(&self, source: &str) -> Files {
        Files::new(&self.pool, source)
    }

    pub(crate) fn snapshot(&self, dataset: &str, name: &str) {
        self.pool.snapshot(&dataset.parse().unwrap(), name).unwrap();
    }

    pub(crate) fn clone_of(&self, origin: &str, name: &str) {
        self.pool.clone_snapshot(&origin.parse().unwrap(), &name.parse().unwrap()).unwrap();
    }

    pub(crate) fn destroy(&self, source: &str) {
        self.pool.destroy(&source.parse().unwrap(), false).unwrap();
    }

    /// The bytes after the last commit.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.memory.snapshot()
    }

    /// Nothing is wrong with what is on the device now.
    #[track_caller]
    pub(crate) fn assert_clean(&self) -> Summary {
        assert_clean(&*self.memory)
    }
}

/// Checks a device with everything that can be checked.
pub(crate) fn check_all(device: &dyn Device) -> (Summary, Vec<Finding>) {
    let options = CheckOptions { read_data: true, snapshots: true };
    let mut findings = Vec::new();
    let summary = check(device, &options, &mut |finding| findings.push(finding)).unwrap();
    (summary, findings)
}

#[track_caller]
pub(crate) fn assert_clean(device: &dyn Device) -> Summary {
    let (summary, findings) = check_all(device);
    let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    assert!(summary.is_clean());
    summary
}

/// A mounted file system. Names are paths without directories: everything is below one inode.
pub(crate) struct Files {
    pub(crate) posix: Posix,
    pool: Arc<Pool>,
}

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

impl Files {
    pub(crate) fn new(pool: &Arc<Pool>, source: &str) -> Files {
        let view = pool.open(&source.parse().unwrap()).unwrap();
        let posix = Posix::new(view, PosixOptions::default()).unwrap();
        Files { posix, pool: pool.clone() }
    }

    /// Makes a node, and lets go of it again.
    pub(crate) fn make(&self, parent: u64, text: &str, node: NewNode<'_>) -> u64 {
        let made = self.posix.create(CALLER, Ino(parent), name(text), node).unwrap();
        self.release(made)
    }

    pub(crate) fn directory(&self, parent: u64, text: &str) -> u64 {
        self.make(parent, text, NewNode::Directory { permissions: 0o755 })
    }

    pub(crate) fn file(&self, parent: u64, text: &str, content: &[u8]) -> u64 {
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let ino = self.make(parent, text, node);
        self.write(ino, 0, content);
        ino
    }

    pub(crate) fn write(&self, ino: u64, offset: u64, content: &[u8]) {
        self.posix.write(Ino(ino), offset, content, WriteOptions::default()).unwrap();
    }

    pub(crate) fn find(&self, parent: u64, text: &str) -> u64 {
        let found = self.posix.lookup(Ino(parent), name(text)).unwrap();
        self.release(found)
    }

    pub(crate) fn remove(&self, parent: u64, text: &str) {
        self.posix.unlink(Ino(parent), name(text)).unwrap();
    }

    /// Makes a group commit.
    pub(crate) fn commit(&self) {
        self.pool.commit().unwrap();
    }

    /// Makes everything durable, by the intent log or by a group commit.
    pub(crate) fn sync(&self) {
        self.posix.sync_all().unwrap();
    }

    /// Does all that waits to be done in the background.
    pub(crate) fn reclaim(&self) {
        while self.posix.reclaim_step(100).unwrap() {}
    }

    fn release(&self, attributes: Attributes) -> u64 {
        self.posix.forget(attributes.ino, 1);
        attributes.ino.0
    }
}

/// Bytes that do not compress and that depend on `seed`.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| (random.next() >> 32) as u8).collect()
}

/// Numbers that follow from a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
}
