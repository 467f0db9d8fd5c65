//! An open image as plain parts: its cache, and what is known of it beside.

mod allocate;
mod blocks;
mod census;
mod directory;
mod extents;
pub(crate) mod journal;
mod operations;
mod orphans;
mod patchgroups;
mod reclaim;
pub(crate) mod rules;
mod syncs;
pub(crate) mod xattrs;

pub(crate) use operations::{Move, read_target, reading};

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::error::{ImageError, failed};
use crate::inode::{FLAG_EXTENTS, FLAGS_FIXED, FLAGS_FOREIGN, Inode};
use crate::state::allocate::{Freed, Group};
use crate::state::census::{Census, Named};
use crate::state::directory::{Index, Noted};
use crate::state::journal::log::{Bytes, Log};
use crate::state::patchgroups::Groups;
use crate::state::reclaim::SOFT_UPDATES_MARK;
use crate::state::rules::{FREED, Rule};
use crate::state::syncs::Looks;
use crate::superblock::{Geometry, INCOMPAT_RECOVER, STATE_ERRORS, STATE_VALID, field};
use marram_patch::{After, Cache, Content, Discipline, Owner, PatchId, Plan};
use marram_vfs::{Error, FILE_BYTES_MAX, Ino, Kind, Patchgroup, Result, Timestamp};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

/// The number of the root directory.
pub(crate) const ROOT: u64 = 2;

/// When reading moves the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never (`noatime`).
    Never,
    /// When it is not after the last change, or a day old (`relatime`).
    #[default]
    Relative,
    /// Every time (`strictatime`).
    Strict,
}

/// Which access times move.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub(crate) times: AccessTimes,
    pub(crate) of_directories: bool,
}

/// What the superblock says of this mount.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// The image was unmounted when it was opened.
    pub(crate) was_valid: bool,
    /// The superblock says that the image is in use.
    pub(crate) is_marked: bool,
}

/// A name with the directory that it is in.
type NameIn = (u64, Box<[u8]>);

/// The parts.
pub(crate) struct State {
    pub(crate) cache: Cache,
    pub(crate) geometry: Geometry,
    pub(crate) discipline: Discipline,
    /// The journal, if this mount writes it.
    pub(crate) log: Option<Log>,
    /// Transactions that were committed.
    pub(crate) commits: u64,
    /// What a crash has left is being looked for.
    pub(crate) census: Option<Census>,
    /// Inodes on the list that the superblock begins; the last one is its first.
    pub(crate) orphans: Vec<u64>,
    pub(crate) groups: Vec<Group>,
    /// Blocks that belong to no file, in order.
    pub(crate) system: Vec<Range<u64>>,
    pub(crate) free_blocks: u64,
    pub(crate) free_inodes: u64,
    /// What has been freed, and cannot be used before that is durable.
    pub(crate) freed: Vec<Freed>,
    /// Pins by inode.
    pub(crate) pins: HashMap<u64, u64>,
    pub(crate) directories: HashMap<u64, Index>,
    /// What was written to each file, what leads to its new names and to each new directory: as
    /// far as it may not be durable yet.
    pub(crate) recent: HashMap<u64, Vec<PatchId>>,
    /// What clears pointers and bytes behind the end of each file: as far as it may not be durable
    /// yet.
    pub(crate) cleared: HashMap<u64, Vec<PatchId>>,
    /// Set after a crash under soft updates, until the search for what that has left has ended. It
    /// has the files that are known to have nothing behind their ends, and need no cut before they
    /// grow.
    pub(crate) uncut: Option<HashSet<u64>>,
    /// What leads to each inode or has led to it: as far as it may not be durable yet.
    pub(crate) names: HashMap<u64, Vec<PatchId>>,
    /// Names that were taken from directories, and what did so: as far as not durable yet.
    pub(crate) away: HashMap<NameIn, Vec<PatchId>>,
    /// The blocks of each directory whose entries have changed: as far as not durable yet.
    pub(crate) touched: HashMap<u64, BTreeSet<u64>>,
    /// When these six are looked through again.
    pub(crate) looks: Looks,
    /// Inodes that have lost their last name, and what says so.
    pub(crate) nameless: HashMap<u64, Vec<PatchId>>,
    /// Groups of operations.
    pub(crate) patchgroups: Groups,
    /// Those that the operation belongs to which runs now.
    pub(crate) engaged: Vec<Patchgroup>,
    pub(crate) access: Access,
    pub(crate) marks: Marks,
    /// What was found that makes no sense: nothing is changed any more.
    pub(crate) damage: Option<String>,
    /// The mount has ended.
    pub(crate) is_closed: bool,
    /// A rule of soft updates that is not kept, for tests of tests.
    pub(crate) left_out: Option<Rule>,
}

