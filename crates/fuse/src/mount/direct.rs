//! Mounting by `mount(2)`, for root.

use super::{SUBTYPE, Unmount, table, unmount_failed};
use crate::error::MountError;
use crate::options::{AccessTimes, Checks, MountOptions};
use crate::transport::ClassicTransport;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Unmounts for a server; in the folder where every system has it, as `PATH` may be empty.
const UNMOUNT_PROGRAM: &str = "/bin/umount";
/// The kernel hands out no request to a smaller buffer.
const GREETING_BYTES: usize = 8192;

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

/// Mounts in a second place what the kernel has mounted of the same block device. False if it was
/// gone meanwhile: then this is a new mount, which nobody serves.
pub(super) fn mount_again(mountpoint: &Path, options: &MountOptions) -> Result<bool, MountError> {
    let refused = |reason: String| MountError::Refused { mountpoint: mountpoint.into(), reason };
    let Some(device) = &options.block_device else {
        return Err(refused("it is not mounted through a block device".into()));
    };
    // The kernel asks for a connection, and leaves it alone if there is one for the device.
    let flags_of_unused = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let unused = rustix::fs::open("/dev/fuse", flags_of_unused, Mode::empty())
        .map_err(|error| MountError::Device { reason: error.to_string() })?;
    let data = CString::new(data(unused.as_raw_fd(), options))
        .map_err(|_| refused("an option has a NUL byte in it".into()))?;
    let kind = format!("fuseblk.{SUBTYPE}");
    rustix::mount::mount(device, mountpoint, kind, flags(options), data.as_c_str()).map_err(
        |error| match error {
            Errno::BUSY => refused("the same file system is mounted there already".into()),
            error => refused(error.to_string()),
        },
    )?;
    let mut greeting = [0; GREETING_BYTES];
    Ok(rustix::io::read(&unused, &mut greeting) == Err(Errno::PERM))
}

/// Unmounts by another process, for a server of the mount. The kernel waits for an answer of the
/// server before it lets the caller of `umount(2)` go, and does not let go either if the server
/// dies meanwhile. A thread of the server that waits there would keep the server from dying: a
/// process that nothing ends, with the pool locked.
pub(super) fn unmount_from_outside(mountpoint: &Path, how: Unmount) -> Result<(), MountError> {
    let mut program = Command::new(UNMOUNT_PROGRAM);
    program.args(["--internal-only", "--no-canonicalize"]).env("LC_ALL", "C");
    if how == Unmount::Lazily {
        program.arg("--lazy");
    }
    let run = program.arg("--").arg(mountpoint).stdin(Stdio::null()).output();
    match run {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("busy") => {
            Err(MountError::Busy { mountpoint: mountpoint.to_owned() })
        }
        // It is missing, or of another kind.
        _ => unmount(mountpoint, how),
    }
}

/// Unmounts.
pub(super) fn unmount(mountpoint: &Path, how: Unmount) -> Result<(), MountError> {
    let flags = match how {
        Unmount::WhenUnused => UnmountFlags::NOFOLLOW,
        Unmount::Lazily => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    rustix::mount::unmount(mountpoint, flags).map_err(|error| match error {
        Errno::BUSY => MountError::Busy { mountpoint: mountpoint.to_owned() },
        error => unmount_failed(mountpoint, error.to_string()),
    })
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
    let mut data = format!("fd={device},rootmode=40000,user_id={uid},group_id={gid}");
    if options.checks != Checks::Server {
        data.push_str(",default_permissions");
    }
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
