//! The way to the kernel: requests come in whole, replies go out whole.

//!
//! There are two: `/dev/fuse` read and written ([`ClassicTransport`]), which every kernel has, and
//! an io_uring a thread ([`RingLane`]), which costs a request half of the system calls and wakes
//! nobody on another processor. See docs/decisions/0013-requests-and-transport.md.

mod calls;
mod entry;
mod ring;
mod ring_lane;

pub(crate) use ring::Ring;
pub(crate) use ring_lane::{RingLane, RingQueue, Space};

use crate::protocol::{Encoder, NotifyCode, reply_header};
use calls::{Calls, Fate};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A lane on which the kernel hands out requests. A reply goes back on the lane that its request
/// came on, from any thread.
pub trait Transport: Send + Sync {
    /// Waits for a request and puts it into `buffer`; tells its length, or `None` when the mount
    /// has ended.
    ///
    /// # Errors
    /// The connection is broken; nothing more will come. But [`Errno::BADMSG`]: a request that made
    /// no sense has been refused, and others will come.
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno>;

    /// Sends a reply or a notification that consists of `parts`.
    ///
    /// # Errors
    /// The kernel did not take it. [`Errno::CANCELED`]: the caller has been killed and answered
    /// meanwhile, and will never know of this reply.
    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno>;
}

/// `/dev/fuse`, read and written.
#[derive(Debug)]
pub struct ClassicTransport {
    device: OwnedFd,
    calls: Calls,
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

    /// Whether the kernel still has the mount. It says so before the number of the mount's device
    /// can be another mount's.
    pub fn is_connected(&self) -> bool {
        let mut polled = [PollFd::new(&self.device, PollFlags::empty())];
        let looked = retry_on_intr(|| poll(&mut polled, Some(&Timespec::default())));
        let [device] = polled;
        looked.is_ok() && !device.revents().contains(PollFlags::ERR)
    }
}

impl From<OwnedFd> for ClassicTransport {
    fn from(device: OwnedFd) -> Self {
        ClassicTransport { device, calls: Calls::default() }
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
                Ok(len) => {
                    self.calls.begin(&buffer[..len]);
                    return Ok(Some(len));
                }
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                // NOENT: the caller of a request was killed before it was read.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => (),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let answered = parts.first().and_then(|header| answered_call(header));
        if answered.is_some_and(|(unique, well)| self.calls.end(unique, well) == Fate::Drop) {
            return Err(Errno::CANCELED);
        }
        self.pass_on(parts)
    }
}

impl ClassicTransport {
    /// Lets callers go that have been killed and wait since the last time that this was called.
    pub(crate) fn let_the_killed_go(&self) {
        for call in self.calls.cut_short(calls::is_killed) {
            let header = reply_header(call.unique, Errno::INTR.raw_os_error(), 0);
            let _gone_by_now = self.pass_on(&[IoSlice::new(&header)]);
        }
    }

    /// Tells the kernel what it does not know because callers were let go.
    pub(crate) fn tell_written_late(&self) {
        self.calls.take_written_late().into_iter().for_each(|node| self.forget_content(node));
    }

    /// Lets the kernel ask for content and attributes of an inode anew.
    fn forget_content(&self, node: u64) {
        let mut payload = Vec::new();
        Encoder(&mut payload).u64(node).i64(0).i64(0);
        let header = NotifyCode::Inode.header(payload.len());
        let _unknown_by_now = self.pass_on(&[IoSlice::new(&header), IoSlice::new(&payload)]);
    }

    fn pass_on(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        retry_on_intr(|| rustix::io::writev(&self.device, parts)).map(|_| ())
    }
}

/// Which request a reply with this header answers, and whether with success; `None` for a
/// notification.
fn answered_call(header: &[u8]) -> Option<(u64, bool)> {
    let errno = header.get(4..8)?.try_into().map(i32::from_le_bytes).ok()?;
    let unique = header.get(8..16)?.try_into().map(u64::from_le_bytes).ok()?;
    (unique != 0).then_some((unique, errno == 0))
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
