//! Which blocks a file has: pointers in its inode, and in blocks of pointers up to three deep.
//!
//! A pointer is written after what it leads to, and freed is what no pointer leads to any more. A
//! file of an ext4 image may have extents in place of pointers; those are only read.

use crate::bytes::u32_at;
use crate::inode::{DIRECT, FLAG_EXTENTS, Inode};
use crate::state::rules::Rule;
use crate::state::{Work, damaged};
use crate::superblock::Geometry;
use marram_patch::{After, Content, Owner};
use marram_vfs::{Error, Result};

/// Sectors that an inode can count without flags.
const SECTORS_MAX: u64 = u32::MAX as u64;
/// Largest file where the image does not allow large ones.
const SMALL_FILE_BYTES_MAX: u64 = i32::MAX as u64;

/// Where a block of a file is named: a slot of the inode, then places in blocks of pointers.
#[derive(Clone, Copy, Debug)]
struct Path {
    slot: usize,
    places: [u64; 3],
    depth: usize,
}

/// Largest file of an image, in bytes.
pub(crate) fn file_bytes_max(geometry: &Geometry) -> u64 {
    let pointers = geometry.pointers();
    let blocks = DIRECT as u64 + pointers + pointers * pointers + pointers * pointers * pointers;
    // Blocks of pointers are counted too: fewer than one in a hundred.
    let counted = SECTORS_MAX * 512 / 100 * 99;
    let mapped = blocks * geometry.block_bytes as u64;
    let large = if geometry.has_large_files { u64::MAX } else { SMALL_FILE_BYTES_MAX };
    mapped.min(counted).min(large)
}

fn path(geometry: &Geometry, block: u64) -> Result<Path> {
    let (pointers, direct) = (geometry.pointers(), DIRECT as u64);
    if block < direct {
        return Ok(Path { slot: block as usize, places: [0; 3], depth: 0 });
    }
    let mut rest = block - direct;
    let mut span = 1;
    for depth in 1..=3 {
        span *= pointers;
        if rest < span {
            let mut places = [0; 3];
            let mut below = span;
            for place in places.iter_mut().take(depth) {
                below /= pointers;
                *place = rest / below;
                rest %= below;
            }
            return Ok(Path { slot: DIRECT + depth - 1, places, depth });
        }
        rest -= span;
    }
    Err(Error::FileTooLarge)
}

/// A block of pointers that an operation has made, which nothing points to yet.
struct Fresh {
    block: u64,
    /// The block of pointers, and the place in it, that is to point to it; none is the inode.
    parent: Option<(u64, u64)>,
    /// What has to be durable before something points to it.
    after: Vec<After>,
}

/// The blocks that an operation gives to a file.
#[derive(Default)]
pub(crate) struct Growth {
    fresh: Vec<Fresh>,
    /// The file: new blocks of pointers belong to it.
    owner: Owner,
    /// What the inode has to wait for.
    pub(crate) after: Vec<After>,
    /// How many blocks there are more.
    pub(crate) blocks: i64,
    /// The block of content that was added last, 0 for none.
    pub(crate) last: u64,
}

impl Growth {
    /// Of the file of an inode.
    pub(crate) fn of(number: u64) -> Growth {
        Growth { owner: Owner(number), ..Growth::default() }
    }

    fn fresh(&mut self, block: u64) -> Option<&mut Fresh> {
        self.fresh.iter_mut().find(|fresh| fresh.block == block)
    }
}

/// What is to be cut off a file.
#[derive(Default)]
struct Cut {
    blocks: Vec<u64>,
    /// Slots of the inode to be cleared.
    slots: Vec<usize>,
    /// Blocks of pointers that stay, and from where on they are cleared.
    partial: Vec<(u64, u64)>,
}

