//! The other names of this program, under which `mount(8)`, `umount(8)`, `mkfs(8)` and `fsck(8)`
//! call it.
//!
//! They print nothing when all is well, tell the outcome by the exit status that their callers
//! expect, and come back only when the root is usable or the daemon has let go of the device:
//! the caller goes on at once.

mod fsck;
mod mkfs;
mod mount;
mod namespace;
mod umount;
mod words;

use crate::commands::install::NAMES;
use std::ffi::OsString;

/// What such a program does with its arguments; the answer is its exit status.
type Program = fn(&[OsString]) -> u8;

/// The program behind a name, if it is one of [`NAMES`].
pub(crate) fn by_name(name: &str) -> Option<Program> {
    if !NAMES.contains(&name) {
        return None;
    }
    match name.split_once('.')?.0 {
        "mount" => Some(mount::run),
        "umount" => Some(umount::run),
        "mkfs" => Some(mkfs::run),
        _ => Some(fsck::run),
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, by_name};

    #[test]
    fn only_whole_names_are_answered_to() {
        assert!(NAMES.iter().all(|name| by_name(name).is_some()));
        for name in ["marram", "mount", "mount.marram.old", "fsck", "mount.ext4"] {
            assert!(by_name(name).is_none(), "{name}");
        }
    }
}
