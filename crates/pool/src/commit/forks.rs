//! Forks in memory, as a commit meets them.
//!
//! A commit may hold **several moments**, each state with a group of its own: at that of a fork its
//! parent takes in the layers that were there when the fork began, and is kept as its base; the
//! rest of the parent, and what the fork has changed, is younger. All of it is durable with one
//! superblock, which has the last of these groups.
//!
//! One that has ended goes with a commit that is made for batches, if nobody reads its base.

use crate::base::planted::{PlantedBug, is_planted};
use crate::commit::dead_list_reclaim;
use crate::commit::draft::Commit;
use crate::commit::kept_states::{begin_as, keep_as};
use crate::commit::leaving::{destroy_chain, destroy_last, prune_dataset};
use crate::commit::steps::Begins;
use crate::state::records::root_of;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::version::feature;
use marram_store::Result;

/// Leaves of ended forks that a commit gives back beside what it is made for.
const PRUNE_LEAVES: usize = 200;
/// Pointers that it takes off dead lists.
const RECLAIM_POINTERS: usize = 1000;

/// The dataset of a step is kept as the base of a fork, and the fork begins as that; what either
/// takes in after it is of the next group.
pub(super) fn begin(commit: &mut Commit<'_>, parent: u64, begins: &Begins) -> Result<()> {
    // Nodes are read again by the steps that follow.
    commit.queue.write_out()?;
    let new = |record: &DatasetRecord, state| {
        commit.record_as((record.id, record.dead_list), &record.name, state)
    };
    let base = new(&begins.base, DatasetState::Snapshot);
    let fork = new(&begins.record, DatasetState::Live);
    let base_id = base.id;
    keep_as(commit, parent, base)?;
    let properties = begins.record.properties.clone();
    let record = begin_as(commit, base_id, DatasetRecord { properties, ..fork })?;
    commit.roots.insert(begins.dataset.id, root_of(&record));
    commit.keep(record)?;
    commit.set_feature(feature::OWNERS);
    Ok(())
}

/// The records of ended forks and of their bases go; so does what only they held, as far as there
/// is little of it. The forks first: one that a fork has begun in is the last of its line, and then
/// the base of that is.
pub(super) fn drop_ended(commit: &mut Commit<'_>, ended: &[(u64, u64)]) -> Result<()> {
    if ended.is_empty() {
        return Ok(());
    }
    let mut leaves = PRUNE_LEAVES;
    for (fork, _) in ended {
        let record = commit.record(*fork)?;
        destroy_last(commit, record)?;
        if is_planted(PlantedBug::DeadTransactionKept) {
            commit.records.insert(*fork, None);
        }
    }
    for (fork, base) in ended {
        let base = commit.record(*base)?;
        if base.clones == 0 && base.holds == 0 {
            match base.next {
                0 => destroy_last(commit, base)?,
                heir => destroy_chain(commit, &[base.id], heir)?,
            }
        }
        if let Some(Some(going)) = commit.records.get(fork).cloned()
            && leaves > 0
        {
            prune_dataset(commit, &going, &mut leaves)?;
        }
    }
    dead_list_reclaim::reclaim(commit, RECLAIM_POINTERS)
}
