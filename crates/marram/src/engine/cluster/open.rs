//! Cluster homes, made and opened.

use super::buckets;
use super::client::{Awaited, ClientProcess};
use super::databases::{self, New, space_at};
use crate::engine::posix::make_root_directory;
use crate::engine::source::{OpenMode, Probe};
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use crate::paths::utf8;
use crate::timestamps::now_seconds;
use marram_cluster::bucket::Bucket;
use marram_cluster::directory::Directory;
use marram_cluster::{
    Client, Cluster, Database, Lost, NewStore, Objects, OpenOptions, SpaceProbe, glance, make,
};
use marram_store::{DatasetName, Space, Store};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory for contents of blocks of a home that is being made, or open for a moment, in bytes.
pub(super) const LITTLE_CACHE_BYTES: u64 = 1 << 20;

/// A cluster home to make.
pub(crate) struct CreateCluster {
    /// Properties of the root dataset.
    pub(crate) properties: BTreeMap<String, String>,
    /// The directory in which its blocks are to lie, or the URL of a bucket, if not in the
    /// database.
    pub(crate) blocks: Option<PathBuf>,
}

/// Makes a home in a new SQLite file, or a new schema of a server.
///
/// # Errors
/// Something is there, or it cannot be made; then everything is as it was.
pub(crate) fn create(path: &Path, request: &CreateCluster) -> Result<()> {
    let id = random()?;
    let new = New::make(path)?;
    let objects = request.blocks.as_deref().map(|blocks| make_objects(blocks, &id)).transpose();
    let filled = objects.and_then(|objects| {
        let filled = fill(path, (Arc::clone(&new.database), id), objects.clone(), request);
        if let (Err(_), Some(objects)) = (&filled, objects) {
            objects.discard();
        }
        filled
    });
    if filled.is_err() {
        new.discard();
    }
    filled
}

/// Makes the place for the blocks of a home.
fn make_objects(blocks: &Path, id: &[u8; 16]) -> Result<Arc<dyn Objects>> {
    match buckets::url(blocks) {
        Some(url) => Ok(Arc::new(make_bucket(url, id)?)),
        None => Ok(Arc::new(make_directory(blocks, id)?)),
    }
}

fn make_bucket(url: &str, id: &[u8; 16]) -> Result<Bucket> {
    let made = Bucket::create(buckets::place(url)?, id, buckets::access());
    let hint = "blocks go into a bucket that is there, below a prefix that nothing has yet";
    made.map_err(|error| Error::from(error).hint(hint))
}

/// Makes the directory for the blocks of a home. What is recorded is its path from the root on, as
/// it is written: a symbolic link may lead elsewhere on each host.
fn make_directory(path: &Path, id: &[u8; 16]) -> Result<Directory> {
    let path = std::path::absolute(path).map_err(|error| Error::system("find", path, error))?;
    utf8(&path)?;
    let made = Directory::create(&path, id);
    let hint = "blocks go into an empty directory, or one that is not there yet";
    made.map_err(|error| Error::from(error).hint(hint))
}

fn fill(
    path: &Path,
    (database, id): (Arc<dyn Database>, [u8; 16]),
    objects: Option<Arc<dyn Objects>>,
    request: &CreateCluster,
) -> Result<()> {
    let [key_begin, key_end] = [random()?, random()?];
    let mut key = [0; 32];
    key[..16].copy_from_slice(&key_begin);
    key[16..].copy_from_slice(&key_end);
    make(Arc::clone(&database), &NewStore { id, key, now: now_seconds(), objects })?;
    let cluster = Cluster::open(database, options(path, (false, LITTLE_CACHE_BYTES))?)?;
    let root = DatasetName::root();
    for (name, value) in &request.properties {
        cluster.set_property(&root, name, Some(value))?;
    }
    make_root_directory(&cluster, &root)?;
    Ok(cluster.close()?)
}

pub(super) fn random() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let source = Path::new("/dev/urandom");
    File::open(source)
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| Error::system("read", source, error))?;
    Ok(bytes)
}

/// What is known of a home without opening it.
pub(super) fn probe(path: &Path) -> Result<Option<Probe>> {
    let Some(database) = databases::find(path)? else { return Ok(None) };
    let glance = glance(database).map_err(|error| Error::from(error).during(path.display()))?;
    Ok(Some(Probe { id: hexadecimal(&glance.id), label: String::new() }))
}

/// Opens a home for a moment, by another client than the one that this process is.
pub(super) fn beside(path: &Path, cache_bytes: u64) -> Result<Cluster> {
    Ok(Cluster::open(databases::open_again(path)?, options(path, (false, cache_bytes))?)?)
}

/// Opens a home for a moment, to take a client for lost: that one is not awaited.
pub(super) fn expelling(path: &Path, lost: Lost) -> Result<Cluster> {
    let awaited = Awaited::default();
    let judge = move |there: &[Client]| {
        let is_there = there.iter().any(|client| client.session == lost.session);
        let others: Vec<Client> =
            there.iter().filter(|client| client.session != lost.session).cloned().collect();
        Ok(awaited.lost(&others).into_iter().chain(is_there.then_some(lost)).collect())
    };
    let options = options(path, (false, LITTLE_CACHE_BYTES))?;
    let options = OpenOptions { judge: Arc::new(judge), ..options };
    Ok(Cluster::open(databases::open_again(path)?, options)?)
}

/// Opens a home in a database for reading alone.
pub(super) fn to_look_at(path: &Path, database: Arc<dyn Database>) -> Result<Cluster> {
    Ok(Cluster::open(database, options(path, (true, LITTLE_CACHE_BYTES))?)?)
}

/// Opens a home, beside others that have it open.
pub(super) fn open(path: &Path, mode: &OpenMode) -> Result<Cluster> {
    let database = databases::open(path)?;
    let options = options(path, (mode.read_only, mode.cache_bytes))?;
    Cluster::open(database, options).map_err(|error| Error::from(error).during(path.display()))
}

fn options(path: &Path, (read_only, cache_bytes): (bool, u64)) -> Result<OpenOptions> {
    let space = space_at(path);
    let awaited = Awaited::default();
    Ok(OpenOptions {
        session: random()?,
        name: ClientProcess::own()?.name(),
        judge: Arc::new(move |there| Ok(awaited.lost(there))),
        read_only,
        cache_bytes,
        clock: Arc::new(now_seconds),
        space: space.map(|_| space_probe(path)),
        bucket: Some(buckets::access()),
    })
}

fn space_probe(path: &Path) -> SpaceProbe {
    let path = path.to_owned();
    Arc::new(move || space_at(&path).unwrap_or(Space::UNCOUNTED))
}
