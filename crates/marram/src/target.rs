//! What a command is about: a pool, and which of its datasets.
//!
//! A target is a pool (its file or block device), `sqlite:FILE`, the URL of a home on a server, or
//! any path inside a mounted Marram file system.
//! Either way the answer is the same home; what differs is the dataset that is meant, and whether
//! a daemon has the home, which must then do what is asked, or the command can open it itself.

use crate::control::client::Client;
use crate::control::daemons::{self, Daemon, Served};
use crate::control::protocol::{Answer, MountReport, Operation};

use crate::engine::{self, Home, OpenMode};
use crate::error::{Error, Kind, Result};
use crate::identity::Identity;
use crate::mountinfo::MountEntry;
use crate::names::{printable, quoted};
use crate::options::snapshot_name;
use crate::output::say;
use crate::paths::{dead_mount, resolved, utf8};
use crate::{dead_mounts, mountinfo};
use marram_store::{DatasetName, Source};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a conversation may pause: a daemon waits longer for a request, but not for ever.
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// A target that has been found.
#[derive(Debug)]
pub(crate) struct Target {
    /// Path of the pool.
    pub(crate) pool: PathBuf,
    /// The dataset or snapshot that the target's path is in.
    pub(crate) mounted: Option<Source>,
    /// Where the mount is that the path lies in, unless only a part of it is bound there.
    pub(crate) directory: Option<PathBuf>,
    /// That mount.
    pub(crate) mount: Option<MountReport>,
    /// The inode of the path in its dataset or snapshot, if it is a directory in one; else 0.
    pub(crate) ino: Option<u64>,
    /// The inode that is shown as the root of that dataset or snapshot.
    pub(crate) root: Option<u64>,
    /// The daemon that has the pool, if one has.
    pub(crate) daemon: Option<Daemon>,
    /// The conversation in which it was asked where the path is, and since when.
    conversation: RefCell<Option<(Client, Instant)>>,
}

impl Target {
    /// Finds what `path` names.
    ///
    /// # Errors
    /// When it does not exist, or is neither a pool nor inside a mounted one.
    pub(crate) fn find(path: &Path) -> Result<Target> {
        let target = Target::find_also_inside(path)?;
        let dataset = target.mounted.as_ref().map(|mounted| &mounted.dataset);
        match dataset.and_then(DatasetName::transaction) {
            Some(_) => Err(in_transaction(path)),
            None => Ok(target),
        }
    }

    /// The same, also of what is seen by a transaction.
    ///
    /// # Errors
    /// As for [`Target::find`].
    pub(crate) fn find_also_inside(path: &Path) -> Result<Target> {
        if let Some(url) = engine::server_url(path)? {
            return Target::of_pool(&url);
        }
        let absolute = resolved(engine::path_of(path))?;
        let kind = std::fs::metadata(&absolute)
            .map_err(|error| Error::system("look at", &absolute, error))?
            .file_type();
        let inside = mountinfo::mount_of(&absolute)?.filter(MountEntry::is_marram);
        match inside {
            // A pool that lies inside a mounted one is meant itself.
            Some(_) if kind.is_file() && matches!(engine::probe(&absolute), Ok(Some(_))) => {
                Target::of_pool(&absolute)
            }
            Some(entry) if !kind.is_block_device() => Target::of_mount(&absolute, entry),
            _ if kind.is_dir() => Err(Error::not_found(format!(
                "{} is not inside a mounted Marram file system",
                absolute.display()
            ))
            .hint("name a pool, or mount one there with `marram mount POOL DIRECTORY`")),
            _ => Target::of_pool(&absolute),
        }
    }

    /// Finds the daemon behind the mount that `path` lies in.
    fn of_mount(path: &Path, entry: MountEntry) -> Result<Target> {
        let entry = mountinfo::whole_of(entry)?;
        if let Some(Served { daemon, mut client, report }) = daemons::behind(&entry) {
            let (mounted, ino, root) = locate(&mut client, &report.directory, path)?;
            let is_whole = entry.root == Path::new("/");
            return Ok(Target {
                mounted: Some(mounted),
                directory: Some(entry.directory).filter(|_| is_whole),
                mount: Some(report),
                ino: Some(ino),
                root: Some(root),
                conversation: RefCell::new(Some((client, Instant::now()))),
                ..Target::of_daemon(daemon)
            });
        }
        if marram_fuse::is_dead_mount(&entry.directory) {
            return Err(dead_mount(&entry.directory));
        }
        let place = entry.directory.display();
        Err(Error::not_found(format!("no daemon answers for the file system at {place}"))
            .hint("it belongs to another user, or was mounted by another version"))
    }

