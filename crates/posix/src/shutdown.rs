//! The stop of a running file system, as by a power cut.
//!
//! What is under way when it comes may still be applied, in memory that nobody will write: as what
//! a program did in the last moment before a power cut, it was acknowledged and is lost.

use crate::filesystem::Posix;
use marram_records::failure::from_sync;
use marram_vfs::{Error, Ino, Result, Shutdown};
use std::sync::atomic::Ordering;

impl Posix {
    /// Whether it has been shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    /// Refuses everything after a shutdown.
    pub(crate) fn check_running(&self) -> Result<()> {
        match self.is_shut_down() {
            true => Err(Error::Io("the file system has been shut down".to_owned())),
            false => Ok(()),
        }
    }

    /// As [`Posix::check_running`], for what finds the root directory, without which nobody could
    /// unmount it.
    pub(crate) fn check_running_or_root(&self, ino: Ino) -> Result<()> {
        if ino.0 == self.root() { Ok(()) } else { self.check_running() }
    }

    pub(crate) fn stop(&self, how: Shutdown) -> Result<()> {
        self.check_running()?;
        let halting = self.view.capabilities().halting.ok_or(Error::NotSupported)?;
        if how == Shutdown::Flush {
            self.write_lazy_times();
            self.view.sync().map_err(from_sync)?;
        }
        self.shut_down.store(true, Ordering::Release);
        halting.halt();
        Ok(())
    }
}
