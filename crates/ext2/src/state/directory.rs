//! Directories: entries in blocks, and an index of them in memory.
//!
//! An entry never moves, so its place is its cookie. Indexes that the kernel keeps in a directory
//! are read over; one is given up before an entry is added that it would not know.

use crate::bytes::{put_u16, put_u32, u16_at, u32_at};
use crate::checksum;
use crate::error::failed;
use crate::inode::{FLAG_INDEX, Inode, SIZE_AT};
use crate::state::blocks::Growth;
use crate::state::census::Named;
use crate::state::rules::Rule;
use crate::state::{State, Work, damaged, shown};
use marram_patch::{After, Content, Owner};
use marram_vfs::{DirectoryEntry, Error, Ino, Kind, Name, Result};
use std::collections::HashMap;

/// Most entries of all indexes together.
const INDEXED_MAX: usize = 1 << 20;
/// Bytes before the name of an entry.
const HEAD: usize = 8;
/// What the medium writes whole.
const SECTOR: usize = 512;
/// Largest directory.
const DIRECTORY_BYTES_MAX: u64 = 1 << 30;

/// What is known of a directory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Where each entry is, in bytes from the beginning of the directory.
    names: HashMap<Box<[u8]>, u64>,
    blocks: Vec<Room>,
}

/// What is known of a block of a directory.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// The largest room for a new entry.
    largest: usize,
    /// No entry lies in two sectors, now and on the medium: what comes in a sector is seen,
    /// whatever becomes of the one before it.
    is_parted: bool,
}

/// An entry of a block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: usize,
    /// Where the entry before it in the block is.
    before: Option<usize>,
    ino: u64,
    len: usize,
    name_len: usize,
    kind: u8,
}

impl Entry {
    /// Bytes that it needs itself.
    fn needs(&self) -> usize {
        if self.ino == 0 { 0 } else { needed(self.name_len) }
    }

    /// Whether it is one that users see.
    fn is_users(&self, bytes: &[u8]) -> bool {
        let name = &bytes[self.at + HEAD..self.at + HEAD + self.name_len];
        self.ino != 0 && name != b"." && name != b".."
    }
}

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    directory: u64,
    /// The block, which of the directory it is, and where the entry is in it.
    block: u64,
    which: u64,
    entry: Entry,
    /// Its inode.
    pub(crate) number: u64,
}

/// Bytes of an entry with a name of so many.
fn needed(name_len: usize) -> usize {
    (HEAD + name_len).next_multiple_of(4)
}

/// The number by which an entry says a kind.
fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Regular => 1,
        Kind::Directory => 2,
        Kind::CharDevice => 3,
        Kind::BlockDevice => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
        Kind::Symlink => 7,
    }
}

fn kind_of(number: u8) -> Option<Kind> {
    let kinds = [
        Kind::Regular,
        Kind::Directory,
        Kind::CharDevice,
        Kind::BlockDevice,
        Kind::Fifo,
        Kind::Socket,
        Kind::Symlink,
    ];
    kinds.get(usize::from(number).checked_sub(1)?).copied()
}

/// The entries of a block.
fn entries(bytes: &[u8], inodes: u64) -> Result<Vec<Entry>> {
    let (mut at, mut before, mut entries) = (0, None, Vec::new());
    while at < bytes.len() {
        let bad = || damaged(format!("an entry of a directory makes no sense at byte {at}"));
        if bytes.len() - at < HEAD + 4 {
            return Err(bad());
        }
        let len = usize::from(u16_at(bytes, at + 4));
        let (name_len, ino) = (usize::from(bytes[at + 6]), u64::from(u32_at(bytes, at)));
        let fits = len >= HEAD + 4 && len.is_multiple_of(4) && at + len <= bytes.len();
        if !fits || HEAD + name_len > len || ino > inodes || ino != 0 && name_len == 0 {
            return Err(bad());
        }
        entries.push(Entry { at, before, ino, len, name_len, kind: bytes[at + 7] });
        (before, at) = (Some(at), at + len);
    }
    Ok(entries)
}

/// The largest room for a new entry.
fn room(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.len - entry.needs()).max().unwrap_or(0)
}

/// Whether an entry begins at each sector of a block.
fn is_parted(entries: &[Entry], block_bytes: usize) -> bool {
    entries.iter().filter(|entry| entry.at % SECTOR == 0).count() == block_bytes / SECTOR
}

