//! The kernel's list of mounts, as `/proc/self/mountinfo` tells it.
//!
//! A process sees the mounts of its mount namespace alone, and the same path may lead to another
//! mount in each. What a mount is, its device number tells, in all of them.

mod device;
mod namespace;

pub(crate) use device::DeviceNumber;
pub(crate) use namespace::{
    Sight, is_in_user_namespace, is_shown_elsewhere, own_namespace, sights_elsewhere,
};

use crate::error::{Error, Result};
use crate::identity::Identity;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Its number among the mounts of this process.
    pub(crate) number: u64,
    /// The device that its files show.
    pub(crate) device: DeviceNumber,
    /// What of the file system is mounted: `/` for all of it, or the directory that was bound.
    pub(crate) root: PathBuf,
    /// Where it is mounted.
    pub(crate) directory: PathBuf,
    /// Type of the file system: `fuse.marram`.
    pub(crate) file_system: String,
    /// What is mounted: for us the pool, or the block device that stands for it.
    pub(crate) source: PathBuf,
    /// Options of this mount, comma-separated.
    pub(crate) options: String,
    /// Options of the file system, comma-separated.
    pub(crate) super_options: String,
}

impl MountEntry {
    /// Whether a Marram daemon serves it.
    pub(crate) fn is_marram(&self) -> bool {
        matches!(self.file_system.as_str(), "fuse.marram" | "fuseblk.marram")
    }

    /// Whether it is a mount of the pool at `pool`, an absolute path: its source is the pool, or
    /// the block device that stands for it.
    pub(crate) fn shows(&self, pool: &Path) -> bool {
        self.is_marram() && is_source_of(&self.source, pool)
    }

    /// Where `path`, which lies in this mount, is below the root of the file system.
    pub(crate) fn inner(&self, path: &Path) -> Option<PathBuf> {
        Some(self.root.join(path.strip_prefix(&self.directory).ok()?))
    }

    /// The user whose daemon serves it.
    pub(crate) fn owner_uid(&self) -> Option<u32> {
        let value = |option: &str| option.strip_prefix("user_id=")?.parse().ok();
        self.super_options.split(',').find_map(value)
    }
}

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

fn entries_of(text: &[u8]) -> Vec<MountEntry> {
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
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

/// Whether a mount with this source is one of the pool's.
fn is_source_of(source: &Path, pool: &Path) -> bool {
    let is_same = |source: Identity| Identity::of(pool).is_ok_and(|pool| source.is_same(pool));
    source == pool || Identity::of(source).is_ok_and(is_same)
}

fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let number = text(fields.next()?)?.parse().ok()?;
    let device = text(fields.nth(1)?)?.parse().ok()?;
    let root = unescape(fields.next()?);
    let directory = unescape(fields.next()?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    fields.find(|field| *field == b"-")?;
    let file_system = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let super_options = String::from_utf8_lossy(fields.next()?).into_owned();
    let entry =
        MountEntry { number, device, root, directory, file_system, source, options, super_options };
    Some(entry)
}

fn text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(field).ok()
}

/// Undoes the kernel's `\040` for bytes that would end a field.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        match (first, octal(tail)) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits.get(..3)?).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::{is_source_of, mount_of, parse};
    use std::path::Path;

    #[test]
    fn a_mount_is_of_the_pool_that_it_names() {
        let pool = Path::new("/srv/work.pool");
        assert!(is_source_of(pool, pool));
        assert!(!is_source_of(Path::new("/srv/other.pool"), pool));
        assert!(!is_source_of(Path::new("/dev/null"), Path::new("/dev/zero")), "no block devices");
    }

    #[test]
    fn a_line_with_optional_fields_and_escapes_is_read() {
        let line = [
            &br"36 35 98:0 / /mnt/a\040b rw,noatime shared:1 - fuse.marram /w/x\134y"[..],
            b"rw,user_id=1000,group_id=0",
        ]
        .join(&b' ');
        let entry = parse(&line).unwrap();
        assert_eq!((entry.number, entry.device), (36, (98, 0).into()));
        assert_eq!(entry.directory, Path::new("/mnt/a b"));
        assert_eq!(entry.source, Path::new(r"/w/x\y"));
        assert_eq!(entry.owner_uid(), Some(1000));
        assert!(entry.is_marram());
    }

    #[test]
    fn a_bound_directory_has_the_paths_of_its_file_system() {
        let entry = parse(b"37 35 0:9 /d/e /srv/x rw - fuse.marram p rw").unwrap();
        assert_eq!(entry.inner(Path::new("/srv/x/y")).unwrap(), Path::new("/d/e/y"));
        assert_eq!(entry.inner(Path::new("/srv/x")).unwrap(), Path::new("/d/e"));
        assert_eq!(entry.inner(Path::new("/srv")), None);
    }

    #[test]
    fn half_a_line_is_no_mount() {
        for line in [&b""[..], b"36 35", b"36 35 98:0 / /mnt rw shared:1"] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn a_path_lies_in_the_deepest_mount() {
        let entry = mount_of(Path::new("/proc/self/status")).unwrap().unwrap();
        assert_eq!(entry.directory, Path::new("/proc"));
    }
}
