//! Space of the store: how much there is, and giving unused space back to devices.

use crate::frame::reclaim;
use crate::volume::Volume;
use marram_records::failure::from_store;
use marram_vfs::{Error, Result, SpaceReport};

/// Space that a new file is taken to need where the number of files that can still be made is
/// reported, in bytes: its inode, its name and a block. Empty ones take less.
const NEW_FILE_BYTES: u64 = 4096;

/// The space of the store, and the inodes of the file system.
pub(crate) fn space(volume: &Volume) -> SpaceReport {
    let space = volume.view.space();
    SpaceReport {
        total_bytes: space.total_bytes,
        free_bytes: space.free_bytes,
        inodes_used: volume.counters.inodes(),
        inodes_free: space.free_bytes / NEW_FILE_BYTES,
    }
}

/// Gives unused space of a range of the store back to its devices.
pub(crate) fn trim(volume: &Volume, from: u64, to: u64, min_bytes: u64) -> Result<u64> {
    volume.check_writable()?;
    let trimming = volume.view.capabilities().trimming.ok_or(Error::NotSupported)?;
    let _committed_by_trim = reclaim::reclaim_for_sync(volume);
    trimming.trim(from, to, min_bytes).map_err(from_store)
}
