//! A pool whose intent log cannot be replayed: refused, and readable without the log.

use crate::support::{content, new_pool, noise, open, put, root, section};
use marram_device::{Device, MemoryDevice};
use marram_format::log::{FrameWriter, LogHead};
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_format::superblock::{RING_OFFSETS, RING_SLOTS, SUPERBLOCK_BYTES, Superblock};
use marram_pool::{Error, OpenOptions, Pool};
use std::sync::Arc;

/// The newest superblock of a pool.
fn superblock(device: &dyn Device) -> Superblock {
    let slots = RING_OFFSETS
        .iter()
        .flat_map(|ring| (0..RING_SLOTS).map(move |slot| ring + slot * SUPERBLOCK_BYTES as u64));
    let found = slots.filter_map(|offset| {
        let mut slot = vec![0; SUPERBLOCK_BYTES];
        device.read(offset, &mut slot).expect("memory can be read");
        Superblock::decode(&slot).ok()
    });
    found.max_by_key(|found| found.group).expect("it is a pool")
}

/// Where a grain of the log lies, in bytes.
fn place(copy: &[Extent], mut grain: u64) -> u64 {
    for extent in copy {
        match grain.checked_sub(u64::from(extent.grains)) {
            None => return (extent.start + grain) * GRAIN_BYTES,
            Some(left) => grain = left,
        }
    }
    panic!("the ring is shorter")
}

/// A frame where the replay begins, whole in both copies, that names a dataset that is not there.
fn plant_malformed_frame(device: &dyn Device) {
    let superblock = superblock(device);
    let head = LogHead::from_pointer(superblock.intent_log.as_ref().unwrap()).unwrap();
    let mut frame = FrameWriter::new();
    frame.begin_part(1 << 60, 999);
    frame.put(section(1, 0), b"", marram_format::log::LogBlock::None);
    let bytes = frame.finish(&superblock.pool_id, superblock.secret, head.start);
    for copy in &head.copies {
        device.write(place(copy, head.start % u64::from(head.grains)), &bytes).unwrap();
    }
}

/// A pool in memory with one commit, a sync after it, and a log that makes no sense.
fn broken_pool() -> Arc<dyn Device> {
    let (memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    put(&*live, section(1, 0), noise(1, 5_000)).unwrap();
    pool.commit().unwrap();
    put(&*live, section(2, 0), noise(2, 5_000)).unwrap();
    live.sync().unwrap();
    drop((live, pool));
    plant_malformed_frame(&*memory);
    memory
}

fn image(device: &dyn Device) -> Vec<u8> {
    let mut image = vec![0; usize::try_from(device.size().unwrap()).unwrap()];
    device.read(0, &mut image).unwrap();
    image
}

#[test]
fn a_log_that_makes_no_sense_is_refused_and_the_last_commit_can_be_read() {
    let device = broken_pool();
    let before = image(&*device);
    for read_only in [false, true] {
        let options = OpenOptions { read_only, ..OpenOptions::new(|| 0) };
        let error = Pool::open(vec![Arc::clone(&device)], options).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Log(_)), "{error:?}");
        assert!(error.to_string().contains("999"), "{error}");
    }
    let options = OpenOptions { read_only: true, skip_log: true, ..OpenOptions::new(|| 0) };
    let pool = Pool::open(vec![Arc::clone(&device)], options).unwrap();
    assert_eq!(content(&*root(&pool), section(1, 0)), Some(noise(1, 5_000)));
    assert_eq!(content(&*root(&pool), section(2, 0)), None, "it was only in the log");
    assert_eq!(pool.status().replayed_frames, 0);
    assert!(pool.commit().is_err() && put(&*root(&pool), section(3, 0), noise(3, 1)).is_err());
    root(&pool).sync().unwrap();
    pool.close().unwrap();
    assert!(before == image(&*device), "nothing was written");
}

#[test]
fn a_pool_is_not_changed_without_its_log() {
    let (memory, pool) = new_pool(64, &[]);
    put(&*root(&pool), section(1, 0), noise(1, 5_000)).unwrap();
    pool.close().unwrap();
    drop(pool);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image(&*memory)));
    let options = OpenOptions { skip_log: true, ..OpenOptions::new(|| 0) };
    let error = Pool::open(vec![Arc::clone(&device)], options).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("reading only"), "{error}");
    assert_eq!(content(&*root(&open(&device)), section(1, 0)), Some(noise(1, 5_000)));
}
