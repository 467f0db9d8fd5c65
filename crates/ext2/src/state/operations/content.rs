//! The content of files: read, written, cut and extended.

use crate::error::failed;
use crate::inode::{Inode, SHORT_TARGET_BYTES_MAX, Time};
use crate::state::blocks::{Growth, file_bytes_max};
use crate::state::journal::log::Bytes;
use crate::state::operations::names::SETGID;
use crate::state::rules::Rule;
use crate::state::{State, Work, check_changeable, number};
use marram_patch::{After, Content, Discipline};
use marram_vfs::{Error, Ino, Kind, Result, Timestamp, WriteOptions};

/// Most bytes of a write that are one operation.
const PIECE_BYTES_MAX: usize = 1 << 20;
/// Most blocks that one operation cuts off, so that it has a bound.
const CUT_BLOCKS_MAX: u64 = 1 << 15;
/// Seconds after which an access time is due.
const DAY_SECONDS: i64 = 86_400;
/// Set-user-id bit.
const SETUID: u32 = 0o4000;
/// Execute permission of the group.
const GROUP_EXECUTE: u32 = 0o0010;

/// Permissions without setuid and, where it means a privilege, setgid.
pub(crate) fn without_privileges(permissions: u32) -> u32 {
    let setgid = if permissions & GROUP_EXECUTE != 0 { SETGID } else { 0 };
    permissions & !SETUID & !setgid
}

