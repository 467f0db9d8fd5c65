//! Cluster homes in SQLite files, made and opened.

use super::client::{ClientProcess, short};
use crate::engine::posix::make_root_directory;
use crate::engine::source::{OpenMode, Probe};
use crate::error::{Error, Result};
use crate::mountinfo::{self, MountEntry};
use crate::names::hexadecimal;
use crate::timestamps::now_seconds;
use marram_cluster::sqlite::{APPLICATION_ID, SqliteDatabase};
use marram_cluster::{Client, Cluster, Database, NewStore, OpenOptions, glance, make};
use marram_store::{DatasetName, Space, Store};
use rustix::fs::statfs;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// With this a SQLite file begins.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Where in it the id of the application stands.
const APPLICATION_ID_AT: usize = 68;
/// Bytes of the header of such a file.
const SQLITE_HEADER_BYTES: usize = 100;
/// A client of another host is taken for lost when its beat stands still for so long.
const LOST_AFTER: Duration = Duration::from_secs(10);
/// How often to look at it.
const LOOK: Duration = Duration::from_millis(100);
/// Memory for contents of blocks of a home that is being made, in bytes.
const LITTLE_CACHE_BYTES: u64 = 1 << 20;
/// File systems between hosts, by what `statfs` says: NFS, SMB, CIFS, SMB2, AFS, 9P, FUSE. The
/// locks of SQLite hold on none of them.
const NETWORK: [i64; 7] =
    [0x6969, 0x517b, 0xff53_4d42, 0xfe53_4d42, 0x5346_414f, 0x0102_1997, 0x6573_5546];

/// A cluster home to make.
pub(crate) struct CreateCluster {
    /// Properties of the root dataset.
    pub(crate) properties: BTreeMap<String, String>,
}

/// Makes a home in a new SQLite file.
///
/// # Errors
/// Something is there, or it cannot be made; then everything is as it was.
pub(crate) fn create(path: &Path, request: &CreateCluster) -> Result<()> {
    // Of two that make it at once, one comes first.
    let made = File::create_new(path);
    drop(made.map_err(|error| Error::system("create", path, error))?);
    fill(path, request).inspect_err(|_| {
        // The first error is the one to tell.
        let _left_if_it_cannot_be_removed = std::fs::remove_file(path);
    })
}

fn fill(path: &Path, request: &CreateCluster) -> Result<()> {
    refuse_network(path)?;
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::create(path)?);
    let [id, key_begin, key_end] = [random()?, random()?, random()?];
    let mut key = [0; 32];
    key[..16].copy_from_slice(&key_begin);
    key[16..].copy_from_slice(&key_end);
    make(Arc::clone(&database), &NewStore { id, key, now: now_seconds() })?;
    let cluster = Cluster::open(database, options(path, None, (false, LITTLE_CACHE_BYTES))?)?;
    let root = DatasetName::root();
    for (name, value) in &request.properties {
        cluster.set_property(&root, name, Some(value))?;
    }
    make_root_directory(&cluster, &root)?;
    Ok(cluster.close()?)
}

fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let source = Path::new("/dev/urandom");
    File::open(source)
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| Error::system("read", source, error))?;
    Ok(bytes)
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

/// Whether a file is one of SQLite with the mark of a cluster home.
pub(super) fn is_marked(path: &Path) -> bool {
    let mut header = [0; SQLITE_HEADER_BYTES];
    let is_read = path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut header)).is_ok();
    let id = &header[APPLICATION_ID_AT..APPLICATION_ID_AT + 4];
    is_read && header.starts_with(MAGIC) && id == APPLICATION_ID.to_be_bytes()
}

/// What is known of a home without opening it.
pub(super) fn probe(path: &Path) -> Result<Option<Probe>> {
    if !is_marked(path) {
        return Ok(None);
    }
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::open(path)?);
    let glance = glance(database).map_err(|error| Error::from(error).during(path.display()))?;
    Ok(Some(Probe { id: hexadecimal(&glance.id), label: String::new() }))
}

/// Opens a home.
pub(super) fn open(path: &Path, mode: &OpenMode) -> Result<Cluster> {
    refuse_network(path)?;
    let database: Arc<dyn Database> = Arc::new(SqliteDatabase::open(path)?);
    let lost = refuse_client(&database).map_err(|error| error.during(path.display()))?;
    let options = options(path, lost, (mode.read_only, mode.cache_bytes))?;
    Cluster::open(database, options).map_err(|error| Error::from(error).during(path.display()))
}

/// Refuses a home that a client has open. Returns the session of one that has died.
///
/// # Errors
/// A client has it open.
pub(super) fn refuse_client(database: &Arc<dyn Database>) -> Result<Option<[u8; 16]>> {
    let client = glance(Arc::clone(database))?.client;
    client.map_or(Ok(None), |client| lost(database, client))
}

/// The session of a client that is not there any more; none if it has closed the home meanwhile.
///
/// # Errors
/// It is there.
fn lost(database: &Arc<dyn Database>, client: Client) -> Result<Option<[u8; 16]>> {
    let process = ClientProcess::parse(&client.name);
    match process.and_then(|process| process.is_there()) {
        Some(true) => return Err(in_use(&client)),
        Some(false) => return Ok(Some(client.session)),
        None => {}
    }
    let began = Instant::now();
    while began.elapsed() < LOST_AFTER {
        std::thread::sleep(LOOK);
        match glance(Arc::clone(database))?.client {
            None => return Ok(None),
            Some(now) if now != client => return Err(in_use(&now)),
            Some(_) => {}
        }
    }
    Ok(Some(client.session))
}

fn in_use(client: &Client) -> Error {
    Error::in_use(format!("the home is in use by {}", short(&client.name)))
        .hint("unmount it there first; one client at a time has it open")
}

fn options(
    path: &Path,
    lost: Option<[u8; 16]>,
    (read_only, cache_bytes): (bool, u64),
) -> Result<OpenOptions> {
    let path = path.to_owned();
    Ok(OpenOptions {
        session: random()?,
        name: ClientProcess::own()?.name(),
        lost,
        read_only,
        cache_bytes,
        clock: Arc::new(now_seconds),
        space: Some(Arc::new(move || space_at(&path).unwrap_or(Space::UNCOUNTED))),
    })
}

/// What a home takes, and what it may take beside that where its file lies.
///
/// # Errors
/// The file system there does not tell.
pub(super) fn space_at(path: &Path) -> std::io::Result<Space> {
    let (found, file) = (rustix::fs::statvfs(path)?, std::fs::metadata(path)?);
    let free_bytes = found.f_bavail * found.f_frsize;
    Ok(Space { total_bytes: file.len() + free_bytes, free_bytes })
}
