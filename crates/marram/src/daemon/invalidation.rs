//! Notifications to the kernel when a command has changed what a mount shows.
//!
//! Called after the change, from the thread that answers the command, with no lock held: the
//! kernel may have to wait for an operation that a serving thread is at.

use super::mounts::{MountTable, Served};
use super::namespace::Place;
use super::watchers::{ShownChanges, Watched};
use crate::engine::Volume;
use crate::engine::changes::{ChangedInode, Changes, Known};
use crate::engine::home::ControlDirectory;
use crate::error::{Error, Result};
use crate::mountinfo::is_shown_elsewhere;
use marram_store::Source;
use marram_vfs::{Ino, Name};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the kernel may take to forget a member that nobody uses.
const FORGET_PATIENCE: Duration = Duration::from_secs(2);
/// How often to look whether it has.
const FORGET_TICK: Duration = Duration::from_millis(5);
/// How often the kernel is asked to forget what is unused of a member: a round for each level.
const UNUSED_ROUNDS_MAX: usize = 64;

/// Has the kernel forget what it knows of a member, but for what somebody has open.
pub(super) fn forget_member(mount: &Served, place: &Place) {
    let directory = mount.namespace.control_directory_ino(place);
    if let (Some(directory), Ok(name)) = (directory, Name::new(place.name.as_bytes())) {
        mount.session.notify_gone(directory, name);
    }
}

/// Has the kernel forget what it knows of a member, but for what is in use: also what is mounted
/// from it elsewhere stays, as the view of a command is.
pub(super) fn forget_unused(mount: &Served, place: &Place) {
    let Some(source) = mount.namespace.source_at(place) else { return };
    let mut before = usize::MAX;
    for _ in 0..UNUSED_ROUNDS_MAX {
        let known = mount.namespace.known_of_member(&source);
        if known.is_empty() || known.len() >= before {
            return;
        }
        before = known.len();
        if !mount.session.notify_unused(&known) {
            // Such a kernel can only be made to drop it all, with what is mounted from it.
            if !is_view(mount, place) {
                forget_member(mount, place);
            }
            return;
        }
        std::thread::sleep(FORGET_TICK);
    }
}

/// Whether a command has its view of a member, or of something in it, so that it is in use though
/// no file of it need be.
fn is_view(mount: &Served, place: &Place) -> bool {
    is_shown_elsewhere(mount.session.device().into(), &place.path())
}

/// Where a source may be seen in control directories: a snapshot by its own name, also in the past
/// of directories, a fork by its dataset's, below the user whose it is or was.
fn places_of(mount: &Served, source: &Source) -> Vec<Place> {
    if let Some(name) = &source.snapshot {
        return mount.namespace.places_of_snapshot(name);
    }
    let name = source.dataset.to_string();
    let directories = mount.namespace.directories_of_forks().into_iter();
    directories.map(|directory| Place::at_root(directory, &name)).collect()
}

/// The volume that a mount shows a dataset as, if it does.
fn shown_by(mount: &Served, source: &Source) -> Option<Arc<dyn Volume>> {
    match mount.source == *source {
        true => Some(Arc::clone(mount.namespace.base())),
        false => mount.namespace.files_of_member(source),
    }
}

/// Snapshots or forks have come or gone: no mount shows its control directories as they were.
pub(super) fn members_changed(mounts: &MountTable, sources: &[Source]) {
    for mount in mounts.served() {
        for place in sources.iter().flat_map(|source| places_of(&mount, source)) {
            let directory = mount.namespace.place_changed(&place);
            if let (Some(directory), Ok(name)) = (directory, Name::new(place.name.as_bytes())) {
                mount.session.notify_gone(directory, name);
                mount.session.notify_inode(directory, &ChangedInode::ALL);
            }
        }
    }
}

/// Any snapshots or forks may have come or gone. The kernel asks anew for each that there is or
/// that is open, and takes away what is mounted from those alone that are gone.
pub(super) fn all_members_changed(mounts: &MountTable) {
    for mount in mounts.served() {
        let namespace = &mount.namespace;
        for directory in namespace.directories_of_forks() {
            let names = namespace.member_names(directory);
            let number = namespace.control_directory_changed(directory);
            number.iter().for_each(|number| all_names_changed(&mount, *number, &names));
        }
        let snapshots = ControlDirectory::Snapshots;
        let names = namespace.member_names(snapshots);
        let pasts = namespace.known_pasts().into_iter();
        for number in namespace.control_directory_changed(snapshots).into_iter().chain(pasts) {
            all_names_changed(&mount, number, &names);
        }
    }
}