/// Entries of no inode that fill a part of a block, each a sector.
fn fill_sectors(bytes: &mut [u8]) {
    for sector in bytes.chunks_mut(SECTOR) {
        let len = sector.len() as u16;
        put_u16(sector, 4, len);
    }
}

/// The bytes of an entry.
fn encode(number: u64, len: usize, name: &[u8], kind: u8) -> Vec<u8> {
    let mut bytes = vec![0; HEAD + name.len()];
    put_u32(&mut bytes, 0, number as u32);
    put_u16(&mut bytes, 4, len as u16);
    bytes[6] = name.len() as u8;
    bytes[7] = kind;
    bytes[HEAD..].copy_from_slice(name);
    bytes
}

/// The first block of a new directory.
pub(crate) fn first_block(
    number: u64,
    parent: u64,
    has_kinds: bool,
    block_bytes: usize,
) -> Vec<u8> {
    let kind = if has_kinds { kind_number(Kind::Directory) } else { 0 };
    let mut bytes = vec![0; block_bytes];
    bytes[..9].copy_from_slice(&encode(number, 12, b".", kind));
    bytes[12..22].copy_from_slice(&encode(parent, SECTOR - 12, b"..", kind));
    fill_sectors(&mut bytes[SECTOR..]);
    bytes
}

