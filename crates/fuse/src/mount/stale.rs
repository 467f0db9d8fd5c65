//! Mounts whose server has died: every use of them fails with "transport endpoint is not
//! connected" until somebody takes them away.

use super::{Unmount, detach_path, table};
use crate::error::MountError;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Whether a mount is on `path` whose server is gone. False for anything else, a path that does
/// not exist too. A server that took requests over io_uring takes a moment to be gone after its
/// process is; the kernel cancels what is asked meanwhile.
pub fn is_dead_mount(path: &Path) -> bool {
    let asked = rustix::fs::statfs(path);
    matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED))
}

/// Takes away dead FUSE mounts from `path`, also several on top of each other; returns how many
/// there were.
///
/// # Errors
/// One is there and cannot be unmounted.
pub fn clear_dead_mount(path: &Path) -> Result<usize, MountError> {
    let mut cleared = 0;
    while cleared < STACKED_MOUNTS_MAX && is_dead_mount(path) {
        detach_path(&mounted_path(path), Unmount::Lazily)?;
        cleared += 1;
    }
    Ok(cleared)
}

/// Most dead mounts that are taken from one directory.
const STACKED_MOUNTS_MAX: usize = 64;

/// Most symbolic links that lead to a mount, as the kernel follows them.
const LINKS_MAX: usize = 40;

/// The path as the kernel shows it: a dead mount cannot be resolved itself, but its parent can, and
/// so can links that lead to it.
fn mounted_path(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path.pop();
        path.push(target);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let resolved = parent.unwrap_or(Path::new(".")).canonicalize();
    match (resolved, path.file_name()) {
        (Ok(parent), Some(name)) if table::on(&parent.join(name)).is_some() => parent.join(name),
        _ => path,
    }
}