    fn of_pool(path: &Path) -> Result<Target> {
        utf8(path)?;
        let Some(probe) = engine::probe(path)? else {
            return Err(engine::none_at(path));
        };
        let daemon = daemons::of_pool(path, &probe.id)?;
        Ok(Target { daemon, ..Target::unmounted(path.to_owned()) })
    }

    /// What `path` names, or what is served of it: in a file or device with partitions a home
    /// begins at a place that only its daemon knows.
    ///
    /// # Errors
    /// As for [`Target::find`].
    pub(crate) fn find_served(path: &Path) -> Result<Target> {
        let found = Target::find(path);
        if found.as_ref().is_ok_and(|target| target.daemon.is_some()) {
            return found;
        }
        let place = resolved(engine::path_of(path)).ok();
        let identity = place.and_then(|place| Identity::of(&place).ok());
        identity.and_then(daemons::serving).map(Target::of_daemon).map_or(found, Ok)
    }

    /// The image that begins at a place in a file or device, as a partition does.
    ///
    /// # Errors
    /// There is none, or a daemon has a copy of it.
    pub(crate) fn of_partition(path: &Path, offset_bytes: u64) -> Result<Target> {
        let path = resolved(path)?;
        utf8(&path)?;
        let probe = engine::probe_within(&path, offset_bytes)?;
        let daemon = daemons::of_pool(&path, &probe.id)?;
        Ok(Target { daemon, ..Target::unmounted(path) })
    }

    /// What a daemon has: a pool, or streams in files.
    pub(crate) fn of_daemon(daemon: Daemon) -> Target {
        let pool = daemon.greeting.pool.clone();
        Target { daemon: Some(daemon), ..Target::unmounted(pool) }
    }

    /// A pool that no daemon was asked about.
    pub(crate) fn unmounted(pool: PathBuf) -> Target {
        let conversation = RefCell::default();
        let (mounted, directory, mount, ino, root) = (None, None, None, None, None);
        Target { pool, mounted, directory, mount, ino, root, daemon: None, conversation }
    }

    /// Whether it stands for all of a dataset.
    pub(crate) fn is_whole_dataset(&self) -> bool {
        self.ino.is_none_or(|ino| Some(ino) == self.root)
    }

    /// Where a directory of a dataset is, for people: below a mount that shows it, or else as
    /// `DATASET:/path`. `directory` is its path from the root of the dataset.
    pub(crate) fn place_of(&self, dataset: &str, directory: &[u8]) -> String {
        match self.shown_at(dataset, directory) {
            Some(place) => quoted(place.as_os_str().as_bytes()),
            None => format!("{dataset}:{}", quoted(directory)),
        }
    }

    /// Where a mount shows a directory of a dataset, given by its path from the dataset's root.
    pub(crate) fn shown_at(&self, dataset: &str, directory: &[u8]) -> Option<PathBuf> {
        let mounts = self.daemon.iter().flat_map(|daemon| &daemon.greeting.mounts);
        let own = mounts.clone().filter(|mount| Some(&mount.directory) == self.directory.as_ref());
        let below = OsStr::from_bytes(directory.strip_prefix(b"/").unwrap_or(directory));
        let root = own.chain(mounts).find_map(|mount| {
            let fork = mount.directory.join(".marram/forks").join(dataset);
            match () {
                () if mount.source == dataset => Some(mount.directory.clone()),
                () => Some(fork).filter(|fork| fork.is_dir()),
            }
        })?;
        Some(if below.is_empty() { root } else { root.join(below) })
    }

    /// The dataset that is meant: the one named, the one that is mounted, or the root dataset.
    ///
    /// # Errors
    /// When `named` is no name.
    pub(crate) fn dataset(&self, named: Option<&str>) -> Result<DatasetName> {
        match (named, &self.mounted) {
            (Some(name), _) => Ok(name.parse()?),
            (None, Some(mounted)) => Ok(mounted.dataset.clone()),
            (None, None) => Ok(DatasetName::root()),
        }
    }

