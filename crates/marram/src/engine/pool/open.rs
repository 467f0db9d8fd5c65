//! A pool that this process has for itself: opened, locked and closed.
//!
//! A process that opens a pool here has its lock, so that no two processes ever write to one. The
//! lock ends with the process whatever happens, so a crash leaves nothing that is in the way.

use super::known_damage::KnownDamage;
use crate::control::protocol::{Author, DamageRow};
use crate::engine::source::{OpenMode, Pace, Probe};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::names::hexadecimal;
use crate::process::threads;
use crate::signatures::{self, Found};
use crate::timestamps::now_seconds;
use marram_device::{Device, FileDevice, Lock};
use marram_pool::{OpenOptions, Pool};
use parking_lot::Mutex;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of changes that may wait for a group commit.
const DIRTY_BYTES_MAX: usize = 64 << 20;
/// How often a device is opened at a path at which something else is found after that.
const OPENINGS_MAX: usize = 4;
/// What to do about a log that cannot be replayed.
const WITHOUT_LOG: &str = "`marram mount -o ro,norecovery` shows the pool as its last group commit \
    left it, a few seconds older: copy from there what you need";

/// A pool that this process has for itself.
pub(crate) struct OpenPool {
    pool: Arc<Pool>,
    device: Arc<FileDevice>,
    lock: Mutex<Option<Lock>>,
    path: PathBuf,
    identity: Identity,
    mode: OpenMode,
    known_damage: Arc<KnownDamage>,
}

impl OpenPool {
    /// Opens the pool at `path` and locks it.
    ///
    /// # Errors
    /// When it is none, somebody has it (named), or it cannot be read.
    pub(crate) fn open(path: &Path, mode: &OpenMode) -> Result<OpenPool> {
        let (device, identity) = open_device(path, mode.read_only)?;
        let device = Arc::new(device);
        let lock = device.lock_exclusive().map_err(|error| Error::in_use(error.to_string()))?;
        let options = OpenOptions {
            read_only: mode.read_only,
            skip_log: mode.skip_log,
            cache_bytes: usize::try_from(mode.cache_bytes).unwrap_or(usize::MAX),
            dirty_bytes_max: DIRTY_BYTES_MAX,
            threads: threads(),
            ..OpenOptions::new(now_seconds)
        };
        let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
        let pool = Pool::open(devices, options).map_err(|error| match (error, probe(path)) {
            (marram_pool::Error::NoPool { .. }, Ok(None)) => no_pool(path),
            (marram_pool::Error::NoPool { .. }, Err(error)) => error,
            (error, _) => pool_error(path, error),
        })?;
        let pool = Arc::new(acting_for(&pool, &Author::of_this_process()));
        let known_damage = Arc::new(KnownDamage::of(&hexadecimal(&pool.status().pool_id)));
        known_damage.look_again(&pool);
        Ok(OpenPool {
            pool,
            device,
            lock: Mutex::new(Some(lock)),
            path: path.to_owned(),
            identity,
            mode: *mode,
            known_damage,
        })
    }

    /// Where damage is remembered that a volume meets.
    pub(super) fn known_damage(&self) -> &Arc<KnownDamage> {
        &self.known_damage
    }

    /// All damage that is known. What was found below files, and is of no file, comes last.
    pub(super) fn damage(&self) -> Vec<DamageRow> {
        let mut rows = self.known_damage.rows();
        for found in self.pool.status().damage {
            let row = DamageRow::of_no_file(found.place, found.reason);
            if !rows.iter().any(|known| known.is_same(&row)) {
                rows.push(row);
            }
        }
        rows
    }

    /// Remembers what was found of no file, and forgets what is damaged no more.
    fn remember_damage(&self) {
        self.damage().into_iter().for_each(|row| self.known_damage.add(row));
        self.known_damage.look_again(&self.pool);
    }

    /// How often it works in the background.
    pub(crate) fn pace(&self) -> Pace {
        self.mode.pace
    }

