//! An open pool, as callers hold it: its making, its status, and the operations of a store, each of
//! which takes its turn and is one commit. What they consist of stands in the folders below.

mod administration;
mod capabilities;
pub(crate) mod create;
pub(crate) mod status;
mod store;
mod streams;
pub(crate) mod two_pools;

use crate::Error;
use crate::commit::operation_log::{self, entry};
use crate::commit::turn;
use crate::snapshots::begin;
use crate::snapshots::session::Session;
use crate::snapshots::{destroy, trash};
use crate::state::open;
use crate::state::options::OpenOptions;
use marram_device::Device;
use marram_format::operation::OperationKind;
use marram_format::pointer::GRAIN_BYTES;
use marram_store::Result;
use std::sync::Arc;
use std::time::Duration;

/// An open pool. Dropping it loses what has not been committed, as a crash would.
pub struct Pool {
    pub(crate) session: Session,
}

impl Pool {
    /// Opens a pool. After a crash too there is nothing to repair: the newest superblock leads to
    /// everything, and the intent log has what was synced since.
    ///
    /// Opening writes nothing and flushes nothing, so that it does not wait for what a device has
    /// still to write. What was replayed is in memory and still in the log; the next commit takes
    /// it in, and no sync uses the log before.
    ///
    /// # Errors
    /// No pool, a newer one, a device that is cut off or fails; a log that cannot be replayed.
    pub fn open(
        devices: Vec<Arc<dyn Device>>,
        options: OpenOptions,
    ) -> std::result::Result<Arc<Pool>, Error> {
        let state = open::open(devices, options)?;
        Ok(Arc::new(Pool { session: Session::new(state) }))
    }

    /// Makes everything durable that was applied before.
    ///
    /// # Errors
    /// A device that fails; from then on the pool takes no changes.
    pub fn commit(&self) -> Result<()> {
        turn::commit_and_clear(&self.session.state)
    }

    /// Gives back a piece of what was destroyed, or lets go of what was kept for an undo until now;
    /// returns whether there is more to do.
    ///
    /// # Errors
    /// As for [`Pool::commit`].
    pub fn reclaim_step(&self) -> Result<bool> {
        if self.session.state.options.read_only {
            return Ok(false);
        }
        Ok(trash::let_go_of_expired(&self.session.state)?
            | destroy::give_back_step(&self.session.state)?)
    }

    /// Waits until enough is dirty for a commit to be worth it, at most for `timeout`; returns
    /// whether that is so.
    pub fn wait_for_work(&self, timeout: Duration) -> bool {
        self.session.state.work.wait(timeout)
    }

    /// Wakes the threads that wait in [`Pool::wait_for_work`].
    pub fn wake(&self) {
        self.session.state.work.announce();
    }

    /// Uses the space that the device has got since; returns its size in bytes. If there is none,
    /// nothing is done.
    ///
    /// # Errors
    /// A device that has shrunk or fails.
    pub fn grow(&self) -> std::result::Result<u64, Error> {
        let state = &self.session.state;
        let author = self.session.author.as_ref();
        let turn = begin::begin_for(state, author)?;
        let device = &state.media.devices()[0];
        let found_bytes = device.size()? / GRAIN_BYTES * GRAIN_BYTES;
        let size_bytes = *state.size_bytes.lock();
        if found_bytes < size_bytes {
            return Err(Error::TooSmall {
                device: device.name(),
                found_bytes,
                needed_bytes: size_bytes,
                reason: "a pool cannot shrink; give the device its size back".to_owned(),
            });
        }
        if found_bytes == size_bytes {
            return Ok(found_bytes);
        }
        let sizes = [size_bytes, found_bytes].map(|bytes| bytes.to_string());
        let entry = entry(OperationKind::Grow, 0, &[&sizes[0], &sizes[1]]);
        *state.size_bytes.lock() = found_bytes;
        let grown = turn.commit(Some(&mut |commit| {
            let committed = commit.pool.committed();
            commit.pool.space.lock().grow(found_bytes / GRAIN_BYTES, &committed)?;
            operation_log::enter(commit, author, entry.clone()).map(|_| ())
        }));
        if grown.is_err() {
            *state.size_bytes.lock() = size_bytes;
        }
        grown?;
        Ok(found_bytes)
    }

    /// Commits what is left. The pool can be dropped then without a loss.
    ///
    /// # Errors
    /// As for [`Pool::commit`].
    pub fn close(&self) -> Result<()> {
        if self.session.state.options.read_only {
            Ok(())
        } else {
            turn::commit_and_clear(&self.session.state)
        }
    }

    /// Commits what is left, and takes and writes nothing from then on: the device can be given to
    /// somebody else though the pool is still held in memory.
    ///
    /// # Errors
    /// As for [`Pool::commit`].
    pub fn close_for_good(&self) -> Result<()> {
        let closed = self.close();
        self.session.state.halt();
        closed
    }

    /// Whether the pool was halted: then nobody expects that what it held in memory is durable.
    pub fn is_halted(&self) -> bool {
        self.session.state.is_halted()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let superblock = self.session.state.superblock.lock();
        write!(out, "Pool {:?} at group {}", superblock.label, superblock.group)
    }
}