    /// Has `operation` done by the daemon that has the pool, or on the pool itself.
    ///
    /// # Errors
    /// Whatever refuses it or fails.
    pub(crate) fn perform(&self, operation: &Operation) -> Result<Answer> {
        if let Some(client) = self.connect()? {
            return client.perform(operation);
        }
        let pool = self.open(&OpenMode::for_operation(operation))?;
        let answer = pool.perform(operation, None, None);
        pool.close()?;
        answer
    }

    /// Has `operation` done by the daemon alone, never on the pool in its place: none if the daemon
    /// has ended, and its mounts with it.
    ///
    /// # Errors
    /// Whatever refuses it or fails, and a daemon that is there but does not answer.
    pub(crate) fn ask_daemon(&self, operation: &Operation) -> Result<Option<Answer>> {
        let ask = |client: Client| client.perform(operation);
        match self.connect().and_then(|client| client.map(ask).transpose()) {
            Err(_) if self.daemon_has_ended() => Ok(None),
            answer => answer,
        }
    }

    /// Whether the daemon is gone that has greeted; another one may have its pool by now.
    fn daemon_has_ended(&self) -> bool {
        let known = self.daemon.as_ref().map(|daemon| daemon.greeting.pid);
        match self.connect() {
            Ok(client) => client.is_none_or(|client| {
                Some(client.greeting().pid) != known || client.greeting().mounts.is_empty()
            }),
            Err(_) => false,
        }
    }

    /// Where all daemons are asked: what one of another user fails with is said, and is no reason
    /// to tell nothing of the others.
    ///
    /// # Errors
    /// Those of this user's and of root's.
    pub(crate) fn among_others<T>(&self, answer: Result<T>) -> Result<Option<T>> {
        match (answer, self.daemon.as_ref().and_then(Daemon::other_user)) {
            (Err(error), Some(user)) => {
                let told = printable(format!("{}: {error}", self.pool.display()));
                say(&format!("marram: warning: the daemon of user {user} for {told}"));
                Ok(None)
            }
            (answer, _) => answer.map(Some),
        }
    }

    /// Says why one of all homes is left out of what is shown.
    pub(crate) fn say_left_out(&self, error: &Error) {
        let told = printable(format!("{}: {error}", self.pool.display()));
        say(&format!("marram: {told}"));
    }

    /// Opens the pool itself, which no daemon has.
    ///
    /// # Errors
    /// Whatever refuses it or fails. Where only the daemon of another user has said which pool it
    /// is, none is opened.
    pub(crate) fn open(&self, mode: &OpenMode) -> Result<Arc<dyn Home>> {
        if let Some(user) = self.daemon.as_ref().and_then(Daemon::other_user) {
            let pool = self.pool.display();
            return Err(Error::in_use(format!("the daemon of user {user} for {pool} has gone"))
                .hint("name the pool by its path, or try again"));
        }
        self.check_still_there()?;
        engine::open(&self.pool, mode).map_err(|error| self.name_holder(error))
    }

    /// A daemon has named the pool. What lies at its path is opened only if it is that pool, and no
    /// copy that has come there.
    ///
    /// # Errors
    /// It is something else, or nothing.
    pub(crate) fn check_still_there(&self) -> Result<()> {
        let Some(daemon) = &self.daemon else { return Ok(()) };
        let found = Identity::of(&self.pool);
        let found = found.map_err(|error| Error::system("look at", &self.pool, error))?;
        if daemon.serves(found) {
            return Ok(());
        }
        let (pool, pid) = (self.pool.display(), daemon.greeting.pid);
        Err(Error::in_use(format!("{pool} is not the pool any more that process {pid} serves"))
            .hint("that one was moved or removed: name it by the path that it has now"))
    }

    /// A dead mount holds the block device that it was made on, and the system does not say so.
    fn name_holder(&self, error: Error) -> Error {
        let dead = match error.kind {
            Kind::InUse => dead_mounts::of_pool(&self.pool).unwrap_or_default(),
            _ => Vec::new(),
        };
        match dead.last() {
            Some(directory) => dead_mount(directory),
            None => error,
        }
    }

