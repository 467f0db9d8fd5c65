//! `marram unmount`: comes back when everything is durable and, after the last mount of a pool,
//! its daemon has let go of the device.

use super::stream::is_stream;
use crate::arguments::UnmountArguments;
use crate::commands::answers::unexpected;
use crate::control::client::{Client, Process};
use crate::control::daemons::{self, Daemon};
use crate::control::protocol::{Answer, Greeting, MountReport, Request};
use crate::dead_mounts;
use crate::error::{Error, Result};
use crate::mountinfo::{self, MountEntry};
use crate::output::{Output, Progress};
use crate::paths::absolute;
use crate::target::Target;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the daemon of a mount whose last place is gone may still be serving it before somebody
/// is taken to use it out of sight.
const UNSEEN_PATIENCE: Duration = Duration::from_secs(2);
/// How often to ask it.
const UNSEEN_TICK: Duration = Duration::from_millis(20);

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
        let _progress = Progress::begin(output, waiting_for(target));
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

/// What an unmount waits for, in words.
fn waiting_for(target: &Path) -> String {
    let place = target.display();
    let entry = absolute(target).ok().and_then(|path| mountinfo::mount_on(&path).ok()?);
    let mount = entry.as_ref().and_then(daemons::behind).map(|(_, client)| client.greeting().pid);
    let pool = || Some(Target::find(target).ok()?.daemon?.greeting.pid);
    match mount.or_else(pool) {
        Some(pid) => format!("unmounting {place}: waiting for process {pid} to write what is left"),
        None => format!("unmounting {place}"),
    }
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
        let mut directories = Vec::new();
        for daemon in daemons::showing(path)? {
            directories.extend(daemon.directories()?);
        }
        return named(path, directories);
    }
    let target = Target::find(path)?;
    let directories: Vec<PathBuf> = match target.daemon {
        Some(daemon) => daemon.directories()?,
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
    let entry = mountinfo::mount_on(directory)?;
    let Some((_, client)) = entry.as_ref().and_then(daemons::behind) else {
        return unmount_plainly(directory, detach);
    };
    let daemon = Process::hold(client.greeting().pid);
    let request = Request::Unmount { directory: directory.to_owned(), detach };
    let (mounts_left, not_durable, used_elsewhere) = match client.ask(&request)? {
        Answer::Unmounted { mounts_left, not_durable, used_elsewhere } => {
            (mounts_left, not_durable, used_elsewhere)
        }
        other => return Err(unexpected(&other)),
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
    let server = Server::behind(directory)?;
    match marram_fuse::unmount(directory, detach) {
        Ok(()) => {
            if let Some(server) = server.filter(|_| !detach) {
                server.wait_if_unseen();
            }
            Ok(false)
        }
        Err(error @ marram_fuse::MountError::Busy { .. }) => Err(Error::in_use(error.to_string())
            .hint("end those programs, or use --detach to take it out of sight until they do")),
        Err(error) => Err(Error::failed(error.to_string())),
    }
}

/// The daemon behind a mount of which a place is unmounted without its doing.
struct Server {
    daemon: Daemon,
    process: Process,
    /// What the mount shows as its source.
    source: PathBuf,
}

impl Server {
    fn behind(directory: &Path) -> Result<Option<Server>> {
        let Some(entry) = mountinfo::mount_on(directory)? else { return Ok(None) };
        let mut daemons = daemons::all().into_iter();
        let found = daemons.find(|daemon| serves(&daemon.greeting, &entry.source));
        Ok(found.map(|daemon| {
            let process = Process::hold(daemon.greeting.pid);
            Server { daemon, process, source: entry.source }
        }))
    }

    /// Returns when it has let go of the mount, and of the pool if that was the last one. Does not
    /// wait if the mount can still be seen somewhere.
    fn wait_if_unseen(&self) {
        let began = Instant::now();
        while !self.is_seen() && began.elapsed() < UNSEEN_PATIENCE {
            let Ok(client) = self.daemon.connect() else { return };
            let pid = self.daemon.greeting.pid;
            let greeting = client.as_ref().map(Client::greeting).filter(|one| one.pid == pid);
            if greeting.is_none_or(|greeting| greeting.mounts.is_empty()) {
                // It makes the pool durable, or has done so and ends.
                drop(client);
                return self.process.wait();
            }
            if greeting.is_some_and(|greeting| !serves(greeting, &self.source)) {
                return;
            }
            std::thread::sleep(UNSEEN_TICK);
        }
    }

    fn is_seen(&self) -> bool {
        let shows = |entry: &MountEntry| entry.is_marram() && entry.source == self.source;
        mountinfo::mounts().is_ok_and(|mounts| mounts.iter().any(shows))
    }
}

/// Whether the daemon has made a mount that shows `source`.
fn serves(greeting: &Greeting, source: &Path) -> bool {
    let is_source = |mount: &MountReport| match &mount.block_device {
        Some(device) => device == source,
        None => greeting.pool == source,
    };
    greeting.mounts.iter().any(is_source)
}
