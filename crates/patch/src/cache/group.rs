//! Groups of changes that become durable together, through a log that a caller writes.
//!
//! All changes of a group wait for one patch of no unit. The caller copies the blocks of a closed
//! group to a log, and releases that patch after the log's last block. What the log waits for is
//! never a change that waits for a group, so no patch comes to wait for itself: its blocks are
//! free before the group is opened.

use crate::cache::{Cache, Discipline};
use crate::graph::{PatchId, Unit};
use crate::plan::Plan;
use std::collections::BTreeSet;

/// The group that takes changes now.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) patch: PatchId,
    blocks: BTreeSet<u64>,
}

/// A group that takes no more changes.
#[derive(Debug)]
pub struct Closed {
    /// What its changes wait for.
    pub patch: PatchId,
    /// The blocks that it has changed, in order.
    pub blocks: Vec<u64>,
}

impl Cache {
    /// Makes the changes of a plan part of the open group, if changes are made in groups.
    pub(crate) fn join_group(&mut self, plan: &Plan) -> Option<PatchId> {
        let Discipline::Grouped { data } = self.discipline else { return None };
        let graph = &mut self.graph;
        let group = self
            .group
            .get_or_insert_with(|| Group { patch: graph.hold(), blocks: BTreeSet::new() });
        group.blocks.extend(plan.grouped_blocks(data));
        Some(group.patch)
    }

    /// What the changes of the open group wait for.
    pub fn group(&self) -> Option<PatchId> {
        self.group.as_ref().map(|group| group.patch)
    }

    /// How many blocks the open group would have with a plan, and how many the plan has itself.
    pub fn group_blocks_with(&self, plan: &Plan) -> (usize, usize) {
        let Discipline::Grouped { data } = self.discipline else { return (0, 0) };
        let own: BTreeSet<u64> = plan.grouped_blocks(data).collect();
        // A group is large, and it is asked for each plan: so it is never walked.
        let Some(group) = &self.group else { return (own.len(), own.len()) };
        let more = own.iter().filter(|block| !group.blocks.contains(block)).count();
        (group.blocks.len() + more, own.len())
    }

    /// Leaves a block out of the log of the open group: nothing leads to it any more.
    pub fn leave_out(&mut self, block: u64) {
        if let Some(group) = &mut self.group {
            group.blocks.remove(&block);
        }
    }

    /// Closes the open group.
    pub fn close_group(&mut self) -> Option<Closed> {
        let Group { patch, blocks } = self.group.take()?;
        Some(Closed { patch, blocks: blocks.into_iter().collect() })
    }

    /// Lets the changes of a closed group be written once some patches are durable. These wait for
    /// no change of a group.
    pub fn release_group(&mut self, closed: &Closed, after: &[PatchId]) {
        self.graph.release(closed.patch, after);
    }

    /// Whether the open group has changes of a block.
    pub fn is_in_group(&self, block: u64) -> bool {
        self.group.as_ref().is_some_and(|group| group.blocks.contains(&block))
    }

    /// The changes of users' bytes that are not durable, but for those of blocks that a log has and
    /// those that wait for a group: of a block that was freed, these are in no log.
    pub fn data_patches(
        &self,
        is_logged: impl Fn(u64) -> bool,
        group: Option<PatchId>,
    ) -> Vec<PatchId> {
        let is_apart = |unit: &Unit| self.is_data(unit.block) && !is_logged(unit.block);
        let units = self.graph.units().filter(is_apart);
        let mut patches: BTreeSet<PatchId> =
            units.flat_map(|unit| self.graph.all_of(unit)).collect();
        if let Some(group) = group {
            let behind = self.graph.behind(group);
            patches.retain(|patch| !behind.contains(patch));
        }
        patches.into_iter().collect()
    }
}
