//! The journal as this mount writes it: a group of changes is copied to the ring, then committed
//! by one block.
//!
//! Invariants. A group is opened only when the ring has room for the largest one, durably: so no
//! block of the log waits for a change in its place. A commit block is written after all else of
//! its transaction is durable, and a change in its place after the commit block. A block that is
//! freed is revoked in the group that frees it, if a copy of it is in the ring: it may be a file's
//! bytes next, which a replay must leave alone.

use super::{
    COMMIT, DESCRIPTOR, HEADER_BYTES, INCOMPAT_REVOKE, MAGIC, REVOKE, Ring, SUPERBLOCKS, TAG_BYTES,
    TAG_ESCAPED, TAG_ID_BYTES, TAG_LAST, TAG_SAME_ID, bad, plain_ring, word,
};
use crate::error::{ImageError, failed};
use crate::state::State;
use crate::state::rules::LOG;
use marram_patch::{After, Cache, Closed, Content, Discipline, Plan};
use marram_vfs::{Error, Result};
use std::collections::{BTreeSet, HashSet};

/// Fewest blocks of a ring that is written.
const RING_BLOCKS_MIN: usize = 256;
/// Most blocks of a transaction, however large the ring is.
const GROUP_BLOCKS_MAX: usize = 4096;
/// Most descriptors of groups, in parts of a ring: each transaction may have all.
const DESCRIPTORS_PART: u64 = 8;
/// Where the features, the id and the tail of a journal are.
const FEATURES_AT: usize = 40;
const ID_AT: usize = 48;
const TAIL_AT: usize = 24;

/// What of users' bytes a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// They are written in their place before it.
    Ordered,
    /// They are in the log.
    Logged,
    /// None: they are written at some time.
    Unordered,
}

/// A rule that is left out, for tests of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalBug {
    /// Blocks that look like those of a journal are copied as they are.
    NoEscape,
    /// Freed blocks are not revoked.
    NoRevoke,
    /// A commit block does not wait for its transaction.
    NoFlush,
    /// Changes are written in their place without the commit block.
    EarlyOriginals,
    /// What a group of operations overwrites is not in the journal.
    GroupsApart,
    /// What is overwritten of a block that has a copy in the journal is not.
    StaleCopies,
}

/// The journal of a mount that writes it.
pub(crate) struct Log {
    ring: Ring,
    id: [u8; TAG_ID_BYTES],
    /// Where the next transaction begins.
    head: usize,
    /// Blocks of the ring that a replay may still need.
    used: usize,
    /// Blocks with a copy among those.
    logged: HashSet<u64>,
    /// Blocks that the open group has freed, and whose copies are not to be replayed.
    revoked: BTreeSet<u64>,
    pub(crate) bytes: Bytes,
    bug: Option<JournalBug>,
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

impl Log {
    /// Prepares to write the journal of an image, which has nothing to replay.
    pub(crate) fn open(
        state: &mut State,
        bytes: Bytes,
        bug: Option<JournalBug>,
    ) -> std::result::Result<Log, ImageError> {
        let ring = plain_ring(state)?;
        if ring.start != 0 {
            return Err(bad("has transactions, and the image says that it is not to be replayed"));
        }
        let counts = state.geometry.descriptor_blocks() * DESCRIPTORS_PART;
        if ring.blocks.len() < RING_BLOCKS_MIN || ring.blocks.len() as u64 <= counts {
            return Err(bad(&format!("has {} blocks, which are too few", ring.blocks.len())));
        }
        let known = state.cache.read(ring.blocks[0])?;
        if word(known, 4) != SUPERBLOCKS[1] {
            return Err(bad("is of the first version, which is not written"));
        }
        let mut id = [0; TAG_ID_BYTES];
        id.copy_from_slice(&known[ID_AT..ID_AT + TAG_ID_BYTES]);
        let (head, used, logged, revoked) = (ring.first, 0, HashSet::new(), BTreeSet::new());
        Ok(Log { ring, id, head, used, logged, revoked, bytes, bug })
    }

    /// Whether a replay would write a block.
    pub(crate) fn has(&self, block: u64) -> bool {
        self.logged.contains(&block) && !self.leaves_out(JournalBug::StaleCopies)
    }

    /// Whether a test has left out this rule.
    pub(crate) fn leaves_out(&self, bug: JournalBug) -> bool {
        self.bug == Some(bug)
    }

    /// Most blocks of a transaction.
    pub(crate) fn group_blocks_max(&self) -> usize {
        (self.ring.blocks.len() / 4).min(GROUP_BLOCKS_MAX)
    }

