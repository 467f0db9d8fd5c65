//! How much space there is: for a batch, for a reservation, and as it is reported.

use crate::admission::cost::{KEY_BYTES, KEY_BYTES_MAX, content_bytes, cost_of_forks, forks_of};
use crate::memtable::dataset::Dataset;
use crate::memtable::settings::Settings;
use crate::state::State;
use crate::state::ledger::Waiting;
use marram_format::dataset::DatasetRecord;
use marram_format::pointer::GRAIN_BYTES;
use marram_store::{Admission, Batch, Error, Result, Space};
use std::sync::atomic::Ordering;

/// Of what is promised so many bytes come with one byte of items that name them: sections of a
/// page, the shortest that programs usually write, with the counts of their owners.
const PROMISED_PER_ITEM_BYTE: u64 = 16;

/// Fewer keys than this do not make a commit worth it.
const WAITING_KEYS_MIN: u64 = 4096;

/// Asks for a commit in the background when what waits for one may need half of the space that
/// is left: better than to let a writer wait for it when there is none.
pub(crate) fn announce_shortage(pool: &State) {
    let dirty_keys = pool.dirty.edits();
    let dirty = pool.dirty.content_bytes_to_write() + dirty_keys * KEY_BYTES_MAX;
    if dirty_keys >= WAITING_KEYS_MIN && dirty > unpromised_bytes(pool) / 2 {
        pool.work.announce();
    }
}

/// Free bytes that are neither reserved nor promised.
pub(super) fn unpromised_bytes(pool: &State) -> u64 {
    let (free, reserved) = (pool.gauge.free_grains(), pool.gauge.reserved_grains());
    (free.saturating_sub(reserved) * GRAIN_BYTES).saturating_sub(promised(pool, 0))
}

/// How much a batch may need beside a commit that needs and gives back so much, in bytes.
pub(crate) fn room(pool: &State, dataset: &Dataset, batch: &Batch<'_>, waiting: Waiting) -> u64 {
    let free = pool.gauge.free_grains() * GRAIN_BYTES + waiting.freed;
    let reserved = pool.gauge.reserved_grains() * GRAIN_BYTES;
    let others = || pool.kept_free_for_others(dataset).saturating_sub(waiting.adopted);
    let promised = promised(pool, batch.promised_bytes);
    // However much is promised, the first half of what is kept back stays for what was
    // accepted.
    let at_most_the_rest = promised.min(free.saturating_sub(reserved));
    let unpromised = || content_bytes(batch).saturating_sub(batch.promised_bytes);
    let kept_back = match batch.admission {
        Admission::Ordinary if batch.promised_bytes == 0 => {
            let forks = cost_of_forks(forks_of(pool.forks.in_memory(), pool.merges.count()));
            others().saturating_add(reserved + forks).saturating_add(promised)
        }
        Admission::Ordinary => {
            let unpromised = unpromised().min(reserved / 2);
            others().saturating_add(reserved / 2 + unpromised + at_most_the_rest)
        }
        Admission::Accepted => others().saturating_add(reserved / 2 + at_most_the_rest),
        Admission::Freeing => reserved / 4,
    };
    free.saturating_sub(kept_back.saturating_add(waiting.needed))
}

/// Bytes that are kept back for what is promised, but for so many of it; with the items that
/// will name it.
fn promised(pool: &State, but_for: u64) -> u64 {
    let promised = pool.ledger.promised_bytes.load(Ordering::Acquire).saturating_sub(but_for);
    promised.saturating_add(promised / PROMISED_PER_ITEM_BYTE)
}

/// How much space there is for batches that nothing was promised to.
pub(crate) fn space(pool: &State) -> Space {
    let (free, reserved) = (pool.gauge.free_grains(), pool.gauge.reserved_grains());
    let total = pool.gauge.total_grains();
    let dirty = pool.dirty.content_bytes_to_write() + pool.dirty.edits() * KEY_BYTES;
    let taken = dirty.saturating_add(promised(pool, 0));
    Space {
        total_bytes: (total - reserved) * GRAIN_BYTES,
        free_bytes: (free.saturating_sub(reserved) * GRAIN_BYTES).saturating_sub(taken),
    }
}

/// Refuses a reservation that there is no space for. It is asked during a commit, when nothing
/// that batches have freed counts yet.
pub(crate) fn check_reservation(
    pool: &State,
    wanted_bytes: u64,
    referenced_grains: u64,
    kept_free_bytes: u64,
) -> Result<()> {
    let others =
        pool.ledger.kept_free_bytes.load(Ordering::Acquire).saturating_sub(kept_free_bytes);
    let free = pool.gauge.free_grains().saturating_sub(pool.gauge.reserved_grains());
    let free_bytes = (free * GRAIN_BYTES).saturating_sub(others);
    let needed = wanted_bytes.saturating_sub(referenced_grains * GRAIN_BYTES);
    if needed <= free_bytes {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "reservation={wanted_bytes} needs {needed} free bytes; there are {free_bytes}"
    )))
}

/// Refuses a record with a reservation that there is no space for; `kept_free_bytes` are kept
/// free for it already.
pub(crate) fn check_record_reservation(
    pool: &State,
    record: &DatasetRecord,
    kept_free_bytes: u64,
) -> Result<()> {
    let wanted = Settings::new(&record.properties)?.reservation_bytes.unwrap_or(0);
    check_reservation(pool, wanted, record.referenced_grains, kept_free_bytes)
}
