//! The pool engine as commands and the daemon use it: probe, create, open, operate, close.
//!
//! Whoever opens a pool here has its lock, so that no two processes ever write to one. The lock
//! ends with the process whatever happens, so a crash leaves nothing that is in the way.

mod create;
pub(crate) mod dedup;
pub(crate) mod defragment;
mod footprints;
pub(crate) mod history;
pub(crate) mod keeping;
mod operations;
mod owners;
pub(crate) mod pass;
pub(crate) mod pool_lock;
pub(crate) mod properties;
pub(crate) mod streams;
pub(crate) mod undo;

pub(crate) use create::{CreateRequest, create};

use crate::control::protocol::{Answer, Author, Operation};
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::paths;
use crate::signatures::{self, Found};
use crate::timestamps::now_seconds;
use marram_device::{Device, FileDevice, Lock};
use marram_pool::{OpenOptions, Pool};
use marram_posix::{Posix, PosixOptions};
use marram_store::{DatasetName, Source, Store};
use marram_vfs::Ino;
use parking_lot::Mutex;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Memory for the cache if nobody says, in bytes.
pub(crate) const CACHE_BYTES_DEFAULT: u64 = 128 << 20;
/// Bytes of changes that may wait for a group commit.
const DIRTY_BYTES_MAX: usize = 64 << 20;
/// Memory for the cache of a command that opens a pool for one operation, in bytes.
const COMMAND_CACHE_BYTES: u64 = 32 << 20;
/// How often a device is opened at a path at which something else is found after that.
const OPENINGS_MAX: usize = 4;
/// What to do about a log that cannot be replayed.
const WITHOUT_LOG: &str = "`marram mount -o ro,norecovery` shows the pool as its last group commit \
    left it, a few seconds older: copy from there what you need";

/// What is known of a pool without opening it.
#[derive(Clone, Debug)]
pub(crate) struct PoolProbe {
    /// The pool, in hexadecimal.
    pub(crate) pool_id: String,
    /// Its label.
    pub(crate) label: String,
}

/// How to open a pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenMode {
    /// Never write to it.
    pub(crate) read_only: bool,
    /// Show the last group commit, without what the intent log has beyond it.
    pub(crate) skip_log: bool,
    /// Memory for the cache, in bytes.
    pub(crate) cache_bytes: u64,
}

impl OpenMode {
    /// As a command opens a pool for `operation`.
    pub(crate) fn for_operation(operation: &Operation) -> OpenMode {
        let read_only = match operation {
            Operation::List
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
            _ => false,
        };
        OpenMode::for_command(read_only)
    }

    /// As a command opens a pool that it has to itself.
    pub(crate) fn for_command(read_only: bool) -> OpenMode {
        OpenMode { read_only, skip_log: false, cache_bytes: COMMAND_CACHE_BYTES }
    }
}

/// A pool that this process has for itself.
pub(crate) struct OpenPool {
    pool: Arc<Pool>,
    device: Arc<FileDevice>,
    lock: Mutex<Option<Lock>>,
    path: PathBuf,
    identity: Identity,
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
            now_seconds: Arc::new(now_seconds),
            ..OpenOptions::default()
        };
        let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
        let pool = Pool::open(devices, options).map_err(|error| pool_error(path, error))?;
        let pool = Arc::new(undo::acting_for(&pool, &Author::of_this_process()));
        Ok(OpenPool { pool, device, lock: Mutex::new(Some(lock)), path: path.to_owned(), identity })
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
    pub(crate) fn is_block_device(&self) -> bool {
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

    /// Does what is asked.
    ///
    /// # Errors
    /// Whatever refuses it or fails.
    pub(crate) fn perform(&self, operation: &Operation) -> Result<Answer> {
        operations::perform(self, &self.pool, operation)
    }

    /// Does what is asked through `pool`, a handle of this pool that acts for somebody.
    ///
    /// # Errors
    /// Whatever refuses it or fails.
    pub(crate) fn perform_through(&self, pool: &Pool, operation: &Operation) -> Result<Answer> {
        operations::perform(self, pool, operation)
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
        self.pool.close().map_err(|error| self.not_closed(error))
    }

    /// The same, and from then on nothing is written to the device.
    ///
    /// # Errors
    /// When something could not be made durable.
    pub(crate) fn close_for_good(&self) -> Result<()> {
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
pub(crate) fn probe(path: &Path) -> Result<Option<PoolProbe>> {
    let device = FileDevice::open(path, true)?;
    let found = marram_pool::probe(&device).map_err(|error| pool_error(path, error))?;
    Ok(found.map(|probe| PoolProbe { pool_id: hexadecimal(&probe.pool_id), label: probe.label }))
}

/// Makes the root directory of a dataset that is empty, owned by whoever makes it: so that the
/// first mount can be read-only.
///
/// # Errors
/// When the dataset cannot be written.
pub(crate) fn make_root_directory(pool: &Pool, dataset: &DatasetName) -> Result<()> {
    let view = pool.open(&Source { dataset: dataset.clone(), snapshot: None })?;
    let options = PosixOptions { root_owner: paths::own_identity(), ..PosixOptions::default() };
    Posix::new(view, options)?;
    Ok(())
}

/// The file system of a dataset that nobody has open.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open_files(pool: &Pool, dataset: &DatasetName) -> Result<Posix> {
    let live = Source::live(dataset.clone());
    let root = Ino(pool.report(&live)?.root_object);
    Ok(Posix::new(pool.open(&live)?, PosixOptions { root, ..PosixOptions::default() })?)
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
        marram_pool::Error::NoPool { .. } => no_pool(path),
        marram_pool::Error::Store(error) => Error::from(error).during(path.display()),
        log @ marram_pool::Error::Log(_) => {
            Error::failed(format!("{}: {log}", path.display())).hint(WITHOUT_LOG)
        }
        other => Error::failed(other.to_string()),
    }
}

/// How many threads to use for work that can be done side by side.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZeroUsize::get).clamp(1, 16)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
