//! The directory that a fork is merged into with `--into`.

use crate::commands::answers::write_back;
use crate::control::daemons::Daemon;
use crate::control::protocol::MergePlace;
use crate::error::{Error, Result};
use crate::names::quoted;
use crate::target::Target;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Finds the directory in a mount of the pool of a target.
///
/// # Errors
/// It is no directory of such a mount, or lies in a snapshot.
pub(super) fn place(target: &Target, directory: &Path) -> Result<MergePlace> {
    let named = quoted(directory.as_os_str().as_bytes());
    let found = Target::find(directory)?;
    let id = |target: &Target| -> Option<String> {
        target.daemon.as_ref().map(|Daemon { greeting, .. }| greeting.pool_id.clone())
    };
    let is_of_pool = id(&found).is_some() && id(&found) == id(target);
    let (Some(source), Some(ino)) = (&found.mounted, found.ino.filter(|_| is_of_pool)) else {
        let pool = target.pool.display();
        return Err(Error::usage(format!("{named} is no directory in a mount of {pool}"))
            .hint("a fork is merged within its pool; into another file system, copy its files"));
    };
    match (source.snapshot.is_some(), ino) {
        (true, _) => Err(Error::usage(format!("{named} is in the snapshot {source}"))
            .hint("nothing goes into a snapshot: name a directory of the present")),
        (false, 0) => Err(Error::usage(format!("{named} is no directory of {source}"))),
        (false, ino) => {
            write_back(&found, directory)?;
            Ok(MergePlace { dataset: source.dataset.to_string(), directory: ino })
        }
    }
}
