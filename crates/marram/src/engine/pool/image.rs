//! Streams in files, shown as a volume: for reading, and with no pool behind them.

use super::streams;
use crate::control::protocol::DamageRow;
use crate::engine::posix::open_view;
use crate::engine::volume::{Opened, Volume, VolumeOptions};
use crate::error::Result;
use crate::options::AccessTimes;
use marram_vfs::Ino;
use std::path::PathBuf;
use std::sync::Arc;

/// A snapshot that streams hold.
pub(crate) struct Shown {
    /// `DATASET@SNAPSHOT`, as the last of the streams names it.
    pub(crate) source: String,
    /// The file system.
    pub(crate) volume: Arc<dyn Volume>,
    /// The directory that is shown as its root.
    pub(crate) root: Ino,
    /// How many items there are, all verified.
    pub(crate) items: usize,
    /// Bytes of memory that the index of them takes.
    pub(crate) memory_bytes: usize,
}

/// Verifies streams in files, the first a full one and each other one going on from the one before,
/// and opens what they hold. `on_damage` is called with each damaged range that a read meets.
///
/// # Errors
/// Whatever is wrong with one, or does not fit.
pub(crate) fn show(
    files: &[PathBuf],
    on_damage: Arc<dyn Fn(DamageRow) + Send + Sync>,
) -> Result<Shown> {
    let image = streams::open_image(files)?;
    let source = format!("{}@{}", image.begin().dataset_name, image.begin().snapshot_name);
    let root = Ino(image.begin().root_object);
    let (items, memory_bytes) = (image.items(), image.memory_bytes());
    let options = VolumeOptions {
        access_times: Some(AccessTimes::Never),
        directory_access_times: false,
        lazy_times: false,
        on_damage,
    };
    let Opened { volume, root, .. } = open_view(Arc::new(image), (source.clone(), root), options)?;
    Ok(Shown { source, volume, root, items, memory_bytes })
}
