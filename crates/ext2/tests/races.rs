//! Operations of two threads on one inode.

use crate::images::{SMALL, make, name, open};
use crate::judge::Judge;
use marram_device::{Device, MemoryDevice};
use marram_vfs::{Caller, FileSystem, Ino, Kind, NewNode, SteppedClock};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const ROUNDS: usize = 400;

#[test]
fn an_inode_that_loses_its_name_and_its_pin_at_once_is_freed_once() {
    let device = Arc::new(MemoryDevice::from_bytes(make(SMALL)));
    let files = open(Arc::clone(&device) as Arc<dyn Device>, Arc::new(SteppedClock::default()));
    let free = files.space().unwrap().inodes_free;
    let start = Barrier::new(2);
    for _ in 0..ROUNDS {
        let made = files.create(USER, Ino::ROOT, name("f"), FILE).unwrap().ino;
        std::thread::scope(|threads| {
            threads.spawn(|| {
                start.wait();
                files.forget(made, 1);
            });
            start.wait();
            files.unlink(Ino::ROOT, name("f")).unwrap();
        });
        assert_eq!(files.space().unwrap().inodes_free, free);
        files.step().unwrap();
    }
    files.close().unwrap();
    Judge::new().clean(&device.snapshot()).unwrap();
}

#[test]
fn a_name_that_comes_and_goes_many_times_is_soon_durable() {
    let device = Arc::new(MemoryDevice::from_bytes(make(SMALL)));
    let files = open(Arc::clone(&device) as Arc<dyn Device>, Arc::new(SteppedClock::default()));
    let began = Instant::now();
    for _ in 0..800 {
        let made = files.create(USER, Ino::ROOT, name("f"), FILE).unwrap().ino;
        files.forget(made, 1);
        files.unlink(Ino::ROOT, name("f")).unwrap();
    }
    files.close().unwrap();
    // Each of its changes waits for the one before: there are thousands in one sector.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    Judge::new().clean(&device.snapshot()).unwrap();
}
