//! What comes back when datasets and snapshots go, to the byte.
//!
//! A state has what the one before it has, less what has died since, and what was born since. So
//! what came with it is known from counters alone. Of a chain that goes, what is only in it has
//! died on the way from its oldest to its heir: it is on the dead lists between, and born after
//! what is before the oldest. Nothing is walked.
//!
//! Blocks with several owners are the exception: they come back with the last one. Where a pool has
//! any, dead lists are read through and the trees of lasts walked, as far as they are younger than
//! what is before them, and what is met is counted by address.

use super::plan::{Chain, Plan};
use crate::base::pointers::decode_pointer;
use crate::base::pointers::is_shared;
use crate::commit::dead_list_reclaim::{dead_grains, visit_dead, visit_freed};
use crate::state::pinned_commit::PinnedCommit;
use crate::state::records::parent_of;
use crate::state::records::root_of;
use crate::tree::{NodeSource, PruneSink, prune};
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_format::group::Group;
use marram_format::node::Node;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_store::{Key, Result, kind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Grains that came with a state: those that its parent has not.
pub(crate) fn grains_since_parent(moment: &PinnedCommit, record: &DatasetRecord) -> Result<u64> {
    let shared = match moment.records.get(parent_of(record)) {
        Some(parent) => parent.referenced_grains.saturating_sub(dead_grains(moment, record)?),
        None => 0,
    };
    Ok(record.referenced_grains.saturating_sub(shared))
}

/// Counts what comes back.
pub(crate) struct Release<'p> {
    moment: &'p PinnedCommit,
    counts_owners: bool,
    /// Grains of blocks with one owner.
    grains: u64,
    /// By address: how many owners of a block with several go, and its grains.
    owned: BTreeMap<u64, (u64, u64)>,
    /// What is born in or before this group is not met on a walk.
    group: Group,
}

impl<'p> Release<'p> {
    /// `counts_owners` says whether the pool has blocks with several owners, and they are to be
    /// counted; without, each is taken to have one.
    pub(crate) fn new(moment: &'p PinnedCommit, counts_owners: bool) -> Release<'p> {
        Release { moment, counts_owners, grains: 0, owned: BTreeMap::new(), group: Group(0) }
    }

    /// All that a plan takes.
    pub(crate) fn plan(&mut self, plan: &Plan) -> Result<()> {
        plan.lasts.iter().try_for_each(|last| self.last(last))?;
        plan.chains.iter().try_for_each(|chain| self.chain(chain))
    }

    /// What nothing comes after.
    pub(crate) fn last(&mut self, record: &DatasetRecord) -> Result<()> {
        if self.counts_owners {
            return self.tree(record, Key::MIN);
        }
        self.grains += grains_since_parent(self.moment, record)?;
        Ok(())
    }

    /// What is left of a tree from a key on.
    pub(crate) fn tree(&mut self, record: &DatasetRecord, from: Key) -> Result<()> {
        self.group = record.previous_group;
        match root_of(record) {
            Some(root) => prune(self, &root, from, &mut usize::MAX.clone()).map(|_all| ()),
            None => Ok(()),
        }
    }

    /// What goes before an heir.
    pub(crate) fn chain(&mut self, chain: &Chain) -> Result<()> {
        let Some(oldest) = chain.gone.first() else { return Ok(()) };
        let group = oldest.previous_group;
        let lists = chain.gone[1..].iter().chain([&chain.heir]);
        for record in lists {
            if group == Group(0) && !self.counts_owners {
                self.grains += dead_grains(self.moment, record)?;
                continue;
            }
            let moment = self.moment;
            visit_dead(moment, record.dead_list, &mut |pointer| match pointer.birth > group {
                true => self.block(pointer),
                false => Ok(()),
            })?;
        }
        Ok(())
    }

    /// What is free and still to be given back.
    pub(crate) fn freed(&mut self) -> Result<()> {
        let moment = self.moment;
        visit_freed(moment, &mut |pointer| self.block(pointer))
    }

    fn block(&mut self, pointer: &Pointer) -> Result<()> {
        let is_content = !pointer.flags.contains(PointerFlags::METADATA);
        if let Some(address) = pointer.address().filter(|_| is_content && self.counts_owners)
            && self.moment.owners_of(address)? > 1
        {
            self.owned.entry(address).or_insert((0, pointer.grains())).0 += 1;
            return Ok(());
        }
        self.grains += pointer.grains();
        Ok(())
    }

    /// Grains that come back.
    pub(crate) fn grains(self) -> Result<u64> {
        let mut grains = self.grains;
        for (address, (gone, of_block)) in self.owned {
            if gone >= self.moment.owners_of(address)? {
                grains += of_block;
            }
        }
        Ok(grains)
    }
}

impl NodeSource for Release<'_> {
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>> {
        self.moment.node(pointer)
    }
}

impl PruneSink for Release<'_> {
    fn is_older(&self, pointer: &Bytes) -> Result<bool> {
        Ok(decode_pointer(pointer)?.birth <= self.group)
    }

    fn node_goes(&mut self, pointer: &Bytes) -> Result<()> {
        self.block(&decode_pointer(pointer)?)
    }

    fn block_goes(&mut self, key: Key, pointer: &Bytes) -> Result<()> {
        let pointer = decode_pointer(pointer)?;
        let counted_elsewhere = is_shared(&pointer) && key.kind != kind::REFERENCES;
        if counted_elsewhere || pointer.birth <= self.group {
            return Ok(());
        }
        self.block(&pointer)
    }
}
