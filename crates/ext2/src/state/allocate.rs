//! Which blocks and inodes are free.
//!
//! The bitmaps in memory say what may be taken. What is freed stays taken there until its freeing
//! is durable: so no block has two owners after a crash.

use crate::bytes::{u16_at, u32_at};
use crate::checksum;
use crate::error::{ImageError, failed};
use crate::state::rules::FREED;
use crate::state::{State, Work, damaged};
use crate::superblock::Geometry;
use marram_patch::{After, Cache, PatchId};
use marram_vfs::{Error, Result};
use std::ops::Range;

/// A group: its descriptor, and what is taken in it.
#[derive(Debug)]
pub(crate) struct Group {
    block_bitmap: u64,
    inode_bitmap: u64,
    /// The first block of its inode table.
    pub(crate) table: u64,
    pub(crate) free_blocks: u16,
    pub(crate) free_inodes: u16,
    pub(crate) directories: u16,
    /// The counts are others than those in the image.
    pub(crate) is_changed: bool,
    /// What is taken; none before the group is first used.
    taken: Option<Bitmaps>,
    /// Where the search for an inode goes on: numbers are used again late.
    next_inode: u64,
}

#[derive(Debug)]
struct Bitmaps {
    blocks: Vec<u8>,
    inodes: Vec<u8>,
}

/// What was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    Block(u64),
    Inode { number: u64, is_directory: bool },
}

/// What an operation frees, with the steps that do it.
#[derive(Debug)]
pub(crate) struct Freeing {
    blocks: Vec<u64>,
    inode: Option<(u64, bool)>,
    steps: Vec<After>,
}

/// What was freed, with the patches that have to be durable before it is used again.
#[derive(Debug)]
pub(crate) struct Freed {
    blocks: Vec<u64>,
    inode: Option<(u64, bool)>,
    patches: Vec<PatchId>,
}

fn has(bitmap: &[u8], bit: u64) -> bool {
    bitmap[(bit / 8) as usize] >> (bit % 8) & 1 != 0
}

fn put(bitmap: &mut [u8], bit: u64, value: bool) {
    let mask = 1 << (bit % 8);
    let byte = &mut bitmap[(bit / 8) as usize];
    *byte = if value { *byte | mask } else { *byte & !mask };
}

/// The first free bit of a range.
fn first_free(bitmap: &[u8], range: Range<u64>) -> Option<u64> {
    let mut bit = range.start;
    while bit < range.end {
        if bit.is_multiple_of(8) && bitmap[(bit / 8) as usize] == 0xff {
            bit += 8;
        } else if has(bitmap, bit) {
            bit += 1;
        } else {
            return Some(bit);
        }
    }
    None
}

/// Reads the group descriptors; also which blocks belong to no file.
pub(crate) fn read_groups(
    cache: &mut Cache,
    geometry: &Geometry,
) -> std::result::Result<(Vec<Group>, Vec<Range<u64>>), ImageError> {
    let mut groups = Vec::new();
    let first = geometry.first_block;
    let mut system = Vec::new();
    system.push(0..first + 1 + geometry.descriptor_blocks());
    for which in 0..geometry.groups {
        let (block, at) = geometry.descriptor(which);
        let bytes = &cache.read(block)?[at..at + geometry.descriptor_bytes];
        let is_good = |seed| checksum::is_good_descriptor(seed, which, bytes);
        if geometry.checksums.is_some_and(|seed| !is_good(seed)) {
            let what = format!("the checksum of the descriptor of group {which} is wrong");
            return Err(ImageError::Damaged(what));
        }
        let group = Group {
            block_bitmap: u64::from(u32_at(bytes, 0)),
            inode_bitmap: u64::from(u32_at(bytes, 4)),
            table: u64::from(u32_at(bytes, 8)),
            free_blocks: u16_at(bytes, 12),
            free_inodes: u16_at(bytes, 14),
            directories: u16_at(bytes, 16),
            is_changed: false,
            taken: None,
            next_inode: 0,
        };
        let table = group.table..group.table.saturating_add(geometry.table_blocks());
        for place in [
            group.block_bitmap..group.block_bitmap + 1,
            group.inode_bitmap..group.inode_bitmap + 1,
            table,
        ] {
            if place.start <= first || place.end > geometry.blocks {
                let what = format!("group {which} says that its own blocks are {place:?}");
                return Err(ImageError::Damaged(what));
            }
            system.push(place);
        }
        groups.push(group);
    }
    system.sort_unstable_by_key(|range| range.start);
    if system.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(ImageError::Damaged("two groups have a block in common".to_owned()));
    }
    Ok((groups, system))
}

