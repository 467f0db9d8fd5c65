//! A volume: a dataset or snapshot of a home that is open as a file system.
//!
//! A volume serves the operations of [`FileSystem`]. What a mount can use beside them is a
//! capability that a volume hands out or does not have.

use super::changes::Known;
use crate::control::protocol::DamageRow;
use crate::options::AccessTimes;
use marram_vfs::{FileSystem, Ino, Result};
use std::any::Any;
use std::sync::Arc;

/// A file system that a mount serves. A home recognises its own volumes by their type.
pub(crate) trait Volume: FileSystem + Any {
    /// The inodes that the kernel knows. A volume needs them if its home changes it behind the
    /// kernel's back.
    fn known(&self) -> Option<&dyn Known> {
        None
    }

    /// Copies of ranges between two volumes of the home. Without this capability such a copy is
    /// refused, and the program that asked for it copies the bytes.
    fn exchange(&self) -> Option<&dyn Exchange> {
        None
    }
}

/// Ranges of files that come from another volume of the same home.
pub(crate) trait Exchange {
    /// As [`marram_vfs::Copying::copy_range`], from an inode and offset of `source`.
    ///
    /// # Errors
    /// As there; [`marram_vfs::Error::CrossDevice`] if `source` is of another home.
    fn copy_range_from(
        &self,
        source: &dyn Volume,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<u64>;

    /// As [`marram_vfs::Sharing::share_range`], from an inode and offset of `source`.
    ///
    /// # Errors
    /// As there; [`marram_vfs::Error::CrossDevice`] if `source` is of another home.
    fn share_range_from(
        &self,
        source: &dyn Volume,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<u64>;
}

/// How a volume is opened.
#[derive(Clone)]
pub(crate) struct VolumeOptions {
    /// When reading a file moves its access time; `None` leaves it to the home.
    pub(crate) access_times: Option<AccessTimes>,
    /// Reading a directory moves its access time.
    pub(crate) directory_access_times: bool,
    /// Access times are kept in memory, and written with something else.
    pub(crate) lazy_times: bool,
    /// Called with each damaged range that an operation meets.
    pub(crate) on_damage: Arc<dyn Fn(DamageRow) + Send + Sync>,
}

/// A volume that has been opened.
pub(crate) struct Opened {
    /// The file system.
    pub(crate) volume: Arc<dyn Volume>,
    /// The directory that is shown as its root.
    pub(crate) root: Ino,
    /// When reading a file moves its access time.
    pub(crate) access_times: AccessTimes,
}
