//! Mounting and unmounting: what connects a directory with `/dev/fuse`.
//!
//! Root uses `mount(2)`, as type `fuse.marram` or, on a block device, `fuseblk.marram`. Anyone else
//! asks the setuid program `fusermount3`, which hands back the descriptor.

mod direct;
mod fusermount;
mod stale;
mod table;

pub use stale::{clear_dead_mount, is_dead_mount};
pub use table::{MountEntry, mounts};

use crate::error::MountError;
use crate::options::MountOptions;
use crate::transport::ClassicTransport;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs;
use std::path::{Path, PathBuf};

/// Type that `mount` shows, after `fuse.` or `fuseblk.`.
const SUBTYPE: &str = "marram";

/// Whether to wait for the users of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Refuse while it is in use.
    WhenUnused,
    /// Take it out of sight at once; it ends when its last user is gone.
    Lazily,
}

/// A mount as it was made. A path alone does not name it: another mount may cover it, or lie below
/// it when it is gone.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    /// Where: an absolute path.
    pub(crate) mountpoint: PathBuf,
    /// The device number of its files, which no other mount has as long as it lives.
    device: (u32, u32),
}

/// Mounts; the kernel's greeting is then waiting on the transport. `mountpoint` is absolute.
pub(crate) fn attach(
    mountpoint: PathBuf,
    options: &MountOptions,
) -> Result<(ClassicTransport, Attached), MountError> {
    let transport = match &options.block_device {
        _ if is_root() => direct::mount(&mountpoint, options)?,
        Some(device) => return Err(MountError::NeedsRoot { device: device.clone() }),
        None => fusermount::mount(&mountpoint, options)?,
    };
    match table::on(&mountpoint) {
        Some(entry) => Ok((transport, Attached { mountpoint, device: entry.device })),
        None => {
            let _second_failure = detach_path(&mountpoint, Unmount::Lazily);
            let reason = "/proc/self/mountinfo does not show the new mount".into();
            Err(MountError::Refused { mountpoint, reason })
        }
    }
}

/// Takes a mount away; fine if it is gone.
pub(crate) fn detach(attached: &Attached, how: Unmount) -> Result<(), MountError> {
    let mountpoint = &attached.mountpoint;
    if !table::mounts().iter().any(|entry| entry.device == attached.device) {
        return Ok(());
    }
    if table::on(mountpoint).is_none_or(|entry| entry.device != attached.device) {
        let reason = "it was moved, or another mount covers it";
        return Err(unmount_failed(mountpoint, reason.into()));
    }
    detach_path(mountpoint, how)
}

/// Takes away whatever mount is seen on `mountpoint`.
fn detach_path(mountpoint: &Path, how: Unmount) -> Result<(), MountError> {
    if !is_root() {
        return fusermount::unmount(mountpoint, how);
    }
    let flags = match how {
        Unmount::WhenUnused => UnmountFlags::NOFOLLOW,
        Unmount::Lazily => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    rustix::mount::unmount(mountpoint, flags).map_err(|error| match error {
        Errno::BUSY => MountError::Busy { mountpoint: mountpoint.to_owned() },
        error => unmount_failed(mountpoint, error.to_string()),
    })
}

fn unmount_failed(mountpoint: &Path, reason: String) -> MountError {
    MountError::Unmount { mountpoint: mountpoint.to_owned(), reason }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Attached {
    /// Lets the kernel read further ahead than its default of 128 KiB. Only root can; where it
    /// cannot be done, reading in a row is slower and nothing else.
    pub(crate) fn raise_read_ahead(&self, bytes: u32) {
        let (major, minor) = self.device;
        for suffix in ["", "-fuseblk"] {
            let knob = format!("/sys/class/bdi/{major}:{minor}{suffix}/read_ahead_kb");
            let _best_effort = fs::write(knob, (bytes / 1024).to_string());
        }
    }
}
