//! What can go wrong with a mount.

use std::path::PathBuf;
use thiserror::Error;

/// Why mounting, serving or unmounting failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MountError {
    /// The mount point cannot be used.
    #[error("cannot mount on {}: {reason}", mountpoint.display())]
    Mountpoint {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// `/dev/fuse` cannot be used.
    #[error("/dev/fuse: {reason}; is the fuse module loaded, and may this user open the device?")]
    Device {
        /// What the system said.
        reason: String,
    },
    /// The kernel refused to mount.
    #[error("the kernel refuses to mount on {}: {reason}", mountpoint.display())]
    Refused {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The block device carries a mount already, and the kernel would show that one again.
    #[error("{} is mounted on {} already", device.display(), mountpoint.display())]
    DeviceMounted {
        /// The block device.
        device: PathBuf,
        /// Where it is mounted.
        mountpoint: PathBuf,
    },
    /// A mount on a block device was asked for without the right to make one.
    #[error("only root can mount the block device {} as fuseblk", device.display())]
    NeedsRoot {
        /// The block device.
        device: PathBuf,
    },
    /// `fusermount3` cannot be run or says no.
    #[error("fusermount3: {reason}")]
    Fusermount {
        /// What it said.
        reason: String,
    },
    /// Kernel and server have no protocol in common.
    #[error("the kernel speaks FUSE {major}.{minor}, which lacks {missing}; Linux 5.14 is needed")]
    Kernel {
        /// The kernel's major version.
        major: u32,
        /// The kernel's minor version.
        minor: u32,
        /// What is missing.
        missing: &'static str,
    },
    /// The kernel did not greet as the protocol says.
    #[error("talking to the kernel failed: {reason}")]
    Handshake {
        /// What happened.
        reason: String,
    },
    /// Requests were to come over io_uring.
    #[error("no requests over io_uring: {reason}")]
    IoUring {
        /// What is missing.
        reason: String,
    },
    /// Programs still use the mount.
    #[error("{} is in use; `fuser -vm` shows by whom", mountpoint.display())]
    Busy {
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// Unmounting failed.
    #[error("cannot unmount {}: {reason}", mountpoint.display())]
    Unmount {
        /// The mount point.
        mountpoint: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Making everything durable at the end failed.
    #[error("the mount has ended, but not everything is durable: {0}")]
    Sync(marram_vfs::Error),
    /// A thread that served the mount died.
    #[error("the server of the mount died: {reason}")]
    Server {
        /// What is known of it.
        reason: String,
    },
}
