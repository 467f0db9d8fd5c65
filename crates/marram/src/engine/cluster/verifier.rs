//! The verifier of cluster homes: first the rows, and then, if they hold together, the file systems
//! in them.

use super::client::{Awaited, short};
use super::{buckets, databases, open};
use crate::error::{Error, Result};
use marram_check::{FileItem, FileSystemItems};
pub(crate) use marram_cluster::verify::Verified;
use marram_cluster::verify::verify_reached;
use marram_cluster::{Cluster, Database, glance};
use marram_store::{Key, Source, Store};
use std::path::Path;
use std::sync::Arc;

/// Findings of one file system that are looked for.
const FAULTS_MAX: usize = 1000;

/// Whether there is a cluster home in a file.
pub(crate) fn is_cluster(path: &Path) -> bool {
    databases::is_marked(path)
}

/// Reads all of a home that no client has open, and says what does not fit. Of file systems in
/// snapshots only `with_snapshots`.
///
/// # Errors
/// A client has it open, or it cannot be read.
pub(crate) fn verify(path: &Path, with_snapshots: bool) -> Result<Verified> {
    let database = databases::find(path)?.ok_or_else(|| databases::none_at(path))?;
    refuse_clients(&database).map_err(|error| error.during(path.display()))?;
    let verified = verify_reached(&*database, Some(&buckets::access()));
    let mut verified = verified.map_err(|error| Error::from(error).during(path.display()))?;
    if verified.findings_count == 0 && verified.has_followed {
        let store = open::to_look_at(path, database)?;
        for source in store.known() {
            let is_meant = with_snapshots || source.snapshot.is_none();
            if is_meant && !source.dataset.is_receiving() {
                let looked = look_at_files(&store, &source, &mut verified);
                looked.map_err(|error| Error::from(error).during(path.display()))?;
            }
        }
    }
    Ok(verified)
}

/// Looks at the items of one dataset or snapshot as those of a file system.
fn look_at_files(
    store: &Cluster,
    source: &Source,
    verified: &mut Verified,
) -> marram_store::Result<()> {
    let view = store.open(source)?;
    let (mut files, mut faults) = (FileSystemItems::default(), Vec::new());
    view.scan(Key::MIN, Key::MAX, &mut |key, item| {
        let block_bytes = item.block.as_ref().map(|block| block.len() as u64);
        files.item(&FileItem { key, value: &item.value, block_bytes }, &mut faults);
        faults.len() < FAULTS_MAX
    })?;
    if faults.len() < FAULTS_MAX {
        faults.extend(files.finish());
    }
    for (key, kind, detail) in faults {
        let place = key.map_or_else(String::new, |key| format!(" {key:?}:"));
        verified.find(format!("{source}:{place} {}: {detail}", kind.meaning()));
    }
    Ok(())
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