/// The number of an inode in the image.
pub(crate) fn number(ino: Ino) -> Result<u64> {
    match ino {
        Ino::ROOT => Ok(ROOT),
        Ino(ROOT) => Err(Error::Stale),
        Ino(other) => Ok(other),
    }
}

/// The number of an inode as users see it.
pub(crate) fn shown(number: u64) -> Ino {
    if number == ROOT { Ino::ROOT } else { Ino(number) }
}

/// Something that makes no sense.
pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::Damaged(what.into())
}

impl State {
    /// Opens what a superblock describes.
    pub(crate) fn open(
        mut cache: Cache,
        geometry: Geometry,
        discipline: Discipline,
        is_writable: bool,
    ) -> std::result::Result<State, ImageError> {
        let (block, at) = geometry.superblock();
        let state = u16_at(cache.read(block)?, at + field::STATE);
        if is_writable && state & STATE_ERRORS != 0 {
            return Err(ImageError::HasErrors);
        }
        cache.set_discipline(discipline);
        let (groups, system) = crate::state::allocate::read_groups(&mut cache, &geometry)?;
        let free_blocks = groups.iter().map(|group| u64::from(group.free_blocks)).sum();
        let free_inodes = groups.iter().map(|group| u64::from(group.free_inodes)).sum();
        let mut state = State {
            cache,
            geometry,
            discipline,
            log: None,
            commits: 0,
            census: None,
            orphans: Vec::new(),
            groups,
            system,
            free_blocks,
            free_inodes,
            freed: Vec::new(),
            pins: HashMap::new(),
            directories: HashMap::new(),
            recent: HashMap::new(),
            cleared: HashMap::new(),
            uncut: None,
            names: HashMap::new(),
            away: HashMap::new(),
            touched: HashMap::new(),
            looks: Looks::default(),
            nameless: HashMap::new(),
            patchgroups: Groups::default(),
            engaged: Vec::new(),
            access: Access::default(),
            marks: Marks { was_valid: state & STATE_VALID != 0, is_marked: false },
            damage: None,
            is_closed: false,
            left_out: None,
        };
        let root = state.inode(ROOT)?;
        if !root.is_directory() {
            return Err(ImageError::Damaged("the root is no directory".to_owned()));
        }
        Ok(state)
    }

    /// The block and place of an inode.
    pub(crate) fn place(&self, number: u64) -> Result<(u64, usize)> {
        if number == 0 || number > self.geometry.inodes {
            return Err(Error::Stale);
        }
        let group = (number - 1) / self.geometry.inodes_per_group;
        let within =
            (number - 1) % self.geometry.inodes_per_group * self.geometry.inode_bytes as u64;
        let block_bytes = self.geometry.block_bytes as u64;
        let table = self.groups[group as usize].table;
        Ok((table + within / block_bytes, (within % block_bytes) as usize))
    }

    /// All that was done to an inode before.
    pub(crate) fn inode_bytes(&self, number: u64) -> Result<After> {
        let (block, at) = self.place(number)?;
        Ok(After::Bytes { block, at, len: self.geometry.inode_bytes })
    }

    /// The bytes of an inode, whatever they are.
    pub(crate) fn raw_inode(&mut self, number: u64) -> Result<Inode> {
        let (block, at) = self.place(number)?;
        let bytes = self.cache.read(block).map_err(failed)?;
        Inode::read(self.geometry.checksums, number, &bytes[at..at + self.geometry.inode_bytes])
    }

