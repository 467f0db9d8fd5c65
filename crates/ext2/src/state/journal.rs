//! The journal: what a crash has left is replayed before anything else is read.
//!
//! The format is JBD2's: a ring of blocks with big-endian headers, each transaction ended by a
//! commit block. What a torn or foreign part of the ring says does not count.

pub(crate) mod log;
mod parts;
mod replayed;

use crate::error::{ImageError, failed};
use crate::inode::Inode;
use crate::state::{State, Work, damaged};
use crate::superblock::{INCOMPAT_RECOVER, SUPERBLOCK_AT, field};
use marram_device::Device;
use marram_vfs::{Result, Timestamp};
use parts::{Form, Part};
use replayed::Replayed;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

const MAGIC: u32 = 0xc03b_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCKS: [u32; 2] = [3, 4];
const REVOKE: u32 = 5;
/// Bytes of a header.
const HEADER_BYTES: usize = 12;
/// Bytes of a tag, and of the id that may follow it.
const TAG_BYTES: usize = 8;
const TAG_ID_BYTES: usize = 16;
const TAG_ESCAPED: u32 = 1;
const TAG_SAME_ID: u32 = 2;
const TAG_LAST: u32 = 8;
/// Most blocks of a journal.
const BLOCKS_MAX: u64 = 10_240_000;
/// The one feature of journals that is written: blocks that are not to be replayed.
const INCOMPAT_REVOKE: u32 = 1;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Where the ring begins and ends, and which transaction is its first.
struct Ring {
    /// The block of the image of each block of the journal.
    blocks: Vec<u64>,
    /// The same as a set.
    own: HashSet<u64>,
    first: usize,
    start: usize,
    sequence: u32,
    form: Form,
    /// An error of the file system was noted in it.
    has_errors: bool,
}

/// Where the newest copy of a block is.
#[derive(Clone, Copy, Debug)]
struct Copied {
    /// The block of the image that has it.
    at: u64,
    is_escaped: bool,
}

/// What is to be written, and the transaction that comes next.
struct Found {
    blocks: BTreeMap<u64, Copied>,
    next: u32,
}

impl Found {
    fn of(state: &State, ring: &Ring) -> Result<Found> {
        match ring.start {
            0 => Ok(Found { blocks: BTreeMap::new(), next: ring.sequence }),
            _ => search(state, ring),
        }
    }
}

/// Replays the journal of an image that says it has to be.
///
/// # Errors
/// It makes no sense or has features that are not known: then nothing has changed. Or the device
/// failed.
pub(crate) fn replay(device: &dyn Device, mut state: State) -> std::result::Result<(), ImageError> {
    let ring = plain_ring(&mut state)?;
    let found = Found::of(&state, &ring)?;
    let block_bytes = state.geometry.block_bytes as u64;
    let mut bytes = vec![0; state.geometry.block_bytes];
    for (block, copied) in &found.blocks {
        device.read(copied.at * block_bytes, &mut bytes)?;
        if copied.is_escaped {
            bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        }
        device.write(block * block_bytes, &bytes)?;
    }
    device.flush()?;
    let at = ring.blocks[0] * block_bytes;
    device.write(at + 24, &found.next.wrapping_add(1).to_be_bytes())?;
    device.write(at + 28, &0_u32.to_be_bytes())?;
    device.flush()?;
    let mut incompat = [0; 4];
    let at = SUPERBLOCK_AT + field::INCOMPAT as u64;
    device.read(at, &mut incompat)?;
    let rest = u32::from_le_bytes(incompat) & !INCOMPAT_RECOVER;
    device.write(at, &rest.to_le_bytes())?;
    Ok(device.flush()?)
}

/// The image as [`replay`] would leave it; nothing is written.
///
/// # Errors
/// As for [`replay`].
pub(crate) fn replayed(
    device: Arc<dyn Device>,
    mut state: State,
) -> std::result::Result<Arc<dyn Device>, ImageError> {
    let ring = ring(&mut state)?;
    let found = Found::of(&state, &ring)?;
    let block_bytes = state.geometry.block_bytes as u64;
    Ok(Arc::new(Replayed::new(device, block_bytes, found.blocks)))
}

fn bad(what: &str) -> ImageError {
    ImageError::Damaged(format!("its journal {what}"))
}

/// The same for a journal that is written here.
fn plain_ring(state: &mut State) -> std::result::Result<Ring, ImageError> {
    let ring = ring(state)?;
    match ring.form.is_plain() {
        true if ring.has_errors => Err(ImageError::HasErrors),
        true => Ok(ring),
        false => Err(ImageError::Feature {
            feature: "journal with checksums or 64bit".to_owned(),
            limit: "cannot be written here",
            next: "mount it with `ro`, or, if it is empty, with `consistency=soft-updates`",
        }),
    }
}

/// The block of the image that is one of the journal.
fn journal_block(
    work: &mut Work<'_>,
    inode: &Inode,
    which: u64,
) -> std::result::Result<u64, ImageError> {
    match work.map(inode, which)? {
        0 => Err(bad("has a hole")),
        block => Ok(block),
    }
}

