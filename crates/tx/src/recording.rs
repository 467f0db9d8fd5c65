//! A file system that notes what is read of it, and that ends with its transaction.
//!
//! The kernel asks at least once for whatever it shows, since its caches of a new mount are empty
//! and the mount keeps neither names nor attributes (permissions are checked here, see `control`).
//! What depends on the state counts as a read too: that a name was free to be made, that a
//! directory was empty.
//!
//! The invariant: each operation is noted before its answer goes out, and none begins once
//! [`Recording::end`] has returned.

mod capabilities;
mod control;

use crate::read_set::{Aspect, ReadSet};
use marram_vfs::{
    AccessRules, Attributes, Caller, Capabilities, DirectoryEntry, Error, FileSystem, Ino, Kind,
    Name, NewNode, RenameMode, Result, SetAttributes, SpaceReport, SyncScope, WriteOptions,
    XattrMode,
};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module.
pub struct Recording {
    files: Arc<dyn FileSystem>,
    /// The inode of the dataset that is shown as the root.
    root: Ino,
    reads: Mutex<ReadSet>,
    operations: AtomicU64,
    has_ended: RwLock<bool>,
    /// Something came after the end that a program had written, and believes to be there.
    has_lost: AtomicBool,
}

impl Recording {
    /// Notes what is read of `files`, of which the dataset's directory `root` is shown with the
    /// number [`Ino::ROOT`], and takes the number of what would have that otherwise.
    pub fn new(files: Arc<dyn FileSystem>, root: Ino, reads: ReadSet) -> Recording {
        Recording {
            files,
            root,
            reads: Mutex::new(reads),
            operations: AtomicU64::new(0),
            has_ended: RwLock::new(false),
            has_lost: AtomicBool::new(false),
        }
    }

    /// Ends it: waits for the operations that are going on, and refuses all that come later with
    /// [`Error::Stale`].
    pub fn end(&self) {
        *self.has_ended.write() = true;
    }

    /// Whether the kernel has handed over, after the end, what a program had written before: by a
    /// map of a file, since all else is handed over before the program goes on.
    pub fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// What was read so far.
    pub fn reads(&self) -> ReadSet {
        self.reads.lock().clone()
    }

    /// What was read by something inside of this counts as read here, and as use of it.
    pub fn take_over(&self, reads: &ReadSet) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.reads.lock().take_over(reads);
    }

    /// Of how many inodes anything was read so far.
    pub fn inodes_read(&self) -> usize {
        self.reads.lock().inodes()
    }

    /// How many operations have begun: whether it is in use shows in that this grows.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// The turn of an operation.
    fn begin(&self) -> Result<RwLockReadGuard<'_, bool>> {
        self.operations.fetch_add(1, Ordering::Relaxed);
        let going = self.has_ended.read();
        if *going { Err(Error::Stale) } else { Ok(going) }
    }

    /// The number in the dataset.
    fn inner(&self, ino: Ino) -> Ino {
        match ino {
            Ino::ROOT => self.root,
            ino if ino == self.root => Ino::ROOT,
            ino => ino,
        }
    }

    fn note(&self, ino: Ino, aspect: Aspect) {
        self.reads.lock().note(self.inner(ino), aspect);
    }

    /// Where case does not count, the whole directory stands for a name.
    fn note_name(&self, directory: Ino, name: Name<'_>) {
        match self.files.folds_names() {
            true => self.note(directory, Aspect::Listing),
            false => self.reads.lock().note_name(self.inner(directory), name.as_bytes()),
        }
    }

    fn note_xattr(&self, ino: Ino, name: &[u8]) {
        self.reads.lock().note_xattr(self.inner(ino), name);
    }

    /// What a name leads to, without a pin.
    fn named(&self, parent: Ino, name: Name<'_>) -> Option<Attributes> {
        let found = self.files.lookup(parent, name).ok()?;
        self.files.forget(found.ino, 1);
        Some(found)
    }

    /// A directory that goes has to be empty.
    fn note_emptiness(&self, parent: Ino, name: Name<'_>) {
        if let Some(gone) = self.named(parent, name).filter(|it| it.kind == Kind::Directory) {
            self.note(gone.ino, Aspect::Listing);
        }
    }

    /// An attribute that is an access control list is one of the rights too.
    fn note_changed_xattr(&self, ino: Ino, name: &[u8]) {
        self.note_xattr(ino, name);
        self.note(ino, Aspect::Rights);
    }
}

impl FileSystem for Recording {
    fn space(&self) -> Result<SpaceReport> {
        let _going = self.begin()?;
        self.files.space()
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note_name(parent, name);
        self.files.lookup(parent, name)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Attributes);
        self.files.parent(ino)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Attributes);
        self.files.pin(ino)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Attributes);
        self.files.attributes(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.files.forget(ino, count);
    }

    fn forget_all(&self) {
        self.files.forget_all();
    }

    fn set_attributes(&self, caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Rights);
        let times = [set.accessed, set.modified].iter().any(Option::is_some);
        if times || set.changed.is_some() || set.size.is_some() {
            self.note(ino, Aspect::Attributes);
        }
        if set.size.is_some() {
            self.note(ino, Aspect::Content);
        }
        self.files.set_attributes(caller, ino, set)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Content);
        self.files.read_link(ino)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note_name(parent, name);
        self.note(parent, Aspect::Rights);
        self.files.create(caller, parent, name, node)
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note(parent, Aspect::Rights);
        self.files.create_anonymous(caller, parent, permissions)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Attributes);
        self.note_name(parent, name);
        self.files.link(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let _going = self.begin()?;
        self.note_name(parent, name);
        self.files.unlink(parent, name)
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let _going = self.begin()?;
        self.note_name(parent, name);
        self.note_emptiness(parent, name);
        self.files.remove_directory(parent, name)
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
        let _going = self.begin()?;
        self.note_name(parent, name);
        self.note_name(new_parent, new_name);
        if mode == RenameMode::Replace || mode == RenameMode::Whiteout {
            self.note_emptiness(new_parent, new_name);
        }
        self.files.rename(caller, parent, name, new_parent, new_name, mode)
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Content);
        self.files.read(ino, offset, len, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        let going = self.begin();
        if options.accepted && going.is_err() {
            self.has_lost.store(true, Ordering::Release);
        }
        let _going = going?;
        self.note(ino, Aspect::Content);
        self.files.write(ino, offset, data, options)
    }

    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Content);
        self.files.append(ino, data, options)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Listing);
        self.files.read_directory(ino, after, with_attributes, &mut |entry| {
            if with_attributes {
                self.note(entry.ino, Aspect::Attributes);
            }
            visit(entry)
        })
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let _going = self.begin()?;
        self.note_xattr(ino, name);
        self.files.xattr(ino, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let _going = self.begin()?;
        self.note_changed_xattr(ino, name);
        self.files.set_xattr(ino, name, value, mode)
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Xattrs);
        self.files.list_xattrs(ino)
    }

    fn access_rules(&self) -> AccessRules<'_> {
        AccessRules::Own(self)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let _going = self.begin()?;
        self.note_changed_xattr(ino, name);
        self.files.remove_xattr(ino, name)
    }

    /// Nothing of a transaction is durable before its commit.
    fn sync(&self, _ino: Ino, _scope: SyncScope) -> Result<()> {
        self.begin().map(|_| ())
    }

    /// Nothing of a transaction is durable before its commit, and nothing is left of one that has
    /// ended.
    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities<'_> {
        self.recorded_capabilities()
    }
}
