//! A closer look for space, for a batch that does not seem to fit.
//!
//! What batches free can be used only after a commit, and until then each key that they change is
//! taken to need a leaf of its own. So a batch is not refused while a commit could make room for
//! it. But on a full pool nearly every batch is refused or nearly does not fit, and a commit for
//! each of them would make a full pool a slow one. So it is first looked at what waits
//! (`docs/decisions/0026-space-admission.md`):
//!
//! - What it needs: keys of the same leaf share that. If the batch fits so, no commit is made.
//! - What it gives back: the blocks that items let go of, as a commit will find them, and what is
//!   taken out of nodes. If the batch would not fit even then, it is refused, without a commit.
//!
//! **A batch is counted from the moment that space is found for it** ([`Admitted`]): what several
//! threads find at the same moment is never the same space. Who looks has the turn to commit until
//! his batch is applied, and commits again as long as anything waits: what others apply between a
//! commit and the next look must not make a full pool refuse to free something.
//!
//! A large merge is looked at too before it is refused: what a commit would do with it is found by
//! doing so without writing (`commit/dry_run.rs`). It is looked at once, and again only if a
//! commit has passed when it is about to be made. A batch that is only applied is not: its commit
//! may take in others with it, and must not fail.
//!
//! **What it needs is never taken to be less, nor what it gives back**; but for what nodes shrink
//! by when they are written anew with other content: that which compresses better by chance, and
//! what was rounded up to grains.

use crate::base::pointers::decode_pointer;
use crate::commit::{Turn, least_foreseen};
use crate::front::Inner;
use crate::io::At;
use crate::memtable::dataset::Dataset;
use crate::memtable::foreign_blocks::is_adoption;
use crate::memtable::overlay::Entry;
use crate::snapshots::is_hidden;
use crate::tree::{self, Found};
use crate::views::live::{KEY_BYTES_MAX, cost};
use bytes::Bytes;
use marram_format::dataset::DatasetState;
use marram_format::group::Group;
use marram_format::node::leaf_entry_bytes;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_store::{Admission, Batch, Block, Edit, Error, Item, Result};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// When more keys than these wait for a commit, nobody looks at each of them: one is made, and has
/// so many changes to take in.
const KEYS_MAX: u64 = 256;
/// What is put into nodes or taken out needs or gives back at most so many times its bytes: there
/// are two copies, in grains that are at least half full.
const NODE_PART: u64 = 4;
/// Most commits that are made for one batch: after each of them others may be faster.
const COMMITS_MAX: usize = 16;
/// A merge of fewer edits than these is not large: nobody looks what a commit would do with it.
const LARGE_EDITS_MIN: usize = 64;
/// The shortest tail: a grain in each of two copies.
const TAIL_GRAINS_MIN: u64 = 2;

/// What comes with a commit of all that waits for one, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// What it needs: what brings so many changed `keys` into trees, without their content.
    pub(crate) needed: u64,
    /// See `needed`.
    pub(crate) keys: u64,
    /// What is free after it and was not before.
    pub(crate) freed: u64,
    /// What only snapshots refer to after it.
    pub(crate) left: u64,
    /// Blocks that it adopts: datasets that space is kept free for have them without using it.
    pub(crate) adopted: u64,
}

/// Space for a batch, counted until the batch is among what is dirty.
pub(crate) struct Admitted<'p> {
    pool: &'p Inner,
    bytes: u64,
    /// If it is less than what is reckoned by keys, why it is.
    foreseen: Cell<Option<Foreseen>>,
}

/// What a batch is taken to need, in bytes.
pub(crate) struct Need {
    /// Reckoned by its keys; it is never taken to need more.
    cost: u64,
    /// No look can find that it needs less.
    least: u64,
    may_be_foreseen: bool,
    foreseen: Option<Foreseen>,
}

/// What was found that a commit would do with a batch. It is true as long as no commit has passed.
#[derive(Clone, Copy)]
struct Foreseen {
    epoch: u64,
    bytes: u64,
}

/// What came of a search for space.
pub(crate) enum Search<'p> {
    Found(Granted<'p>),
    None {
        /// Nor would there be any if all went that is being destroyed or is kept for an undo.
        is_hopeless: bool,
    },
    /// Others wrote to the dataset all the time, so nobody could look what a commit would do with
    /// the batch. That says nothing of the space: nothing is let go of for it.
    Unlooked,
}

