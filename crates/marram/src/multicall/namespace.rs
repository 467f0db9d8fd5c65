//! The mount namespace that `mount -N` and `umount -N` name: they call their helpers in the one
//! that they came from, and leave it to them to go there.

use crate::error::{Error, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;

/// Enters the namespace that `-N` names, a file or the number of a process; for good.
///
/// # Errors
/// It is not there, or may not be entered.
pub(super) fn enter(name: &str) -> Result<()> {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    let path =
        PathBuf::from(if is_number { format!("/proc/{name}/ns/mnt") } else { name.to_owned() });
    let failed = |error| Error::system("enter the mount namespace", &path, error);
    let file = File::open(&path).map_err(failed)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|error| failed(error.into()))
}
