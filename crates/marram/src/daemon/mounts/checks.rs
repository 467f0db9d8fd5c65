//! What is refused before a mount is made, and what the transport refuses.

use crate::error::{Error, Result};
use crate::options::MountOptions;
use std::path::Path;

/// Refuses what nothing can be mounted on, before a pool or device is touched for it.
pub(in crate::daemon) fn check_directory(directory: &Path) -> Result<()> {
    let found = std::fs::metadata(directory)
        .map_err(|error| Error::system("mount on", directory, error))?;
    if found.is_dir() {
        return Ok(());
    }
    Err(Error::failed(format!("cannot mount on {}: it is no directory", directory.display())))
}

/// Refuses what a dataset with NFSv4 access control lists, and an image under `fakeroot`, cannot
/// have: a mount whose permissions the kernel does not check cannot let it hold data back, nor open
/// device nodes.
pub(super) fn check_for_own_rules(options: &MountOptions) -> Result<()> {
    let asked = [(options.writeback, "writeback"), (options.dev == Some(true), "dev")];
    match asked.iter().find(|(asked, _)| *asked) {
        None => Ok(()),
        Some((_, word)) if options.fakeroot => {
            Err(Error::usage(format!("mount options {word} and fakeroot exclude each other"))
                .hint("leave one of them out"))
        }
        Some((_, word)) => {
            Err(Error::usage(format!("mount option {word} is not for a dataset with acl=nfsv4"))
                .hint("leave the option out, or set acl=posix or acl=off"))
        }
    }
}

/// Refuses to keep processors from halting where that cannot be had.
///
/// # Errors
/// It is asked for, and the user may not.
pub(in crate::daemon) fn check_wakeful(options: &MountOptions) -> Result<()> {
    if options.wakeful != Some(true) || marram_fuse::can_be_wakeful() {
        return Ok(());
    }
    Err(Error::failed("mount option wakeful: /dev/cpu_dma_latency cannot be opened for writing")
        .hint("mount as root, or leave the option out"))
}

/// The error for a mount that the transport refuses.
pub(in crate::daemon) fn fuse_error(error: marram_fuse::MountError) -> Error {
    use marram_fuse::MountError as Fuse;
    let text = error.to_string();
    match error {
        Fuse::Busy { .. } => Error::in_use(text)
            .hint("end those programs, or use --detach to take it out of sight until they do"),
        Fuse::DeviceMounted { .. } => Error::in_use(text),
        Fuse::IoUring { .. } => Error::failed(text).hint(
            "as root: echo Y > /sys/module/fuse/parameters/enable_uring (Linux 6.14 and later), \
             or leave the option transport out",
        ),
        Fuse::Device { .. } | Fuse::Fusermount { .. } => {
            Error::failed(text).hint("`marram doctor` tells what is missing")
        }
        _ => Error::failed(text),
    }
}