impl Work<'_> {
    /// The block of a file at a place, 0 for a hole.
    pub(crate) fn map(&mut self, inode: &Inode, at: u64) -> Result<u64> {
        if inode.flags() & FLAG_EXTENTS != 0 {
            return self.map_extent(inode, at);
        }
        let path = path(&self.state.geometry, at)?;
        let mut block = inode.pointer(path.slot);
        for place in &path.places[..path.depth] {
            if block == 0 {
                return Ok(0);
            }
            self.state.check_block(block)?;
            block = self.pointer(block, *place)?;
        }
        if block != 0 {
            self.state.check_block(block)?;
        }
        Ok(block)
    }

    pub(crate) fn pointer(&mut self, block: u64, place: u64) -> Result<u64> {
        Ok(u64::from(u32_at(self.read(block)?, place as usize * 4)))
    }

    /// Lets a place of a file lead to a block, once `after` is durable. The inode is not stored.
    pub(crate) fn point(
        &mut self,
        inode: &mut Inode,
        growth: &mut Growth,
        (at, block): (u64, u64),
        after: Vec<After>,
    ) -> Result<()> {
        let path = path(&self.state.geometry, at)?;
        growth.blocks += 1;
        if path.depth == 0 {
            inode.set_pointer(path.slot, block);
            growth.after.extend(after);
            return Ok(());
        }
        let mut holder = match inode.pointer(path.slot) {
            0 => {
                let made = self.new_pointers(growth, None, block)?;
                inode.set_pointer(path.slot, made);
                made
            }
            known => known,
        };
        for place in &path.places[..path.depth - 1] {
            self.state.check_block(holder)?;
            let parent = Some((holder, *place));
            let known = match self.pointer(holder, *place)? {
                0 => growth.fresh.iter().find(|it| it.parent == parent).map(|it| it.block),
                known => Some(known),
            };
            holder = match known {
                Some(known) => known,
                None => self.new_pointers(growth, parent, block)?,
            };
        }
        self.state.check_block(holder)?;
        let last = path.places[path.depth - 1];
        self.put_pointer(growth, (holder, last), block, after)
    }

    /// Writes a pointer into a block of pointers. In one that is new itself it need not wait.
    fn put_pointer(
        &mut self,
        growth: &mut Growth,
        (holder, place): (u64, u64),
        block: u64,
        after: Vec<After>,
    ) -> Result<()> {
        let bytes = (block as u32).to_le_bytes();
        let at = place as usize * 4;
        match growth.fresh(holder) {
            Some(fresh) => {
                fresh.after.extend(after);
                let steps = self.write(holder, at, &bytes, &[])?;
                growth.fresh(holder).expect("it is still there").after.extend(steps);
            }
            None => {
                let steps = self.write(holder, at, &bytes, &after)?;
                growth.after.extend(steps);
            }
        }
        Ok(())
    }

    fn new_pointers(
        &mut self,
        growth: &mut Growth,
        parent: Option<(u64, u64)>,
        goal: u64,
    ) -> Result<u64> {
        let (block, mut after) = self.take_block(goal)?;
        let zeros = vec![0; self.state.geometry.block_bytes];
        let place = (block, Content::Metadata);
        let before = self.plan.set_owner(growth.owner);
        after.extend(self.plan.fresh(&self.state.cache, place, &zeros, &[]));
        self.plan.set_owner(before);
        growth.fresh.push(Fresh { block, parent, after });
        growth.blocks += 1;
        Ok(block)
    }

    /// Lets new blocks of pointers be pointed to, the deepest first; what the inode waits for.
    pub(crate) fn end_growth(&mut self, inode: &mut Inode, growth: Growth) -> Result<Vec<After>> {
        let mut growth = growth;
        inode.add_blocks(growth.blocks, self.state.geometry.block_bytes);
        while let Some(Fresh { block, parent, after }) = growth.fresh.pop() {
            match parent {
                None => growth.after.extend(self.by(Rule::PointersAfterBelow, after)),
                Some(parent) => self.put_pointer(&mut growth, parent, block, after)?,
            }
        }
        Ok(growth.after)
    }

    /// Where the next block of a file should lie.
    pub(crate) fn goal(&mut self, number: u64, inode: &Inode, at: u64) -> Result<u64> {
        let before = if at > 0 { self.map(inode, at - 1)? } else { 0 };
        if before != 0 {
            return Ok(before + 1);
        }
        let group = (number - 1) / self.state.geometry.inodes_per_group;
        Ok(self.state.geometry.group_blocks(group).start)
    }

    /// Cuts off all blocks from a place on, and stores the inode, once `after` is durable; returns
    /// the steps that change the inode.
    pub(crate) fn cut(
        &mut self,
        number: u64,
        inode: &mut Inode,
        keep: u64,
        after: &[After],
    ) -> Result<Vec<After>> {
        let mut cut = Cut::default();
        for slot in (keep.min(DIRECT as u64) as usize)..DIRECT {
            self.cut_below(&mut cut, inode.pointer(slot), 0, 0)?;
            cut.slots.push(slot);
        }
        let (mut before, mut span) = (DIRECT as u64, self.state.geometry.pointers());
        for height in 1..=3 {
            let slot = DIRECT + height - 1;
            let kept = keep.saturating_sub(before).min(span);
            if kept < span {
                self.cut_below(&mut cut, inode.pointer(slot), height, kept)?;
            }
            if kept == 0 {
                cut.slots.push(slot);
            }
            before += span;
            span *= self.state.geometry.pointers();
        }
        cut.slots.iter().for_each(|slot| inode.set_pointer(*slot, 0));
        inode.add_blocks(-(cut.blocks.len() as i64), self.state.geometry.block_bytes);
        let steps = self.store(number, inode, after)?;
        let mut cleared = Vec::new();
        for (block, from) in cut.partial {
            let at = from as usize * 4;
            let zeros = vec![0; self.state.geometry.block_bytes - at];
            cleared.extend(self.write(block, at, &zeros, &steps)?);
        }
        let gone = [&steps[..], &cleared].concat();
        self.note_cleared(number, cleared);
        let gone = self.by(Rule::FreeAfterPointer, gone);
        if !cut.blocks.is_empty() {
            self.free(cut.blocks, None, &gone)?;
        }
        Ok(steps)
    }

    /// From which block of a file on `most` blocks are in use at least; `keep` if all blocks from
    /// there on are fewer.
    pub(crate) fn last_blocks(&mut self, inode: &Inode, keep: u64, most: u64) -> Result<u64> {
        let pointers = self.state.geometry.pointers();
        let (mut left, mut end) = (most, DIRECT as u64);
        let mut slots: Vec<(usize, u64, u32)> = (0..DIRECT).map(|it| (it, it as u64, 0)).collect();
        for height in 1..=3 {
            slots.push((DIRECT + height - 1, end, height as u32));
            end += pointers.pow(height as u32);
        }
        for (slot, base, height) in slots.into_iter().rev() {
            let at = (inode.pointer(slot), base, height);
            if let Some(from) = self.last_below(at, keep, &mut left)? {
                return Ok(from.max(keep));
            }
        }
        Ok(keep)
    }

    /// Counts blocks below a pointer from the last one on; where there are enough of them.
    fn last_below(
        &mut self,
        (block, base, height): (u64, u64, u32),
        keep: u64,
        left: &mut u64,
    ) -> Result<Option<u64>> {
        let pointers = self.state.geometry.pointers();
        let end = base + pointers.pow(height);
        if block == 0 || end <= keep {
            return Ok(None);
        }
        if *left == 0 {
            return Ok(Some(end));
        }
        *left -= 1;
        if height == 0 {
            return Ok(None);
        }
        self.state.check_block(block)?;
        let span = pointers.pow(height - 1);
        for place in (0..pointers).rev() {
            let next = self.pointer(block, place)?;
            let at = (next, base + place * span, height - 1);
            if let Some(from) = self.last_below(at, keep, left)? {
                return Ok(Some(from));
            }
        }
        Ok(None)
    }

    /// Notes what is cut off below a pointer, of which the first `keep` blocks of content stay.
    fn cut_below(&mut self, cut: &mut Cut, block: u64, height: usize, keep: u64) -> Result<()> {
        if block == 0 {
            return Ok(());
        }
        self.state.check_block(block)?;
        if keep == 0 {
            cut.blocks.push(block);
            if cut.blocks.len() as u64 > self.state.geometry.blocks {
                return Err(damaged("a file has more blocks than the image"));
            }
        }
        if height == 0 {
            return Ok(());
        }
        let pointers = self.state.geometry.pointers();
        let below = pointers.pow(height as u32 - 1);
        for place in keep / below..pointers {
            let kept = keep.saturating_sub(place * below).min(below);
            let next = self.pointer(block, place)?;
            self.cut_below(cut, next, height - 1, kept)?;
        }
        if keep > 0 {
            cut.partial.push((block, keep.div_ceil(below)));
        }
        Ok(())
    }
}
