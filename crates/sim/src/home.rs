//! Where a file system under test lives.

use crate::clock::HistoryClock;
use marram_model::Model;
use marram_vfs::{FileSystem, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Result of what a home does; an error is a failure of the test, in words.
pub type HomeResult<T> = Result<T, String>;

/// A place where one writable file system lives with its snapshots. The driver lets go of a file
/// system before it asks for a remount or a destruction of what it shows.
pub trait Home {
    /// The file system as it is mounted now.
    fn file_system(&self) -> Arc<dyn FileSystem>;

    /// Unmounts and mounts again: everything stays, pins go.
    fn remount(&mut self) -> HomeResult<()>;

    /// Stops without a warning and mounts what is durable: the state of the last commit, sync,
    /// snapshot, clone or destruction. Returns false, and does nothing, if the home cannot.
    fn crash(&mut self) -> HomeResult<bool> {
        Ok(false)
    }

    /// Whether it may make everything durable at any time, without being asked.
    fn commits_by_itself(&self) -> bool {
        false
    }

    /// Writes everything to where it is durable. Nobody can tell a difference.
    fn commit(&mut self) -> HomeResult<()>;

    /// Keeps the present state under `name`.
    fn snapshot(&mut self, name: &str) -> HomeResult<()>;

    /// Opens a kept state; it refuses changes.
    fn open_snapshot(&self, name: &str) -> HomeResult<Arc<dyn FileSystem>>;

    /// Destroys a kept state.
    fn destroy_snapshot(&mut self, name: &str) -> HomeResult<()>;

    /// Lets a directory of the file system go back to what it was in a kept state; what it answers.
    /// `None` if the home cannot.
    fn roll_back_directory(
        &mut self,
        _snapshot: &str,
        _directory: Ino,
    ) -> HomeResult<Option<marram_vfs::Result<()>>> {
        Ok(None)
    }

    /// Makes a writable file system that begins as the kept state `snapshot`, and opens it.
    fn clone_snapshot(&mut self, snapshot: &str, clone: &str) -> HomeResult<Arc<dyn FileSystem>>;

    /// Destroys what [`Home::clone_snapshot`] made.
    fn destroy_clone(&mut self, clone: &str) -> HomeResult<()>;

    /// Checks whatever the home can check of itself; called when all operations have been
    /// compared.
    fn check(&mut self) -> HomeResult<()> {
        Ok(())
    }
}

/// A model as home: for tests of the driver itself.
pub struct ModelHome {
    live: Arc<Model>,
    kept: BTreeMap<String, Model>,
}

impl ModelHome {
    /// An empty one.
    pub fn new(clock: Arc<HistoryClock>) -> ModelHome {
        ModelHome { live: Arc::new(Model::new(clock)), kept: BTreeMap::new() }
    }

    fn kept(&self, name: &str) -> HomeResult<&Model> {
        self.kept.get(name).ok_or_else(|| format!("no snapshot {name}"))
    }
}

impl Home for ModelHome {
    fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.live) as Arc<dyn FileSystem>
    }

    fn remount(&mut self) -> HomeResult<()> {
        self.live.forget_all();
        Ok(())
    }

    fn commit(&mut self) -> HomeResult<()> {
        Ok(())
    }

    fn snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.kept.insert(name.to_owned(), self.live.snapshot());
        Ok(())
    }

    fn open_snapshot(&self, name: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.kept(name)?.snapshot()))
    }

    fn destroy_snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.kept(name)?;
        self.kept.remove(name);
        Ok(())
    }

    fn roll_back_directory(
        &mut self,
        snapshot: &str,
        directory: Ino,
    ) -> HomeResult<Option<marram_vfs::Result<()>>> {
        Ok(Some(self.live.roll_back_directory(self.kept(snapshot)?, directory)))
    }

    fn clone_snapshot(&mut self, snapshot: &str, _clone: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(Arc::new(self.kept(snapshot)?.fork()))
    }

    fn destroy_clone(&mut self, _clone: &str) -> HomeResult<()> {
        Ok(())
    }
}
