//! Operations that are the same on every store, and their answers.

use super::dataset_kinds::kind_of;
use super::places;
use super::posix::make_root_directory;
use crate::control::protocol::{Answer, DatasetRow, DestructionReport, HolderRow, PropertyRow};
use crate::error::{Error, Result};
use marram_history::Branch;
use marram_store::{
    DatasetKind, DatasetName, DatasetReport, Holder, Properties, PropertySource, Source, Store,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Between the first and the last snapshot of a range.
const RANGE: &str = "..";

/// Makes an empty dataset. One that gets no first directory, as in a full store, was not made.
pub(crate) fn create_dataset(
    store: &dyn Store,
    name: &DatasetName,
    properties: &BTreeMap<String, String>,
) -> Result<()> {
    store.create(name, &Properties(properties.clone()))?;
    make_root_directory(store, name).inspect_err(|_| {
        let _stays_empty_at_worst = store.destroy(&Source::live(name.clone()), false);
    })
}

/// Does something and tells how long it took.
pub(crate) fn timed(work: impl FnOnce() -> Result<()>) -> Result<Answer> {
    let began = Instant::now();
    work()?;
    let engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(Answer::Timed { engine_nanoseconds })
}

/// Lets a clone take over the snapshots that it began as, and tells how long that took.
pub(crate) fn promote(store: &dyn Store, clone: &DatasetName) -> Result<Answer> {
    timed(|| Ok(store.promote(clone)?))
}

/// The name of a fork that a user makes.
pub(crate) fn fork_name(text: &str) -> Result<DatasetName> {
    let name: DatasetName = text.parse()?;
    match name.transaction() {
        None => Ok(name),
        Some(_) => Err(Error::usage(format!("{name}: the home gives such names itself"))
            .hint("take one that does not begin with tx:")),
    }
}

/// Why there is no fork of this name; if the name is taken, by what.
pub(crate) fn not_forked(
    store: &dyn Store,
    name: &DatasetName,
    error: marram_store::Error,
) -> Error {
    let taken = matches!(error, marram_store::Error::DatasetExists(_));
    let found = store.report(&Source::live(name.clone())).ok().filter(|_| taken);
    let Some(found) = found else { return error.into() };
    let kind = kind_of(&found);
    let shown = if kind == "fork" { "forks" } else { "list" };
    Error::failed(format!("a {kind} named {name} exists"))
        .hint(format!("give the fork another name; `marram {shown} TARGET` shows which are taken"))
}

/// Datasets and snapshots, as a list shows them.
pub(crate) fn dataset_rows(store: &dyn Store, holders: &[Holder]) -> Vec<DatasetRow> {
    let all: Vec<DatasetReport> = holders.iter().map(|holder| holder.report.clone()).collect();
    holders.iter().map(|holder| dataset_row(store, &all, holder)).collect()
}

fn dataset_row(store: &dyn Store, all: &[DatasetReport], holder: &Holder) -> DatasetRow {
    let report = &holder.report;
    let parent = report.fork_base().map(|origin| Source::live(origin.dataset.clone()));
    DatasetRow {
        base: Branch::among(all, report).map(|branch| branch.base.to_string()),
        name: report.source.to_string(),
        kind: kind_of(report).to_owned(),
        origin: report.origin.as_ref().map(ToString::to_string),
        root: report.root_object,
        directory: parent.and_then(|of| places::directory(store, &of, report.root_object)),
        holds: report.holds.clone(),
        internal: report.source.is_own() && !report.source.dataset.is_partial(),
        created_seconds: report.created_seconds,
        referenced_bytes: report.referenced_bytes,
        unique_bytes: holder.unique_bytes,
    }
}

/// A dataset or snapshot, and the space that it holds.
pub(crate) fn holder_row(holder: &Holder) -> HolderRow {
    HolderRow {
        name: holder.report.source.to_string(),
        kind: kind_of(&holder.report).to_owned(),
        referenced_bytes: holder.report.referenced_bytes,
        added_bytes: holder.added_bytes,
        unique_bytes: holder.unique_bytes,
        shared_bytes: holder.report.referenced_bytes.saturating_sub(holder.unique_bytes),
    }
}

/// What destroying some together would give back.
///
/// # Errors
/// One that is not there, or whose destruction the store refuses.
pub(crate) fn would_give_back(store: &dyn Store, sources: &[Source]) -> Result<Answer> {
    let destruction = store.destroy_together(sources, true)?;
    Ok(Answer::Destruction(DestructionReport {
        sources: destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: destruction.freed_bytes,
        dry_run: true,
    }))
}

/// The properties of a dataset.
///
/// # Errors
/// There is no such dataset.
pub(crate) fn get(store: &dyn Store, dataset: &DatasetName) -> Result<Answer> {
    let row = |(property, (value, source)): (String, (String, PropertySource))| PropertyRow {
        dataset: dataset.to_string(),
        property,
        value,
        source: match source {
            PropertySource::Default => "default".to_owned(),
            PropertySource::Local => "local".to_owned(),
        },
    };
    Ok(Answer::Properties(store.properties(dataset)?.into_iter().map(row).collect()))
}

/// A dataset and all below it: those whose names begin with its own and a slash, and of the root
/// dataset all. Forks are no datasets below another.
pub(crate) fn below(reports: &[DatasetReport], dataset: &DatasetName) -> Vec<DatasetName> {
    let prefix = format!("{dataset}/");
    let is_below = |report: &&DatasetReport| {
        let (source, is_live) = (&report.source, report.kind != DatasetKind::Snapshot);
        let is_fork = report.is_fork;
        let name = source.dataset.as_str();
        let is_under = *dataset == DatasetName::root() || name.starts_with(&prefix);
        is_live && (source.dataset == *dataset || is_under && !is_fork && !source.is_own())
    };
    reports.iter().filter(is_below).map(|report| report.source.dataset.clone()).collect()
}

/// Takes a snapshot of a dataset and of all below it.
///
/// # Errors
/// No such dataset; one has a snapshot of that name. Then there is none of any.
pub(crate) fn snapshot_below(
    store: &dyn Store,
    dataset: &DatasetName,
    name: &str,
) -> Result<Answer> {
    let began = Instant::now();
    store.report(&Source::live(dataset.clone()))?;
    let datasets = below(&store.list()?, dataset);
    store.snapshot_together(&datasets, name)?;
    let engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let names = datasets.iter().map(|dataset| format!("{dataset}@{name}")).collect();
    Ok(Answer::Snapshots { names, engine_nanoseconds })
}

/// What is named, each once: of a range all its snapshots.
///
/// # Errors
/// A name that is none, or the end of a range that is not there.
pub(crate) fn named(store: &dyn Store, sources: &[String]) -> Result<Vec<Source>> {
    let mut named = BTreeSet::new();
    for source in sources {
        named.extend(range(store, source)?);
    }
    Ok(named.into_iter().collect())
}

/// The snapshots of a range, both ends included, by age; anything else is itself.
fn range(store: &dyn Store, text: &str) -> Result<Vec<Source>> {
    let source: Source = text.parse()?;
    let ends = source.snapshot.as_deref().and_then(|name| name.split_once(RANGE));
    let Some((first, last)) = ends.filter(|_| store.report(&source).is_err()) else {
        return Ok(vec![source]);
    };
    let number = |name: &str| -> Result<u64> {
        let end: Source = format!("{}@{name}", source.dataset).parse()?;
        Ok(store.report(&end)?.number)
    };
    let (first, last) = (number(first)?, number(last)?);
    let numbers = first.min(last)..=first.max(last);
    let of_range = |report: &DatasetReport| {
        let is_snapshot = report.kind == DatasetKind::Snapshot && !report.source.is_own();
        is_snapshot && report.source.dataset == source.dataset && numbers.contains(&report.number)
    };
    let found = store.list()?.into_iter().filter(of_range);
    Ok(found.map(|report| report.source).collect())
}
