//! The content of files: read, written, cut and extended.
//!
//! Bytes behind the size are free memory: appended bytes are stored there before the size counts
//! them. Bytes that count are changed word by word if they are few; else a page is copied.

use crate::layout::{FLAG_INLINE, PAGE, field, pages_of};
use crate::state::commit::Plan;
use crate::state::sharing::{Leaves, Way};
use crate::state::tree::{Pages, Tree};
use crate::state::{Basics, Node, State};
use crate::time::Which;
use marram_vfs::{Error, FILE_BYTES_MAX, Ino, Kind, Result, Timestamp, WriteOptions};
use std::ops::Range;

/// Most bytes of a write that are one operation.
pub(crate) const PIECE_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a page that are changed in place; more are copied with their page.
const IN_PLACE_MAX: u64 = 1024;
/// Set-user-id bit.
const SETUID: u32 = 0o4000;
/// Execute permission of the group.
const GROUP_EXECUTE: u32 = 0o0010;

/// The end of a range, if it lies within the largest file.
fn range_end(offset: u64, len: u64) -> Result<u64> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(end),
        _ => Err(Error::FileTooLarge),
    }
}

/// Permissions without setuid and, where it means a privilege, setgid.
pub(crate) fn without_privileges(permissions: u32) -> u32 {
    let setgid = if permissions & GROUP_EXECUTE != 0 { crate::state::inode::SETGID } else { 0 };
    permissions & !SETUID & !setgid
}

/// The way to the pages of a file.
fn content_way(node: Node, valid: u64) -> Way {
    Way { root_at: node.field(field::ROOT), valid, leaves: Leaves::Bytes, lowest: 0 }
}

/// A file that is written to.
struct Written {
    node: Node,
    /// Its size before and afterwards.
    size: u64,
    new_size: u64,
    pages: Pages,
    /// How many of the pages lie where none was.
    added: u64,
    plan: Plan,
}

/// The part of a write that lies in one page.
struct Part<'d> {
    /// Place of the page.
    place: u64,
    /// Where in the page it begins.
    start: u64,
    data: &'d [u8],
}

impl Part<'_> {
    fn end(&self) -> u64 {
        self.start + self.data.len() as u64
    }
}

