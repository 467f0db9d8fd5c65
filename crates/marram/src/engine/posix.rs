//! Volumes of homes that are stores: [`Posix`] on a view.
//!
//! Any home that implements [`marram_store::Store`] opens its datasets by [`open_view`].

use super::changes::Known;
use super::damage;
use super::volume::{Exchange, Opened, Volume, VolumeOptions};
use crate::error::Result;
use crate::options::AccessTimes;
use crate::paths;
use marram_posix::{DamagedRange, Posix, PosixOptions};
use marram_store::{DatasetName, Source, Store, View};
use marram_vfs::{Error, Ino, SystemClock};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// How long an operation that finds its store full waits for space that is just being freed.
const NO_SPACE_PATIENCE: Duration = Duration::from_secs(2);

impl Volume for Posix {
    fn known(&self) -> Option<&dyn Known> {
        Some(self)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        Some(self)
    }
}

impl Known for Posix {
    fn inodes(&self) -> Vec<Ino> {
        self.known()
    }

    fn root(&self) -> Ino {
        self.root_directory()
    }

    fn count(&self) -> usize {
        self.known_count()
    }

    fn has(&self, ino: Ino) -> bool {
        self.is_known(ino)
    }

    fn place_of(&self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        self.found_at(ino).ok().flatten()
    }

    fn path_of(&self, ino: Ino) -> Option<Vec<u8>> {
        self.found_path(ino)
    }
}

impl Exchange for Posix {
    fn copy_range_from(
        &self,
        source: &dyn Volume,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> marram_vfs::Result<u64> {
        self.copy_range_from(own(source)?, from, to, len)
    }

    fn share_range_from(
        &self,
        source: &dyn Volume,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> marram_vfs::Result<u64> {
        self.share_range_from(own(source)?, from, to, len)
    }
}

/// A volume on a store as what it is.
fn own(volume: &dyn Volume) -> marram_vfs::Result<&Posix> {
    let volume: &dyn Any = volume;
    volume.downcast_ref().ok_or(Error::CrossDevice)
}

/// A volume that mounts of a home on a store show, as what it is.
///
/// # Errors
/// [`Error::CrossDevice`]: it is of a home of another kind, which mounts of that one never show.
pub(crate) fn posix(volume: Arc<dyn Volume>) -> marram_vfs::Result<Arc<Posix>> {
    let volume: Arc<dyn Any + Send + Sync> = volume;
    volume.downcast().map_err(|_| Error::CrossDevice)
}

/// Opens a view as a volume of which the directory `root` is shown. Damage is reported as that of
/// `name`. Where nobody says when reading moves access times, it does when a file has changed.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open_view(
    view: Arc<dyn View>,
    (name, root): (String, Ino),
    asked: VolumeOptions,
) -> Result<Opened> {
    let access_times = asked.access_times.unwrap_or_default();
    let on_damage = asked.on_damage;
    let options = PosixOptions {
        clock: Arc::new(SystemClock),
        root_owner: paths::own_identity(),
        access_times: match access_times {
            AccessTimes::Never => marram_posix::AccessTimes::Never,
            AccessTimes::Relative => marram_posix::AccessTimes::Relative,
            AccessTimes::Strict => marram_posix::AccessTimes::Strict,
        },
        directory_access_times: asked.directory_access_times,
        lazy_times: asked.lazy_times,
        on_damage: Arc::new(move |range: DamagedRange| on_damage(damage::row(&name, &range))),
        root,
        patience: NO_SPACE_PATIENCE,
    };
    Ok(Opened { volume: Arc::new(Posix::new(view, options)?), root, access_times })
}

/// Makes the root directory of an empty dataset, owned by the user of this process: so the first
/// mount can be read-only.
///
/// # Errors
/// When the dataset cannot be written.
pub(crate) fn make_root_directory(store: &dyn Store, dataset: &DatasetName) -> Result<()> {
    let view = store.open(&Source { dataset: dataset.clone(), snapshot: None })?;
    let options = PosixOptions { root_owner: paths::own_identity(), ..PosixOptions::default() };
    Posix::new(view, options)?;
    Ok(())
}

/// The file system of a dataset that nobody has open.
///
/// # Errors
/// It cannot be opened.
pub(crate) fn open_files(store: &dyn Store, dataset: &DatasetName) -> Result<Posix> {
    let live = Source::live(dataset.clone());
    let root = Ino(store.report(&live)?.root_object);
    Ok(Posix::new(store.open(&live)?, PosixOptions { root, ..PosixOptions::default() })?)
}
