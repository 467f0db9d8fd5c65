//! Datasets and snapshots made, given other names, gone back to and promoted: each one commit, with
//! its entry in the log of operations. The fork of a transaction has none: the log has the commit.

use super::session::Session;
use super::{lineage, properties, trash};
use crate::admission::room;
use crate::commit::kept_states;
use crate::commit::operation_log::{self, entry, is_ephemeral};
use crate::snapshots::begin::{begin_operation, begin_operations};
use crate::state::find::refuse_hidden;
use marram_format::dataset::DatasetState;
use marram_format::operation::{OperationKind, OperationRecord};
use marram_store::{DatasetName, Error, Properties, Result, Source, check_rename};
use std::collections::BTreeMap;

/// See [`marram_store::Store::create`].
pub(crate) fn create(session: &Session, name: &DatasetName, properties: &Properties) -> Result<()> {
    let local = properties::checked(properties)?;
    let turn = begin_operation(session)?;
    session.state.refuse_taken(&Source::live(name.clone()))?;
    turn.commit(Some(&mut |commit| {
        let mut record = commit.new_record(name.as_str(), DatasetState::Live);
        record.properties = local.clone();
        room::check_record_reservation(commit.pool, &record, 0)?;
        let entry = entry(OperationKind::Create, record.id, &[name.as_str()]);
        commit.add(record)?;
        operation_log::enter(commit, session.author.as_ref(), entry).map(|_| ())
    }))
}

/// See [`marram_store::Store::snapshot_together`].
pub(crate) fn snapshot_together(
    session: &Session,
    datasets: &[DatasetName],
    snapshot: &str,
) -> Result<()> {
    let turn = begin_operations(session, datasets.len())?;
    let mut kept = BTreeMap::new();
    for dataset in datasets {
        let source: Source = format!("{dataset}@{snapshot}").parse()?;
        if !is_ephemeral(&source) {
            refuse_transaction(dataset)?;
            dataset.refuse_receiving()?;
        }
        session.state.refuse_taken(&source)?;
        kept.insert(session.state.find_live(dataset)?.id, source);
    }
    turn.commit(Some(&mut |commit| {
        for (id, source) in &kept {
            let id = kept_states::snapshot(commit, *id, source)?;
            if !is_ephemeral(source) {
                let entry = entry(OperationKind::Snapshot, id, &[&source.to_string()]);
                operation_log::enter(commit, session.author.as_ref(), entry)?;
            }
        }
        Ok(())
    }))
}

/// See [`marram_store::Store::clone_snapshot`].
pub(crate) fn clone_snapshot(session: &Session, origin: &Source, name: &DatasetName) -> Result<()> {
    let turn = begin_operation(session)?;
    session.state.refuse_taken(&Source::live(name.clone()))?;
    let origin = session.state.find_snapshot(origin)?;
    turn.commit(Some(&mut |commit| {
        let record = kept_states::clone_of(commit, origin.id, name)?;
        let texts = [name.as_str(), &origin.name];
        let entry = entry(OperationKind::Clone, record.id, &texts);
        let entry = OperationRecord { other: origin.id, ..entry };
        commit.add(record)?;
        operation_log::enter(commit, session.author.as_ref(), entry).map(|_| ())
    }))
}

/// See [`marram_store::Store::fork`]. It belongs to the user of the session.
pub(crate) fn fork(
    session: &Session,
    dataset: &DatasetName,
    name: &DatasetName,
    root_object: u64,
) -> Result<()> {
    let turn = begin_operation(session)?;
    refuse_transaction(dataset)?;
    dataset.refuse_receiving()?;
    let live = Source::live(name.clone());
    let is_transaction = name.transaction().is_some();
    match is_transaction {
        true => session.state.refuse_known(&live)?,
        false => session.state.refuse_taken(&live)?,
    }
    let id = session.state.find_live(dataset)?.id;
    let is_taken = |base: &Source| session.state.find(base).is_ok();
    let base = Source::fork_base(dataset, name, &is_taken)?;
    let owner = session.author.as_ref().and_then(|author| author.user).unwrap_or(0);
    turn.commit(Some(&mut |commit| {
        let record = lineage::fork(commit, id, &base, name, (root_object, owner))?;
        let texts = [name.as_str(), dataset.as_str()];
        let entry = entry(OperationKind::Fork, record.id, &texts);
        let entry = OperationRecord { other: record.origin, ..entry };
        commit.add(record)?;
        if is_transaction {
            return Ok(());
        }
        operation_log::enter(commit, session.author.as_ref(), entry).map(|_| ())
    }))
}

/// See [`marram_store::Store::rename`].
pub(crate) fn rename(session: &Session, from: &Source, to: &Source) -> Result<()> {
    check_rename(from, to)?;
    let turn = begin_operation(session)?;
    session.state.refuse_taken(to)?;
    let renamed = session.state.find(from)?;
    refuse_hidden(&renamed)?;
    turn.commit(Some(&mut |commit| {
        trash::give_name(commit, renamed.id, to)?;
        let texts = [renamed.name.as_str(), &to.to_string()];
        let entry = entry(OperationKind::Rename, renamed.id, &texts);
        operation_log::enter(commit, session.author.as_ref(), entry).map(|_| ())
    }))
}

/// See [`marram_store::Lineage::rollback`].
pub(crate) fn rollback(session: &Session, to: &Source, keep: &str) -> Result<()> {
    let kept: Source = format!("{}@{keep}", to.dataset).parse()?;
    let turn = begin_operation(session)?;
    session.state.refuse_taken(&kept)?;
    let target = session.state.find_snapshot(to)?.id;
    let id = session.state.find_live(&to.dataset)?.id;
    turn.commit_alone(&mut |commit| {
        let before = lineage::roll_back(commit, id, target, &kept)?;
        let texts = [to.to_string(), kept.to_string()];
        let entry = entry(OperationKind::Rollback, id, &[texts[0].as_str(), &texts[1]]);
        let entry = OperationRecord { other: target, before, ..entry };
        operation_log::enter(commit, session.author.as_ref(), entry).map(|_| ())
    })
}

/// Refuses what would let something outlive the fork of a transaction.
fn refuse_transaction(dataset: &DatasetName) -> Result<()> {
    match dataset.transaction() {
        Some(_) => Err(Error::Invalid(format!("{dataset} is the fork of a transaction"))),
        None => Ok(()),
    }
}

/// See [`marram_store::Lineage::promote`].
pub(crate) fn promote(session: &Session, name: &DatasetName) -> Result<()> {
    refuse_transaction(name)?;
    let turn = begin_operation(session)?;
    let id = lineage::refuse_promotion(&session.state, name)?;
    let (other, whose) = lineage::holder_of_origin(&session.state, id)?;
    turn.commit(Some(&mut |commit| {
        let detail = lineage::promote(commit, id)?;
        let entry = entry(OperationKind::Promote, id, &[name.as_str(), &whose]);
        let entry = OperationRecord { other, detail, ..entry };
        operation_log::enter(commit, session.author.as_ref(), entry).map(|_| ())
    }))
}