impl Taken {
    /// The block, if it is one.
    pub(crate) fn block(&self) -> Option<u64> {
        match self {
            Taken::Block(block) => Some(*block),
            Taken::Inode { .. } => None,
        }
    }

    /// Says in memory that it is free.
    pub(crate) fn give_back(&self, groups: &mut [Group], geometry: &Geometry) {
        match self {
            Taken::Block(block) => put_block(groups, geometry, *block, false),
            Taken::Inode { number, .. } => put_inode(groups, geometry, *number, false),
        }
    }
}

fn block_place(geometry: &Geometry, block: u64) -> (usize, u64) {
    let from = block - geometry.first_block;
    ((from / geometry.blocks_per_group) as usize, from % geometry.blocks_per_group)
}

fn inode_place(geometry: &Geometry, number: u64) -> (usize, u64) {
    let from = number - 1;
    ((from / geometry.inodes_per_group) as usize, from % geometry.inodes_per_group)
}

fn put_block(groups: &mut [Group], geometry: &Geometry, block: u64, value: bool) {
    let (group, bit) = block_place(geometry, block);
    if let Some(taken) = &mut groups[group].taken {
        put(&mut taken.blocks, bit, value);
    }
}

fn put_inode(groups: &mut [Group], geometry: &Geometry, number: u64, value: bool) {
    let (group, bit) = inode_place(geometry, number);
    if let Some(taken) = &mut groups[group].taken {
        put(&mut taken.inodes, bit, value);
    }
}

impl Freeing {
    /// The same with the patches that the steps have become.
    pub(crate) fn freed(&self, patch: &dyn Fn(&After) -> PatchId) -> Freed {
        let mut patches: Vec<PatchId> = self.steps.iter().map(patch).collect();
        patches.sort_unstable();
        patches.dedup();
        Freed { blocks: self.blocks.clone(), inode: self.inode, patches }
    }
}

impl Freed {
    /// The blocks.
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Whether it can be used again: freeing it is durable, and nothing of before is still to be
    /// written there.
    pub(crate) fn is_durable(&self, cache: &Cache) -> bool {
        self.patches.iter().all(|patch| cache.is_committed(*patch))
            && !self.blocks.iter().any(|block| cache.is_dirty(*block))
    }

    /// Lets it be used again.
    pub(crate) fn release(&self, groups: &mut [Group], geometry: &Geometry) {
        for block in &self.blocks {
            put_block(groups, geometry, *block, false);
        }
        if let Some((number, _)) = self.inode {
            put_inode(groups, geometry, number, false);
        }
    }
}

impl State {
    /// Notes in the counts what was taken.
    pub(crate) fn count_taken(&mut self, taken: &Taken) {
        match *taken {
            Taken::Block(block) => {
                if let Some(census) = &mut self.census {
                    census.blocks.put(block, true);
                }
                let (group, _) = block_place(&self.geometry, block);
                self.groups[group].free_blocks = self.groups[group].free_blocks.saturating_sub(1);
                self.groups[group].is_changed = true;
                self.free_blocks = self.free_blocks.saturating_sub(1);
            }
            Taken::Inode { number, is_directory } => {
                let (group, _) = inode_place(&self.geometry, number);
                let group = &mut self.groups[group];
                group.free_inodes = group.free_inodes.saturating_sub(1);
                group.directories = group.directories.saturating_add(u16::from(is_directory));
                group.is_changed = true;
                self.free_inodes = self.free_inodes.saturating_sub(1);
            }
        }
    }

    /// Notes in the counts what was freed.
    pub(crate) fn count_freed(&mut self, freed: &Freed) {
        if let Some(census) = &mut self.census {
            freed.blocks.iter().for_each(|block| census.blocks.put(*block, false));
            freed.inode.iter().for_each(|(number, _)| census.note_freed_inode(*number));
        }
        for block in &freed.blocks {
            let (group, _) = block_place(&self.geometry, *block);
            self.groups[group].free_blocks = self.groups[group].free_blocks.saturating_add(1);
            self.groups[group].is_changed = true;
            self.free_blocks += 1;
        }
        if let Some((number, is_directory)) = freed.inode {
            let (group, _) = inode_place(&self.geometry, number);
            let group = &mut self.groups[group];
            group.free_inodes = group.free_inodes.saturating_add(1);
            group.directories = group.directories.saturating_sub(u16::from(is_directory));
            group.is_changed = true;
            self.free_inodes += 1;
        }
    }