    /// An inode that is there.
    pub(crate) fn inode(&mut self, number: u64) -> Result<Inode> {
        let inode = self.raw_inode(number)?;
        self.check_inode(number, &inode)?;
        Ok(inode)
    }

    /// Whether an inode is one that users have.
    pub(crate) fn check_inode(&self, number: u64, inode: &Inode) -> Result<()> {
        let is_users = number == ROOT || number >= self.geometry.first_ino;
        let is_there = inode.links() > 0 || self.pins.contains_key(&number);
        if !is_users || inode.mode() == 0 || !is_there {
            return Err(Error::Stale);
        }
        let extents = if self.geometry.has_extents { 0 } else { FLAG_EXTENTS };
        if inode.kind().is_none() || inode.flags() & (FLAGS_FOREIGN | extents) != 0 {
            return Err(damaged(format!("inode {number} has a mode or flags that make no sense")));
        }
        if inode.size() > FILE_BYTES_MAX {
            return Err(damaged(format!("inode {number} has {} bytes", inode.size())));
        }
        Ok(())
    }

    /// What users see of an inode.
    pub(crate) fn attributes(&mut self, ino: Ino) -> Result<marram_vfs::Attributes> {
        let number = number(ino)?;
        let inode = self.inode(number)?;
        let kind = inode.kind().ok_or_else(|| damaged(format!("inode {number}")))?;
        Ok(inode.attributes(ino, kind, self.geometry.block_bytes))
    }

    /// The same, pinned once more.
    pub(crate) fn pinned(&mut self, number: u64) -> Result<marram_vfs::Attributes> {
        let attributes = self.attributes(shown(number))?;
        self.pin(number);
        Ok(attributes)
    }

    pub(crate) fn pin(&mut self, number: u64) {
        *self.pins.entry(number).or_insert(0) += 1;
    }

    /// Whether a block may be part of a file.
    pub(crate) fn check_block(&self, block: u64) -> Result<()> {
        if self.is_system(block)
            || block < self.geometry.first_block
            || block >= self.geometry.blocks
        {
            return Err(damaged(format!("a pointer leads to block {block}")));
        }
        Ok(())
    }

    /// Whether a block belongs to no file.
    pub(crate) fn is_system(&self, block: u64) -> bool {
        let place = self.system.partition_point(|range| range.end <= block);
        self.system.get(place).is_some_and(|range| range.contains(&block))
    }

    /// Lets what is durable be used again, and forgets what was written to files and taken from
    /// directories: when there is enough of it, or all is durable.
    pub(crate) fn note_durable(&mut self) {
        let cache = &self.cache;
        if !cache.is_clean() && !self.looks.is_due() {
            return;
        }
        let (durable, freed) = std::mem::take(&mut self.freed)
            .into_iter()
            .partition::<Vec<_>, _>(|freed| freed.is_durable(cache));
        self.freed = freed;
        durable.iter().for_each(|freed| freed.release(&mut self.groups, &self.geometry));
        let mut left = self.freed.len();
        let mut waits = |patches: &mut Vec<PatchId>| {
            patches.retain(|patch| !cache.is_committed(*patch));
            left += patches.len();
            !patches.is_empty()
        };
        self.recent.retain(|_, patches| waits(patches));
        self.cleared.retain(|_, patches| waits(patches));
        self.names.retain(|_, patches| waits(patches));
        self.away.retain(|_, patches| waits(patches));
        self.touched.retain(|_, blocks| {
            blocks.retain(|block| cache.is_dirty(*block));
            left += blocks.len();
            !blocks.is_empty()
        });
        self.looks.note_look(left);
    }

