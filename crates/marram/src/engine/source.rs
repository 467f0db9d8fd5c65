//! Sources: how a home is recognised at a path, and how it is opened.
//!
//! Each engine has a [`Kind`] in the table of `kinds.rs`.

use super::home::Home;
use crate::control::protocol::Operation;
use crate::error::{Error, Result};
use crate::options::{Consistency, Durable};
use marram_cluster::{mongo, postgres};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory for the cache of a daemon if nobody says, in bytes.
pub(crate) const CACHE_BYTES_DEFAULT: u64 = 128 << 20;
/// Memory for the cache of a command that opens a home for one operation, in bytes.
const COMMAND_CACHE_BYTES: u64 = 32 << 20;
/// Most seconds between two group commits, if nobody says.
const COMMIT_SECONDS_DEFAULT: u64 = 5;
/// Seconds between two passes of rewriting, if nobody says.
const REWRITING_SECONDS_DEFAULT: u64 = 3600;

/// With this a home in a SQLite file is named.
const SQLITE_SCHEME: &[u8] = b"sqlite:";

/// The file that `sqlite:FILE` names; none of a path that is written as such.
pub(crate) fn sqlite_file(text: &Path) -> Option<&Path> {
    let file = text.as_os_str().as_bytes().strip_prefix(SQLITE_SCHEME)?;
    Some(Path::new(OsStr::from_bytes(file))).filter(|file| !file.as_os_str().is_empty())
}

/// The path at which a home is that is named by a path or as `sqlite:FILE`.
pub(crate) fn path_of(text: &Path) -> &Path {
    sqlite_file(text).unwrap_or(text)
}

/// A database of a server, as a URL names it.
#[derive(Clone, Debug)]
pub(super) enum Server {
    /// A schema of PostgreSQL.
    Postgres(postgres::Place),
    /// A database of MongoDB.
    Mongo(mongo::Place),
}

impl fmt::Display for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Postgres(place) => place.fmt(out),
            Server::Mongo(place) => place.fmt(out),
        }
    }
}

/// The URL of a home on a server, as it is always written; none of all other texts.
///
/// # Errors
/// It is meant to be one, and is none.
pub(crate) fn server_url(text: &Path) -> Result<Option<PathBuf>> {
    let place = server(text)?;
    Ok(place.map(|place| PathBuf::from(place.to_string())))
}

/// The place on a server that a path is, if it is one.
///
/// # Errors
/// It is meant to be one, and is none.
pub(super) fn server(path: &Path) -> Result<Option<Server>> {
    let wrong = |hint: &'static str| {
        move |error: marram_store::Error| Error::usage(error.to_string()).hint(hint)
    };
    let text = path.to_str().unwrap_or("");
    if postgres::Place::is_meant(text) {
        let hint =
            "write postgres://USER@HOST:PORT/DATABASE, with ?schema=NAME behind it if needed";
        return Ok(Some(Server::Postgres(text.parse().map_err(wrong(hint))?)));
    }
    if mongo::Place::is_meant(text) {
        let hint = "write mongodb://USER@HOST:PORT/DATABASE";
        return Ok(Some(Server::Mongo(text.parse().map_err(wrong(hint))?)));
    }
    Ok(None)
}

/// Where in a text its path begins: behind the user and host of a URL.
pub(crate) fn path_at(text: &Path) -> usize {
    let at = |text: &str| postgres::Place::path_at(text).or_else(|| mongo::Place::path_at(text));
    text.to_str().and_then(at).unwrap_or(0)
}

/// What is known of a home without opening it.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// Its number among all homes, in hexadecimal.
    pub(crate) id: String,
    /// Its label.
    pub(crate) label: String,
}

/// A kind of home, as sources are recognised and opened.
pub(super) trait Kind: Sync {
    /// Looks whether there is a home of this kind at `path`, without opening it.
    ///
    /// # Errors
    /// It cannot be read, or is of a version that cannot be read.
    fn probe(&self, path: &Path) -> Result<Option<Probe>>;

    /// Opens the home at `path` and locks it.
    ///
    /// # Errors
    /// There is none, another process has it (named), or it cannot be read.
    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn Home>>;

    /// The mount options that mean something to it, of those that do not to all.
    fn takes(&self) -> &'static [&'static str];
}

