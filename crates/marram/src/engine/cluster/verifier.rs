//! The verifier of cluster homes.

use super::open;
use crate::error::{Error, Result};
use marram_cluster::Database;
use marram_cluster::sqlite::SqliteDatabase;
pub(crate) use marram_cluster::verify::Verified;
use std::path::Path;
use std::sync::Arc;

/// Whether there is a cluster home at a path.
pub(crate) fn is_cluster(path: &Path) -> bool {
    open::is_marked(path)
}

/// Reads all of a home that no client has open, and says what does not fit.
///
/// # Errors
/// A client has it open, or it cannot be read.
pub(crate) fn verify(path: &Path) -> Result<Verified> {
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::open(path)?);
    open::refuse_client(&database).map_err(|error| error.during(path.display()))?;
    let verified = marram_cluster::verify::verify(&*database);
    verified.map_err(|error| Error::from(error).during(path.display()))
}
