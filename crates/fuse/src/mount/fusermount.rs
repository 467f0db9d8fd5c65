//! Mounting by `fusermount3`, for everyone.
//!
//! The program is setuid root, mounts with its own descriptor of `/dev/fuse`, and passes that back
//! over a socket whose number it finds in the environment. It forces `nosuid` and `nodev`.

use super::{SUBTYPE, Unmount, unmount_failed};
use crate::error::MountError;
use crate::options::{AccessTimes, Checks, MountOptions};
use crate::transport::ClassicTransport;
use rustix::io::{FdFlags, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = "fusermount3";
/// How the program learns of the socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

pub(super) fn mount(
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<ClassicTransport, MountError> {
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| failed(format!("socketpair: {error}")))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty())
        .map_err(|error| failed(format!("fcntl: {error}")))?;
    let mut program = Command::new(PROGRAM);
    program.arg("-o").arg(options_text(options)).arg("--").arg(mountpoint);
    program.env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string());
    run(&mut program)?;
    drop(theirs);
    Ok(receive_descriptor(&ours)?.into())
}

pub(super) fn unmount(mountpoint: &Path, how: Unmount) -> Result<(), MountError> {
    let mut program = Command::new(PROGRAM);
    program.arg("-u");
    if how == Unmount::Lazily {
        program.arg("-z");
    }
    match run(program.arg("--").arg(mountpoint)) {
        Err(MountError::Fusermount { reason }) if reason.contains("busy") => {
            Err(MountError::Busy { mountpoint: mountpoint.to_owned() })
        }
        Err(error) => Err(unmount_failed(mountpoint, error.to_string())),
        Ok(()) => Ok(()),
    }
}

fn failed(reason: String) -> MountError {
    MountError::Fusermount { reason }
}

fn run(program: &mut Command) -> Result<(), MountError> {
    let output = program
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(format!("cannot be run ({error}); install the package fuse3")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

fn receive_descriptor(socket: &OwnedFd) -> Result<OwnedFd, MountError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .map_err(|error| failed(format!("no descriptor came: {error}")))?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or_else(|| failed("no descriptor came".into()))
}

/// Commas and backslashes in the source are escaped as the program wants it.
fn options_text(options: &MountOptions) -> String {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut text = format!("fsname={source},subtype={SUBTYPE}");
    if options.checks != Checks::Server {
        text.push_str(",default_permissions");
    }
    text.push_str(match options.access_times {
        AccessTimes::Never => ",noatime",
        AccessTimes::Relative => "",
        AccessTimes::Strict => ",strictatime",
    });
    let flags = [
        (options.read_only, ",ro"),
        (options.allow_other, ",allow_other"),
        (!options.allow_programs, ",noexec"),
    ];
    for (_, flag) in flags.iter().filter(|(wanted, _)| *wanted) {
        text.push_str(flag);
    }
    for extra in &options.extra {
        text.push(',');
        text.push_str(extra);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::options_text;
    use crate::options::MountOptions;

    #[test]
    fn the_source_is_escaped() {
        let mut options = MountOptions::new("/mnt", "a,b\\c");
        options.read_only = true;
        let text = options_text(&options);
        assert!(text.starts_with("fsname=a\\,b\\\\c,subtype=marram,default_permissions"));
        assert!(text.ends_with(",ro"));
    }
}