/// How often a home works in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Most seconds between two group commits.
    pub(crate) commit_seconds: u64,
    /// Seconds between two passes of rewriting; 0 is never.
    pub(crate) rewriting_seconds: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            commit_seconds: COMMIT_SECONDS_DEFAULT,
            rewriting_seconds: REWRITING_SECONDS_DEFAULT,
        }
    }
}

/// Options that have a default, and mean nothing to some homes: whether they were asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    /// How much memory for the cache.
    pub(crate) cache: bool,
    /// How long a change may wait.
    pub(crate) commit: bool,
    /// How often files are rewritten.
    pub(crate) defragment: bool,
}

/// How to open a home.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMode {
    /// Never write to it.
    pub(crate) read_only: bool,
    /// Show the last group commit, without what the intent log has beyond it.
    pub(crate) skip_log: bool,
    /// Memory for the cache, in bytes.
    pub(crate) cache_bytes: u64,
    /// How often it works in the background.
    pub(crate) pace: Pace,
    /// Which of these were asked for, and are not the default.
    pub(crate) asked: Asked,
    /// Which order of writes is asked for.
    pub(crate) consistency: Option<Consistency>,
    /// Where in a file or device an image begins, in bytes.
    pub(crate) offset_bytes: Option<u64>,
    /// Every user of an image may do what only the superuser may.
    pub(crate) fakeroot: bool,
    /// Names of an image are the same when only their case differs.
    pub(crate) casefold: bool,
    /// When what has returned is to survive a power cut.
    pub(crate) durable: Option<Durable>,
}

impl OpenMode {
    /// As a command opens a home for `operation`.
    pub(crate) fn for_operation(operation: &Operation) -> OpenMode {
        let read_only = match operation {
            Operation::List
            | Operation::ForkPlace { .. }
            | Operation::Versions(_)
            | Operation::Log
            | Operation::Space { .. }
            | Operation::Footprints(_)
            | Operation::Sharing
            | Operation::Get { .. }
            | Operation::Owners { .. }
            | Operation::Partials
            | Operation::Status => true,
            Operation::Destroy { dry_run, .. } => *dry_run,
            Operation::Thin(request) => request.dry_run,
            Operation::Grants(order) => order.change.is_none(),
            _ => false,
        };
        OpenMode::for_command(read_only)
    }

    /// As a command opens a home that it has to itself.
    pub(crate) fn for_command(read_only: bool) -> OpenMode {
        OpenMode {
            read_only,
            skip_log: false,
            cache_bytes: COMMAND_CACHE_BYTES,
            pace: Pace::default(),
            asked: Asked::default(),
            consistency: None,
            offset_bytes: None,
            fakeroot: false,
            casefold: false,
            durable: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{path_at, path_of, server_url, sqlite_file};
    use std::path::Path;

    #[test]
    fn a_scheme_names_a_file_and_is_no_part_of_its_path() {
        let file = |text: &'static str| sqlite_file(Path::new(text));
        assert_eq!(file("sqlite:/srv/work.db"), Some(Path::new("/srv/work.db")));
        assert_eq!(file("sqlite:work.db"), Some(Path::new("work.db")));
        for text in ["sqlite:", "./sqlite:work.db", "work.db", "postgres://fs@db/trees"] {
            assert_eq!(file(text), None, "{text}");
            assert_eq!(path_of(Path::new(text)), Path::new(text));
        }
    }

    #[test]
    fn a_url_of_a_server_is_always_written_in_one_way() {
        let url = |text: &'static str| server_url(Path::new(text)).unwrap();
        let said = url("postgresql://fs@localhost:5432/trees?schema=marram").unwrap();
        assert_eq!(said, Path::new("postgres://fs@localhost/trees"));
        let said = url("mongodb://fs@localhost:27017/trees?authSource=admin").unwrap();
        assert_eq!(said, Path::new("mongodb://fs@localhost/trees"));
        assert_eq!(url("sqlite:work.db"), None);
        assert_eq!(url("./postgres:"), None);
        let error = server_url(Path::new("postgres://fs:secret@localhost/trees")).unwrap_err();
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        assert_eq!(path_at(Path::new("postgres://fs@localhost/trees@a")), 23);
        assert_eq!(path_at(Path::new("mongodb://fs@localhost/trees@a")), 22);
        assert_eq!(path_at(Path::new("/a@b")), 0);
    }
}
