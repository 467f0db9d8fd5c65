//! What holds the space of a cluster home.

use super::attended::attended;
use super::open;
use crate::control::protocol::{Answer, InDatabase, SpaceReport};
use crate::engine::store_operations::{holder_row, named, would_give_back};
use crate::error::Result;
use marram_cluster::{Cluster, SpaceHeld};
use marram_store::Store;
use std::path::Path;

/// Tells what holds the space, or what destroying some together would give back. A home that is
/// open for reading only, with its path, is asked by a client of its own: others may come
/// meanwhile.
///
/// # Errors
/// One that is not there, or whose destruction the store refuses; the database fails.
pub(super) fn space(
    store: &Cluster,
    read_only: Option<&Path>,
    sources: &[String],
) -> Result<Answer> {
    let Some(path) = read_only else { return asked(store, sources) };
    match open::beside(path, open::LITTLE_CACHE_BYTES) {
        Ok(own) => {
            let answer = attended(&own, || asked(&own, sources));
            own.close()?;
            answer
        }
        // What nobody can write to stays as it is.
        Err(_) => asked(store, sources),
    }
}

fn asked(store: &Cluster, sources: &[String]) -> Result<Answer> {
    store.sync()?;
    match sources.is_empty() {
        true => Ok(Answer::Space(report(&store.space_held()?))),
        false => would_give_back(store, &named(store, sources)?),
    }
}

fn report(held: &SpaceHeld) -> SpaceReport {
    let usage = &held.usage;
    SpaceReport {
        holders: usage.holders.iter().map(holder_row).collect(),
        added_bytes: usage.holders.iter().map(|holder| holder.added_bytes).sum(),
        own_bytes: usage.own_bytes,
        leaving_bytes: usage.leaving_bytes,
        shared_bytes: usage.shared_bytes,
        allocated_bytes: usage.allocated_bytes,
        in_database: Some(InDatabase {
            live_bytes: held.live_bytes,
            snapshot_bytes: held.snapshot_bytes,
            undo_bytes: held.undo_bytes,
            loose_blocks: held.loose_blocks,
            loose_bytes: held.loose_bytes,
            database_bytes: held.database_bytes,
        }),
    }
}
