//! Each operation on an open pool, mounted or not.

use super::open::OpenPool;
use super::{dedup, footprints, grants, space, streams, unfinished};
use crate::control::protocol::{
    Answer, DestructionReport, DeviceRow, MergeRequest, Operation, StatusReport,
};
use crate::engine::posix::open_files;
use crate::engine::store_operations::{
    create_dataset, dataset_rows, fork_name, get, named, not_forked, promote, snapshot_below, timed,
};
use crate::engine::thinning::Thinning;
use crate::engine::{history, members, owners, schedules, undo};
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use marram_pool::{Health, Pool};
use marram_store::{Holds, SpaceUsage, Store};
use std::collections::{BTreeMap, BTreeSet};

/// Does what is asked.
pub(super) fn perform(open: &OpenPool, pool: &Pool, operation: &Operation) -> Result<Answer> {
    match operation {
        Operation::Snapshot { dataset, snapshot } => {
            let dataset = dataset.parse()?;
            return timed(|| Ok(pool.snapshot(&dataset, snapshot)?));
        }
        Operation::SnapshotBelow { dataset, snapshot } => {
            return snapshot_below(pool, &dataset.parse()?, snapshot);
        }
        Operation::Thin(request) => {
            let thinning = Thinning::plan(pool, request, &BTreeSet::new())?;
            return Ok(Answer::Thinned(thinning.perform(pool, request.dry_run)?));
        }
        Operation::Space { sources } => return space::space(pool, sources),
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
        Operation::Merge(request) => return merge(pool, request),
        Operation::Resolve { transaction, resolution } => {
            unfinished::resolve(pool, transaction, *resolution)?;
            // What somebody has asked for is durable when it is answered.
            pool.commit()?;
        }
        Operation::Hold { snapshot, tag } => pool.hold(&snapshot.parse()?, tag)?,
        Operation::Release { snapshot, tag } => pool.release(&snapshot.parse()?, tag)?,
        Operation::Clone { origin, name } => {
            pool.clone_snapshot(&origin.parse()?, &name.parse()?)?
        }
        Operation::CreateDataset { name, properties } => {
            create_dataset(pool, &name.parse()?, properties)?;
        }
        Operation::Destroy { sources, dry_run } => return destroy(pool, sources, *dry_run),
        Operation::Hide { sources } => return hide(pool, sources),
        Operation::Rename { from, to } => pool.rename(&from.parse()?, &to.parse()?)?,
        Operation::Promote { name } => return promote(pool, &name.parse()?),
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

/// Merges a fork, and destroys it if that was asked for, as `marram destroy` does: an undo can
/// bring it back.
fn merge(pool: &Pool, request: &MergeRequest) -> Result<Answer> {
    let merge = history::Merge::of(pool, request)?;
    let files = open_files(pool, &merge.taker().dataset)?;
    let (summary, _nobody_remembers) = merge.run(pool, (&files, None))?;
    merge.conclude(summary, || {
        pool.move_to_trash(std::slice::from_ref(merge.fork()))?;
        Ok(())
    })
}

/// Destroys, but keeps for an undo.
fn hide(pool: &Pool, sources: &[String]) -> Result<Answer> {
    let hidden = pool.move_to_trash(&named(pool, sources)?)?;
    let report = DestructionReport {
        sources: hidden.destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: hidden.destruction.freed_bytes,
        dry_run: false,
    };
    Ok(Answer::Hidden { report, kept_until_seconds: hidden.kept_until_seconds })
}

fn destroy(pool: &Pool, sources: &[String], dry_run: bool) -> Result<Answer> {
    let destruction = pool.destroy_together(&named(pool, sources)?, dry_run)?;
    Ok(Answer::Destruction(DestructionReport {
        sources: destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: destruction.freed_bytes,
        dry_run,
    }))
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

pub(super) fn status(open: &OpenPool) -> Result<StatusReport> {
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
        write_order: None,
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
        snapshots: schedules::rows(open.pool().scheduled()?),
        partials: streams::partials(open.pool())?,
        two_pools: unfinished::rows(open.pool()),
        dead_mounts: Vec::new(),
        daemon: None,
    })
}
