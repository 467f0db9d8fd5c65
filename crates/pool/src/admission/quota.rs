//! Quotas and reservations of datasets.
//!
//! Both are about what a dataset itself refers to: the bytes in the pool of its files, names and
//! attributes as they are now, compressed, all copies counted. What only its snapshots still hold
//! is not counted, so a dataset at its quota gets below it by deleting.
//!
//! A **quota** is the most that it may refer to; a **reservation** is space that is kept free for
//! it to grow into. What the last commit wrote is known to the grain. What waits for a commit is
//! taken to need what it has uncompressed, and nothing that it replaces is taken off; so before a
//! batch is refused, one commit is made, if the dataset has anything for it.
//!
//! Blocks that are **adopted** count as they are stored. A merge is one batch however much it
//! changes, so nobody can make room for it step by step: of a batch that adopts, what it replaces
//! is taken off before it is refused.

use crate::admission::cost::{KEY_BYTES, content_bytes};
use crate::admission::losses::Losses;
use crate::admission::room;
use crate::base::pointers::decode_pointer;
use crate::memtable::dataset::Dataset;
use crate::memtable::foreign_blocks::ForeignBlocks;
use crate::state::State;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_store::{Admission, Batch, Block, Edit, Error, Result, Space};

/// Content that a cache has accepted may pass a quota by an eighth and this many bytes.
const ACCEPTED_BYTES: u64 = 16 << 20;

/// Bytes that a dataset refers to, with what waits for a commit.
fn used_bytes(dataset: &Dataset) -> u64 {
    let (content, keys) = dataset.dirty();
    let referenced = dataset.allowance.referenced();
    referenced.saturating_add(content + keys * KEY_BYTES)
}

/// Sees that a batch keeps the quota of its dataset; makes one `commit` before it refuses.
pub(crate) fn check_quota(
    pool: &State,
    dataset: &Dataset,
    batch: &Batch<'_>,
    commit: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let quota = dataset.allowance.quota();
    if quota == u64::MAX || batch.admission == Admission::Freeing {
        return Ok(());
    }
    let quota = match batch.admission {
        Admission::Accepted => quota.saturating_add(quota / 8).saturating_add(ACCEPTED_BYTES),
        Admission::Ordinary | Admission::Freeing => quota,
    };
    let foreign_blocks = ForeignBlocks::of(batch);
    let others = foreign_blocks.bytes() + batch.edits.len() as u64 * KEY_BYTES;
    let wanted = || content_bytes(batch) + others;
    let room = || quota.saturating_sub(used_bytes(dataset));
    if wanted() <= room() {
        return Ok(());
    }
    if dataset.has_dirty() {
        commit()?;
    }
    if wanted() <= room() {
        return Ok(());
    }
    if !foreign_blocks.is_empty()
        && wanted().saturating_sub(replaced_bytes(pool, dataset, batch)?) <= room()
    {
        return Ok(());
    }
    Err(Error::LimitExceeded(format!("the dataset may refer to {quota} bytes")))
}

/// Bytes of blocks to which the dataset does not refer any more when a batch has been applied.
/// What waits for a commit is left out.
fn replaced_bytes(pool: &State, dataset: &Dataset, batch: &Batch<'_>) -> Result<u64> {
    let mut losses = Losses::default();
    for edit in &batch.edits {
        replaced_block(pool, dataset, edit)?.into_iter().for_each(|it| losses.lose(it));
        if let Edit::Put { item, .. } = edit {
            losses.gain(item)?;
        }
    }
    let mut bytes = 0;
    for (pointer, address, lost) in losses.blocks() {
        if pool.references_to(dataset, &pointer, address)? == lost {
            bytes += pointer.grains() * GRAIN_BYTES;
        }
    }
    Ok(bytes)
}

/// The block that the last commit has under the key of an edit, if that replaces it.
fn replaced_block(pool: &State, dataset: &Dataset, edit: &Edit<'_>) -> Result<Option<Pointer>> {
    if matches!(edit, Edit::Add { .. }) || dataset.is_waiting(edit.key()) {
        return Ok(None);
    }
    match dataset.get(&pool.media, edit.key())?.and_then(|item| item.block) {
        Some(Block::Stored(token)) => decode_pointer(&token.place).map(Some),
        _ => Ok(None),
    }
}

/// How much space there is for a dataset in which so many bytes are promised: of the pool's
/// what is not kept free for others, and not more than its quota.
pub(crate) fn space_of(pool: &State, dataset: &Dataset, promised_bytes: u64) -> Space {
    let all = room::space(pool);
    let others = pool.kept_free_for_others(dataset);
    let space =
        Space { total_bytes: all.total_bytes, free_bytes: all.free_bytes.saturating_sub(others) };
    let quota = dataset.allowance.quota();
    if quota == u64::MAX {
        return space;
    }
    let used = used_bytes(dataset).saturating_add(promised_bytes);
    let free_bytes = space.free_bytes.min(quota.saturating_sub(used));
    Space { total_bytes: used.saturating_add(free_bytes).min(all.total_bytes), free_bytes }
}
