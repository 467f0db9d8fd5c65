//! The intent log: what was synced is durable before the next group commit.
//!
//! A sync writes everything that has changed in the pool since the last frame or commit, as it is
//! at one moment, into one frame. So what a crash leaves is one moment, with the log as without it,
//! and no dependency can be missing. Callers that wait together share a frame and a flush. The
//! design and what else was thought of: `docs/decisions/0008-intent-log.md`; the bytes:
//! `docs/format.md`.
//!
//! - [`collect`] makes a frame of what no frame has yet ([`crate::memtable::unlogged`]).
//! - [`ring`] knows where frames lie; [`replay`] puts them back into the layers.

mod collect;
mod replay;
mod ring;

use crate::base::order::{self, Mutex, MutexGuard};
use crate::io::Media;
use crate::memtable::dataset::Dataset;
use marram_format::group::Group;
use marram_format::log::{FRAME_BYTES_MAX, FrameWriter, LogHead};
use marram_format::operation::OperationRecord;
use marram_format::pointer::{Extent, Pointer};
use marram_format::superblock::Superblock;
use marram_store::{Error, Result};
use ring::{GRAIN_LEN, Ring, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use replay::Replayed;

/// Longest frame, in bytes: what is more is better written once, by a group commit. A short ring
/// has shorter ones, see [`IntentLog::frame_bytes_max`].
const FRAME_BYTES: usize = 4 << 20;
const _: () = assert!(FRAME_BYTES < FRAME_BYTES_MAX, "readers accept what is written");
/// Content that was noted may have been overwritten since; above this many times the longest
/// frame nobody looks whether it was.
const OVERWRITTEN_PART: u64 = 4;
/// Above this many notes of changed keys nobody sorts them to see what a frame would hold: no
/// batch is applied meanwhile, and so many hardly fit.
const NOTES_MAX: usize = 1 << 16;
/// The ring is this part of a pool.
const POOL_PART: u64 = 64;
/// Shortest ring, in grains: 256 KiB.
const RING_GRAINS_MIN: u64 = 64;
/// Longest ring, in grains: 32 MiB. A replay reads no more than that.
const RING_GRAINS_MAX: u64 = 8192;
/// After a replay or an opening, freezes are counted from this much later on, so that whatever a
/// torn frame of an earlier run names has been included since.
const FREEZES_SKIPPED: u64 = 1 << 32;

/// The log of an open pool.
#[derive(Debug)]
pub(crate) struct IntentLog {
    ring: Ring,
    stamp: Stamp,
    /// Held while a frame is written.
    writer: Mutex<()>,
    places: Mutex<Places>,
    /// How many of the pool's batches are durable.
    durable_batches: AtomicU64,
    frames: AtomicU64,
}

/// Positions, in grains since the pool was made.
#[derive(Debug)]
struct Places {
    /// Where the next frame goes. Moves while no batch is under way, so that a freeze knows which
    /// frames come after it.
    next: u64,
    /// Where the last durable superblock wants a replay to start: frames before it can go.
    tail: u64,
}

/// A merge that waits for a commit, as a frame has it.
pub(crate) struct LoggedMerge {
    /// The dataset that it goes into.
    pub(crate) dataset: u64,
    /// Which of the frozen layers of that is its batch, and the number of its freeze.
    pub(crate) layer: usize,
    pub(crate) freeze: u64,
    /// Its entry, with the user and the command.
    pub(crate) entry: OperationRecord,
}

/// What a sync has to write.
pub(crate) enum Collected {
    /// Everything is in frames or committed.
    Nothing,
    /// A group commit is the better way.
    TooMuch,
    Frame {
        position: u64,
        frame: FrameWriter,
        is_half_full: bool,
    },
}

impl IntentLog {
    fn new(ring: Ring, stamp: Stamp, next: u64, tail: u64) -> IntentLog {
        IntentLog {
            ring,
            stamp,
            writer: Mutex::new(order::LOG_WRITER, ()),
            places: Mutex::new(order::LOG_PLACES, Places { next, tail }),
            durable_batches: AtomicU64::new(0),
            frames: AtomicU64::new(0),
        }
    }

    /// Opens the log that a superblock leads to, and puts what it has beyond the superblock into
    /// the layers of the datasets.
    pub(crate) fn open(
        media: &Media,
        superblock: &Superblock,
        pointer: &Pointer,
        datasets: &BTreeMap<u64, Arc<Dataset>>,
    ) -> Result<(IntentLog, Replayed)> {
        let head = LogHead::from_pointer(pointer).map_err(|error| {
            Error::Damaged(marram_store::Damage {
                what: "the intent log",
                place: "its head".to_owned(),
                reason: error.to_string(),
            })
        })?;
        let ring = Ring::of(&head);
        let stamp = stamp_of(superblock);
        let replayed = replay::replay(media, &ring, stamp, &head, datasets)?;
        // Whatever frames an earlier run has left behind the end, torn or whole, must not become
        // valid when this one writes before them: positions go on a whole ring later. There is
        // no room then until a commit is durable, so what was replayed stays in the log as long as
        // the superblock leads to it; a crash before that commit is one more replay of the same.
        // The first sync commits, and from then on a replay starts behind.
        let next = replayed.end + u64::from(ring.grains);
        let log = IntentLog::new(ring, stamp, next, head.start);
        Ok((log, replayed))
    }

    /// Longest frame of this ring, in bytes: a quarter of it at most.
    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES.min(self.ring.grains as usize * GRAIN_LEN / 4)
    }

    /// Where a replay has to start if the superblock includes all that is frozen now. Only the
    /// committer calls it, while no batch is under way.
    pub(crate) fn next_position(&self) -> u64 {
        self.places.lock().next
    }

    /// What the superblock says of the log.
    pub(crate) fn head(&self, start: u64, included: u64, group: Group) -> Pointer {
        let copies = self.ring.copies.clone();
        LogHead { grains: self.ring.grains, start, included, copies }.to_pointer(group)
    }

    /// A superblock is durable that includes the first `batches` and lets a replay start at
    /// `start`.
    pub(crate) fn committed(&self, start: u64, batches: u64) {
        self.places.lock().tail = start;
        self.durable_batches.fetch_max(batches, Ordering::AcqRel);
    }

    /// Returns when no frame is being written.
    pub(crate) fn wait_for_writer(&self) {
        drop(self.writer.lock());
    }

    /// Frames written since the pool was opened.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Takes room for a frame if there is any; returns its position, and whether half of the ring
    /// is in use now.
    fn take_room(&self, len: usize) -> Option<(u64, bool)> {
        let grains = len.div_ceil(GRAIN_LEN) as u64;
        let mut places = self.places.lock();
        let used = places.next + grains - places.tail;
        if used > u64::from(self.ring.grains) {
            return None;
        }
        let position = places.next;
        places.next += grains;
        Some((position, used > u64::from(self.ring.grains) / 2))
    }

    /// Grains of the ring of a pool with so many.
    pub(crate) fn grains_for(total_grains: u64) -> u32 {
        let grains = (total_grains / POOL_PART).clamp(RING_GRAINS_MIN, RING_GRAINS_MAX);
        u32::try_from(grains).expect("the longest ring is short")
    }

    /// Makes the log of a new pool. The ring is zeroed, so that its blocks exist in a sparse file
    /// and no frame waits for the host to find them.
    pub(crate) fn make(
        media: &Media,
        superblock: &Superblock,
        grains: u32,
        copies: [Vec<Extent>; 2],
    ) -> Result<IntentLog> {
        let zeros = vec![0; grains as usize * GRAIN_LEN];
        let ring = Ring { grains, copies };
        ring.write(media, 0, &zeros)?;
        Ok(IntentLog::new(ring, stamp_of(superblock), 0, 0))
    }

    /// Whether so many batches are durable.
    pub(crate) fn is_durable(&self, batches: u64) -> bool {
        self.durable_batches.load(Ordering::Acquire) >= batches
    }

    /// So many batches are durable.
    pub(crate) fn set_durable(&self, batches: u64) {
        self.durable_batches.fetch_max(batches, Ordering::AcqRel);
    }

    /// The right to write frames, one at a time.
    pub(crate) fn write_alone(&self) -> MutexGuard<'_, ()> {
        self.writer.lock()
    }

    /// Writes a frame, and makes it durable.
    pub(crate) fn write(&self, media: &Media, position: u64, frame: FrameWriter) -> Result<()> {
        let bytes = frame.finish(&self.stamp.pool_id, self.stamp.secret, position);
        self.ring.write(media, position, &bytes)?;
        media.flush()?;
        self.frames.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a frame of all that has changed in datasets, and of the merges that wait, with no
    /// batch under way.
    pub(crate) fn collect(
        &self,
        datasets: &[Arc<Dataset>],
        merges: &[LoggedMerge],
        open_freeze: u64,
    ) -> Collected {
        let len_max = self.frame_bytes_max();
        let (bytes, notes) = datasets
            .iter()
            .map(|dataset| collect::unlogged_size(dataset))
            .fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        if bytes > OVERWRITTEN_PART * len_max as u64 || notes > NOTES_MAX {
            return Collected::TooMuch;
        }
        let mut frame = FrameWriter::new();
        for dataset in datasets {
            if collect::add_unlogged(dataset, &mut frame, merges, open_freeze, len_max).is_err() {
                return Collected::TooMuch;
            }
        }
        if frame.is_empty() {
            return Collected::Nothing;
        }
        let Some((position, is_half_full)) = self.take_room(frame.len_bytes()) else {
            return Collected::TooMuch;
        };
        datasets.iter().for_each(|dataset| collect::forget_unlogged(dataset));
        Collected::Frame { position, frame, is_half_full }
    }
}

fn stamp_of(superblock: &Superblock) -> Stamp {
    Stamp { pool_id: superblock.pool_id, secret: superblock.secret }
}

/// The number that freezes are counted from in a pool that has just been opened.
pub(crate) fn first_freeze(replayed: &Replayed) -> u64 {
    replayed.freeze_max + FREEZES_SKIPPED
}
