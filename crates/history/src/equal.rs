//! Whether files of different states, with different numbers, are the same to a user.

use crate::changes::{InodeChange, Pair};
use crate::diff::{attribute_changes, content_ranges, xattr_changes};
use crate::ranges::ranges;
use marram_format::record::{Inode, InodeKind};
use marram_records::sections::Section;
use marram_records::state::State;
use marram_vfs::Result;
use std::ops::Range;

/// The ranges in which the contents of two files differ.
pub(crate) fn file_ranges(
    (a, inode_a, ino_a): (&State, &Inode, u64),
    (b, inode_b, ino_b): (&State, &Inode, u64),
) -> Result<Vec<Range<u64>>> {
    if inode_a.kind != InodeKind::Regular || inode_b.kind != InodeKind::Regular {
        return Ok(Vec::new());
    }
    let before = |section: Section| Pair { before: Some(section), after: None };
    let after = |section: Section| Pair { before: None, after: Some(section) };
    let mut pairs: Vec<_> = a.sections(ino_a, inode_a.size)?.into_iter().map(before).collect();
    pairs.extend(b.sections(ino_b, inode_b.size)?.into_iter().map(after));
    ranges(a, b, &pairs, (inode_a.size, inode_b.size))
}

/// Whether two inodes that are no directories have the same content and attributes, times aside.
pub(crate) fn same_file(a: (&State, u64), b: (&State, u64)) -> Result<bool> {
    let (Some(inode_a), Some(inode_b)) = (a.0.inode(a.1)?, b.0.inode(b.1)?) else {
        return Ok(false);
    };
    Ok(inode_a.kind == inode_b.kind
        && inode_a.device == inode_b.device
        && inode_a.size == inode_b.size
        && attribute_changes(&inode_a, &inode_b).is_empty()
        && a.0.target(a.1)? == b.0.target(b.1)?
        && a.0.xattrs(a.1)? == b.0.xattrs(b.1)?
        && file_ranges((a.0, &inode_a, a.1), (b.0, &inode_b, b.1))?.is_empty())
}

/// Whether anything but names and times has changed of an inode that stayed.
pub(crate) fn is_changed(
    (before, after): (&State, &State),
    ino: u64,
    change: &InodeChange,
) -> Result<bool> {
    let Some((a, b)) = change.stayed() else {
        return Ok(false);
    };
    Ok(!attribute_changes(a, b).is_empty()
        || !xattr_changes(ino, before, after, &change.xattrs)?.is_empty()
        || !content_ranges(before, after, change)?.0.is_empty())
}
