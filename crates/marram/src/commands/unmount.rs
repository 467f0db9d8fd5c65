//! `marram unmount`: comes back when everything is durable and, after the last mount of a pool,
//! its daemon has let go of the device.

use super::stream::is_stream;
use crate::arguments::UnmountArguments;
use crate::control::client::{Client, Process};
use crate::control::protocol::{Answer, Request};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::target::{self, Target, absolute};
use crate::{dead_mounts, mountinfo};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct UnmountedJson {
    unmounted: Vec<PathBuf>,
}

/// What has come off.
#[derive(Debug, Default)]
pub(crate) struct Unmounted {
    directories: Vec<PathBuf>,
    /// Those of them whose file system is still in use somewhere else.
    used_elsewhere: Vec<PathBuf>,
}

pub(super) fn run(arguments: &UnmountArguments, output: &Output) -> Result<()> {
    let mut all = Unmounted::default();
    for target in &arguments.targets {
        match unmount(target, arguments.detach) {
            Ok(one) => {
                all.directories.extend(one.directories);
                all.used_elsewhere.extend(one.used_elsewhere);
            }
            Err(error) if all.directories.is_empty() => return Err(error),
            Err(error) => {
                let count = all.directories.len();
                return Err(Error::partial(format!("{error}; {count} before it came off")));
            }
        }
    }
    if let Some(place) = all.used_elsewhere.first() {
        return Err(Error::partial(format!(
            "{} is unmounted, but its file system is still in use: it is mounted in another \
             place or in another namespace, as containers have",
            place.display()
        ))
        .hint("the pool is free when those are unmounted too; findmnt shows the places"));
    }
    output.print(&UnmountedJson { unmounted: all.directories }, String::new);
    Ok(())
}

/// Unmounts the directory `target`, or all mounts of the pool or stream `target`; tells which came
/// off.
///
/// # Errors
/// When nothing is mounted, it is busy, or something could not be made durable.
pub(crate) fn unmount(target: &Path, detach: bool) -> Result<Unmounted> {
    if marram_fuse::is_dead_mount(target) {
        dead_mounts::clear(target)?;
        return Ok(Unmounted { directories: vec![target.to_owned()], ..Unmounted::default() });
    }
    let path = absolute(target)?;
    let mut unmounted = Unmounted { directories: directories(&path)?, ..Unmounted::default() };
    for directory in unmounted.directories.iter().rev() {
        if marram_fuse::is_dead_mount(directory) {
            dead_mounts::clear(directory)?;
        } else if unmount_one(directory, detach)? {
            unmounted.used_elsewhere.push(directory.clone());
        }
    }
    Ok(unmounted)
}

/// What is mounted on `path`, or of the pool or stream at `path`, oldest first. If the pool's
/// daemon has died, that is what it has left.
fn directories(path: &Path) -> Result<Vec<PathBuf>> {
    let entry = mountinfo::mount_on(path)?;
    // What is mounted on a file is a file: one that was bound there.
    if path.is_dir() || entry.is_some() {
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
    if is_stream(path) {
        let shown = target::daemons_showing(path)?.into_iter();
        let mounts = shown.flat_map(|(_, greeting)| greeting.mounts);
        return named(path, mounts.map(|mount| mount.directory).collect());
    }
    let target = Target::find(path)?;
    let directories: Vec<PathBuf> = match target.daemon {
        Some((_, greeting)) => greeting.mounts.into_iter().map(|mount| mount.directory).collect(),
        None => dead_mounts::of_pool(&target.pool)?,
    };
    named(path, directories)
}

/// Where `path` is mounted, which has to be somewhere.
fn named(path: &Path, directories: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    match directories.is_empty() {
        true => Err(Error::not_found(format!("{} is not mounted", path.display()))),
        false => Ok(directories),
    }
}

/// Unmounts what is on `directory`; whether its file system is still in use.
fn unmount_one(directory: &Path, detach: bool) -> Result<bool> {
    let Some((socket, _)) = target::daemon_of_mount(directory)? else {
        return unmount_plainly(directory, detach);
    };
    let Some(client) = Client::connect(&socket)? else {
        return unmount_plainly(directory, detach);
    };
    let daemon = Process::hold(client.greeting().pid);
    let request = Request::Unmount { directory: directory.to_owned(), detach };
    let (mounts_left, not_durable, used_elsewhere) = match client.ask(&request)? {
        Answer::Unmounted { mounts_left, not_durable, used_elsewhere } => {
            (mounts_left, not_durable, used_elsewhere)
        }
        other => return Err(super::unexpected(&other)),
    };
    if mounts_left == 0 {
        daemon.wait();
    }
    let place = directory.display();
    not_durable.map_or(Ok(used_elsewhere), |error| {
        Err(error.during(format!("{place} is unmounted, but not all of it is durable")))
    })
}

/// Unmounts what no daemon that can be asked has mounted there: a mount that was bound to another
/// place, one of a container, or one whose daemon has lost its socket.
fn unmount_plainly(directory: &Path, detach: bool) -> Result<bool> {
    match marram_fuse::unmount(directory, detach) {
        Ok(()) => Ok(false),
        Err(error @ marram_fuse::MountError::Busy { .. }) => Err(Error::in_use(error.to_string())
            .hint("end those programs, or use --detach to take it out of sight until they do")),
        Err(error) => Err(Error::failed(error.to_string())),
    }
}
