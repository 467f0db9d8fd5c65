//! The file system: how it is opened, and which operation answers which method.

use crate::acl::{guard, stored};
use crate::frame::{
    changing, damage, finding, freeing, looking, reading, reclaim, together, visiting,
};
use crate::operations::copy::{Form, Place};
use crate::operations::rename::Move;
use crate::operations::usage::OwnerReport;
use crate::operations::{
    allocate, attributes, copy, create, directory, extents, label, limits, link, lock, marks, read,
    rename, rollback, seek, shutdown, space, sync, usage, write, xattr,
};
use crate::options::PosixOptions;
use crate::volume::Volume;
use marram_format::record::{Limit, NameRule, OwnerId};
use marram_records::lists::AccessLists;
use marram_store::{DatasetName, Store, View};
use marram_vfs::{
    AccessRules, Allocate, Attributes, Caller, Capabilities, Copying, DirectoryEntry, Error,
    Extent, ExtentMap, FileLocks, FileSystem, GroupSync, HeldLock, Ino, Labelled, LockRequest,
    Marked, Marks, Name, NewNode, OwnerUsage, QuietReads, Ranges, RenameMode, Result, SeekTarget,
    SetAttributes, SetMarks, Sharing, Shutdown, SpaceReport, Stopping, StoredAccessLists,
    SyncScope, Trimming, UsageCounts, UsageOwner, WriteOptions, XattrMode,
};
use std::fmt;
use std::sync::Arc;

/// A POSIX file system on a view of an item store. See the crate.
pub struct Posix {
    pub(crate) volume: Volume,
}

impl fmt::Debug for Posix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Posix").field("options", &self.volume.options).finish_non_exhaustive()
    }
}

impl Posix {
    /// Opens the file system that a view holds; makes one if the view is empty and writable.
    ///
    /// # Errors
    /// A failed read or write; [`Error::ReadOnly`] if the view is empty and not writable;
    /// [`Error::Stale`] or [`Error::NotDirectory`] if the root of the options is no directory.
    pub fn new(view: Arc<dyn View>, options: PosixOptions) -> Result<Posix> {
        Volume::open(view, options).map(|volume| Posix { volume })
    }

    /// Takes note of properties that have been set since the file system was opened, but not of
    /// `acl`: the mount that serves it has been made for the kind of list that there was.
    pub fn reload_properties(&self) {
        self.volume.reload_properties();
    }

    /// The directory that is the root of what is shown.
    pub fn root_directory(&self) -> Ino {
        self.volume.options.root
    }

    /// Whether it has been shut down.
    pub fn is_shut_down(&self) -> bool {
        self.volume.is_shut_down()
    }

    /// Frees space of inodes that have no name and are not in use, and of files that were cut:
    /// removes about `max_items` items, and returns whether more is left to do. To be called in
    /// the background, and until it returns false before the file system is closed (what is left
    /// waits for the next time).
    ///
    /// # Errors
    /// A failed read or a full store. The inode at hand is left for the next mount, or, if there
    /// was no space even for so few, for the next call.
    pub fn reclaim_step(&self, max_items: usize) -> Result<bool> {
        reclaim::reclaim_step(&self.volume, max_items)
    }

    /// Sets what an owner may use; [`Limit::NONE`] takes its limit away. It holds from the next
    /// operation on, and may be below what the owner uses.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an owner of id 0; a failed write.
    pub fn set_limit(&self, owner: OwnerId, limit: Limit) -> Result<()> {
        limits::set_limit(&self.volume, owner, limit)
    }

    /// The same through the store of this file system, in which it is the dataset `name`: it is
    /// durable when this returns, and in the store's log of operations.
    ///
    /// # Errors
    /// As for [`Posix::set_limit`].
    pub fn set_limit_in(
        &self,
        store: &dyn Store,
        name: &DatasetName,
        limit: (OwnerId, Limit),
    ) -> Result<()> {
        limits::set_limit_in(&self.volume, store, name, limit)
    }

