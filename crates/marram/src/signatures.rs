//! What is on a file or device already, by the marks that other systems leave.
//!
//! `create` overwrites nothing that somebody may want: before it touches a file or device it
//! looks here, and names what it found. The table knows the common ones; a file that is not
//! known but has bytes in it is refused all the same, so a missing mark costs a name, not data.

use rustix::fs::SeekFrom;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How much of the start is looked at for marks, in bytes.
const HEAD_BYTES: usize = 1 << 20;
/// How much is read for bytes of any kind where a file tells where it has some, in bytes.
const SCAN_BYTES_MAX: u64 = 64 << 20;
/// How many samples are looked at beyond that, the last one at the end.
const SAMPLES: u64 = 64;
/// How large each is, in bytes.
const SAMPLE_BYTES: u64 = 64 << 10;

/// One mark: these bytes at this offset mean that.
struct Mark {
    name: &'static str,
    offset: u64,
    bytes: &'static [u8],
}

const fn mark(name: &'static str, offset: u64, bytes: &'static [u8]) -> Mark {
    Mark { name, offset, bytes }
}

/// Marks in the order in which they are looked for: what holds others comes last, since a file
/// system that was written over a partition table is what matters.
const MARKS: &[Mark] = &[
    mark("an ext2, ext3 or ext4 file system", 0x438, b"\x53\xef"),
    mark("an XFS file system", 0, b"XFSB"),
    mark("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    mark("a bcachefs file system", 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    mark("an F2FS file system", 0x400, b"\x10\x20\xf5\xf2"),
    mark("a squashfs image", 0, b"hsqs"),
    mark("an EROFS image", 0x400, b"\xe2\xe1\xf5\xe0"),
    mark("an ISO 9660 image", 0x8001, b"CD001"),
    mark("a UDF file system", 0x8001, b"BEA01"),
    mark("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    mark("an LVM physical volume", 0x218, b"LVM2 001"),
    mark("an LVM physical volume", 0x018, b"LVM2 001"),
    mark("a member of a Linux RAID array", 0x1000, b"\xfc\x4e\x2b\xa9"),
    mark("a member of a Linux RAID array", 0, b"\xfc\x4e\x2b\xa9"),
    mark("swap space", 4086, b"SWAPSPACE2"),
    mark("swap space", 4086, b"SWAP-SPACE"),
    mark("an NTFS file system", 3, b"NTFS    "),
    mark("an exFAT file system", 3, b"EXFAT   "),
    mark("a FAT file system", 0x52, b"FAT32   "),
    mark("a FAT file system", 0x36, b"FAT16   "),
    mark("a FAT file system", 0x36, b"FAT12   "),
    mark("a JFS file system", 0x8000, b"JFS1"),
    mark("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    mark("a GPT partition table", 512, b"EFI PART"),
    mark("a QEMU disk image", 0, b"QFI\xfb"),
    mark("a MBR partition table or boot sector", 510, b"\x55\xaa"),
];

/// Where the uberblocks of ZFS lie in a label, and how far apart, in bytes.
const ZFS_UBERBLOCKS: std::ops::Range<u64> = 0x2_0000..0x4_0000;
const ZFS_UBERBLOCK_STEP_BYTES: usize = 1024;
const ZFS_MAGIC: &[u8] = b"\x0c\xb1\xba\x00\x00\x00\x00\x00";

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing but zeros at the start, and no mark.
    Nothing,
    /// Something with a name.
    Known(&'static str),
    /// Bytes that are not zero, and no mark.
    Unknown,
}

/// Looks at the start of a file or device of `len` bytes, and at samples of the rest.
///
/// # Errors
/// A failed read.
pub(crate) fn find(file: &File, len: u64) -> io::Result<Found> {
    let mut head = vec![0; HEAD_BYTES.min(usize::try_from(len).unwrap_or(HEAD_BYTES))];
    let read = read_up_to(file, &mut head, 0)?;
    head.truncate(read);
    if let Some(known) = known(&head) {
        return Ok(Found::Known(known));
    }
    let used = head.iter().any(|byte| *byte != 0)
        || any_data_is_used(file, len)?
        || any_sample_is_used(file, len)?;
    Ok(if used { Found::Unknown } else { Found::Nothing })
}

/// Whether there are bytes that are not zero in the first data behind the head, holes left out: so
/// that a little data far inside a sparse file is found.
fn any_data_is_used(file: &File, len: u64) -> io::Result<bool> {
    let mut piece = vec![0; HEAD_BYTES];
    let (mut at, mut left) = (0, SCAN_BYTES_MAX);
    while at < len && left > 0 {
        match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => at = data,
            // No more data, or nothing that can tell (a device).
            Err(_) => return Ok(false),
        }
        let read = read_up_to(file, &mut piece, at)?;
        if piece[..read].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
        at += HEAD_BYTES as u64;
        left = left.saturating_sub(HEAD_BYTES as u64);
    }
    Ok(false)
}

/// Whether there are bytes that are not zero so far as samples tell: reading a whole device could
/// take hours.
fn any_sample_is_used(file: &File, len: u64) -> io::Result<bool> {
    let step = (len / SAMPLES).max(SAMPLE_BYTES);
    let last = len.saturating_sub(SAMPLE_BYTES);
    let mut sample = vec![0; usize::try_from(SAMPLE_BYTES).unwrap_or(HEAD_BYTES)];
    for at in (1..SAMPLES).map(|index| index * step).chain([last]) {
        let read = read_up_to(file, &mut sample, at.min(last))?;
        if sample[..read].iter().any(|byte| *byte != 0) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn known(head: &[u8]) -> Option<&'static str> {
    let has = |mark: &&Mark| {
        usize::try_from(mark.offset)
            .ok()
            .and_then(|offset| head.get(offset..))
            .is_some_and(|rest| rest.starts_with(mark.bytes))
    };
    if let Some(found) = MARKS.iter().find(has) {
        return Some(found.name);
    }
    is_zfs(head).then_some("a ZFS pool")
}

fn is_zfs(head: &[u8]) -> bool {
    let start = usize::try_from(ZFS_UBERBLOCKS.start).unwrap_or(usize::MAX);
    let end = usize::try_from(ZFS_UBERBLOCKS.end).unwrap_or(usize::MAX);
    let Some(area) = head.get(start..end.min(head.len())) else {
        return false;
    };
    area.chunks(ZFS_UBERBLOCK_STEP_BYTES).any(|slot| slot.starts_with(ZFS_MAGIC))
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::{Found, MARKS, ZFS_MAGIC, find};
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    fn found_with(offset: u64, bytes: &[u8]) -> Found {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        file.write_all_at(bytes, offset).unwrap();
        find(&file, 4 << 20).unwrap()
    }

    #[test]
    fn every_mark_is_found_where_it_stands() {
        for mark in MARKS {
            assert_eq!(found_with(mark.offset, mark.bytes), Found::Known(mark.name));
        }
        assert_eq!(found_with(0x2_0400, ZFS_MAGIC), Found::Known("a ZFS pool"));
    }

    #[test]
    fn zeros_are_nothing_and_other_bytes_are_something() {
        assert_eq!(found_with(0, b""), Found::Nothing);
        for offset in [700_000, 2 << 20, (4 << 20) - 1] {
            assert_eq!(found_with(offset, b"x"), Found::Unknown);
        }
    }

    #[test]
    fn a_file_shorter_than_a_mark_is_looked_at_as_far_as_it_goes() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(find(&file, 0).unwrap(), Found::Nothing);
        file.write_all(b"hi").unwrap();
        assert_eq!(find(&file, 2).unwrap(), Found::Unknown);
    }
}
