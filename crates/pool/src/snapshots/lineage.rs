//! Lines of snapshots: kept, begun anew, gone back to, handed over.
//!
//! All of it is a change of records: no block is touched, so it takes the same time whatever there
//! is. `docs/decisions/0016-owners-of-a-block.md` has the reasons.

use crate::commit::draft::Commit;
use crate::commit::draft::Publication;
use crate::commit::kept_states::{clone_of, go_on, properties_of_fork, snapshot};
use crate::snapshots::lineage;
use crate::snapshots::merge_bases;
use crate::state::State;
use crate::state::records::parent_of;
use crate::state::records::root_of;
use marram_format::dataset::DatasetRecord;
use marram_format::version::feature;
use marram_store::{DatasetName, Error, Result, Source};

/// The name of a snapshot that goes over to another dataset.
pub(crate) fn handed_over(snapshot: &str, dataset: &str) -> Result<String> {
    match snapshot.split_once('@') {
        Some((_, name)) => Ok(format!("{dataset}@{name}")),
        None => Err(Error::Invalid(format!("{snapshot} is no snapshot"))),
    }
}

/// Refuses to promote what is no clone, or has names that are taken; returns the clone's id.
pub(crate) fn refuse_promotion(pool: &State, name: &DatasetName) -> Result<u64> {
    let live = pool.find_live(name)?;
    let records = pool.records.read();
    let Some(origin) = records.get(live.origin) else {
        return Err(Error::Invalid(format!("{name} is no clone: it began as no snapshot")));
    };
    let mut at = Some(origin);
    while let Some(taken) = at.filter(|taken| taken.parent == origin.parent) {
        let renamed = lineage::handed_over(&taken.name, &live.name)?;
        renamed.parse::<Source>()?;
        if records.named(&renamed).is_some() {
            return Err(Error::DatasetExists(renamed));
        }
        at = records.get(parent_of(taken));
    }
    Ok(live.id)
}

/// The dataset whose snapshot a clone began as: its id and name.
pub(crate) fn holder_of_origin(pool: &State, clone: u64) -> Result<(u64, String)> {
    let records = pool.records.read();
    let origin = records.get(clone).and_then(|clone| records.get(clone.origin));
    let holder = origin.and_then(|origin| records.get(origin.parent));
    let holder = holder.ok_or_else(|| Error::NoDataset(format!("number {clone}")))?;
    Ok((holder.id, holder.name.clone()))
}

/// A clone of a snapshot that is taken now, with another root of what it shows, that belongs to
/// the user `owner`; it is still to be added.
pub(crate) fn fork(
    commit: &mut Commit<'_>,
    dataset: u64,
    base: &Source,
    name: &DatasetName,
    (root_object, owner): (u64, u32),
) -> Result<DatasetRecord> {
    let base = snapshot(commit, dataset, base)?;
    let mut record = clone_of(commit, base, name)?;
    let properties = commit.record(base)?.properties;
    record.properties = properties_of_fork(&properties, (root_object, owner));
    commit.set_feature(feature::OWNERS);
    Ok(record)
}

/// The dataset's state becomes a snapshot, the last of its line; the dataset goes on from
/// another snapshot of its own. Returns the id of the one with the state before.
pub(crate) fn roll_back(
    commit: &mut Commit<'_>,
    dataset: u64,
    to: u64,
    kept: &Source,
) -> Result<u64> {
    let target = commit.record(to)?;
    merge_bases::forget_later(commit, dataset, &target)?;
    let before = snapshot(commit, dataset, kept)?;
    leave_line(commit, dataset, to)?;
    Ok(before)
}

/// The dataset goes on from another snapshot of its own; its newest one is the last of its line
/// from then on. The dataset must be as that one is: nothing else has that state.
pub(crate) fn leave_line(commit: &mut Commit<'_>, dataset: u64, to: u64) -> Result<()> {
    let target = commit.record(to)?;
    if target.parent != dataset || dataset == 0 {
        let what = format!("{} is no snapshot of dataset {dataset}", target.name);
        return Err(Error::Invalid(what));
    }
    let newest = commit.record(dataset)?.previous;
    go_on(commit, newest, dataset, 0)?;
    let mut target = commit.record(to)?;
    target.clones += u32::from(target.next != 0);
    target.next = dataset;
    let mut live = commit.record(dataset)?;
    live.previous = target.id;
    live.previous_group = target.created_group;
    // Lines of a dataset that has handed snapshots over may lead back to different ones.
    live.origin = leads_back_to(commit, &target)?;
    live.root = target.root.clone();
    live.referenced_grains = target.referenced_grains;
    let root = root_of(&live);
    commit.publications.push(Publication::Root(dataset, root));
    commit.keep(target)?;
    commit.set_feature(feature::OWNERS);
    commit.keep(live)
}

/// A clone takes over the snapshot that it began as, and those of the same dataset before it.
/// What went on from that snapshot began as it from now on, and the clone goes on from it.
/// Returns how many it took over.
pub(crate) fn promote(commit: &mut Commit<'_>, promoted: u64) -> Result<u64> {
    let mut live = commit.record(promoted)?;
    let origin = commit.record(live.origin)?;
    let before = origin.parent;
    let mut first = live.clone();
    while parent_of(&first) != origin.id {
        first = commit.record(parent_of(&first))?;
    }
    let mut last = origin;
    let mut child = first.id;
    if first.id == live.id {
        live.previous = last.id;
    } else {
        first.previous = last.id;
        commit.keep(first)?;
    }
    let mut taken = vec![last.id];
    loop {
        let above = parent_of(&last);
        if last.next != child {
            // One line less began as it; the one that went on from it, if any, is one more.
            last.clones = last.clones.saturating_sub(u32::from(last.next == 0));
            last.next = child;
        }
        child = last.id;
        last.name = handed_over(&last.name, &live.name)?;
        last.parent = live.id;
        commit.keep(last)?;
        match above {
            0 => break,
            _ => last = commit.record(above)?,
        }
        if last.parent != before {
            break;
        }
        taken.push(last.id);
    }
    live.origin = match taken.last() {
        Some(top) => parent_of(&commit.record(*top)?),
        None => 0,
    };
    commit.keep(live)?;
    commit.set_feature(feature::OWNERS);
    lead_back(commit, before, &taken)?;
    Ok(taken.len() as u64)
}

/// The snapshot of another dataset that the line of a snapshot leads back to; 0: none.
fn leads_back_to(commit: &Commit<'_>, snapshot: &DatasetRecord) -> Result<u64> {
    let mut at = snapshot.clone();
    while parent_of(&at) != 0 {
        at = commit.record(parent_of(&at))?;
        if at.parent != snapshot.parent {
            return Ok(at.id);
        }
    }
    Ok(0)
}

/// The dataset that has handed snapshots over leads back to the newest of them, if to any.
fn lead_back(commit: &mut Commit<'_>, dataset: u64, taken: &[u64]) -> Result<()> {
    let mut live = commit.record(dataset)?;
    let mut at = live.clone();
    while parent_of(&at) != 0 {
        at = commit.record(parent_of(&at))?;
        if taken.contains(&at.id) {
            live.origin = at.id;
            return commit.keep(live);
        }
        if at.parent != dataset {
            break;
        }
    }
    Ok(())
}
