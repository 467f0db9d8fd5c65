//! Properties and holds: what is set on datasets and snapshots, with the entry in the log.

use super::list;
use crate::admission::room;
use crate::commit::operation_log;
use crate::commit::operation_log::entry;
use crate::commit::turn::Turn;
use crate::memtable::settings::{
    ALLOW, CASE_FOLDING, RESERVATION, Settings, check_property, grants,
};
use crate::snapshots::begin;
use crate::snapshots::session::Session;
use crate::state::records::refuse_too_long;
use marram_format::dataset::{DatasetRecord, HOLD_PROPERTY_PREFIX};
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::version::feature;
use marram_store::{
    DatasetName, Error, Grants, Properties, PropertySource, Result, Source, check_tag,
};
use std::collections::BTreeMap;

/// What becomes of a property.
pub(crate) struct Change {
    pub(crate) property: String,
    /// The value that it gets, which has been checked; `None` goes back to the default.
    pub(crate) value: Option<String>,
    /// The entry that this takes back; 0 if none.
    pub(crate) undoes: u64,
}

/// See [`marram_store::Store::properties`].
pub(crate) fn properties(
    session: &Session,
    name: &DatasetName,
) -> Result<BTreeMap<String, (String, PropertySource)>> {
    let record = session.state.find_live(name)?;
    let is_local = |name: &str| record.properties.iter().any(|(set, _)| set == name);
    let with_source = |(name, value): (String, String)| {
        let local = is_local(&name);
        let source = if local { PropertySource::Local } else { PropertySource::Default };
        (name, (value, source))
    };
    Ok(Settings::new(&record.properties)?.all.0.into_iter().map(with_source).collect())
}

/// The properties that a new dataset is to have, checked.
pub(crate) fn checked(properties: &Properties) -> Result<Vec<(String, String)>> {
    let check =
        |(name, value): (&String, &String)| Ok((name.clone(), check_property(name, value)?));
    properties.0.iter().map(check).collect()
}

/// A change that is asked for, if it can be.
fn checked_change(property: &str, value: Option<&str>) -> Result<Change> {
    check_property(property, value.unwrap_or_default()).or_else(|error| match value {
        Some(_) => Err(error),
        None => Ok(String::new()),
    })?;
    let value = value.map(|value| check_property(property, value)).transpose()?;
    if property == CASE_FOLDING {
        return Err(Error::Invalid(format!(
            "{CASE_FOLDING} is chosen when a dataset is made, and cannot be changed: make \
             another dataset with it and copy the files"
        )));
    }
    Ok(Change { property: property.to_owned(), value, undoes: 0 })
}

/// See `Pool::set_properties`.
pub(crate) fn set_properties(
    session: &Session,
    name: &DatasetName,
    values: &BTreeMap<String, Option<String>>,
) -> Result<()> {
    let mut changes = Vec::new();
    for (property, value) in values {
        changes.push(checked_change(property, value.as_deref())?);
    }
    let turn = begin::begin_operations(session, changes.len())?;
    change_properties(session, &turn, name, &changes)
}

/// See `Pool::change_grants`.
pub(crate) fn change_grants(
    session: &Session,
    name: &DatasetName,
    change: impl FnOnce(&mut Grants) -> Result<()>,
) -> Result<Grants> {
    let turn = begin::begin_operation(session)?;
    let mut grants = grants(&session.state.find_live(name)?.properties)?;
    let before = grants.clone();
    change(&mut grants)?;
    if grants != before {
        let value = (grants != Grants::default()).then(|| grants.to_string());
        let change = Change { property: ALLOW.to_owned(), value, undoes: 0 };
        change_properties(session, &turn, name, &[change])?;
    }
    Ok(grants)
}

/// Changes properties of a dataset. The caller has the turn to commit.
pub(crate) fn change_properties(
    session: &Session,
    turn: &Turn<'_>,
    name: &DatasetName,
    changes: &[Change],
) -> Result<()> {
    let live = session.state.find_live(name)?;
    let mut record = DatasetRecord::clone(&live);
    for Change { property, value, .. } in changes {
        record.properties.retain(|(set, _)| set != property);
        record.properties.extend(value.clone().map(|value| (property.clone(), value)));
    }
    record.properties.sort();
    refuse_too_long(&record)?;
    let settings = Settings::new(&record.properties)?;
    let known = session.state.running(record.id);
    let old = |property: &str| {
        let set = live.properties.iter().find(|(set, _)| set == property);
        set.map_or("", |(_, value)| value.as_str())
    };
    turn.commit(Some(&mut |commit| {
        let changed = commit.record(record.id)?;
        let record = DatasetRecord { properties: record.properties.clone(), ..changed };
        if changes.iter().any(|change| change.property == RESERVATION) {
            let kept_free = known.as_ref().map_or(0, |dataset| dataset.allowance.kept_free());
            room::check_record_reservation(commit.pool, &record, kept_free)?;
        }
        let id = record.id;
        commit.keep(record)?;
        for Change { property, value, undoes } in changes {
            let texts = [name.as_str(), property, old(property), value.as_deref().unwrap_or("")];
            let set = entry(OperationKind::Set, id, &texts);
            let set = OperationRecord { undoes: *undoes, ..set };
            operation_log::enter(commit, session.author.as_ref(), set)?;
        }
        Ok(())
    }))?;
    if let Some(dataset) = known {
        dataset.set_settings(settings);
    }
    session.state.sum_reservations();
    Ok(())
}

/// See [`marram_store::Holds::hold`].
pub(crate) fn hold(session: &Session, snapshot: &Source, tag: &str) -> Result<()> {
    check_tag(tag)?;
    let turn = begin::begin_operation(session)?;
    change_holds(session, &turn, snapshot, tag, (true, 0))
}

/// See [`marram_store::Holds::release`].
pub(crate) fn release(session: &Session, snapshot: &Source, tag: &str) -> Result<()> {
    let turn = begin::begin_operation(session)?;
    change_holds(session, &turn, snapshot, tag, (false, 0))
}

/// Lets a tag hold a snapshot, or hold it no more.
pub(crate) fn change_holds(
    session: &Session,
    turn: &Turn<'_>,
    snapshot: &Source,
    tag: &str,
    (holds, undoes): (bool, u64),
) -> Result<()> {
    let mut record = DatasetRecord::clone(&*session.state.find_snapshot(snapshot)?);
    let name = format!("{HOLD_PROPERTY_PREFIX}{tag}");
    let held = record.properties.iter().any(|(known, _)| *known == name);
    match (holds, held) {
        (true, true) => {
            let reason = format!("{snapshot} is held with the tag {tag} already");
            return Err(Error::Invalid(reason));
        }
        (false, false) => {
            return Err(Error::Invalid(format!("{snapshot} has no hold with the tag {tag}")));
        }
        (true, false) => record.properties.push((name, String::new())),
        (false, true) => record.properties.retain(|(known, _)| *known != name),
    }
    record.properties.sort();
    refuse_too_long(&record)?;
    let count = u32::try_from(list::holds(&record).count());
    let count = count.expect("a record has few properties");
    let kind = if holds { OperationKind::Hold } else { OperationKind::Release };
    turn.commit(Some(&mut |commit| {
        commit.set_feature(feature::OWNERS);
        let properties = record.properties.clone();
        let changed = commit.record(record.id)?;
        commit.keep(DatasetRecord { properties, holds: count, ..changed })?;
        let entry = entry(kind, record.id, &[&record.name, tag]);
        let entry = OperationRecord { undoes, ..entry };
        operation_log::enter(commit, session.author.as_ref(), entry).map(|_| ())
    }))
}
