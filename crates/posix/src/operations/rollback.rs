//! Going back to a snapshot while the file system is in use.
//!
//! All inodes are locked while the store goes back, so that no operation has read one state and
//! changes the other. What is kept in memory about the state is read anew then. Inode numbers go on
//! from where they were: a number of an inode that is gone must not lead to another one.

use crate::frame::access_times;
use crate::operations::limits;
use crate::volume::Volume;
use crate::volume::locks::Locks;
use marram_vfs::{Error, Ino, Result};

/// Whether an inode was handed out and has not been forgotten. The root is always known.
pub(crate) fn is_known(volume: &Volume, ino: Ino) -> bool {
    ino.0 == volume.root() || volume.pins.pinned(ino.0)
}

/// All inodes that were handed out and have not been forgotten.
pub(crate) fn known(volume: &Volume) -> Vec<Ino> {
    volume.pins.all().into_iter().map(Ino).collect()
}

/// How many those are.
pub(crate) fn known_count(volume: &Volume) -> usize {
    volume.pins.count()
}

/// Runs `go_back`, which lets the dataset that this file system has open go on from a snapshot
/// of it ([`marram_store::Lineage::rollback`]), while all operations wait.
///
/// # Errors
/// Those of `go_back`, which must not have changed anything then; a file system that is
/// read-only or shut down; a failed read afterwards: then it must be opened again.
pub(crate) fn roll_back<E: From<Error>>(
    volume: &Volume,
    go_back: impl FnOnce() -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    volume.check_running()?;
    volume.check_writable()?;
    access_times::write_lazy_times(volume);
    let _all_waits = volume.locks.all();
    go_back()?;
    Ok(read_anew(volume)?)
}

/// Runs `turn`, after which the states of file systems are others than they were, while all
/// operations on all of them wait. Waiting access times are lost. If one of them cannot be read
/// anew, `spoil` is run while all still wait: it has to keep all of them from being used.
///
/// # Errors
/// Those of `turn`, which must not have changed anything then; a failed read afterwards: then all
/// must be opened again.
pub(crate) fn turn_together<E: From<Error>>(
    volumes: &[&Volume],
    turn: impl FnOnce() -> std::result::Result<(), E>,
    spoil: impl FnOnce(),
) -> std::result::Result<(), E> {
    let locks: Vec<&Locks> = volumes.iter().map(|volume| &volume.locks).collect();
    let _all_wait = Locks::all_of(&locks);
    turn()?;
    // All are tried, whichever fails: the first error counts.
    let read: Vec<Result<()>> = volumes.iter().map(|volume| read_anew(volume)).collect();
    let read: Result<()> = read.into_iter().collect();
    if read.is_err() {
        spoil();
    }
    Ok(read?)
}

/// What is kept in memory about the state is read anew. The caller has all locks.
fn read_anew(volume: &Volume) -> Result<()> {
    volume.lazy_times.clear();
    volume.orphans.search_again();
    volume.reservations.forget_all(&*volume.view);
    volume.counters.read_again(&*volume.view)?;
    limits::reload_limits(volume)
}