    /// Whether an inode is marked as in use.
    pub(crate) fn is_marked_inode(&mut self, number: u64) -> Result<bool> {
        let (group, bit) = inode_place(&self.geometry, number);
        let bitmap = self.groups[group].inode_bitmap;
        Ok(has(self.cache.read(bitmap).map_err(failed)?, bit))
    }

    /// Whether a block of a group is marked as in use.
    pub(crate) fn is_marked_block(&mut self, block: u64) -> Result<bool> {
        let (group, bit) = block_place(&self.geometry, block);
        let bitmap = self.groups[group].block_bitmap;
        Ok(has(self.cache.read(bitmap).map_err(failed)?, bit))
    }

    /// Notes how many directories a group has, and has its counts and their sums written.
    pub(crate) fn set_directories(&mut self, which: usize, directories: u16) {
        let group = &mut self.groups[which];
        group.is_changed = true;
        group.directories = directories;
    }

    /// Blocks that can still be taken, those that are being freed among them.
    pub(crate) fn available_blocks(&self) -> u64 {
        self.free_blocks.saturating_sub(self.geometry.reserved_blocks)
    }

    /// Reads the bitmaps of a group when it is first used. From then on its counts are those of the
    /// bitmaps: after a crash those in its descriptor may be older.
    fn load_group(&mut self, which: usize) -> Result<()> {
        if self.groups[which].taken.is_some() {
            return Ok(());
        }
        let (blocks_at, inodes_at) =
            (self.groups[which].block_bitmap, self.groups[which].inode_bitmap);
        let mut blocks = self.cache.read(blocks_at).map_err(failed)?.to_vec();
        let mut inodes = self.cache.read(inodes_at).map_err(failed)?.to_vec();
        let range = self.geometry.group_blocks(which as u64);
        let bits = self.geometry.block_bytes as u64 * 8;
        (range.end - range.start..bits).for_each(|bit| put(&mut blocks, bit, true));
        let first = self.system.partition_point(|system| system.end <= range.start);
        for system in self.system[first..].iter().take_while(|it| it.start < range.end) {
            let own = system.start.max(range.start)..system.end.min(range.end);
            own.for_each(|block| put(&mut blocks, block - range.start, true));
        }
        (self.geometry.inodes_per_group..bits).for_each(|bit| put(&mut inodes, bit, true));
        let before = which as u64 * self.geometry.inodes_per_group;
        let fixed = (self.geometry.first_ino - 1).saturating_sub(before).min(bits);
        (0..fixed).for_each(|bit| put(&mut inodes, bit, true));
        let free = |bitmap: &[u8]| bitmap.iter().map(|byte| byte.count_zeros()).sum::<u32>();
        let (free_blocks, free_inodes) = (free(&blocks) as u16, free(&inodes) as u16);
        let group = &mut self.groups[which];
        let replace = |total: u64, old: u16, new: u16| {
            (total + u64::from(new)).saturating_sub(u64::from(old))
        };
        self.free_blocks = replace(self.free_blocks, group.free_blocks, free_blocks);
        self.free_inodes = replace(self.free_inodes, group.free_inodes, free_inodes);
        group.is_changed |= (group.free_blocks, group.free_inodes) != (free_blocks, free_inodes);
        (group.free_blocks, group.free_inodes) = (free_blocks, free_inodes);
        group.taken = Some(Bitmaps { blocks, inodes });
        Ok(())
    }

    /// Reads the bitmaps of all groups.
    pub(crate) fn load_groups(&mut self) -> Result<()> {
        (0..self.groups.len()).try_for_each(|which| self.load_group(which))
    }
}

