//! The members of one mount, opened from the home as the mount is.

use super::mounts::Borrowed;
use super::namespace::{Catalogue, Opened};
use super::state::Daemon;
use crate::engine::home::{ControlDirectory, Snapshots};
use crate::error::Kind;
use crate::options::{AccessTimes, MountOptions};
use marram_store::{DatasetName, Source};
use marram_vfs::{Error, Ino, Result, Timestamp};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

/// The members of a mount of a dataset.
pub(super) struct HomeCatalogue {
    daemon: Weak<Daemon>,
    dataset: DatasetName,
    options: MountOptions,
    access_times: AccessTimes,
}

impl HomeCatalogue {
    /// The members of a mount of `dataset`, whose forks are opened as the mount is.
    pub(super) fn new(
        daemon: &Arc<Daemon>,
        dataset: &DatasetName,
        options: &MountOptions,
        access_times: AccessTimes,
    ) -> HomeCatalogue {
        HomeCatalogue {
            daemon: Arc::downgrade(daemon),
            dataset: dataset.clone(),
            options: options.clone(),
            access_times,
        }
    }

    fn daemon(&self) -> Result<Arc<Daemon>> {
        self.daemon.upgrade().ok_or(Error::Stale)
    }
}

fn snapshots(daemon: &Daemon) -> Result<&dyn Snapshots> {
    daemon.home.snapshots().ok_or(Error::NotFound)
}

impl Catalogue for HomeCatalogue {
    fn names(&self, directory: ControlDirectory) -> Result<Vec<String>> {
        snapshots(&*self.daemon()?)?.names(&self.dataset, directory)
    }

    fn users(&self) -> Result<BTreeSet<u32>> {
        snapshots(&*self.daemon()?)?.users(&self.dataset)
    }

    fn has_directory(&self, name: &str, ino: Ino, created: Timestamp) -> Result<bool> {
        let daemon = self.daemon()?;
        let source = Source { dataset: self.dataset.clone(), snapshot: Some(name.to_owned()) };
        daemon.mounts.refuse_withheld(&source)?;
        snapshots(&daemon)?.has_directory(&source, ino, created)
    }

    fn open(&self, directory: ControlDirectory, name: &str) -> Result<Opened> {
        let daemon = self.daemon()?;
        let member = snapshots(&daemon)?.find(&self.dataset, directory, name)?;
        let (source, root, mark) = (member.source, member.root, member.mark);
        daemon.mounts.refuse_withheld(&source)?;
        let hold: Option<Borrowed> = match directory {
            ControlDirectory::Snapshots => None,
            _ => Some(Borrowed::take(&daemon.mounts, &source)?),
        };
        let access_times = match directory {
            ControlDirectory::Snapshots => AccessTimes::Never,
            _ => self.access_times,
        };
        let opened = daemon.open(&source, Some(access_times), &self.options);
        let opened = opened.map_err(|error| match error.kind {
            // It went since it was found.
            Kind::NotFound => Error::NotFound,
            _ => Error::Io(error.to_string()),
        })?;
        Ok(Opened { source, volume: opened.volume, root, mark, _hold: Box::new(hold) })
    }
}