impl Need {
    /// Of a batch that is only applied.
    pub(crate) fn of(batch: &Batch<'_>) -> Need {
        let cost = cost(batch);
        Need { cost, least: cost, may_be_foreseen: false, foreseen: None }
    }

    /// Of a merge: one commit for it alone, which may fail without harm.
    pub(crate) fn of_merge(batch: &Batch<'_>) -> Need {
        let reckoned = Need::of(batch);
        if !may_be_foreseen(batch) {
            return reckoned;
        }
        let least = least_foreseen(batch).min(reckoned.cost);
        Need { least, may_be_foreseen: true, ..reckoned }
    }

    /// Content that other items had already, and that a commit has written meanwhile, is there.
    fn leave_out_written(&mut self, batch: &Batch<'_>) {
        let cost = cost(batch);
        let written = self.cost.saturating_sub(cost);
        self.cost = cost;
        self.least = self.least.saturating_sub(written);
    }

    /// Whether a look could find that it needs less.
    pub(crate) fn may_be_foreseen(&self) -> bool {
        self.may_be_foreseen
    }

    /// As reckoned by its keys.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
    }

    /// What is known of it; nothing as long as a look could find less.
    fn known(&self) -> Option<u64> {
        match self.foreseen {
            Some(foreseen) => Some(foreseen.bytes),
            None => (!self.may_be_foreseen).then_some(self.cost),
        }
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        *self.pool.admitted_bytes.lock() -= self.bytes;
    }
}

/// Space that was found by a look, and with it the turn to commit: nobody else looks meanwhile.
pub(crate) struct Granted<'p> {
    admitted: Admitted<'p>,
    _turn: Turn<'p>,
}

impl<'p> Granted<'p> {
    /// Lets others look.
    pub(crate) fn without_turn(self) -> Admitted<'p> {
        self.admitted
    }
}

/// What was found by a look, and when: it is true as long as no batch and no commit has passed.
#[derive(Debug)]
pub(crate) struct Look {
    batches: u64,
    epoch: u64,
    /// What changed keys need and give back; `None` if it may be anything.
    found: Option<Waiting>,
}

