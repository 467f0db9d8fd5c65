//! What was synced is there after a crash: the state at one moment, whatever happens to the log.

use crate::support::{content, new_pool, noise, open, put, remove, root, section, view};
use bytes::Bytes;
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_store::{Batch, Block, Item, Store, View};
use std::sync::Arc;
use std::thread;

/// A pool whose next sync goes into the log: the first after opening is a commit.
fn logging_pool() -> (Arc<MemoryDevice>, Arc<Pool>) {
    let (memory, pool) = new_pool(64, &[]);
    let live = root(&pool);
    put(&*live, section(1_000, 0), noise(0, 100)).expect("there is space");
    live.sync().expect("memory does not fail");
    (memory, pool)
}

/// What a power cut leaves if everything that was written has arrived.
fn crashed(memory: &Arc<MemoryDevice>) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::from_bytes(image_of(&**memory)))
}

fn image_of(device: &dyn Device) -> Vec<u8> {
    let size = device.size().expect("memory has a size");
    let mut image = vec![0; usize::try_from(size).expect("it is in memory")];
    device.read(0, &mut image).expect("memory can be read");
    image
}

fn append(view: &dyn View, object: u64, at: usize, data: &[u8]) {
    let mut batch = Batch::new();
    let value = Bytes::from((at + data.len()).to_string());
    batch.patch(section(object, 0), value, at, data);
    view.apply(batch).expect("the last write is fresh");
}

#[test]
fn what_was_synced_survives_and_nothing_later_does() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    put(&*live, section(1, 0), noise(1, 5_000)).unwrap();
    put(&*live, section(2, 0), noise(2, 5_000)).unwrap();
    live.sync().unwrap();
    let group = pool.status().group;
    append(&*live, 1, 5_000, &noise(3, 100));
    remove(&*live, section(2, 0)).unwrap();
    live.sync().unwrap();
    assert_eq!(pool.status().group, group, "no group commit was needed");
    append(&*live, 1, 5_100, b"not synced");

    let crashed = crashed(&memory);
    for round in 0..3 {
        let again = open(&crashed);
        let live = root(&again);
        let expected = [noise(1, 5_000), noise(3, 100)].concat();
        assert_eq!(content(&*live, section(1, 0)), Some(expected), "round {round}");
        assert_eq!(content(&*live, section(2, 0)), None);
        assert_eq!(again.status().replayed_frames, 2, "nothing was committed since");
    }
}

/// The second frame begins with the patch, when the block still is the other item's too.
#[test]
fn a_patch_of_what_was_shared_before_is_replayed() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    let block = Block::fresh(noise(1, 100_000));
    let mut batch = Batch::new();
    batch.put(section(1, 0), Item::with_block("100000", block.clone()));
    batch.put(section(2, 0), Item::with_block("100000", block));
    live.apply(batch).unwrap();
    live.sync().unwrap();
    remove(&*live, section(2, 0)).unwrap();
    append(&*live, 1, 100_000, b"patched");
    live.sync().unwrap();

    let again = open(&crashed(&memory));
    let expected = [noise(1, 100_000), b"patched".to_vec()].concat();
    assert_eq!(content(&*root(&again), section(1, 0)), Some(expected));
    assert_eq!(content(&*root(&again), section(2, 0)), None);
    assert_eq!(again.status().replayed_frames, 2);
    again.commit().unwrap();
}

#[test]
fn opening_after_a_crash_writes_nothing_and_the_first_sync_takes_the_replay_in() {
    let (memory, pool) = logging_pool();
    put(&*root(&pool), section(1, 0), noise(1, 9_000)).unwrap();
    root(&pool).sync().unwrap();
    let crashed = crashed(&memory);
    for first in [true, false] {
        let again = open(&crashed);
        let device = || again.status().devices[0].clone();
        assert_eq!(content(&*root(&again), section(1, 0)), Some(noise(1, 9_000)));
        root(&again).sync().unwrap();
        assert_eq!((device().written_bytes, device().flushes), (0, 1), "it is there already");
        assert_eq!(again.status().replayed_frames, u64::from(first));
        put(&*root(&again), section(2, 0), noise(2, 9_000)).unwrap();
        let group = again.status().group;
        root(&again).sync().unwrap();
        assert_eq!((again.status().group, again.status().log_frames), (group + 1, 0));
    }
}