    /// Takes note of limits that have been set through another view of the dataset.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn reload_limits(&self) -> Result<()> {
        limits::reload_limits(&self.volume)
    }

    /// What one owner uses and may use.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn owner(&self, owner: OwnerId) -> Result<OwnerReport> {
        usage::report_of(&self.volume, owner)
    }

    /// All owners that use something or have a limit: users first, then groups, then projects,
    /// each in the order of their numbers.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn owners(&self) -> Result<Vec<OwnerReport>> {
        usage::owners(&self.volume)
    }

    /// Whether an inode is known to the caller: it was handed out and has not been forgotten. The
    /// root is always known.
    pub fn is_known(&self, ino: Ino) -> bool {
        rollback::is_known(&self.volume, ino)
    }

    /// One of the places of an inode: its directory and its name there; none of what has none, or
    /// whose record no longer leads to it.
    ///
    /// # Errors
    /// A failed read.
    pub fn found_at(&self, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>> {
        let place = damage::place_of(&self.volume, ino.0)?;
        Ok(place.map(|(directory, name)| (Ino(directory), name)))
    }

    /// One of the paths of an inode from the root, if it can be found: `/` and names between.
    pub fn found_path(&self, ino: Ino) -> Option<Vec<u8>> {
        damage::path_of(&self.volume, ino.0)
    }

    /// All inodes that were handed out and have not been forgotten.
    pub fn known(&self) -> Vec<Ino> {
        rollback::known(&self.volume)
    }

    /// How many those are.
    pub fn known_count(&self) -> usize {
        rollback::known_count(&self.volume)
    }

    /// Runs `go_back`, which lets the dataset that this file system has open go on from a snapshot
    /// of it ([`marram_store::Lineage::rollback`]), while all operations wait.
    ///
    /// # Errors
    /// Those of `go_back`, which must not have changed anything then; a file system that is
    /// read-only or shut down; a failed read afterwards: then it must be opened again.
    pub fn roll_back<E: From<Error>>(
        &self,
        go_back: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        rollback::roll_back(&self.volume, go_back)
    }

    /// As [`marram_vfs::Copying::copy_range`], from a file of another file system of the same
    /// store: blocks get this file system as another owner. Content of the source that no commit
    /// has written yet is copied.
    ///
    /// # Errors
    /// As for `copy_range`.
    pub fn copy_range_from(
        &self,
        source: &Posix,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<u64> {
        let (volume, source, from, to) = (&self.volume, &source.volume, place(from), place(to));
        changing(volume, || copy::copy_across(volume, source, from, to, len, Form::Any))
    }

    /// As [`marram_vfs::Sharing::share_range`], from a file of another file system of the same
    /// store. Blocks can be adopted once a group commit has written them, so one is made first.
    ///
    /// # Errors
    /// As for `share_range`; [`Error::Busy`] if the source is written again and again meanwhile.
    pub fn share_range_from(
        &self,
        source: &Posix,
        from: (Ino, u64),
        to: (Ino, u64),
        len: u64,
    ) -> Result<u64> {
        let (volume, source, from, to) = (&self.volume, &source.volume, place(from), place(to));
        changing(volume, || copy::share_what_is_written(volume, source, from, to, len))
    }

    /// Whether writes are noted for a [`crate::Deduplicator`].
    pub fn wants_sharing(&self) -> bool {
        self.volume.recent_writes.is_wanted()
    }

    /// Whether something was written that [`crate::Deduplicator::step`] has not looked at.
    pub fn has_recent(&self) -> bool {
        self.volume.recent_writes.has_any()
    }
}

fn place((ino, offset): (Ino, u64)) -> Place {
    Place { ino: ino.0, offset }
}

impl FileSystem for Posix {
    fn space(&self) -> Result<SpaceReport> {
        Ok(space::space(&self.volume))
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        finding(&self.volume, || directory::look_up(&self.volume, parent.0, name))
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        finding(&self.volume, || directory::parent_of(&self.volume, ino.0))
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        finding(&self.volume, || attributes::pin_existing(&self.volume, ino.0))
    }

    /// The root is found also after a shutdown: without it no mount could be taken away.
    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        if ino.0 != self.volume.root() {
            self.volume.check_running()?;
        }
        let volume = &self.volume;
        let attributes = || {
            // Beside others a merge is in sight before its entry is in the log.
            let _held = together::is_shared(volume).then(|| volume.locks.read(ino.0));
            attributes::attributes_of(volume, ino.0)
        };
        together::looking(volume, attributes, |_| {})
    }

    fn forget(&self, ino: Ino, count: u64) {
        if self.volume.pins.remove(ino.0, count) {
            self.volume.orphans.push(ino.0);
        }
    }

    fn forget_all(&self) {
        for ino in self.volume.pins.clear() {
            self.volume.orphans.push(ino);
        }
    }

    fn set_attributes(&self, _caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let volume = &self.volume;
        changing(volume, || {
            volume.check_writable()?;
            attributes::change_attributes(volume, ino.0, set)
        })
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        looking(&self.volume, || read::read_target(&self.volume, ino.0))
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.create_masked(caller, parent, name, node, 0)
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.create_anonymous_masked(caller, parent, permissions, 0)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        changing(&self.volume, || link::add_name(&self.volume, ino.0, parent.0, name))
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        freeing(&self.volume, || link::remove_name(&self.volume, parent.0, name))
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        freeing(&self.volume, || link::remove_empty(&self.volume, parent.0, name))
    }

    fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let way = Move { parent: parent.0, name, new_parent: new_parent.0, new_name };
        changing(&self.volume, || rename::move_name(&self.volume, caller, way, mode))
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        reading(&self.volume, out, |out| read::read_content(&self.volume, ino.0, offset, len, out))
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        let volume = &self.volume;
        changing(volume, || write::write_content(volume, ino.0, offset, data, options))?;
        volume.recent_writes.note(ino.0, offset, data.len() as u64);
        Ok(())
    }

    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        let volume = &self.volume;
        let began = changing(volume, || write::append_content(volume, ino.0, data, options))?;
        volume.recent_writes.note(ino.0, began, data.len() as u64);
        Ok(began)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let volume = &self.volume;
        visiting(volume, || directory::list(volume, ino.0, after, with_attributes, visit))
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        looking(&self.volume, || xattr::get_xattr(&self.volume, ino.0, name))
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        changing(&self.volume, || xattr::put_xattr(&self.volume, ino.0, name, value, mode))
    }

    fn access_rules(&self) -> AccessRules<'_> {
        match guard::guard(&self.volume) {
            Some(guard) => AccessRules::Own(guard),
            None if self.volume.lists == AccessLists::Posix => AccessRules::PosixLists,
            None => AccessRules::ModeBits,
        }
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        looking(&self.volume, || xattr::list_xattr_names(&self.volume, ino.0))
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        freeing(&self.volume, || xattr::delete_xattr(&self.volume, ino.0, name))
    }

    fn sync(&self, ino: Ino, _scope: SyncScope) -> Result<()> {
        visiting(&self.volume, || sync::sync(&self.volume, ino.0))
    }

    fn sync_all(&self) -> Result<()> {
        visiting(&self.volume, || sync::sync_all(&self.volume))
    }

    fn is_shared(&self) -> bool {
        together::is_shared(&self.volume)
    }

    fn has_company(&self) -> bool {
        together::has_company(&self.volume)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let below = self.volume.view.capabilities();
        Capabilities {
            ranges: Some(self),
            copying: Some(self),
            sharing: Some(self),
            extents: Some(self),
            trimming: below.trimming.is_some().then_some(self),
            label: below.label.is_some().then_some(self),
            usage: Some(self),
            marks: Some(self),
            access_lists: Some(self),
            group_sync: Some(self),
            patchgroups: None,
            stopping: below.halting.is_some().then_some(self),
            quiet_reads: Some(self),
            locks: below.locks.is_some().then_some(self),
            folds_names: self.volume.counters.names() == NameRule::Folded,
        }
    }
}