    /// Whether the ring has no room for the largest transaction with all that goes with it.
    fn is_full(&self) -> bool {
        self.used > self.ring.blocks.len() / 2 - 2
    }

    fn header(&self, block_bytes: usize, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; block_bytes];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 4, kind);
        put(&mut bytes, 8, self.ring.sequence);
        bytes
    }

    /// A block that says which blocks are not to be replayed.
    fn revoke_block(&self, block_bytes: usize, numbers: &[u64]) -> Vec<u8> {
        let mut bytes = self.header(block_bytes, REVOKE);
        let mut at = HEADER_BYTES + 4;
        for number in numbers {
            put(&mut bytes, at, *number as u32);
            at += 4;
        }
        put(&mut bytes, HEADER_BYTES, at as u32);
        bytes
    }

    /// A descriptor and the copies that follow it.
    fn described(&self, blocks: Vec<(u64, Vec<u8>)>, block_bytes: usize) -> Vec<Vec<u8>> {
        let mut descriptor = self.header(block_bytes, DESCRIPTOR);
        let (count, mut at) = (blocks.len(), HEADER_BYTES);
        let mut copies = Vec::with_capacity(count + 1);
        for (which, (block, mut copy)) in blocks.into_iter().enumerate() {
            let mut flags = if which == 0 { 0 } else { TAG_SAME_ID };
            if which + 1 == count {
                flags |= TAG_LAST;
            }
            if word(&copy, 0) == MAGIC && self.bug != Some(JournalBug::NoEscape) {
                flags |= TAG_ESCAPED;
                put(&mut copy, 0, 0);
            }
            put(&mut descriptor, at, block as u32);
            put(&mut descriptor, at + 4, flags);
            at += TAG_BYTES;
            if which == 0 {
                descriptor[at..at + TAG_ID_BYTES].copy_from_slice(&self.id);
                at += TAG_ID_BYTES;
            }
            copies.push(copy);
        }
        copies.insert(0, descriptor);
        copies
    }

    /// The blocks of a transaction; the last one commits it.
    fn encode(&self, cache: &Cache, blocks: &[u64]) -> marram_device::Result<Vec<Vec<u8>>> {
        let block_bytes = cache.block_bytes();
        let mut encoded = Vec::new();
        let revoked: Vec<u64> = self.revoked.iter().copied().collect();
        for numbers in revoked.chunks((block_bytes - HEADER_BYTES - 4) / 4) {
            encoded.push(self.revoke_block(block_bytes, numbers));
        }
        for part in blocks.chunks((block_bytes - HEADER_BYTES - TAG_ID_BYTES) / TAG_BYTES) {
            let copies = part.iter().map(|block| Ok((*block, cache.read_data(*block)?)));
            let copies = copies.collect::<marram_device::Result<Vec<_>>>()?;
            encoded.extend(self.described(copies, block_bytes));
        }
        encoded.push(self.header(block_bytes, COMMIT));
        Ok(encoded)
    }

    /// The next block of the ring.
    fn advance(&mut self) -> u64 {
        let block = self.ring.blocks[self.head];
        self.head = self.ring.next(self.head);
        self.used += 1;
        block
    }
}

impl State {
    /// How changes are grouped, if this mount writes the journal.
    pub(crate) fn write_journal(
        &mut self,
        bytes: Bytes,
        bug: Option<JournalBug>,
    ) -> std::result::Result<(), ImageError> {
        let log = Log::open(self, bytes, bug)?;
        let discipline = Discipline::Grouped { data: bytes == Bytes::Logged };
        self.cache.set_discipline(discipline);
        self.discipline = discipline;
        self.keep_out(&log.ring.blocks);
        self.log = Some(log);
        Ok(())
    }

