//! Access times: moved by reading, and written when they have waited long enough (`lazytime`).
//!
//! A failure to move or to write a time is no failure of the operation that asked for it: the time
//! goes on waiting, or is lost.

use crate::frame::change::Change;
use crate::frame::flags::flags_of;
use crate::frame::together;
use crate::options::AccessTimes;
use crate::volume::Volume;
use crate::volume::locks::SHARDS;
use marram_format::record::{Inode, InodeKind, Time};
use marram_records::inode::time;
use marram_vfs::{InodeFlags, Result};

/// An access time that is older is moved on also by mounts that seldom do it, in seconds.
const DAY_SECONDS: i64 = 86_400;

/// The inode was read, when its record was as given: moves the access time if that is to be
/// done. A failure to do so is no failure of the read.
pub(crate) fn accessed(volume: &Volume, ino: u64, inode: &Inode) {
    if !wants_access_time(volume, inode) || !volume.view.writable() {
        return;
    }
    if volume.options.lazy_times {
        let _held = volume.locks.read(ino);
        if volume.lazy_times.put(ino, time(volume.options.clock.now())) {
            return;
        }
    }
    let _held = volume.locks.write(&[ino]);
    let _not_the_readers_concern = move_access_time(volume, ino);
}

fn wants_access_time(volume: &Volume, inode: &Inode) -> bool {
    // Beside others, each time would be a publication.
    if together::is_shared(volume) {
        return false;
    }
    let directory = inode.kind == InodeKind::Directory;
    let left_out = directory && !volume.options.directory_access_times;
    if left_out || flags_of(inode).any(InodeFlags::NO_ACCESS_TIME) {
        return false;
    }
    match volume.options.access_times {
        AccessTimes::Never => false,
        AccessTimes::Strict => true,
        AccessTimes::Relative => is_outdated(inode, time(volume.options.clock.now())),
    }
}

fn move_access_time(volume: &Volume, ino: u64) -> Result<()> {
    let mut change = Change::begin(volume)?;
    let now = change.now;
    change.inode_mut(ino)?.accessed = now;
    change.commit()
}

/// Writes the access time that waits for an inode. That it cannot be written (a full pool) is
/// no reason to fail whatever asked for it: it goes on waiting.
pub(crate) fn write_lazy_time(volume: &Volume, ino: u64) {
    if volume.lazy_times.has(ino) {
        let _held = volume.locks.write(&[ino]);
        let _goes_on_waiting = write_time(volume, ino);
    }
}

/// Writes all access times that wait.
pub(crate) fn write_lazy_times(volume: &Volume) {
    if volume.lazy_times.is_empty() {
        return;
    }
    volume.lazy_times.begin_writing();
    for ino in (0..SHARDS).flat_map(|shard| volume.lazy_times.inodes(shard)) {
        write_lazy_time(volume, ino);
    }
    volume.lazy_times.go_on_waiting(volume.options.clock.now().seconds);
}

/// Writes all of them if the first has waited for long enough.
pub(crate) fn write_old_lazy_times(volume: &Volume) {
    if volume.lazy_times.is_due(volume.options.clock.now().seconds) {
        write_lazy_times(volume);
    }
}

/// The record that a change reads has the time already. The lock is held for writing.
fn write_time(volume: &Volume, ino: u64) -> Result<()> {
    if volume.find_inode(ino)?.is_none() {
        volume.lazy_times.forget(ino);
        return Ok(());
    }
    let mut change = Change::begin(volume)?;
    change.inode_mut(ino)?;
    change.commit()
}

fn is_outdated(inode: &Inode, now: Time) -> bool {
    let accessed = inode.accessed;
    accessed <= inode.modified
        || accessed <= inode.changed
        || now.seconds.saturating_sub(accessed.seconds) >= DAY_SECONDS
}