impl Inner {
    /// Finds space for a batch that needs so many `bytes` beside what waits for a commit, if there
    /// is so much at this moment. Of what waits, what was `looked` at needs what was found, and
    /// each other key a leaf of its own.
    pub(crate) fn admit(
        &self,
        dataset: &Dataset,
        batch: &Batch<'_>,
        bytes: u64,
        looked: Waiting,
    ) -> Option<Admitted<'_>> {
        let mut admitted = self.admitted_bytes.lock();
        // Before it is asked what is free: a commit that ends gives back first.
        let needed = *admitted + self.needed_by_dirty(looked);
        if bytes > self.room(dataset, batch, Waiting { needed, ..Waiting::default() }) {
            return None;
        }
        *admitted += bytes;
        Some(Admitted { pool: self, bytes, foreseen: Cell::new(None) })
    }

    fn needed_by_dirty(&self, looked: Waiting) -> u64 {
        let keys = self.dirty_edits.load(Ordering::Acquire).saturating_sub(looked.keys);
        self.content_bytes_to_write() + looked.needed + keys * KEY_BYTES_MAX
    }

    /// Looks for space for a batch that does not seem to fit, and commits if that could make room,
    /// again as long as something has come to wait. Waits for the commit that is under way: what
    /// that gives back counts too.
    pub(crate) fn find_space(
        &self,
        dataset: &Dataset,
        batch: &Batch<'_>,
        need: &mut Need,
    ) -> Result<Search<'_>> {
        let turn = self.turn(None)?;
        for commits in 0..=COMMITS_MAX {
            need.leave_out_written(batch);
            let admit = |bytes, looked| self.admit(dataset, batch, bytes, looked);
            if let Some(admitted) = admit(need.cost, Waiting::default()) {
                return Ok(Search::Found(Granted { admitted, _turn: turn }));
            }
            let keys = self.look_at_keys();
            let back = keys.map(|keys| Waiting { needed: 0, ..keys });
            let room = back.map_or(u64::MAX, |back| self.room(dataset, batch, back));
            // What needs that much in any case need not be looked at.
            if need.least <= room {
                self.foresee_once(dataset, batch, need)?;
                let looked = keys.map(|keys| Waiting { freed: 0, adopted: 0, ..keys });
                let beside = [Some(Waiting::default()), looked].into_iter().flatten();
                let closer = |bytes| beside.clone().find_map(|looked| admit(bytes, looked));
                if let Some(admitted) = need.known().and_then(closer) {
                    admitted.foreseen.set(need.foreseen.filter(|it| it.bytes < need.cost));
                    return Ok(Search::Found(Granted { admitted, _turn: turn }));
                }
            }
            if need.known().unwrap_or(need.least) > room || commits > 0 && self.nothing_waits() {
                return Ok(self.search_in_vain(dataset, batch, need, back));
            }
            if commits < COMMITS_MAX {
                turn.commit(None)?;
            }
        }
        Ok(match need.known() {
            Some(_) => Search::None { is_hopeless: false },
            None => Search::Unlooked,
        })
    }

    /// There is no space, also with what comes `back` by a commit.
    fn search_in_vain(
        &self,
        dataset: &Dataset,
        batch: &Batch<'_>,
        need: &Need,
        back: Option<Waiting>,
    ) -> Search<'_> {
        let with_all = |back: Waiting| {
            let given_up = self.bytes_to_give_up().saturating_add(back.left);
            let freed = back.freed.saturating_add(given_up);
            self.room(dataset, batch, Waiting { freed, ..back })
        };
        let bytes = need.known().unwrap_or(need.least);
        Search::None { is_hopeless: back.map(with_all).is_some_and(|room| bytes > room) }
    }

    /// What comes back at most if all goes that is being destroyed or is kept for an undo: not what
    /// the largest of the other datasets refers to since the last commit.
    fn bytes_to_give_up(&self) -> u64 {
        let records = self.records.read();
        if !records.is_leaving() && records.kept_numbers().is_empty() {
            return 0;
        }
        let live = records.known().filter(|it| it.state == DatasetState::Live && !is_hidden(it));
        let stays = live.map(|record| record.referenced_grains).max().unwrap_or(0);
        let used = self.gauge.total_grains().saturating_sub(self.gauge.free_grains());
        used.saturating_sub(stays) * GRAIN_BYTES
    }

    /// Looks what a commit would do with a merge, if nobody has yet and nothing waits in its
    /// dataset: else a commit must come before. For the one whose turn it is.
    fn foresee_once(&self, dataset: &Dataset, batch: &Batch<'_>, need: &mut Need) -> Result<()> {
        if need.may_be_foreseen && need.foreseen.is_none() && !dataset.has_dirty() {
            need.foreseen = Some(self.foresee(dataset, batch, need.cost)?);
        }
        Ok(())
    }

    fn foresee(&self, dataset: &Dataset, batch: &Batch<'_>, cost: u64) -> Result<Foreseen> {
        let epoch = self.media.epoch();
        let found = self.foresee_commit(dataset, batch)?;
        Ok(Foreseen { epoch, bytes: found.map_or(cost, |found| found.min(cost)) })
    }

    /// Looks again what a commit would do with what was admitted, if a commit has passed since. For
    /// the one whose turn it is; nothing waits in the dataset, or it is all for nothing.
    pub(crate) fn foresee_again(
        &self,
        dataset: &Dataset,
        batch: &Batch<'_>,
        admitted: &Admitted<'_>,
    ) -> Result<()> {
        if let Some(foreseen) = admitted.foreseen.get()
            && foreseen.epoch != self.media.epoch()
            && !dataset.has_dirty()
        {
            admitted.foreseen.set(Some(self.foresee(dataset, batch, cost(batch))?));
        }
        Ok(())
    }

    /// Whether there is still space for what was admitted, when no batch is under way and nothing
    /// waits in its dataset: the trees may have grown since. `false` if a commit could make room.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if none could; what the commit would find wrong.
    pub(crate) fn still_fits(
        &self,
        dataset: &Dataset,
        batch: &Batch<'_>,
        admitted: &Admitted<'_>,
    ) -> Result<bool> {
        self.foresee_again(dataset, batch, admitted)?;
        let Some(Foreseen { bytes, .. }) = admitted.foreseen.get() else { return Ok(true) };
        // What cannot be read is told by the commit.
        let keys = self.add_up_keys().ok().flatten();
        let looked = keys.map(|keys| Waiting { freed: 0, adopted: 0, ..keys }).unwrap_or_default();
        let others = *self.admitted_bytes.lock() - admitted.bytes;
        let needed = others + self.needed_by_dirty(looked);
        if bytes <= self.room(dataset, batch, Waiting { needed, ..Waiting::default() }) {
            return Ok(true);
        }
        let back = keys.map(|keys| Waiting { needed: 0, ..keys });
        let room = back.map_or(u64::MAX, |back| self.room(dataset, batch, back));
        match bytes > room || self.nothing_is_dirty() {
            true => Err(Error::NoSpace),
            false => Ok(false),
        }
    }

    /// Whether a commit would have nothing to take in.
    fn nothing_waits(&self) -> bool {
        *self.admitted_bytes.lock() == 0 && self.nothing_is_dirty()
    }

    fn nothing_is_dirty(&self) -> bool {
        self.dirty_edits.load(Ordering::Acquire) == 0
    }

    /// What the changed keys need and give back that wait for a commit; `None` if it may be
    /// anything. For the one whose turn it is.
    fn look_at_keys(&self) -> Option<Waiting> {
        let batches = self.batches.load(Ordering::Acquire);
        let epoch = self.media.epoch();
        let mut last = self.last_look.lock();
        match &*last {
            Some(look) if (look.batches, look.epoch) == (batches, epoch) => look.found,
            _ => {
                // What cannot be read is told by the commit.
                let found = self.add_up_keys().ok().flatten();
                *last = Some(Look { batches, epoch, found });
                found
            }
        }
    }

    fn add_up_keys(&self) -> Result<Option<Waiting>> {
        // Asked first: what is applied meanwhile is looked at perhaps, and counted by itself too.
        let keys = self.dirty_edits.load(Ordering::Acquire);
        if keys > KEYS_MAX {
            return Ok(None);
        }
        let freed = self.tail_bytes_to_spare();
        let mut sum = Waiting { keys, freed, ..Waiting::default() };
        for dataset in self.touched_datasets() {
            let waiting = self.waiting_of(&dataset)?;
            sum.needed += waiting.needed;
            sum.freed += waiting.freed;
            sum.left += waiting.left;
            sum.adopted += waiting.adopted;
        }
        Ok(Some(sum))
    }

    fn waiting_of(&self, dataset: &Dataset) -> Result<Waiting> {
        let (root, entries, adopted) = dataset.uncommitted();
        let at = At { media: &self.media, epoch: self.media.epoch() };
        let (mut nodes, mut losses) = (Nodes::default(), Losses::default());
        for (key, entry) in &entries {
            if let Entry::Item(item) = entry {
                losses.gain(item)?;
            }
            let (leaf, found) = match &root {
                Some(root) => tree::find(&at, root, *key)?,
                None => (Bytes::new(), None),
            };
            nodes.change(leaf, found.as_ref(), entry);
            if let Some(pointer) = found.and_then(|found| found.pointer) {
                losses.lose(decode_pointer(&pointer)?);
            }
        }
        let blocks = self.freed_blocks(dataset, losses)?;
        let freed = nodes.freed_bytes() + blocks.freed;
        Ok(Waiting { needed: nodes.needed_bytes(), freed, adopted, ..blocks })
    }

    /// Bytes of the blocks that a dataset lets go of and that are free then, or are left to its
    /// snapshots. What another dataset owns too is taken as if that one let go of it as well.
    fn freed_blocks(&self, dataset: &Dataset, losses: Losses) -> Result<Waiting> {
        let previous = self.records.read().get(dataset.id).map(|record| record.previous_group);
        let mut blocks = Waiting::default();
        for (pointer, address, lost) in losses.blocks() {
            if self.references_to(dataset, &pointer, address)? <= lost {
                let is_left = previous.is_some_and(|previous| pointer.birth <= previous);
                let sum = if is_left { &mut blocks.left } else { &mut blocks.freed };
                *sum += pointer.grains() * GRAIN_BYTES;
            }
        }
        Ok(blocks)
    }

    /// What the tail of the last commit has more than any tail needs.
    fn tail_bytes_to_spare(&self) -> u64 {
        let tail = self.superblock.lock().tail.as_ref().map_or(0, Pointer::grains);
        tail.saturating_sub(TAIL_GRAINS_MIN) * GRAIN_BYTES
    }
}

