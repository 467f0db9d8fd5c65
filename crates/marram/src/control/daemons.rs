//! Daemons that can be asked: which one has a pool, a mount or a stream.
//!
//! Each user's daemons have their sockets in a folder of that user alone. Root looks into all of
//! them, so a daemon is believed only about what its user has: pools and streams with that owner,
//! and mounts that this user has made, see [`peer`]. Any other answer is passed over, as if there
//! were no socket.
//!
//! A copy of a pool has the pool's id, and sockets are named by that. So a daemon is asked about a
//! path only if what it serves is what the path leads to: a command about the copy would else be
//! done to the original.

use crate::control::client::Client;
use crate::control::peer;
use crate::control::protocol::ENDING;
use crate::control::protocol::{Greeting, MountReport, VERSION};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::mountinfo::{self, MountEntry};
use crate::names::{printable, shell_word};
use crate::output::say;
use crate::paths;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Most sockets of a folder that are looked at when a daemon is searched.
const SOCKETS_MAX: usize = 256;
/// How long a daemon of somebody else may take to tell how it is, where all are asked.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// A daemon that has greeted, and can be asked again.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    socket: PathBuf,
    /// What it has said of itself.
    pub(crate) greeting: Greeting,
    user: Option<u32>,
    /// How long it may take to answer, if not as long as it likes.
    patience: Option<Duration>,
}

impl Daemon {
    fn of(socket: PathBuf, client: &Client) -> Daemon {
        let greeting = client.greeting().clone();
        Daemon { socket, greeting, user: client.user(), patience: None }
    }

    /// The same among others: if it is somebody else's, it does not hold up what they tell.
    fn among_others(self) -> Daemon {
        let patience = self.other_user().map(|_| ANSWER_PATIENCE);
        Daemon { patience, ..self }
    }

    /// A new conversation with it; none if it is gone, also if another one has its socket now that
    /// serves a copy.
    ///
    /// # Errors
    /// It is there but does not answer.
    pub(crate) fn connect(&self) -> Result<Option<Client>> {
        let client = Client::connect(&self.socket, self.user)?;
        let is_it = |client: &Client| match client.greeting().served {
            Some(served) => self.serves(served),
            None => self.greeting.served.is_none(),
        };
        let client = client.filter(is_it);
        Ok(client.map(|client| client.with_patience(self.patience)))
    }

    /// Whether that is what it serves. One of another version may not tell: it is refused for that
    /// when something is asked of it.
    pub(crate) fn serves(&self, identity: Identity) -> bool {
        match self.greeting.served {
            Some(served) => served.is_same(identity),
            None => self.greeting.version != VERSION,
        }
    }

    /// The refusal of `path`, which has the id of the pool that this daemon serves, and is another.
    fn serves_original_of(&self, path: &Path) -> Error {
        let Greeting { pid, pool, mounts, .. } = &self.greeting;
        let (copy, pool) = (path.display(), pool.display());
        let Some(mount) = mounts.first() else {
            return Error::in_use(format!("{copy} is a copy of {pool}, which {ENDING}"))
                .hint("try again in a moment");
        };
        Error::in_use(format!(
            "{copy} is a copy of the pool that process {pid} serves from {pool}: both have the \
             same id; nothing was changed"
        ))
        .hint(format!(
            "unmount that one first, with `marram unmount {}`; `marram send` and `marram receive` \
             make a copy that has an id of its own, and `tune2fs -U random` gives an image one",
            shell_word(&mount.directory)
        ))
    }

    /// Whether `entry` shows what it says of `mount`: for another user's daemon also only what the
    /// kernel says is that user's.
    pub(crate) fn has_made(&self, entry: &MountEntry, mount: &MountReport) -> bool {
        let is_own = self.other_user().is_none() || entry.owner_uid() == self.user;
        is_own && is_of(entry, mount)
    }

    /// Whether it makes its mounts in another mount namespace than that of this process.
    pub(crate) fn is_in_another_namespace(&self) -> bool {
        let (theirs, ours) = (self.greeting.namespace, mountinfo::own_namespace());
        theirs.is_some() && ours.is_some() && theirs != ours
    }

    /// The user of the daemon, if it is neither this one nor root. Such a daemon is believed about
    /// its own pool and mounts, and about nothing else.
    pub(crate) fn other_user(&self) -> Option<u32> {
        self.user.filter(|user| !peer::is_own_or_root(*user))
    }

    /// Whether the same user runs both.
    pub(crate) fn is_of_user_of(&self, other: &Daemon) -> bool {
        self.user == other.user
    }

    /// Whether somebody else than the caller runs it.
    pub(crate) fn is_of_another_user(&self) -> bool {
        self.user.is_some_and(|user| user != paths::own_uid())
    }

