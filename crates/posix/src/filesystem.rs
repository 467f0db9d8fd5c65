//! The file system: what it holds, how it is opened, and which module does what.

use crate::copy::{Form, Place};
use crate::counters::InodeCounters;
use crate::dedup::Recent;
use crate::lazy::LazyTimes;
use crate::locks::Locks;
use crate::options::PosixOptions;
use crate::orphans::Orphans;
use crate::pins::Pins;
use crate::promises::Promises;
use crate::quota::Limits;
use crate::rename::Move;
use marram_format::record::{Inode, InodeKind, NameRule};
use marram_records::failure::{from_record, from_store, from_sync};
use marram_records::inode::{check_living_directory, inode_key, new_inode, time};
use marram_records::lists::{AccessLists, ListName};
use marram_records::sections::record_bytes;
use marram_records::usage::{Share, UsageChange, make_sums};
use marram_store::{Batch, Counter, Item, View};
use marram_vfs::{
    AccessRules, Allocate, Attributes, Caller, Capabilities, Copying, DirectoryEntry, Error,
    Extent, ExtentMap, FileSystem, GroupSync, Ino, Labelled, Marked, Marks, Name, NewNode,
    OwnerUsage, QuietReads, Ranges, RenameMode, Result, SeekTarget, SetAttributes, SetMarks,
    Sharing, Shutdown, SpaceReport, Stopping, StoredAccessLists, SyncScope, Trimming, UsageCounts,
    UsageOwner, WriteOptions, XattrMode,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Permissions of a new root directory.
const ROOT_PERMISSIONS: u32 = 0o755;
/// Space that a new file is taken to need when it is told how many can still be made, in bytes:
/// its inode, its name and a block. Empty ones take less.
const NEW_FILE_BYTES: u64 = 4096;

/// A POSIX file system on a view of an item store. See the crate.
pub struct Posix {
    pub(crate) view: Arc<dyn View>,
    pub(crate) options: PosixOptions,
    pub(crate) locks: Locks,
    pub(crate) pins: Pins,
    pub(crate) counters: InodeCounters,
    pub(crate) limits: Limits,
    pub(crate) promises: Promises,
    pub(crate) orphans: Orphans,
    pub(crate) lazy_times: LazyTimes,
    pub(crate) recent: Recent,
    pub(crate) shut_down: AtomicBool,
    /// Which access control lists are obeyed.
    pub(crate) lists: AccessLists,
    record_bytes: AtomicU64,
}

impl fmt::Debug for Posix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Posix").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Posix {
    /// Opens the file system that a view holds; makes one if the view is empty and writable.
    ///
    /// # Errors
    /// A failed read or write; [`Error::ReadOnly`] if the view is empty and not writable;
    /// [`Error::Stale`] or [`Error::NotDirectory`] if the root of the options is no directory.
    pub fn new(view: Arc<dyn View>, options: PosixOptions) -> Result<Posix> {
        let counters = match InodeCounters::open(&*view)? {
            Some(counters) => counters,
            None => make_root(&*view, &options)?,
        };
        check_root(&*view, options.root)?;
        make_sums(&*view)?;
        let limits = Limits::open(&*view)?;
        let properties = view.properties();
        let record_bytes = AtomicU64::new(record_bytes(&properties));
        let lists = AccessLists::of(&properties);
        Ok(Posix {
            view,
            options,
            locks: Locks::new(),
            pins: Pins::new(),
            counters,
            limits,
            promises: Promises::default(),
            orphans: Orphans::new(),
            lazy_times: LazyTimes::new(),
            recent: Recent::of(&properties),
            shut_down: AtomicBool::new(false),
            lists,
            record_bytes,
        })
    }

    /// Takes note of properties that have been set since the file system was opened, but not of
    /// `acl`: the mount that serves it has been made for the kind of list that there was.
    pub fn reload_properties(&self) {
        let properties = self.view.properties();
        self.record_bytes.store(record_bytes(&properties), Ordering::Relaxed);
        self.recent.set(&properties);
    }

    /// The directory that is the root of what is shown.
    pub fn root_directory(&self) -> Ino {
        self.options.root
    }

    /// The number of the root directory.
    pub(crate) fn root(&self) -> u64 {
        self.options.root.0
    }

    /// Largest new block of a file, in bytes: a power of two.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes.load(Ordering::Relaxed)
    }
}