/// Whether it is worth it to look what a commit would do with a batch. What it patches nobody can
/// tell beforehand; and what may use a part of what is kept back is never taken to need less than
/// is reckoned by its keys.
fn may_be_foreseen(batch: &Batch<'_>) -> bool {
    let patches = |edit: &Edit<'_>| matches!(edit, Edit::Patch { .. });
    batch.edits.len() >= LARGE_EDITS_MIN
        && !batch.edits.iter().any(patches)
        && batch.admission == Admission::Ordinary
        && batch.promised_bytes == 0
}

/// What becomes of the nodes of one tree when keys change, told in their order.
#[derive(Default)]
struct Nodes {
    /// The leaf of the last key without a block.
    leaf: Option<Bytes>,
    leaves: u64,
    /// Keys with a block, before or after. Who else refers to it is counted in other items, of
    /// leaves that nobody has looked at: so these keys share none, and adopted blocks count twice.
    blocks: u64,
    put_bytes: u64,
    taken_bytes: u64,
}

impl Nodes {
    /// A key is to have this entry instead of what was found in its leaf.
    fn change(&mut self, leaf: Bytes, found: Option<&Found>, entry: &Entry) {
        let pointer = found.and_then(|found| found.pointer.as_ref()).map_or(0, Bytes::len);
        let before = found.map_or(0, |found| leaf_entry_bytes(found.value.len(), pointer));
        // Nobody knows yet how short a new pointer is.
        let (after, has_block) = match entry {
            Entry::Removed => (0, false),
            Entry::Item(item) => (leaf_entry_bytes(item.value.len(), 0), item.block.is_some()),
        };
        self.taken_bytes += before.saturating_sub(after) as u64;
        if has_block || pointer > 0 {
            let is_adopted = matches!(entry, Entry::Item(item) if is_adoption(item));
            self.blocks += 1 + u64::from(is_adopted);
            return;
        }
        self.put_bytes += after as u64;
        if self.leaf.as_ref() != Some(&leaf) {
            self.leaves += 1;
            self.leaf = Some(leaf);
        }
    }

