//! Each operation on an open cluster home, mounted or not.

use super::databases::space_at;
use super::home::ClusterHome;
use super::space;
use crate::control::credentials::Credentials;
use crate::control::protocol::{Answer, DestructionReport, Operation, StatusReport, ThinRequest};
use crate::engine::home::{Home, lacks};
use crate::engine::mounted::{self, Shown};
use crate::engine::posix::open_files;
use crate::engine::store_operations::{
    create_dataset, dataset_rows, fork_name, get, named, not_forked, promote, snapshot_below, timed,
};
use crate::engine::thinning::Thinning;
use crate::engine::{history, members, owners, schedules, undo};
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use marram_cluster::Cluster;
use marram_store::{DatasetName, Holder, Reversal, Source, Space, Store};
use std::collections::{BTreeMap, BTreeSet};

/// Does what is asked by a handle of the store that acts for the user of the request, where no
/// mounts show the home.
pub(super) fn perform(
    home: &ClusterHome,
    store: &Cluster,
    operation: &Operation,
) -> Result<Answer> {
    refuse_shared(home, operation)?;
    let cluster = store;
    let store: &dyn Store = store;
    match operation {
        Operation::Snapshot { dataset, snapshot } => {
            let dataset = dataset.parse()?;
            return timed(|| Ok(store.snapshot(&dataset, snapshot)?));
        }
        Operation::SnapshotBelow { dataset, snapshot } => {
            return snapshot_below(store, &dataset.parse()?, snapshot);
        }
        Operation::Fork { dataset, name, root } => {
            let (dataset, name) = (dataset.parse()?, fork_name(name)?);
            let refused = |error| not_forked(store, &name, error);
            return timed(|| store.fork(&dataset, &name, *root).map_err(refused));
        }
        Operation::ForkPlace { fork } => return members::fork_place(store, &fork.parse()?),
        Operation::Rollback { to } => {
            return history::rollback(store, &to.parse()?, |go_back| go_back());
        }
        Operation::RollbackDirectory(order) => return history::directory_alone(store, order),
        Operation::Versions(order) => return history::versions(store, order, None),
        Operation::Merge(request) => {
            let merge = history::Merge::of(store, request)?;
            let files = open_files(store, &merge.taker().dataset)?;
            let (summary, _nobody_remembers) = merge.run(store, (&files, None))?;
            drop(files);
            return merge.conclude(summary, || hide(store, &[merge.fork().clone()]).map(|_| ()));
        }
        Operation::Hold { snapshot, tag } => store.hold(&snapshot.parse()?, tag)?,
        Operation::Release { snapshot, tag } => store.release(&snapshot.parse()?, tag)?,
        Operation::Clone { origin, name } => {
            store.clone_snapshot(&origin.parse()?, &name.parse()?)?;
        }
        Operation::CreateDataset { name, properties } => {
            create_dataset(store, &name.parse()?, properties)?;
        }
        Operation::Destroy { sources, dry_run } => {
            return Ok(Answer::Destruction(destroy(store, sources, *dry_run)?));
        }
        Operation::Hide { sources } => return hide(store, &named(store, sources)?),
        Operation::Log => return undo::log(store),
        Operation::Undo { number, force } => return undo::undo(store, *number, *force),
        Operation::Rename { from, to } => store.rename(&from.parse()?, &to.parse()?)?,
        Operation::Promote { name } => return promote(store, &name.parse()?),
        Operation::Partials => return Ok(Answer::Partials(Vec::new())),
        Operation::List => return list(store),
        Operation::Get { dataset } => return get(store, &dataset.parse()?),
        Operation::Set { dataset, properties } => set(store, &dataset.parse()?, properties)?,
        Operation::Owners { source } => return owners::report(store, source),
        Operation::SetLimit { dataset, owner, bytes_limit, inodes_limit } => {
            owners::set_limit(store, dataset, *owner, (*bytes_limit, *inodes_limit))?;
        }
        Operation::Thin(request) => return thin(store, request),
        Operation::Space { sources } => {
            let read_only = home.is_read_only().then(|| home.path());
            return space::space(cluster, read_only, sources);
        }
        Operation::Status => return Ok(Answer::Status(Box::new(status(home)?))),
        Operation::Sync => store.sync()?,
        other => return Err(lacks(home, lacking(other))),
    }
    Ok(Answer::Done)
}

