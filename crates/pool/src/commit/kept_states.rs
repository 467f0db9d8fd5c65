//! States that a commit keeps: a snapshot, and a dataset that begins as one.
//!
//! Both are changes of records: no block is touched.

use crate::commit::draft::Commit;
use crate::memtable::settings::RESERVATION;
use marram_format::dataset::{
    DatasetRecord, DatasetState, HOLD_PROPERTY_PREFIX, OWNER_PROPERTY, ROOT_OBJECT_PROPERTY,
};
use marram_format::group::Group;
use marram_store::{DatasetName, Result, Source};

/// The snapshot takes over the dataset's root and dead list; the dataset goes on with an
/// empty dead list, and owns only what is born after this group. Returns the snapshot's id.
pub(crate) fn snapshot(commit: &mut Commit<'_>, dataset: u64, source: &Source) -> Result<u64> {
    snapshot_of(commit, dataset, source, commit.group)
}

/// The same, of the state that the last commit has left, as one of a group that is older than
/// all that this commit writes: so many `groups` ago, since when the dataset has not changed.
/// Before this commit takes anything into the dataset.
pub(crate) fn snapshot_before(
    commit: &mut Commit<'_>,
    dataset: u64,
    source: &Source,
    groups: u64,
) -> Result<u64> {
    snapshot_of(commit, dataset, source, Group(commit.group.0.saturating_sub(groups)))
}

fn snapshot_of(
    commit: &mut Commit<'_>,
    dataset: u64,
    source: &Source,
    group: Group,
) -> Result<u64> {
    let kept = commit.new_record(&source.to_string(), DatasetState::Snapshot);
    let kept = DatasetRecord { created_group: group, ..kept };
    let id = kept.id;
    keep_as(commit, dataset, kept)?;
    Ok(id)
}

/// A new record takes over the dataset's root and dead list, as a snapshot of its group.
pub(super) fn keep_as(
    commit: &mut Commit<'_>,
    dataset: u64,
    mut kept: DatasetRecord,
) -> Result<()> {
    let mut live = commit.record(dataset)?;
    kept.parent = live.id;
    kept.origin = live.origin;
    kept.previous = live.previous;
    kept.next = live.id;
    kept.previous_group = live.previous_group;
    kept.root = live.root.clone();
    kept.referenced_grains = live.referenced_grains;
    kept.properties = live.properties.clone();
    std::mem::swap(&mut kept.dead_list, &mut live.dead_list);
    kept.dead_grains = std::mem::take(&mut live.dead_grains);
    go_on(commit, live.previous, live.id, kept.id)?;
    live.previous = kept.id;
    live.previous_group = kept.created_group;
    commit.keep(live)?;
    commit.add(kept)
}

/// A dataset that begins as a snapshot.
pub(crate) fn clone_of(
    commit: &mut Commit<'_>,
    origin: u64,
    name: &DatasetName,
) -> Result<DatasetRecord> {
    let record = commit.new_record(name.as_str(), DatasetState::Live);
    let properties = commit.record(origin)?.properties;
    begin_as(commit, origin, DatasetRecord { properties: handed_on(&properties), ..record })
}

/// What of the properties of a state one has that begins as it.
pub(crate) fn handed_on(properties: &[(String, String)]) -> Vec<(String, String)> {
    let is_own = |name: &str| {
        name == RESERVATION || name == OWNER_PROPERTY || name.starts_with(HOLD_PROPERTY_PREFIX)
    };
    properties.iter().filter(|(name, _)| !is_own(name)).cloned().collect()
}

/// What those of a fork are: its root and its owner are its own.
pub(crate) fn properties_of_fork(
    properties: &[(String, String)],
    (root_object, owner): (u64, u32),
) -> Vec<(String, String)> {
    let mut properties = handed_on(properties);
    properties.retain(|(name, _)| name != ROOT_OBJECT_PROPERTY);
    properties.push((ROOT_OBJECT_PROPERTY.to_owned(), root_object.to_string()));
    if owner != 0 {
        properties.push((OWNER_PROPERTY.to_owned(), owner.to_string()));
    }
    properties.sort();
    properties
}

/// A new record has the state of a snapshot from now on; it is still to be added.
pub(super) fn begin_as(
    commit: &mut Commit<'_>,
    origin: u64,
    mut record: DatasetRecord,
) -> Result<DatasetRecord> {
    let mut origin = commit.record(origin)?;
    record.origin = origin.id;
    record.previous_group = origin.created_group;
    record.root = origin.root.clone();
    record.referenced_grains = origin.referenced_grains;
    origin.clones += 1;
    commit.keep(origin)?;
    Ok(record)
}

/// What went on from the snapshot `parent` to `from` goes on to `to` (0: to nothing).
pub(crate) fn go_on(commit: &mut Commit<'_>, parent: u64, from: u64, to: u64) -> Result<()> {
    if parent != 0 {
        let mut before = commit.record(parent)?;
        if before.next == from {
            before.next = to;
            commit.keep(before)?;
        }
    }
    Ok(())
}
