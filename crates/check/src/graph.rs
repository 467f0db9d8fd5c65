//! Datasets, snapshots and clones, and the order in which they follow each other.
//!
//! The snapshots of a dataset form a line from the oldest to the dataset itself, linked in both
//! directions. Other lines begin as a snapshot of it: those of clones, and of the dataset itself
//! where it was rolled back. A promoted clone has taken over the beginning of another line. These
//! links and the groups beside them alone decide which of them owns a block.

use crate::checker::Checker;
use crate::finding::{FindingKind, Place};
use crate::pool::{FoundDataset, PoolTree, ReclaimList};
use marram_format::dataset::{
    DatasetRecord, DatasetState, HOLD_PROPERTY_PREFIX, OWNER_PROPERTY, ROOT_OBJECT_PROPERTY,
};
use marram_format::group::Group;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

const NAME_BYTES_MAX: usize = 200;

/// The records of a pool.
type Datasets = BTreeMap<u64, FoundDataset>;

/// Checks the links, names and numbers of all records.
pub(crate) fn check(checker: &mut Checker<'_>, pool: &PoolTree, next_dataset: u64) {
    let datasets = &pool.datasets;
    let mut names = BTreeSet::new();
    for FoundDataset { record, .. } in datasets.values() {
        if record.state != DatasetState::Destroying {
            check_name(checker, datasets, record, &mut names);
            check_links(checker, datasets, record);
            check_group(checker, datasets, record);
            check_properties(checker, record);
            if record.state == DatasetState::Live {
                check_origin(checker, datasets, record);
            }
        }
        if record.id.max(record.dead_list) >= next_dataset {
            let (id, list) = (record.id, record.dead_list);
            let detail = format!("dataset {id} with dead list {list}; {next_dataset} comes next");
            let place = Place::of(Some(&record.name));
            checker.report.report(FindingKind::NextDataset, place, detail);
        }
    }
    if let Some((list, _)) = pool.reclaims.last_key_value().filter(|it| *it.0 >= next_dataset) {
        let detail = format!("dead list {list} is in reclaim; {next_dataset} comes next");
        checker.report.report(FindingKind::NextDataset, Place::pool(), detail);
    }
    check_clones(checker, datasets);
    check_dead_lists(checker, pool);
}

/// The dataset or snapshot that had the blocks before this one.
pub(crate) fn predecessor(record: &DatasetRecord) -> u64 {
    if record.previous != 0 { record.previous } else { record.origin }
}

/// All records, each after the one that it shares blocks with.
pub(crate) fn in_order(datasets: &Datasets) -> Vec<u64> {
    let mut order = Vec::with_capacity(datasets.len());
    let mut seen = BTreeSet::new();
    for id in datasets.keys() {
        let mut way = Vec::new();
        let mut at = *id;
        while let Some(found) = datasets.get(&at) {
            if !seen.insert(at) {
                break;
            }
            way.push(at);
            at = predecessor(&found.record);
        }
        order.extend(way.into_iter().rev());
    }
    order
}

fn is_name(name: &str, slash_allowed: bool) -> bool {
    let allowed = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte) || (slash_allowed && byte == b'/')
    };
    let edge = |byte: Option<&u8>| matches!(byte, None | Some(b'/' | b'.'));
    let bytes = name.as_bytes();
    bytes.len() <= NAME_BYTES_MAX
        && bytes.iter().all(|byte| allowed(*byte))
        && !edge(bytes.first())
        && !edge(bytes.last())
        && !name.contains("//")
}

fn check_name<'d>(
    checker: &mut Checker<'_>,
    datasets: &Datasets,
    record: &'d DatasetRecord,
    names: &mut BTreeSet<&'d str>,
) {
    let mut report = |detail: String| {
        let place = Place::of(Some(&record.name));
        checker.report.report(FindingKind::DatasetName, place, detail);
    };
    if !names.insert(&record.name) {
        report(format!("{} has the name of another one", record.id));
    }
    let good = match (record.state, record.name.split_once('@')) {
        (DatasetState::Snapshot, Some((dataset, snapshot))) => {
            let parent = datasets.get(&record.parent);
            is_name(snapshot, false) && parent.is_none_or(|parent| parent.record.name == dataset)
        }
        (DatasetState::Snapshot, None) => false,
        (_, None) => is_name(&record.name, true),
        (_, Some(_)) => false,
    };
    if !good {
        report(format!("{:?} is not the name of what it is", record.name));
    }
}