/// Refuses what sets a dataset back that other daemons may have mounted.
fn refuse_shared(home: &ClusterHome, operation: &Operation) -> Result<()> {
    if !home.store().has_company() {
        return Ok(());
    }
    let goes_back = match operation {
        Operation::Rollback { .. } => true,
        Operation::Undo { number, force } => {
            let undone = undo::reversal(home.store(), *number, *force)?;
            matches!(undone, (_, Reversal::Rollback { .. }))
        }
        _ => false,
    };
    if goes_back {
        return Err(Error::in_use(
            "other daemons have the home open: no dataset is rolled back beside them",
        )
        .hint("`marram clients` lists them; do it when they have unmounted the home"));
    }
    Ok(())
}

/// What an operation needs that this home does not have.
fn lacking(operation: &Operation) -> &'static str {
    match operation {
        Operation::Footprints(_) | Operation::Sharing => "account of the space of its files yet",
        Operation::DropPartial { .. } => "part of a stream: it keeps none that was cut",
        Operation::Grow { .. } => "fixed size: it grows by itself",
        Operation::Label { .. } => "label",
        _ => "such operation",
    }
}

/// Performs an operation, and has the mounts show it.
///
/// # Errors
/// Whatever refuses it or fails.
pub(super) fn perform_shown(
    (home, store): (&ClusterHome, &Cluster),
    shown: &Shown<'_>,
    operation: &Operation,
) -> Result<Answer> {
    match operation {
        Operation::Destroy { sources, dry_run: false } | Operation::Hide { sources } => {
            destroy_shown((home, store), shown, &named(shown.store, sources)?, operation)
        }
        Operation::Rename { from, to } => mounted::rename(shown, &from.parse()?, &to.parse()?),
        Operation::Merge(request) => mounted::merge(shown, request, &|fork| {
            let operation = Operation::Hide { sources: vec![fork.to_string()] };
            destroy_shown((home, store), shown, std::slice::from_ref(fork), &operation).map(|_| ())
        }),
        Operation::Rollback { to } => mounted::rollback(shown, &to.parse()?),
        Operation::RollbackDirectory(order) => mounted::rollback_directory(shown, order),
        Operation::Promote { name } => mounted::promote(shown, &Source::live(name.parse()?)),
        Operation::Versions(order) => history::versions(shown.store, order, shown.user),
        Operation::Thin(request) => mounted::thin_by(shown, request),
        Operation::Fork { .. } => {
            refuse_user(home, shown.user)?;
            with_members((home, store), shown, operation)
        }
        Operation::Undo { number, force } => {
            refuse_shared(home, operation)?;
            mounted::undo(shown, *number, *force)
        }
        _ => with_members((home, store), shown, operation),
    }
}

/// A fork has its user as its owner, and this store keeps none.
fn refuse_user(home: &ClusterHome, user: Option<&Credentials>) -> Result<()> {
    match user {
        None => Ok(()),
        Some(_) => Err(lacks(home, "forks of users yet: root may fork")),
    }
}

fn with_members(
    (home, store): (&ClusterHome, &Cluster),
    shown: &Shown<'_>,
    operation: &Operation,
) -> Result<Answer> {
    let is_change = matches!(
        operation,
        Operation::Snapshot { .. }
            | Operation::SnapshotBelow { .. }
            | Operation::Fork { .. }
            | Operation::Clone { .. }
            | Operation::CreateDataset { .. }
    );
    let answer = match is_change {
        true => shown.with_members(|| perform(home, store, operation))?,
        false => perform(home, store, operation)?,
    };
    if let Operation::Set { .. } | Operation::SetLimit { .. } = operation {
        shown.reload()?;
    }
    Ok(answer)
}