impl Ranges for Posix {
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let volume = &self.volume;
        freeing(volume, || allocate::allocate_content(volume, ino.0, how, offset, len))?
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        looking(&self.volume, || seek::find(&self.volume, ino.0, offset, target))
    }
}

impl Copying for Posix {
    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (from, to) = (place((from, from_offset)), place((to, to_offset)));
        changing(&self.volume, || copy::copy_content(&self.volume, from, to, len, Form::Any))
    }
}

impl Sharing for Posix {
    fn share_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (from, to) = (place((from, from_offset)), place((to, to_offset)));
        changing(&self.volume, || copy::copy_content(&self.volume, from, to, len, Form::Shared))
    }
}

impl ExtentMap for Posix {
    fn extents(&self, ino: Ino, offset: u64, max: usize) -> Result<Vec<Extent>> {
        looking(&self.volume, || extents::extents_of(&self.volume, ino.0, offset, max))
    }
}

impl Trimming for Posix {
    fn trim(&self, from: u64, to: u64, min_bytes: u64) -> Result<u64> {
        visiting(&self.volume, || space::trim(&self.volume, from, to, min_bytes))
    }
}

impl Labelled for Posix {
    fn label(&self) -> Result<String> {
        looking(&self.volume, || label::label(&self.volume))
    }

