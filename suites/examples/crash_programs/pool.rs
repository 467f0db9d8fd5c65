//! The pool under test: made, opened, verified, in memory.

use marram_check::{CheckOptions, Finding};
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, POOL_BYTES_MIN, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_sim::Random;
use marram_store::{DatasetName, Properties, Source, Store};
use std::fmt::Display;
use std::sync::Arc;

/// Failures in words.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Sizes of records; the seed chooses one.
const RECORD_SIZES: [&str; 3] = ["4K", "16K", "128K"];

/// Most findings of the verifier that are printed for one image.
const FINDINGS_TOLD_MAX: usize = 5;

/// An error as words.
pub(crate) fn words(error: impl Display) -> String {
    error.to_string()
}

/// A device with an empty pool on it, of the smallest size that there is.
pub(crate) fn empty_pool(seed: u64) -> Result<Arc<[u8]>> {
    let device = Arc::new(MemoryDevice::new(usize::try_from(POOL_BYTES_MIN).map_err(words)?));
    let record_size = Random::new(seed).pick(&RECORD_SIZES);
    let options = CreateOptions {
        label: "crash".to_owned(),
        properties: Properties([("recordsize".to_owned(), record_size.to_owned())].into()),
        pool_id: [9; 16],
        secret: 7,
        now_seconds: 1_700_000_000,
    };
    create(&[Arc::clone(&device) as Arc<dyn Device>], &options).map_err(words)?;
    Ok(device.snapshot().into())
}

/// Opens the pool on a device, and the file system in it.
pub(crate) fn open(device: Arc<dyn Device>) -> Result<(Arc<Pool>, Arc<Posix>)> {
    let options = OpenOptions { cache_bytes: 4 << 20, ..OpenOptions::new(|| 0) };
    let pool = Pool::open(vec![device], options).map_err(words)?;
    let source = Source { dataset: DatasetName::root(), snapshot: None };
    let view = pool.open(&source).map_err(words)?;
    let posix = Posix::new(view, PosixOptions::default()).map_err(words)?;
    Ok((pool, Arc::new(posix)))
}

/// The offline verifier has nothing to say; with `content` it reads all blocks of content.
pub(crate) fn verify(device: &dyn Device, content: bool) -> Result<()> {
    let mut findings = String::new();
    let mut count = 0;
    let mut note = |finding: Finding| {
        count += 1;
        if count <= FINDINGS_TOLD_MAX {
            findings += &format!("\n  {finding}");
        }
    };
    let options = CheckOptions { read_data: content, snapshots: true };
    marram_check::check(device, &options, &mut note).map_err(words)?;
    if count == 0 { Ok(()) } else { Err(format!("the verifier finds {count} things:{findings}")) }
}