fn check_root(view: &dyn View, root: Ino) -> Result<()> {
    let item = view.get(inode_key(root.0)).map_err(from_store)?.ok_or(Error::Stale)?;
    let inode = Inode::decode(&item.value).map_err(|error| from_record(root.0, &error))?;
    check_living_directory(&inode)
}

fn make_root(view: &dyn View, options: &PosixOptions) -> Result<InodeCounters> {
    if !view.writable() {
        return Err(Error::ReadOnly);
    }
    let now = time(options.clock.now());
    let seed = xxhash_rust::xxh3::xxh3_64_with_seed(
        &now.seconds.to_le_bytes(),
        u64::from(now.nanoseconds),
    );
    let mut batch = Batch::new();
    let folds = view.properties().0.get("casefold").is_some_and(|value| value == "on");
    let names = if folds { NameRule::Folded } else { NameRule::Exact };
    let counters = InodeCounters::create(seed, names, &mut batch);
    let mut root = new_inode(InodeKind::Directory, ROOT_PERMISSIONS, Ino::ROOT.0, now);
    root.links = 2;
    root.uid = options.root_owner.uid;
    root.gid = options.root_owner.gid;
    batch.put(inode_key(Ino::ROOT.0), Item::plain(root.encode().to_vec()));
    let mut usage = UsageChange::default();
    usage.note(None, Some(Share::of(&root)));
    usage.put(&mut batch, |_, _| Counter::UNLIMITED);
    view.apply(batch).map_err(from_store)?;
    Ok(counters)
}

impl Posix {
    /// The label of the store, if it has one.
    fn labelled(&self) -> Result<&dyn marram_store::Labelled> {
        self.view.capabilities().label.ok_or(Error::NotSupported)
    }
}

impl FileSystem for Posix {
    fn space(&self) -> Result<SpaceReport> {
        let space = self.view.space();
        Ok(SpaceReport {
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            inodes_used: self.counters.inodes(),
            inodes_free: space.free_bytes / NEW_FILE_BYTES,
        })
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.check_running()?;
        self.look_up(parent.0, name)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.check_running()?;
        self.parent_of(ino.0)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.check_running()?;
        self.pin_existing(ino.0)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.check_running_or_root(ino)?;
        self.attributes_of(ino.0)
    }

    fn forget(&self, ino: Ino, count: u64) {
        if self.pins.remove(ino.0, count) {
            self.orphans.push(ino.0);
        }
    }

    fn forget_all(&self) {
        for ino in self.pins.clear() {
            self.orphans.push(ino);
        }
    }

    fn set_attributes(&self, _caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.check_running()?;
        self.check_writable()?;
        self.durably(|| self.with_reclaim(|| self.change_attributes(ino.0, set)))
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.check_running()?;
        self.read_target(ino.0)
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
        self.check_running()?;
        self.durably(|| self.with_reclaim(|| self.add_name(ino.0, parent.0, name)))
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.check_running()?;
        self.durably(|| self.remove_name(parent.0, name))
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.check_running()?;
        self.durably(|| self.remove_empty(parent.0, name))
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
        self.check_running()?;
        let way = Move { parent: parent.0, name, new_parent: new_parent.0, new_name };
        self.durably(|| self.with_reclaim(|| self.move_name(caller, way, mode)))
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.check_running()?;
        self.read_content(ino.0, offset, len, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        self.write_data(ino.0, offset, (data, options.memory), options)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.check_running()?;
        self.list(ino.0, after, with_attributes, visit)
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.check_running()?;
        self.get_xattr(ino.0, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.check_running()?;
        self.durably(|| self.with_reclaim(|| self.put_xattr(ino.0, name, value, mode)))
    }

    fn access_rules(&self) -> AccessRules<'_> {
        match self.guard() {
            Some(guard) => AccessRules::Own(guard),
            None if self.lists == AccessLists::Posix => AccessRules::PosixLists,
            None => AccessRules::ModeBits,
        }
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.check_running()?;
        self.list_xattr_names(ino.0)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.check_running()?;
        self.durably(|| self.delete_xattr(ino.0, name))
    }

    fn sync(&self, ino: Ino, _scope: SyncScope) -> Result<()> {
        self.check_running()?;
        self.load_inode(ino.0)?;
        self.write_lazy_time(ino.0);
        self.view.sync().map_err(from_sync)
    }

    fn sync_all(&self) -> Result<()> {
        self.check_running()?;
        self.write_lazy_times();
        match self.reclaim_for_sync() {
            // Who asks for the free space next is to be told of what was removed before.
            true => self.view.commit().map_err(from_sync),
            false => self.view.sync().map_err(from_sync),
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let below = self.view.capabilities();
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
            stopping: below.halting.is_some().then_some(self),
            quiet_reads: Some(self),
            folds_names: self.counters.names() == NameRule::Folded,
        }
    }
}

impl Ranges for Posix {
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.check_running()?;
        self.durably(|| self.allocate_content(ino.0, how, offset, len))
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        self.check_running()?;
        self.find(ino.0, offset, target)
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
        self.check_running()?;
        let from = Place { ino: from.0, offset: from_offset };
        let to = Place { ino: to.0, offset: to_offset };
        self.durably(|| self.with_reclaim(|| self.copy_content(from, to, len, Form::Any)))
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
        self.check_running()?;
        let from = Place { ino: from.0, offset: from_offset };
        let to = Place { ino: to.0, offset: to_offset };
        self.durably(|| self.with_reclaim(|| self.copy_content(from, to, len, Form::Shared)))
    }
}

