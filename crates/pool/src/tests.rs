//! The pool under many schedules: batches, frames of the log, commits and turns of administration
//! hand over to each other. What a sync reported as durable at a moment is there after a crash at
//! that moment.
//!
//! In these tests the locks of the crate are those of `shuttle`, which decides at every lock, and
//! at every write and flush of the device, which thread goes on.

use crate::base::pointers::decode_pointer;
use crate::memtable::counters::CommittedCounters;
use crate::{Author, CreateOptions, OpenOptions, Pool, create};
use marram_device::{Device, Result};
use marram_format::pointer::{GRAIN_BYTES, Place};
use marram_store::{
    Batch, Block, DatasetName, Error, Item, Key, MergedFrom, OperationLog, Properties, Source,
    Store, View, kind,
};
use shuttle::thread;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Schedules of each test: a few seconds.
const SCHEDULES: usize = 60;
const POOL_BYTES: u64 = 32 << 20;
const GRAIN: usize = 4096;

/// The content of grains, each with the number of the write that it is from.
type Grains = BTreeMap<u64, (u64, Arc<Vec<u8>>)>;

/// What a device has been given, and what of it a power cut leaves at least.
#[derive(Clone, Default)]
struct Kept {
    written: Grains,
    durable: Grains,
    writes: u64,
}

/// A device that lets others go on before each write and during each flush.
#[derive(Default)]
struct SlowDevice(Mutex<Kept>);

impl SlowDevice {
    fn with<T>(&self, act: impl FnOnce(&mut Kept) -> T) -> T {
        act(&mut self.0.lock().expect("no test panics in here"))
    }

    /// What is left when the power is cut now and nothing that was not flushed has arrived.
    fn cut(&self) -> Arc<SlowDevice> {
        let durable = self.with(|kept| kept.durable.clone());
        Arc::new(SlowDevice(Mutex::new(Kept {
            written: durable.clone(),
            durable,
            writes: u64::MAX / 2,
        })))
    }
}

/// Cuts a range into its grains: the grain, where in it, and where in the range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let at = offset + from as u64;
        let inside = (at % GRAIN as u64) as usize;
        let to = len.min(from + GRAIN - inside);
        let piece = (from < len).then_some((at / GRAIN as u64, inside, from..to));
        from = to;
        piece
    })
}

impl Device for SlowDevice {
    fn name(&self) -> String {
        "a slow device".to_owned()
    }

    fn size(&self) -> Result<u64> {
        Ok(POOL_BYTES)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.with(|kept| {
            for (grain, inside, range) in pieces(offset, buffer.len()) {
                let len = range.len();
                match kept.written.get(&grain) {
                    Some((_, bytes)) => buffer[range].copy_from_slice(&bytes[inside..inside + len]),
                    None => buffer[range].fill(0),
                }
            }
        });
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        thread::yield_now();
        self.with(|kept| {
            kept.writes += 1;
            for (grain, inside, range) in pieces(offset, buffer.len()) {
                let new = || (0, Arc::new(vec![0; GRAIN]));
                let (write, bytes) = kept.written.entry(grain).or_insert_with(new);
                *write = kept.writes;
                Arc::make_mut(bytes)[inside..inside + range.len()].copy_from_slice(&buffer[range]);
            }
        });
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let flushed = self.with(|kept| kept.written.clone());
        thread::yield_now();
        // Another flush may have begun later and ended earlier.
        self.with(|kept| {
            for (grain, (write, bytes)) in flushed {
                let durable = kept.durable.entry(grain).or_default();
                if durable.0 < write {
                    *durable = (write, bytes);
                }
            }
        });
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }
}

fn new_device() -> Arc<SlowDevice> {
    let device = Arc::new(SlowDevice::default());
    let options = CreateOptions {
        label: "schedules".to_owned(),
        properties: Properties::default(),
        pool_id: [3; 16],
        secret: 5,
        now_seconds: 1,
    };
    create(&[device.clone() as Arc<dyn Device>], &options).expect("it makes a pool");
    device
}