impl Work<'_> {
    /// Takes a block, near `goal` if that can be; returns it, and the steps that say so.
    pub(crate) fn take_block(&mut self, goal: u64) -> Result<(u64, Vec<After>)> {
        let so_far = self.taken.iter().filter(|taken| matches!(taken, Taken::Block(_))).count();
        if self.state.available_blocks() <= so_far as u64 {
            return Err(Error::NoSpace);
        }
        let geometry = &self.state.geometry;
        let goal = if (geometry.first_block..geometry.blocks).contains(&goal) {
            goal
        } else {
            geometry.first_block
        };
        let (home, from) = block_place(geometry, goal);
        let groups = self.state.groups.len();
        for step in 0..=groups {
            let which = (home + step) % groups;
            self.state.load_group(which)?;
            let size = self.state.geometry.blocks_per_group;
            let range = if step == 0 { from..size } else { 0..size };
            let taken = self.state.groups[which].taken.as_ref().expect("it has been loaded");
            let Some(bit) = first_free(&taken.blocks, range) else { continue };
            let block = self.state.geometry.group_blocks(which as u64).start + bit;
            put_block(&mut self.state.groups, &self.state.geometry, block, true);
            self.taken.push(Taken::Block(block));
            let bitmap = self.state.groups[which].block_bitmap;
            let steps = self.set_bits(bitmap, &[bit], true, &[])?;
            return Ok((block, steps));
        }
        Err(Error::NoSpace)
    }

    /// Takes an inode, in the group of `near` if that can be; a directory goes to where most is
    /// free.
    pub(crate) fn take_inode(
        &mut self,
        near: u64,
        is_directory: bool,
    ) -> Result<(u64, Vec<After>)> {
        let groups = self.state.groups.len();
        let home = match is_directory {
            true => self.roomiest_group(inode_place(&self.state.geometry, near).0),
            false => inode_place(&self.state.geometry, near).0,
        };
        let size = self.state.geometry.inodes_per_group;
        // A group is looked at from where the last search ended, then from its beginning.
        let passes =
            [false, true].into_iter().flat_map(|again| (0..groups).map(move |g| (g, again)));
        for (step, again) in passes {
            let which = (home + step) % groups;
            self.state.load_group(which)?;
            let group = &mut self.state.groups[which];
            let range = if again { 0..size } else { group.next_inode..size };
            let taken = group.taken.as_ref().expect("it has been loaded");
            let Some(bit) = first_free(&taken.inodes, range) else { continue };
            group.next_inode = bit + 1;
            let bitmap = group.inode_bitmap;
            let number = which as u64 * size + bit + 1;
            put_inode(&mut self.state.groups, &self.state.geometry, number, true);
            self.taken.push(Taken::Inode { number, is_directory });
            let steps = self.set_bits(bitmap, &[bit], true, &[])?;
            return Ok((number, steps));
        }
        Err(Error::NoSpace)
    }

    /// The group for a new directory: that of its parent, unless another has more room by half.
    fn roomiest_group(&self, home: usize) -> usize {
        let room = |which: usize| {
            let group = &self.state.groups[which];
            u64::from(group.free_inodes).min(u64::from(group.free_blocks))
        };
        let best = (0..self.state.groups.len()).max_by_key(|which| room(*which)).unwrap_or(home);
        if room(best) > room(home) + room(home) / 2 { best } else { home }
    }

    /// Frees blocks and an inode once `after` is durable.
    pub(crate) fn free(
        &mut self,
        mut blocks: Vec<u64>,
        inode: Option<(u64, bool)>,
        after: &[After],
    ) -> Result<()> {
        blocks.sort_unstable();
        if blocks.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(damaged("a file has a block twice"));
        }
        let before = self.plan.set_owner(FREED);
        let mut steps = Vec::new();
        let mut from = 0;
        while from < blocks.len() {
            let (group, _) = block_place(&self.state.geometry, blocks[from]);
            self.state.load_group(group)?;
            let geometry = &self.state.geometry;
            let same =
                blocks[from..].iter().take_while(|it| block_place(geometry, **it).0 == group);
            let bits: Vec<u64> = same.map(|block| block_place(geometry, *block).1).collect();
            from += bits.len();
            let bitmap = self.state.groups[group].block_bitmap;
            let known = self.read(bitmap)?;
            if bits.iter().any(|bit| !has(known, *bit)) {
                return Err(damaged(format!("a file has a block of group {group} that is free")));
            }
            steps.extend(self.set_bits(bitmap, &bits, false, after)?);
        }
        if let Some((number, _)) = inode {
            let (group, bit) = inode_place(&self.state.geometry, number);
            self.state.load_group(group)?;
            let bitmap = self.state.groups[group].inode_bitmap;
            if !has(self.read(bitmap)?, bit) {
                return Err(damaged(format!("inode {number} is free already")));
            }
            steps.extend(self.set_bits(bitmap, &[bit], false, after)?);
        }
        self.plan.set_owner(before);
        self.freeing.push(Freeing { blocks, inode, steps });
        Ok(())
    }

    fn set_bits(
        &mut self,
        bitmap: u64,
        bits: &[u64],
        value: bool,
        after: &[After],
    ) -> Result<Vec<After>> {
        let cache = &mut self.state.cache;
        self.plan.set_bits(cache, bitmap, bits, value, after).map_err(failed)
    }
}