impl ExtentMap for Posix {
    fn extents(&self, ino: Ino, offset: u64, max: usize) -> Result<Vec<Extent>> {
        self.check_running()?;
        self.extents_of(ino.0, offset, max)
    }
}

impl Trimming for Posix {
    fn trim(&self, from: u64, to: u64, min_bytes: u64) -> Result<u64> {
        self.check_running()?;
        self.check_writable()?;
        let trimming = self.view.capabilities().trimming.ok_or(Error::NotSupported)?;
        let _committed_by_trim = self.reclaim_for_sync();
        trimming.trim(from, to, min_bytes).map_err(from_store)
    }
}

impl Labelled for Posix {
    fn label(&self) -> Result<String> {
        self.check_running()?;
        self.labelled().map(|it| it.label())
    }

    fn set_label(&self, caller: Caller, label: &str) -> Result<()> {
        self.check_running()?;
        let labelled = self.labelled()?;
        self.check_writable()?;
        labelled.set_label(label, caller.uid).map_err(|error| match error {
            marram_store::Error::Invalid(_) => Error::InvalidArgument("label"),
            other => from_store(other),
        })
    }
}

impl UsageCounts for Posix {
    fn usage(&self, ino: Ino, owner: UsageOwner) -> Result<OwnerUsage> {
        self.check_running()?;
        self.load_inode(ino.0)?;
        self.usage_of(owner)
    }
}

impl Marked for Posix {
    fn marks(&self, ino: Ino) -> Result<Marks> {
        self.check_running()?;
        self.marks_of(ino.0)
    }

    fn set_marks(&self, ino: Ino, set: SetMarks) -> Result<()> {
        self.check_running()?;
        self.durably(|| self.with_reclaim(|| self.change_marks(ino.0, set)))
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
        self.check_running()?;
        let make = || self.create_named(caller, parent.0, name, node, umask);
        self.durably(|| self.with_reclaim(make))
    }

    fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes> {
        self.check_running()?;
        let make = || self.create_nameless(caller, parent.0, permissions, umask);
        self.durably(|| self.with_reclaim(make))
    }

    fn set_access_list(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        clear_setgid: bool,
    ) -> Result<()> {
        self.check_running()?;
        let list = ListName::of(name).ok_or(Error::NotSupported)?;
        let set = || self.write_list(ino.0, list, value, XattrMode::Any, clear_setgid);
        self.durably(|| self.with_reclaim(set))
    }
}

impl GroupSync for Posix {
    fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
        let find = |(ino, _): &(Ino, SyncScope)| {
            self.check_running()?;
            self.load_inode(ino.0).map(|_| ())
        };
        let found: Vec<Result<()>> = inodes.iter().map(find).collect();
        if found.iter().all(Result::is_err) {
            return found;
        }
        for (ino, _) in inodes {
            self.write_lazy_time(ino.0);
        }
        let synced = self.check_running().and_then(|()| self.view.sync().map_err(from_sync));
        found.into_iter().map(|found| found.and_then(|()| synced.clone())).collect()
    }
}

impl Stopping for Posix {
    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.stop(how)
    }
}

impl QuietReads for Posix {
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.check_running()?;
        self.read_quietly(ino.0, offset, len, out).map(|_| ())
    }
}
