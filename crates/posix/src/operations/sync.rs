//! Making what was done durable.

use crate::frame::{access_times, reclaim};
use crate::volume::Volume;
use marram_records::failure::from_sync;
use marram_vfs::{Ino, Result, SyncScope};

/// Makes all of one inode durable.
pub(crate) fn sync(volume: &Volume, ino: u64) -> Result<()> {
    volume.load_inode(ino)?;
    access_times::write_lazy_time(volume, ino);
    volume.view.sync().map_err(from_sync)
}

/// Makes several inodes durable by one sync of the store.
pub(crate) fn sync_many(volume: &Volume, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
    let find = |(ino, _): &(Ino, SyncScope)| {
        volume.check_running()?;
        volume.load_inode(ino.0).map(|_| ())
    };
    let found: Vec<Result<()>> = inodes.iter().map(find).collect();
    if found.iter().all(Result::is_err) {
        return found;
    }
    for (ino, _) in inodes {
        access_times::write_lazy_time(volume, ino.0);
    }
    let synced = volume.check_running().and_then(|()| volume.view.sync().map_err(from_sync));
    found.into_iter().map(|found| found.and_then(|()| synced.clone())).collect()
}

/// Makes everything durable, and lets the space of what was removed be used.
pub(crate) fn sync_all(volume: &Volume) -> Result<()> {
    access_times::write_lazy_times(volume);
    match reclaim::reclaim_for_sync(volume) {
        // The free space that is shown next includes that of what was removed before.
        true => volume.view.commit().map_err(from_sync),
        false => volume.view.sync().map_err(from_sync),
    }
}