impl Work<'_> {
    fn directory_blocks(&self, inode: &Inode) -> Result<u64> {
        let (size, block_bytes) = (inode.size(), self.state.geometry.block_bytes as u64);
        let most = DIRECTORY_BYTES_MAX.min(self.state.geometry.blocks * block_bytes);
        if size == 0 || !size.is_multiple_of(block_bytes) || size > most {
            return Err(damaged(format!("a directory has {size} bytes")));
        }
        Ok(size / block_bytes)
    }

    /// A block of a directory and its entries; none for a hole.
    fn entries_at(&mut self, inode: &Inode, which: u64) -> Result<Option<(u64, Vec<Entry>)>> {
        let block = self.map(inode, which)?;
        if block == 0 {
            return Ok(None);
        }
        let inodes = self.state.geometry.inodes;
        let bytes = self.read(block)?;
        if inode.seed.is_some_and(|seed| !checksum::is_good_directory_block(seed, bytes)) {
            return Err(damaged(format!("the checksum of a directory's block {block} is wrong")));
        }
        Ok(Some((block, entries(bytes, inodes)?)))
    }

    /// Makes the index of a directory, if there is none.
    fn index(&mut self, number: u64, inode: &Inode) -> Result<()> {
        if self.state.directories.contains_key(&number) {
            return Ok(());
        }
        let mut index = Index::default();
        let block_bytes = self.state.geometry.block_bytes as u64;
        for which in 0..self.directory_blocks(inode)? {
            let Some((block, entries)) = self.entries_at(inode, which)? else {
                index.blocks.push(Room::default());
                continue;
            };
            let is_parted =
                is_parted(&entries, block_bytes as usize) && !self.state.cache.is_dirty(block);
            index.blocks.push(Room { largest: room(&entries), is_parted });
            let bytes = self.read(block)?;
            for entry in entries.iter().filter(|entry| entry.is_users(bytes)) {
                let name = &bytes[entry.at + HEAD..entry.at + HEAD + entry.name_len];
                index.names.insert(name.into(), which * block_bytes + entry.at as u64);
            }
        }
        let known: usize = self.state.directories.values().map(|it| it.names.len() + 1).sum();
        if known + index.names.len() > INDEXED_MAX {
            self.state.directories.clear();
        }
        self.state.directories.insert(number, index);
        Ok(())
    }

    /// Finds a name.
    pub(crate) fn find(
        &mut self,
        (number, inode): (u64, &Inode),
        name: Name<'_>,
    ) -> Result<Option<Found>> {
        self.index(number, inode)?;
        let Some(place) = self.state.directories[&number].names.get(name.as_bytes()).copied()
        else {
            return Ok(None);
        };
        let block_bytes = self.state.geometry.block_bytes as u64;
        let at = (place % block_bytes) as usize;
        let lost = || damaged(format!("an entry of directory {number} is lost"));
        let which = place / block_bytes;
        let (block, entries) = self.entries_at(inode, which)?.ok_or_else(lost)?;
        let entry = entries.into_iter().find(|entry| entry.at == at && entry.ino != 0);
        let entry = entry.ok_or_else(lost)?;
        Ok(Some(Found { directory: number, block, which, entry, number: entry.ino }))
    }

    /// Finds a name that must be there.
    pub(crate) fn entry(&mut self, at: (u64, &Inode), name: Name<'_>) -> Result<Found> {
        self.find(at, name)?.ok_or(Error::NotFound)
    }

    /// Whether a directory has no entries.
    pub(crate) fn is_empty(&mut self, number: u64, inode: &Inode) -> Result<bool> {
        self.index(number, inode)?;
        Ok(self.state.directories[&number].names.is_empty())
    }

    /// What a directory that is empty here waits for until it is empty on the medium.
    pub(crate) fn emptied(&mut self, inode: &Inode) -> Result<Vec<After>> {
        let mut changed = Vec::new();
        for which in 0..self.directory_blocks(inode)? {
            let block = self.map(inode, which)?;
            if self.state.cache.is_dirty(block) {
                let sectors = (0..self.state.geometry.block_bytes).step_by(SECTOR);
                changed.extend(sectors.map(|at| After::Bytes { block, at, len: SECTOR }));
            }
        }
        Ok(changed)
    }

    /// The parent of a directory.
    pub(crate) fn parent_of(&mut self, number: u64, inode: &Inode) -> Result<u64> {
        let (block, entry) = self.dots(number, inode)?;
        Ok(u64::from(u32_at(self.read(block)?, entry.at)))
    }

    /// Where `..` is.
    fn dots(&mut self, number: u64, inode: &Inode) -> Result<(u64, Entry)> {
        let lost = || damaged(format!("directory {number} has no entry `..`"));
        let (block, entries) = self.entries_at(inode, 0)?.ok_or_else(lost)?;
        let entry = *entries.get(1).ok_or_else(lost)?;
        let bytes = self.read(block)?;
        if bytes[entry.at + HEAD..].get(..entry.name_len) != Some(b"..") || entry.ino == 0 {
            return Err(lost());
        }
        Ok((block, entry))
    }

    /// Lets `..` lead elsewhere.
    pub(crate) fn set_parent(
        &mut self,
        number: u64,
        inode: &Inode,
        parent: u64,
        after: &[After],
    ) -> Result<Vec<After>> {
        let (block, entry) = self.dots(number, inode)?;
        self.touched.push((number, block));
        self.write(block, entry.at, &(parent as u32).to_le_bytes(), after)
    }

    fn entry_kind(&self, kind: Kind) -> u8 {
        if self.state.geometry.has_kinds { kind_number(kind) } else { 0 }
    }

    /// Adds an entry once `after` is durable; returns the steps with which it is there. The
    /// directory's inode is stored if it has grown or has lost its index.
    pub(crate) fn add_entry(
        &mut self,
        (number, inode): (u64, &mut Inode),
        name: Name<'_>,
        (target, kind): (u64, Kind),
        after: &[After],
    ) -> Result<Vec<After>> {
        self.index(number, inode)?;
        let mut after = after.to_vec();
        if inode.flags() & FLAG_INDEX != 0 {
            inode.set_flags(inode.flags() & !FLAG_INDEX);
            after.extend(self.store(number, inode, &[])?);
        }
        self.named.push(Named { directory: number, target, is_added: true });
        // A directory never has a name twice.
        let away = self.state.away.get(&(number, name.as_bytes().into()));
        let away = away.into_iter().flatten().map(|patch| After::Patch(*patch)).collect();
        after.extend(self.by(Rule::NameAfterAway, away));
        let needs = needed(name.as_bytes().len());
        let blocks = &self.state.directories[&number].blocks;
        let kind = self.entry_kind(kind);
        match blocks.iter().position(|room| room.largest >= needs) {
            Some(which) => {
                let target = (target, kind);
                self.add_to_block((number, inode), which as u64, name, target, &after)
            }
            None => self.add_block((number, inode), name, (target, kind), after),
        }
    }

    /// Adds a block to a directory, with an entry in it.
    fn add_block(
        &mut self,
        (number, inode): (u64, &mut Inode),
        name: Name<'_>,
        (target, kind): (u64, u8),
        mut after: Vec<After>,
    ) -> Result<Vec<After>> {
        let which = self.directory_blocks(inode)?;
        let block_bytes = self.state.geometry.block_bytes;
        let size = inode.size() + block_bytes as u64;
        if size > DIRECTORY_BYTES_MAX {
            return Err(Error::NoSpace);
        }
        let goal = self.goal(number, inode, which)?;
        let (block, bits) = self.take_block(goal)?;
        let mut bytes = encode(target, SECTOR, name.as_bytes(), kind);
        bytes.resize(block_bytes, 0);
        fill_sectors(&mut bytes[SECTOR..]);
        after.extend(bits);
        let before = self.plan.set_owner(Owner(number));
        after.extend(self.plan.fresh(&self.state.cache, (block, Content::Metadata), &bytes, &[]));
        self.plan.set_owner(before);
        let after = self.by(Rule::GrowthAfterInode, after);
        let mut growth = Growth::of(number);
        self.point(inode, &mut growth, (which, block), after)?;
        let after = self.end_growth(inode, growth)?;
        inode.set_size(size);
        let (place, name) = (Some(which * block_bytes as u64), name.as_bytes().into());
        self.touched.push((number, block));
        self.noted.push(Noted { directory: number, name, block, place, is_new: true });
        // It waits for the inode of the entry, so it belongs to that, not to the directory.
        let (block, at) = self.state.place(number)?;
        self.write(block, at, &inode.bytes, &after)
    }

    /// What has to be durable before an entry of a block is seen on the medium if it is seen here:
    /// the length of the entry before it, and the size of the directory. Entries before that one
    /// are seen then, for the change of that length has waited for them. Where no entry lies in two
    /// sectors, the first of a sector is always seen.
    fn seen(
        &self,
        (directory, which): (u64, u64),
        block: u64,
        (at, before): (usize, Option<usize>),
    ) -> Result<Vec<After>> {
        let (inode_block, inode_at) = self.state.place(directory)?;
        let size = After::Bytes { block: inode_block, at: inode_at + SIZE_AT, len: 4 };
        let begins = at % SECTOR == 0 && self.is_parted(directory, which);
        let before = before.filter(|_| !begins);
        let len = before.map(|before| After::Bytes { block, at: before + 4, len: 2 });
        Ok(len.into_iter().chain([size]).collect())
    }

    /// Adds an entry where a block has room. The bytes that make it seen come last, and lie in one
    /// sector.
    fn add_to_block(
        &mut self,
        (number, inode): (u64, &Inode),
        which: u64,
        name: Name<'_>,
        (target, kind): (u64, u8),
        after: &[After],
    ) -> Result<Vec<After>> {
        let needs = needed(name.as_bytes().len());
        let lost = || damaged(format!("a block of directory {number} is lost"));
        let (block, entries) = self.entries_at(inode, which)?.ok_or_else(lost)?;
        let has_room = |entry: &&Entry| entry.len - entry.needs() >= needs;
        let entry = *entries.iter().find(has_room).ok_or_else(lost)?;
        let (at, len) = (entry.at + entry.needs(), entry.len - entry.needs());
        let bytes = encode(target, len, name.as_bytes(), kind);
        // An entry of before ends where this one begins; an unused one gets its inode.
        let (seen_at, seen) = match entry.ino {
            0 => (at, bytes[..4].to_vec()),
            _ => (entry.at + 4, (entry.needs() as u16).to_le_bytes().to_vec()),
        };
        let sector = seen_at / SECTOR;
        // An entry that was here may still be seen on the medium: until it is away there, it
        // keeps its bytes.
        let before = self.seen((number, which), block, (entry.at, entry.before))?;
        let mut removed = self.by(Rule::EntryAfterSeen, before);
        let mut after = [after, &removed].concat();
        removed.push(After::Bytes { block, at: seen_at, len: seen.len() });
        let mut from = at;
        let mut together = vec![(seen_at, seen)];
        while from < at + bytes.len() {
            let end = ((from / SECTOR + 1) * SECTOR).min(at + bytes.len());
            let part = bytes[from - at..end - at].to_vec();
            if from / SECTOR == sector {
                together.push((from, part));
            } else {
                after.extend(self.write_together(block, &[(from, part)], &removed)?);
            }
            from = end;
        }
        let place = Some(which * self.state.geometry.block_bytes as u64 + at as u64);
        let name = name.as_bytes().into();
        self.touched.push((number, block));
        self.noted.push(Noted { directory: number, name, block, place, is_new: false });
        self.write_together(block, &together, &after)
    }

    /// Writes parts of one sector as one step. It has all of their bytes: an entry may look as what
    /// was removed there, and yet what changes it comes after it.
    fn write_together(
        &mut self,
        block: u64,
        parts: &[(usize, Vec<u8>)],
        after: &[After],
    ) -> Result<Vec<After>> {
        let parts: Vec<(usize, &[u8])> = parts.iter().map(|(at, part)| (*at, &**part)).collect();
        let step = self.plan.put(&mut self.state.cache, block, &parts, after);
        Ok(vec![step.map_err(failed)?])
    }

    /// Takes an entry away once `after` is durable.
    pub(crate) fn remove_entry(
        &mut self,
        (directory, name): (u64, Name<'_>),
        found: &Found,
        after: &[After],
    ) -> Result<Vec<After>> {
        let Found { block, which, entry, number: target, .. } = *found;
        self.named.push(Named { directory, target, is_added: false });
        self.touched.push((directory, block));
        let name: Box<[u8]> = name.as_bytes().into();
        let gone = Noted { directory, name: name.clone(), block, place: None, is_new: false };
        self.noted.push(gone);
        let inodes = self.state.geometry.inodes;
        // The operation itself may have put an entry before it or behind it.
        let now = entries(self.read(block)?, inodes)?;
        let entry = *now
            .iter()
            .find(|it| it.at == entry.at)
            .ok_or_else(|| damaged("an entry that is to go is not there"))?;
        let begins = entry.at % SECTOR == 0 && self.is_parted(directory, which);
        let gone = match entry.before.filter(|_| !begins) {
            None => self.write(block, entry.at, &[0; 4], after)?,
            Some(before) => {
                // What follows it then follows the entry before: as far as it is there itself.
                // It is away only where that one is seen.
                let earlier = now.iter().find(|it| it.at == before).and_then(|it| it.before);
                let seen = self.seen((directory, which), block, (before, earlier))?;
                let seen = self.by(Rule::RemovalAfterSeen, seen);
                let mut after = [after, &seen].concat();
                after.push(After::Bytes { block, at: entry.at + 4, len: 2 });
                let len = u16_at(self.read(block)?, before + 4) + entry.len as u16;
                self.write(block, before + 4, &len.to_le_bytes(), &after)?
            }
        };
        self.away = Some(((directory, name), gone.clone()));
        Ok(gone)
    }

    /// Lets an entry lead to another inode once `after` is durable: its name is never away.
    pub(crate) fn replace_entry(
        &mut self,
        found: &Found,
        (target, kind): (u64, Kind),
        after: &[After],
    ) -> Result<Vec<After>> {
        let at = found.entry.at;
        let directory = found.directory;
        self.named.push(Named { directory, target: found.number, is_added: false });
        self.named.push(Named { directory, target, is_added: true });
        self.touched.push((directory, found.block));
        let number = (target as u32).to_le_bytes().to_vec();
        let kind = self.entry_kind(kind);
        // It counts once it is seen.
        let place = (found.directory, found.which);
        let seen = self.seen(place, found.block, (at, found.entry.before))?;
        let after = &[after, &seen].concat();
        if at / SECTOR == (at + 7) / SECTOR {
            let parts = vec![(at, number), (at + 7, vec![kind])];
            return self.write_together(found.block, &parts, after);
        }
        if found.entry.kind == kind {
            return self.write(found.block, at, &number, after);
        }
        // The kind lies in another sector: meanwhile it is unknown.
        let mut after = after.to_vec();
        after.extend(self.write(found.block, at + 7, &[0], &[])?);
        let steps = self.write(found.block, at, &number, &after)?;
        let mut done = self.write(found.block, at + 7, &[kind], &steps)?;
        done.extend(steps);
        Ok(done)
    }

    /// All names of a directory with what they lead to.
    pub(crate) fn names_in(&mut self, inode: &Inode) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut names = Vec::new();
        for which in 0..self.directory_blocks(inode)? {
            let Some((block, entries)) = self.entries_at(inode, which)? else { continue };
            let bytes = self.read(block)?;
            for entry in entries.iter().filter(|entry| entry.is_users(bytes)) {
                let name = &bytes[entry.at + HEAD..entry.at + HEAD + entry.name_len];
                names.push((name.to_vec(), entry.ino));
            }
        }
        Ok(names)
    }

    /// The kind of an entry's inode.
    pub(crate) fn kind_of(&mut self, number: u64) -> Result<Kind> {
        let inode = self.inode(number)?;
        inode.kind().ok_or_else(|| damaged(format!("inode {number} has no kind")))
    }

    /// Visits entries in the order of their places.
    pub(crate) fn read_directory(
        &mut self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let (_, inode) = self.directory(ino)?;
        if inode.links() == 0 {
            return Ok(());
        }
        let block_bytes = self.state.geometry.block_bytes as u64;
        let first = after.saturating_sub(1) / block_bytes;
        for which in first..self.directory_blocks(&inode)? {
            let Some((block, entries)) = self.entries_at(&inode, which)? else { continue };
            let bytes = self.read(block)?.to_vec();
            for entry in entries.iter().filter(|entry| entry.is_users(&bytes)) {
                let cookie = which * block_bytes + entry.at as u64 + 1;
                if cookie <= after {
                    continue;
                }
                let attributes = match with_attributes {
                    true => Some(self.state.attributes(shown(entry.ino))?),
                    false => None,
                };
                let kind = match (&attributes, kind_of(entry.kind)) {
                    (Some(known), _) => known.kind,
                    (None, Some(kind)) if self.state.geometry.has_kinds => kind,
                    _ => self.kind_of(entry.ino)?,
                };
                let name = &bytes[entry.at + HEAD..entry.at + HEAD + entry.name_len];
                let ino = shown(entry.ino);
                if !visit(DirectoryEntry { name, ino, kind, cookie, attributes }) {
                    return Ok(());
                }
                if with_attributes {
                    self.state.pin(entry.ino);
                }
            }
        }
        Ok(())
    }

    /// Notes in the indexes what the operation has done, once it has been done.
    pub(crate) fn note_entries(state: &mut State, noted: Vec<Noted>) {
        for Noted { directory, name, block, place, is_new } in noted {
            let block_bytes = state.geometry.block_bytes as u64;
            let Some(index) = state.directories.get_mut(&directory) else { continue };
            let which = match place {
                Some(place) => {
                    index.names.insert(name, place);
                    place / block_bytes
                }
                None => match index.names.remove(&name) {
                    Some(place) => place / block_bytes,
                    None => continue,
                },
            } as usize;
            let known = state.cache.read(block).map(|bytes| entries(bytes, state.geometry.inodes));
            let Ok(Ok(entries)) = known else {
                state.directories.remove(&directory);
                continue;
            };
            index.blocks.resize(index.blocks.len().max(which + 1), Room::default());
            index.blocks[which].largest = room(&entries);
            index.blocks[which].is_parted |= is_new;
        }
    }

    /// Whether it is known that no entry of a block lies in two sectors.
    fn is_parted(&self, directory: u64, which: u64) -> bool {
        let index = self.state.directories.get(&directory);
        let room = index.and_then(|index| index.blocks.get(which as usize));
        room.is_some_and(|room| room.is_parted)
    }

    /// Makes the index of a directory that has just been made.
    pub(crate) fn note_new_directory(state: &mut State, number: u64) {
        let block = state.raw_inode(number).map_or(0, |inode| inode.pointer(0));
        let known = state.cache.read(block).map(|bytes| entries(bytes, state.geometry.inodes));
        if let Ok(Ok(entries)) = known {
            let blocks = vec![Room { largest: room(&entries), is_parted: true }];
            state.directories.insert(number, Index { names: HashMap::new(), blocks });
        }
    }
}

/// What an operation has done to an entry of a directory.
#[derive(Debug)]
pub(crate) struct Noted {
    directory: u64,
    name: Box<[u8]>,
    /// The block that it is in.
    block: u64,
    /// Where it is now, in bytes from the beginning of the directory; none if it is gone.
    place: Option<u64>,
    /// The block is new.
    is_new: bool,
}