#[test]
fn a_read_only_pool_shows_what_was_synced_and_writes_nothing() {
    let (memory, pool) = logging_pool();
    put(&*root(&pool), section(1, 0), noise(1, 9_000)).unwrap();
    root(&pool).sync().unwrap();
    let crashed = crashed(&memory);
    for _ in 0..2 {
        let options = OpenOptions { read_only: true, ..OpenOptions::new(|| 0) };
        let reader = Pool::open(vec![crashed.clone()], options).unwrap();
        assert_eq!(content(&*root(&reader), section(1, 0)), Some(noise(1, 9_000)));
        assert_eq!(reader.status().replayed_frames, 1);
        assert_eq!(reader.status().devices[0].written_bytes, 0);
    }
}

#[test]
fn commits_between_syncs_are_not_undone_by_a_replay() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    for round in 0..40_u64 {
        put(&*live, section(round % 3, 0), noise(round, 6_000)).unwrap();
        live.sync().unwrap();
        append(&*live, round % 3, 6_000, &noise(round, 50));
        if round % 4 == 3 {
            pool.commit().unwrap();
        } else {
            live.sync().unwrap();
        }
        let again = open(&crashed(&memory));
        for object in 0..3.min(round + 1) {
            let last = (0..=round).rev().find(|made| made % 3 == object).unwrap();
            let expected = [noise(last, 6_000), noise(last, 50)].concat();
            assert_eq!(content(&*root(&again), section(object, 0)), Some(expected), "{round}");
        }
    }
}

#[test]
fn a_block_that_items_share_is_shared_after_a_replay() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    let block = Block::fresh(noise(1, 100_000));
    let mut batch = Batch::new();
    batch.put(section(1, 0), Item::with_block("a", block.clone()));
    batch.put(section(2, 0), Item::with_block("b", block));
    live.apply(batch).unwrap();
    live.sync().unwrap();
    let again = open(&crashed(&memory));
    for object in [1, 2] {
        assert_eq!(content(&*root(&again), section(object, 0)), Some(noise(1, 100_000)));
    }
    let (one, two) = (root(&again).get(section(1, 0)), root(&again).get(section(2, 0)));
    let blocks = (one.unwrap().unwrap().block.unwrap(), two.unwrap().unwrap().block.unwrap());
    assert!(blocks.0.same(&blocks.1));
    remove(&*root(&again), section(1, 0)).unwrap();
    again.close().unwrap();
    let again = open(&crashed(&memory));
    assert_eq!(content(&*root(&again), section(2, 0)), Some(noise(1, 100_000)));
}

#[test]
fn a_log_that_is_full_gives_way_to_commits() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    let group = pool.status().group;
    for round in 0..700 {
        put(&*live, section(round % 7, 0), noise(round, 8_000)).unwrap();
        live.sync().unwrap();
    }
    let status = pool.status();
    assert!(status.log_frames > 600, "{} frames", status.log_frames);
    assert!(status.group > group + 3, "the ring of 1 MiB went round");
    let again = open(&crashed(&memory));
    for object in 0..7 {
        let last = (0..700).rev().find(|round| round % 7 == object).unwrap();
        assert_eq!(content(&*root(&again), section(object, 0)), Some(noise(last, 8_000)));
    }
}

#[test]
fn what_does_not_fit_a_frame_is_committed() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    let (group, frames) = (pool.status().group, pool.status().log_frames);
    for object in 0..10 {
        put(&*live, section(object, 0), noise(object, 100_000)).unwrap();
    }
    live.sync().unwrap();
    let status = pool.status();
    assert_eq!((status.group, status.log_frames), (group + 1, frames));
    let again = open(&crashed(&memory));
    assert_eq!(content(&*root(&again), section(9, 0)), Some(noise(9, 100_000)));
}

#[test]
fn callers_who_wait_together_share_frames_and_flushes() {
    let (memory, pool) = logging_pool();
    let flushes = |pool: &Pool| pool.status().devices[0].flushes;
    let before = flushes(&pool);
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let live = root(&pool);
            scope.spawn(move || {
                for round in 0..50 {
                    put(&*live, section(thread, round), noise(thread * 100 + round, 500)).unwrap();
                    live.sync().unwrap();
                }
            });
        }
    });
    assert!(flushes(&pool) - before <= 400 + 2 * (pool.status().group), "never more than one each");
    let again = open(&crashed(&memory));
    for thread in 0..8 {
        for round in 0..50 {
            let expected = noise(thread * 100 + round, 500);
            assert_eq!(content(&*root(&again), section(thread, round)), Some(expected));
        }
    }
}