impl Work<'_> {
    /// Appends to `out` what a file has in a range.
    pub(crate) fn read_file(
        &mut self,
        ino: Ino,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let (_, inode) = self.regular(ino)?;
        let rest = inode.size().saturating_sub(offset).min(len as u64) as usize;
        let block_bytes = self.state.geometry.block_bytes as u64;
        let from = out.len();
        out.resize(from + rest, 0);
        let mut done = 0;
        while done < rest {
            let at = offset + done as u64;
            let within = (at % block_bytes) as usize;
            let first = self.map(&inode, at / block_bytes)?;
            let mut blocks = 1;
            let end = |blocks: u64| (blocks * block_bytes) as usize - within;
            while end(blocks) < rest - done {
                let next = self.map(&inode, at / block_bytes + blocks)?;
                let follows = if first == 0 { next == 0 } else { next == first + blocks };
                if !follows {
                    break;
                }
                blocks += 1;
            }
            let len = end(blocks).min(rest - done);
            if first != 0 {
                let part = &mut out[from + done..from + done + len];
                self.state.cache.read_run(first, within, part).map_err(failed)?;
            }
            done += len;
        }
        Ok(())
    }

    /// Moves the access time of what was read, if that is due.
    pub(crate) fn stamp_access(&mut self, ino: Ino, always: bool) -> Result<()> {
        let number = number(ino)?;
        let mut inode = self.inode(number)?;
        let accessed = inode.time(Time::Accessed);
        let is_due = accessed <= inode.time(Time::Modified)
            || accessed <= inode.time(Time::Changed)
            || self.now.seconds - accessed.seconds >= DAY_SECONDS;
        if always || is_due {
            inode.set_time(Time::Accessed, self.now);
            self.store(number, &inode, &[])?;
        }
        Ok(())
    }

    /// Writes one piece.
    pub(crate) fn write_file(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        options: WriteOptions<'_>,
    ) -> Result<()> {
        let (number, mut inode) = self.regular(ino)?;
        if data.is_empty() {
            return Ok(());
        }
        self.for_inode(number);
        check_changeable(&inode)?;
        let end = self.range_end(offset, data.len() as u64)?;
        self.drop_capability(number, &mut inode)?;
        let block_bytes = self.state.geometry.block_bytes as u64;
        let size = inode.size();
        if end > size {
            self.cut_leftovers(number, &mut inode)?;
        }
        let mut growth = Growth::of(number);
        growth.after.extend(self.zero_gap(&inode, offset)?);
        let mut written = Vec::new();
        let mut at = offset;
        while at < end {
            let part_end = ((at / block_bytes + 1) * block_bytes).min(end);
            let part = &data[(at - offset) as usize..(part_end - offset) as usize];
            let steps = self.write_block((number, &mut inode), &mut growth, at, part)?;
            written.extend(steps);
            at = part_end;
        }
        let mut after = self.end_growth(&mut inode, growth)?;
        if end > size {
            after.extend(self.clearing_of(number));
            inode.set_size(end);
        }
        if options.clear_privileges {
            let kept = without_privileges(inode.permissions());
            inode.set_mode(inode.mode() & !0o7777 | kept);
        }
        if !options.keep_times {
            inode.touch_content(self.now);
        }
        written.extend(self.store(number, &inode, &after)?);
        self.written = Some((number, written));
        Ok(())
    }

    /// The end of a range, if it lies within the largest file.
    pub(crate) fn range_end(&self, offset: u64, len: u64) -> Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= file_bytes_max(&self.state.geometry) => Ok(end),
            _ => Err(Error::FileTooLarge),
        }
    }

    /// Writes a part of a block.
    fn write_block(
        &mut self,
        (number, inode): (u64, &mut Inode),
        growth: &mut Growth,
        at: u64,
        part: &[u8],
    ) -> Result<Vec<After>> {
        let block_bytes = self.state.geometry.block_bytes;
        let (which, within) = (at / block_bytes as u64, (at % block_bytes as u64) as usize);
        // Blocks of the file that this operation has added lie before.
        let known = self.map(inode, which)?;
        if known != 0 {
            let place = (known, Content::Data);
            if part.len() == block_bytes {
                return Ok(self.plan.fresh(&self.state.cache, place, part, &[]));
            }
            let cache = &mut self.state.cache;
            return self.plan.write(cache, place, within, part, &[]).map_err(failed);
        }
        let goal = match growth.last {
            0 => self.goal(number, inode, which)?,
            last => last + 1,
        };
        let (block, mut after) = self.take_block(goal)?;
        growth.last = block;
        let mut bytes = vec![0; block_bytes];
        bytes[within..within + part.len()].copy_from_slice(part);
        let steps = self.plan.fresh(&self.state.cache, (block, Content::Data), &bytes, &[]);
        after.extend(&steps);
        let after = self.by(Rule::PointerAfterBlock, after);
        self.point(inode, growth, (which, block), after)?;
        Ok(steps)
    }

    /// Makes the bytes between the end of a file and `until` zeros, as far as its last block goes.
    fn zero_gap(&mut self, inode: &Inode, until: u64) -> Result<Vec<After>> {
        let block_bytes = self.state.geometry.block_bytes as u64;
        let size = inode.size();
        let end = size.next_multiple_of(block_bytes).min(until);
        if size >= end {
            return Ok(Vec::new());
        }
        let block = self.map(inode, size / block_bytes)?;
        if block == 0 {
            return Ok(Vec::new());
        }
        let (within, zeros) = ((size % block_bytes) as usize, vec![0; (end - size) as usize]);
        let cache = &mut self.state.cache;
        let place = (block, Content::Data);
        let mut after = self.plan.write(cache, place, within, &zeros, &[]).map_err(failed)?;
        // They may be zeros here that are still to be written.
        after.push(After::Bytes { block, at: within, len: zeros.len() });
        Ok(after)
    }

    /// Gives a file another size, and stores its inode.
    pub(crate) fn resize(&mut self, number: u64, inode: &mut Inode, size: u64) -> Result<()> {
        self.range_end(size, 0)?;
        self.for_inode(number);
        let old = inode.size();
        if size >= old {
            self.cut_leftovers(number, inode)?;
            let mut after = self.zero_gap(inode, size)?;
            after.extend(self.clearing_of(number));
            inode.set_size(size);
            self.store(number, inode, &after)?;
            return Ok(());
        }
        self.resize_to(number, inode, size)
    }

    /// Cuts a file to a size that is not above its own.
    pub(crate) fn resize_to(&mut self, number: u64, inode: &mut Inode, size: u64) -> Result<()> {
        let block_bytes = self.state.geometry.block_bytes as u64;
        let keep = size.div_ceil(block_bytes);
        inode.set_size(size);
        let first = self.last_blocks(inode, keep, self.state.cut_blocks_max())?;
        let steps = if first > keep && self.state.log.is_some() {
            // A crash may come between the operations that cut it.
            self.add_orphan(number, inode)?;
            self.to_cut = Some((number, keep));
            self.store(number, inode, &[])?
        } else {
            self.cut(number, inode, keep, &[])?
        };
        self.zero_end((number, inode), size, &steps)
    }

    /// Makes the bytes behind an end of a file zeros, as far as its block goes: whatever extends
    /// the file later finds them there.
    pub(crate) fn zero_end(
        &mut self,
        (number, inode): (u64, &Inode),
        size: u64,
        steps: &[After],
    ) -> Result<()> {
        let block_bytes = self.state.geometry.block_bytes as u64;
        let within = (size % block_bytes) as usize;
        if within == 0 {
            return Ok(());
        }
        let block = self.map(inode, size / block_bytes)?;
        if block == 0 {
            return Ok(());
        }
        let zeros = vec![0; block_bytes as usize - within];
        let place = (block, Content::Data);
        let cache = &mut self.state.cache;
        let cleared = self.plan.write(cache, place, within, &zeros, steps).map_err(failed)?;
        self.note_cleared(number, cleared);
        Ok(())
    }

    /// Cuts off what a crash has left behind the end of a file that is about to grow, unless that
    /// is known to be nothing: it would become content.
    fn cut_leftovers(&mut self, number: u64, inode: &mut Inode) -> Result<()> {
        if self.state.uncut.as_ref().is_none_or(|cut| cut.contains(&number)) {
            return Ok(());
        }
        let keep = inode.size().div_ceil(self.state.geometry.block_bytes as u64);
        if self.walk(inode, true)?.end > keep {
            self.cut(number, inode, keep, &[])?;
        } else if let Some(cut) = &mut self.state.uncut {
            cut.insert(number);
        }
        Ok(())
    }

    /// Notes what clears pointers and bytes behind the end of a file. Under soft updates a crash
    /// may come before it.
    pub(crate) fn note_cleared(&mut self, number: u64, steps: Vec<After>) {
        if self.state.discipline == Discipline::SoftUpdates && !steps.is_empty() {
            self.cleared.push((number, steps));
        }
    }

    /// What a new size of a file waits for, if it is larger: that nothing is left behind the old
    /// end.
    fn clearing_of(&mut self, number: u64) -> Vec<After> {
        let before = self.state.cleared.get(&number).into_iter().flatten();
        let now = self.cleared.iter().filter(|(of, _)| *of == number);
        let steps = now.flat_map(|(_, steps)| steps.iter().copied());
        let after = before.map(|patch| After::Patch(*patch)).chain(steps).collect();
        self.by(Rule::SizeAfterCleared, after)
    }

    /// One of the operations by which a file is cut to so many blocks; whether it was the last.
    fn cut_piece(&mut self, number: u64, keep: u64, after: &[After]) -> Result<bool> {
        let mut inode = self.raw_inode(number)?;
        self.for_inode(number);
        let from = self.last_blocks(&inode, keep, self.state.cut_blocks_max())?;
        let block_bytes = self.state.geometry.block_bytes as u64;
        inode.set_size(inode.size().min(from * block_bytes));
        if from == keep && inode.links() > 0 {
            self.drop_orphan(number, &mut inode)?;
            inode.set_removed(0);
        }
        self.cut(number, &mut inode, from, after)?;
        Ok(from == keep)
    }
}

