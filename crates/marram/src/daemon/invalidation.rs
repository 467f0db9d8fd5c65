//! What the kernel is told when a command has changed what a mount shows.
//!
//! Called after the change, from the thread that answers the command, with no lock held: the
//! kernel may have to wait for an operation that a serving thread is at.

use super::Daemon;
use super::mounts::Served;
use super::namespace::{Place, Shelf};
use crate::error::{Error, Result};
use marram_posix::{Posix, Touched, TouchedInode};
use marram_store::Source;
use marram_vfs::{Ino, Name};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the kernel may take to forget a member that nobody uses.
const FORGET_PATIENCE: Duration = Duration::from_secs(2);
/// How often to look whether it has.
const FORGET_TICK: Duration = Duration::from_millis(5);
/// From so many names on, all are said to be out of date at once, where the kernel can be told so.
const NAMES_ONE_BY_ONE_MAX: usize = 256;

/// Has the kernel forget what it knows of a member, but for what somebody has open.
pub(super) fn forget_member(mount: &Served, place: &Place) {
    let shelf = mount.namespace.shelf_ino(place.shelf);
    if let (Some(shelf), Ok(name)) = (shelf, Name::new(place.name.as_bytes())) {
        mount.session.notify_gone(shelf, name);
    }
}

/// Where a source is seen on a shelf, if it is: a snapshot by its own name, a fork by its
/// dataset's.
fn place_of(source: &Source) -> Place {
    match &source.snapshot {
        Some(name) => Place { shelf: Shelf::Snapshots, name: name.clone() },
        None => Place { shelf: Shelf::Forks, name: source.dataset.to_string() },
    }
}

/// The file system that a mount shows a dataset as, if it does.
fn shown_by(mount: &Served, source: &Source) -> Option<Arc<Posix>> {
    match mount.source == *source {
        true => Some(Arc::clone(mount.namespace.base())),
        false => mount.namespace.files_of_member(source),
    }
}

impl Daemon {
    /// Snapshots or forks have come or gone: no mount shows its shelves as they were.
    pub(super) fn shelves_changed(&self, sources: &[Source]) {
        for mount in self.mounts.served() {
            for place in sources.iter().map(place_of) {
                let shelf = mount.namespace.shelf_changed(place.shelf);
                if let (Some(shelf), Ok(name)) = (shelf, Name::new(place.name.as_bytes())) {
                    mount.session.notify_gone(shelf, name);
                    mount.session.notify_inode(shelf, &TouchedInode::ALL);
                }
            }
        }
    }

    /// Any snapshots or forks may have come or gone.
    pub(super) fn all_shelves_changed(&self) {
        for mount in self.mounts.served() {
            for shelf in [Shelf::Snapshots, Shelf::Forks] {
                if let Some(shelf) = mount.namespace.shelf_changed(shelf) {
                    mount.session.notify_inode(shelf, &TouchedInode::ALL);
                }
            }
            mount.session.notify_all_names();
        }
    }

    /// Takes what is about to be destroyed away from all who look at it below `.marram`.
    pub(super) fn evict(&self, sources: &[Source]) {
        for mount in self.mounts.served() {
            for place in sources.iter().filter_map(|source| mount.namespace.evict(source)) {
                forget_member(&mount, &place);
            }
        }
    }

    /// Has a fork closed that is open below `.marram` and that nobody uses there, so that it can
    /// be mounted on its own.
    pub(super) fn give_back(&self, source: &Source) {
        for mount in self.mounts.served() {
            let Some(place) = mount.namespace.place_of(source) else {
                continue;
            };
            forget_member(&mount, &place);
            let began = Instant::now();
            while !mount.namespace.close_if_forgotten(source) && began.elapsed() < FORGET_PATIENCE {
                std::thread::sleep(FORGET_TICK);
                // One round forgets what has nothing below it that is known.
                mount.session.notify_unused(&mount.namespace.known_of_member(source));
            }
        }
    }

    /// The file system that a dataset is open as, if it is: there is no more than one.
    pub(super) fn files_of(&self, source: &Source) -> Option<Arc<Posix>> {
        self.mounts.served().iter().find_map(|mount| shown_by(mount, source))
    }

    /// Refuses to put another state below a mount with `writeback`: how long a file is, the kernel
    /// alone says there. Nothing that it is told changes that, and what a program appends to a file
    /// that has another length by then goes over what is in it.
    ///
    /// # Errors
    /// Such a mount shows the dataset.
    pub(super) fn refuse_held_back(&self, source: &Source) -> Result<()> {
        let served = self.mounts.served();
        let shows = |mount: &&Served| mount.writeback && shown_by(mount, source).is_some();
        let Some(mount) = served.iter().find(shows) else { return Ok(()) };
        let place = mount.directory.display();
        let what = match mount.source == *source {
            true => format!("{source} is mounted with writeback at {place}"),
            false => format!("{source} is shown at {place}, which is mounted with writeback"),
        };
        Err(Error::in_use(what).hint("unmount it first, or mount it without that option"))
    }

    /// As [`Daemon::dataset_changed`], for what was looked up afterwards: if that failed, all that
    /// the kernel knows of the dataset is said to be out of date, which takes longer but is as
    /// right.
    pub(super) fn tell_changes(
        &self,
        source: &Source,
        files: &Posix,
        touched: marram_vfs::Result<Touched>,
    ) {
        match touched {
            Ok(touched) => self.dataset_changed(source, files, &touched),
            Err(error) => {
                self.log.write(&format!("all of {source} is read anew: {error}"));
                self.all_changed(source, files);
            }
        }
    }

    /// Has the kernel ask anew for all that it knows of a dataset.
    pub(super) fn all_changed(&self, source: &Source, files: &Posix) {
        let all = |ino| TouchedInode { ino, content: TouchedInode::ALL };
        let inodes = files.known().into_iter().map(all).collect();
        self.dataset_changed(source, files, &Touched { inodes, names: Vec::new() });
        for mount in self.mounts.served() {
            mount.session.notify_all_names();
        }
    }

    /// Has the kernel ask anew for what has changed in a dataset behind its back, as far as it
    /// knows it.
    pub(super) fn dataset_changed(&self, source: &Source, files: &Posix, touched: &Touched) {
        let known_names = touched.names.iter().filter(|(parent, _)| files.is_known(*parent));
        let names: Vec<&(Ino, Vec<u8>)> = known_names.collect();
        for mount in self.mounts.served() {
            let number = |ino: Ino| match mount.source == *source {
                true => Some(mount.namespace.number_in_base(ino)),
                false => mount.namespace.number_in_member(source, ino),
            };
            if number(Ino::ROOT).is_none() {
                continue;
            }
            let at_once = names.len() > NAMES_ONE_BY_ONE_MAX && mount.session.notify_all_names();
            for (parent, name) in names.iter().filter(|_| !at_once) {
                if let (Some(parent), Ok(name)) = (number(*parent), Name::new(name)) {
                    mount.session.notify_entry(parent, name);
                }
            }
            for inode in touched.inodes.iter().filter(|inode| files.is_known(inode.ino)) {
                if let Some(ino) = number(inode.ino) {
                    mount.session.notify_inode(ino, &inode.content);
                }
            }
        }
    }
}
