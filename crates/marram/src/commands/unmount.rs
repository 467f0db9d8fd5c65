//! `marram unmount`: comes back when everything is durable and, after the last mount of a pool,
//! its daemon has let go of the device.

use crate::arguments::UnmountArguments;
use crate::control::client::Process;
use crate::control::protocol::{Answer, Request};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::target::{Target, absolute};
use crate::{dead_mounts, mountinfo};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Unmounted {
    unmounted: Vec<PathBuf>,
}

pub(super) fn run(arguments: &UnmountArguments, output: &Output) -> Result<()> {
    let mut unmounted = Vec::new();
    for target in &arguments.targets {
        let outcome = unmount(target, arguments.detach);
        match outcome {
            Ok(directories) => unmounted.extend(directories),
            Err(error) if unmounted.is_empty() => return Err(error),
            Err(error) => {
                return Err(Error::partial(format!(
                    "{error}; {} before it came off",
                    unmounted.len()
                )));
            }
        }
    }
    output.print(&Unmounted { unmounted }, String::new);
    Ok(())
}

/// Unmounts the directory `target`, or all mounts of the pool `target`; tells which came off.
///
/// # Errors
/// When nothing is mounted, it is busy, or something could not be made durable.
pub(crate) fn unmount(target: &Path, detach: bool) -> Result<Vec<PathBuf>> {
    if marram_fuse::is_dead_mount(target) {
        dead_mounts::clear(target)?;
        return Ok(vec![target.to_owned()]);
    }
    let path = absolute(target)?;
    let directories = directories(&path)?;
    for directory in directories.iter().rev() {
        match marram_fuse::is_dead_mount(directory) {
            true => dead_mounts::clear(directory)?,
            false => unmount_one(directory, detach)?,
        }
    }
    Ok(directories)
}

/// What is mounted on `path`, or of the pool at `path`, oldest first. If the pool's daemon has
/// died, that is what it has left.
fn directories(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_dir() {
        let entry = mountinfo::mount_on(path)?;
        return match entry {
            Some(entry) if entry.is_marram() => Ok(vec![path.to_owned()]),
            Some(entry) => Err(Error::not_found(format!(
                "{} is a mount of type {}, not of ours",
                path.display(),
                entry.file_system
            ))),
            None => Err(Error::not_found(format!("nothing is mounted at {}", path.display()))),
        };
    }
    let target = Target::find(path)?;
    let directories: Vec<PathBuf> = match target.daemon {
        Some((_, greeting)) => greeting.mounts.into_iter().map(|mount| mount.directory).collect(),
        None => dead_mounts::of_pool(&target.pool)?,
    };
    if directories.is_empty() {
        return Err(Error::not_found(format!("{} is not mounted", path.display())));
    }
    Ok(directories)
}

fn unmount_one(directory: &Path, detach: bool) -> Result<()> {
    let target = Target::find(directory)?;
    let Some(client) = target.connect()? else {
        return Err(Error::not_found(format!(
            "no daemon answers for the file system at {}",
            directory.display()
        )));
    };
    let daemon = Process::hold(client.greeting().pid);
    let request = Request::Unmount { directory: directory.to_owned(), detach };
    let (mounts_left, not_durable) = match client.ask(&request)? {
        Answer::Unmounted { mounts_left, not_durable } => (mounts_left, not_durable),
        other => return Err(super::unexpected(&other)),
    };
    if mounts_left == 0 {
        daemon.wait();
    }
    let place = directory.display();
    not_durable.map_or(Ok(()), |error| {
        Err(error.during(format!("{place} is unmounted, but not all of it is durable")))
    })
}