impl State {
    /// Most blocks that one operation cuts off. Each may lie in a group of its own, and what one
    /// operation changes is in one transaction.
    fn cut_blocks_max(&self) -> u64 {
        self.log.as_ref().map_or(CUT_BLOCKS_MAX, |log| {
            let most = log.group_blocks_max() as u64;
            if self.geometry.groups <= most / 2 { CUT_BLOCKS_MAX } else { most / 3 }
        })
    }

    /// Most bytes of a write that are one operation.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        self.log.as_ref().map_or(PIECE_BYTES_MAX, |log| {
            let most = log.group_blocks_max();
            let is_apart = log.bytes != Bytes::Logged && self.engaged.is_empty();
            let is_small = is_apart && self.geometry.groups <= most as u64 / 2;
            let part = most / 3 * self.geometry.block_bytes;
            if is_small { PIECE_BYTES_MAX } else { part.min(PIECE_BYTES_MAX) }
        })
    }

    /// Cuts a file to so many blocks once `after` is durable, in operations that each have a bound.
    pub(crate) fn cut_in_pieces(
        &mut self,
        ino: Ino,
        keep: u64,
        after: &[After],
        now: Timestamp,
    ) -> Result<()> {
        let number = number(ino)?;
        if !has_blocks(&self.raw_inode(number)?) {
            return Ok(());
        }
        loop {
            self.make_room()?;
            let mut work = Work::new(self, now);
            let done = work.cut_piece(number, keep, after);
            if work.end(done)? {
                return Ok(());
            }
        }
    }
}

/// Whether pointers of an inode lead to blocks.
pub(crate) fn has_blocks(inode: &Inode) -> bool {
    match inode.kind() {
        Some(Kind::Regular | Kind::Directory) => true,
        Some(Kind::Symlink) => inode.size() > SHORT_TARGET_BYTES_MAX as u64,
        _ => false,
    }
}
