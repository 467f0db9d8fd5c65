//! An open image as plain parts: its memory, and what is known of it beside.
//!
//! All but the memory is derived: a scan of the image finds the same again.

pub(crate) mod checkpoint;
mod commit;
mod counts;
mod directory;
mod failure;
mod frozen;
mod inode;
mod opening;
mod operations;
mod scan;
mod sharing;
mod slots;
pub(crate) mod spare;
mod tree;

pub(crate) use frozen::{Found, Frozen, Work};
pub(crate) use operations::{Move, PIECE_BYTES_MAX};
pub use slots::Which;
pub(crate) use slots::{ROOT_NAME, Slot};

use crate::layout::{FLAG_XATTRS, INODE, INODES, PAGE, field, slot_field};
use crate::memory::Memory;
use crate::space::Space;
use checkpoint::Held;
use counts::ContentCounts;
use directory::Directory;
use failure::Failure;
use foldhash::HashMap;
use marram_vfs::{Error, Ino, Kind, Result};
use sharing::{Branch, Leaves, inodes_in};
use slots::Slots;
use std::collections::hash_map::IntoIter;
use std::ops::Range;
use tree::UNSIZED;

/// Directories of states that have been left that a change drops.
const FORGOTTEN_AT_ONCE: usize = 8;
/// Pages that are prepared together: some ten microseconds for one of so many operations.
const PREPARED_PAGES: u64 = 32;

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
    /// When reading a file moves its own.
    pub(crate) times: AccessTimes,
    /// Whether reading a directory does so too (`nodiratime` says no).
    pub(crate) of_directories: bool,
}

/// What a crash has left of a dataset, until it is taken away.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Inodes that nothing names.
    pub(crate) nameless: Vec<u64>,
    /// Places of pages of the inode table without inodes.
    pub(crate) empty: Vec<u64>,
}

/// What is known of a dataset or snapshot.
#[derive(Debug, Default)]
pub(crate) struct Dataset {
    /// Its number.
    pub(crate) number: u64,
    /// The address of its slot.
    pub(crate) slot: u64,
    /// How many inodes it has, if they were counted.
    pub(crate) inodes_used: Option<u64>,
    /// Numbers that its next inodes get.
    pub(crate) numbers: Range<u64>,
    /// What is known of each directory that was met.
    pub(crate) directories: HashMap<u64, Directory>,
    /// File systems that it is open as.
    pub(crate) handles: u32,
    /// Pins by inode.
    pub(crate) pins: HashMap<u64, u64>,
    /// Which access times move.
    pub(crate) access: Access,
    /// It can have inodes that nothing names and nothing pins: the next mount takes them away.
    pub(crate) has_left: bool,
    /// Such of which it is known, and that there was no space to take away.
    pub(crate) waiting: Vec<u64>,
    /// What the mount has found of that.
    pub(crate) left: Left,
}

impl Dataset {
    /// Address of the root pointer of its inode table.
    pub(crate) fn root_at(&self) -> u64 {
        self.slot + slot_field::ROOT
    }
}

/// The parts.
pub(crate) struct State {
    /// The image.
    pub(crate) memory: Memory,
    /// Pages in use.
    pub(crate) space: Space,
    /// The datasets and snapshots that there are.
    pub(crate) slots: Slots,
    /// The next number to give away.
    pub(crate) next_number: u64,
    /// The dataset or snapshot that operations are about: [`State::enter`] says which.
    pub(crate) dataset: Dataset,
    /// The others of which something is known, by their numbers.
    pub(crate) others: HashMap<u64, Dataset>,
    /// Directories that were known of states that have been left: each change drops some.
    pub(crate) forgotten: Vec<IntoIter<u64, Directory>>,
    /// At least as many names and indexes as the indexes of directories have together.
    pub(crate) indexed: usize,
    /// How many there may be.
    pub(crate) indexed_max: usize,
    /// Pages of content of files that were asked for.
    pub(crate) content_counts: ContentCounts,
    /// Pages that the running operation leaves free: none if it gives space back.
    pub(crate) kept_free: u64,
    /// Pages that the medium has prepared, by their addresses.
    pub(crate) prepared: Range<u64>,
    /// Pages that the running operation has taken.
    pub(crate) fresh: Vec<u64>,
    /// Inodes that it has written, and that nothing names yet.
    pub(crate) made: Vec<Node>,
    /// What it has put out of use, to be freed once it is durable.
    pub(crate) freed: Vec<Branch>,
    /// What the operation before has put out of use, which is not durable yet.
    pub(crate) late: Vec<Branch>,
    /// The checkpoint that is durable, and what it holds.
    pub(crate) held: Option<Held>,
    /// How many bytes had been stored when it was taken.
    pub(crate) checkpointed_at: Option<u64>,
    /// How many operations have put something out of use.
    pub(crate) removals: u64,
    /// How many had when checkpoints made no space for an operation. Another one makes none either.
    pub(crate) full_at: Option<u64>,
    /// The image has been closed, and does not change any more.
    pub(crate) is_closed: bool,
    /// Since it has failed nothing is stored.
    failure: Option<Failure>,
}

