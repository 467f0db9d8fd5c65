//! Writes whose memory the file system keeps in place of a copy: the content is right wherever it
//! goes, the memory is let go of by the commit, and all of it counts as dirty until then.

use bytes::Bytes;
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_sim::{Random, pattern};
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, Sharing, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const RECORD_BYTES: usize = 128 << 10;
const WRITE_BYTES: usize = 1 << 20;
/// What lies before the data in memory, as the header of a request does.
const BEFORE_BYTES: usize = 80;
const AFTER_BYTES: usize = 4016;

/// Memory that notes when it is gone.
struct Lent {
    bytes: Vec<u8>,
    gone: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Release);
    }
}

struct Bench {
    pool: Arc<Pool>,
    files: Posix,
}

impl Bench {
    fn new() -> Bench {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
        let options = CreateOptions {
            label: "kept".to_owned(),
            properties: Properties::default(),
            pool_id: [4; 16],
            secret: 8,
            now_seconds: 1_700_000_000,
        };
        create(&[Arc::clone(&device)], &options).unwrap();
        let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
        let view = pool.open(&Source { dataset: DatasetName::root(), snapshot: None }).unwrap();
        let files = Posix::new(view, PosixOptions::default()).unwrap();
        Bench { pool, files }
    }

    fn make(&self, name: &str) -> Ino {
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let name = Name::new(name.as_bytes()).unwrap();
        self.files.create(ROOT, Ino::ROOT, name, node).unwrap().ino
    }

    /// Writes `data` out of memory that has `after` bytes behind it; the flag says when that is
    /// gone.
    fn write(&self, file: Ino, offset: u64, data: &[u8], after: usize) -> Arc<AtomicBool> {
        let gone = Arc::new(AtomicBool::new(false));
        let bytes = [&[0xee; BEFORE_BYTES], data, &vec![0xdd; after]].concat();
        let memory = Bytes::from_owner(Lent { bytes, gone: Arc::clone(&gone) });
        let data = &memory[BEFORE_BYTES..BEFORE_BYTES + data.len()];
        let options = WriteOptions { memory: Some(&memory), ..WriteOptions::default() };
        self.files.write(file, offset, data, options).unwrap();
        gone
    }

    fn read(&self, file: Ino) -> Vec<u8> {
        let mut out = Vec::new();
        self.files.read(file, 0, 64 << 20, &mut out).unwrap();
        out
    }

    fn dirty_bytes(&self) -> usize {
        usize::try_from(self.pool.status().dirty_bytes).unwrap()
    }
}

/// All of the memory of a long write.
const MEMORY_BYTES: usize = BEFORE_BYTES + WRITE_BYTES + AFTER_BYTES;

#[test]
fn memory_is_kept_and_counted_until_the_commit() {
    let bench = Bench::new();
    let file = bench.make("file");
    bench.pool.commit().unwrap();
    let data = pattern(1, WRITE_BYTES);
    let gone = bench.write(file, 0, &data, AFTER_BYTES);
    assert!(!gone.load(Ordering::Acquire), "it was copied");
    assert!(bench.dirty_bytes() >= MEMORY_BYTES);
    assert!(bench.read(file) == data);
    bench.pool.commit().unwrap();
    assert!(gone.load(Ordering::Acquire), "nobody needs it any more");
    assert_eq!(bench.dirty_bytes(), 0);
    assert!(bench.read(file) == data);
}

#[test]
fn a_last_record_that_keeps_all_of_the_memory_is_counted_as_that() {
    let bench = Bench::new();
    let (file, other) = (bench.make("file"), bench.make("other"));
    bench.pool.commit().unwrap();
    let data = pattern(1, WRITE_BYTES);
    let gone = bench.write(file, 0, &data, AFTER_BYTES);
    let before = bench.dirty_bytes();
    let len = RECORD_BYTES as u64;
    bench.files.share_range(file, 0, other, 0, len).unwrap();
    assert!(bench.dirty_bytes() >= before + MEMORY_BYTES);
    let name = Name::new(b"file").unwrap();
    bench.files.unlink(Ino::ROOT, name).unwrap();
    assert!(!gone.load(Ordering::Acquire));
    assert!(bench.read(other) == data[..RECORD_BYTES]);
    bench.pool.commit().unwrap();
    assert!(bench.read(other) == data[..RECORD_BYTES]);
}

#[test]
fn patches_of_kept_memory_are_counted_beside_it() {
    let bench = Bench::new();
    let file = bench.make("file");
    let mut data = pattern(1, WRITE_BYTES);
    bench.write(file, 0, &data, AFTER_BYTES);
    let before = bench.dirty_bytes();
    let record = RECORD_BYTES as u64;
    for number in 0..7 {
        let at = number * record + 5;
        bench.files.write(file, at, b"patch", WriteOptions::default()).unwrap();
        data[usize::try_from(at).unwrap()..][..5].copy_from_slice(b"patch");
    }
    assert!(bench.dirty_bytes() >= before + 7 * RECORD_BYTES);
    assert!(bench.read(file) == data);
    bench.pool.commit().unwrap();
    assert!(bench.read(file) == data);
}

#[test]
fn memory_that_is_mostly_unused_is_not_kept() {
    let bench = Bench::new();
    let (copied, kept) = (bench.make("copied"), bench.make("kept"));
    let data = pattern(1, 4 * RECORD_BYTES);
    assert!(bench.write(copied, 0, &data, 6 * RECORD_BYTES).load(Ordering::Acquire));
    assert!(!bench.write(kept, 0, &data, 3 * RECORD_BYTES).load(Ordering::Acquire));
    assert!(bench.read(copied) == data && bench.read(kept) == data);
}

#[test]
fn content_is_right_whatever_the_writes_begin_and_end_in() {
    const FILE_BYTES: usize = 3 << 20;
    let bench = Bench::new();
    let file = bench.make("file");
    let mut random = Random::new(33);
    let mut expected: Vec<u8> = Vec::new();
    for round in 0..60 {
        let grain = [1, 4096, RECORD_BYTES][usize::try_from(random.below(3)).unwrap()];
        let most = |bytes: usize| u64::try_from(bytes / grain).unwrap();
        let offset = usize::try_from(random.below(most(FILE_BYTES))).unwrap() * grain;
        let len = usize::try_from(1 + random.below(most(WRITE_BYTES))).unwrap() * grain;
        let data = pattern(round, len);
        expected.resize(expected.len().max(offset + len), 0);
        expected[offset..offset + len].copy_from_slice(&data);
        bench.write(file, offset as u64, &data, AFTER_BYTES.min(len));
        if random.below(8) == 0 {
            bench.pool.commit().unwrap();
        }
        assert!(bench.read(file) == expected, "round {round}: {len} bytes at {offset}");
    }
}
