//! Each operation on an open pool, mounted or not.

use super::kinds::kind_of;
use super::open::OpenPool;
use super::volume::{make_root_directory, open_files};
use super::{
    dedup, footprints, grants, history, keeping, owners, places, schedules, streams, undo,
};
use crate::control::protocol::{
    Answer, DatasetRow, DestructionReport, DeviceRow, Operation, PropertyRow, StatusReport,
};
use crate::engine::members;
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use marram_history::Branch;
use marram_pool::{Health, Pool};
use marram_store::{
    DatasetName, DatasetReport, Holder, Holds, Lineage, Properties, PropertySource, Source,
    SpaceUsage, Store,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Does what is asked.
pub(super) fn perform(open: &OpenPool, pool: &Pool, operation: &Operation) -> Result<Answer> {
    match operation {
        Operation::Snapshot { dataset, snapshot } => {
            let dataset = dataset.parse()?;
            return timed(|| Ok(pool.snapshot(&dataset, snapshot)?));
        }
        Operation::SnapshotBelow { dataset, snapshot } => {
            return keeping::snapshot_below(pool, &dataset.parse()?, snapshot);
        }
        Operation::Thin(request) => {
            let thinning = keeping::Thinning::plan(pool, request, &BTreeSet::new())?;
            return Ok(Answer::Thinned(thinning.perform(pool, request.dry_run)?));
        }
        Operation::Space { sources } => return keeping::space(pool, sources),
        Operation::Footprints(request) => return footprints::report(pool, request),
        Operation::Sharing => return dedup::sharing(pool),
        Operation::Fork { dataset, name, root } => {
            let (dataset, name) = (dataset.parse()?, fork_name(name)?);
            return timed(|| {
                pool.fork(&dataset, &name, *root).map_err(|error| not_forked(pool, &name, error))
            });
        }
        Operation::ForkPlace { fork } => return members::fork_place(pool, &fork.parse()?),
        Operation::Rollback { to } => return history::rollback(pool, &to.parse()?, |go| go()),
        Operation::RollbackDirectory(order) => return history::directory_alone(pool, order),
        Operation::Versions(order) => return history::versions(pool, order, None),
        Operation::Merge(request) => {
            let merge = history::Merge::of(pool, request)?;
            let files = open_files(pool, &merge.taker().dataset)?;
            let (summary, _nobody_remembers) = merge.run(pool, (&files, None))?;
            // As `marram destroy fork` does: an undo can bring it back.
            return merge.conclude(summary, || {
                pool.move_to_trash(std::slice::from_ref(merge.fork()))?;
                Ok(())
            });
        }
        Operation::Hold { snapshot, tag } => pool.hold(&snapshot.parse()?, tag)?,
        Operation::Release { snapshot, tag } => pool.release(&snapshot.parse()?, tag)?,
        Operation::Clone { origin, name } => {
            pool.clone_snapshot(&origin.parse()?, &name.parse()?)?;
        }
        Operation::CreateDataset { name, properties } => {
            create_dataset(pool, &name.parse()?, properties)?;
        }
        Operation::Destroy { sources, dry_run } => return destroy(pool, sources, *dry_run),
        Operation::Hide { sources } => return hide(pool, sources),
        Operation::Rename { from, to } => pool.rename(&from.parse()?, &to.parse()?)?,
        Operation::Promote { name } => pool.promote(&name.parse()?)?,
        Operation::Log => return undo::log(pool),
        Operation::Undo { number, force } => return undo::undo(pool, *number, *force),
        Operation::List => {
            let usage = pool.usage(false)?;
            return Ok(Answer::Datasets(dataset_rows(pool, &usage.holders)));
        }
        Operation::Get { dataset } => return get(pool, &dataset.parse()?),
        Operation::Set { dataset, properties } => set(pool, dataset, properties)?,
        Operation::Grants(order) => return grants::perform(pool, order),
        Operation::Owners { source } => return owners::report(pool, source),
        Operation::SetLimit { dataset, owner, bytes_limit, inodes_limit } => {
            owners::set_limit(pool, dataset, *owner, (*bytes_limit, *inodes_limit))?;
        }
        Operation::Partials => return Ok(Answer::Partials(streams::partials(pool)?)),
        Operation::DropPartial { dataset } => streams::drop_partial(pool, dataset)?,
        Operation::Status => return Ok(Answer::Status(Box::new(status(open)?))),
        Operation::Grow { size_bytes } => return grow(open, pool, *size_bytes),
        Operation::Label { label } => pool.set_label(label)?,
        Operation::Sync => pool.sync()?,
    }
    Ok(Answer::Done)
}

/// Makes an empty dataset. One that gets no first directory, as in a full pool, was not made.
fn create_dataset(
    pool: &Pool,
    name: &DatasetName,
    properties: &BTreeMap<String, String>,
) -> Result<()> {
    pool.create(name, &Properties(properties.clone()))?;
    make_root_directory(pool, name).inspect_err(|_| {
        let _stays_empty_at_worst = pool.destroy(&Source::live(name.clone()), false);
    })
}

/// Does something and tells how long it took.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<Answer> {
    let began = Instant::now();
    work()?;
    let engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Ok(Answer::Timed { engine_nanoseconds })
}

