//! What every operation goes through, written once.
//!
//! An operation that changes something runs only while the file system does. It is begun anew as
//! long as it finds no space and more is freed. It is durable before it returns if an inode that it
//! changed is flagged so. Between, it takes the locks of its inodes (`volume::locks`), gathers its
//! batch in a [`change::Change`], and commits it.
//!
//! Beside other clients it is executed anew where it was overtaken ([`together`]).
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
pub(crate) mod together;

use crate::volume::Volume;
use marram_records::failure::from_sync;
use marram_vfs::{Attributes, Result};

/// Runs an operation that may need space.
pub(crate) fn changing<T>(volume: &Volume, operation: impl Fn() -> Result<T>) -> Result<T> {
    freeing(volume, || reclaim::with_reclaim(volume, &operation))
}

/// Runs an operation that needs no space, or waits for it by itself. The locks are free again while
/// the devices work.
pub(crate) fn freeing<T>(volume: &Volume, operation: impl Fn() -> Result<T>) -> Result<T> {
    volume.check_running()?;
    flags::forget_syncs();
    let done = together::changing(volume, operation)?;
    if flags::asks_for_sync() {
        volume.view.sync().map_err(from_sync)?;
    }
    Ok(done)
}

/// Runs an operation that changes nothing but access times.
pub(crate) fn looking<T>(volume: &Volume, operation: impl Fn() -> Result<T>) -> Result<T> {
    volume.check_running()?;
    together::looking(volume, operation, |_| {})
}

/// The same for one that pins what it finds.
pub(crate) fn finding(
    volume: &Volume,
    operation: impl Fn() -> Result<Attributes>,
) -> Result<Attributes> {
    volume.check_running()?;
    together::looking(volume, operation, |found| {
        let unpinned = found.filter(|found| volume.pins.remove(found.ino.0, 1));
        unpinned.into_iter().for_each(|found| volume.orphans.push(found.ino.0));
    })
}

/// The same for one that appends what it reads.
pub(crate) fn reading(
    volume: &Volume,
    out: &mut Vec<u8>,
    operation: impl Fn(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    volume.check_running()?;
    let before = out.len();
    let read = || {
        out.truncate(before);
        operation(out)
    };
    together::looking(volume, read, |_| {})
}

/// The same for one that hands out what it finds piece by piece, each of one moment, or whose
/// answer is of no moment.
pub(crate) fn visiting<T>(volume: &Volume, operation: impl FnOnce() -> Result<T>) -> Result<T> {
    volume.check_running()?;
    together::catch_up(volume)?;
    operation()
}
