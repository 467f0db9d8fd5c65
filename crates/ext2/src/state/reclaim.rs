//! What a crash under soft updates has left in use without a user, given back while the image is in
//! use.
//!
//! Names are counted, then what has none is given back, then blocks are counted, then the bitmaps
//! are compared. Each step is an operation as those of users are, so a crash in the middle leaves
//! what one under soft updates may leave. What soft updates never leave is not touched: then the
//! image stays one that was not unmounted, and `e2fsck` is to look at it.

use crate::error::failed;
use crate::inode::{DIRECT, Inode, LINKS_UNCOUNTED, SLOTS};
use crate::state::census::{Census, Stage};
use crate::state::{ROOT, State, Work, damaged, shown};
use crate::superblock::field;
use marram_patch::After;
use marram_vfs::{Name, Result, Timestamp};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What the superblock says of an image that soft updates have been writing.
pub(crate) const SOFT_UPDATES_MARK: &[u8; 20] = b"marram soft-updates\0";

/// What pointers of an inode lead to.
#[derive(Default)]
pub(crate) struct Walked {
    blocks: Vec<u64>,
    /// The block of content after the last one.
    pub(crate) end: u64,
}

impl State {
    /// Begins to look for what a crash has left, if there was one.
    pub(crate) fn begin_census(&mut self) -> Result<()> {
        let (block, at) = self.geometry.superblock();
        let at = at + field::LAST_MOUNTED;
        let bytes = self.cache.read(block).map_err(failed)?;
        let was_soft = bytes[at..at + SOFT_UPDATES_MARK.len()] == SOFT_UPDATES_MARK[..];
        if was_soft && !self.marks.was_valid {
            self.uncut = Some(HashSet::new());
            if self.geometry.is_searchable {
                self.census = Some(Census::new(&self.geometry, ROOT));
            }
        }
        Ok(())
    }

    /// Looks at so many directories or inodes more; whether there is more to be done.
    pub(crate) fn reclaim(&mut self, most: u64, now: Timestamp) -> Result<bool> {
        if self.damage.is_some() {
            self.census = None;
        }
        let Some(stage) = self.census.as_ref().map(|census| census.stage) else {
            return Ok(false);
        };
        self.make_room()?;
        let done = match stage {
            Stage::Names => self.count_names(most),
            Stage::Nameless(from) => self.find_nameless(from..from + most),
            Stage::Return => self.return_nameless(now),
            Stage::Blocks(from) => self.count_blocks(from..from + most, now),
            Stage::Groups(which) => self.compare_group(which, now),
        };
        if done.is_err() {
            self.census = None;
        }
        done.map(|()| self.census.is_some())
    }

    fn census(&mut self) -> Result<&mut Census> {
        self.census.as_mut().ok_or_else(|| damaged("the search for leaks has ended"))
    }

    fn count_names(&mut self, most: u64) -> Result<()> {
        for _ in 0..most {
            let Some(directory) = self.census()?.next_directory() else {
                self.census()?.stage = Stage::Nameless(self.geometry.first_ino);
                return Ok(());
            };
            let inode = self.raw_inode(directory)?;
            if !inode.is_directory() || inode.links() == 0 {
                continue;
            }
            let names = Work::new(self, Timestamp::default()).names_in(&inode)?;
            self.census()?.note_read(directory);
            if self.census()?.has_too_many() {
                return Err(damaged("directories have more names than the image can have"));
            }
            for (_, target) in names {
                let is_directory = self.inode(target)?.is_directory();
                self.census()?.count_name(directory, target, is_directory);
            }
        }
        Ok(())
    }

    /// Whether an inode is marked as in use, and nothing uses it.
    fn is_unused(&mut self, number: u64) -> Result<bool> {
        let is_known = self.pins.contains_key(&number)
            || self.nameless.contains_key(&number)
            || self.orphans.contains(&number);
        let is_named = self.census()?.names(number) > 0;
        Ok(!is_known && !is_named && number != ROOT && self.is_marked_inode(number)?)
    }

    fn find_nameless(&mut self, range: Range<u64>) -> Result<()> {
        let end = range.end.min(self.geometry.inodes + 1);
        for number in range.start..end {
            if self.is_unused(number)? && is_content(&self.raw_inode(number)?) {
                self.census()?.nameless.push(number);
            }
        }
        let is_last = end > self.geometry.inodes;
        self.census()?.stage = if is_last { Stage::Return } else { Stage::Nameless(end) };
        Ok(())
    }

