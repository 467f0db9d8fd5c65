//! Long writes whose requests the file system keeps: what the next requests bring must not show up
//! in them.

use crate::fixture::{Mounted, can_mount};
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_store::{Properties, Store};
use rustix::fs::{Advice, fadvise};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

const LEN: usize = 1 << 20;
const FILES: usize = 12;

fn pool() -> Arc<Pool> {
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(MemoryDevice::new(256 << 20))];
    let options = CreateOptions {
        label: String::new(),
        properties: Properties::default(),
        pool_id: [5; 16],
        secret: 6,
        now_seconds: 0,
    };
    create(&devices, &options).unwrap();
    Pool::open(devices, OpenOptions::new(|| 0)).unwrap()
}

/// Different in each file, and nowhere the same for long.
fn content(number: usize) -> Vec<u8> {
    (0..LEN).map(|at| ((at * 7 + at / 251 + number * 31) % 256) as u8).collect()
}

/// Reads what the file system has, not what the kernel has kept.
fn check(root: &Path) {
    for number in 0..FILES {
        let path = root.join(number.to_string());
        fadvise(File::open(&path).unwrap(), 0, None, Advice::DontNeed).unwrap();
        assert!(fs::read(&path).unwrap() == content(number), "file {number}");
    }
}

#[test]
fn what_was_written_stays_when_its_lane_goes_on() {
    if !can_mount() {
        return;
    }
    let pool = pool();
    let view = pool.open(&"root".parse().unwrap()).unwrap();
    let files = Arc::new(Posix::new(view, PosixOptions::default()).unwrap());
    // Few lanes: each write meets the memory that the one before it had, if that is free.
    let mounted = Mounted::with(files, |options| options.threads = 1);
    let root = mounted.root();
    for _ in 0..2 {
        for number in 0..FILES {
            fs::write(root.join(number.to_string()), content(number)).unwrap();
        }
        check(&root);
        pool.commit().unwrap();
        check(&root);
    }
    mounted.end();
}