    /// Makes everything durable: in the journal if this mount writes it, else in its place.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let Some(log) = &self.log else { return self.settle() };
        let is_apart = log.bytes != Bytes::Logged;
        self.commit()?;
        let log = &self.log;
        let is_logged = |block| log.as_ref().is_some_and(|log| log.has(block));
        if is_apart && !self.cache.data_patches(is_logged, None).is_empty() {
            self.cache.wave().map_err(failed)?;
            self.note_durable();
        }
        Ok(())
    }

    /// Makes everything durable in its place.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.write_counts()?;
        self.commit()?;
        self.cache.sync().map_err(failed)?;
        self.note_durable();
        Ok(())
    }

    /// Writes what is ready, and lets the rest be ready next time; whether there was anything.
    pub(crate) fn step(&mut self) -> Result<bool> {
        if self.cache.is_clean() {
            return Ok(false);
        }
        if self.cache.group().is_some() {
            self.commit()?;
            return Ok(true);
        }
        self.write_counts()?;
        self.cache.wave().map_err(failed)?;
        self.note_durable();
        Ok(true)
    }

    /// Writes what is ready if too much waits.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        if self.cache.is_full() {
            self.commit()?;
        }
        while self.cache.is_full() && self.cache.wave().map_err(failed)? {
            self.note_durable();
        }
        Ok(())
    }

    /// Writes the counts of what is free.
    pub(crate) fn write_counts(&mut self) -> Result<()> {
        if self.groups.iter().all(|group| !group.is_changed) {
            return Ok(());
        }
        let mut plan = Plan::default();
        let metadata = |block| (block, Content::Metadata);
        for (which, group) in self.groups.iter_mut().enumerate().filter(|(_, it)| it.is_changed) {
            let (block, at) = self.geometry.descriptor(which as u64);
            let mut counts = [0; 6];
            put_u16(&mut counts, 0, group.free_blocks);
            put_u16(&mut counts, 2, group.free_inodes);
            put_u16(&mut counts, 4, group.directories);
            plan.write(&mut self.cache, metadata(block), at + 12, &counts, &[]).map_err(failed)?;
            group.is_changed = false;
        }
        let (block, at) = self.geometry.superblock();
        let mut counts = [0; 8];
        put_u32(&mut counts, 0, self.free_blocks as u32);
        put_u32(&mut counts, field::FREE_INODES - field::FREE_BLOCKS, self.free_inodes as u32);
        let at = at + field::FREE_BLOCKS;
        plan.write(&mut self.cache, metadata(block), at, &counts, &[]).map_err(failed)?;
        if self.log.is_some() {
            self.mark()?;
            self.open_log_room()?;
        }
        self.cache.apply(plan).map_err(failed)?;
        Ok(())
    }

    /// Says durably in the superblock that the image is in use, before anything else is changed.
    pub(crate) fn mark(&mut self) -> Result<()> {
        if self.marks.is_marked {
            return Ok(());
        }
        self.write_mark(true)?;
        self.begin_log()?;
        self.marks.is_marked = true;
        Ok(())
    }

    /// Says that it is not in use any more, when all else is durable.
    pub(crate) fn unmark(&mut self) -> Result<()> {
        self.settle()?;
        if self.marks.is_marked {
            self.empty_log(true)?;
            self.write_mark(false)?;
            self.marks.is_marked = false;
        }
        Ok(())
    }

    /// An image whose journal is written is to be replayed; another is not valid meanwhile.
    fn write_mark(&mut self, is_in_use: bool) -> Result<()> {
        let (block, at) = self.geometry.superblock();
        let is_logged = self.log.is_some();
        let known = self.cache.read(block).map_err(failed)?;
        let features = u32_at(known, at + field::INCOMPAT) & !INCOMPAT_RECOVER;
        let recover = if is_logged && is_in_use { INCOMPAT_RECOVER } else { 0 };
        let features = (features | recover).to_le_bytes();
        let state = u16_at(known, at + field::STATE) & !STATE_VALID;
        let is_valid = self.marks.was_valid && (is_logged || !is_in_use);
        let state = (state | if is_valid { STATE_VALID } else { 0 }).to_le_bytes();
        let mut plan = Plan::default();
        let place = (block, Content::Metadata);
        for (which, new) in [(field::INCOMPAT, &features[..]), (field::STATE, &state[..])] {
            plan.write(&mut self.cache, place, at + which, new, &[]).map_err(failed)?;
        }
        let last = at + field::LAST_MOUNTED;
        let mut mark = self.cache.read(block).map_err(failed)?[last..last + 20].to_vec();
        let was_soft = mark == SOFT_UPDATES_MARK;
        let is_sound = self.marks.was_valid || was_soft;
        match self.discipline {
            // Another program's crash is not to be taken for one of ours.
            Discipline::SoftUpdates if is_in_use && is_sound => {
                mark.copy_from_slice(SOFT_UPDATES_MARK);
            }
            Discipline::Unordered if was_soft => mark.fill(0),
            _ if was_soft && self.marks.was_valid => mark.fill(0),
            _ => (),
        }
        plan.write(&mut self.cache, place, last, &mark, &[]).map_err(failed)?;
        self.cache.apply_beside(plan).map_err(failed)?;
        self.cache.sync().map_err(failed)
    }

    /// Notes that something makes no sense: nothing is changed any more, and the superblock says
    /// durably that there are errors.
    pub(crate) fn note_damage(&mut self, what: &str, now: Timestamp) {
        if self.damage.is_none() {
            self.damage = Some(what.to_owned());
            self.engaged.clear();
            // If that fails too, nothing can be written, and syncs answer with the reason.
            let _told_by_syncs = self.write_error_mark(now);
        }
    }

    fn write_error_mark(&mut self, now: Timestamp) -> Result<()> {
        let (block, at) = self.geometry.superblock();
        let state = u16_at(self.cache.read(block).map_err(failed)?, at + field::STATE);
        let state = (state | STATE_ERRORS).to_le_bytes();
        let mut work = Work::new(self, now);
        let done = work.write(block, at + field::STATE, &state, &[]).map(drop);
        work.end(done)?;
        self.sync()
    }

    /// Lets nothing of a file lie in these blocks.
    pub(crate) fn keep_out(&mut self, blocks: &[u64]) {
        for block in blocks {
            match self.system.last_mut() {
                Some(last) if last.end == *block => last.end += 1,
                _ => self.system.push(*block..*block + 1),
            }
        }
        self.system.sort_unstable_by_key(|range| range.start);
    }
}

