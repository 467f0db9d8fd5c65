//! What holds the space of a pool.
//!
//! Every grain in use is counted once, and the sum is exact. The counters in the records say what
//! datasets and snapshots have; the nodes of the pool's tree are its own. What is left over is of
//! destroyed datasets, and what is counted twice has several owners.

use super::destroy;
use super::list::report;
use super::plan::Chain;
use super::reclaimable::{Release, grains_since_parent};
use crate::base::pointers::decode_pointer;
use crate::commit::leaving::prune_cursor;
use crate::state::State;
use crate::state::pinned_commit::PinnedCommit;
use crate::state::records::Records;
use crate::tree::NodeSource;
use marram_format::dataset::DatasetRecord;
use marram_format::log::LogHead;
use marram_format::node::Node;
use marram_format::pointer::{Extent, GRAIN_BYTES, Pointer};
use marram_store::{Damage, Error, Holder, Result, Usage};
use std::sync::Arc;

/// See [`marram_store::SpaceUsage::usage`]. Records, dead lists and trees are those of one moment,
/// and commits go on.
pub(crate) fn usage(pool: &Arc<State>, exact: bool) -> Result<Usage> {
    // What has ended is nobody's. A pool that takes no changes still has it.
    let _dropped = destroy::drop_ended(pool);
    PinnedCommit::look(pool, &mut |moment| usage_at(moment, exact))
}

fn usage_at(moment: &PinnedCommit, exact: bool) -> Result<Usage> {
    let has_owners = moment.has_owners()?;
    let counts_owners = exact && has_owners;
    let known = moment.records.known();
    let mut holders: Vec<Holder> =
        known.map(|record| holder(moment, record, counts_owners)).collect::<Result<_>>()?;
    holders.sort_by(|a, b| a.report.source.cmp(&b.report.source));
    let allocated_bytes = moment.superblock.allocated_grains * GRAIN_BYTES;
    let own_bytes = own_grains(moment)? * GRAIN_BYTES;
    let counted = own_bytes + holders.iter().map(|holder| holder.added_bytes).sum::<u64>();
    let leaving_bytes = match has_owners {
        true => leaving_grains(moment)? * GRAIN_BYTES,
        false => allocated_bytes.saturating_sub(counted),
    };
    let shared_bytes = (counted + leaving_bytes).saturating_sub(allocated_bytes);
    Ok(Usage { holders, own_bytes, leaving_bytes, shared_bytes, allocated_bytes })
}

fn holder(
    moment: &PinnedCommit,
    record: &Arc<DatasetRecord>,
    counts_owners: bool,
) -> Result<Holder> {
    let records = &*moment.records;
    let (report, added) = (report(records, record)?, grains_since_parent(moment, record)?);
    let chain = chain_of(records, record);
    let has_children = records.children(record.id).next().is_some();
    let mut release = Release::new(moment, counts_owners);
    match chain {
        Some(chain) => release.chain(&chain)?,
        None if !has_children => release.last(record)?,
        None => {}
    }
    let (added_bytes, unique_bytes) = (added * GRAIN_BYTES, release.grains()? * GRAIN_BYTES);
    Ok(Holder { report, added_bytes, unique_bytes })
}

/// The chain of a snapshot that goes alone, if one takes over from it and nothing else began as it.
fn chain_of(records: &Records, record: &Arc<DatasetRecord>) -> Option<Chain> {
    let mut children = records.children(record.id);
    let only = children.next().filter(|_| children.next().is_none())?;
    let of_it = only.parent == record.parent || only.id == record.parent;
    let takes_over = only.id == record.next || of_it;
    takes_over.then(|| Chain { gone: vec![record.clone()], heir: only.clone() })
}

/// Grains of what has been destroyed and is still to be given back.
fn leaving_grains(moment: &PinnedCommit) -> Result<u64> {
    let mut release = Release::new(moment, true);
    release.freed()?;
    for record in moment.records.going(usize::MAX) {
        let from = prune_cursor(&moment.at(), moment.pool_tree(), record.id)?;
        release.tree(&record, from)?;
    }
    release.grains()
}

/// Grains of the pool's own tree, the tail and the intent log.
fn own_grains(moment: &PinnedCommit) -> Result<u64> {
    let superblock = &moment.superblock;
    let mut grains = superblock.tail.as_ref().map_or(0, Pointer::grains);
    if let Some(log) = &superblock.intent_log {
        let head = LogHead::from_pointer(log).map_err(|error| {
            let (what, place) = ("the intent log", "its head".to_owned());
            Error::Damaged(Damage { what, place, reason: error.to_string() })
        })?;
        let pieces = head.copies.iter().flatten();
        grains += pieces.map(|piece: &Extent| u64::from(piece.grains)).sum::<u64>();
    }
    match &superblock.pool_tree {
        Some(root) => Ok(grains + root.grains() + grains_below(moment, root)?),
        None => Ok(grains),
    }
}

/// Grains of the nodes below one. The lowest are not read: what they take stands above them.
fn grains_below(at: &PinnedCommit, pointer: &Pointer) -> Result<u64> {
    let node = at.node(&pointer.encode())?;
    let Node::Branch(branch) = &*node else { return Ok(0) };
    let mut grains = 0;
    for index in 0..branch.len() {
        let child = decode_pointer(&branch.pointer(index))?;
        grains += child.grains();
        if node.level() > 1 {
            grains += grains_below(at, &child)?;
        }
    }
    Ok(grains)
}