/// The name of a fork that a user makes.
fn fork_name(text: &str) -> Result<DatasetName> {
    let name: DatasetName = text.parse()?;
    match name.transaction() {
        None => Ok(name),
        Some(_) => Err(Error::usage(format!("{name}: the pool gives such names itself"))
            .hint("take one that does not begin with tx:")),
    }
}

/// Why there is no fork of this name; if the name is taken, by what.
fn not_forked(pool: &Pool, name: &DatasetName, error: marram_store::Error) -> Error {
    let taken = matches!(error, marram_store::Error::DatasetExists(_));
    let found = pool.report(&Source::live(name.clone())).ok().filter(|_| taken);
    let Some(found) = found else { return error.into() };
    let kind = kind_of(&found);
    let shown = if kind == "fork" { "forks" } else { "list" };
    Error::failed(format!("a {kind} named {name} exists"))
        .hint(format!("give the fork another name; `marram {shown} TARGET` shows which are taken"))
}

/// Destroys, but keeps for an undo.
fn hide(pool: &Pool, sources: &[String]) -> Result<Answer> {
    let hidden = pool.move_to_trash(&keeping::named(pool, sources)?)?;
    let report = DestructionReport {
        sources: hidden.destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: hidden.destruction.freed_bytes,
        dry_run: false,
    };
    Ok(Answer::Hidden { report, kept_until_seconds: hidden.kept_until_seconds })
}

fn destroy(pool: &Pool, sources: &[String], dry_run: bool) -> Result<Answer> {
    let destruction = pool.destroy_together(&keeping::named(pool, sources)?, dry_run)?;
    Ok(Answer::Destruction(DestructionReport {
        sources: destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: destruction.freed_bytes,
        dry_run,
    }))
}

fn dataset_rows(pool: &Pool, holders: &[Holder]) -> Vec<DatasetRow> {
    let all: Vec<DatasetReport> = holders.iter().map(|holder| holder.report.clone()).collect();
    holders.iter().map(|holder| dataset_row(pool, &all, holder)).collect()
}

fn dataset_row(pool: &Pool, all: &[DatasetReport], holder: &Holder) -> DatasetRow {
    let report = &holder.report;
    let parent = report.fork_base().map(|origin| Source::live(origin.dataset.clone()));
    DatasetRow {
        base: Branch::among(all, report).map(|branch| branch.base.to_string()),
        name: report.source.to_string(),
        kind: kind_of(report).to_owned(),
        origin: report.origin.as_ref().map(ToString::to_string),
        root: report.root_object,
        directory: parent.and_then(|of| places::directory(pool, &of, report.root_object)),
        holds: report.holds.clone(),
        internal: report.source.is_own() && !report.source.dataset.is_partial(),
        created_seconds: report.created_seconds,
        referenced_bytes: report.referenced_bytes,
        unique_bytes: holder.unique_bytes,
    }
}

fn get(pool: &dyn Store, dataset: &DatasetName) -> Result<Answer> {
    let row = |(property, (value, source)): (String, (String, PropertySource))| PropertyRow {
        dataset: dataset.to_string(),
        property,
        value,
        source: match source {
            PropertySource::Default => "default".to_owned(),
            PropertySource::Local => "local".to_owned(),
        },
    };
    Ok(Answer::Properties(pool.properties(dataset)?.into_iter().map(row).collect()))
}

/// Sets properties of a dataset: all of them, or none.
fn set(pool: &Pool, dataset: &str, properties: &BTreeMap<String, Option<String>>) -> Result<()> {
    Ok(pool.set_properties(&dataset.parse()?, properties)?)
}

fn grow(open: &OpenPool, pool: &Pool, size_bytes: Option<u64>) -> Result<Answer> {
    if let Some(size_bytes) = size_bytes {
        open.grow_device(size_bytes)?;
    }
    let size_bytes = pool.grow().map_err(|error| Error::failed(error.to_string()))?;
    Ok(Answer::Grown { size_bytes })
}

fn status(open: &OpenPool) -> Result<StatusReport> {
    let status = open.pool().status();
    let devices = status.devices.iter().map(|device| DeviceRow {
        name: device.name.clone(),
        size_bytes: device.size_bytes,
        read_errors: device.read_errors,
        write_errors: device.write_errors,
        checksum_errors: device.checksum_errors,
        written_bytes: device.written_bytes,
        flushes: device.flushes,
    });
    let damage = open.damage();
    let (health, reason) = match &status.health {
        Health::Online if damage.is_empty() => ("online", None),
        Health::Online => ("damaged", Some("stored bytes are damaged; see below".to_owned())),
        Health::ReadOnly(reason) => ("read-only", Some(reason.clone())),
    };
    Ok(StatusReport {
        medium: None,
        pool: open.path().to_owned(),
        pool_id: hexadecimal(&status.pool_id),
        label: status.label.clone(),
        health: health.to_owned(),
        reason,
        group: status.group,
        last_commit_seconds: status.last_commit_seconds,
        total_bytes: status.total_bytes,
        allocated_bytes: status.allocated_bytes,
        free_bytes: status.free_bytes,
        cache_bytes: status.cache_bytes,
        dirty_bytes: status.dirty_bytes,
        healed_blocks: status.healed_blocks,
        devices: devices.collect(),
        damage,
        mounts: Vec::new(),
        snapshots: schedules::schedules(open.pool())?,
        partials: streams::partials(open.pool())?,
        dead_mounts: Vec::new(),
        daemon: None,
    })
}