/// Whether a snapshot is an older one than another; those of one and the same state may have one
/// group.
fn is_older(before: &DatasetRecord, after: &DatasetRecord) -> bool {
    match before.created_group.cmp(&after.created_group) {
        Ordering::Less => true,
        Ordering::Equal => before.root == after.root,
        Ordering::Greater => false,
    }
}

fn check_links(checker: &mut Checker<'_>, datasets: &Datasets, record: &DatasetRecord) {
    let mut report = |detail: String| {
        let place = Place::of(Some(&record.name));
        checker.report.report(FindingKind::DatasetLink, place, detail);
    };
    let found = |id: u64| datasets.get(&id).map(|found| &found.record);
    let snapshot = |id: u64| found(id).filter(|record| record.state == DatasetState::Snapshot);
    let is_snapshot = record.state == DatasetState::Snapshot;
    let owner = if is_snapshot { record.parent } else { record.id };
    if record.previous != 0 {
        match snapshot(record.previous) {
            None => report(format!("there is no snapshot {} before it", record.previous)),
            Some(before) if !goes_on(checker.foreign_below, before, record, owner) => {
                report(format!("{} is before it, but does not say so", before.name));
            }
            Some(before) if is_snapshot && !is_older(before, record) => {
                report(format!("{} is before it, but was taken later", before.name));
            }
            Some(_) => {}
        }
    }
    let begins = record.previous == 0 || !is_snapshot;
    if begins && record.origin != 0 && snapshot(record.origin).is_none() {
        report(format!("there is no snapshot {} that it began as", record.origin));
    }
    if !is_snapshot {
        if record.next != 0 || record.parent != 0 {
            report("it is no snapshot, but linked as one".to_owned());
        }
        return;
    }
    if found(record.parent).is_none_or(|parent| parent.state != DatasetState::Live) {
        report(format!("there is no dataset {} of which it was taken", record.parent));
    }
    let follows = |next: &DatasetRecord| {
        next.previous == record.id && [next.id, next.parent].contains(&record.parent)
    };
    match found(record.next) {
        None if record.next == 0 && checker.foreign_below > 0 => {}
        None => report(format!("there is no dataset {} after it", record.next)),
        Some(next) if !follows(next) => {
            report(format!("{} is after it, but does not say so", next.name));
        }
        Some(_) => {}
    }
}

/// Whether a record can have that snapshot before it: it goes on from it, or began as it.
fn goes_on(foreign_below: u64, before: &DatasetRecord, record: &DatasetRecord, owner: u64) -> bool {
    let is_next = before.next == record.id && before.parent == owner;
    let is_branch = foreign_below > 0 && before.next != record.id;
    is_next || is_branch
}

/// A dataset's origin is where following what is before it first leads out of the dataset.
fn check_origin(checker: &mut Checker<'_>, datasets: &Datasets, record: &DatasetRecord) {
    let mut at = record;
    let mut left = datasets.len();
    while let Some(before) = datasets.get(&predecessor(at)).map(|found| &found.record)
        && before.parent == record.id
        && left > 0
    {
        at = before;
        left -= 1;
    }
    let expected = predecessor(at);
    if left > 0 && datasets.contains_key(&expected) && record.origin != expected {
        let place = Place::of(Some(&record.name));
        let detail = format!("it leads back to {expected}, but says {}", record.origin);
        checker.report.report(FindingKind::DatasetLink, place, detail);
    }
}

/// What the pool itself keeps among the properties.
fn check_properties(checker: &mut Checker<'_>, record: &DatasetRecord) {
    let mut report = |detail: String| {
        let place = Place::of(Some(&record.name));
        checker.report.report(FindingKind::DatasetProperty, place, detail);
    };
    let mut holds = 0;
    for (name, value) in record.properties.iter().filter(|(name, _)| name.starts_with('.')) {
        holds += u32::from(name.starts_with(HOLD_PROPERTY_PREFIX));
        if name == ROOT_OBJECT_PROPERTY && value.parse::<u64>().is_err() {
            report(format!("its root is object {value:?}"));
        }
        if name == OWNER_PROPERTY && value.parse::<u32>().is_err() {
            report(format!("its owner is user {value:?}"));
        }
    }
    if holds != record.holds {
        report(format!("{} holds instead of {holds}", record.holds));
    }
}

