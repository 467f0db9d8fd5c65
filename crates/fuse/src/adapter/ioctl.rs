//! Control calls on files. Those that are not known here do not exist.

use super::caller::{Capability, caller_word, has_capability};
use super::{Adapter, Outcome};
use crate::errno::Errno;
use crate::protocol::flags::ioctl;
use crate::protocol::{Encoder, Header, Ioctl};
use marram_vfs::{Error, Shutdown};
use std::sync::atomic::Ordering;

/// Bytes of the reply before what it hands to the caller.
const REPLY_BYTES: usize = 16;

impl Adapter {
    pub(super) fn ioctl(
        &self,
        header: &Header,
        ioctl: &Ioctl<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        match ioctl.command {
            ioctl::SHUTDOWN => self.shutdown(header, ioctl)?,
            _ => return Err(Errno::NO_IOCTL.into()),
        }
        out.zeros(REPLY_BYTES);
        Ok(())
    }

    /// Stops the file system as a power cut would, for tests of crashes (`FS_IOC_SHUTDOWN`, as XFS
    /// has brought it). Its number says, wrongly, that it hands something to the caller, so the
    /// kernel does not pass on what the caller has put there.
    fn shutdown(&self, header: &Header, ioctl: &Ioctl<'_>) -> Outcome {
        if !has_capability(header, Capability::Administer) {
            return Err(Errno::NOT_PERMITTED.into());
        }
        let how = match caller_word(header, ioctl.argument).ok_or(Errno::FAULT)? {
            ioctl::SHUTDOWN_FLUSH | ioctl::SHUTDOWN_FLUSH_LOG => Shutdown::Flush,
            ioctl::SHUTDOWN_NOW => Shutdown::Now,
            _ => return Err(Errno::INVALID.into()),
        };
        match self.file_system.shutdown(how) {
            Err(Error::NotSupported) => return Err(Errno::NO_IOCTL.into()),
            outcome => outcome?,
        }
        self.shut_down.store(true, Ordering::Release);
        Ok(())
    }
}
