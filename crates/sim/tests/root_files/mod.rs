//! Files in the root directories of a pool's datasets, and the space that the pool has given out.

use marram_device::Device;
use marram_pool::{OpenOptions, Pool};
use marram_posix::{Posix, PosixOptions};
use marram_store::{SpaceUsage, Store};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::sync::Arc;

/// More than any file has, in bytes.
const FILE_BYTES_MAX: usize = 1 << 24;

pub(crate) fn open(device: Arc<dyn Device>) -> Arc<Pool> {
    Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap()
}

pub(crate) fn mount(pool: &Pool, source: &str) -> Arc<Posix> {
    let view = pool.open(&source.parse().unwrap()).unwrap();
    Arc::new(Posix::new(view, PosixOptions::default()).unwrap())
}

/// Makes a file.
pub(crate) fn file(files: &Posix, text: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let (root_user, name) = (Caller { uid: 0, gid: 0 }, Name::new(text.as_bytes()).unwrap());
    files.create(root_user, Ino::ROOT, name, node).unwrap().ino
}

pub(crate) fn write(files: &Posix, ino: Ino, offset: u64, data: &[u8]) {
    files.write(ino, offset, data, WriteOptions::default()).unwrap();
}

pub(crate) fn read(files: &Posix, ino: Ino) -> Vec<u8> {
    let mut out = Vec::new();
    files.read(ino, 0, FILE_BYTES_MAX, &mut out).unwrap();
    out
}

/// Bytes that are given out once all that was let go of has come back.
pub(crate) fn allocated(pool: &Pool) -> u64 {
    while pool.reclaim_step().unwrap() {}
    pool.commit().unwrap();
    pool.usage(true).unwrap().allocated_bytes
}
