//! Random histories: the home does what the model does, and `e2fsck` finds nothing in its images.

use crate::images::{SMALL, Shape, empty, make, open};
use crate::judge::Judge;
use crate::numbered::Numbered;
use marram_device::{Device, MemoryDevice};
use marram_ext2::Ext2;
use marram_model::Model;
use marram_sim::{Generator, HistoryClock, New, Operation, Outcome, Pair, Random};
use marram_vfs::{
    Clock, FileSystem, RenameMode, SetAttributes, SetTime, Timestamp, XATTR_VALUE_BYTES_MAX,
};
use std::sync::Arc;

/// Steps in a history.
const STEPS: u64 = 400;
/// The times that an inode of 256 bytes can say.
const SECONDS: std::ops::RangeInclusive<i64> = -(1 << 31)..=0x3_7fff_ffff;
/// Offsets above this one are beyond the largest file of an image.
const OFFSET_MAX: u64 = 1 << 34;

/// What became of the steps of a history.
#[derive(Debug, Default)]
struct Sum {
    done: u64,
    refused: u64,
    without_space: u64,
    remounts: u64,
}

fn fits(set: &SetAttributes) -> bool {
    let is_kept = |time: &Option<SetTime>| match time {
        Some(SetTime::At(Timestamp { seconds, .. })) => SECONDS.contains(seconds),
        _ => true,
    };
    is_kept(&set.accessed)
        && is_kept(&set.modified)
        && set.changed.is_none_or(|time| SECONDS.contains(&time.seconds))
        && set.size.is_none_or(|size| size <= OFFSET_MAX)
}

/// Whether the home has what an operation needs. `docs/ext2.md` names what it lacks.
pub(crate) fn is_served(operation: &Operation, shape: Shape) -> bool {
    let block_bytes = shape.block_bytes;
    match operation {
        Operation::Seek { .. } => false,
        Operation::SetAttributes { set, .. } => fits(set),
        Operation::Write { offset, .. } | Operation::Read { offset, .. } => *offset <= OFFSET_MAX,
        // An image with a journal is mounted with it.
        Operation::Rename { mode, .. } => *mode != RenameMode::Exchange || shape.kind == "ext3",
        Operation::Create { new: New::Symlink { target_len }, .. } => {
            *target_len < block_bytes as usize
        }
        // Larger ones fit into no block, or into none of 1 KiB with others.
        Operation::SetXattr { len, .. } => *len <= 400 || *len > XATTR_VALUE_BYTES_MAX,
        _ => true,
    }
}

fn remount(files: Arc<Ext2>, device: &Arc<MemoryDevice>, clock: &Arc<dyn Clock>) -> Arc<Ext2> {
    files.close().unwrap();
    drop(files);
    open(Arc::clone(device) as Arc<dyn Device>, Arc::clone(clock))
}

/// Runs the history of a seed on an image.
fn history(seed: u64, shape: Shape, judge: &Judge, sum: &mut Sum) {
    let steps = Arc::new(HistoryClock::default());
    let clock: Arc<dyn Clock> = Arc::clone(&steps) as Arc<dyn Clock>;
    let device = Arc::new(MemoryDevice::from_bytes(make(shape)));
    let mut files = open(Arc::clone(&device) as Arc<dyn Device>, Arc::clone(&clock));
    empty(&files);
    let shown = |files: &Arc<Ext2>| Arc::new(Numbered(Arc::clone(files))) as Arc<dyn FileSystem>;
    let mut pair = Pair::new(shown(&files), Model::new(Arc::clone(&clock)));
    let (mut generator, mut random) = (Generator::new(seed), Random::new(seed ^ 0x5eed));
    for step in 1..=STEPS {
        steps.set(step);
        let operation = generator.draw();
        if !is_served(&operation, shape) {
            continue;
        }
        let context = || format!("seed {seed}, {shape:?}, step {step}: {operation:?}");
        match pair.apply(&operation).map_err(|said| format!("{}: {said}", context())).unwrap() {
            Outcome::Done => sum.done += 1,
            Outcome::NoSpace => sum.without_space += 1,
            Outcome::Refused | Outcome::Lacking => sum.refused += 1,
        }
        if random.once_in(16) {
            files.step().unwrap();
        }
        if random.once_in(40) {
            sum.remounts += 1;
            pair.release();
            files = remount(files, &device, &clock);
            let found = judge.clean(&device.snapshot());
            found.map_err(|said| format!("{}: {said}", context())).unwrap();
            pair.forget_all();
            pair.resume(shown(&files));
        }
        if random.once_in(25) {
            pair.compare().map_err(|said| format!("{}: {said}", context())).unwrap();
        }
    }
    pair.compare().unwrap();
}

#[test]
fn the_home_does_what_the_model_does() {
    let (judge, mut sum) = (Judge::new(), Sum::default());
    for (seed, block_bytes) in (0..6).zip([1024, 2048, 4096].into_iter().cycle()) {
        let shape = Shape { kind: "ext2", block_bytes, inode_bytes: 256, kib: 16 << 10 };
        history(seed, shape, &judge, &mut sum);
    }
    for seed in 20..21 {
        let shape = Shape { kind: "ext3", block_bytes: 4096, inode_bytes: 256, kib: 16 << 10 };
        history(seed, shape, &judge, &mut sum);
    }
    assert!(sum.without_space * 20 < sum.done, "{sum:?}");
    assert!(sum.done > 600 && sum.refused > 300 && sum.remounts > 30, "{sum:?}");
}

#[test]
fn a_full_image_refuses_and_stays_whole() {
    let (judge, mut sum) = (Judge::new(), Sum::default());
    for seed in 100..106 {
        history(seed, Shape { kib: 320, ..SMALL }, &judge, &mut sum);
    }
    assert!(sum.without_space > 10 && sum.done > 300, "{sum:?}");
}