    /// Gives back what has no name: directories before what they name, so that no name of an
    /// unused inode is ever seen.
    fn return_nameless(&mut self, now: Timestamp) -> Result<()> {
        self.leave_one_name(now)?;
        let mut all = std::mem::take(&mut self.census()?.nameless);
        let mut unused = Vec::new();
        for number in all.drain(..) {
            if self.is_unused(number)? {
                unused.push(number);
            }
        }
        let mut below: HashMap<u64, HashSet<u64>> = HashMap::new();
        for number in &unused {
            let inode = self.raw_inode(*number)?;
            if inode.is_directory() && inode.links() > 0 {
                let names = Work::new(self, now).names_in(&inode)?;
                below.insert(*number, names.into_iter().map(|(_, target)| target).collect());
            }
        }
        // How many of these directories still have a name of another one.
        let mut above: HashMap<u64, usize> = below.keys().map(|number| (*number, 0)).collect();
        for target in below.values().flatten() {
            above.entry(*target).and_modify(|count| *count += 1);
        }
        let mut tops: Vec<u64> = above.iter().filter(|it| *it.1 == 0).map(|it| *it.0).collect();
        while !tops.is_empty() {
            tops.iter().try_for_each(|number| self.take_names(*number, now))?;
            self.settle()?;
            let mut next = Vec::new();
            for target in tops.iter().filter_map(|top| below.remove(top)).flatten() {
                if let Some(count) = above.get_mut(&target) {
                    *count -= 1;
                    next.extend((*count == 0).then_some(target));
                }
            }
            tops = next;
        }
        if !below.is_empty() {
            return Err(damaged("directories without a name lie in a circle"));
        }
        for number in unused {
            self.take_names(number, now)?;
            self.remove_unless_pinned(number, now)?;
        }
        self.settle()?;
        self.census()?.stage = Stage::Blocks(1);
        Ok(())
    }

    /// Says of an inode that it has no name.
    fn take_names(&mut self, number: u64, now: Timestamp) -> Result<()> {
        let mut inode = self.raw_inode(number)?;
        if inode.links() == 0 {
            return Ok(());
        }
        inode.set_links(0);
        let mut work = Work::new(self, now);
        let done = work.store(number, &inode, &[]);
        work.nameless = done.as_ref().ok().map(|steps| (number, steps.clone()));
        work.end(done.map(drop))
    }

    /// Leaves a directory that was moved the name that its entry `..` leads to.
    fn leave_one_name(&mut self, now: Timestamp) -> Result<()> {
        let twice = std::mem::take(&mut self.census()?.twice);
        for number in twice {
            let parents = self.census()?.parents.get(&number).cloned().unwrap_or_default();
            if parents.len() < 2 {
                continue;
            }
            let mut work = Work::new(self, now);
            let done = work.leave_name(number, &parents);
            work.end(done)?;
        }
        self.settle()
    }

    fn count_blocks(&mut self, range: Range<u64>, now: Timestamp) -> Result<()> {
        let end = range.end.min(self.geometry.inodes + 1);
        for number in range.start..end {
            if number < self.geometry.first_ino && number != ROOT {
                let inode = self.raw_inode(number)?;
                let walked = Work::new(self, now).walk(&inode, false)?;
                self.use_blocks(&walked.blocks, false)?;
            } else if self.is_unused(number)? {
                // Users may have taken its last name meanwhile, and it counted one more.
                if is_content(&self.raw_inode(number)?) {
                    self.take_names(number, now)?;
                    self.remove_unless_pinned(number, now)?;
                }
            } else if self.is_marked_inode(number)? {
                self.count_inode(number, now)?;
            }
        }
        let is_last = end > self.geometry.inodes;
        self.census()?.stage = if is_last { Stage::Groups(0) } else { Stage::Blocks(end) };
        Ok(())
    }

    fn use_blocks(&mut self, blocks: &[u64], is_users: bool) -> Result<()> {
        for block in blocks {
            if is_users && !self.is_marked_block(*block)? {
                return Err(damaged(format!("block {block} is in use and marked as free")));
            }
            self.census()?.blocks.put(*block, true);
        }
        Ok(())
    }

    /// Mends what an inode says of itself, and notes its blocks.
    fn count_inode(&mut self, number: u64, now: Timestamp) -> Result<()> {
        let block_bytes = self.geometry.block_bytes;
        let mut inode = self.raw_inode(number)?;
        let keep = inode.size().div_ceil(block_bytes as u64);
        let has_blocks = crate::state::operations::has_blocks(&inode);
        let mut walked = Walked::default();
        if has_blocks {
            walked = Work::new(self, now).walk(&inode, true)?;
            if walked.end > keep {
                self.cut_in_pieces(shown(number), keep, &[], now)?;
                inode = self.raw_inode(number)?;
                walked = Work::new(self, now).walk(&inode, true)?;
            }
        }
        let attributes = inode.attribute_block();
        walked.blocks.extend((attributes != 0).then_some(attributes));
        self.use_blocks(&walked.blocks, true)?;
        let known = (inode.sectors(block_bytes) * 512 / block_bytes as u64) as i64;
        let blocks = walked.blocks.len() as i64;
        let links = self.links_of(number, &inode)?;
        if blocks == known && links == inode.links() {
            return Ok(());
        }
        if links > inode.links() {
            return Err(damaged(format!("inode {number} has more names than it counts")));
        }
        inode.add_blocks(blocks - known, block_bytes);
        inode.set_links(links);
        let mut work = Work::new(self, now);
        let done = work.store(number, &inode, &[]).map(drop);
        work.end(done)
    }

