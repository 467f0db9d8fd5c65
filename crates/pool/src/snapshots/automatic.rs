//! Automatic snapshots: which datasets have a rule for them, and what goes for a full pool.
//!
//! They are known by their names alone ([`Source::is_automatic`]), so what a user renames is
//! that user's from then on. The log of operations has no entry of them.

use super::destroy;
use super::plan::Plan;
use super::session::Session;
use crate::commit::turn;
use crate::memtable::settings::snapshot_rule;
use crate::state::State;
use crate::state::records::{Records, is_hidden};
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_store::{DatasetName, Error, Result, Scheduled, Source};
use std::cmp::Reverse;
use std::sync::Arc;

/// See [`Pool::scheduled`](crate::Pool::scheduled).
pub(crate) fn scheduled(session: &Session) -> Result<Vec<Scheduled>> {
    let pool = &session.state;
    let records = Arc::clone(&pool.records.read());
    let mut found = Vec::new();
    for record in records.known().filter(|it| it.state == DatasetState::Live && !is_hidden(it)) {
        let Some(rule) = snapshot_rule(&record.properties) else { continue };
        let dataset: DatasetName = record.name.parse()?;
        let is_in_doubt = pool.refuse_in_doubt(record.id).is_err();
        if dataset.is_receiving() || dataset.transaction().is_some() || is_in_doubt {
            continue;
        }
        let snapshots = seen(&records, record.id)?;
        let is_automatic = |source: &&Source| source.is_automatic();
        found.push(Scheduled {
            automatic: snapshots.iter().filter(is_automatic).cloned().collect(),
            began_seconds: (record.origin != 0).then_some(record.created_seconds),
            newest: snapshots.first().cloned(),
            is_kept: is_kept(pool, &records, record)?,
            dataset,
            rule,
        });
    }
    Ok(found)
}

/// The snapshots of a dataset that users see, newest first.
fn seen(records: &Records, dataset: u64) -> Result<Vec<Source>> {
    let mut of_it: Vec<&Arc<DatasetRecord>> =
        records.snapshots(dataset).filter(|it| !is_hidden(it)).collect();
    of_it.sort_by_key(|record| Reverse(record.id));
    let mut sources = Vec::with_capacity(of_it.len());
    for record in of_it {
        let source: Source = record.name.parse()?;
        if !source.is_own() {
            sources.push(source);
        }
    }
    Ok(sources)
}

/// Whether a snapshot that users see has the present state of a dataset.
fn is_kept(pool: &State, records: &Records, live: &DatasetRecord) -> Result<bool> {
    if pool.running(live.id).is_some_and(|dataset| dataset.has_dirty()) {
        return Ok(false);
    }
    let Some(before) = records.get(live.previous).filter(|it| !is_hidden(it)) else {
        return Ok(false);
    };
    let source: Source = before.name.parse()?;
    Ok(!source.is_own() && source.snapshot.is_some() && before.root == live.root)
}

/// Lets go of the oldest automatic snapshot that nothing is in the way of, for a writer that finds
/// no space. The newest of each dataset stays: else a program that fills the pool would take all
/// of the past with it. False if there is none.
pub(crate) fn let_go_of_oldest(pool: &State) -> Result<bool> {
    let records = Arc::clone(&pool.records.read());
    for (_, source) in spare(&records)? {
        let turn = turn::take_turn(pool)?;
        let plan = match Plan::new(pool, std::slice::from_ref(&source)) {
            Err(Error::InUse { .. } | Error::NoDataset(_)) => continue,
            planned => planned?,
        };
        if plan.refuse_in_use(pool).is_err() {
            continue;
        }
        turn.commit_reclaiming(0, &mut |commit, pointers| {
            destroy::destroy_planned(commit, &plan, pointers)
        })?;
        return Ok(true);
    }
    Ok(false)
}

/// Automatic snapshots but the newest of each dataset, oldest first.
fn spare(records: &Records) -> Result<Vec<(u64, Source)>> {
    let live = records.known().filter(|it| it.state == DatasetState::Live && !is_hidden(it));
    let mut spare = Vec::new();
    for record in live {
        let mut of_it: Vec<(u64, Source)> = Vec::new();
        for snapshot in records.snapshots(record.id).filter(|it| !is_hidden(it)) {
            let source: Source = snapshot.name.parse()?;
            if source.is_automatic() {
                of_it.push((snapshot.id, source));
            }
        }
        of_it.sort();
        of_it.pop();
        spare.append(&mut of_it);
    }
    spare.sort();
    Ok(spare)
}
