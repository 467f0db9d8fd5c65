//! Mounts whose daemon has died, as mounts of the pool that they showed.
//!
//! Such a mount answers nothing, hides what is below it, and may hold the pool's block device. It
//! never comes to life again. So a new mount of the pool clears them away wherever they are, and
//! unmounting the pool means them too. The kernel's table names the pool, or the block
//! device that stood for it.

use crate::error::{Error, Result};
use crate::mountinfo;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where dead mounts of the pool at `pool`, an absolute path, are; oldest first. Nobody may serve
/// the pool: mounts that are alive but slow would be waited for.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn of_pool(pool: &Path) -> Result<Vec<PathBuf>> {
    let ours = mountinfo::mounts()?.into_iter().filter(|entry| mountinfo::shows(entry, pool));
    let dead = ours.filter(|entry| marram_fuse::is_dead_mount(&entry.directory));
    Ok(dead.map(|entry| entry.directory).collect())
}

/// Takes away whatever is dead on `directory`.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn clear(directory: &Path) -> Result<()> {
    marram_fuse::clear_dead_mount(directory)
        .map(|_how_many| ())
        .map_err(|error| Error::failed(format!("clearing a dead mount: {error}")))
}

/// As [`clear`], to mount the pool at `pool` anew.
///
/// The last process that lets go of a mount drops what the kernel has cached of it, and does
/// nothing else meanwhile: 10 GB took seconds. So another process is the last one. A block device
/// is not free before that is over, and must be waited for.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn clear_to_mount(directory: &Path, pool: &Path) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_file = fs::metadata(pool).is_ok_and(|found| found.is_file());
    let held = if is_file { rustix::fs::open(directory, flags, Mode::empty()).ok() } else { None };
    clear(directory)?;
    if let Some(held) = held {
        let_go_elsewhere(held);
    }
    Ok(())
}

/// Has a process of its own close `held`. Where none can be started it is closed here.
fn let_go_elsewhere(held: OwnedFd) {
    let mut holder = Command::new("cat");
    holder.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::from(held));
    let started = holder.spawn();
    // Ours is closed before the other's: that one ends when its input does.
    drop(holder);
    if let Ok(mut holder) = started {
        drop(holder.stdin.take());
        std::thread::spawn(move || holder.wait());
    }
}