    fn set_label(&self, caller: Caller, label: &str) -> Result<()> {
        visiting(&self.volume, || label::set_label(&self.volume, caller, label))
    }
}

impl UsageCounts for Posix {
    fn usage(&self, ino: Ino, owner: UsageOwner) -> Result<OwnerUsage> {
        looking(&self.volume, || {
            self.volume.load_inode(ino.0)?;
            usage::usage_of(&self.volume, owner)
        })
    }
}

impl Marked for Posix {
    fn marks(&self, ino: Ino) -> Result<Marks> {
        looking(&self.volume, || marks::marks_of(&self.volume, ino.0))
    }

    fn set_marks(&self, ino: Ino, set: SetMarks) -> Result<()> {
        changing(&self.volume, || marks::change_marks(&self.volume, ino.0, set))
    }
}

impl StoredAccessLists for Posix {
    fn create_masked(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
        umask: u32,
    ) -> Result<Attributes> {
        let volume = &self.volume;
        changing(volume, || create::create_named(volume, caller, parent.0, name, node, umask))
    }

    fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes> {
        let volume = &self.volume;
        changing(volume, || create::create_nameless(volume, caller, parent.0, permissions, umask))
    }

    fn set_access_list(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        clear_setgid: bool,
    ) -> Result<()> {
        let volume = &self.volume;
        changing(volume, || stored::set_list(volume, ino.0, name, value, clear_setgid))
    }
}

impl GroupSync for Posix {
    fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
        sync::sync_many(&self.volume, inodes)
    }
}

impl Stopping for Posix {
    fn shutdown(&self, how: Shutdown) -> Result<()> {
        visiting(&self.volume, || shutdown::stop(&self.volume, how))
    }
}

impl QuietReads for Posix {
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        reading(&self.volume, out, |out| {
            read::read_quietly(&self.volume, ino.0, offset, len, out).map(|_| ())
        })
    }
}

impl FileLocks for Posix {
    fn set_lock(&self, ino: Ino, lock: &LockRequest) -> Result<Option<HeldLock>> {
        lock::set(&self.volume, ino.0, lock)
    }

    fn find_lock(&self, ino: Ino, lock: &LockRequest) -> Result<Option<HeldLock>> {
        lock::find(&self.volume, ino.0, lock)
    }
}