    /// Whether root runs it.
    pub(crate) fn is_roots(&self) -> bool {
        self.user == Some(0)
    }

    /// Where it has mounts that this process sees, in its own mount namespace.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub(crate) fn directories_in_sight(&self) -> Result<Vec<PathBuf>> {
        let entries = mountinfo::mounts()?;
        let is_seen = |mount: &&MountReport| {
            // What another mount covers is out of sight.
            let top = entries.iter().rev().find(|entry| entry.directory == mount.directory);
            top.is_some_and(|entry| self.has_made(entry, mount))
        };
        let mounts = self.greeting.mounts.iter().filter(is_seen);
        Ok(mounts.map(|mount| mount.directory.clone()).collect())
    }
}

/// The daemon that has the pool at `path`, if one of ours or, for root, of its owner has it.
///
/// # Errors
/// `path` is a copy of what a daemon has, or cannot be looked at.
pub(crate) fn of_pool(path: &Path, pool_id: &str) -> Result<Option<Daemon>> {
    let identity = Identity::of(path).map_err(|error| Error::system("look at", path, error))?;
    let mut other = None;
    for folder in paths::control_folders() {
        let socket = folder.join(format!("{pool_id}.sock"));
        // A broken one is as good as none.
        let Some(client) = Client::connect(&socket, owner_of(path)).ok().flatten() else {
            continue;
        };
        let daemon = Daemon::of(socket, &client);
        match daemon.greeting.pool_id == pool_id {
            true if daemon.serves(identity) => return Ok(Some(daemon)),
            true => other = Some(daemon),
            false => (),
        }
    }
    other.map_or(Ok(None), |daemon| Err(daemon.serves_original_of(path)))
}

/// The same of a pool that may have been moved: if nothing is at the path any more, it is where a
/// daemon has it that this user can see. None if none has: what is open lives in a daemon.
///
/// # Errors
/// Another pool is there, or that is not known.
pub(crate) fn of_pool_or_moved(path: &Path, pool_id: &str) -> Result<Option<Daemon>> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(own_of_id(pool_id)
            .or_else(|| all().into_iter().find(|daemon| daemon.greeting.pool_id == pool_id))),
        _ => of_pool(path, pool_id),
    }
}

/// The daemon of this user that has the pool of an id; none without one, or if that is no id.
pub(crate) fn own_of_id(pool_id: &str) -> Option<Daemon> {
    if pool_id.is_empty() || !pool_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let socket = paths::control_folder().join(format!("{pool_id}.sock"));
    let client = Client::connect(&socket, None).ok().flatten()?;
    let daemon = Daemon::of(socket, &client);
    let is_own = daemon.user.is_none_or(|user| user == paths::own_uid());
    Some(daemon).filter(|daemon| is_own && daemon.greeting.pool_id == pool_id)
}

/// A mount that a daemon has made.
pub(crate) struct Served {
    /// The daemon.
    pub(crate) daemon: Daemon,
    /// The conversation in which it was found.
    pub(crate) client: Client,
    /// What it says of the mount.
    pub(crate) report: MountReport,
}

/// The daemon behind a mount, wherever that is bound to and in whatever mount namespace it is seen.
/// None is asked any more then.
pub(crate) fn behind(entry: &MountEntry) -> Option<Served> {
    let owner = entry.owner_uid().unwrap_or_else(paths::own_uid);
    let folders = paths::private_control_folders_of(owner);
    folders.iter().find_map(|folder| {
        greeting_in(folder, owner).find_map(|(socket, client)| {
            // The number of one that has just ended is the next one's: the newest is it.
            let mut mounts = client.greeting().mounts.iter().rev();
            let report = mounts.find(|mount| is_of(entry, mount))?.clone();
            Some(Served { daemon: Daemon::of(socket, &client), client, report })
        })
    })
}

/// Whether `entry` shows the file system of `mount`. A path would not tell: in each mount namespace
/// it may lead to another. What a daemon of another version has made is known by that all the same.
pub(crate) fn is_of(entry: &MountEntry, mount: &MountReport) -> bool {
    entry.is_marram()
        && !mount.has_ended
        && match mount.device {
            Some(device) => entry.device == device,
            None => entry.directory == mount.directory,
        }
}

/// The daemons that show the stream in this file: one for each mount of it.
///
/// # Errors
/// The file is not there.
pub(crate) fn showing(file: &Path) -> Result<Vec<Daemon>> {
    let found = std::fs::metadata(file).map_err(|error| Error::system("look at", file, error))?;
    let identity = (found.dev(), found.ino());
    let shows =
        |daemon: &Daemon| daemon.greeting.shown.iter().any(|shown| shown.identity == identity);
    Ok(all().into_iter().filter(shows).collect())
}