fn open(device: &Arc<SlowDevice>) -> Arc<Pool> {
    Pool::open(vec![device.clone()], OpenOptions::new(|| 0)).expect("it opens")
}

fn root(pool: &Pool) -> Arc<dyn View> {
    pool.open(&"root".parse().expect("a name")).expect("it is there")
}

fn put(live: &dyn View, object: u64) {
    let mut batch = Batch::new();
    let block = Block::fresh(vec![object as u8; 700]);
    batch.put(Key::new(object, kind::SECTION, 0), Item::with_block(&b"700"[..], block));
    live.apply(batch).expect("there is space");
}

fn assert_there(device: &Arc<SlowDevice>, objects: impl IntoIterator<Item = u64>) {
    let pool = open(device);
    let live = root(&pool);
    for object in objects {
        let item = live.get(Key::new(object, kind::SECTION, 0)).expect("it can be read");
        let block = item.unwrap_or_else(|| panic!("object {object} is gone")).block;
        let content = live.read_block(&block.expect("it was put with one")).expect("it is good");
        assert_eq!(&content[..], vec![object as u8; 700], "object {object}");
    }
}

/// Puts and syncs on a thread of its own; what was acknowledged outlives a power cut just then.
fn syncer(
    pool: &Arc<Pool>,
    device: &Arc<SlowDevice>,
    objects: std::ops::Range<u64>,
) -> thread::JoinHandle<()> {
    let (pool, device) = (pool.clone(), device.clone());
    thread::spawn(move || {
        let live = root(&pool);
        for object in objects.clone() {
            put(&*live, object);
            live.sync().expect("it is durable");
            assert_there(&device.cut(), objects.start..=object);
        }
    })
}

fn end(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
}

fn committer(pool: &Arc<Pool>, times: u32) -> thread::JoinHandle<()> {
    let pool = pool.clone();
    thread::spawn(move || (0..times).for_each(|_| pool.commit().expect("it commits")))
}

#[test]
fn syncs_beside_commits_are_durable_when_they_return() {
    shuttle::check_random(
        || {
            let device = new_device();
            let pool = open(&device);
            put(&*root(&pool), 99);
            root(&pool).sync().expect("from now on there is room in the log");
            let threads =
                [syncer(&pool, &device, 1..3), syncer(&pool, &device, 3..5), committer(&pool, 2)];
            end(threads);
            assert_there(&device.cut(), [1, 2, 3, 4, 99]);
        },
        SCHEDULES,
    );
}

/// Transactions on a thread of its own, each of which puts an object; what was settled outlives a
/// power cut just then.
fn merger(
    pool: &Arc<Pool>,
    device: &Arc<SlowDevice>,
    objects: std::ops::Range<u64>,
) -> thread::JoinHandle<()> {
    let author = Author { user: Some(1), command: "test".to_owned() };
    let (pool, device) = (pool.acting_for(author), device.clone());
    thread::spawn(move || {
        for object in objects.clone() {
            merge(&pool.expecting_merge(), object);
            pool.settle_merges().expect("it is durable");
            assert_there(&device.cut(), objects.start..=object);
        }
    })
}

