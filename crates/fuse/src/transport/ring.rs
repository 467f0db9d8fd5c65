//! One io_uring with one command at a time: "here is my answer, give me the next request".
//!
//! A ring belongs to the thread that uses it first. The kernel copies a request into an entry in
//! the name of the thread that handed the entry in, and only when that thread is in the kernel and
//! not asleep for something else: if a thread had two entries, a request could be put into the one
//! while the thread waits for a disk over the other, and nobody could serve it, nor end its
//! caller. So a thread has a ring to itself, and one entry.

use super::entry::Entry;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FUSE_IO_URING_CMD_REGISTER`: here is an entry, give me a request.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: here is a reply, give me the next request.
const COMMIT_AND_FETCH: u32 = 2;
/// Where a submission has the number of buffers (`struct io_uring_sqe`, `len`), in words.
const LEN_WORD: usize = 6;
/// What `REGISTER` hands over: headers and payload.
const PLACES: u32 = 2;
/// `FUSE_DEV_IOC_CLONE`d or not, the device is the only file of a ring.
const DEVICE: types::Fixed = types::Fixed(0);

/// A ring to the connection of a mount.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    is_started: bool,
}

/// What is asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// The entry is new.
    Register,
    /// The entry has the reply to the request of this name.
    Commit(u64),
}

impl Ring {
    /// A ring to `device`; the first thread that calls [`Ring::exchange`] is its only user.
    ///
    /// # Errors
    /// The kernel does not have io_uring, or not for this process.
    pub(super) fn open(device: BorrowedFd<'_>) -> Result<Ring, Errno> {
        let build = |is_lean: bool| {
            let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
            builder.setup_r_disabled().dontfork();
            if is_lean {
                builder.setup_single_issuer().setup_defer_taskrun();
            }
            builder.build(1)
        };
        let ring = build(true).or_else(|_| build(false)).map_err(errno)?;
        ring.submitter().register_files(&[device.as_raw_fd()]).map_err(errno)?;
        Ok(Ring { ring, is_started: false })
    }

    /// Hands `entry` to the kernel for `queue`, and returns when there is a request in it.
    ///
    /// # Errors
    /// What the command came to. The mount has ended: [`Errno::NOTCONN`] or
    /// [`Errno::CONNABORTED`].
    #[allow(unsafe_code, reason = "what a command points to must outlive it")]
    pub(super) fn exchange(
        &mut self,
        entry: &mut Entry,
        queue: u16,
        command: Command,
    ) -> Result<(), Errno> {
        if !self.is_started {
            self.ring.submitter().register_enable_rings().map_err(errno)?;
            self.is_started = true;
        }
        let places =
            entry.places().map(|(start, len)| libc::iovec { iov_base: start.cast(), iov_len: len });
        let submission = submission(&places, queue, command);
        // SAFETY: the kernel reads `places` while it takes the submission, and they outlive this
        // call. It writes to the entry's memory until the completion, and after that only under
        // another command; the memory stays mapped until the connection has ended, and `&mut`
        // keeps all others away from it meanwhile. The descriptor is a registered one.
        unsafe { self.ring.submission().push(&submission) }.map_err(|_| Errno::BUSY)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => (),
                Err(error) => match errno(error) {
                    Errno::INTR => continue,
                    // The submission is still there: it is taken once there is memory for it.
                    Errno::AGAIN | Errno::BUSY => {
                        std::thread::yield_now();
                        continue;
                    }
                    other => return Err(other),
                },
            }
            if let Some(completion) = self.ring.completion().next() {
                return match completion.result() {
                    negative if negative < 0 => Err(Errno::from_raw_os_error(-negative)),
                    _ => Ok(()),
                };
            }
        }
    }

    /// Makes the kernel serve the mount over `/dev/fuse` again: it does when an entry makes no
    /// sense to it before all queues have one.
    pub(super) fn refuse(&mut self, entry: &mut Entry) {
        let refused = self.exchange(entry, u16::MAX, Command::Register);
        debug_assert!(refused.is_err(), "there is no such queue");
    }
}

/// The submission for a command: `struct fuse_uring_cmd_req` in the 80 bytes that are the device's.
#[allow(unsafe_code, reason = "the crate has no setter for the number of buffers")]
fn submission(places: &[libc::iovec; 2], queue: u16, command: Command) -> squeue::Entry128 {
    let (number, name) = match command {
        Command::Register => (REGISTER, 0),
        Command::Commit(name) => (COMMIT_AND_FETCH, name),
    };
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&name.to_le_bytes());
    bytes[16..18].copy_from_slice(&queue.to_le_bytes());
    let address = places.as_ptr().addr() as u64;
    let mut submission =
        opcode::UringCmd80::new(DEVICE, number).cmd(bytes).addr(Some(address)).build();
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    const { assert!(align_of::<squeue::Entry128>() >= align_of::<u32>()) };
    // SAFETY: an `Entry128` is the kernel's `struct io_uring_sqe` of 128 bytes (`repr(C)`, plain
    // numbers without padding), and the seventh of its words is `len`; size and alignment are
    // checked above, and the pointer is to a local that nobody else refers to.
    unsafe { (&raw mut submission).cast::<u32>().add(LEN_WORD).write(PLACES) };
    submission
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
