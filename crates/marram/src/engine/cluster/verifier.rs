//! The verifier of cluster homes.

use super::buckets;
use super::client::{Awaited, short};
use super::databases;
use crate::error::{Error, Result};
pub(crate) use marram_cluster::verify::Verified;
use marram_cluster::verify::verify_reached;
use marram_cluster::{Database, glance};
use std::path::Path;
use std::sync::Arc;

/// Whether there is a cluster home in a file.
pub(crate) fn is_cluster(path: &Path) -> bool {
    databases::is_marked(path)
}

/// Reads all of a home that no client has open, and says what does not fit.
///
/// # Errors
/// A client has it open, or it cannot be read.
pub(crate) fn verify(path: &Path) -> Result<Verified> {
    let database = databases::find(path)?.ok_or_else(|| databases::none_at(path))?;
    refuse_clients(&database).map_err(|error| error.during(path.display()))?;
    let verified = verify_reached(&*database, Some(&buckets::access()));
    verified.map_err(|error| Error::from(error).during(path.display()))
}

/// Refuses a home that a client has open: its rows are those of no one moment.
fn refuse_clients(database: &Arc<dyn Database>) -> Result<()> {
    let there = glance(Arc::clone(database))?.clients;
    let awaited = Awaited::default();
    let lost = awaited.lost(&there);
    match there.iter().find(|client| !lost.iter().any(|it| it.session == client.session)) {
        None => Ok(()),
        Some(client) => {
            Err(Error::in_use(format!("the home is in use by {}", short(&client.name)))
                .hint("unmount it there first; only a home that nobody has open is checked"))
        }
    }
}
