//! `marram unmount`: comes back when everything is durable and, after the last mount of a pool,
//! its daemon has let go of the device.

use super::stream::is_stream;
use crate::arguments::UnmountArguments;
use crate::commands::answers::unexpected;
use crate::control::daemons::{self, Daemon, Served};
use crate::control::protocol::{Answer, MountReport, Request, UnmountedPlace};
use crate::error::{Error, Result};
use crate::mountinfo::{self, DeviceNumber};
use crate::names::shell_word;
use crate::output::{Output, Progress};
use crate::paths::absolute;
use crate::target::Target;
use crate::{dead_mounts, engine};
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
    /// Those of them whose file system is still in use somewhere else, and by what.
    used_elsewhere: Vec<(PathBuf, String)>,
}

/// Hears what is waited for, in words.
type Tell<'t> = &'t dyn Fn(String);

pub(super) fn run(arguments: &UnmountArguments, output: &Output) -> Result<()> {
    let mut all = Unmounted::default();
    for target in &arguments.targets {
        let progress = Progress::begin(output, format!("unmounting {}", target.display()));
        match unmount_telling(target, arguments.detach, &|what| progress.tell(what)) {
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
    if let Some((place, user)) = all.used_elsewhere.first() {
        let place = place.display();
        return Err(Error::partial(format!(
            "{place} is unmounted, but its file system is still in use: {user}"
        ))
        .hint("the pool is free when nobody has it mounted or open any more"));
    }
    output.print(&UnmountedJson { unmounted: all.directories }, String::new);
    Ok(())
}

/// Unmounts the directory `target`, or all mounts of the pool or stream `target`; returns which
/// came off.
///
/// # Errors
/// When nothing is mounted, it is busy, or something could not be made durable.
pub(crate) fn unmount(target: &Path, detach: bool) -> Result<Unmounted> {
    unmount_telling(target, detach, &|_| ())
}

fn unmount_telling(target: &Path, detach: bool, tell: Tell<'_>) -> Result<Unmounted> {
    if marram_fuse::is_dead_mount(target) {
        dead_mounts::clear(target)?;
        return Ok(Unmounted { directories: vec![target.to_owned()], ..Unmounted::default() });
    }
    let path = match engine::server_url(target)? {
        Some(url) => url,
        None => absolute(engine::path_of(target))?,
    };
    let mut unmounted = Unmounted { directories: directories(&path)?, ..Unmounted::default() };
    for (count, directory) in unmounted.directories.iter().rev().enumerate() {
        let in_part = |error: Error| match count {
            0 => error,
            _ => Error::partial(format!("{error}; {count} of its mounts came off before")),
        };
        if marram_fuse::is_dead_mount(directory) {
            dead_mounts::clear(directory).map_err(in_part)?;
        } else if let Some(user) = unmount_one(directory, detach, tell).map_err(in_part)? {
            unmounted.used_elsewhere.push((directory.clone(), user));
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
        let mut directories = Vec::new();
        for daemon in daemons::showing(path)? {
            directories.extend(in_sight(path, &daemon)?);
        }
        return named(path, directories);
    }
    let target = Target::find_served(path)?;
    let directories: Vec<PathBuf> = match &target.daemon {
        Some(daemon) => in_sight(path, daemon)?,
        None => dead_mounts::of_pool(&target.pool)?,
    };
    named(path, directories)
}

/// Where this process sees what a daemon has mounted of the pool or stream at `path`.
///
/// # Errors
/// It is mounted, but nowhere where this process could unmount it.
fn in_sight(path: &Path, daemon: &Daemon) -> Result<Vec<PathBuf>> {
    let directories = daemon.directories_in_sight()?;
    match daemon.greeting.mounts.first() {
        Some(mount) if directories.is_empty() => Err(out_of_sight(path, daemon, mount)),
        _ => Ok(directories),
    }
}

/// The error for a pool or stream of which nothing is mounted in sight, though a daemon serves it.
fn out_of_sight(path: &Path, daemon: &Daemon, mount: &MountReport) -> Error {
    let (path, pid) = (path.display(), daemon.greeting.pid);
    let sights = mount.device.map(mountinfo::sights_elsewhere).unwrap_or_default();
    let seen = sights.first().and_then(|sight| Some((sight, sight.pid?)));
    let Some((sight, user)) = seen else {
        return Error::in_use(format!(
            "{path} is mounted nowhere that can be seen from here, but process {pid} serves it: \
             somebody still has something of it open, or has it mounted out of sight"
        ))
        .hint(format!("`kill {pid}` makes everything durable and ends the daemon within seconds"));
    };
    let directory = shell_word(&sight.directory);
    Error::in_use(format!("{path} is not mounted here: it is mounted {sight}")).hint(format!(
        "unmount it there: `nsenter --target {user} --mount marram unmount {directory}`; or have \
         the daemon end with `kill {pid}`, which makes everything durable"
    ))
}

/// Where `path` is mounted, which has to be somewhere.
fn named(path: &Path, directories: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
    match directories.is_empty() {
        true => Err(Error::not_found(format!("{} is not mounted", path.display()))),
        false => Ok(directories),
    }
}

/// Unmounts what is on `directory`, in the mount namespace of this process; what still uses its
/// file system, if anything does. The daemon, if one can be asked, tells when that is gone.
fn unmount_one(directory: &Path, detach: bool, tell: Tell<'_>) -> Result<Option<String>> {
    let entry = mountinfo::mount_on(directory)?;
    // A daemon that knows of it does not end before it has heard how that went.
    let knows = |served: &mut Served| served.client.unmounting().is_ok();
    let served = entry.as_ref().and_then(daemons::behind);
    let served = served.and_then(|mut served| knows(&mut served).then_some(served));
    if let Some(served) = &served {
        let (place, pid) = (directory.display(), served.daemon.greeting.pid);
        tell(format!("unmounting {place}: waiting for process {pid} to write what is left"));
    }
    marram_fuse::unmount(directory, detach).map_err(|error| refusal(&error))?;
    match (served, entry) {
        (Some(served), Some(entry)) => wait_until_gone(served, entry.device, directory, detach),
        // Through a block device the kernel itself waits for the daemon.
        (None, Some(entry)) if entry.file_system == "fuse.marram" && !detach => {
            let place = directory.display();
            let text = format!(
                "{place} is unmounted, but its daemon does not answer: it may not be durable yet"
            );
            Err(Error::partial(text).hint("all is durable once the daemon's process has ended"))
        }
        _ => Ok(None),
    }
}

/// Why the kernel does not unmount.
fn refusal(error: &marram_fuse::MountError) -> Error {
    let told = error.to_string();
    match error {
        marram_fuse::MountError::Busy { .. } => Error::in_use(told)
            .hint("end those programs, or use --detach to take it out of sight until they do"),
        _ if mountinfo::is_in_user_namespace() => Error::failed(told).hint(
            "a user namespace cannot unmount what it began with: unmount it outside, or what was \
             mounted inside",
        ),
        _ => Error::failed(told),
    }
}

/// Returns when the daemon has made everything durable and let go of the mount, and of the pool if
/// that was the last one; or what keeps it from that.
fn wait_until_gone(
    served: Served,
    device: DeviceNumber,
    directory: &Path,
    detached: bool,
) -> Result<Option<String>> {
    let process = served.client.process();
    let namespace = mountinfo::own_namespace();
    let directory = directory.to_owned();
    let place = UnmountedPlace { device, directory: directory.clone(), namespace, detached };
    let (mounts_left, not_durable, used_elsewhere) =
        match served.client.ask(&Request::Unmounted(place))? {
            Answer::Unmounted { mounts_left, not_durable, used_elsewhere } => {
                (mounts_left, not_durable, used_elsewhere)
            }
            other => return Err(unexpected(&other)),
        };
    if mounts_left == 0 {
        process.wait();
    }
    let place = directory.display();
    let user = used_elsewhere.then(|| user_of(device));
    not_durable.map_or(Ok(user), |error| {
        Err(error.during(format!("{place} is unmounted, but not all of it is durable")))
    })
}

/// What uses a file system that was unmounted in one place, in words.
fn user_of(device: DeviceNumber) -> String {
    let mounts = mountinfo::mounts().unwrap_or_default();
    if let Some(other) = mounts.into_iter().find(|entry| entry.device == device) {
        return format!("it is mounted in another place too, at {}", other.directory.display());
    }
    let sights = mountinfo::sights_elsewhere(device);
    match sights.split_first() {
        None => "somebody has something of it open, or has it mounted out of sight".to_owned(),
        Some((first, [])) => format!("it is mounted {first}"),
        Some((first, others)) => {
            format!("it is mounted {first}, and in {} other namespaces", others.len())
        }
    }
}
