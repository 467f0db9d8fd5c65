//! Moments at which the engine could leave something behind that is not in order: the middle of a
//! commit, a full pool, a device that fails.

use crate::clean::{change, change_in};
use crate::fixture::{Files, Random, assert_clean, create_pool, name, noise, open_pool};
use marram_device::{Device, Error, MemoryDevice, Result};
use marram_pool::OpenOptions;
use marram_store::{Batch, Item, Key, Store, kind};
use marram_vfs::{Copying, FileSystem, Ino, Kind, NewNode, WriteOptions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// What happens before a write reaches the device.
type Action = Box<dyn FnMut(&MemoryDevice) -> Result<()> + Send>;

/// A device on which something else happens before each write, or before the next read.
struct Interrupted {
    memory: MemoryDevice,
    action: Mutex<Option<Action>>,
    before_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Interrupted {
    fn new(mebibytes: usize) -> Arc<Interrupted> {
        let memory = MemoryDevice::new(mebibytes << 20);
        let device = Arc::new(Interrupted {
            memory,
            action: Mutex::new(None),
            before_read: Mutex::new(None),
        });
        create_pool(&[device.clone() as Arc<dyn Device>], &[("recordsize", "32K")]);
        device
    }

    fn before_writes(&self, action: impl FnMut(&MemoryDevice) -> Result<()> + Send + 'static) {
        *self.action.lock().unwrap() = Some(Box::new(action));
    }

    fn before_next_read(&self, action: impl FnOnce() + Send + 'static) {
        *self.before_read.lock().unwrap() = Some(Box::new(action));
    }

    fn open(self: &Arc<Self>) -> Arc<marram_pool::Pool> {
        open_pool(vec![self.clone() as Arc<dyn Device>])
    }
}

impl Device for Interrupted {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn size(&self) -> Result<u64> {
        self.memory.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let action = self.before_read.lock().unwrap().take();
        if let Some(action) = action {
            action();
        }
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        let action = self.action.lock().unwrap().take();
        if let Some(mut action) = action {
            let result = action(&self.memory);
            self.action.lock().unwrap().get_or_insert(action);
            result?;
        }
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
}

/// Runs something in a thread of its own, and waits for it: a commit holds locks that a thread may
/// not hold when it begins an operation on files.
fn beside(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(work).join().expect("the work ends in order"));
}

fn files_on(pool: &Arc<marram_pool::Pool>) -> Arc<Files> {
    Arc::new(Files::new(pool, "root"))
}

/// A block becomes shared in the commit that is under way; what changes one of its sections
/// meanwhile must not make it look unshared again: its space would be given back too early.
#[test]
fn a_block_that_becomes_shared_stays_counted_whatever_happens_during_the_commit() {
    let device = Interrupted::new(64);
    let pool = device.open();
    let files = files_on(&pool);
    let content = noise(1, 32 << 10);
    let first = files.file(1, "first", &content);
    files.commit();
    let second = files.file(1, "second", b"");
    files.posix.copy_range(Ino(first), 0, Ino(second), 0, 32 << 10).unwrap();
    let writer = files.clone();
    device.before_writes(move |_| {
        beside(|| writer.write(first, 0, &noise(2, 10_000)));
        Ok(())
    });
    files.commit();
    device.before_writes(|_| Ok(()));
    files.commit();
    assert_clean(&device.memory);
    files.remove(1, "first");
    files.reclaim();
    files.commit();
    assert_clean(&device.memory);
    let again = files_on(&device.open());
    again.file(1, "third", &noise(3, 4 << 20));
    again.commit();
    let again = files_on(&device.open());
    let mut found = Vec::new();
    again.posix.read(Ino(second), 0, 32 << 10, &mut found).unwrap();
    assert!(found == content, "the content of a file is gone");
    assert_clean(&device.memory);
}

/// A commit that ends while the last item of a range is looked for must not hide what it has taken
/// in: else a write does not see the section that it overlaps, and both stay.
#[test]
fn the_last_item_is_found_while_a_commit_ends() {
    let device = Interrupted::new(64);
    let options = OpenOptions { cache_bytes: 0, ..OpenOptions::new(|| 0) };
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    let pool = marram_pool::Pool::open(devices, options).unwrap();
    let view = pool.open(&"root".parse().unwrap()).unwrap();
    let put = |offset: u64| {
        let mut batch = Batch::new();
        batch.put(Key::new(5, kind::SECTION, offset), Item::plain(vec![1; 12]));
        view.apply(batch).unwrap();
    };
    put(0);
    pool.commit().unwrap();
    put(100);
    let other = pool.clone();
    device.before_next_read(move || other.commit().unwrap());
    let (from, to) = (Key::new(5, kind::SECTION, 0), Key::new(5, kind::SECTION, u64::MAX));
    let found = view.last(from, to).unwrap().map(|(key, _)| key.offset);
    assert_eq!(found, Some(100));
}

#[test]
fn operations_in_the_middle_of_commits_leave_everything_in_order() {
    for seed in 0..6 {
        let device = Interrupted::new(64);
        let pool = device.open();
        let files = files_on(&pool);
        let mut random = Random::new(seed);
        for number in 0..10 {
            files.file(1, &format!("file {number}"), &noise(number, 200_000));
        }
        files.commit();
        let (writer, mut moments) = (files.clone(), Random::new(seed + 1000));
        device.before_writes(move |memory| {
            match moments.below(20) {
                0 => drop(assert_clean(memory)),
                1..10 => {
                    beside(|| (0..moments.below(6)).for_each(|_| change(&writer, &mut moments)))
                }
                _ => {}
            }
            Ok(())
        });
        for round in 0..15 {
            (0..random.below(10)).for_each(|_| change(&files, &mut random));
            if random.below(2) == 0 {
                files.commit()
            } else {
                files.sync()
            }
            if round % 5 == 2 {
                let text = format!("s{round}");
                pool.snapshot(&"root".parse().unwrap(), &text).unwrap();
            }
            if round == 9 {
                pool.destroy(&"root@s2".parse().unwrap(), false).unwrap();
            }
            assert_clean(&device.memory);
        }
        device.before_writes(|_| Ok(()));
        files.reclaim();
        files.commit();
        assert_clean(&device.memory);
    }
}

#[test]
fn many_threads_and_commits_at_once_leave_everything_in_order() {
    let device = Interrupted::new(96);
    let pool = device.open();
    let files = files_on(&pool);
    let directories: Vec<u64> =
        (0..3).map(|number| files.directory(1, &number.to_string())).collect();
    files.commit();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (device, files, pool, done) = (&device, &files, &pool, &done);
        let writer = |seed: u64, directory: u64| {
            move || {
                let mut random = Random::new(seed);
                (0..400).for_each(|_| change_in(files, directory, &mut random));
            }
        };
        let writers: Vec<_> =
            (0..).zip(&directories).map(|(seed, it)| scope.spawn(writer(seed, *it))).collect();
        let commits = scope.spawn(move || {
            for round in 0.. {
                pool.commit().unwrap();
                files.posix.reclaim_step(50).unwrap();
                let text = format!("s{round}");
                pool.snapshot(&"root".parse().unwrap(), &text).unwrap();
                if round > 2 {
                    let old = format!("root@s{}", round - 2);
                    pool.destroy(&old.parse().unwrap(), false).unwrap();
                }
                assert_clean(&MemoryDevice::from_bytes(device.memory.snapshot()));
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        commits.join().unwrap();
    });
    files.reclaim();
    files.commit();
    assert_clean(&device.memory);
}

/// Writes until there is no space; returns how many files there are.
fn fill(files: &Files, seed: u64) -> u64 {
    for number in 0.. {
        let text = format!("{seed} {number}");
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let caller = crate::fixture::CALLER;
        let Ok(made) = files.posix.create(caller, Ino(1), name(&text), node) else {
            return number;
        };
        files.posix.forget(made.ino, 1);
        let content = noise(seed + number, 300_000);
        if files.posix.write(made.ino, 0, &content, WriteOptions::default()).is_err() {
            return number;
        }
    }
    unreachable!("a pool is not endless");
}

#[test]
fn a_pool_that_runs_full_again_and_again_stays_in_order() {
    let device = Interrupted::new(32);
    let pool = device.open();
    let files = files_on(&pool);
    for round in 0..4 {
        let count = fill(&files, round);
        assert!(count > 20, "{count}");
        drop(files.posix.sync_all());
        assert_clean(&device.memory);
        if round % 2 == 0 {
            drop(pool.snapshot(&"root".parse().unwrap(), "full"));
            assert_clean(&device.memory);
        }
        for number in 0..count {
            files.remove(1, &format!("{round} {number}"));
        }
        drop(files.posix.unlink(Ino(1), name(&format!("{round} {count}"))));
        files.reclaim();
        drop(pool.destroy(&"root@full".parse().unwrap(), false));
        files.commit();
        assert_clean(&device.memory);
    }
}

#[test]
fn a_device_that_fails_leaves_the_last_commit_in_order() {
    for good_writes in 0..12 {
        let device = Interrupted::new(64);
        let pool = device.open();
        let files = files_on(&pool);
        let content = |number| noise(number, 90_000);
        let inodes: Vec<u64> =
            (0..5).map(|number| files.file(1, &number.to_string(), &content(number))).collect();
        files.commit();
        let mut left = good_writes;
        device.before_writes(move |_| {
            if left == 0 {
                let (device, reason) = ("memory".to_owned(), "broken".to_owned());
                return Err(Error::Failed { device, action: "write", offset: 0, len: 0, reason });
            }
            left -= 1;
            Ok(())
        });
        for ino in inodes {
            let content = noise(ino, 50_000);
            drop(files.posix.write(Ino(ino), 40_000, &content, WriteOptions::default()));
            drop(files.posix.sync_all());
            drop(files.posix.unlink(Ino(1), name("3")));
        }
        drop(files.posix.sync_all());
        assert_clean(&device.memory);
        device.before_writes(|_| Ok(()));
        let again = files_on(&device.open());
        again.file(1, "after", &noise(1, 100_000));
        again.commit();
        assert_clean(&device.memory);
    }
}
