//! The datasets and snapshots of a pool, opened.

use crate::engine::posix::open_view;
use crate::engine::volume::{Opened, VolumeOptions};
use crate::error::Result;
use crate::options::AccessTimes;
use marram_pool::Pool;
use marram_store::{Source, Store};
use marram_vfs::Ino;

/// Opens a dataset or snapshot to be mounted.
///
/// # Errors
/// It is not there, or cannot be read.
pub(super) fn open(pool: &Pool, source: &Source, asked: VolumeOptions) -> Result<Opened> {
    let access_times = match asked.access_times {
        Some(access_times) => access_times,
        None => access_times_of(pool, source)?,
    };
    let root = pool.report(source).map_or(Ino::ROOT, |report| Ino(report.root_object));
    let asked = VolumeOptions { access_times: Some(access_times), ..asked };
    open_view(pool.open(source)?, (source.to_string(), root), asked)
}

/// What the property `atime` of a dataset says.
fn access_times_of(pool: &Pool, source: &Source) -> Result<AccessTimes> {
    let properties = pool.properties(&source.dataset)?;
    Ok(match properties.get("atime").map(|(value, _)| value.as_str()) {
        Some("off") => AccessTimes::Never,
        Some("strict") => AccessTimes::Strict,
        _ => AccessTimes::Relative,
    })
}