/// The daemon that serves what lies in a file or device, wherever in it that begins.
pub(crate) fn serving(identity: Identity) -> Option<Daemon> {
    let serves = |daemon: &Daemon| daemon.greeting.served.is_some_and(|it| it.is_same(identity));
    all().into_iter().find(serves)
}

/// All daemons of this user, or for root of everybody whose pools and streams they serve.
pub(crate) fn all() -> Vec<Daemon> {
    found().0
}

/// The same, and whether that is all: which of this user are there and do not greet is said.
pub(crate) fn all_to_show() -> (Vec<Daemon>, bool) {
    let (daemons, silent) = found();
    silent.iter().for_each(|error| say(&format!("marram: {}", printable(error.to_string()))));
    (daemons, silent.is_empty())
}

/// All daemons, and why those of this user do not greet that are there.
fn found() -> (Vec<Daemon>, Vec<Error>) {
    let (mut daemons, mut silent) = (Vec::new(), Vec::new());
    for folder in paths::control_folders() {
        let owner = owner_of(&folder).unwrap_or_else(paths::own_uid);
        for (socket, client) in connected_in(&folder, owner) {
            match client {
                Ok(Some(client)) => daemons.push(Daemon::of(socket, &client).among_others()),
                Err(error) if owner == paths::own_uid() => silent.push(error),
                Ok(None) | Err(_) => (),
            }
        }
    }
    daemons.retain(is_about_his_own);
    (daemons, silent)
}

/// Whether a daemon of another user serves what that user owns; says so if not.
fn is_about_his_own(daemon: &Daemon) -> bool {
    let Some(user) = daemon.other_user() else { return true };
    let is_on_server = matches!(daemon.greeting.served, Some(Identity::Url { .. }));
    let is_his = is_on_server || owner_of(&daemon.greeting.pool) == Some(user);
    if !is_his {
        peer::warn_of(&daemon.socket, Some(user));
    }
    is_his
}

/// The daemons that greet in a folder of `owner`.
fn greeting_in(folder: &Path, owner: u32) -> impl Iterator<Item = (PathBuf, Client)> {
    connected_in(folder, owner).filter_map(|(socket, client)| Some((socket, client.ok()??)))
}

/// What the sockets in a folder of `owner` lead to. A daemon of somebody else's that does not greet
/// in time is the last that is waited for there, which is said; together they have no longer than
/// one.
fn connected_in(
    folder: &Path,
    owner: u32,
) -> impl Iterator<Item = (PathBuf, Result<Option<Client>>)> {
    let is_patient = peer::is_own_or_root(owner);
    let began = Instant::now();
    let connected = sockets_in(folder).into_iter().map(move |socket| {
        let client = Client::connect(&socket, Some(owner));
        (socket, client)
    });
    let goes_on = move |(_, client): &(PathBuf, Result<Option<Client>>)| match client {
        Err(error) if !is_patient => {
            let told = printable(error.to_string());
            say(&format!("marram: warning: {told}; no more of user {owner} is looked at"));
            false
        }
        _ if !is_patient && began.elapsed() > ANSWER_PATIENCE => {
            say(&format!("marram: warning: no more of user {owner}, who is slow, is looked at"));
            false
        }
        _ => true,
    };
    connected.take_while(goes_on)
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
    let mut sockets: Vec<PathBuf> = paths.filter(is_socket).take(SOCKETS_MAX).collect();
    sockets.sort();
    sockets
}

/// The owner of what is at `path`.
fn owner_of(path: &Path) -> Option<u32> {
    std::fs::metadata(path).ok().map(|found| found.uid())
}

#[cfg(test)]
mod tests {
    use super::is_of;
    use crate::control::protocol::MountReport;
    use crate::mountinfo::MountEntry;

    #[test]
    fn the_number_of_a_mount_that_has_ended_is_that_of_another_mount() {
        let entry = MountEntry {
            number: 1,
            device: (0, 50).into(),
            root: "/".into(),
            directory: "/mnt".into(),
            file_system: "fuse.marram".to_owned(),
            source: "work.pool".into(),
            options: String::new(),
            super_options: String::new(),
        };
        let report = MountReport {
            directory: "/other".into(),
            source: "root".to_owned(),
            read_only: false,
            options: String::new(),
            block_device: None,
            device: Some((0, 50).into()),
            has_ended: false,
            in_sight: None,
            elsewhere: Vec::new(),
        };
        assert!(is_of(&entry, &report), "wherever it is seen");
        let ended = MountReport { has_ended: true, ..report };
        assert!(!is_of(&entry, &ended));
        let ended = MountReport { device: None, directory: "/mnt".into(), ..ended };
        assert!(!is_of(&entry, &ended), "nor is the place");
    }
}
