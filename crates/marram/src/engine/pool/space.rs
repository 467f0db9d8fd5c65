//! What holds the space of a pool.

use crate::control::protocol::{Answer, SpaceReport};
use crate::engine::store_operations::{holder_row, named, would_give_back};
use crate::error::Result;
use marram_pool::Pool;
use marram_store::SpaceUsage;

/// Tells what holds the space, or what destroying some together would give back.
///
/// # Errors
/// One that is not there, or whose destruction the pool refuses.
pub(super) fn space(pool: &Pool, sources: &[String]) -> Result<Answer> {
    if pool.status().dirty_bytes > 0 {
        pool.commit()?;
    }
    if sources.is_empty() {
        return report(pool).map(Answer::Space);
    }
    would_give_back(pool, &named(pool, sources)?)
}

fn report(pool: &Pool) -> Result<SpaceReport> {
    let usage = pool.usage(true)?;
    Ok(SpaceReport {
        holders: usage.holders.iter().map(holder_row).collect(),
        added_bytes: usage.holders.iter().map(|holder| holder.added_bytes).sum(),
        own_bytes: usage.own_bytes,
        leaving_bytes: usage.leaving_bytes,
        shared_bytes: usage.shared_bytes,
        allocated_bytes: usage.allocated_bytes,
        in_database: None,
    })
}
