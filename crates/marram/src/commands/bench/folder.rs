//! The folder that the race takes place in: a pool and its mount, and beside them a plain folder.
//! It goes with its owner: first the mount, then the files.

use crate::commands::mount::{MountPlan, mount};
use crate::commands::unmount::unmount;
use crate::engine::{self, CreateRequest};
use crate::error::{Error, Result};
use crate::options::MountOptions;
use crate::output::say;
use std::path::{Path, PathBuf};

/// The pool's file takes only the space that is used.
const POOL_BYTES: u64 = 4 << 30;

/// A folder with everything in it.
pub(super) struct BenchFolder {
    path: PathBuf,
    is_gone: bool,
}

impl BenchFolder {
    /// Makes it in `directory`, with a mounted pool.
    pub(super) fn make(directory: &Path) -> Result<Self> {
        let path = directory.join(format!(".marram-bench-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| Error::system("make", &path, error))?;
        let made = Self { path, is_gone: false };
        for folder in [made.beside(), made.mounted()] {
            std::fs::create_dir(&folder).map_err(|error| Error::system("make", &folder, error))?;
        }
        let request = CreateRequest {
            size_bytes: Some(POOL_BYTES),
            label: "bench".to_owned(),
            ..CreateRequest::default()
        };
        engine::create(&made.pool(), &request)?;
        mount(&MountPlan {
            target: made.pool(),
            then: Vec::new(),
            directory: made.mounted(),
            options: MountOptions::default(),
            foreground: false,
            log: Some(made.path.join("daemon.log")),
        })?;
        Ok(made)
    }

    fn pool(&self) -> PathBuf {
        self.path.join("pool")
    }

    /// Where the pool is mounted.
    pub(super) fn mounted(&self) -> PathBuf {
        self.path.join("mounted")
    }

    /// The plain folder.
    pub(super) fn beside(&self) -> PathBuf {
        self.path.join("beside")
    }

    /// Takes all of it away.
    ///
    /// # Errors
    /// What could not be taken away, and where it is.
    pub(super) fn remove(mut self) -> Result<()> {
        self.is_gone = true;
        self.clear()
    }

    fn clear(&self) -> Result<()> {
        let mounted = self.mounted();
        let is_there = crate::mountinfo::mount_on(&mounted)?.is_some();
        if is_there {
            unmount(&mounted, false)?;
        }
        std::fs::remove_dir_all(&self.path)
            .map_err(|error| Error::system("remove", &self.path, error))
    }
}

impl Drop for BenchFolder {
    fn drop(&mut self) {
        if !self.is_gone
            && let Err(error) = self.clear()
        {
            say(&format!("warning: {} is left: {error}", self.path.display()));
        }
    }
}