    /// Whether it is never written to.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mode.read_only
    }

    /// Makes the device larger, if it is a file.
    ///
    /// # Errors
    /// It is larger already, or cannot become that large.
    pub(super) fn grow_device(&self, size_bytes: u64) -> Result<()> {
        let has_bytes = self.device.size()?;
        if size_bytes >= has_bytes {
            return Ok(self.device.grow(size_bytes)?);
        }
        let path = self.path.display();
        Err(Error::usage(format!(
            "{path} has {has_bytes} bytes, and a pool does not become smaller: {size_bytes} are \
             asked for"
        ))
        .hint(
            "leave --size out to take into use all that there is; for a smaller pool make a new \
             one, and move the data with `marram send` and `marram receive`",
        ))
    }

    /// The engine.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What was there when it was opened.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Whether it is a block device.
    pub(crate) fn lies_on_block_device(&self) -> bool {
        self.device.is_block_device()
    }

    /// Lets the kernel take the block device for a mount; the lock stays.
    pub(crate) fn release_claim(&self) {
        if let Some(lock) = self.lock.lock().as_ref() {
            lock.release_claim();
        }
    }

    /// Takes the block device back from the kernel after that mount; whether it could be had.
    pub(crate) fn claim_again(&self) -> bool {
        self.lock.lock().as_ref().is_none_or(Lock::claim_again)
    }

    /// Lets others have the pool, which must be closed.
    pub(crate) fn unlock(&self) {
        *self.lock.lock() = None;
    }

    /// Makes everything durable. The lock stays until this is dropped or unlocked.
    ///
    /// # Errors
    /// When something could not be made durable.
    pub(crate) fn close(&self) -> Result<()> {
        self.remember_damage();
        self.pool.close().map_err(|error| self.not_closed(error))
    }

    /// The same, and from then on nothing is written to the device.
    ///
    /// # Errors
    /// When something could not be made durable.
    pub(crate) fn close_for_good(&self) -> Result<()> {
        self.remember_damage();
        self.pool.close_for_good().map_err(|error| self.not_closed(error))
    }

    fn not_closed(&self, error: marram_store::Error) -> Error {
        Error::from(error).during(format!("closing {}", self.path.display()))
    }
}

/// Opens what is at `path`, and tells what that is: nothing else has come there meanwhile.
fn open_device(path: &Path, read_only: bool) -> Result<(FileDevice, Identity)> {
    for _ in 0..OPENINGS_MAX {
        let before = Identity::of(path).ok();
        let device = FileDevice::open(path, read_only)?;
        let identity = Identity::of(path).map_err(|error| Error::system("look at", path, error))?;
        if before == Some(identity) {
            return Ok((device, identity));
        }
    }
    Err(Error::in_use(format!("{} is just being replaced", path.display())).hint("try again"))
}

/// Looks whether there is a pool at `path`, without opening it.
///
/// # Errors
/// When it cannot be read, or holds a pool that this version cannot read.
pub(crate) fn probe(path: &Path) -> Result<Option<Probe>> {
    let device = FileDevice::open(path, true)?;
    let found = marram_pool::probe(&device).map_err(|error| pool_error(path, error))?;
    Ok(found.map(|probe| Probe { id: hexadecimal(&probe.pool_id), label: probe.label }))
}

/// The error that says that there is no pool at `path`, and what is there instead.
pub(crate) fn no_pool(path: &Path) -> Error {
    let what = match found_at(path) {
        Ok((Found::Known(name), _)) => format!("it holds {name}"),
        Ok((_, 0)) => "it is empty".to_owned(),
        Ok((Found::Nothing, _)) => "it begins with zeros only".to_owned(),
        Ok((Found::Unknown, _)) => "it begins with something else".to_owned(),
        Err(error) => format!("{error}"),
    };
    Error::failed(format!("{} is no Marram pool: {what}", path.display()))
        .hint("`marram create` makes a pool")
}

/// What is at `path`, and its size in bytes.
fn found_at(path: &Path) -> Result<(Found, u64)> {
    let size = FileDevice::open(path, true)?.size()?;
    let file = File::open(path).map_err(|error| Error::system("open", path, error))?;
    let found = signatures::find(&file, size);
    Ok((found.map_err(|error| Error::system("read", path, error))?, size))
}

fn pool_error(path: &Path, error: marram_pool::Error) -> Error {
    match error {
        marram_pool::Error::NoPool { reason, .. } => {
            Error::failed(format!("{} is a damaged Marram pool: {reason}", path.display())).hint(
                "`marram check` tells what is damaged; bring back a copy of it if you have one",
            )
        }
        marram_pool::Error::Store(error) => Error::from(error).during(path.display()),
        log @ marram_pool::Error::Log(_) => {
            Error::failed(format!("{}: {log}", path.display())).hint(WITHOUT_LOG)
        }
        other => Error::failed(other.to_string()),
    }
}

/// The same pool, which enters operations into its log as those of `author`.
pub(crate) fn acting_for(pool: &Pool, author: &Author) -> Pool {
    let Author { user, command, .. } = author.clone();
    pool.acting_for(marram_pool::Author { user: Some(user), command })
}
