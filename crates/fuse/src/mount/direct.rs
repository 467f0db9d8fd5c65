//! Mounting by `mount(2)`, for root.

use super::{SUBTYPE, table};
use crate::error::MountError;
use crate::options::{AccessTimes, MountOptions};
use crate::transport::ClassicTransport;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

pub(super) fn mount(
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<ClassicTransport, MountError> {
    let transport = ClassicTransport::open()
        .map_err(|error| MountError::Device { reason: error.to_string() })?;
    let refused = |reason: String| MountError::Refused { mountpoint: mountpoint.into(), reason };
    let (kind, source) = match &options.block_device {
        Some(device) => {
            check_block_device(mountpoint, device)?;
            ("fuseblk", device.as_os_str())
        }
        None => ("fuse", OsStr::new(&options.source)),
    };
    let data = CString::new(data(transport.as_fd().as_raw_fd(), options))
        .map_err(|_| refused("an option has a NUL byte in it".into()))?;
    let kind = format!("{kind}.{SUBTYPE}");
    rustix::mount::mount(source, mountpoint, kind, flags(options), data.as_c_str())
        .map_err(|error| refused(reason(error, options)))?;
    Ok(transport)
}

/// The kernel claims a block device for the mount; it says no more than "busy" if it cannot.
fn reason(error: Errno, options: &MountOptions) -> String {
    match &options.block_device {
        Some(device) if error == Errno::BUSY => format!(
            "{} is held exclusively by a program or another volume (lsblk shows which)",
            device.display()
        ),
        _ => error.to_string(),
    }
}

/// The kernel would answer a second mount of a device with the first one's tree.
fn check_block_device(mountpoint: &Path, device: &Path) -> Result<(), MountError> {
    let refused = |reason: String| MountError::Refused { mountpoint: mountpoint.into(), reason };
    let status = std::fs::metadata(device)
        .map_err(|error| refused(format!("{}: {error}", device.display())))?;
    if !status.file_type().is_block_device() {
        return Err(refused(format!("{} is not a block device", device.display())));
    }
    let number = status.rdev();
    let number = (rustix::fs::major(number), rustix::fs::minor(number));
    match table::mounts().into_iter().find(|mount| mount.device == number) {
        Some(mount) => Err(MountError::DeviceMounted {
            device: device.to_owned(),
            mountpoint: mount.mountpoint,
        }),
        None => Ok(()),
    }
}

fn flags(options: &MountOptions) -> MountFlags {
    let mut flags = match options.access_times {
        AccessTimes::Never => MountFlags::NOATIME,
        AccessTimes::Relative => MountFlags::RELATIME,
        AccessTimes::Strict => MountFlags::STRICTATIME,
    };
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.allow_setuid);
    flags.set(MountFlags::NODEV, !options.allow_devices);
    flags.set(MountFlags::NOEXEC, !options.allow_programs);
    flags
}

fn data(device: i32, options: &MountOptions) -> String {
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    let mut data =
        format!("fd={device},rootmode=40000,user_id={uid},group_id={gid},default_permissions");
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.block_device.is_some() {
        data.push_str(",blksize=4096");
    }
    for extra in &options.extra {
        data.push(',');
        data.push_str(extra);
    }
    data
}