/// An inode in memory: where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its number.
    pub(crate) ino: u64,
    /// Its address.
    pub(crate) at: u64,
}

impl Node {
    /// The address of a field.
    pub(crate) fn field(self, field: u64) -> u64 {
        self.at + field
    }
}

/// What all operations ask of an inode first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Basics {
    /// Kind and permissions.
    pub(crate) mode: u32,
    /// Flags.
    pub(crate) flags: u16,
    /// Link count.
    pub(crate) links: u32,
    /// Size, or of a directory its parent.
    pub(crate) size: u64,
}

impl Basics {
    /// Its kind.
    pub(crate) fn kind(&self) -> Result<Kind> {
        Kind::from_mode(self.mode)
            .ok_or_else(|| Error::Damaged(format!("an inode has mode {:o}", self.mode)))
    }

    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        Kind::from_mode(self.mode) == Some(Kind::Directory)
    }

    /// Permission bits.
    pub(crate) fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether there are extended attributes.
    pub(crate) fn has_xattrs(&self) -> bool {
        self.flags & FLAG_XATTRS != 0
    }
}

impl State {
    /// Turns to a dataset or snapshot.
    ///
    /// # Errors
    /// [`Error::Stale`]: it is gone.
    pub(crate) fn enter(&mut self, number: u64) -> Result<()> {
        let slot = self.slots.get(number).ok_or(Error::Stale)?.at;
        if self.dataset.number != number {
            let unknown = || Dataset { number, slot, has_left: true, ..Dataset::default() };
            let next = self.others.remove(&number).unwrap_or_else(unknown);
            let last = std::mem::replace(&mut self.dataset, next);
            if self.slots.get(last.number).is_some() {
                self.others.insert(last.number, last);
            }
        }
        Ok(())
    }

    /// Forgets what is known of a snapshot, from which operations turn away.
    pub(crate) fn leave(&mut self) {
        self.dataset = Dataset::default();
    }

    /// Notes that an inode is there.
    pub(crate) fn note_inode(&mut self) {
        self.dataset.inodes_used = self.dataset.inodes_used.map(|used| used + 1);
        self.made.clear();
    }

    /// How many inodes there are.
    pub(crate) fn inodes_used(&mut self) -> Result<u64> {
        if let Some(used) = self.dataset.inodes_used {
            return Ok(used);
        }
        let root = self.memory.word(self.dataset.root_at())?;
        let mut used = 0;
        self.walk(root, (0, UNSIZED), &mut |met| {
            let page = Branch { first: met.first, leaves: Leaves::Inodes, ..Branch::leaf(met.at) };
            for node in inodes_in(&page).filter(|_| met.height == 0) {
                used += u64::from(self.is_used(node)?);
            }
            Ok(())
        })?;
        self.dataset.inodes_used = Some(used);
        Ok(used)
    }

    /// Where an inode lies that must be there.
    pub(crate) fn node(&self, ino: Ino) -> Result<Node> {
        let place = ino.0 / INODES;
        let page = self.page_at(self.memory.word(self.dataset.root_at())?, place)?;
        let node = Node { ino: ino.0, at: page + ino.0 % INODES * INODE };
        if page == 0 || !self.is_used(node)? {
            return Err(Error::Stale);
        }
        Ok(node)
    }

    /// Whether there is an inode at a place.
    pub(crate) fn is_used(&self, node: Node) -> Result<bool> {
        Ok(self.memory.word(node.field(field::MODE))? & 0xffff != 0)
    }

    /// The basics of an inode.
    pub(crate) fn basics(&self, node: Node) -> Result<Basics> {
        let word = self.memory.word(node.field(field::MODE))?;
        Ok(Basics {
            mode: (word & 0xffff) as u32,
            flags: (word >> 16 & 0xffff) as u16,
            links: (word >> 32) as u32,
            size: self.memory.word(node.field(field::SIZE))?,
        })
    }