fn all_names_changed(mount: &Served, directory: Ino, names: &BTreeSet<String>) {
    for name in names {
        if let Ok(name) = Name::new(name.as_bytes()) {
            mount.session.notify_entry(directory, name);
        }
    }
    mount.session.notify_inode(directory, &ChangedInode::ALL);
}

/// Takes what is about to be destroyed out of `.marram` of all mounts.
pub(super) fn evict(mounts: &MountTable, sources: &[Source]) {
    for mount in mounts.served() {
        for place in sources.iter().flat_map(|source| mount.namespace.evict(source)) {
            forget_member(&mount, &place);
        }
    }
}

/// Has a fork closed that is open below `.marram` and that nobody uses there, so that it can
/// be mounted on its own. A command's view of it stays.
pub(super) fn give_back(mounts: &MountTable, source: &Source) {
    for mount in mounts.served() {
        let Some(place) = mount.namespace.place_of(source) else {
            continue;
        };
        if is_view(&mount, &place) {
            continue;
        }
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
pub(super) fn volume_of(mounts: &MountTable, source: &Source) -> Option<Arc<dyn Volume>> {
    mounts.served().iter().find_map(|mount| shown_by(mount, source))
}

/// Refuses to put another state below a mount with `writeback`: how long a file is, the kernel
/// alone says there. No notification changes that, and what a program appends to a file that has
/// another length by then goes over what is in it.
///
/// # Errors
/// Such a mount shows the dataset.
pub(super) fn refuse_held_back(mounts: &MountTable, source: &Source) -> Result<()> {
    let served = mounts.served();
    let shows = |mount: &&Served| mount.writeback && shown_by(mount, source).is_some();
    let Some(mount) = served.iter().find(shows) else { return Ok(()) };
    let place = mount.directory.display();
    let what = match mount.source == *source {
        true => format!("{source} is mounted with writeback at {place}"),
        false => format!("{source} is shown at {place}, which is mounted with writeback"),
    };
    Err(Error::in_use(what).hint("unmount it first, or mount it without that option"))
}

/// Has the kernel ask anew for all that it knows of a dataset.
pub(super) fn all_changed(mounts: &MountTable, source: &Source, volume: &dyn Volume) {
    let all = |ino| ChangedInode { ino, content: ChangedInode::ALL };
    let known = |known: &dyn Known| known.inodes().into_iter().chain([known.root()]).collect();
    let inodes: Vec<Ino> = volume.known().map(known).unwrap_or_default();
    let inodes = inodes.into_iter().map(all).collect();
    changed(mounts, source, volume, &Changes { inodes, names: Vec::new() });
    // Other mounts keep their names: what is mounted in one, as a command's view, goes with them.
    for mount in mounts.served().iter().filter(|mount| shown_by(mount, source).is_some()) {
        mount.session.notify_all_names();
    }
}

/// Has the kernel let go of all content of a view that has ended: maps of its files too. What was
/// written through them comes back before this returns.
pub(super) fn forget_content(mounts: &MountTable, view: &Source) {
    for mount in mounts.served().iter().filter(|mount| mount.source == *view) {
        let known = mount.namespace.base().known().map(Known::inodes).unwrap_or_default();
        for ino in known {
            let number = mount.namespace.number_in_base(ino);
            mount.session.notify_inode(number, &ChangedInode::ALL);
        }
    }
}

/// Has the kernel ask anew for what has changed in a dataset behind its back, as far as it
/// knows it, and watchers see it; how many changes watchers could not see as they are too many.
pub(super) fn changed(
    mounts: &MountTable,
    source: &Source,
    volume: &dyn Volume,
    changes: &Changes,
) -> usize {
    let Some(known) = volume.known() else { return 0 };
    let known_names = changes.names.iter().filter(|(parent, _)| known.has(*parent));
    let names: Vec<&(Ino, Vec<u8>)> = known_names.collect();
    let shown = ShownChanges::of(volume, known, changes);
    for mount in mounts.served() {
        let number = |ino: Ino| match mount.source == *source {
            true => Some(mount.namespace.number_in_base(ino)),
            false => mount.namespace.number_in_member(source, ino),
        };
        if number(Ino::ROOT).is_none() {
            continue;
        }
        let watched = Watched { mount: &mount, source, known, number: &number };
        watched.show(&shown.removed);
        // Never all names at once: the kernel then takes away what is mounted on any directory.
        for (parent, name) in &names {
            if let (Some(parent), Ok(name)) = (number(*parent), Name::new(name)) {
                mount.session.notify_entry(parent, name);
            }
        }
        for inode in changes.inodes.iter().filter(|inode| known.has(inode.ino)) {
            if let Some(ino) = number(inode.ino) {
                mount.session.notify_inode(ino, &inode.content);
            }
        }
        watched.show(&shown.made);
        watched.show(&shown.touched);
    }
    shown.left_out
}
