//! Mounting and unmounting: what connects a directory with `/dev/fuse`.
//!
//! Root uses `mount(2)`, as type `fuse.marram` or, on a block device, `fuseblk.marram`. Anyone else
//! asks the setuid program `fusermount3`, which hands back the descriptor.

mod direct;
mod fusermount;
mod separation;
mod stale;
mod table;

pub use separation::{Separation, separate_mounts};
pub use stale::{clear_dead_mount, is_dead_mount};
pub use table::{MountEntry, mounts};

use crate::error::MountError;
use crate::options::MountOptions;
use crate::transport::ClassicTransport;
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
    pub(crate) device: (u32, u32),
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

/// Takes a mount away from `mountpoint`, one of the places where it is; fine if it is gone.
pub(crate) fn detach(
    attached: &Attached,
    mountpoint: &Path,
    how: Unmount,
) -> Result<(), MountError> {
    if !is_attached(attached) {
        return Ok(());
    }
    if !is_on(attached, mountpoint) {
        let reason = "it was moved, or another mount covers it";
        return Err(unmount_failed(mountpoint, reason.into()));
    }
    match is_root() {
        true => direct::unmount_from_outside(mountpoint, how),
        false => fusermount::unmount(mountpoint, how),
    }
}

/// Takes a mount that stays in use away from a place. Nothing is waited for then, so no other
/// process has to do it.
pub(crate) fn hide(attached: &Attached, place: &Path) -> Result<(), MountError> {
    match is_root() && is_on(attached, place) {
        true => direct::unmount(place, Unmount::Lazily),
        false => detach(attached, place, Unmount::Lazily),
    }
}

/// Shows a mount of a block device in a second place: the kernel then has one file system with two
/// mounts of equal right, each with flags of its own. `options` are those of the second.
pub(crate) fn attach_again(
    attached: &Attached,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<(), MountError> {
    let ended = || MountError::Refused {
        mountpoint: mountpoint.into(),
        reason: "the file system has just been unmounted".into(),
    };
    if !is_attached(attached) {
        return Err(ended());
    }
    match direct::mount_again(mountpoint, options)? {
        true => Ok(()),
        false => {
            let _second_failure = direct::unmount_from_outside(mountpoint, Unmount::Lazily);
            Err(ended())
        }
    }
}

/// Whether it is what is seen on `directory`.
pub(crate) fn is_on(attached: &Attached, directory: &Path) -> bool {
    table::on(directory).is_some_and(|entry| entry.device == attached.device)
}

/// Whether it is mounted anywhere that this process sees: also where somebody has bound it to.
pub(crate) fn is_attached(attached: &Attached) -> bool {
    table::mounts().iter().any(|entry| entry.device == attached.device)
}

/// Takes away whatever mount is seen on `mountpoint`, served by whomever; `lazily` also if it is in
/// use.
///
/// # Errors
/// It is in use, is no mount, or belongs to somebody else.
pub fn unmount(mountpoint: &Path, lazily: bool) -> Result<(), MountError> {
    detach_path(mountpoint, if lazily { Unmount::Lazily } else { Unmount::WhenUnused })
}

/// Takes away whatever mount is seen on `mountpoint`; not for one that this process serves.
fn detach_path(mountpoint: &Path, how: Unmount) -> Result<(), MountError> {
    if is_root() { direct::unmount(mountpoint, how) } else { fusermount::unmount(mountpoint, how) }
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
        let _best_effort = fs::write(self.knob("read_ahead_kb"), (bytes / 1024).to_string());
    }

    /// Lets the kernel hold back no more written data of this mount than `bytes`, unless it holds
    /// back less anyway. Only root can, from Linux 6.2 on.
    pub(crate) fn limit_held_back(&self, bytes: u64) {
        let knob = self.knob("max_bytes");
        let now = fs::read_to_string(&knob).ok().and_then(|text| text.trim().parse().ok());
        if now.is_some_and(|now: u64| bytes < now) {
            let _best_effort = fs::write(knob, bytes.to_string());
        }
    }

    /// Where a setting of the kernel for this mount's cache is. A mount that shows a block device
    /// has one beside that of the device, which outlives it.
    fn knob(&self, name: &str) -> PathBuf {
        let (major, minor) = self.device;
        let of_block_device = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}-fuseblk"));
        match of_block_device.is_dir() {
            true => of_block_device.join(name),
            false => format!("/sys/class/bdi/{major}:{minor}/{name}").into(),
        }
    }
}
