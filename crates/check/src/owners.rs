//! Blocks that several datasets own.
//!
//! A block is met once for each of its owners: by the tree that it was written for, and by each
//! that has adopted it. The pool's own tree says how many these are, for blocks with more than one.

use crate::block_set::fingerprint;
use marram_format::group::Group;
use marram_format::pointer::Pointer;
use std::collections::BTreeMap;

/// The blocks that have several owners, by address.
#[derive(Default)]
pub(crate) struct Owners {
    blocks: BTreeMap<u64, Owned>,
}

struct Owned {
    recorded: u64,
    met: u64,
    /// What the first owner that was met has there.
    fingerprint: Option<u128>,
}

/// What it means that a block was met.
pub(crate) enum Meeting {
    /// Its space was not met before, or should not have been.
    First,
    /// Another owner of it was met before.
    Again,
    /// The owner that was met before has another block there.
    Another,
}

impl Owners {
    /// The block at an address is said to have so many owners.
    pub(crate) fn add(&mut self, address: u64, recorded: u64) {
        self.blocks.insert(address, Owned { recorded, met: 0, fingerprint: None });
    }

    pub(crate) fn meet(&mut self, pointer: &Pointer) -> Meeting {
        let Some(owned) = pointer.address().and_then(|it| self.blocks.get_mut(&it)) else {
            return Meeting::First;
        };
        owned.met += 1;
        let found = fingerprint(&Pointer { birth: Group(0), ..pointer.clone() });
        match owned.fingerprint.replace(found) {
            None => Meeting::First,
            Some(first) if first == found => Meeting::Again,
            Some(_) => Meeting::Another,
        }
    }

    /// The blocks that have more or fewer owners than is recorded: address, recorded, met.
    pub(crate) fn wrong(&self) -> Vec<(u64, u64, u64)> {
        let wrong = self.blocks.iter().filter(|(_, owned)| owned.met != owned.recorded);
        wrong.map(|(address, owned)| (*address, owned.recorded, owned.met)).collect()
    }
}
