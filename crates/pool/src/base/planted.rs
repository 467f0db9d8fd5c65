//! Bugs that tests put into the engine, to see that they would be found.
//!
//! Each is a mistake that an engine like this one could well have. What is planted holds for the
//! thread that planted it, so that tests beside each other do not disturb each other, or for the
//! whole process, where threads of a mount are to have it. Without the feature `planted-bugs`,
//! which only the crash explorers of crates `sim` and `suites` ask for, nothing can be planted and
//! the compiler removes every hook.

/// A mistake in what a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "planted-bugs"),
    allow(dead_code, unreachable_pub, reason = "hooks name them")
)]
pub enum PlantedBug {
    /// A commit writes its superblock before the blocks that it leads to.
    SuperblockBeforeBlocks,
    /// A commit does not flush its blocks before it writes its superblock.
    MissingFlush,
    /// A freed grain is used again by the commit that freed it.
    EarlyReuse,
    /// A frame of the intent log is used though its checksum is wrong.
    UncheckedTornSlot,
    /// A frame has the names of files, but not the inodes.
    LogWithoutDependency,
    /// A frame has renames, but not the content that was written before.
    RenameBeforeData,
    /// The record of an aborted transaction goes, and what only it held stays in use.
    DeadTransactionKept,
    /// A part of a transaction is in a commit before that of the rest; of one over several
    /// datasets, one of them.
    TransactionInTwo,
    /// A frame has the batch of a merge that waits, whose entry comes with the next commit.
    MergeInFrame,
    /// Of a transaction over two pools one decides before the other one has prepared.
    DecisionBeforePrepared,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use super::PlantedBug;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use xxhash_rust::xxh3::Xxh3;

    thread_local! {
        static PLANTED: Cell<Option<PlantedBug>> = const { Cell::new(None) };
    }

    /// What all threads have: the place in [`PlantedBug::ALL`] from 1, or 0 for nothing.
    static EVERYWHERE: AtomicUsize = AtomicUsize::new(0);

    impl PlantedBug {
        /// Those that a crash of plain operations shows.
        pub const ALL: [PlantedBug; 6] = [
            PlantedBug::SuperblockBeforeBlocks,
            PlantedBug::MissingFlush,
            PlantedBug::EarlyReuse,
            PlantedBug::UncheckedTornSlot,
            PlantedBug::LogWithoutDependency,
            PlantedBug::RenameBeforeData,
        ];
    }

    /// From now on the engine has this bug, or none, in this thread.
    pub fn plant(bug: Option<PlantedBug>) {
        PLANTED.set(bug);
    }

    /// From now on the engine has this bug, or none but what threads have planted for themselves,
    /// in all threads of the process.
    pub fn plant_everywhere(bug: Option<PlantedBug>) {
        let place = bug.and_then(|bug| PlantedBug::ALL.iter().position(|known| *known == bug));
        EVERYWHERE.store(place.map_or(0, |place| place + 1), Ordering::SeqCst);
    }

    pub(crate) fn is_planted(bug: PlantedBug) -> bool {
        let everywhere = EVERYWHERE.load(Ordering::Relaxed);
        PLANTED.get() == Some(bug)
            || everywhere.checked_sub(1).is_some_and(|place| PlantedBug::ALL[place] == bug)
    }

    /// Gives a frame of the intent log the checksum of whatever it holds.
    pub(crate) fn reseal(frame: &mut [u8], secret: u64) {
        const CHECKSUM: std::ops::Range<usize> = 40..56;
        if !is_planted(PlantedBug::UncheckedTornSlot) || frame.len() < CHECKSUM.end {
            return;
        }
        frame[CHECKSUM].fill(0);
        let mut hash = Xxh3::with_seed(secret);
        hash.update(frame);
        frame[CHECKSUM].copy_from_slice(&hash.digest128().to_le_bytes());
    }
}

#[cfg(not(feature = "planted-bugs"))]
mod switch {
    use super::PlantedBug;

    pub(crate) const fn is_planted(_bug: PlantedBug) -> bool {
        false
    }

    pub(crate) const fn reseal(_frame: &mut [u8], _secret: u64) {}
}

pub(crate) use switch::{is_planted, reseal};
#[cfg(feature = "planted-bugs")]
pub use switch::{plant, plant_everywhere};

/// Whether a frame of the intent log leaves out items of this kind.
pub(crate) fn is_left_out(kind: u8) -> bool {
    use marram_format::key::kind::{INODE, SECTION};
    (kind == INODE && is_planted(PlantedBug::LogWithoutDependency))
        || (kind == SECTION && is_planted(PlantedBug::RenameBeforeData))
}