#[test]
fn snapshots_and_clones_keep_their_moment_beside_the_log() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    put(&*live, section(1, 0), noise(1, 3_000)).unwrap();
    live.sync().unwrap();
    pool.snapshot(&"root".parse().unwrap(), "kept").unwrap();
    pool.clone_snapshot(&"root@kept".parse().unwrap(), &"copy".parse().unwrap()).unwrap();
    put(&*live, section(1, 0), noise(2, 3_000)).unwrap();
    put(&*view(&pool, "copy"), section(1, 0), noise(3, 3_000)).unwrap();
    live.sync().unwrap();
    let again = open(&crashed(&memory));
    for (source, seed) in [("root", 2), ("root@kept", 1), ("copy", 3)] {
        assert_eq!(content(&*view(&again, source), section(1, 0)), Some(noise(seed, 3_000)));
    }
}

/// Where the frames of the log lie: grains that start with the magic of frames.
fn frame_grains(device: &dyn Device) -> Vec<u64> {
    let image = image_of(device);
    let grains = (0_u64..).zip(image.chunks_exact(4096));
    grains.filter(|(_, grain)| grain.starts_with(b"MarramIL")).map(|(index, _)| index).collect()
}

#[test]
fn one_bad_copy_of_any_frame_loses_nothing() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    for round in 0..3 {
        put(&*live, section(round, 0), noise(round, 3_000)).unwrap();
        live.sync().unwrap();
    }
    let frames = frame_grains(&*memory);
    assert_eq!(frames.len(), 6, "three frames in two copies");
    for grain in frames {
        let crashed = crashed(&memory);
        crashed.write(grain * 4096 + 700, &[0xff; 9]).unwrap();
        let again = open(&crashed);
        for object in 0..3 {
            assert_eq!(content(&*root(&again), section(object, 0)), Some(noise(object, 3_000)));
        }
    }
}

#[test]
fn a_frame_that_is_bad_in_both_copies_is_the_end_or_damage() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    for round in 0..3 {
        put(&*live, section(round, 0), noise(round, 3_000)).unwrap();
        live.sync().unwrap();
    }
    let frames = frame_grains(&*memory);
    let (first, second) = frames.split_at(3);
    for (index, (one, two)) in first.iter().zip(second).enumerate() {
        let crashed = crashed(&memory);
        for grain in [one, two] {
            crashed.write(grain * 4096 + 300, &[0xff; 9]).unwrap();
        }
        let again = open(&crashed);
        let is_last = index == 2;
        assert_eq!(again.status().damage.is_empty(), is_last, "frame {index}");
        for object in 0..3_u64 {
            let expected = (object < index as u64).then(|| noise(object, 3_000));
            assert_eq!(content(&*root(&again), section(object, 0)), expected);
        }
    }
}

#[test]
fn an_old_frame_behind_a_damaged_one_never_comes_back() {
    let (memory, pool) = logging_pool();
    let live = root(&pool);
    for seed in [1, 2] {
        put(&*live, section(1, 0), noise(seed, 3_000)).unwrap();
        live.sync().unwrap();
    }
    let frames = frame_grains(&*memory);
    let damaged = crashed(&memory);
    for grain in [frames[0], frames[2]] {
        damaged.write(grain * 4096 + 300, &[0xff; 9]).unwrap();
    }
    let again = open(&damaged);
    put(&*root(&again), section(1, 0), noise(3, 3_000)).unwrap();
    root(&again).sync().unwrap();
    let later = open(&damaged);
    assert_eq!(content(&*root(&later), section(1, 0)), Some(noise(3, 3_000)));
}

#[test]
fn frames_that_are_made_while_a_commit_ends_bring_back_the_right_blocks() {
    const ROUNDS: u64 = 150;
    let (memory, pool) = logging_pool();
    let mut images = Vec::new();
    thread::scope(|scope| {
        let committer = scope.spawn(|| (0..ROUNDS).try_for_each(|_| pool.commit()));
        let live = root(&pool);
        for round in 0..ROUNDS {
            let shared = Block::fresh(noise(round, 1_500));
            let mut batch = Batch::new();
            batch.put(section(1, round), Item::with_block("a", shared.clone()));
            batch.put(section(2, round), Item::with_block("b", shared));
            batch.put(section(3, round), Item::with_block("c", Block::fresh(noise(!round, 1_500))));
            live.apply(batch).unwrap();
            live.sync().unwrap();
            if round % 10 == 9 {
                images.push((round, crashed(&memory)));
            }
        }
        committer.join().unwrap().unwrap();
    });
    for (last, image) in images {
        let again = open(&image);
        let live = root(&again);
        for round in 0..=last {
            for (object, seed) in [(1, round), (2, round), (3, !round)] {
                let found = content(&*live, section(object, round));
                assert_eq!(found, Some(noise(seed, 1_500)), "{object} of {round}, after {last}");
            }
        }
    }
}
