//! The kernel's list of mounts, as `/proc/self/mountinfo` tells it.
//!
//! A process sees the mounts of its mount namespace alone, and the same path may lead to another
//! mount in each. What a mount is, its device number tells, in all of them.

mod namespace;

pub(crate) use namespace::{
    Sight, is_in_user_namespace, is_shown_elsewhere, own_namespace, sights_elsewhere,
};

pub(crate) use marram_client::control::{DeviceNumber, MountEntry};

use crate::error::{Error, Result};
use crate::identity::Identity;
use marram_client::control::entries_of;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::Path;

/// Reads the list; the later of two mounts on one directory comes later and hides the other.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn mounts() -> Result<Vec<MountEntry>> {
    mounts_in(Path::new("/proc/self/mountinfo"))
}

/// The same of another process.
fn mounts_in(path: &Path) -> Result<Vec<MountEntry>> {
    let text = fs::read(path).map_err(|error| Error::system("read", path, error))?;
    Ok(entries_of(&text))
}

/// The same of an open list, from its beginning, as it is now.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn mounts_of(table: &mut File) -> io::Result<Vec<MountEntry>> {
    let mut text = Vec::new();
    table.rewind()?;
    table.read_to_end(&mut text)?;
    Ok(entries_of(&text))
}

/// The mount on exactly `directory`.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn mount_on(directory: &Path) -> Result<Option<MountEntry>> {
    let on = |entry: &MountEntry| entry.directory == directory;
    Ok(mounts()?.into_iter().rev().find(on))
}

/// The mount that `path`, made absolute, lies in: the deepest one, and of those the latest.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn mount_of(path: &Path) -> Result<Option<MountEntry>> {
    let mut best: Option<MountEntry> = None;
    for entry in mounts()? {
        let depth = |entry: &MountEntry| entry.directory.components().count();
        let deeper = |best: &MountEntry| depth(&entry) >= depth(best);
        if path.starts_with(&entry.directory) && best.as_ref().is_none_or(deeper) {
            best = Some(entry);
        }
    }
    Ok(best)
}

/// The mount of the whole file system of which `entry` shows a directory; `entry` itself if it
/// shows all of it, or if no other does.
///
/// # Errors
/// When `/proc` cannot be read.
pub(crate) fn whole_of(entry: MountEntry) -> Result<MountEntry> {
    let is_all = |other: &MountEntry| other.root == Path::new("/");
    if is_all(&entry) {
        return Ok(entry);
    }
    let is_whole = |other: &MountEntry| other.device == entry.device && is_all(other);
    Ok(mounts()?.into_iter().find(is_whole).unwrap_or(entry))
}

/// Whether `entry` is a mount of the pool at `pool`, an absolute path: its source is the pool, or
/// the block device that stands for it.
pub(crate) fn shows(entry: &MountEntry, pool: &Path) -> bool {
    entry.is_marram() && is_source_of(&entry.source, pool)
}

/// Whether a mount with this source is one of the pool's.
fn is_source_of(source: &Path, pool: &Path) -> bool {
    let is_same = |source: Identity| Identity::of(pool).is_ok_and(|pool| source.is_same(pool));
    source == pool || Identity::of(source).is_ok_and(is_same)
}

#[cfg(test)]
mod tests {
    use super::{is_source_of, mount_of};
    use std::path::Path;

    #[test]
    fn a_mount_is_of_the_pool_that_it_names() {
        let pool = Path::new("/srv/work.pool");
        assert!(is_source_of(pool, pool));
        assert!(!is_source_of(Path::new("/srv/other.pool"), pool));
        assert!(!is_source_of(Path::new("/dev/null"), Path::new("/dev/zero")), "no block devices");
    }

    #[test]
    fn a_path_lies_in_the_deepest_mount() {
        let entry = mount_of(Path::new("/proc/self/status")).unwrap().unwrap();
        assert_eq!(entry.directory, Path::new("/proc"));
    }
}