fn check_group(checker: &mut Checker<'_>, datasets: &Datasets, record: &DatasetRecord) {
    let before = datasets.get(&predecessor(record));
    let expected = before.map_or(Group(0), |before| before.record.created_group);
    let mut report = |detail: String| {
        let place = Place::of(Some(&record.name));
        checker.report.report(FindingKind::DatasetGroup, place, detail);
    };
    if record.previous_group != expected {
        report(format!("group {} instead of {expected}", record.previous_group));
    }
    let root = record.root.as_ref().map_or(Group(0), |root| root.birth);
    if record.state == DatasetState::Snapshot && root > record.created_group {
        let taken = record.created_group;
        report(format!("it was taken in group {taken}, but has a root of group {root}"));
    }
}

fn check_clones(checker: &mut Checker<'_>, datasets: &Datasets) {
    let mut clones: BTreeMap<u64, u32> = BTreeMap::new();
    for FoundDataset { record, .. } in datasets.values() {
        let before = datasets.get(&predecessor(record));
        if let Some(FoundDataset { record: before, .. }) = before
            && record.state != DatasetState::Destroying
            && before.next != record.id
            && (record.previous == 0 || checker.foreign_below > 0)
        {
            *clones.entry(before.id).or_default() += 1;
        }
    }
    for FoundDataset { record, .. } in datasets.values() {
        let count = clones.get(&record.id).copied().unwrap_or_default();
        if record.state != DatasetState::Destroying && count != record.clones {
            let place = Place::of(Some(&record.name));
            let detail = format!("{} instead of {count}", record.clones);
            checker.report.report(FindingKind::DatasetClones, place, detail);
        }
    }
}

fn check_dead_lists(checker: &mut Checker<'_>, pool: &PoolTree) {
    let mut owners: BTreeMap<u64, &DatasetRecord> = BTreeMap::new();
    for FoundDataset { record, .. } in pool.datasets.values() {
        let list = pool.dead_lists.get(&record.dead_list);
        let place = Place::of(Some(&record.name));
        if let Some(other) = owners.insert(record.dead_list, record) {
            let detail = format!("{} has the same dead list", other.name);
            checker.report.report(FindingKind::DeadContent, place.clone(), detail);
        }
        let found = list.map_or(0, |list| list.blocks.grains);
        if found != record.dead_grains {
            let detail = format!("{} instead of {found}", record.dead_grains);
            checker.report.report(FindingKind::DeadGrains, place.clone(), detail);
        }
        let youngest = list.map_or(Group(0), |list| list.youngest);
        if youngest > record.previous_group {
            let (before, detail) = (record.previous_group, "is on the list, younger than");
            let detail = format!("a block of group {youngest} {detail} group {before}");
            checker.report.report(FindingKind::DeadContent, place, detail);
        }
    }
    for list in pool.dead_lists.keys().filter(|list| !owners.contains_key(list)) {
        let detail = format!("list {list}");
        checker.report.report(FindingKind::DeadUnowned, Place::pool(), detail);
    }
    check_reclaims(checker, pool, &owners);
}

/// A list in reclaim belongs to no dataset, and leads to the list of a dataset or snapshot. What
/// was born after the group of the snapshot before that one is free.
fn check_reclaims(
    checker: &mut Checker<'_>,
    pool: &PoolTree,
    owners: &BTreeMap<u64, &DatasetRecord>,
) {
    for (list, ReclaimList { record: reclaim, .. }) in &pool.reclaims {
        let mut report = |detail: String| {
            let detail = format!("list {list} {detail}");
            checker.report.report(FindingKind::ReclaimList, Place::pool(), detail);
        };
        if let Some(owner) = owners.get(list) {
            report(format!("is that of {} too", owner.name));
        }
        if reclaim.destination == 0 {
            continue;
        }
        match owners.get(&reclaim.destination) {
            Some(heir) if heir.state == DatasetState::Destroying => {
                report(format!("leads to {}, which is being destroyed", heir.name));
            }
            Some(heir) if heir.previous_group != reclaim.threshold => report(format!(
                "gives back what is younger than group {}; {} has what is younger than {}",
                reclaim.threshold, heir.name, heir.previous_group
            )),
            Some(_) => {}
            None => report(format!("leads to list {}, which is nobody's", reclaim.destination)),
        }
    }
}
