//! Quotas and reservations of datasets.
//!
//! Both are about what a dataset itself refers to: the bytes in the pool of its files, names and
//! attributes as they are now, compressed, all copies counted. What only its snapshots still hold
//! is not counted, so whoever is at a quota gets below it by deleting.
//!
//! A **quota** is the most that it may refer to; a **reservation** is space that is kept free for
//! it to grow into. What the last commit wrote is known to the grain. What waits for a commit is
//! taken to need what it has uncompressed, and nothing that it replaces is taken off; so before a
//! batch is refused, one commit is made, if the dataset has anything for it.
//!
//! Blocks that are **adopted** count as they are stored. A merge is one batch however much it
//! changes, so nobody can make room for it step by step: of a batch that adopts, what it replaces
//! is taken off before it is refused.

use crate::admission::shortage::Losses;
use crate::base::pointers::decode_pointer;
use crate::front::Inner;
use crate::memtable::dataset::Dataset;
use crate::memtable::foreign_blocks::Adoptions;
use crate::snapshots::is_hidden;
use crate::views::live::{KEY_BYTES, content_bytes};
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_store::{Admission, Batch, Block, Edit, Error, Result, Space};
use std::sync::atomic::{AtomicU64, Ordering};

/// Content that a cache has accepted may pass a quota by an eighth and this many bytes.
const ACCEPTED_BYTES: u64 = 16 << 20;

/// What a dataset may use and has used, readable without its lock. In bytes.
pub(crate) struct Allowance {
    quota: AtomicU64,
    reservation: AtomicU64,
    /// What it refers to since the last commit.
    referenced: AtomicU64,
}

impl Allowance {
    pub(crate) fn new(referenced_grains: u64) -> Allowance {
        Allowance {
            quota: AtomicU64::new(u64::MAX),
            reservation: AtomicU64::new(0),
            referenced: AtomicU64::new(referenced_grains * GRAIN_BYTES),
        }
    }

    /// The properties have been set.
    pub(crate) fn set(&self, quota: Option<u64>, reservation: Option<u64>) {
        self.quota.store(quota.unwrap_or(u64::MAX), Ordering::Release);
        self.reservation.store(reservation.unwrap_or(0), Ordering::Release);
    }

    /// A commit has been made.
    pub(crate) fn set_referenced(&self, grains: u64) {
        self.referenced.store(grains * GRAIN_BYTES, Ordering::Release);
    }

    /// Whether space is kept free for it.
    pub(crate) fn is_reserving(&self) -> bool {
        self.reservation.load(Ordering::Acquire) > 0
    }

    /// What of the reservation is not in use.
    pub(crate) fn kept_free(&self) -> u64 {
        let referenced = self.referenced.load(Ordering::Acquire);
        self.reservation.load(Ordering::Acquire).saturating_sub(referenced)
    }
}

impl Inner {
    /// After a commit that changed the records of these: datasets know what they refer to. Others
    /// are looked at only in a pool that keeps space free for one.
    pub(crate) fn note_referenced(&self, changed: &[u64]) {
        let is_reserving = {
            let datasets = self.datasets.read();
            let records = self.records.read();
            for id in changed {
                if let (Some(dataset), Some(record)) = (datasets.get(id), records.get(*id)) {
                    dataset.allowance.set_referenced(record.referenced_grains);
                }
            }
            let mut changed = changed.iter().filter_map(|id| datasets.get(id));
            changed.any(|dataset| dataset.allowance.is_reserving())
        };
        if is_reserving || self.kept_free_bytes.load(Ordering::Acquire) > 0 {
            self.sum_reservations();
        }
    }

    /// Sums up what is kept free for datasets; when a pool is opened, and when properties are set.
    pub(crate) fn sum_reservations(&self) {
        let datasets = self.datasets.read();
        let records = self.records.read();
        // What was read from a device may be any number.
        let mut kept_free = 0_u64;
        for (id, dataset) in datasets.iter().filter(|(_, dataset)| dataset.writable) {
            if let Some(record) = records.get(*id) {
                dataset.allowance.set_referenced(record.referenced_grains);
                // What is kept for an undo does not grow.
                if !is_hidden(record) {
                    kept_free = kept_free.saturating_add(dataset.allowance.kept_free());
                }
            }
        }
        self.kept_free_bytes.store(kept_free, Ordering::Release);
    }

    /// Bytes that are kept free for other datasets than this one.
    pub(crate) fn kept_free_for_others(&self, dataset: &Dataset) -> u64 {
        let all = self.kept_free_bytes.load(Ordering::Acquire);
        all.saturating_sub(dataset.allowance.kept_free())
    }

