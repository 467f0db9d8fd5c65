//! The verifier of cluster homes.

use super::{databases, open};
use crate::error::{Error, Result};
pub(crate) use marram_cluster::verify::Verified;
use std::path::Path;

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
    open::refuse_client(&database).map_err(|error| error.during(path.display()))?;
    let verified = marram_cluster::verify::verify(&*database);
    verified.map_err(|error| Error::from(error).during(path.display()))
}
