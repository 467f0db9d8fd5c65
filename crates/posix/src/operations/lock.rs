//! Locks of files, which the store of the view keeps. They change nothing of the dataset.

use crate::volume::Volume;
use marram_store::{Error as StoreError, Locking};
use marram_vfs::{Error, HeldLock, LockFamily, LockMode, LockRequest, Result};

/// Sets a lock or lets go of one; a lock of somebody else that is in the way.
pub(crate) fn set(volume: &Volume, ino: u64, lock: &LockRequest) -> Result<Option<HeldLock>> {
    told(locking(volume)?.set_lock(ino, &stored(lock)))
}

/// A lock of somebody else that would be in the way.
pub(crate) fn find(volume: &Volume, ino: u64, lock: &LockRequest) -> Result<Option<HeldLock>> {
    told(locking(volume)?.find_lock(ino, &stored(lock)))
}

fn locking(volume: &Volume) -> Result<&dyn Locking> {
    volume.view.capabilities().locks.ok_or(Error::NotSupported)
}

fn stored(lock: &LockRequest) -> marram_store::LockRequest {
    let LockRequest { family, owner, first, last, mode, process } = *lock;
    let family = match family {
        LockFamily::Whole => marram_store::LockFamily::Whole,
        LockFamily::Ranges => marram_store::LockFamily::Ranges,
    };
    let mode = mode.map(|mode| match mode {
        LockMode::Shared => marram_store::LockMode::Shared,
        LockMode::Exclusive => marram_store::LockMode::Exclusive,
    });
    marram_store::LockRequest { family, owner, first, last, mode, process }
}

/// No lock is refused as on a read-only file system: that the client is lost is a failure.
fn told(found: marram_store::Result<Option<marram_store::HeldLock>>) -> Result<Option<HeldLock>> {
    let held = found.map_err(|error| match error {
        StoreError::LimitExceeded(_) => Error::TooManyLocks,
        other => Error::Io(other.to_string()),
    })?;
    Ok(held.map(|held| HeldLock {
        first: held.first,
        last: held.last,
        mode: match held.mode {
            marram_store::LockMode::Shared => LockMode::Shared,
            marram_store::LockMode::Exclusive => LockMode::Exclusive,
        },
        process: held.process,
    }))
}
