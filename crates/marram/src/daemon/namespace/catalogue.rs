//! Where the members of a mount come from.

use crate::engine::Volume;
use crate::engine::home::ControlDirectory;
use marram_store::Source;
use marram_vfs::{Ino, Result, Timestamp};
use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A member that has been opened.
pub(in crate::daemon) struct Opened {
    /// What it is.
    pub(in crate::daemon) source: Source,
    /// Its file system.
    pub(in crate::daemon) volume: Arc<dyn Volume>,
    /// The directory that is shown as its root.
    pub(in crate::daemon) root: Ino,
    /// Tells it apart from whatever else could come to have the same numbers.
    pub(in crate::daemon) mark: u32,
    /// Dropped when it is closed.
    pub(in crate::daemon) _hold: Box<dyn Any + Send + Sync>,
}

/// Where members come from.
pub(in crate::daemon) trait Catalogue: Send + Sync {
    /// The names in a control directory, sorted.
    ///
    /// # Errors
    /// They cannot be read.
    fn names(&self, directory: ControlDirectory) -> Result<Vec<String>>;

    /// The users that have forks of their own.
    ///
    /// # Errors
    /// They cannot be read.
    fn users(&self) -> Result<BTreeSet<u32>>;

    /// Whether the snapshot of that name has a directory of this number that was made then.
    ///
    /// # Errors
    /// [`marram_vfs::Error::NotFound`], [`marram_vfs::Error::Busy`] if it is just being destroyed,
    /// or a failed read.
    fn has_directory(&self, name: &str, ino: Ino, created: Timestamp) -> Result<bool>;

    /// Opens the member of that name.
    ///
    /// # Errors
    /// [`marram_vfs::Error::NotFound`]; [`marram_vfs::Error::Busy`] if it is mounted on its own; or
    /// a failed read.
    fn open(&self, directory: ControlDirectory, name: &str) -> Result<Opened>;
}
