//! What there is, and how much space it takes.

use super::destroy::{dead_only_in, heir};
use super::records::{Records, parent_of};
use crate::pool::Inner;
use marram_format::dataset::{
    DatasetRecord, DatasetState, HOLD_PROPERTY_PREFIX, ROOT_OBJECT_PROPERTY,
};
use marram_format::pointer::{GRAIN_BYTES, Pointer, PointerFlags};
use marram_format::version::feature;
use marram_store::{DatasetKind, DatasetReport, Error, ROOT_OBJECT, Result, Source};

pub(super) fn list(pool: &Inner) -> Result<Vec<DatasetReport>> {
    let records = pool.records.read();
    let mut reports: Vec<DatasetReport> =
        records.known().map(|record| report(&records, record)).collect::<Result<_>>()?;
    reports.sort_by(|a, b| a.source.cmp(&b.source));
    Ok(reports)
}

fn report(records: &Records, record: &DatasetRecord) -> Result<DatasetReport> {
    let origin = match records.get(record.origin) {
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
        root_object: root_object(record),
        holds: holds(record).map(str::to_owned).collect(),
        created_seconds: record.created_seconds,
        referenced_bytes: record.referenced_grains * GRAIN_BYTES,
    })
}

fn root_object(record: &DatasetRecord) -> u64 {
    let own = record.properties.iter().find(|(name, _)| name == ROOT_OBJECT_PROPERTY);
    own.and_then(|(_, value)| value.parse().ok()).unwrap_or(ROOT_OBJECT)
}

/// The tags with which a snapshot is held.
pub(super) fn holds(record: &DatasetRecord) -> impl Iterator<Item = &str> {
    record.properties.iter().filter_map(|(name, _)| name.strip_prefix(HOLD_PROPERTY_PREFIX))
}

pub(super) fn unique_bytes(pool: &Inner, source: &Source) -> Result<u64> {
    Ok(unique_grains(pool, &*pool.find(source)?)? * GRAIN_BYTES)
}

/// Grains that only this one refers to; none of a snapshot that others began as.
fn unique_grains(pool: &Inner, record: &DatasetRecord) -> Result<u64> {
    let heir = heir(&pool.records.read(), record);
    match heir {
        Some(heir) if record.next == 0 || record.clones == 0 => {
            grains_without_heir(pool, record, heir)
        }
        None if record.clones == 0 => Ok(grains_since_parent(pool, record)),
        _ => Ok(0),
    }
}

/// Grains of a snapshot that neither its parent nor what follows it has: they have died between
/// the two.
pub(super) fn grains_without_heir(pool: &Inner, record: &DatasetRecord, heir: u64) -> Result<u64> {
    let heir = pool.records.read().get(heir).cloned();
    let heir = heir.ok_or_else(|| Error::NoDataset(format!("after {}", record.name)))?;
    let dead = dead_only_in(pool, &heir, record.previous_group)?;
    dead.iter().map(|pointer| grains_alone(pool, pointer)).sum()
}

/// Grains of the last of a line that its parent has not: what that refers to, less what has died
/// since, is in both.
pub(super) fn grains_since_parent(pool: &Inner, record: &DatasetRecord) -> u64 {
    let records = pool.records.read();
    let shared = records
        .get(parent_of(record))
        .map_or(0, |parent| parent.referenced_grains.saturating_sub(record.dead_grains));
    record.referenced_grains.saturating_sub(shared)
}

/// Grains of a block, unless it has other owners.
fn grains_alone(pool: &Inner, pointer: &Pointer) -> Result<u64> {
    let is_content = !pointer.flags.contains(PointerFlags::METADATA);
    let known = pool.superblock.lock().features_read_compatible & feature::OWNERS != 0;
    if let Some(address) = pointer.address()
        && is_content
        && known
        && pool.owners_of(address)? > 1
    {
        return Ok(0);
    }
    Ok(pointer.grains())
}
