//! Mounting what a daemon serves that lives in another mount namespace.
//!
//! What such a daemon mounts is seen in its namespace, and not where the command was given. So this
//! process binds what it sees of the mount, or refuses: a mount is one that its caller can see.

use crate::control::daemons::{Daemon, is_of};
use crate::control::protocol::{Greeting, MountReport, MountRequest, THERE_ALREADY};
use crate::error::{Error, Result};
use crate::mountinfo::{self, MountEntry};
use crate::names::shell_word;
use crate::options::MountOptions;
use rustix::mount::UnmountFlags;
use std::path::{Path, PathBuf};

/// Shows on a directory what `daemon`, of another mount namespace, has mounted, and what this
/// process sees in another place. Tells the pool, the daemon's process, and the mount.
///
/// # Errors
/// Nothing of it is seen here, or it is asked for in another way than it is mounted.
pub(super) fn bind(daemon: &Daemon, request: &MountRequest) -> Result<(PathBuf, i32, MountReport)> {
    let Greeting { pid, pool, mounts, .. } = &daemon.greeting;
    let source = request.options.source()?.to_string();
    let entries = mountinfo::mounts()?;
    let seen = mounts.iter().filter(|mount| mount.source == source).find_map(|mount| {
        let shows =
            |entry: &&MountEntry| daemon.has_made(entry, mount) && entry.root == Path::new("/");
        Some((mount, entries.iter().rev().find(shows)?))
    });
    let Some((mount, entry)) = seen else { return Err(out_of_sight(daemon, request)) };
    let place = entry.directory.display();
    if entry.directory == request.directory {
        return Err(Error::in_use(format!("{source} {THERE_ALREADY}"))
            .hint("unmount it first, or mount it in another place"));
    }
    if !is_plain(&request.options) {
        return Err(Error::in_use(format!(
            "{source} is mounted at {place} by process {pid} of another mount namespace, and can \
             only be shown as it is"
        ))
        .hint("leave the options out"));
    }
    let directory = &request.directory;
    rustix::mount::mount_bind(&entry.directory, directory)
        .map_err(|error| Error::system("bind the mount to", directory, error))?;
    let report = MountReport { directory: directory.clone(), ..mount.clone() };
    // What is seen at a path may be covered by another mount, and that was bound then.
    check_in_sight(&report).inspect_err(|_| {
        let _stays_and_is_named = rustix::mount::unmount(directory, UnmountFlags::empty());
    })?;
    Ok((pool.clone(), *pid, report))
}

/// Whether nothing is asked for but a dataset or snapshot.
fn is_plain(options: &MountOptions) -> bool {
    let (dataset, snapshot) = (options.dataset.clone(), options.snapshot.clone());
    let says_writable = options.says_writable;
    *options == MountOptions { dataset, snapshot, says_writable, ..MountOptions::default() }
}

fn out_of_sight(daemon: &Daemon, request: &MountRequest) -> Error {
    let Greeting { pid, pool, .. } = &daemon.greeting;
    let (pool, place) = (shell_word(pool), shell_word(&request.directory));
    Error::in_use(format!(
        "{pool} is served by process {pid}, which lives in another mount namespace: what it mounts \
         is not seen here"
    ))
    .hint(format!(
        "mount it there, with `nsenter --target {pid} --mount marram mount {pool} {place}`; or end \
         that daemon first: `kill {pid}` unmounts everything and makes it durable"
    ))
}

/// Refuses to call mounted what this process does not see: a daemon with another root directory
/// takes a path for another place.
///
/// # Errors
/// It is not there.
pub(super) fn check_in_sight(report: &MountReport) -> Result<()> {
    let found = mountinfo::mount_on(&report.directory)?;
    if found.is_some_and(|entry| is_of(&entry, report)) {
        return Ok(());
    }
    let place = report.directory.display();
    Err(Error::failed(format!("the daemon has mounted it at {place}, which is not seen here"))
        .hint("it sees another root directory, or somebody has unmounted it at once"))
}
