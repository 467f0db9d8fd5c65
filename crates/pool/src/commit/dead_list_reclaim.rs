//! Dead lists from which is given back, piece by piece, what a destruction has freed.
//!
//! A state that takes over from destroyed snapshots has their dead lists beside its own. Of the
//! blocks on those lists the younger are free, and the older belong to that state from then on.
//! There may be tens of millions. So a destruction only notes of each list after which group its
//! blocks are free, and where the others go: the list is in **reclaim** from then on. Commits of
//! their own take so many pointers off such lists at a time; a list that is empty is forgotten.
//!
//! **A pointer on a list in reclaim counts where it belongs already**: an old block is on the list
//! that it will go to, a young one on none. A visit of a dead list goes through [`visit_dead`], so
//! nothing has to wait for the reclaim. Destructions, snapshots, rollbacks and promotions go on at
//! once, as they move lists by their numbers.
//!
//! **Nothing leads to a list in reclaim**: when the list of an heir comes into reclaim too, what
//! led to it leads on to where it leads. So no pointer is moved twice by one step, and no list
//! waits for another.

use crate::base::pointers::decode_pointer;
use crate::commit::draft::Commit;
use crate::commit::owners;
use crate::io::At;
use crate::state::pinned_commit::PinnedCommit;
use crate::tree;
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_format::group::{GROUPS_MAX, Group};
use marram_format::pointer::Pointer;
use marram_format::space::ReclaimRecord;
use marram_format::space::{DeadChunk, dead_key};
use marram_store::Key;
use marram_store::{Damage, Error, Result};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Where that leads to which another snapshot has anyway.
const NOWHERE: u64 = 0;

/// Visits the pointers on a dead list, and those on the way to it.
pub(crate) fn visit_dead(
    moment: &PinnedCommit,
    list: u64,
    visit: &mut dyn FnMut(&Pointer) -> Result<()>,
) -> Result<()> {
    visit_list(moment, list, visit)?;
    visit_on_the_way(moment, list, visit)
}

/// Grains of the blocks on the dead list of a record, and of those on the way to it.
pub(crate) fn dead_grains(moment: &PinnedCommit, record: &DatasetRecord) -> Result<u64> {
    let mut grains = record.dead_grains;
    visit_on_the_way(moment, record.dead_list, &mut |pointer| {
        grains += pointer.grains();
        Ok(())
    })?;
    Ok(grains)
}

/// Visits the pointers that are free and still to be given back.
pub(crate) fn visit_freed(
    moment: &PinnedCommit,
    visit: &mut dyn FnMut(&Pointer) -> Result<()>,
) -> Result<()> {
    for (list, reclaim) in moment.records.reclaims().iter() {
        visit_list(moment, *list, &mut |pointer| match pointer.birth > reclaim.threshold {
            true => visit(pointer),
            false => Ok(()),
        })?;
    }
    Ok(())
}

fn visit_on_the_way(
    moment: &PinnedCommit,
    list: u64,
    visit: &mut dyn FnMut(&Pointer) -> Result<()>,
) -> Result<()> {
    for (from, reclaim) in moment.records.reclaims().iter().filter(|it| it.1.destination == list) {
        visit_list(moment, *from, &mut |pointer| match pointer.birth > reclaim.threshold {
            true => Ok(()),
            false => visit(pointer),
        })?;
    }
    Ok(())
}

fn visit_list(
    moment: &PinnedCommit,
    list: u64,
    visit: &mut dyn FnMut(&Pointer) -> Result<()>,
) -> Result<()> {
    dead_chunks(&moment.at(), moment.pool_tree(), list, &mut |_, chunk| {
        for pointer in chunk.pointers {
            visit(&decode_pointer(&pointer)?)?;
        }
        Ok(true)
    })
    .map(|_all| ())
}

fn of_nobody(list: u64) -> Error {
    Error::Damaged(Damage {
        what: "a dead list",
        place: format!("list {list}"),
        reason: "it is nobody's, and blocks are on the way to it".to_owned(),
    })
}

/// From now on these lists are in reclaim: what was born after the threshold is free, the rest goes
/// to the destination. What was on the way to them leads on there.
pub(crate) fn begin_reclaim(
    commit: &mut Commit<'_>,
    lists: &[u64],
    threshold: Group,
    destination: u64,
) {
    lead_on(commit, lists, threshold, destination);
    let reclaims = Arc::make_mut(&mut commit.reclaims);
    let record = ReclaimRecord { threshold, destination };
    reclaims.extend(lists.iter().map(|list| (*list, record)));
}

/// A dead list goes without an heir: another snapshot has all that is on it, and stays or goes
/// by itself. Only what was free on the way to it is still given back.
pub(crate) fn drop_list(commit: &mut Commit<'_>, list: u64, previous_group: Group) {
    lead_on(commit, &[list], previous_group, NOWHERE);
    let nothing_is_free = Group(GROUPS_MAX - 1);
    let record = ReclaimRecord { threshold: nothing_is_free, destination: NOWHERE };
    Arc::make_mut(&mut commit.reclaims).insert(list, record);
}

