//! What there is.

use crate::snapshots::ephemeral;
use crate::snapshots::session::Session;
use crate::state::State;
use crate::state::records::Records;
use crate::state::records::is_hidden;
use crate::state::records::{owner, root_object};
use marram_format::dataset::{DatasetRecord, DatasetState, HOLD_PROPERTY_PREFIX};
use marram_format::pointer::GRAIN_BYTES;
use marram_store::{DatasetKind, DatasetReport, Result, Source};
use std::sync::Arc;

/// All but what is kept for an undo.
pub(crate) fn list(pool: &State) -> Result<Vec<DatasetReport>> {
    let unlisted = pool.forks.unlisted();
    let records = pool.records.read();
    let seen = records.known();
    let seen = seen.filter(|record| !is_hidden(record) && !unlisted.contains(&record.id));
    let mut reports: Vec<DatasetReport> =
        seen.map(|record| report(&records, record)).collect::<Result<_>>()?;
    reports.sort_by(|a, b| a.source.cmp(&b.source));
    Ok(reports)
}

/// Of one dataset or snapshot, perhaps an ephemeral one.
pub(crate) fn report_of(session: &Session, source: &Source) -> Result<DatasetReport> {
    let find = || match ephemeral::find(session, source) {
        Some(state) => Ok(Arc::clone(&state.record)),
        None => session.state.find(source),
    };
    let record = find()?;
    let Some(base) = session.state.forks.base_of(record.id) else {
        // A fork may have got its record since it was found in memory.
        let record = find()?;
        return report(&session.state.records.read(), &record);
    };
    let reported = report(&session.state.records.read(), &record)?;
    let (origin, kind) = (Some(base.name.parse()?), DatasetKind::Clone);
    Ok(DatasetReport { origin, kind, is_fork: true, ..reported })
}

pub(crate) fn report(records: &Records, record: &DatasetRecord) -> Result<DatasetReport> {
    let origin = match records.get(record.origin) {
        Some(origin) if record.state == DatasetState::Live => Some(origin.name.parse()?),
        _ => None,
    };
    let is_fork = match records.get(record.origin) {
        Some(origin) => record.state == DatasetState::Live && is_fork_of(record, origin)?,
        None => false,
    };
    let kind = match (record.state, &origin) {
        (DatasetState::Snapshot, _) => DatasetKind::Snapshot,
        (_, Some(_)) => DatasetKind::Clone,
        (_, None) => DatasetKind::Live,
    };
    Ok(DatasetReport {
        source: record.name.parse()?,
        number: record.id,
        kind,
        origin,
        root_object: root_object(record),
        is_fork,
        owner: owner(record),
        holds: holds(record).map(str::to_owned).collect(),
        created_seconds: record.created_seconds,
        referenced_bytes: record.referenced_grains * GRAIN_BYTES,
    })
}

/// Whether a dataset is a fork of which this is the base: one commit has made both. After a
/// promotion another dataset leads back to that snapshot.
fn is_fork_of(record: &DatasetRecord, origin: &DatasetRecord) -> Result<bool> {
    let base: Source = origin.name.parse()?;
    Ok(base.is_fork_base() && record.created_group == origin.created_group)
}

/// The tags with which a snapshot is held.
pub(crate) fn holds(record: &DatasetRecord) -> impl Iterator<Item = &str> {
    record.properties.iter().filter_map(|(name, _)| name.strip_prefix(HOLD_PROPERTY_PREFIX))
}
