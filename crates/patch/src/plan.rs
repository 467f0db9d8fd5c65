//! An operation on the side: what it changes, in order, with what each change waits for.
//!
//! Nothing of it is seen before [`Cache::apply`], so an operation that fails has changed nothing.

use crate::cache::Cache;
use crate::graph::PatchId;
use crate::undo::Piece;
use marram_device::Result;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What the medium writes whole, in bytes.
pub(crate) const SECTOR_BYTES: usize = 512;

/// What a block holds, which decides how much of it is written whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Structures with an order between them: each sector is a unit.
    Metadata,
    /// Bytes of users, with no order between those of a block: the block is a unit.
    Data,
}

/// Something that a change waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// A change of the same plan.
    Step(usize),
    /// A patch of before.
    Patch(PatchId),
    /// All changes of before of these bytes of a block, which lie in one unit: what is planned was
    /// found out by reading them.
    Bytes {
        /// The block.
        block: u64,
        /// Where in the block.
        at: usize,
        /// How many.
        len: usize,
    },
}

/// What a change belongs to, as a file. Changes of two owners do not become one patch that waits
/// for what both need: a sync of one would make the other durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner(pub u64);

/// A change of one unit.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) block: u64,
    pub(crate) content: Content,
    /// Where in the block its unit begins.
    pub(crate) start: usize,
    /// Its parts, with places in the unit.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) after: Vec<After>,
    /// What it belongs to.
    pub(crate) owner: Owner,
    /// The block is new: what was there before does not matter.
    pub(crate) is_fresh: bool,
    /// It is to be in a log, though others of its content are not.
    pub(crate) is_logged: bool,
}

impl Change {
    /// Whether it waits for a group that has changes of users' bytes or not.
    pub(crate) fn is_grouped(&self, data: bool) -> bool {
        data || self.is_logged || self.content == Content::Metadata
    }

    /// Whether its whole block belongs to its owner: no other owner changes it before it is
    /// durable.
    pub(crate) fn is_own(&self) -> bool {
        self.is_fresh || self.content == Content::Data
    }
}

/// The changes of an operation.
#[derive(Debug, Default)]
pub struct Plan {
    /// Blocks as the operation leaves them.
    blocks: HashMap<u64, Vec<u8>>,
    pub(crate) changes: Vec<Change>,
    owner: Owner,
    /// What all of its changes wait for.
    pub(crate) behind: Vec<PatchId>,
}

impl Plan {
    /// Says what the changes that follow belong to; what was said before.
    pub fn set_owner(&mut self, owner: Owner) -> Owner {
        std::mem::replace(&mut self.owner, owner)
    }

    /// Lets all changes wait for these patches, in whatever order they are made; those that are
    /// made in groups have the order of their groups.
    pub fn set_behind(&mut self, behind: Vec<PatchId>) {
        self.behind = behind;
    }

    /// Says of which blocks of data the changes wait for a group, though those of others do not.
    pub fn log_data(&mut self, is_logged: impl Fn(u64) -> bool) {
        for change in self.changes.iter_mut().filter(|it| it.content == Content::Data) {
            change.is_logged = is_logged(change.block);
        }
    }