impl State {
    /// Tells a search for leaks which names there are more and fewer.
    fn note_names(&mut self, named: &[Named]) {
        for named in named {
            let is_directory = self.raw_inode(named.target).is_ok_and(|it| it.is_directory());
            if let Some(census) = &mut self.census {
                census.note_name(*named, is_directory);
            }
        }
    }

    /// Makes the changes of an operation, which has taken some blocks.
    fn begin(&mut self, mut plan: Plan, fresh: &BTreeSet<u64>) -> Result<Vec<PatchId>> {
        self.mark()?;
        self.choose_logged(&mut plan, fresh);
        if self.is_too_large(&plan) {
            // Some of it is there only because older bytes of the same blocks are in the journal.
            self.commit()?;
            self.empty_log(false)?;
            self.choose_logged(&mut plan, fresh);
        }
        self.make_log_room(&plan)?;
        self.set_behind(&mut plan);
        self.cache.apply(plan).map_err(failed)
    }
}

/// An operation: what it plans, and what it takes on the way.
pub(crate) struct Work<'s> {
    pub(crate) state: &'s mut State,
    pub(crate) plan: Plan,
    pub(crate) now: Timestamp,
    /// Blocks and inodes that it has taken, given back if it fails.
    pub(crate) taken: Vec<crate::state::allocate::Taken>,
    /// Blocks and inodes that it frees.
    pub(crate) freeing: Vec<crate::state::allocate::Freeing>,
    /// What it writes to a file, its new name, or what leads to a new directory: with the inode.
    pub(crate) written: Option<(u64, Vec<After>)>,
    /// What is to be durable after a sync of an inode, besides what it writes there.
    pub(crate) leads: Vec<(u64, Vec<After>)>,
    /// What clears pointers and bytes behind the ends of files.
    pub(crate) cleared: Vec<(u64, Vec<After>)>,
    /// A name that it takes from a directory, and the steps that do so.
    pub(crate) away: Option<(NameIn, Vec<After>)>,
    /// An inode that has lost its last name, and the steps that say so.
    pub(crate) nameless: Option<(u64, Vec<After>)>,
    /// What it does to entries of directories.
    pub(crate) noted: Vec<Noted>,
    /// Blocks of directories whose entries it changes.
    pub(crate) touched: Vec<(u64, u64)>,
    /// A directory that it makes.
    pub(crate) new_directory: Option<u64>,
    /// Names that it adds and takes away.
    pub(crate) named: Vec<Named>,
    /// The list of orphans as it leaves it.
    pub(crate) orphans: Option<Vec<u64>>,
    /// A file that is still to be cut to so many blocks.
    pub(crate) to_cut: Option<(u64, u64)>,
}

