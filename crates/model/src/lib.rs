//! A plain in-memory file system: the oracle of all tests.
//!
//! It is meant to be obviously right, and nothing else: one lock around one value, ordered maps,
//! no caches. What [`marram_vfs::FileSystem`] promises can be read off its code, and every engine
//! is compared with it. It keeps no access times (as a mount with `noatime`) and never runs out
//! of space.
//!
//! **Holes** are exact to the byte: what was written is data until it is punched, zeroed or cut
//! off; everything else is hole. So a file can be as large as the largest size without taking
//! memory.
//!
//! **Crashes.** [`Model::fork`] keeps a moment, [`FileSystem::forget_all`] does what a crash or an
//! unmount does to pins: inodes that only a pin kept alive are gone.

mod content;
mod diff;
mod merge;
mod names;
mod rollback;
mod sparse;
mod state;

pub use diff::{Change, Difference};
use marram_vfs::{
    AccessRules, Allocate, Attributes, Caller, Capabilities, Clock, Copying, DirectoryEntry, Error,
    FileSystem, Ino, Name, NewNode, Patchgroup, PatchgroupLives, Patchgroups, Ranges, RenameMode,
    Result, SeekTarget, SetAttributes, Sharing, SpaceReport, SyncScope, Timestamp, WriteOptions,
    XattrMode,
};
pub use merge::{Clash, Decisions, Side};
use names::Move;
use parking_lot::{Mutex, MutexGuard};
use state::State;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A file system in memory.
pub struct Model {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
    writable: bool,
    groups: Arc<Mutex<PatchgroupLives>>,
    /// The groups that changes belong to.
    engaged: Vec<Patchgroup>,
}

impl Model {
    /// An empty file system that takes its time from `clock`. The root belongs to user and group
    /// 0 and has mode 0755.
    pub fn new(clock: Arc<dyn Clock>) -> Model {
        let state = Arc::new(Mutex::new(State::new(clock.now())));
        Model { state, clock, writable: true, groups: Arc::default(), engaged: Vec::new() }
    }

    /// A second file system with the same content, pins and clock, independent from now on, and
    /// without groups.
    pub fn fork(&self) -> Model {
        Model {
            state: Arc::new(Mutex::new(self.state.lock().clone())),
            clock: Arc::clone(&self.clock),
            writable: true,
            groups: Arc::default(),
            engaged: Vec::new(),
        }
    }

    /// The present content, kept: without pins, and every change is refused with
    /// [`Error::ReadOnly`].
    pub fn snapshot(&self) -> Model {
        let kept = Model { writable: false, ..self.fork() };
        kept.forget_all();
        kept
    }

    /// The present content, kept, with other numbers for some inodes; `last` is the last that is
    /// given away.
    pub fn shown_as(&self, numbers: &BTreeMap<Ino, Ino>, last: Ino) -> Model {
        let shown = self.snapshot();
        shown.state.lock().show_as(numbers, last);
        shown
    }

    /// The last number that was given away.
    pub fn last_number(&self) -> Ino {
        Ino(self.state.lock().last_ino)
    }

    /// The state to change, and the time at which it is changed.
    fn change(&self) -> Result<(MutexGuard<'_, State>, Timestamp)> {
        if !self.writable {
            return Err(Error::ReadOnly);
        }
        self.groups.lock().check(&self.engaged)?;
        Ok((self.state.lock(), self.clock.now()))
    }
}

impl FileSystem for Model {
    fn space(&self) -> Result<SpaceReport> {
        Ok(self.state.lock().space())
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.state.lock().lookup(parent, name)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.state.lock().parent(ino)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.state.lock().node(ino)?.report())
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.state.lock().pin(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.state.lock().forget(ino, count);
    }

    fn forget_all(&self) {
        self.state.lock().forget_all();
    }

    fn set_attributes(&self, _caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let (mut state, now) = self.change()?;
        state.set_attributes(ino, set, now)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.state.lock().read_link(ino)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        let (mut state, now) = self.change()?;
        state.create(caller, parent, name, node, now)
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        let (mut state, now) = self.change()?;
        state.create_anonymous(caller, parent, permissions, now)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let (mut state, now) = self.change()?;
        state.link(ino, parent, name, now)
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let (mut state, now) = self.change()?;
        state.unlink(parent, name, now)
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let (mut state, now) = self.change()?;
        state.remove_directory(parent, name, now)
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
        let (mut state, now) = self.change()?;
        let way = Move { parent, name, new_parent, new_name };
        state.rename(caller, way, mode, now)
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.state.lock().read(ino, offset, len, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        let (mut state, now) = self.change()?;
        state.write(ino, offset, data, options, now)
    }

    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        let (mut state, now) = self.change()?;
        let end = state.size(ino)?;
        state.write(ino, end, data, options, now)?;
        Ok(end)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut state = self.state.lock();
        state.read_directory(ino, after, with_attributes, visit)
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.state.lock().xattr(ino, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let (mut state, now) = self.change()?;
        state.set_xattr(ino, name, value, mode, now)
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.state.lock().node(ino)?.xattrs.keys().cloned().collect())
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let (mut state, now) = self.change()?;
        state.remove_xattr(ino, name, now)
    }

    fn sync(&self, ino: Ino, _scope: SyncScope) -> Result<()> {
        self.state.lock().node(ino).map(|_| ())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            ranges: Some(self),
            copying: Some(self),
            sharing: Some(self),
            patchgroups: Some(self),
            ..Capabilities::default()
        }
    }

    fn access_rules(&self) -> AccessRules<'_> {
        AccessRules::ModeBits
    }
}

/// What there is after a crash is one moment, so every order of groups holds.
impl Patchgroups for Model {
    fn make_group(&self) -> Result<Patchgroup> {
        if self.writable { self.groups.lock().make() } else { Err(Error::ReadOnly) }
    }

    fn depend(&self, later: Patchgroup, earlier: Patchgroup) -> Result<()> {
        self.groups.lock().depend(later, earlier)
    }

    fn engaged(&self, groups: &[Patchgroup]) -> Result<Arc<dyn FileSystem>> {
        self.groups.lock().engage(groups)?;
        Ok(Arc::new(Model {
            state: Arc::clone(&self.state),
            clock: Arc::clone(&self.clock),
            writable: self.writable,
            groups: Arc::clone(&self.groups),
            engaged: groups.to_vec(),
        }))
    }

    fn sync_group(&self, group: Patchgroup) -> Result<()> {
        self.groups.lock().find(group)
    }

    fn close_group(&self, group: Patchgroup) -> Result<()> {
        self.groups.lock().close(group)
    }
}

impl Ranges for Model {
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let (mut state, now) = self.change()?;
        state.allocate(ino, how, offset, len, now)
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        self.state.lock().seek(ino, offset, target)
    }
}

impl Copying for Model {
    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (mut state, now) = self.change()?;
        state.copy_range((from, from_offset), (to, to_offset), len, now)
    }
}

impl Sharing for Model {
    fn share_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (mut state, now) = self.change()?;
        state.share_range((from, from_offset), (to, to_offset), len, now)
    }
}
