//! What `df` and `du` tell while something waits for a commit, and after it.
//!
//! Before a commit `df` never tells of more free space than after it, but for the items of a few
//! files. How much less it may tell stands with each row: what an operation gives back comes with
//! the commit, and content counts as it is until it has been compressed.

use crate::paths;
use crate::paths::{find, make, open};
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::Posix;
use marram_sim::pattern;
use marram_store::{DatasetName, Properties, Store};
use marram_vfs::{
    Allocate, FileSystem, Ino, Kind, Name, NewNode, Ranges, SetAttributes, Sharing, WriteOptions,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
/// What items and their nodes take, reported or real: a KiB is reported for each that waits.
const ITEMS_BYTES: u64 = MIB;

struct Bench {
    pool: Arc<Pool>,
    files: Posix,
}

impl Bench {
    /// A pool with a file `old` of 8 MiB that has been committed.
    fn new(compression: &str) -> Bench {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
        let properties = [("compression".to_owned(), compression.to_owned())];
        let options = CreateOptions {
            label: "told".to_owned(),
            properties: Properties(properties.into_iter().collect()),
            pool_id: [4; 16],
            secret: 8,
            now_seconds: 1_700_000_000,
        };
        create(&[Arc::clone(&device)], &options).unwrap();
        let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
        let files = open(&pool, "root");
        let bench = Bench { pool, files };
        bench.write("old", 0, &noise(1, 8 * MIB));
        bench.settle();
        bench
    }

    fn settle(&self) {
        while self.files.reclaim_step(1000).unwrap() {}
        self.pool.commit().unwrap();
        while self.pool.reclaim_step().unwrap() {}
    }

    fn free_bytes(&self) -> u64 {
        self.files.space().unwrap().free_bytes
    }

    fn file(&self, name: &str) -> Ino {
        file(&self.files, name)
    }

    fn write(&self, name: &str, offset: u64, data: &[u8]) {
        write(&self.files, name, offset, data);
    }

    fn remove(&self, name: &str) {
        self.files.unlink(Ino::ROOT, Name::new(name.as_bytes()).unwrap()).unwrap();
        while self.files.reclaim_step(1000).unwrap() {}
    }

    fn cut(&self, name: &str, size: u64) {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.files.set_attributes(paths::ROOT, self.file(name), &set).unwrap();
        while self.files.reclaim_step(1000).unwrap() {}
    }

    fn allocate(&self, name: &str, how: Allocate, len: u64) {
        self.files.allocate(self.file(name), how, 0, len).unwrap();
    }

    fn clone_of(&self, name: &str, clone: &str) {
        let len = self.files.attributes(self.file(name)).unwrap().size;
        let shared = self.files.share_range(self.file(name), 0, self.file(clone), 0, len);
        assert_eq!(shared, Ok(len));
    }

    /// What `du` shows.
    fn used_bytes(&self, name: &str) -> u64 {
        self.files.attributes(self.file(name)).unwrap().blocks_512 * 512
    }
}

fn file(files: &Posix, name: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    find(files, name).or_else(|_| make(files, name, node)).unwrap()
}

fn write(files: &Posix, name: &str, offset: u64, data: &[u8]) {
    files.write(file(files, name), offset, data, WriteOptions::default()).unwrap();
}

/// Bytes that do not compress.
fn noise(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(|_| next()).collect()
}

/// What a program does, and what is reported then.
struct Row {
    what: &'static str,
    does: fn(&Bench),
    /// MiB that it takes, reported before the commit and after it; less than nothing where some
    /// come back.
    told: (i64, i64),
    /// What `du` shows of a file then, in MiB.
    used: (&'static str, u64),
}

const ROWS: &[Row] = &[
    Row {
        what: "a file is written",
        does: |bench| bench.write("new", 0, &noise(2, 8 * MIB)),
        told: (8, 8),
        used: ("new", 8),
    },
    Row {
        what: "a file is written and cloned ten times",
        does: |bench| {
            bench.write("new", 0, &noise(2, 8 * MIB));
            (0..10).for_each(|clone| bench.clone_of("new", &clone.to_string()));
        },
        told: (8, 8),
        used: ("9", 8),
    },
    Row {
        what: "a file is cloned ten times",
        does: |bench| (0..10).for_each(|clone| bench.clone_of("old", &clone.to_string())),
        told: (0, 0),
        used: ("9", 8),
    },
    Row {
        what: "a clone of what was just written is written over",
        does: |bench| {
            bench.write("new", 0, &noise(2, 8 * MIB));
            bench.clone_of("new", "clone");
            bench.write("clone", 2 * MIB, &noise(3, 2 * MIB));
        },
        told: (10, 10),
        used: ("clone", 8),
    },
    Row {
        what: "what was just written is written over, in other pieces too",
        does: |bench| {
            for round in 0..4 {
                bench.write("new", 0, &noise(round, 8 * MIB));
                bench.write("new", 65_536 * round, &noise(round, 6 * MIB));
            }
        },
        told: (8, 8),
        used: ("new", 8),
    },
    Row {
        what: "a file is written over",
        does: |bench| bench.write("old", 0, &noise(2, 8 * MIB)),
        told: (8, 0),
        used: ("old", 8),
    },
    Row {
        what: "a file is removed",
        does: |bench| {
            bench.remove("old");
            bench.write("other", 0, b"x");
        },
        told: (0, -8),
        used: ("other", 0),
    },
    Row {
        what: "what was just written is removed",
        does: |bench| {
            bench.write("new", 0, &noise(2, 8 * MIB));
            bench.remove("new");
            bench.write("other", 0, b"x");
        },
        told: (0, 0),
        used: ("other", 0),
    },
    Row {
        what: "a file is cut",
        does: |bench| bench.cut("old", 2 * MIB),
        told: (0, -6),
        used: ("old", 2),
    },
    Row {
        what: "what was just written is cut",
        does: |bench| {
            bench.write("new", 0, &noise(2, 8 * MIB));
            bench.cut("new", 2 * MIB);
        },
        told: (2, 2),
        used: ("new", 2),
    },
    Row {
        what: "a hole is punched",
        does: |bench| bench.allocate("old", Allocate::PunchHole, 4 * MIB),
        told: (0, -4),
        used: ("old", 4),
    },
    Row {
        what: "space is reserved",
        does: |bench| bench.allocate("new", Allocate::Reserve, 8 * MIB),
        told: (8, 8),
        used: ("new", 8),
    },
    Row {
        what: "reserved space is written",
        does: |bench| {
            bench.allocate("new", Allocate::Reserve, 8 * MIB);
            bench.write("new", 0, &noise(2, 8 * MIB));
        },
        told: (8, 8),
        used: ("new", 8),
    },
    Row {
        what: "a fork is written to",
        does: |bench| {
            let (live, fork) = (DatasetName::root(), "f".parse().unwrap());
            bench.pool.fork(&live, &fork, 1).unwrap();
            write(&open(&bench.pool, "f"), "old", 0, &noise(2, 3 * MIB));
        },
        told: (3, 3),
        used: ("old", 8),
    },
    Row {
        what: "what repeats is written",
        does: |bench| bench.write("new", 0, &[7; 8 << 20]),
        told: (8, 8),
        used: ("new", 8),
    },
];

fn near(told: i64, expected_mib: i64) -> bool {
    told.abs_diff(expected_mib * MIB.cast_signed()) <= ITEMS_BYTES
}

fn measure(row: &Row, compression: &str, told: (i64, i64)) {
    let bench = Bench::new(compression);
    let before = bench.free_bytes();
    let taken = || before.cast_signed() - bench.free_bytes().cast_signed();
    (row.does)(&bench);
    let waiting = taken();
    let used = bench.used_bytes(row.used.0).next_multiple_of(4096) / MIB;
    bench.settle();
    let what = format!("{} with {compression}", row.what);
    assert!(near(waiting, told.0), "{what}: {waiting} bytes are told before the commit");
    assert!(near(taken(), told.1), "{what}: {} bytes are told after it", taken());
    assert_eq!((used, bench.used_bytes(row.used.0) / MIB), (row.used.1, row.used.1), "{what}");
}

#[test]
fn free_space_is_told_before_a_commit_as_after_it() {
    ROWS.iter().for_each(|row| measure(row, "off", row.told));
}

#[test]
fn what_compresses_is_told_as_it_is_until_the_commit() {
    let compresses = |row: &Row| row.what == "what repeats is written";
    for row in ROWS {
        let told = if compresses(row) { (8, 0) } else { row.told };
        measure(row, "zstd", told);
    }
}

#[test]
fn small_files_are_told_as_what_they_take() {
    let bench = Bench::new("off");
    let before = bench.free_bytes();
    for number in 0..500 {
        bench.write(&format!("small{number}"), 0, &pattern(number, 700));
    }
    let waiting = before - bench.free_bytes();
    bench.settle();
    let taken = before - bench.free_bytes();
    assert!(taken <= waiting && waiting <= taken + 6 * MIB, "{waiting} told, {taken} taken");
}
