//! `marram sync`: comes back when everything that was written is durable.

use crate::arguments::TargetArguments;
use crate::control::protocol::{MountReport, Operation};
use crate::error::{Error, Result};
use crate::mountinfo;
use crate::output::Output;
use crate::target::Target;
use serde::Serialize;
use std::fs::File;
use std::path::PathBuf;

#[derive(Serialize)]
struct Synced {
    pool: PathBuf,
}

pub(super) fn run(arguments: &TargetArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    let mounts = target.daemon.iter().flat_map(|daemon| &daemon.greeting.mounts);
    for mount in mounts.filter(|mount| !mount.read_only) {
        flush_kernel(mount)?;
    }
    target.perform(&Operation::Sync)?;
    output.print(&Synced { pool: target.pool }, String::new);
    Ok(())
}

/// Has the kernel send what it has cached, so far as the mount is there for us.
fn flush_kernel(mount: &MountReport) -> Result<()> {
    let directory = &mount.directory;
    let found = mountinfo::mount_on(directory)?;
    let is_it = found.is_some_and(|entry| entry.is_marram() && Some(entry.device) == mount.device);
    if !is_it {
        return Ok(());
    }
    let Ok(root) = File::open(directory) else {
        return Ok(());
    };
    rustix::fs::syncfs(&root).map_err(|error| Error::system("sync", directory, error))
}