    /// A conversation with the daemon, if one has the pool: the one in which it was found, if that
    /// goes on, or a new one.
    ///
    /// # Errors
    /// When it is there but does not answer.
    pub(crate) fn connect(&self) -> Result<Option<Client>> {
        let begun = self.conversation.take();
        if let Some((client, _)) = begun.filter(|(_, since)| since.elapsed() < PAUSE_MAX) {
            return Ok(Some(client));
        }
        match &self.daemon {
            Some(daemon) => daemon.connect(),
            None => Ok(None),
        }
    }
}

fn in_transaction(path: &Path) -> Error {
    let place = quoted(path.as_os_str().as_bytes());
    Error::usage(format!("{place} is seen by a transaction"))
        .hint("what runs in one is part of it, and has no datasets of its own: do this outside")
}

/// A place of a target that need not be there: what a file or directory is, or was.
pub(crate) struct Place {
    /// The target of the nearest directory that is there.
    pub(crate) target: Target,
    /// That directory; or the path of a pool.
    pub(crate) path: PathBuf,
    /// The path from there on; none if the directory itself is meant, or the pool.
    pub(crate) names: Vec<Vec<u8>>,
}

impl Place {
    /// Finds the place that `path` names. A symlink is followed if it leads to a directory; else
    /// it is meant itself.
    ///
    /// # Errors
    /// As for [`Target::find`].
    pub(crate) fn find(path: &Path) -> Result<Place> {
        if let Some(url) = engine::server_url(path)? {
            return Ok(Place { target: Target::find(&url)?, path: url, names: Vec::new() });
        }
        let path = engine::path_of(path);
        let absolute =
            std::path::absolute(path).map_err(|error| Error::system("look at", path, error))?;
        if is_directory(&absolute)? || is_no_file_of_a_mount(&absolute)? {
            let target = Target::find(&absolute)?;
            return Ok(Place { target, path: absolute, names: Vec::new() });
        }
        let missing = || Error::not_found(format!("{} does not exist", path.display()));
        let mut names = Vec::new();
        let mut above = absolute.as_path();
        while !is_directory(above)? {
            let (Some(parent), Some(name)) = (above.parent(), above.file_name()) else {
                return Err(missing());
            };
            names.insert(0, name.as_bytes().to_vec());
            above = parent;
        }
        let target = Target::find(above)?;
        // Below `.marram` there is nothing but what there is now.
        if target.ino == Some(0) {
            return Err(missing());
        }
        Ok(Place { target, path: above.to_owned(), names })
    }
}

/// Whether a path leads to a directory. What may not be looked at is not passed over.
fn is_directory(path: &Path) -> Result<bool> {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match path.metadata() {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => Ok(false),
        // A symlink that leads to itself.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            Ok(false)
        }
        Err(error) => Err(Error::system("look at", path, error)),
    }
}

/// Whether a file or device is a pool that is meant itself, or lies where nothing else can be.
fn is_no_file_of_a_mount(path: &Path) -> Result<bool> {
    let Ok(found) = path.metadata() else { return Ok(false) };
    let kind = found.file_type();
    let is_inside = mountinfo::mount_of(&resolved(path)?)?.is_some_and(|entry| entry.is_marram());
    let can_be_pool = kind.is_file() || kind.is_block_device();
    Ok(!is_inside || can_be_pool && matches!(engine::probe(path), Ok(Some(_))))
}

/// Parts `TARGET@NAME` into both. The name is what stands behind the last `@`.
///
/// # Errors
/// When there is no name, or it is none.
pub(crate) fn with_snapshot(text: &Path) -> Result<(PathBuf, String)> {
    let text = engine::path_of(text);
    let Some((target, name)) = parted(text, at_last) else {
        return Err(Error::usage(format!("{} names no snapshot", text.display()))
            .hint("write TARGET@NAME, as in work.pool@before or /mnt@before"));
    };
    Ok((target.to_owned(), snapshot_name(&name)?))
}

/// Where the last `@` is.
fn at_last(bytes: &[u8]) -> Option<usize> {
    bytes.iter().rposition(|byte| *byte == b'@')
}

/// Where the first `@` is.
fn at_first(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'@')
}