fn merge(store: &dyn Store, object: u64) {
    let name = DatasetName::of_transaction(&object.to_string()).expect("a name");
    let dataset = DatasetName::root();
    store.begin_fork(&dataset, &name, 1).expect("it begins");
    let fork = Source::live(name.clone());
    put(&*store.open(&fork).expect("it is there"), object);
    loop {
        let read = store.present_state(&name, "merge").expect("it is there").expect("it is small");
        let merged = MergedFrom {
            dataset: &dataset,
            fork: &fork,
            read: &read,
            keep: None,
            root_object: 1,
            base: None,
            moves_base: false,
            may_wait: true,
        };
        let mut batch = Batch::new();
        let block = Block::fresh(vec![object as u8; 700]);
        batch.put(Key::new(object, kind::SECTION, 0), Item::with_block(&b"700"[..], block));
        let live = store.open(&Source::live(dataset.clone())).expect("it is there");
        let applied = store.apply_merge(&*live, batch, &merged);
        store.discard_snapshot(&read);
        match applied {
            Ok(_) => break,
            // A commit has come between.
            Err(Error::InUse { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    store.end_fork(&name).expect("it ends");
}

#[test]
fn merges_that_wait_are_durable_with_their_entries_when_they_are_settled() {
    shuttle::check_random(
        || {
            let device = new_device();
            let pool = open(&device);
            put(&*root(&pool), 99);
            root(&pool).sync().expect("from now on there is room in the log");
            let threads = [
                merger(&pool, &device, 1..3),
                merger(&pool, &device, 3..5),
                syncer(&pool, &device, 5..7),
            ];
            end(threads);
            let pool = open(&device.cut());
            assert_there(&device.cut(), 1..=6);
            let operations = pool.operations().expect("the log is read");
            assert_eq!(operations.len(), 4, "one for each, and none is lost");
        },
        SCHEDULES,
    );
}

#[test]
fn a_replay_is_taken_in_once_whoever_comes_first() {
    shuttle::check_random(
        || {
            let device = new_device();
            let pool = open(&device);
            for object in [90, 91] {
                put(&*root(&pool), object);
                root(&pool).sync().expect("it is durable");
            }
            let device = device.cut();
            let pool = open(&device);
            assert_eq!(pool.status().replayed_frames, 1);
            assert_there(&device.cut(), [90, 91]);
            let threads = [syncer(&pool, &device, 1..3), committer(&pool, 1)];
            assert_there(&device.cut(), [90, 91]);
            end(threads);
            assert_there(&device.cut(), [1, 2, 90, 91]);
        },
        SCHEDULES,
    );
}

#[test]
fn turns_of_administration_beside_syncs_all_come_to_an_end() {
    shuttle::check_random(
        || {
            let device = new_device();
            let pool = open(&device);
            let one = pool.clone();
            let snapshots = thread::spawn(move || {
                one.snapshot(&"root".parse().expect("a name"), "s").expect("it is taken");
                one.destroy(&"root@s".parse().expect("a name"), false).expect("nobody has it");
            });
            let two = pool.clone();
            let datasets = thread::spawn(move || {
                let name = "made".parse().expect("a name");
                two.create(&name, &Properties::default()).expect("it is made");
                let made = two.open(&"made".parse().expect("a name")).expect("it is there");
                put(&*made, 7);
                made.sync().expect("it is durable");
            });
            let syncs = syncer(&pool, &device, 1..3);
            end([snapshots, datasets, syncs]);
            pool.close().expect("it closes");
            assert_there(&device.cut(), [1, 2]);
        },
        SCHEDULES,
    );
}

#[test]
fn what_is_read_of_a_root_that_is_gone_makes_nothing_good() {
    shuttle::check_random(
        || {
            let device = new_device();
            let pool = open(&device);
            let live = root(&pool);
            put(&*live, 1);
            pool.commit().expect("it commits");
            let datasets: Vec<_> = pool.session.state.datasets.read().values().cloned().collect();
            let [dataset] = &datasets[..] else { panic!("there is one dataset") };
            let gone = dataset.root();
            let pointer = decode_pointer(gone.as_ref().expect("a root")).expect("a pointer");
            let Place::Stored { copies, .. } = &pointer.place else { panic!("a node is stored") };
            for object in [2, 3] {
                put(&*live, object);
                pool.commit().expect("it commits");
            }
            // As another commit does that puts something else there.
            let place = copies[0][0].start * GRAIN_BYTES;
            device.write(place, &[0x5a; GRAIN]).expect("memory does not fail");
            pool.session.state.media.forget_all();
            let unread = (Key::new(999, kind::SECTION, 0), gone);
            let mut committed = CommittedCounters::default();
            let read = dataset.read_counter(&pool.session.state.media, unread, &mut committed);
            read.expect("whoever asks looks again");
            put(&*live, 4);
            pool.commit().expect("it commits");
            assert_eq!(pool.status().healed_blocks, 0, "a bad copy of what is not in use");
            assert_there(&device, 1..=4);
        },
        1,
    );
}
