//! The kernel's list of mounts, as `/proc/PID/mountinfo` has it.
//!
//! A process sees the mounts of its mount namespace alone. What a mount is, its device number
//! says, in all of them.

use crate::device::DeviceNumber;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Its number among the mounts of this process.
    pub number: u64,
    /// The device that its files show.
    pub device: DeviceNumber,
    /// What of the file system is mounted: `/` for all of it, or the directory that was bound.
    pub root: PathBuf,
    /// Where it is mounted.
    pub directory: PathBuf,
    /// Type of the file system: `fuse.marram`.
    pub file_system: String,
    /// What is mounted: for us the pool, or the block device that stands for it.
    pub source: PathBuf,
    /// Options of this mount, comma-separated.
    pub options: String,
    /// Options of the file system, comma-separated.
    pub super_options: String,
}

impl MountEntry {
    /// Whether a Marram daemon serves it.
    pub fn is_marram(&self) -> bool {
        matches!(self.file_system.as_str(), "fuse.marram" | "fuseblk.marram")
    }

    /// Where `path`, which lies in this mount, is below the root of the file system.
    pub fn inner(&self, path: &Path) -> Option<PathBuf> {
        Some(self.root.join(path.strip_prefix(&self.directory).ok()?))
    }

    /// The user whose daemon serves it.
    pub fn owner_uid(&self) -> Option<u32> {
        let value = |option: &str| option.strip_prefix("user_id=")?.parse().ok();
        self.super_options.split(',').find_map(value)
    }
}

/// The list of this process; the later of two mounts on one directory comes later and hides the
/// other.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn mounts() -> io::Result<Vec<MountEntry>> {
    std::fs::read("/proc/self/mountinfo").map(|text| entries_of(&text))
}

/// The mounts in the text of a list.
pub fn entries_of(text: &[u8]) -> Vec<MountEntry> {
    text.split(|byte| *byte == b'\n').filter_map(parse).collect()
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
    use super::parse;
    use std::path::Path;

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
}
