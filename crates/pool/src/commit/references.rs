//! Counting references to blocks that several items of a dataset share.
//!
//! A block that one item refers to needs no count. When a batch makes a second reference, it puts
//! the first one anew too (the contract of `Batch`), so all references of a block become shared in
//! one commit: their pointers get the flag, and a REFERENCES item gets the count. From then on
//! each commit adds to it what its items gain and lose. A block whose references are gone is dead.
//!
//! A block that the dataset has adopted is another one than the same block of old, and than the
//! same block adopted at another time: each has its own count and is given back by itself.

use crate::base::pointers::decode_pointer;
use crate::base::pointers::is_shared;
use crate::io::At;
use crate::memtable::dataset::Dataset;
use crate::state::State;
use crate::tree::{self, Change, NodeSource};
use bytes::Bytes;
use marram_format::group::Group;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::space::{ReferenceRecord, references_key};
use marram_store::{Block, Damage, Edit, Error, Key, Result};
use std::collections::BTreeMap;

/// How often the items of a commit refer to each block.
pub(super) struct Uses {
    group: Group,
    counts: BTreeMap<Identity, Use>,
}

/// What makes two references of one dataset the same: the address, and of an adopted block the
/// group in which it was adopted. Identities sort as the keys of their counts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    adopted: Option<Group>,
    address: u64,
}

impl Identity {
    fn of(pointer: &Pointer) -> Option<Identity> {
        Some(Identity { address: pointer.address()?, adopted: pointer.adopted() })
    }

    fn key(self) -> Key {
        references_key(self.address, self.adopted)
    }
}

struct Use {
    pointer: Pointer,
    count: u64,
}

impl Uses {
    pub(super) fn new(group: Group) -> Uses {
        Uses { group, counts: BTreeMap::new() }
    }

    /// An item refers to this block.
    pub(super) fn add(&mut self, pointer: &Pointer) {
        if let Some(identity) = Identity::of(pointer) {
            let fresh = || Use { pointer: pointer.clone(), count: 0 };
            self.counts.entry(identity).or_insert_with(fresh).count += 1;
        }
    }

    /// Grains of the blocks that this commit adopts.
    pub(super) fn adopted_grains(&self) -> u64 {
        let adopted = self.counts.values().filter(|it| it.pointer.adopted() == Some(self.group));
        adopted.map(|it| it.pointer.grains()).sum()
    }

    /// The blocks that this commit adopts.
    pub(super) fn adopted_addresses(&self) -> impl Iterator<Item = u64> {
        let adopted = self.counts.keys().filter(|it| it.adopted == Some(self.group));
        adopted.map(|identity| identity.address)
    }

    /// Flags the blocks that the dataset counts already. The pointer of an item may have been read
    /// before a commit began to count its block.
    pub(super) fn flag_counted(
        &mut self,
        source: &dyn NodeSource,
        root: Option<&Bytes>,
    ) -> Result<()> {
        for (identity, used) in &mut self.counts {
            let known = used.pointer.birth == self.group || is_shared(&used.pointer);
            if !known && tree::get(source, root, identity.key())?.is_some() {
                used.pointer.flags = used.pointer.flags.with(PointerFlags::SHARED);
            }
        }
        Ok(())
    }

    /// The pointer as items shall hold it: flagged if it is shared.
    pub(super) fn final_pointer(&self, pointer: &Pointer) -> Pointer {
        let shared = Identity::of(pointer)
            .and_then(|identity| self.counts.get(&identity))
            .is_some_and(|used| used.count > 1 || is_shared(&used.pointer));
        let mut pointer = pointer.clone();
        if shared {
            pointer.flags = pointer.flags.with(PointerFlags::SHARED);
        }
        pointer
    }
}

/// How references to one block change.
struct Balance {
    pointer: Pointer,
    gained: u64,
    lost: u64,
}

impl Balance {
    /// References before and after this commit; nothing if what the dataset counts does not vouch
    /// for them.
    fn settle(
        &self,
        source: &dyn NodeSource,
        root: Option<&Bytes>,
        key: Key,
        group: Group,
    ) -> Result<Option<(u64, u64)>> {
        let Some(before) = count_before(source, root, key, self, group)? else { return Ok(None) };
        let now = (before + self.gained).checked_sub(self.lost);
        Ok(now.map(|now| (before, now)))
    }

    fn imbalance(&self, key: Key) -> String {
        let Balance { pointer, gained, lost } = self;
        let kind = if is_shared(pointer) { "a shared block" } else { "a block of one item" };
        format!(
            "{key:?}: {kind} gains {gained} references and loses {lost}, which does not fit what \
             it had"
        )
    }
}

fn balances(uses: &Uses, dropped: &[Bytes]) -> Result<BTreeMap<Identity, Balance>> {
    let mut balances: BTreeMap<Identity, Balance> = BTreeMap::new();
    for (identity, used) in &uses.counts {
        let balance = Balance { pointer: used.pointer.clone(), gained: used.count, lost: 0 };
        balances.insert(*identity, balance);
    }
    for pointer in dropped {
        let pointer = decode_pointer(pointer)?;
        if let Some(identity) = Identity::of(&pointer) {
            let balance = Balance { pointer, gained: 0, lost: 0 };
            balances.entry(identity).or_insert(balance).lost += 1;
        }
    }
    Ok(balances)
}

