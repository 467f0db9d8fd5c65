//! The kernel's table of mounts, `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Major and minor number of the device that its files show.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Its type, as `fuse.marram`.
    pub kind: String,
    /// What it shows as its source.
    pub source: OsString,
}

/// All mounts that this process sees, oldest first; a later one on the same directory hides the
/// earlier. None if the table cannot be read.
pub fn mounts() -> Vec<MountEntry> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// The mount that is seen on `mountpoint`.
pub(crate) fn on(mountpoint: &Path) -> Option<MountEntry> {
    mounts().into_iter().rev().find(|mount| mount.mountpoint == mountpoint)
}

/// One line: number, parent, device, root, mount point, flags, optional fields, `-`, type, source.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let mountpoint = unescape(fields.nth(1)?);
    let kind =
        String::from_utf8(unescape(fields.by_ref().skip_while(|field| *field != b"-").nth(1)?));
    Some(MountEntry {
        device: (major.parse().ok()?, minor.parse().ok()?),
        mountpoint: OsString::from_vec(mountpoint).into(),
        kind: kind.ok()?,
        source: OsString::from_vec(unescape(fields.next()?)),
    })
}

/// Blanks and backslashes come as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|_| *first == b'\\').and_then(octal);
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    bytes
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines_are_taken_apart() {
        let line = b"36 35 0:42 / /mnt/a\\040b rw,relatime shared:1 - fuse.marram tank\\134x rw";
        let mount = parse(line).expect("a mount");
        assert_eq!(mount.device, (0, 42));
        assert_eq!(mount.mountpoint.to_str(), Some("/mnt/a b"));
        assert_eq!(mount.kind, "fuse.marram");
        assert_eq!(mount.source.to_str(), Some("tank\\x"));
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"36 35 0:42 / /mnt rw - "), None);
    }
}