/// What stands before an `@` and behind it; the target may be a path of any bytes.
fn parted(text: &Path, at: fn(&[u8]) -> Option<usize>) -> Option<(&Path, Cow<'_, str>)> {
    let bytes = text.as_os_str().as_bytes();
    // The user of a URL stands before an @ too.
    let begin = engine::path_at(text);
    let at = begin + at(&bytes[begin..])?;
    let (target, name) = bytes.split_at(Some(at).filter(|at| *at > 0)?);
    Some((Path::new(OsStr::from_bytes(target)), String::from_utf8_lossy(&name[1..])))
}

/// As [`with_snapshot`], where the name may be left out; a path that exists has none.
///
/// # Errors
/// When the name is none.
pub(crate) fn with_optional_snapshot(text: &Path) -> Result<(PathBuf, Option<String>)> {
    let text = engine::path_of(text);
    let is_there = |(target, _): &(&Path, Cow<'_, str>)| target.exists();
    let behind = &text.as_os_str().as_bytes()[engine::path_at(text)..];
    if text.exists() || at_last(behind).is_none() {
        return Ok((text.to_owned(), None));
    }
    let found = parted(text, at_last).filter(is_there);
    // Also when the name is none, which is then what is wrong.
    match found.or_else(|| parted(text, at_first).filter(is_there)) {
        Some((target, name)) => Ok((target.to_owned(), Some(snapshot_name(&name)?))),
        None => with_snapshot(text).map(|(target, name)| (target, Some(name))),
    }
}

/// What `path`, which lies in the mount on `directory`, belongs to; the daemon knows, since a path
/// may lead below `.marram`.
fn locate(client: &mut Client, directory: &Path, path: &Path) -> Result<(Source, u64, u64)> {
    let ino = std::fs::metadata(path).map_err(|error| Error::system("look at", path, error))?.ino();
    match client.locate(directory.to_owned(), ino)? {
        Answer::Located { source, ino, root } => Ok((source.parse()?, ino, root)),
        other => Err(Error::failed(format!("the daemon answered something else: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, with_optional_snapshot, with_snapshot};
    use crate::error::Kind;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    #[test]
    fn the_snapshot_stands_behind_the_last_at_sign() {
        let split = |text: &str| with_snapshot(Path::new(text)).unwrap();
        assert_eq!(split("work.pool@a"), ("work.pool".into(), "a".into()));
        assert_eq!(split("/a@b/mnt@1.2"), ("/a@b/mnt".into(), "1.2".into()));
        let url = "postgres://fs@localhost/trees";
        assert_eq!(split(&format!("{url}@a")), (url.into(), "a".into()));
        assert_eq!(with_optional_snapshot(Path::new(url)).unwrap(), (url.into(), None));
        assert_eq!(with_snapshot(Path::new(url)).unwrap_err().kind, Kind::Usage);
        for text in ["work.pool", "@a", "x@", "x@a/b", "x@a b"] {
            let error = with_snapshot(Path::new(text)).unwrap_err();
            assert_eq!(error.kind, Kind::Usage, "{text}");
        }
    }

    #[test]
    fn a_path_that_exists_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a@b");
        let named: PathBuf = folder.path().join("a");
        assert_eq!(with_optional_snapshot(&path).unwrap(), (named, Some("b".into())));
        std::fs::write(&path, "").unwrap();
        assert_eq!(with_optional_snapshot(&path).unwrap(), (path.clone(), None));
        // The last @ is the one, if what stands before it is there.
        let below = folder.path().join("x@y");
        std::fs::create_dir_all(below.join("z")).unwrap();
        std::fs::write(folder.path().join("x"), "").unwrap();
        let named = below.join("z@s");
        assert_eq!(with_optional_snapshot(&named).unwrap(), (below.join("z"), Some("s".into())));
        let bytes = folder.path().join(OsStr::from_bytes(b"\xff"));
        assert_eq!(with_optional_snapshot(&bytes).unwrap(), (bytes, None));
    }

    #[test]
    fn what_is_no_target_is_refused_with_advice() {
        let error = Target::find(Path::new("/proc")).unwrap_err();
        assert_eq!(error.kind, Kind::NotFound);
        assert!(error.hint.unwrap().contains("marram mount"));
        let error = Target::find(Path::new("/nowhere/at/all")).unwrap_err();
        assert_eq!(error.kind, Kind::NotFound);
    }
}
