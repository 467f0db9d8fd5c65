//! Groups of operations, one of which waits for another without a sync.
//!
//! Where changes are written in their place, a group is two empty patches around its changes.
//! Transactions of a journal come one after the other, so there the order of groups holds already
//! for all that is in them: only bytes of users that are written in their place are to be put into
//! the journal. So are later changes of a block that has a copy there, or a replay would bring back
//! older bytes.

use crate::error::failed;
use crate::state::journal::log::{Bytes, JournalBug};
use crate::state::syncs::MOVED_DIRECTORIES;
use crate::state::{State, Work};
use marram_patch::{Bracket, Discipline, PatchId, Plan};
use marram_vfs::{Error, Patchgroup, PatchgroupLives, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Most patches that a group waits for without any order: above that they are written first.
const SEALED_MAX: usize = 4096;

/// Most groups at once: each has a patch that is there until the group is closed.
const GROUPS_MAX: usize = 4096;

/// What is known of the groups of an image.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) lives: PatchgroupLives,
    own: BTreeMap<Patchgroup, Own>,
}

/// What is known of one group.
#[derive(Default)]
struct Own {
    /// The sets of changes that it waits for.
    earlier: Vec<Bracket>,
    /// Its own, once it is engaged or waited for.
    bracket: Option<Bracket>,
    is_sealed: bool,
    /// How many transactions had been committed at the last change of it and of what it waits for.
    changed_at: Option<u64>,
}

impl State {
    /// A new group.
    pub(crate) fn make_patchgroup(&mut self) -> Result<Patchgroup> {
        if self.patchgroups.own.len() >= GROUPS_MAX {
            return Err(Error::TooManyGroups);
        }
        let group = self.patchgroups.lives.make()?;
        self.patchgroups.own.insert(group, Own::default());
        Ok(group)
    }

    /// The patches around the changes of a group; none where a journal keeps the order.
    fn bracket(&mut self, group: Patchgroup) -> Option<Bracket> {
        let own = self.patchgroups.own.get_mut(&group).filter(|_| self.log.is_none())?;
        let (cache, earlier) = (&mut self.cache, std::mem::take(&mut own.earlier));
        Some(*own.bracket.get_or_insert_with(|| cache.open_bracket(&earlier)))
    }

    /// Lets one group wait for another one.
    pub(crate) fn depend(&mut self, later: Patchgroup, earlier: Patchgroup) -> Result<()> {
        if self.discipline == Discipline::Unordered && self.cache.waiting() > SEALED_MAX {
            self.sync()?;
        }
        self.patchgroups.lives.depend(later, earlier)?;
        self.seal(earlier);
        let bracket = self.bracket(earlier);
        let changed_at = self.patchgroups.own.get(&earlier).and_then(|own| own.changed_at);
        let own = self.patchgroups.own.entry(later).or_default();
        own.earlier.extend(bracket);
        own.changed_at = own.changed_at.max(changed_at);
        Ok(())
    }

    fn seal(&mut self, group: Patchgroup) {
        let Some(bracket) = self.bracket(group) else { return };
        let own = self.patchgroups.own.entry(group).or_default();
        if !std::mem::replace(&mut own.is_sealed, true) {
            // Without any order, what a change needs to be seen is not among what it waits for.
            self.cache.seal_bracket(bracket, self.discipline == Discipline::Unordered);
        }
    }

    /// Lets operations belong to some groups.
    pub(crate) fn engage(&mut self, groups: &[Patchgroup]) -> Result<()> {
        self.patchgroups.lives.engage(groups)?;
        for group in groups {
            self.bracket(*group);
        }
        Ok(())
    }

    /// Makes a group durable, and all that it waits for.
    pub(crate) fn sync_patchgroup(&mut self, group: Patchgroup) -> Result<()> {
        self.patchgroups.lives.find(group)?;
        let own = self.patchgroups.own.entry(group).or_default();
        let is_durable = own.changed_at.is_none_or(|at| at < self.commits);
        match (self.log.is_some(), self.discipline, self.bracket(group)) {
            (true, _, _) if is_durable => Ok(()),
            (true, _, _) => self.commit(),
            (false, Discipline::SoftUpdates, Some(bracket)) => {
                self.cache.sync_bracket(bracket).map_err(failed)?;
                self.note_durable();
                Ok(())
            }
            _ => self.sync(),
        }
    }

    /// Forgets a group; its order stays.
    pub(crate) fn close_patchgroup(&mut self, group: Patchgroup) -> Result<()> {
        self.patchgroups.lives.close(group)?;
        if self.patchgroups.own.get(&group).is_some_and(|own| own.bracket.is_some()) {
            self.seal(group);
        }
        self.patchgroups.own.remove(&group);
        Ok(())
    }

    /// Lets a plan wait for what the engaged groups wait for.
    pub(crate) fn set_behind(&mut self, plan: &mut Plan) {
        let engaged = self.engaged.clone();
        let heads = engaged.iter().filter_map(|group| self.bracket(*group)).map(|it| it.head);
        plan.set_behind(heads.collect());
    }

    /// Says which bytes of users a plan puts into the journal: all, or none but these.
    pub(crate) fn choose_logged(&mut self, plan: &mut Plan, fresh: &BTreeSet<u64>) {
        let Some(log) = &self.log else { return };
        let is_engaged = !self.engaged.is_empty() && !log.leaves_out(JournalBug::GroupsApart);
        let is_ordered = log.bytes == Bytes::Ordered;
        plan.log_data(|block| {
            // What is new in a file is in its place before the commit.
            let is_new = is_ordered && fresh.contains(&block);
            is_engaged && !is_new || log.has(block) || self.cache.is_in_group(block)
        });
    }

    /// Notes what an operation of the engaged groups has changed, and what leads to it.
    pub(crate) fn note_engaged(&mut self, made: &[PatchId], inodes: &BTreeSet<u64>) {
        if self.engaged.is_empty() {
            return;
        }
        let mut patches = made.to_vec();
        for number in inodes.iter().chain([&MOVED_DIRECTORIES]) {
            patches.extend(self.names.get(number).into_iter().flatten());
            patches.extend(self.recent.get(number).into_iter().flatten());
            patches.extend(self.cleared.get(number).into_iter().flatten());
        }
        for group in self.engaged.clone() {
            if let Some(bracket) = self.bracket(group) {
                self.cache.add_to_bracket(bracket, &patches);
            }
            if let Some(own) = self.patchgroups.own.get_mut(&group) {
                own.changed_at = Some(self.commits);
            }
        }
    }
}

impl Work<'_> {
    /// The blocks that the operation has taken.
    pub(crate) fn taken_blocks(&self) -> BTreeSet<u64> {
        self.taken.iter().filter_map(|taken| taken.block()).collect()
    }
}