impl State {
    /// Appends to `out` what a file has in a range.
    pub(crate) fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let (node, basics) = self.regular(ino)?;
        let rest = basics.size.saturating_sub(offset).min(len as u64);
        self.read_range(node, offset..offset.saturating_add(rest), out)
    }

    fn read_range(&self, node: Node, range: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let root = self.memory.word(node.field(field::ROOT))?;
        let mut at = range.start;
        while at < range.end {
            let end = (at / PAGE + 1).saturating_mul(PAGE).min(range.end);
            let from = out.len();
            out.resize(from + (end - at) as usize, 0);
            let page = self.page_at(root, at / PAGE)?;
            if page != 0 {
                self.memory.read(page + at % PAGE, &mut out[from..])?;
            }
            at = end;
        }
        Ok(())
    }

    /// The target of a symbolic link.
    pub(crate) fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let (node, basics) = self.inode(ino)?;
        if basics.kind()? != Kind::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        let mut target = Vec::new();
        if basics.flags & FLAG_INLINE == 0 {
            self.read_range(node, 0..basics.size.min(PAGE), &mut target)?;
            return Ok(target);
        }
        target.resize(basics.size.min(crate::layout::INLINE_BYTES_MAX as u64) as usize, 0);
        self.memory.read(node.field(field::INLINE), &mut target)?;
        Ok(target)
    }

    /// Moves the access time of what was read, if that is due.
    pub(crate) fn stamp_access(&mut self, ino: Ino, now: Timestamp, always: bool) -> Result<()> {
        let node = self.node(ino)?;
        if !always && !self.is_access_due(node, now)? {
            return Ok(());
        }
        match self.own(ino) {
            Ok(node) => self.stamp(node, Which::Accessed, now),
            // A full image can be read.
            Err(Error::NoSpace) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes one piece.
    pub(crate) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        options: WriteOptions<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let (node, basics) = self.regular(ino)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = range_end(offset, data.len() as u64)?;
        let node = self.own(Ino(node.ino))?;
        let size = basics.size;
        let new_size = size.max(end);
        let (pages, plan) = (Pages::new(), Plan::default());
        let mut written = Written { node, size, new_size, pages, added: 0, plan };
        let mut at = offset;
        while at < end {
            let part_end = (at / PAGE + 1).saturating_mul(PAGE).min(end);
            let data = &data[(at - offset) as usize..(part_end - offset) as usize];
            let part = Part { place: at / PAGE, start: at % PAGE, data };
            self.write_part(&mut written, &part)?;
            at = part_end;
        }
        self.zero_gap(node, size, offset)?;
        self.end_write(written, &basics, options)?;
        if options.keep_times { Ok(()) } else { self.stamp_content(node, now) }
    }

    /// Puts the pages of a write in place, and makes all of it happen.
    fn end_write(
        &mut self,
        written: Written,
        basics: &Basics,
        options: WriteOptions<'_>,
    ) -> Result<()> {
        let Written { node, size, new_size, pages, added, mut plan } = written;
        self.plan_no_capability(node, basics, &mut plan)?;
        if options.clear_privileges {
            let kept = without_privileges(basics.permissions());
            if kept != basics.permissions() {
                let mode = u64::from(basics.mode & !0o7777 | kept);
                plan.narrow(node.field(field::MODE), 2, mode);
            }
        }
        self.resize_tree(node, (size, new_size), &pages, &mut plan)?;
        if new_size != size {
            plan.edit(node.field(field::SIZE), new_size);
        }
        self.commit_with_times(&plan)?;
        self.content_counts.add((self.dataset.number, node.ino), added);
        Ok(())
    }

    /// Puts pages into the tree of a file that grows or keeps its size.
    fn resize_tree(
        &mut self,
        node: Node,
        (size, new_size): (u64, u64),
        pages: &Pages,
        plan: &mut Plan,
    ) -> Result<()> {
        let (valid, end) = (pages_of(size), pages_of(new_size));
        if pages.is_empty() && valid == end {
            return Ok(());
        }
        self.put(Tree { way: content_way(node, valid), end }, pages, plan)
    }

    /// Makes the bytes between the size and `until` zeros, as far as the page of the size goes.
    fn zero_gap(&mut self, node: Node, size: u64, until: u64) -> Result<()> {
        let end = size.next_multiple_of(PAGE).min(until);
        if size >= end {
            return Ok(());
        }
        let page = self.own_way(content_way(node, pages_of(size)), size / PAGE)?;
        if page == 0 {
            return Ok(());
        }
        self.memory.fill(page + size % PAGE, &vec![0; (end - size) as usize])
    }

    fn write_part(&mut self, written: &mut Written, part: &Part<'_>) -> Result<()> {
        let way = content_way(written.node, pages_of(written.size));
        let old = match part.place < way.valid {
            true => self.page_at(self.memory.word(way.root_at)?, part.place)?,
            false => 0,
        };
        let begin = part.place * PAGE;
        // Bytes of the page that count, before and afterwards.
        let live = written.size.saturating_sub(begin).min(PAGE);
        let shown = (written.new_size - begin).min(PAGE);
        if old == 0 {
            written.added += 1;
            return self.write_new_page(written, part, vec![0; shown as usize]);
        }
        let changed = part.end().min(live).saturating_sub(part.start);
        if changed > IN_PLACE_MAX {
            let mut bytes = vec![0; shown as usize];
            self.memory.read(old, &mut bytes[..live as usize])?;
            return self.write_new_page(written, part, bytes);
        }
        let old = self.own_way(way, part.place)?;
        let free = live.max(part.start);
        if free < part.end() {
            let data = &part.data[(free - part.start) as usize..];
            self.memory.fill(old + free, data)?;
        }
        if changed > 0 {
            self.plan_words(&mut written.plan, old, part, changed)?;
        }
        Ok(())
    }

    /// A page that has what the file has there afterwards.
    fn write_new_page(
        &mut self,
        written: &mut Written,
        part: &Part<'_>,
        mut bytes: Vec<u8>,
    ) -> Result<()> {
        let page = self.take_page()?;
        bytes[part.start as usize..part.end() as usize].copy_from_slice(part.data);
        self.memory.fill(page, &bytes)?;
        written.pages.insert(part.place, page);
        Ok(())
    }

    /// Plans the words that the first `changed` bytes of a part change.
    fn plan_words(
        &mut self,
        plan: &mut Plan,
        page: u64,
        part: &Part<'_>,
        changed: u64,
    ) -> Result<()> {
        let end = part.start + changed;
        let mut at = part.start / 8 * 8;
        while at < end {
            let mut bytes = self.memory.word(page + at)?.to_le_bytes();
            for (which, byte) in bytes.iter_mut().enumerate() {
                let place = at + which as u64;
                if (part.start..part.end()).contains(&place) {
                    *byte = part.data[(place - part.start) as usize];
                }
            }
            plan.edit(page + at, u64::from_le_bytes(bytes));
            at += 8;
        }
        Ok(())
    }

    /// Plans a new size: what is cut off is free afterwards, what is added is a hole.
    pub(crate) fn plan_size(
        &mut self,
        node: Node,
        basics: &Basics,
        size: u64,
        plan: &mut Plan,
    ) -> Result<()> {
        range_end(size, 0)?;
        if size == basics.size {
            return Ok(());
        }
        if size < basics.size {
            self.content_counts.drop((self.dataset.number, node.ino));
            self.free_from(content_way(node, pages_of(basics.size)), pages_of(size))?;
        } else {
            self.zero_gap(node, basics.size, size)?;
            self.resize_tree(node, (basics.size, size), &Pages::new(), plan)?;
        }
        plan.edit(node.field(field::SIZE), size);
        Ok(())
    }
}