    /// As [`State::node`], with its basics.
    pub(crate) fn inode(&self, ino: Ino) -> Result<(Node, Basics)> {
        let node = self.node(ino)?;
        Ok((node, self.basics(node)?))
    }

    /// An inode that must be a directory.
    pub(crate) fn directory(&self, ino: Ino) -> Result<(Node, Basics)> {
        let (node, basics) = self.inode(ino)?;
        if !basics.is_directory() {
            return Err(Error::NotDirectory);
        }
        Ok((node, basics))
    }

    /// A directory that can take entries: one that has been removed cannot.
    pub(crate) fn living_directory(&self, ino: Ino) -> Result<(Node, Basics)> {
        let (node, basics) = self.directory(ino)?;
        if basics.links == 0 {
            return Err(Error::NotFound);
        }
        Ok((node, basics))
    }

    /// An inode that must be a regular file.
    pub(crate) fn regular(&self, ino: Ino) -> Result<(Node, Basics)> {
        let (node, basics) = self.inode(ino)?;
        match basics.kind()? {
            Kind::Regular => Ok((node, basics)),
            Kind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::InvalidArgument("not a regular file")),
        }
    }

    /// A page for the running operation.
    pub(crate) fn take_page(&mut self) -> Result<u64> {
        self.take_page_beside(0)
    }

    /// A page for the running operation, that leaves so many more free.
    pub(crate) fn take_page_beside(&mut self, more: u64) -> Result<u64> {
        self.use_spare(self.kept_free + more)?;
        let page = self.space.take(self.kept_free + more)?;
        self.fresh.push(page);
        if !self.prepared.contains(&page) {
            self.prepare_from(page);
        }
        Ok(page)
    }

    /// Has the medium prepare a page and the free ones behind it, which come next.
    fn prepare_from(&mut self, page: u64) {
        let bytes = self.space.free_behind(page, PREPARED_PAGES) * PAGE;
        self.prepared = page..page + PAGE + bytes;
        if bytes > 0 {
            self.memory.prepare(page, PAGE + bytes);
        }
    }

    /// Runs a step that is there for itself when it returns, in the middle of an operation: the
    /// pages that it takes are not given back with that.
    pub(crate) fn apart<R>(&mut self, run: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let before = std::mem::take(&mut self.fresh);
        let done = run(self);
        let taken = std::mem::replace(&mut self.fresh, before);
        if done.is_err() {
            self.fresh.extend(taken);
        }
        done
    }

    /// Ends a change by an operation. In an epoch it is durable with the next one.
    pub(crate) fn end_change(&mut self) {
        if !self.memory.is_epoch() {
            return self.end_operation();
        }
        self.memory.flush();
        self.fresh.clear();
        self.made.clear();
        self.removals += u64::from(!self.freed.is_empty());
        self.late.append(&mut self.freed);
    }

    /// Makes all durable that has returned, before anything else is stored.
    pub(crate) fn end_epoch(&mut self) {
        if self.memory.is_owed() {
            self.memory.persist();
            let late = std::mem::take(&mut self.late);
            self.freed.extend(late);
            self.release_freed();
        }
    }

    /// Frees what the running operation has put out of use.
    pub(crate) fn end_operation(&mut self) {
        self.memory.persist();
        self.fresh.clear();
        self.made.clear();
        self.removals += u64::from(!self.freed.is_empty());
        self.release_freed();
    }

    /// Drops some of what is known of states that have been left.
    pub(crate) fn drop_forgotten(&mut self) {
        if let Some(directories) = self.forgotten.last_mut()
            && directories.take(FORGOTTEN_AT_ONCE).count() < FORGOTTEN_AT_ONCE
        {
            self.forgotten.pop();
        }
    }

    /// Gives back what an operation has taken that was refused.
    pub(crate) fn give_up(&mut self) {
        for node in std::mem::take(&mut self.made) {
            let _inside_of_the_image = self.memory.store(node.field(field::MODE), 2, 0);
        }
        self.memory.persist();
        self.freed.clear();
        for page in std::mem::take(&mut self.fresh) {
            self.space.release(page);
        }
    }

    /// Pins an inode once more.
    pub(crate) fn pin(&mut self, ino: u64) {
        *self.dataset.pins.entry(ino).or_insert(0) += 1;
    }

    /// Whether an inode is pinned.
    pub(crate) fn is_pinned(&self, ino: u64) -> bool {
        self.dataset.pins.contains_key(&ino)
    }

    /// The present contents of a page.
    pub(crate) fn page(&self, address: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; PAGE as usize];
        self.memory.read(address, &mut bytes)?;
        Ok(bytes)
    }
}
