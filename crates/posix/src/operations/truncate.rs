//! Cutting and extending files.
//!
//! A file may have more sections past the new size than one batch should remove. Then the first
//! batch sets the size (from that moment nothing past it is part of the file), removes what it
//! can, and marks the inode: it has a **tail**, and an orphan item, so that the tail is removed
//! later, also after a crash. A file with a tail must not grow over it: whatever changes content
//! removes the tail first.

use crate::frame::change::Change;
use crate::frame::content::range_end;
use crate::frame::tail;
use crate::volume::Volume;
use marram_format::record::{OrphanReason, state};
use marram_records::inode::{check_regular, touch_content};
use marram_records::orphans::{orphan_item, orphan_key};
use marram_store::Admission;
use marram_vfs::Result;

/// Sets the size. The file has no tail unless it is cut.
pub(crate) fn set_size(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
    size: u64,
) -> Result<()> {
    let inode = change.inode(ino)?;
    check_regular(inode)?;
    range_end(size, 0)?;
    let (old_size, links) = (inode.size, inode.links);
    let had_tail = inode.state & state::TAIL != 0;
    let now = change.now;
    let inode = change.inode_mut(ino)?;
    inode.size = size;
    touch_content(inode, now);
    let is_empty = inode.data_bytes == 0 && inode.reserved_bytes == 0;
    // Emptying a file needs no space, whether or not it has content.
    if size < old_size || size == 0 {
        change.batch.admission = Admission::Freeing;
    }
    if size > old_size || is_empty {
        return Ok(());
    }
    let more = tail::cut_from(volume, change, ino, size, tail::piece_that_fits(volume))?;
    if more && !had_tail && links > 0 {
        let item = orphan_item(OrphanReason::Tail);
        change.batch.put(orphan_key(ino), item);
    }
    tail::mark_tail(change, ino, more, had_tail)
}
