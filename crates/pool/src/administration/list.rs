//! What there is, and how much space it takes.

use super::destroy::dead_only_in;
use crate::pool::Inner;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::pointer::GRAIN_BYTES;
use marram_store::{DatasetKind, DatasetReport, Error, Result};
use std::collections::BTreeMap;

pub(super) fn list(pool: &Inner) -> Result<Vec<DatasetReport>> {
    let records = pool.records.read().clone();
    let known = records.values().filter(|record| record.state != DatasetState::Destroying);
    let mut reports: Vec<DatasetReport> =
        known.map(|record| report(pool, &records, record)).collect::<Result<_>>()?;
    reports.sort_by(|a, b| a.source.cmp(&b.source));
    Ok(reports)
}

fn report(
    pool: &Inner,
    records: &BTreeMap<u64, DatasetRecord>,
    record: &DatasetRecord,
) -> Result<DatasetReport> {
    let origin = match records.get(&record.origin) {
        Some(origin) if record.state == DatasetState::Live => Some(origin.name.parse()?),
        _ => None,
    };
    let kind = match (record.state, &origin) {
        (DatasetState::Snapshot, _) => DatasetKind::Snapshot,
        (_, Some(_)) => DatasetKind::Clone,
        (_, None) => DatasetKind::Live,
    };
    Ok(DatasetReport {
        source: record.name.parse()?,
        kind,
        origin,
        created_seconds: record.created_seconds,
        referenced_bytes: record.referenced_grains * GRAIN_BYTES,
        unique_bytes: unique_grains(pool, records, record)? * GRAIN_BYTES,
    })
}

/// Grains that only this one refers to.
///
/// A snapshot's are those that died between it and the next one, and were born after the one
/// before. A live dataset's are all but those that it shares with its newest snapshot or origin:
/// what that refers to, less what has died since.
pub(super) fn unique_grains(
    pool: &Inner,
    records: &BTreeMap<u64, DatasetRecord>,
    record: &DatasetRecord,
) -> Result<u64> {
    if record.state == DatasetState::Snapshot {
        if record.clones > 0 {
            return Ok(0);
        }
        let next = records.get(&record.next);
        let next = next.ok_or_else(|| Error::NoDataset(format!("number {}", record.next)))?;
        return Ok(dead_only_in(pool, next, record.previous_group)?
            .iter()
            .map(|pointer| pointer.grains())
            .sum());
    }
    let before = if record.previous != 0 { record.previous } else { record.origin };
    let shared = records
        .get(&before)
        .map_or(0, |before| before.referenced_grains.saturating_sub(record.dead_grains));
    Ok(record.referenced_grains.saturating_sub(shared))
}
