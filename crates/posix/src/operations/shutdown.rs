//! The stop of a running file system, as by a power cut.
//!
//! What is under way when it comes may still be applied, in memory that is never written: as what
//! a program did in the last moment before a power cut, it was acknowledged and is lost.

use crate::frame::access_times;
use crate::volume::Volume;
use marram_records::failure::from_sync;
use marram_vfs::{Error, Result, Shutdown};
use std::sync::atomic::Ordering;

pub(crate) fn stop(volume: &Volume, how: Shutdown) -> Result<()> {
    volume.check_running()?;
    let halting = volume.view.capabilities().halting.ok_or(Error::NotSupported)?;
    if how == Shutdown::Flush {
        access_times::write_lazy_times(volume);
        volume.view.sync().map_err(from_sync)?;
    }
    volume.shut_down.store(true, Ordering::Release);
    halting.halt();
    Ok(())
}