/// The changes of REFERENCES items that follow from a commit, and the blocks that are dead.
pub(super) fn references_changes(
    source: &dyn NodeSource,
    root: Option<&Bytes>,
    uses: &Uses,
    dropped: &[Bytes],
) -> Result<(Vec<Change>, Vec<Bytes>)> {
    let mut changes = Vec::new();
    let mut dead = Vec::new();
    for (identity, balance) in balances(uses, dropped)? {
        let key = identity.key();
        let settled = balance.settle(source, root, key, uses.group)?;
        let (before, now) = settled.ok_or_else(|| damaged(balance.imbalance(key)))?;
        let counted = is_shared(&balance.pointer);
        if now == 0 {
            dead.push(balance.pointer.encode());
        }
        if counted && now == 0 {
            changes.push(Change { key, item: None });
        } else if (counted && now != before) || (!counted && now > 1) {
            changes.push(Change { key, item: Some(counted_item(&balance.pointer, now)) });
        }
    }
    Ok((changes, dead))
}

/// References before this commit: as counted, or one if the block is not shared and not new.
/// Nothing if a shared block has no count, or one gains a reference without its first one being put
/// anew.
fn count_before(
    source: &dyn NodeSource,
    root: Option<&Bytes>,
    key: Key,
    balance: &Balance,
    group: Group,
) -> Result<Option<u64>> {
    if is_shared(&balance.pointer) {
        if balance.gained == balance.lost {
            return Ok(Some(balance.lost));
        }
        let Some(found) = tree::get(source, root, key)? else { return Ok(None) };
        let record = ReferenceRecord::decode(&found.value);
        return Ok(Some(record.map_err(|error| damaged(error.to_string()))?.count));
    }
    if balance.pointer.birth == group {
        return Ok(Some(0));
    }
    Ok((balance.lost == 1).then_some(1))
}

fn block_of<'e>(edit: &'e Edit<'_>) -> Option<&'e Block> {
    match edit {
        Edit::Put { item, .. } => item.block.as_ref(),
        Edit::Patch { .. } | Edit::Remove { .. } | Edit::Add { .. } => None,
    }
}

/// The pointer of a block that the dataset is said to have.
fn stored_pointer(block: &Block) -> Result<Option<Pointer>> {
    let token = match block {
        Block::Stored(token) => Some(token),
        Block::Fresh(fresh) => fresh.stored(),
    };
    match token.filter(|token| !Pointer::peek_waiting(&token.place)) {
        None => Ok(None),
        Some(token) => match decode_pointer(&token.place) {
            Ok(pointer) => Ok(Some(pointer)),
            Err(error) => Err(Error::Invalid(format!("a block that makes no sense: {error}"))),
        },
    }
}

/// Whether edits refer to a block that the dataset has: only a commit can tell what it counts then.
pub(super) fn refers_back(edits: &[Edit<'_>]) -> Result<bool> {
    for block in edits.iter().filter_map(block_of) {
        if stored_pointer(block)?.is_some_and(|pointer| pointer.address().is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn counted_item(pointer: &Pointer, count: u64) -> (Bytes, Option<Bytes>) {
    let mut pointer = pointer.clone();
    pointer.flags = pointer.flags.with(PointerFlags::SHARED);
    let record = ReferenceRecord { count, used_bytes: u64::from(pointer.logical_len) };
    (record.encode(), Some(pointer.encode()))
}

fn damaged(reason: String) -> Error {
    Error::Damaged(Damage { what: "a reference count", place: "a dataset".to_owned(), reason })
}

/// Refuses edits that refer to a block of a dataset and break the contract of `Batch` for that:
/// a commit that has taken them in could only fail, and the pool with it. Nothing else of the
/// dataset waits for a commit, and none is made meanwhile.
///
/// What is new or adopted has no references to fit, so most batches are not looked at further.
pub(super) fn refuse_unbalanced(pool: &State, dataset: &Dataset, edits: &[Edit<'_>]) -> Result<()> {
    let group = Group(pool.superblock.lock().group.0 + 1);
    let mut uses = Uses::new(group);
    for block in edits.iter().filter_map(block_of) {
        if let Some(pointer) = stored_pointer(block)? {
            uses.add(&pointer);
        }
    }
    if uses.counts.is_empty() {
        return Ok(());
    }
    let root = dataset.root();
    let at = At { media: &pool.media, epoch: pool.media.epoch() };
    uses.flag_counted(&at, root.as_ref())?;
    let mut dropped = Vec::new();
    for edit in edits {
        let before = tree::get(&at, root.as_ref(), edit.key())?;
        dropped.extend(before.and_then(|found| found.pointer));
    }
    let mut balances = balances(&uses, &dropped)?;
    balances.retain(|_, balance| balance.gained > 0);
    for (identity, balance) in balances {
        let key = identity.key();
        match balance.settle(&at, root.as_ref(), key, group)? {
            Some(_) => {}
            // What the edits replace does not have it: the edits are wrong, and not the tree.
            None if balance.lost == 0 => return Err(Error::Invalid(balance.imbalance(key))),
            None => return Err(damaged(balance.imbalance(key))),
        }
    }
    Ok(())
}
