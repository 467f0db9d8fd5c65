//! Counting references to blocks that several items of a dataset share.
//!
//! A block that one item refers to needs no count. When a batch makes a second reference, it puts
//! the first one anew too (the contract of `Batch`), so all references of a block become shared in
//! one commit: their pointers get the flag, and a REFERENCES item gets the count. From then on
//! each commit adds to it what its items gain and lose. A block whose references are gone is dead.
//!
//! A block that the dataset has adopted is another one than the same block of old, and than the
//! same block adopted at another time: each has its own count and is given back by itself.

use super::trees::is_shared;
use crate::pointers::decode_pointer;
use crate::tree::{self, Change, NodeSource};
use bytes::Bytes;
use marram_format::group::Group;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::space::{ReferenceRecord, references_key};
use marram_store::{Damage, Error, Key, Result};
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

    /// Flags the blocks that the dataset counts already. Whoever put an item may have read the
    /// pointer before a commit began to count its block.
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

/// The changes of REFERENCES items that follow from a commit, and the blocks that are dead.
pub(super) fn references_changes(
    source: &dyn NodeSource,
    root: Option<&Bytes>,
    uses: &Uses,
    dropped: &[Bytes],
) -> Result<(Vec<Change>, Vec<Bytes>)> {
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
    let mut changes = Vec::new();
    let mut dead = Vec::new();
    for (identity, balance) in balances {
        let key = identity.key();
        let before = count_before(source, root, key, &balance, uses.group)?;
        let now = (before + balance.gained).checked_sub(balance.lost).ok_or_else(|| {
            damaged(format!("block {:#x} loses more references than it has", identity.address))
        })?;
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
fn count_before(
    source: &dyn NodeSource,
    root: Option<&Bytes>,
    key: Key,
    balance: &Balance,
    group: Group,
) -> Result<u64> {
    if is_shared(&balance.pointer) {
        if balance.gained == balance.lost {
            return Ok(balance.lost);
        }
        let found = tree::get(source, root, key)?;
        let found =
            found.ok_or_else(|| damaged(format!("{key:?}: a shared block has no count")))?;
        let record = ReferenceRecord::decode(&found.value);
        return Ok(record.map_err(|error| damaged(error.to_string()))?.count);
    }
    if balance.pointer.birth == group {
        return Ok(0);
    }
    if balance.lost != 1 {
        return Err(damaged(format!(
            "{key:?}: a block gains a reference without its first one being put anew"
        )));
    }
    Ok(1)
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