    /// A block of metadata as this plan leaves it.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read<'p>(&'p self, cache: &'p mut Cache, block: u64) -> Result<&'p [u8]> {
        match self.blocks.get(&block) {
            Some(bytes) => Ok(bytes),
            None => cache.read(block),
        }
    }

    fn overlay(&mut self, cache: &mut Cache, block: u64, content: Content) -> Result<&mut [u8]> {
        match self.blocks.entry(block) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => Ok(vacant.insert(match content {
                Content::Metadata => cache.read(block)?.to_vec(),
                Content::Data => cache.read_data(block)?,
            })),
        }
    }

    /// Changes a range of a block, which may already hold some of the new bytes; returns the steps
    /// that do it. A range over several units is several steps in no order.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn write(
        &mut self,
        cache: &mut Cache,
        (block, content): (u64, Content),
        at: usize,
        bytes: &[u8],
        after: &[After],
    ) -> Result<Vec<After>> {
        let unit_bytes = cache.unit_bytes_of(content);
        let old = self.overlay(cache, block, content)?;
        let runs = differences(&old[at..at + bytes.len()], bytes, at, unit_bytes);
        old[at..at + bytes.len()].copy_from_slice(bytes);
        let mut steps: Vec<After> = Vec::new();
        for (start, pieces) in runs {
            steps.push(self.push((block, content, start), pieces, after, false));
        }
        Ok(steps)
    }

    /// Writes parts of one unit of a block of metadata as one step, which has all of their bytes:
    /// also those that are there already, so that what changes them later comes after it.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn put(
        &mut self,
        cache: &mut Cache,
        block: u64,
        parts: &[(usize, &[u8])],
        after: &[After],
    ) -> Result<After> {
        let content = Content::Metadata;
        let unit_bytes = cache.unit_bytes_of(content);
        let bytes = self.overlay(cache, block, content)?;
        let start = parts.first().map_or(0, |(at, _)| at / unit_bytes * unit_bytes);
        let mut pieces = Vec::with_capacity(parts.len());
        for (at, part) in parts {
            bytes[*at..at + part.len()].copy_from_slice(part);
            pieces.push(Piece { at: at - start, bytes: part.to_vec(), mask: None });
        }
        Ok(self.push((block, content, start), pieces, after, false))
    }

    /// Gives a block this content, whatever it had before. What the same plan does to a block of
    /// data after that has to be all of it again.
    pub fn fresh(
        &mut self,
        cache: &Cache,
        (block, content): (u64, Content),
        bytes: &[u8],
        after: &[After],
    ) -> Vec<After> {
        let unit_bytes = cache.unit_bytes_of(content);
        let mut steps = Vec::new();
        for (which, part) in bytes.chunks(unit_bytes).enumerate() {
            let pieces = vec![Piece { at: 0, bytes: part.to_vec(), mask: None }];
            steps.push(self.push((block, content, which * unit_bytes), pieces, after, true));
        }
        if content == Content::Metadata {
            self.blocks.insert(block, bytes.to_vec());
        }
        steps
    }

    /// Sets or clears bits of a block of metadata, numbered from its first byte's lowest.
    ///
    /// # Errors
    /// The block cannot be read.
    pub fn set_bits(
        &mut self,
        cache: &mut Cache,
        block: u64,
        bits: &[u64],
        value: bool,
        after: &[After],
    ) -> Result<Vec<After>> {
        let unit_bytes = cache.unit_bytes_of(Content::Metadata);
        let bytes = self.overlay(cache, block, Content::Metadata)?;
        let mut masks: std::collections::BTreeMap<usize, u8> = Default::default();
        for bit in bits {
            *masks.entry((bit / 8) as usize).or_default() |= 1 << (bit % 8);
        }
        let mut units: std::collections::BTreeMap<usize, Vec<Piece>> = Default::default();
        for (at, mask) in masks {
            let new = if value { 0xff } else { 0 };
            bytes[at] = bytes[at] & !mask | new & mask;
            let pieces = units.entry(at / unit_bytes * unit_bytes).or_default();
            let within = at % unit_bytes;
            match pieces.last_mut() {
                Some(Piece { at, bytes, mask: Some(known) }) if *at + bytes.len() == within => {
                    bytes.push(new);
                    known.push(mask);
                }
                _ => {
                    pieces.push(Piece { at: within, bytes: vec![new], mask: Some(vec![mask]) });
                }
            }
        }
        let content = Content::Metadata;
        let units = units.into_iter();
        let place = |start| (block, content, start);
        Ok(units.map(|(start, pieces)| self.push(place(start), pieces, after, false)).collect())
    }

    fn push(
        &mut self,
        (block, content, start): (u64, Content, usize),
        pieces: Vec<Piece>,
        after: &[After],
        is_fresh: bool,
    ) -> After {
        let (after, owner) = (after.to_vec(), self.owner);
        let is_logged = false;
        let change = Change { block, content, start, pieces, after, owner, is_fresh, is_logged };
        self.changes.push(change);
        After::Step(self.changes.len() - 1)
    }

    /// The blocks whose changes wait for a group.
    pub(crate) fn grouped_blocks(&self, data: bool) -> impl Iterator<Item = u64> {
        let grouped = self.changes.iter().filter(move |change| change.is_grouped(data));
        grouped.map(|change| change.block)
    }

    /// What its changes belong to.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.changes.iter().map(|change| change.owner)
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// What is changed whole: a number of a structure. Else a part of one could be durable.
pub(crate) const WORD_BYTES: usize = 4;

/// The runs of words at `at` of a block that differ, by the units in which they lie.
fn differences(old: &[u8], new: &[u8], at: usize, unit_bytes: usize) -> Vec<(usize, Vec<Piece>)> {
    let mut units: Vec<(usize, Vec<Piece>)> = Vec::new();
    let mut index = 0;
    while index < new.len() {
        let place = at + index;
        let start = place / unit_bytes * unit_bytes;
        let end = (start + unit_bytes - at).min(new.len());
        let pieces = runs(&old[index..end], &new[index..end], place - start);
        if !pieces.is_empty() {
            units.push((start, pieces));
        }
        index = end;
    }
    units
}

/// The words that differ, as far as they were written: a field whose bytes do not all differ is
/// still changed as a whole, so it never is half of one change and half of another.
fn runs(old: &[u8], new: &[u8], at: usize) -> Vec<Piece> {
    let (mut pieces, mut from): (Vec<Piece>, usize) = (Vec::new(), 0);
    while from < new.len() {
        let end = ((at + from) / WORD_BYTES * WORD_BYTES + WORD_BYTES - at).min(new.len());
        let word = &new[from..end];
        if word != &old[from..end] {
            match pieces.last_mut() {
                Some(last) if last.at + last.bytes.len() == at + from => last.bytes.extend(word),
                _ => pieces.push(Piece { at: at + from, bytes: word.to_vec(), mask: None }),
            }
        }
        from = end;
    }
    pieces
}