    fn needed_bytes(&self) -> u64 {
        (self.leaves + self.blocks) * KEY_BYTES_MAX + self.put_bytes * NODE_PART
    }

    fn freed_bytes(&self) -> u64 {
        self.taken_bytes * NODE_PART
    }
}

/// How many references blocks lose by changes of a dataset.
#[derive(Default)]
pub(crate) struct Losses(HashMap<(u64, Option<Group>), (Pointer, i64)>);

impl Losses {
    /// An item that refers to a block goes, or gets another one. Its pointer tells whether the
    /// dataset counts the references; one that was read long ago may not.
    pub(crate) fn lose(&mut self, pointer: Pointer) {
        if let Some(found) = self.count(&pointer, 1) {
            *found = pointer;
        }
    }

    /// An item is put; it may refer to a block that the dataset has already.
    pub(crate) fn gain(&mut self, item: &Item) -> Result<()> {
        let token = match &item.block {
            Some(Block::Stored(token)) if !is_adoption(item) => Some(token),
            Some(Block::Fresh(fresh)) => fresh.stored(),
            _ => None,
        };
        if let Some(token) = token {
            self.count(&decode_pointer(&token.place)?, -1);
        }
        Ok(())
    }

    /// Content that lies beside its item is no block.
    fn count(&mut self, pointer: &Pointer, by: i64) -> Option<&mut Pointer> {
        let identity = (pointer.address()?, pointer.adopted());
        let (found, lost) = self.0.entry(identity).or_insert_with(|| (pointer.clone(), 0));
        *lost += by;
        Some(found)
    }

    /// The blocks that lose more references than they gain, with their address, and how many more.
    pub(crate) fn blocks(self) -> impl Iterator<Item = (Pointer, u64, u64)> {
        let lost = self.0.into_iter().filter(|(_, (_, lost))| *lost > 0);
        lost.map(|((address, _), (pointer, lost))| (pointer, address, lost.unsigned_abs()))
    }
}
