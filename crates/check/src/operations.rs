//! The log of operations, and what is kept for an undo.
//!
//! What is kept is found by its name alone, and let go by its entry alone. If the two do not agree,
//! something stays out of sight for good, or an undo promises what is not there.

use crate::checker::Checker;
use crate::finding::{FindingKind, Place};
use crate::pool::PoolTree;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::{
    OPERATIONS_KEPT_MAX, OperationKind, OperationRecord, PREPARED_TEXT, STATE_TEXT,
    former_base_entry, limit_of, trash_entry,
};
use marram_format::record::OwnerId;
use marram_format::space::operation_key;
use marram_format::superblock::Superblock;
use marram_format::transaction::TransactionState;
use marram_format::version::feature;
use std::collections::BTreeSet;

/// Checks the entries, and that what they keep is there and nothing else is kept.
pub(crate) fn check(checker: &mut Checker<'_>, pool: &PoolTree, superblock: &Superblock) {
    let needed = pool.operations.values().fold(0, |all, entry| all | entry.kind.feature());
    let untold = needed & !superblock.features_read_compatible;
    if untold != 0 {
        let untold = feature::read_compatible_names(untold);
        let detail = format!("there are entries, but the superblock does not tell of {untold}");
        report(checker, None, detail);
    }
    let mut before = None;
    for (number, entry) in &pool.operations {
        if before.is_some_and(|before: u64| before.checked_add(1) != Some(*number)) {
            report(checker, Some(*number), "the entry before it is not there".to_owned());
        }
        before = Some(*number);
        check_entry(checker, pool, (*number, entry), superblock);
    }
    let count = pool.operations.len() as u64;
    if count > OPERATIONS_KEPT_MAX {
        report(checker, None, format!("{count} entries, and {OPERATIONS_KEPT_MAX} are the most"));
    }
    check_transactions(checker, pool, superblock);
    for found in pool.datasets.values() {
        check_trash(checker, pool, &found.record);
        check_former_base(checker, pool, &found.record);
    }
}

/// A transaction over two pools that is prepared has entries that say so, and a way back; no other
/// entry says so.
fn check_transactions(checker: &mut Checker<'_>, pool: &PoolTree, superblock: &Superblock) {
    let is_noted = superblock.features_incompatible & feature::TWO_POOLS != 0;
    if is_noted == pool.transactions.is_empty() {
        let detail =
            "the superblock does not tell of the transactions over two pools that there are";
        report(checker, None, detail.to_owned());
    }
    let mut prepared = BTreeSet::new();
    for (first, record) in &pool.transactions {
        if record.state != TransactionState::Prepared {
            continue;
        }
        for (at, part) in (0..).zip(&record.datasets) {
            let number = first.saturating_add(at);
            let is_before = |entry: &&OperationRecord| {
                entry.subject == part.dataset && entry.before == part.before && part.before != 0
            };
            let before = pool.datasets.get(&part.before).map(|found| &found.record);
            let is_own = before.is_some_and(|before| {
                before.state == DatasetState::Snapshot && before.parent == part.dataset
            });
            if !is_own || pool.operations.get(&number).filter(is_before).is_none() {
                let detail = format!("what transaction {first} has prepared has no way back");
                report(checker, Some(number), detail);
            }
            prepared.insert(number);
        }
    }
    for (number, entry) in &pool.operations {
        let says_so = entry.text(STATE_TEXT) == PREPARED_TEXT;
        if says_so != prepared.contains(number) {
            let detail = "it and the records of transactions do not agree on what is prepared";
            report(checker, Some(*number), detail.to_owned());
        }
    }
}

fn check_entry(
    checker: &mut Checker<'_>,
    pool: &PoolTree,
    (number, entry): (u64, &OperationRecord),
    superblock: &Superblock,
) {
    if entry.undoes >= number {
        report(
            checker,
            Some(number),
            format!("it took back {}, which is no earlier", entry.undoes),
        );
    }
    if entry.group > superblock.group {
        report(checker, Some(number), format!("it is of group {}, which is to come", entry.group));
    }
    if let Some(detail) = contradiction(entry) {
        report(checker, Some(number), detail);
    }
    if entry.kept_until_seconds == 0 {
        return;
    }
    let kept: Vec<u64> = match entry.kind {
        OperationKind::Merge => {
            [entry.before, entry.after].into_iter().filter(|id| *id != 0).collect()
        }
        _ => vec![entry.subject],
    };
    for id in kept {
        let name = pool.datasets.get(&id).map(|found| found.record.name.as_str());
        if name.and_then(trash_entry) != Some(number) {
            let name = name.unwrap_or("nothing");
            report(checker, Some(number), format!("it keeps {id}, which is {name}"));
        }
    }
}

/// What an undo of a limit could not make sense of.
fn contradiction(entry: &OperationRecord) -> Option<String> {
    if entry.kind != OperationKind::Limit {
        return None;
    }
    if OwnerId::from_offset(entry.detail).is_none() {
        return Some(format!("{:#x} is no owner", entry.detail));
    }
    let wrong = [1, 2].into_iter().find(|text| limit_of(entry.text(*text)).is_none())?;
    Some(format!("{:?} is no limit", entry.text(wrong)))
}

/// What has the name of something that is kept is kept by the entry with that number.
fn check_trash(checker: &mut Checker<'_>, pool: &PoolTree, record: &DatasetRecord) {
    let Some(number) =
        trash_entry(&record.name).filter(|_| record.state != DatasetState::Destroying)
    else {
        return;
    };
    let keeps = pool.operations.get(&number).is_some_and(|entry| {
        let ids = [entry.subject, entry.before, entry.after];
        entry.kept_until_seconds != 0 && ids.contains(&record.id)
    });
    if !keeps {
        let place = Place::of(Some(&record.name));
        let detail = format!("entry {number} does not keep it");
        checker.report.report(FindingKind::OperationLog, place, detail);
    }
}

/// What was the base of a fork is kept for a merge that can be taken back.
fn check_former_base(checker: &mut Checker<'_>, pool: &PoolTree, record: &DatasetRecord) {
    let is_kept = record.state == DatasetState::Snapshot;
    let Some(number) = former_base_entry(&record.name).filter(|_| is_kept) else { return };
    let keeps = pool
        .operations
        .get(&number)
        .is_some_and(|entry| entry.kind == OperationKind::Merge && entry.kept_until_seconds != 0);
    if !keeps {
        let place = Place::of(Some(&record.name));
        let detail = format!("entry {number} is no merge that keeps it");
        checker.report.report(FindingKind::OperationLog, place, detail);
    }
}

fn report(checker: &mut Checker<'_>, number: Option<u64>, detail: String) {
    let place = match number {
        Some(number) => Place::pool().key(operation_key(number)),
        None => Place::pool(),
    };
    let detail = number.map_or(detail.clone(), |number| format!("entry {number}: {detail}"));
    checker.report.report(FindingKind::OperationLog, place, detail);
}
