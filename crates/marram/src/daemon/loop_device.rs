//! A loop device that stands for a pool in a file, so that the mount can be of type `fuseblk`.
//!
//! The kernel tells a FUSE daemon of `sync`, `syncfs` and `umount` only when the mount has a block
//! device. All bytes go to the pool's file directly; the loop device is only the handle. It is
//! attached to the pool's file itself, so that `losetup` and `findmnt` tell which file it is and
//! `mount -a` knows that the file is mounted.
//!
//! It is detached as soon as it is held open, which makes the kernel let go of it with the last
//! user: after the unmount, and also when the daemon has crashed.

use crate::error::{Error, Result};
use crate::paths;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A loop device that lives as long as this or a mount holds it.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: PathBuf,
    _held: File,
}

impl LoopDevice {
    /// Attaches a free loop device to `file`.
    ///
    /// # Errors
    /// When there is none, or the user may not.
    pub(crate) fn attach(file: &Path, read_only: bool) -> Result<LoopDevice> {
        let missing = || Error::failed("cannot use a loop device: losetup is not installed");
        let losetup = paths::find_program("losetup").ok_or_else(missing)?;
        let mut command = Command::new(&losetup);
        command.args(["--find", "--show"]);
        if read_only {
            command.arg("--read-only");
        }
        let printed = run(command.arg("--").arg(file))?;
        let path = PathBuf::from(printed.trim());
        let held = File::open(&path).map_err(|error| Error::system("open", &path, error));
        // While it is held this only marks it; else it takes it away at once.
        let marked = run(Command::new(&losetup).arg("--detach").arg(&path));
        let device = LoopDevice { path, _held: held? };
        marked?;
        Ok(device)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn run(command: &mut Command) -> Result<String> {
    let failed = |reason: &str| Error::failed(format!("cannot use a loop device: {reason}"));
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(&format!("losetup: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim()))
}
