//! What every operation goes through, written once.
//!
//! An operation that changes something runs only while the file system does. It is begun anew as
//! long as it finds no space and more is freed. It is durable before it returns if an inode that it
//! changed is flagged so. Between, it takes the locks of its inodes (`volume::locks`), gathers its
//! batch in a [`change::Change`], and commits it.
//!
//! [`changing`], [`freeing`] and [`looking`] are that frame; the modules are the steps that
//! operations have in common.

pub(crate) mod access_times;
pub(crate) mod change;
pub(crate) mod content;
pub(crate) mod damage;
pub(crate) mod flags;
pub(crate) mod lookup;
pub(crate) mod privileges;
pub(crate) mod reclaim;
pub(crate) mod stored_attributes;
pub(crate) mod tail;

use crate::volume::Volume;
use marram_records::failure::from_sync;
use marram_vfs::Result;

/// Runs an operation that may need space.
pub(crate) fn changing<T>(volume: &Volume, operation: impl Fn() -> Result<T>) -> Result<T> {
    freeing(volume, || reclaim::with_reclaim(volume, operation))
}

/// Runs an operation that needs no space, or waits for it by itself. The locks are free again while
/// the devices work.
pub(crate) fn freeing<T>(volume: &Volume, operation: impl FnOnce() -> Result<T>) -> Result<T> {
    volume.check_running()?;
    flags::forget_syncs();
    let done = operation()?;
    if flags::asks_for_sync() {
        volume.view.sync().map_err(from_sync)?;
    }
    Ok(done)
}

/// Runs an operation that changes nothing but access times.
pub(crate) fn looking<T>(volume: &Volume, operation: impl FnOnce() -> Result<T>) -> Result<T> {
    volume.check_running()?;
    operation()
}