    /// Lets the superblock of the journal say that the ring is in use.
    pub(crate) fn begin_log(&mut self) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let block = log.ring.blocks[0];
        let known = self.cache.read(block).map_err(failed)?;
        let features = word(known, FEATURES_AT) | INCOMPAT_REVOKE;
        let mut plan = Plan::default();
        let (place, features) = ((block, Content::Metadata), features.to_be_bytes());
        plan.write(&mut self.cache, place, FEATURES_AT, &features, &[]).map_err(failed)?;
        self.cache.apply_beside(plan).map_err(failed)?;
        let start = log.head;
        self.write_tail(start)
    }

    /// Says durably from where on the ring is replayed, 0 for not at all.
    fn write_tail(&mut self, start: usize) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let mut tail = [0; 8];
        put(&mut tail, 0, log.ring.sequence);
        put(&mut tail, 4, start as u32);
        let (place, mut plan) = ((log.ring.blocks[0], Content::Metadata), Plan::default());
        plan.write(&mut self.cache, place, TAIL_AT, &tail, &[]).map_err(failed)?;
        self.cache.apply_beside(plan).map_err(failed)?;
        self.cache.sync().map_err(failed)
    }

    /// Whether a plan changes more blocks than a transaction has.
    pub(crate) fn is_too_large(&self, plan: &Plan) -> bool {
        let most = self.log.as_ref().map(Log::group_blocks_max);
        most.is_some_and(|most| self.cache.group_blocks_with(plan).1 > most)
    }

    /// Makes room in the log for a plan: before it is applied, so that it is in one transaction.
    pub(crate) fn make_log_room(&mut self, plan: &Plan) -> Result<()> {
        let Some(log) = &self.log else { return Ok(()) };
        let most = log.group_blocks_max();
        let (all, own) = self.cache.group_blocks_with(plan);
        if own > most {
            let what = format!("an operation changes {own} blocks, and a transaction has {most}");
            return Err(Error::Io(what));
        }
        if all > most {
            self.commit()?;
        }
        self.open_log_room()
    }

    /// Makes room in the log for a group that is about to be opened.
    pub(crate) fn open_log_room(&mut self) -> Result<()> {
        let is_full = self.log.as_ref().is_some_and(Log::is_full);
        if is_full && self.cache.group().is_none() { self.empty_log(false) } else { Ok(()) }
    }

    /// Notes that a block is freed: nothing of before is to be replayed there.
    pub(crate) fn revoke(&mut self, block: u64) {
        let Some(log) = &mut self.log else { return };
        self.cache.leave_out(block);
        if log.logged.remove(&block) && log.bug != Some(JournalBug::NoRevoke) {
            log.revoked.insert(block);
        }
    }

    /// Makes all changes that wait for a transaction durable through the log.
    pub(crate) fn commit(&mut self) -> Result<()> {
        if self.log.is_none() {
            return Ok(());
        }
        // What an earlier commit has lost is in no group any more.
        if let Some(error) = self.cache.failure() {
            return Err(failed(error.clone()));
        }
        self.write_counts()?;
        let Some(closed) = self.cache.close_group() else { return Ok(()) };
        if let Err(error) = self.write_log(&closed) {
            // The group is closed and can never be durable.
            self.cache.fail(&error);
            return Err(failed(error));
        }
        self.note_durable();
        Ok(())
    }

    fn write_log(&mut self, closed: &Closed) -> marram_device::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let ordered = match log.bytes {
            Bytes::Ordered => {
                let own: HashSet<&u64> = closed.blocks.iter().collect();
                let is_logged = |block| own.contains(&block) || log.has(block);
                self.cache.data_patches(is_logged, Some(closed.patch))
            }
            Bytes::Logged | Bytes::Unordered => Vec::new(),
        };
        let mut encoded = log.encode(&self.cache, &closed.blocks)?;
        let commit = encoded.pop().unwrap_or_default();
        let mut plan = Plan::default();
        plan.set_owner(LOG);
        let mut after: Vec<After> = ordered.into_iter().map(After::Patch).collect();
        for bytes in encoded {
            let place = (log.advance(), Content::Data);
            after.extend(plan.fresh(&self.cache, place, &bytes, &[]));
        }
        if log.bug == Some(JournalBug::NoFlush) {
            after.clear();
        }
        plan.fresh(&self.cache, (log.advance(), Content::Data), &commit, &after);
        log.logged.extend(&closed.blocks);
        log.revoked.clear();
        log.ring.sequence = log.ring.sequence.wrapping_add(1);
        let made = self.cache.apply_beside(plan)?;
        let committed = &made[made.len() - 1..];
        let is_early = log.bug == Some(JournalBug::EarlyOriginals);
        self.cache.release_group(closed, if is_early { &[] } else { committed });
        while !self.cache.is_committed(committed[0]) {
            if !self.cache.wave()? {
                let reason = "a commit of the journal waits for itself: blocks are used twice";
                let (device, reason) = ("the image".to_owned(), reason.to_owned());
                return Err(marram_device::Error::Unusable { device, reason });
            }
        }
        self.commits += 1;
        Ok(())
    }

    /// Makes all changes durable in their place, so that nothing of the ring is needed any more.
    /// The journal then says so, or for the last time that there is nothing to replay.
    pub(crate) fn empty_log(&mut self, is_last: bool) -> Result<()> {
        self.cache.sync().map_err(failed)?;
        self.note_durable();
        let Some(log) = &mut self.log else { return Ok(()) };
        log.used = 0;
        log.logged.clear();
        let start = if is_last { 0 } else { log.head };
        self.write_tail(start)
    }
}