fn destroy_shown(
    (home, store): (&ClusterHome, &Cluster),
    shown: &Shown<'_>,
    sources: &[Source],
    operation: &Operation,
) -> Result<Answer> {
    shown.mounts.refuse_mounted(sources)?;
    // What is open below `.marram` counts as open, so what would go is found with it closed.
    let withheld = shown.mounts.withhold(sources);
    let goes = shown.store.destroy_together(sources, true)?.sources;
    shown.mounts.refuse_mounted(&goes)?;
    let answer = perform(home, store, operation);
    drop(withheld);
    shown.mounts.members_changed(&goes);
    answer
}

fn destroy(store: &dyn Store, sources: &[String], dry_run: bool) -> Result<DestructionReport> {
    let destruction = store.destroy_together(&named(store, sources)?, dry_run)?;
    Ok(DestructionReport {
        sources: destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: destruction.freed_bytes,
        dry_run,
    })
}

fn set(
    store: &dyn Store,
    dataset: &DatasetName,
    properties: &BTreeMap<String, Option<String>>,
) -> Result<()> {
    properties.iter().try_for_each(|(property, value)| {
        Ok(store.set_property(dataset, property, value.as_deref())?)
    })
}

fn thin(store: &dyn Store, request: &ThinRequest) -> Result<Answer> {
    let thinning = Thinning::plan(store, request, &BTreeSet::new())?;
    Ok(Answer::Thinned(thinning.perform(store, request.dry_run)?))
}

/// Destroys, but keeps for an undo.
fn hide(store: &dyn Store, sources: &[Source]) -> Result<Answer> {
    let undo = store.capabilities().undo;
    let undo = undo.ok_or(marram_store::Error::Unsupported("log of operations"))?;
    let hidden = undo.hide_together(sources)?;
    let report = DestructionReport {
        sources: hidden.destruction.sources.iter().map(ToString::to_string).collect(),
        freed_bytes: hidden.destruction.freed_bytes,
        dry_run: false,
    };
    Ok(Answer::Hidden { report, kept_until_seconds: hidden.kept_until_seconds })
}

fn list(store: &dyn Store) -> Result<Answer> {
    let holder = |report| Holder { report, added_bytes: 0, unique_bytes: 0 };
    let holders: Vec<Holder> = store.list()?.into_iter().map(holder).collect();
    Ok(Answer::Datasets(dataset_rows(store, &holders)))
}

fn status(home: &ClusterHome) -> Result<StatusReport> {
    let store = home.store();
    let status = store.status()?;
    // A server does not tell what there is: then the total is none.
    let outside = store.blocks_outside();
    let space = match &outside {
        Some((_, space)) => *space,
        None => space_at(home.path()),
    };
    let space = space.unwrap_or(Space { total_bytes: 0, free_bytes: 0 });
    let health = if status.stopped.is_some() { "read-only" } else { "online" };
    let trips = match status.round_trips {
        0 => String::new(),
        count => format!(", {count} round trips"),
    };
    let blocks = outside.map_or(String::new(), |(place, _)| format!(" with blocks in {place}"));
    let medium = format!(
        "{}{blocks}, {} entries{trips}: {}",
        store.engine(),
        status.entries,
        published(status.others)
    );
    // A store that takes no more changes takes no snapshots either.
    let scheduled = if status.stopped.is_none() { store.scheduled()? } else { Vec::new() };
    Ok(StatusReport {
        pool: home.path().to_owned(),
        pool_id: hexadecimal(&store.id()),
        health: health.to_owned(),
        reason: status.stopped,
        medium: Some(medium),
        total_bytes: space.total_bytes,
        allocated_bytes: status.stored_bytes,
        free_bytes: space.free_bytes,
        dirty_bytes: status.waiting_bytes,
        snapshots: schedules::rows(scheduled),
        ..StatusReport::default()
    })
}

/// When what is written is published, beside so many others.
fn published(others: usize) -> String {
    match others {
        0 => "published each second and by fsync; no other client".to_owned(),
        1 => "published at once, beside another client".to_owned(),
        others => format!("published at once, beside {others} other clients"),
    }
}
