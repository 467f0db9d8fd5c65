//! The way to the kernel: requests come in whole, replies go out whole.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A lane on which the kernel hands out requests. A reply goes back on the lane that its request
/// came on, from any thread.
pub trait Transport: Send + Sync {
    /// Waits for a request and puts it into `buffer`; tells its length, or `None` when the mount
    /// has ended.
    ///
    /// # Errors
    /// The connection is broken; nothing more will come.
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno>;

    /// Sends a reply or a notification that consists of `parts`.
    ///
    /// # Errors
    /// The kernel did not take it.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno>;
}

/// `/dev/fuse`, read and written.
#[derive(Debug)]
pub struct ClassicTransport {
    device: OwnedFd,
}

impl ClassicTransport {
    /// Opens the device; it is connected to nothing yet.
    ///
    /// # Errors
    /// The device is not there, or not for this user.
    pub fn open() -> Result<ClassicTransport, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(rustix::fs::open("/dev/fuse", flags, Mode::empty())?.into())
    }

    /// Another lane to the same mount, with a queue of its own for requests in work.
    ///
    /// # Errors
    /// As for [`ClassicTransport::open`]; or the mount has ended.
    pub fn another_lane(&self) -> Result<ClassicTransport, Errno> {
        let lane = ClassicTransport::open()?;
        clone_connection(lane.device.as_fd(), self.device.as_fd())?;
        Ok(lane)
    }
}

impl From<OwnedFd> for ClassicTransport {
    fn from(device: OwnedFd) -> Self {
        ClassicTransport { device }
    }
}

impl AsFd for ClassicTransport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Transport for ClassicTransport {
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match rustix::io::read(&self.device, &mut *buffer) {
                Ok(len) => return Ok(Some(len)),
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                // NOENT: the caller of a request was killed before it was read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => (),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.device, parts)).map(|_| ())
    }
}

/// Connects `lane` to the mount of `connection` (`FUSE_DEV_IOC_CLONE`).
#[allow(unsafe_code, reason = "rustix has no safe wrapper for a driver's own ioctl")]
fn clone_connection(lane: BorrowedFd<'_>, connection: BorrowedFd<'_>) -> Result<(), Errno> {
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
    let mut number = u32::try_from(connection.as_raw_fd()).map_err(|_| Errno::BADF)?;
    // SAFETY: FUSE_DEV_IOC_CLONE reads one `u32` through its argument, which is what `Updater`
    // passes; `number` outlives the call and names an open descriptor.
    unsafe {
        let clone = rustix::ioctl::Updater::<CLONE, u32>::new(&mut number);
        rustix::ioctl::ioctl(lane, clone)
    }
}