/// What is on the way to these lists is on the way to another one from now on, unless it is
/// free.
pub(crate) fn lead_on(commit: &mut Commit<'_>, lists: &[u64], threshold: Group, destination: u64) {
    if commit.reclaims.is_empty() {
        return;
    }
    let lists: HashSet<u64> = lists.iter().copied().collect();
    for reclaim in Arc::make_mut(&mut commit.reclaims).values_mut() {
        if reclaim.destination != NOWHERE && lists.contains(&reclaim.destination) {
            *reclaim = ReclaimRecord { threshold, destination };
        }
    }
}

/// Takes pointers off lists in reclaim, about so many. Once in a commit: it looks at the
/// chunks that the last commit has left.
pub(crate) fn reclaim(commit: &mut Commit<'_>, mut left: usize) -> Result<()> {
    let mut moved = BTreeMap::new();
    let lists = Arc::clone(&commit.reclaims);
    for (list, reclaim) in lists.iter() {
        if left == 0 {
            break;
        }
        if reclaim_list(commit, *list, *reclaim, &mut left, &mut moved)? {
            Arc::make_mut(&mut commit.reclaims).remove(list);
        }
    }
    count_moved(commit, moved)
}

/// Takes pointers off a list; returns whether it is empty. A list costs as much as a pointer, and
/// so does a chunk.
fn reclaim_list(
    commit: &mut Commit<'_>,
    list: u64,
    reclaim: ReclaimRecord,
    left: &mut usize,
    moved: &mut BTreeMap<u64, u64>,
) -> Result<bool> {
    let media = &commit.pool.media;
    let root = commit.pool.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
    let at = At { media, epoch: media.epoch() };
    let mut taken = Vec::new();
    let is_all = dead_chunks(&at, root.as_ref(), list, &mut |key, chunk| {
        if *left == 0 {
            return Ok(false);
        }
        *left = left.saturating_sub(chunk.pointers.len() + 1);
        taken.push((key, chunk));
        Ok(true)
    })?;
    *left = left.saturating_sub(1);
    for (key, chunk) in taken {
        commit.items.insert(key, None);
        reclaim_pointers(commit, chunk.pointers, reclaim, moved)?;
    }
    if is_all {
        // Those that this commit has put there itself are in memory.
        let new = commit.take_new_dead(list);
        reclaim_pointers(commit, new, reclaim, moved)?;
    }
    Ok(is_all)
}

fn reclaim_pointers(
    commit: &mut Commit<'_>,
    pointers: Vec<Bytes>,
    reclaim: ReclaimRecord,
    moved: &mut BTreeMap<u64, u64>,
) -> Result<()> {
    for pointer in pointers {
        let decoded = decode_pointer(&pointer)?;
        if decoded.birth > reclaim.threshold {
            owners::free(commit, &decoded)?;
        } else if reclaim.destination != NOWHERE {
            *moved.entry(reclaim.destination).or_default() += decoded.grains();
            commit.add_dead(reclaim.destination, pointer);
        }
    }
    Ok(())
}

/// Adds the grains of what has come onto dead lists to the records that have those lists.
fn count_moved(commit: &mut Commit<'_>, moved: BTreeMap<u64, u64>) -> Result<()> {
    let changed = commit.records.values().flatten().map(|record| (record.dead_list, record.id));
    let changed: HashMap<u64, u64> = changed.collect();
    for (list, grains) in moved {
        let known = || commit.pool.records.read().with_list(list).map(|record| record.id);
        let holder = changed.get(&list).copied().or_else(known);
        let mut record = commit.record(holder.ok_or_else(|| of_nobody(list))?)?;
        if record.dead_list != list {
            return Err(of_nobody(list));
        }
        record.dead_grains += grains;
        commit.records.insert(record.id, Some(record));
    }
    Ok(())
}

/// Visits the chunks of a dead list, as a tree of the pool's own has them, until the visitor
/// returns false; returns whether it never did.
pub(crate) fn dead_chunks(
    at: &At<'_>,
    pool_tree: Option<&Bytes>,
    list: u64,
    visit: &mut dyn FnMut(Key, DeadChunk) -> Result<bool>,
) -> Result<bool> {
    let mut failed = None;
    let (from, to) = (dead_key(list, 0), dead_key(list, u64::MAX));
    let is_all = tree::scan(at, pool_tree, from, to, &mut |found| {
        let chunk = DeadChunk::decode(&found.value).map_err(|error| {
            let (what, place) = ("a dead list", format!("list {list}"));
            Error::Damaged(Damage { what, place, reason: error.to_string() })
        });
        chunk.and_then(|chunk| visit(found.key, chunk)).unwrap_or_else(|error| {
            failed = Some(error);
            false
        })
    })?;
    failed.map_or(Ok(is_all), Err)
}
