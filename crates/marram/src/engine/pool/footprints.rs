//! What files take, and what deleting them would give back.

use crate::control::protocol::{Answer, FootprintReport, FootprintRequest, FootprintRow};
use crate::error::{Error, Result};
use crate::names;
use marram_pool::Pool;
use marram_posix::{Footprint, FootprintOptions, footprints};
use marram_store::{FrozenViews, Source, Store};
use marram_vfs::Ino;

/// Tells it as of one moment, at which everything was committed. Nobody waits for it.
///
/// # Errors
/// No such dataset or directory; too many rows for an answer; a failed read.
pub(super) fn report(pool: &Pool, request: &FootprintRequest) -> Result<Answer> {
    if pool.status().dirty_bytes > 0 {
        pool.commit()?;
    }
    let source: Source = request.source.parse()?;
    let root = pool.report(&source)?.root_object;
    let directory = Ino(request.directory.unwrap_or(root));
    let options =
        FootprintOptions { depth: request.depth, top: request.top, ..FootprintOptions::default() };
    let found = footprints(pool.frozen(&source)?, directory, options).map_err(refusal)?;
    Ok(Answer::Footprints(FootprintReport {
        source: request.source.clone(),
        files: found.rows.into_iter().map(row).collect(),
        passes: found.passes,
    }))
}

fn row(found: Footprint) -> FootprintRow {
    FootprintRow {
        path: names::text(&found.path),
        path_bytes: names::lost_bytes(&found.path),
        kind: if found.is_directory { "directory" } else { "file" }.to_owned(),
        links: found.links,
        referenced_bytes: found.referenced_bytes,
        unique_bytes: found.released_bytes,
    }
}

fn refusal(error: marram_vfs::Error) -> Error {
    match error {
        marram_vfs::Error::InvalidArgument(reason) => Error::usage(reason),
        marram_vfs::Error::Stale | marram_vfs::Error::NotDirectory => {
            Error::not_found("the directory is not there any more")
        }
        other => other.into(),
    }
}
