//! An open image as plain parts: its memory, and what is known of it beside.
//!
//! All but the memory is derived: a scan of the image finds the same again.

mod commit;
mod counts;
mod directory;
mod inode;
mod opening;
mod operations;
mod scan;
mod tree;

pub(crate) use operations::{Move, PIECE_BYTES_MAX};

use crate::layout::{FLAG_XATTRS, INODE, INODES, PAGE, TABLE_ROOT, field};
use crate::memory::Memory;
use crate::space::Space;
use counts::ContentCounts;
use directory::Directory;
use marram_vfs::{Error, Ino, Kind, Result};
use std::collections::{BTreeMap, HashMap};

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

/// The parts.
pub(crate) struct State {
    /// The image.
    pub(crate) memory: Memory,
    /// Pages in use.
    pub(crate) space: Space,
    /// Which inodes are there: of each page of the inode table one bit an inode.
    pub(crate) inodes: BTreeMap<u64, u32>,
    /// How many they are.
    pub(crate) inodes_used: u64,
    /// The next number to give away.
    pub(crate) next_inode: u64,
    /// What is known of each directory that was met.
    pub(crate) directories: HashMap<u64, Directory>,
    /// At least as many names and indexes as the indexes of directories have together.
    pub(crate) indexed: usize,
    /// Pages of content of files that were asked for.
    pub(crate) content_counts: ContentCounts,
    /// Pins by inode.
    pub(crate) pins: HashMap<u64, u64>,
    /// Which access times move.
    pub(crate) access: Access,
    /// Pages that the running operation has taken.
    pub(crate) fresh: Vec<u64>,
    /// Pages that are free once the running operation is durable.
    pub(crate) freed: Vec<u64>,
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
    /// Whether an inode is there.
    pub(crate) fn is_used(&self, ino: u64) -> bool {
        let mask = self.inodes.get(&(ino / INODES)).copied().unwrap_or(0);
        mask >> (ino % INODES) & 1 != 0
    }

    /// Notes that an inode is there.
    pub(crate) fn note_inode(&mut self, ino: u64) {
        *self.inodes.entry(ino / INODES).or_insert(0) |= 1 << (ino % INODES);
        self.inodes_used += 1;
    }

    /// Notes that it is not; whether the page of the table that it was in has no other.
    pub(crate) fn drop_inode(&mut self, ino: u64) -> bool {
        let page = ino / INODES;
        let Some(mask) = self.inodes.get_mut(&page) else { return false };
        *mask &= !(1 << (ino % INODES));
        self.inodes_used -= 1;
        let is_empty = *mask == 0;
        if is_empty {
            self.inodes.remove(&page);
        }
        is_empty
    }

    /// Where an inode lies that must be there.
    pub(crate) fn node(&self, ino: Ino) -> Result<Node> {
        if !self.is_used(ino.0) {
            return Err(Error::Stale);
        }
        let page = self.page_at(self.memory.word(TABLE_ROOT)?, ino.0 / INODES)?;
        if page == 0 {
            return Err(Error::Damaged(format!("inode {} has no place", ino.0)));
        }
        Ok(Node { ino: ino.0, at: page + ino.0 % INODES * INODE })
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
        let page = self.space.take()?;
        self.fresh.push(page);
        Ok(page)
    }

    /// Frees what the running operation has put out of use.
    pub(crate) fn end_operation(&mut self) {
        self.memory.persist();
        self.fresh.clear();
        for page in std::mem::take(&mut self.freed) {
            self.space.release(page);
        }
    }

    /// Gives back what an operation has taken that was refused.
    pub(crate) fn give_up(&mut self) {
        self.memory.persist();
        self.freed.clear();
        for page in std::mem::take(&mut self.fresh) {
            self.space.release(page);
        }
    }

    /// Pins an inode once more.
    pub(crate) fn pin(&mut self, ino: u64) {
        *self.pins.entry(ino).or_insert(0) += 1;
    }

    /// Whether an inode is pinned.
    pub(crate) fn is_pinned(&self, ino: u64) -> bool {
        self.pins.contains_key(&ino)
    }

    /// The present contents of a page.
    pub(crate) fn page(&self, address: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; PAGE as usize];
        self.memory.read(address, &mut bytes)?;
        Ok(bytes)
    }
}
