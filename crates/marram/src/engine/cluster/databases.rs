//! The databases in which homes lie: SQLite files, and databases of servers.
//!
//! A path names either: one that reads as the URL of a server is that, all others are files.

use super::open::random;
use super::password;
use crate::engine::source::{Server, server};
use crate::error::{Error, Result};
use crate::mountinfo::{self, MountEntry};
use crate::names::hexadecimal;
use marram_cluster::Database;
use marram_cluster::mongo::MongoDatabase;
use marram_cluster::postgres::PostgresDatabase;
use marram_cluster::server::{Access, PATIENCE};
use marram_cluster::sqlite::{APPLICATION_ID, SqliteDatabase};
use marram_store::Space;
use rustix::fs::statfs;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// With this a SQLite file begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Where in it the id of the application stands.
const APPLICATION_ID_AT: usize = 68;
/// Bytes of the header of such a file.
const SQLITE_HEADER_BYTES: usize = 100;
/// File systems between hosts, by what `statfs` says: NFS, SMB, CIFS, SMB2, AFS, 9P, FUSE. The
/// locks of SQLite hold on none of them.
const NETWORK: [i64; 7] =
    [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x5346_414f, 0x0102_1997, 0x6573_5546];

fn access<P: 'static>(
    place: P,
    password: fn(&P) -> marram_store::Result<Vec<u8>>,
) -> Result<Access<P>> {
    let name = format!("marram-{}", hexadecimal(&random()?));
    let begin = Instant::now();
    let elapsed = Arc::new(move || begin.elapsed());
    Ok(Access { place, password: Arc::new(password), name, patience: PATIENCE, elapsed })
}

/// A database with empty tables, which is removed again if it is not kept.
pub(super) struct New {
    pub(super) database: Arc<dyn Database>,
    remove: Box<dyn Fn()>,
}

impl New {
    /// Makes one.
    ///
    /// # Errors
    /// Something is there, or it cannot be made; then everything is as it was.
    pub(super) fn make(path: &Path) -> Result<New> {
        match server(path)? {
            Some(Server::Postgres(place)) => {
                let access = access(place, password::of_postgres)?;
                Ok(New::on_server(PostgresDatabase::create(access)?, PostgresDatabase::remove))
            }
            Some(Server::Mongo(place)) => {
                let access = access(place, password::of_mongo)?;
                Ok(New::on_server(MongoDatabase::create(access)?, MongoDatabase::remove))
            }
            None => New::in_file(path),
        }
    }

    fn on_server<D: Database + 'static>(
        database: D,
        remove: fn(&D) -> marram_store::Result<()>,
    ) -> New {
        let database = Arc::new(database);
        let made = Arc::clone(&database);
        let remove = Box::new(move || {
            // The first error is the one to tell.
            let _left_if_it_cannot_be_removed = remove(&made);
        });
        New { database, remove }
    }

    fn in_file(path: &Path) -> Result<New> {
        // Of two that make it at once, one comes first.
        let made = File::create_new(path);
        drop(made.map_err(|error| Error::system("create", path, error))?);
        let file = path.to_owned();
        let remove = Box::new(move || {
            let _left_if_it_cannot_be_removed = std::fs::remove_file(&file);
        });
        let database =
            refuse_network(path).and_then(|()| Ok(Arc::new(SqliteDatabase::create(path)?)));
        match database {
            Ok(database) => Ok(New { database, remove }),
            Err(error) => {
                remove();
                Err(error)
            }
        }
    }

    /// Removes it.
    pub(super) fn discard(self) {
        drop(self.database);
        (self.remove)();
    }
}

/// The database of the home at a path; none if there is no home.
///
/// # Errors
/// It cannot be opened.
pub(super) fn find(path: &Path) -> Result<Option<Arc<dyn Database>>> {
    match server(path)? {
        Some(Server::Postgres(place)) => {
            opened(path, PostgresDatabase::open(access(place, password::of_postgres)?))
        }
        Some(Server::Mongo(place)) => {
            opened(path, MongoDatabase::open(access(place, password::of_mongo)?))
        }
        None if is_marked(path) => Ok(Some(Arc::new(SqliteDatabase::open(path)?))),
        None => Ok(None),
    }
}

fn opened<D: Database + 'static>(
    path: &Path,
    database: marram_store::Result<Option<D>>,
) -> Result<Option<Arc<dyn Database>>> {
    let database = database.map_err(|error| Error::from(error).during(path.display()))?;
    Ok(database.map(|database| Arc::new(database) as Arc<dyn Database>))
}

/// The same, where there has to be one.
///
/// # Errors
/// There is none, it cannot be opened, or SQLite's locks do not hold where it lies.
pub(super) fn open(path: &Path) -> Result<Arc<dyn Database>> {
    if server(path)?.is_none() {
        refuse_network(path)?;
    }
    find(path)?.ok_or_else(|| none_at(path))
}

/// The same for a process that has the home open already. It never opens the file of SQLite by
/// itself: to close it would let go of all locks that SQLite has in this process.
///
/// # Errors
/// As for [`open`].
pub(super) fn open_again(path: &Path) -> Result<Arc<dyn Database>> {
    match server(path)? {
        Some(_) => open(path),
        None => Ok(Arc::new(SqliteDatabase::open(path)?)),
    }
}

/// The error for a path at which there is no home.
pub(in crate::engine) fn none_at(path: &Path) -> Error {
    let text = format!("there is no cluster home at {}", path.display());
    match server(path) {
        Ok(Some(_)) => Error::not_found(text).hint("`marram create URL` makes one"),
        _ => Error::failed(text).hint("`marram create sqlite:FILE` makes one"),
    }
}

/// Whether a file is one of SQLite with the mark of a cluster home.
pub(super) fn is_marked(path: &Path) -> bool {
    let mut header = [0; SQLITE_HEADER_BYTES];
    let is_read = path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_ok();
    let id = &header[APPLICATION_ID_AT..APPLICATION_ID_AT + 4];
    is_read && header.starts_with(MAGIC) && id == APPLICATION_ID.to_be_bytes()
}

/// What a home takes, and what it may take beside that where its file lies; none of a server,
/// which does not tell.
pub(super) fn space_at(path: &Path) -> Option<Space> {
    if server(path).is_ok_and(|place| place.is_some()) {
        return None;
    }
    let (found, file) = (rustix::fs::statvfs(path).ok()?, std::fs::metadata(path).ok()?);
    let free_bytes = found.f_bavail * found.f_frsize;
    Some(Space { total_bytes: file.len() + free_bytes, free_bytes })
}

fn refuse_network(path: &Path) -> Result<()> {
    let found = statfs(path).map_err(|error| Error::system("look at", path, error))?;
    let is_own =
        || mountinfo::mount_of(path).ok().flatten().is_some_and(|it| MountEntry::is_marram(&it));
    // The type is a long, and these numbers have 32 bits.
    let kind = found.f_type & 0xffff_ffff;
    if !NETWORK.contains(&kind) || is_own() {
        return Ok(());
    }
    let text = format!("{} lies on a file system between hosts", path.display());
    Err(Error::usage(text).hint("SQLite's locks do not hold there: use a disk of this host"))
}
