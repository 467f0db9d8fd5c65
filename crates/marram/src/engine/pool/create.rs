//! Makes a pool where there was none, or where the user insists.
//!
//! Nothing is overwritten that somebody may want: a pool, a file system, any bytes at all need
//! `--force`, and a device that is in use is refused whatever the user says. When making the pool
//! fails, a file that was made for it is taken away again.

use super::open::probe;
use super::pool_lock;
use crate::engine::posix::make_root_directory;
use crate::error::{Error, Result};
use crate::signatures::{self, Found};
use crate::timestamps::now_seconds;
use marram_device::{Device, FileDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool};
use marram_store::{DatasetName, Properties};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// A pool to make.
#[derive(Clone, Debug, Default)]
pub(crate) struct CreateRequest {
    /// Size of a new file, in bytes.
    pub(crate) size_bytes: Option<u64>,
    /// Take all the space of a new file now.
    pub(crate) preallocate: bool,
    /// Overwrite what is there.
    pub(crate) force: bool,
    /// Its label.
    pub(crate) label: String,
    /// Properties of the root dataset.
    pub(crate) properties: BTreeMap<String, String>,
}

/// Makes a pool at `path`; returns its size in bytes.
///
/// # Errors
/// When something is there, or it cannot be made; then everything is as it was.
pub(crate) fn create(path: &Path, request: &CreateRequest) -> Result<u64> {
    match std::fs::metadata(path) {
        Ok(_) => create_on_existing(path, request),
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_file(path, request),
        Err(error) => Err(Error::system("look at", path, error)),
    }
}

fn create_file(path: &Path, request: &CreateRequest) -> Result<u64> {
    let size_bytes = request.size_bytes.ok_or_else(|| {
        Error::usage(format!("{} does not exist, and no size was given", path.display()))
            .hint(format!("`marram create {} --size 20G` makes a file of 20 GiB", path.display()))
    })?;
    let device = FileDevice::create(path, size_bytes, request.preallocate)?;
    write_pool(device, request).inspect_err(|_| {
        // The first error is the one to tell.
        let _left_if_it_cannot_be_removed = std::fs::remove_file(path);
    })
}

fn create_on_existing(path: &Path, request: &CreateRequest) -> Result<u64> {
    let device = FileDevice::open(path, false)?;
    let _lock = pool_lock::take(&device)?;
    pool_lock::check_not_looped(path)?;
    let size = device.size()?;
    if !request.force {
        check_unused(path, size)?;
    }
    let empty = size == 0 && !device.is_block_device();
    match request.size_bytes {
        Some(wanted) if empty => set_size(path, wanted, request.preallocate)?,
        Some(wanted) if wanted != size => {
            return Err(Error::usage(format!(
                "{} has {size} bytes already, not the {wanted} of --size",
                path.display()
            ))
            .hint("leave --size out to use it as it is"));
        }
        None if empty => {
            return Err(Error::usage(format!("{} is empty", path.display()))
                .hint("say how large the pool is to be with --size"));
        }
        _ => {}
    }
    let written = write_pool(device, request);
    if written.is_err() && empty {
        // It was empty, and is so again; the first error is the one to tell.
        let _left_if_it_cannot_be_cut = set_size(path, 0, false);
    }
    written
}

fn write_pool(device: FileDevice, request: &CreateRequest) -> Result<u64> {
    let size = device.size()?;
    let options = CreateOptions {
        label: request.label.clone(),
        properties: Properties(request.properties.clone()),
        pool_id: random_bytes()?,
        secret: u64::from_le_bytes(random_bytes()?),
        now_seconds: now_seconds(),
    };
    let path = device.path().to_owned();
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(device)];
    let failed = |error| match error {
        marram_pool::Error::Store(error) => Error::from(error).during(path.display()),
        other => Error::failed(format!("cannot make a pool in {}: {other}", path.display())),
    };
    marram_pool::create(&devices, &options).map_err(failed)?;
    let opening = OpenOptions::new(now_seconds);
    let pool = Pool::open(devices, opening).map_err(failed)?;
    make_root_directory(&*pool, &DatasetName::root())?;
    pool.close()?;
    Ok(size)
}

fn set_size(path: &Path, size_bytes: u64, preallocate: bool) -> Result<()> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(|error| Error::system("open", path, error))?;
    let sized = if preallocate && size_bytes > 0 {
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&file, flags, 0, size_bytes).map_err(io::Error::from)
    } else {
        file.set_len(size_bytes)
    };
    sized.map_err(|error| Error::system("size", path, error))
}

/// Refuses what holds something, and says what.
fn check_unused(path: &Path, size: u64) -> Result<()> {
    let refused = |what: &str| {
        Error::failed(format!("{} holds {what}", path.display()))
            .hint("use --force to overwrite it; all that it holds is lost then")
    };
    match probe(path) {
        Ok(None) => {}
        Ok(Some(pool)) if pool.label.is_empty() => return Err(refused("a Marram pool")),
        Ok(Some(pool)) => {
            return Err(refused(&format!("a Marram pool with the label {:?}", pool.label)));
        }
        Err(error) => return Err(refused(&format!("a Marram pool ({error})"))),
    }
    let file = File::open(path).map_err(|error| Error::system("open", path, error))?;
    match signatures::find(&file, size) {
        Ok(Found::Nothing) => Ok(()),
        Ok(Found::Known(name)) => Err(refused(name)),
        Ok(Found::Unknown) => Err(refused("data that is not zero")),
        Err(error) => Err(Error::system("read", path, error)),
    }
}

/// Bytes that nobody can guess.
fn random_bytes<const COUNT: usize>() -> Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    let source = Path::new("/dev/urandom");
    File::open(source)
        .and_then(|mut random| random.read_exact(&mut bytes))
        .map_err(|error| Error::system("read", source, error))?;
    Ok(bytes)
}