    /// How many links an inode should count.
    fn links_of(&mut self, number: u64, inode: &Inode) -> Result<u32> {
        if inode.links() == 0 || inode.is_directory() && inode.links() == LINKS_UNCOUNTED {
            return Ok(inode.links());
        }
        if !inode.is_directory() {
            return Ok(u32::from(self.census()?.names(number)));
        }
        let mut links = 2;
        for (_, target) in Work::new(self, Timestamp::default()).names_in(inode)? {
            links += u32::from(self.raw_inode(target)?.is_directory());
        }
        Ok(links)
    }

    /// Frees what is marked in the bitmaps of a group, and nothing uses.
    fn compare_group(&mut self, which: usize, now: Timestamp) -> Result<()> {
        let Some(census) = &self.census else { return Ok(()) };
        let geometry = &self.geometry;
        let owned = |block: &u64| census.blocks.has(*block) || self.is_system(*block);
        let range = geometry.group_blocks(which as u64);
        let kept = geometry.backup_blocks(which as u64);
        let blocks: Vec<u64> =
            range.filter(|block| !owned(block) && !kept.contains(block)).collect();
        let mut leaked = Vec::new();
        for block in blocks {
            if self.is_marked_block(block)? {
                leaked.push(block);
            }
        }
        let first = which as u64 * self.geometry.inodes_per_group + 1;
        let (mut inodes, mut directories) = (Vec::new(), 0);
        for number in first..first + self.geometry.inodes_per_group {
            if number != ROOT && number < self.geometry.first_ino {
                continue;
            }
            if self.is_unused(number)? {
                inodes.push(number);
            } else if self.is_marked_inode(number)? {
                directories += u16::from(self.raw_inode(number)?.is_directory());
            }
        }
        if !leaked.is_empty() || !inodes.is_empty() {
            let mut work = Work::new(self, now);
            let done = work.free_leaked(leaked, &inodes);
            work.end(done)?;
        }
        self.set_directories(which, directories);
        if which + 1 < self.groups.len() {
            self.census()?.stage = Stage::Groups(which + 1);
            return Ok(());
        }
        // A clean unmount is to say that the image was unmounted, though nothing may have changed.
        self.mark()?;
        self.settle()?;
        (self.census, self.uncut) = (None, None);
        self.marks.was_valid = true;
        Ok(())
    }
}

/// Whether the bytes of an inode that has no name are more than what a removed one leaves.
fn is_content(inode: &Inode) -> bool {
    inode.mode() != 0 && inode.removed() == 0
}

impl Work<'_> {
    /// Frees what nothing uses.
    fn free_leaked(&mut self, blocks: Vec<u64>, inodes: &[u64]) -> Result<()> {
        self.free(blocks, None, &[])?;
        inodes.iter().try_for_each(|number| self.free(Vec::new(), Some((*number, false)), &[]))
    }

    /// Takes the names of a directory away but the one that it leads back to.
    fn leave_name(&mut self, number: u64, parents: &[u64]) -> Result<()> {
        let inode = self.inode(number)?;
        let back = self.parent_of(number, &inode)?;
        let kept = if parents.contains(&back) { back } else { parents[0] };
        let mut after: Vec<After> = Vec::new();
        if kept != back {
            after = self.set_parent(number, &inode, kept, &[])?;
        }
        let mut is_kept = false;
        for parent in parents {
            if *parent == kept && !std::mem::replace(&mut is_kept, true) {
                continue;
            }
            let above = self.inode(*parent)?;
            let names = self.names_in(&above)?;
            let Some((name, _)) = names.into_iter().rev().find(|(_, target)| *target == number)
            else {
                continue;
            };
            let name = Name::new(&name)?;
            let found = self.entry((*parent, &above), name)?;
            self.remove_entry((*parent, name), &found, &after)?;
        }
        Ok(())
    }

    /// All blocks of an inode, and where its content ends.
    pub(crate) fn walk(&mut self, inode: &Inode, is_users: bool) -> Result<Walked> {
        let (mut walked, mut base) = (Walked::default(), 0);
        let pointers = self.state.geometry.pointers();
        for slot in 0..SLOTS {
            let height = slot.saturating_sub(DIRECT - 1) as u32;
            self.walk_below(&mut walked, (inode.pointer(slot), base, height), is_users)?;
            base += pointers.pow(height);
        }
        Ok(walked)
    }

    fn walk_below(
        &mut self,
        walked: &mut Walked,
        (block, base, height): (u64, u64, u32),
        is_users: bool,
    ) -> Result<()> {
        if block == 0 {
            return Ok(());
        }
        if is_users {
            self.state.check_block(block)?;
        }
        let most = self.state.geometry.blocks;
        if block >= most || walked.blocks.len() as u64 >= most {
            return Err(damaged(format!("a pointer leads to block {block}")));
        }
        walked.blocks.push(block);
        if height == 0 {
            walked.end = base + 1;
            return Ok(());
        }
        let pointers = self.state.geometry.pointers();
        let span = pointers.pow(height - 1);
        for place in 0..pointers {
            let next = self.pointer(block, place)?;
            self.walk_below(walked, (next, base + place * span, height - 1), is_users)?;
        }
        Ok(())
    }
}