impl<'s> Work<'s> {
    pub(crate) fn new(state: &'s mut State, now: Timestamp) -> Work<'s> {
        let (taken, freeing, noted) = (Vec::new(), Vec::new(), Vec::new());
        Work {
            state,
            plan: Plan::default(),
            now,
            taken,
            freeing,
            written: None,
            leads: Vec::new(),
            cleared: Vec::new(),
            away: None,
            nameless: None,
            noted,
            touched: Vec::new(),
            new_directory: None,
            named: Vec::new(),
            orphans: None,
            to_cut: None,
        }
    }

    /// Makes all of it happen.
    pub(crate) fn finish(mut self) -> Result<()> {
        let plan = std::mem::take(&mut self.plan);
        if plan.is_empty() {
            return Ok(());
        }
        let inodes: BTreeSet<u64> = plan.owners().map(|owner| owner.0).collect();
        let made = match self.state.begin(plan, &self.taken_blocks()) {
            Ok(made) => made,
            Err(error) => {
                self.give_up();
                return Err(error);
            }
        };
        let group = self.state.cache.group();
        // What is done in a group is durable with it.
        let patch = |step: &After| match (group, step) {
            (Some(group), _) => group,
            (None, After::Step(step)) => made[*step],
            (None, After::Patch(patch)) => *patch,
            (None, After::Bytes { .. }) => unreachable!("a step is one of the operation's changes"),
        };
        if let Some(orphans) = self.orphans.take() {
            self.state.orphans = orphans;
        }
        Work::note_entries(self.state, std::mem::take(&mut self.noted));
        if let Some(number) = self.new_directory {
            Work::note_new_directory(self.state, number);
        }
        self.state.note_names(&self.named);
        for taken in &self.taken {
            self.state.count_taken(taken);
        }
        for freeing in &self.freeing {
            let freed = freeing.freed(&patch);
            self.state.count_freed(&freed);
            freed.blocks().iter().for_each(|block| self.state.revoke(*block));
            self.state.freed.push(freed);
            self.state.looks.note(1);
        }
        if group.is_none() {
            self.note_waiting(&patch);
        }
        let led = self
            .leads
            .iter()
            .chain(&self.written)
            .chain(&self.cleared)
            .flat_map(|(_, steps)| steps)
            .map(patch);
        let led: Vec<PatchId> = led.collect();
        self.state.note_engaged(&[made, led].concat(), &inodes);
        Ok(())
    }

    /// Notes what is not durable yet, for syncs and for what comes after it.
    fn note_waiting(&mut self, patch: &dyn Fn(&After) -> PatchId) {
        for (directory, block) in &self.touched {
            let is_more = self.state.touched.entry(*directory).or_default().insert(*block);
            self.state.looks.note(usize::from(is_more));
        }
        if let Some((number, steps)) = &self.nameless {
            self.state.nameless.insert(*number, steps.iter().map(patch).collect());
        }
        for (number, steps) in &self.leads {
            let names = self.state.names.entry(*number).or_default();
            names.extend(steps.iter().map(patch));
            self.state.looks.note(steps.len());
        }
        if let Some((name, steps)) = self.away.take() {
            let away = self.state.away.entry(name).or_default();
            away.extend(steps.iter().map(patch));
            self.state.looks.note(steps.len());
        }
        for (number, steps) in &self.cleared {
            let cleared = self.state.cleared.entry(*number).or_default();
            cleared.extend(steps.iter().map(patch));
            self.state.looks.note(steps.len());
        }
        if let Some((number, steps)) = &self.written {
            let recent = self.state.recent.entry(*number).or_default();
            recent.extend(steps.iter().map(patch));
            recent.sort_unstable();
            recent.dedup();
            self.state.looks.note(steps.len());
        }
    }

    /// Gives back what was taken.
    pub(crate) fn give_up(self) {
        for taken in &self.taken {
            taken.give_back(&mut self.state.groups, &self.state.geometry);
        }
    }

    /// A block of metadata as this operation leaves it.
    pub(crate) fn read(&mut self, block: u64) -> Result<&[u8]> {
        self.plan.read(&mut self.state.cache, block).map_err(failed)
    }

    /// Changes a block of metadata.
    pub(crate) fn write(
        &mut self,
        block: u64,
        at: usize,
        bytes: &[u8],
        after: &[After],
    ) -> Result<Vec<After>> {
        let place = (block, Content::Metadata);
        self.plan.write(&mut self.state.cache, place, at, bytes, after).map_err(failed)
    }

    /// An inode as this operation leaves it, whatever it is.
    pub(crate) fn raw_inode(&mut self, number: u64) -> Result<Inode> {
        let (block, at) = self.state.place(number)?;
        let Geometry { checksums, inode_bytes, .. } = self.state.geometry;
        let bytes = self.read(block)?;
        Inode::read(checksums, number, &bytes[at..at + inode_bytes])
    }

    /// An inode that is there.
    pub(crate) fn inode(&mut self, number: u64) -> Result<Inode> {
        let inode = self.raw_inode(number)?;
        self.state.check_inode(number, &inode)?;
        Ok(inode)
    }

    /// Changes an inode. What becomes of one without a name belongs to no file any more.
    pub(crate) fn store(
        &mut self,
        number: u64,
        inode: &Inode,
        after: &[After],
    ) -> Result<Vec<After>> {
        let is_gone = self.state.nameless.contains_key(&number);
        self.store_of(if is_gone { FREED } else { Owner(number) }, (number, inode), after)
    }

    /// The same for an owner.
    pub(crate) fn store_of(
        &mut self,
        owner: Owner,
        (number, inode): (u64, &Inode),
        after: &[After],
    ) -> Result<Vec<After>> {
        let (block, at) = self.state.place(number)?;
        let before = self.plan.set_owner(owner);
        let steps = self.write(block, at, &inode.bytes, after);
        self.plan.set_owner(before);
        steps
    }

    /// An inode that must be a directory.
    pub(crate) fn directory(&mut self, ino: Ino) -> Result<(u64, Inode)> {
        let number = number(ino)?;
        let inode = self.inode(number)?;
        if !inode.is_directory() {
            return Err(Error::NotDirectory);
        }
        Ok((number, inode))
    }

    /// A directory that can take entries: one that has been removed cannot.
    pub(crate) fn living_directory(&mut self, ino: Ino) -> Result<(u64, Inode)> {
        let (number, inode) = self.directory(ino)?;
        if inode.links() == 0 {
            return Err(Error::NotFound);
        }
        check_changeable(&inode)?;
        Ok((number, inode))
    }

    /// An inode that must be a regular file.
    pub(crate) fn regular(&mut self, ino: Ino) -> Result<(u64, Inode)> {
        let number = number(ino)?;
        let inode = self.inode(number)?;
        match inode.kind() {
            Some(Kind::Regular) => Ok((number, inode)),
            Some(Kind::Directory) => Err(Error::IsDirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }
}

/// Refuses to change what is marked as fixed.
pub(crate) fn check_changeable(inode: &Inode) -> Result<()> {
    if inode.flags() & FLAGS_FIXED != 0 { Err(Error::NotPermitted) } else { Ok(()) }
}