    /// Refuses a reservation that there is no space for. It is asked during a commit, when nothing
    /// that batches have freed counts yet.
    pub(crate) fn check_reservation(
        &self,
        wanted_bytes: u64,
        referenced_grains: u64,
        kept_free_bytes: u64,
    ) -> Result<()> {
        let others = self.kept_free_bytes.load(Ordering::Acquire).saturating_sub(kept_free_bytes);
        let free = self.gauge.free_grains().saturating_sub(self.gauge.reserved_grains());
        let free_bytes = (free * GRAIN_BYTES).saturating_sub(others);
        let needed = wanted_bytes.saturating_sub(referenced_grains * GRAIN_BYTES);
        if needed <= free_bytes {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "reservation={wanted_bytes} needs {needed} free bytes; there are {free_bytes}"
        )))
    }

    /// Sees that a batch keeps the quota of its dataset.
    pub(crate) fn check_quota(&self, dataset: &Dataset, batch: &Batch<'_>) -> Result<()> {
        let quota = dataset.allowance.quota.load(Ordering::Acquire);
        if quota == u64::MAX || batch.admission == Admission::Freeing {
            return Ok(());
        }
        let quota = match batch.admission {
            Admission::Accepted => quota.saturating_add(quota / 8).saturating_add(ACCEPTED_BYTES),
            Admission::Ordinary | Admission::Freeing => quota,
        };
        let adoptions = Adoptions::of(batch);
        let others = adoptions.bytes() + batch.edits.len() as u64 * KEY_BYTES;
        let wanted = || content_bytes(batch) + others;
        let room = || quota.saturating_sub(used_bytes(dataset));
        if wanted() <= room() {
            return Ok(());
        }
        if dataset.has_dirty() {
            self.commit()?;
        }
        if wanted() <= room() {
            return Ok(());
        }
        if !adoptions.is_empty()
            && wanted().saturating_sub(self.replaced_bytes(dataset, batch)?) <= room()
        {
            return Ok(());
        }
        Err(Error::LimitExceeded(format!("the dataset may refer to {quota} bytes")))
    }

    /// Bytes of blocks to which the dataset does not refer any more when a batch has been applied.
    /// What waits for a commit is left out.
    fn replaced_bytes(&self, dataset: &Dataset, batch: &Batch<'_>) -> Result<u64> {
        let mut losses = Losses::default();
        for edit in &batch.edits {
            self.replaced_block(dataset, edit)?.into_iter().for_each(|it| losses.lose(it));
            if let Edit::Put { item, .. } = edit {
                losses.gain(item)?;
            }
        }
        let mut bytes = 0;
        for (pointer, address, lost) in losses.blocks() {
            if self.references_to(dataset, &pointer, address)? == lost {
                bytes += pointer.grains() * GRAIN_BYTES;
            }
        }
        Ok(bytes)
    }

    /// The block that the last commit has under the key of an edit, if that replaces it.
    fn replaced_block(&self, dataset: &Dataset, edit: &Edit<'_>) -> Result<Option<Pointer>> {
        if matches!(edit, Edit::Add { .. }) || dataset.is_waiting(edit.key()) {
            return Ok(None);
        }
        match dataset.get(&self.media, edit.key())?.and_then(|item| item.block) {
            Some(Block::Stored(token)) => decode_pointer(&token.place).map(Some),
            _ => Ok(None),
        }
    }

    /// How much space there is for a dataset in which so many bytes are promised: of the pool's
    /// what is not kept free for others, and not more than its quota.
    pub(crate) fn space_of(&self, dataset: &Dataset, promised_bytes: u64) -> Space {
        let pool = self.space();
        let others = self.kept_free_for_others(dataset);
        let space = Space {
            total_bytes: pool.total_bytes,
            free_bytes: pool.free_bytes.saturating_sub(others),
        };
        let quota = dataset.allowance.quota.load(Ordering::Acquire);
        if quota == u64::MAX {
            return space;
        }
        let used = used_bytes(dataset).saturating_add(promised_bytes);
        let free_bytes = space.free_bytes.min(quota.saturating_sub(used));
        Space { total_bytes: used.saturating_add(free_bytes).min(pool.total_bytes), free_bytes }
    }
}

/// Bytes that a dataset refers to, with what waits for a commit.
fn used_bytes(dataset: &Dataset) -> u64 {
    let (content, keys) = dataset.dirty();
    let referenced = dataset.allowance.referenced.load(Ordering::Acquire);
    referenced.saturating_add(content + keys * KEY_BYTES)
}
