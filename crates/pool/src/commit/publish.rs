//! The last step of a commit: the running pool goes on from what is durable.

use crate::commit::draft::{Commit, Publication};
use crate::commit::steps::Steps;
use crate::state::State;
use bytes::Bytes;
use marram_format::superblock::Superblock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Step 7.
pub(super) fn publish(commit: Commit<'_>, superblock: Superblock) {
    let pool = commit.pool;
    for (block, token) in commit.written {
        block.set_stored(token);
    }
    pool.space.lock().finish();
    let changed: Vec<u64> = commit.records.keys().copied().collect();
    {
        let mut records = pool.records.write();
        let records = Arc::make_mut(&mut records);
        records.apply(commit.records);
        records.set_reclaims(commit.reclaims);
        records.set_transactions(commit.transactions);
    }
    publish_roots(pool, &commit.roots, &commit.frozen.steps);
    let mut known = pool.datasets.write();
    for publication in commit.publications {
        match publication {
            Publication::Add(dataset) => {
                if pool.log.get().is_some() && dataset.writable {
                    dataset.begin_logging();
                }
                known.insert(dataset.id, dataset);
            }
            Publication::Remove(id) => {
                known.remove(&id);
                pool.dirty_datasets.take(id);
            }
            Publication::Root(id, root) => {
                if let Some(dataset) = known.get(&id) {
                    dataset.go_on_from(root);
                }
            }
        }
    }
    drop(known);
    commit.unused.into_iter().for_each(|key| pool.media.forget(key));
    pool.note_referenced(&changed);
    pool.media.set_epoch(superblock.group.0);
    *pool.superblock.lock() = superblock;
    if let Some(log) = pool.log.get() {
        log.committed(commit.frozen.log_start, commit.frozen.batches);
    }
}

/// Datasets go on from their new roots, and forks that have begun since the freeze with them.
fn publish_roots(pool: &State, roots: &BTreeMap<u64, Option<Bytes>>, steps: &Steps) {
    let mut forks = pool.forks.lock();
    for (dataset, taken) in &steps.taken {
        if let Some(root) = roots.get(&dataset.id) {
            dataset.publish(root.clone(), *taken);
            forks.follow(dataset.id, root.as_ref(), *taken);
        }
    }
    for merge in pool.merges.settle(steps.merges) {
        pool.note_expiry(merge.entry.until.load(Ordering::Relaxed));
    }
    pool.end_of_commit(&mut forks, true);
    for (fork, _) in &steps.ended {
        pool.forks.remove(&mut forks, *fork);
    }
}
