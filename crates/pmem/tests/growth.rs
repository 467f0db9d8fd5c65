//! What an operation costs does not grow with what lies beside it.

use crate::images::{Cut, ROOT_USER, new_image, open};
use marram_pmem::memory::recorded::Recorded;
use marram_pmem::memory::{Medium, Memory};
use marram_pmem::{Pmem, PmemOptions};
use marram_vfs::{
    Clock, FileSystem, Ino, Kind, Name, NewNode, Result, SetAttributes, SteppedClock, WriteOptions,
};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };

/// A medium that counts how often it is read.
struct Counted(Recorded, Arc<AtomicU64>);

impl Medium for Counted {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn reader(&self) -> Box<dyn Medium> {
        self.0.reader()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read(at, out)
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.0.store(at, bytes)
    }

    fn fill(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.0.fill(at, bytes)
    }

    fn failure(&self) -> Option<String> {
        self.0.failure()
    }

    fn flush(&mut self, at: u64, bytes: u64) {
        self.0.flush(at, bytes);
    }

    fn fence(&mut self) {
        self.0.fence();
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(Cut(Arc::new(SteppedClock::default())))
}

#[test]
fn the_attributes_of_a_large_file_cost_what_those_of_a_small_one_do() {
    let clock = clock();
    let reads = Arc::new(AtomicU64::new(0));
    let medium = Counted(new_image(32 << 20, &*clock), Arc::clone(&reads));
    let files = Pmem::open(Memory::new(Box::new(medium)), PmemOptions::default()).unwrap();
    let name = Name::new(b"f").unwrap();
    let ino = files.create(ROOT_USER, Ino::ROOT, name, FILE).unwrap().ino;
    let cost = |offset: u64, bytes: usize, blocks_512: u64| {
        files.write(ino, offset, &vec![1; bytes], WriteOptions::default()).unwrap();
        let before = reads.load(Ordering::Relaxed);
        assert_eq!(files.attributes(ino).unwrap().blocks_512, blocks_512);
        reads.load(Ordering::Relaxed) - before
    };
    let small = cost(0, 1, 8);
    let large = [cost(4096, 8 << 20, 8 + (16 << 10)), cost(100 << 20, 5000, 24 + (16 << 10))];
    assert!(large.iter().all(|reads| *reads <= small + 2), "{small} reads, then {large:?}");
    let cut = SetAttributes { size: Some(4097), ..SetAttributes::default() };
    assert_eq!(files.set_attributes(ROOT_USER, ino, &cut).unwrap().blocks_512, 16);
    files.audit().unwrap();
}

/// The time that this thread has worked.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_directory_more_costs_the_same_however_many_are_known() {
    const STEPS: usize = 10;
    const IN_STEP: usize = 1500;
    let files = open(&new_image(8 << 20, &*clock()), clock());
    let mut times = Vec::new();
    for step in 0..STEPS {
        let before = worked();
        for number in step * IN_STEP..(step + 1) * IN_STEP {
            let name = number.to_string();
            let name = Name::new(name.as_bytes()).unwrap();
            let made = files.create(ROOT_USER, Ino::ROOT, name, DIRECTORY).unwrap();
            assert!(files.lookup(made.ino, name).is_err());
        }
        times.push(worked() - before);
    }
    assert!(times[STEPS - 1] < times[0] * 6, "{times:?}");
}

#[test]
fn a_snapshot_and_a_rollback_cost_the_same_however_much_there_is() {
    let cost = |count: usize| {
        let clock = clock();
        let reads = Arc::new(AtomicU64::new(0));
        let medium = Counted(new_image(32 << 20, &*clock), Arc::clone(&reads));
        let files = Pmem::open(Memory::new(Box::new(medium)), PmemOptions::default()).unwrap();
        for number in 0..count {
            let name = number.to_string();
            let name = Name::new(name.as_bytes()).unwrap();
            files.create(ROOT_USER, Ino::ROOT, name, FILE).unwrap();
        }
        let before = reads.load(Ordering::Relaxed);
        files.snapshot("root", "s").unwrap();
        files.roll_back("root", "s", "t").unwrap();
        reads.load(Ordering::Relaxed) - before
    };
    assert_eq!(cost(5), cost(5000));
}