/// Reads where the ring lies.
fn ring(state: &mut State) -> std::result::Result<Ring, ImageError> {
    let number = state.geometry.journal_ino.ok_or_else(|| bad("is not there"))?;
    let inode = state.raw_inode(number)?;
    let block_bytes = state.geometry.block_bytes as u64;
    let count = inode.size() / block_bytes;
    let mut work = Work::new(state, Timestamp::default());
    if count == 0 {
        return Err(bad("has no blocks"));
    }
    let superblock = journal_block(&mut work, &inode, 0)?;
    let bytes = work.state.cache.read_data(superblock)?;
    if word(&bytes, 0) != MAGIC || !SUPERBLOCKS.contains(&word(&bytes, 4)) {
        return Err(bad("has no superblock"));
    }
    let form = if word(&bytes, 4) == SUPERBLOCKS[1] { Form::of(&bytes)? } else { Form::plain() };
    let (len, first, start) =
        (word(&bytes, 16) as usize, word(&bytes, 20) as usize, word(&bytes, 28) as usize);
    let most = count.min(work.state.geometry.blocks).min(BLOCKS_MAX);
    let fits = u64::from(word(&bytes, 12)) == block_bytes && len as u64 <= most;
    if !fits || first == 0 || first >= len || start >= len {
        return Err(bad("has a superblock that makes no sense"));
    }
    let blocks = (0..len as u64).map(|which| journal_block(&mut work, &inode, which));
    let blocks = blocks.collect::<std::result::Result<Vec<_>, _>>()?;
    let different: HashSet<&u64> = blocks.iter().collect();
    if different.len() != blocks.len() {
        return Err(bad("has a block twice"));
    }
    let own = blocks.iter().copied().collect();
    let (sequence, has_errors) = (word(&bytes, 24), word(&bytes, 32) != 0);
    Ok(Ring { blocks, own, first, start, sequence, form, has_errors })
}

impl Ring {
    fn next(&self, at: usize) -> usize {
        if at + 1 >= self.blocks.len() { self.first } else { at + 1 }
    }

    fn read(&self, state: &State, at: usize) -> Result<Vec<u8>> {
        state.cache.read_data(self.blocks[at]).map_err(failed)
    }

    /// What is torn ends a journal, unless that transaction or a later one was committed: then it
    /// was durable before, and has been damaged since.
    fn refuse_later(&self, state: &State, sequence: u32) -> Result<()> {
        for at in self.first..self.blocks.len() {
            let bytes = self.read(state, at)?;
            let known = word(&bytes, 8);
            let is_later = known.wrapping_sub(sequence) as i32 >= 0;
            if is_later && matches!(self.form.part(&bytes, known), Some(Part::Commit)) {
                return Err(damaged(format!("a checksum of its journal's transaction {sequence}")));
            }
        }
        Ok(())
    }

    /// Visits the parts of transactions from the first on, each with its place and transaction,
    /// up to what does not belong to them or to transaction `end`. Returns the transaction that
    /// comes next.
    fn walk(
        &self,
        state: &State,
        end: Option<u32>,
        visit: &mut dyn FnMut(u32, usize, Part) -> Result<()>,
    ) -> Result<u32> {
        let (mut at, mut sequence) = (self.start, self.sequence);
        let mut left = self.blocks.len();
        while end != Some(sequence) {
            let bytes = self.read(state, at)?;
            let part = match self.form.part(&bytes, sequence) {
                None => break,
                Some(Part::Torn) => {
                    self.refuse_later(state, sequence)?;
                    break;
                }
                Some(part) => part,
            };
            let blocks = if let Part::Descriptor(tags) = &part { tags.len() } else { 0 };
            if left <= blocks {
                break;
            }
            left -= blocks + 1;
            let is_commit = matches!(part, Part::Commit);
            visit(sequence, at, part)?;
            (0..=blocks).for_each(|_| at = self.next(at));
            sequence = sequence.wrapping_add(u32::from(is_commit));
        }
        Ok(sequence)
    }
}

/// Finds what whole transactions have changed and not taken back.
fn search(state: &State, ring: &Ring) -> Result<Found> {
    let mut committed = ring.sequence;
    ring.walk(state, None, &mut |sequence, _, part| {
        if matches!(part, Part::Commit) {
            committed = sequence.wrapping_add(1);
        }
        Ok(())
    })?;
    let mut revoked: HashMap<u64, u32> = HashMap::new();
    ring.walk(state, Some(committed), &mut |sequence, _, part| {
        if let Part::Revoke(blocks) = part {
            revoked.extend(blocks.into_iter().map(|block| (block, sequence)));
        }
        Ok(())
    })?;
    let mut blocks = BTreeMap::new();
    ring.walk(state, Some(committed), &mut |sequence, at, part| {
        let Part::Descriptor(tags) = part else { return Ok(()) };
        let mut at = at;
        for tag in tags {
            at = ring.next(at);
            let is_revoked =
                revoked.get(&tag.block).is_some_and(|by| by.wrapping_sub(sequence) as i32 >= 0);
            if is_revoked {
                continue;
            }
            if tag.block >= state.geometry.blocks || ring.own.contains(&tag.block) {
                return Err(damaged(format!("its journal changes block {}", tag.block)));
            }
            if !ring.form.is_good_copy(&tag, sequence, &ring.read(state, at)?) {
                let what =
                    format!("the checksum of its journal's copy of block {} is wrong", tag.block);
                return Err(damaged(what));
            }
            let copied = Copied { at: ring.blocks[at], is_escaped: tag.is_escaped };
            blocks.insert(tag.block, copied);
        }
        Ok(())
    })?;
    Ok(Found { blocks, next: committed })
}
