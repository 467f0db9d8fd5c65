//! A model that can be watched, slowed down and broken.

use crate::fixture::model;
use crate::rules::Rules;
use marram_model::Model;
use marram_vfs::{
    AccessRules, Allocate, Attributes, Caller, Capabilities, Copying, DirectoryEntry, FileSystem,
    GroupSync, Ino, Marked, Marks, Name, NewNode, Ranges, RenameMode, Result, SeekTarget,
    SetAttributes, SetMarks, SetTime, SpaceReport, SyncScope, WriteOptions, XattrMode,
};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// A call that comes to it waits until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    /// Whether it is closed, and how many wait.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.state.lock().unwrap().0 = true;
    }

    pub(crate) fn open(&self) {
        self.state.lock().unwrap().0 = false;
        self.changed.notify_all();
    }

    /// Returns when somebody waits.
    pub(crate) fn wait_for_somebody(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |(_, waiting)| *waiting == 0).unwrap());
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |(closed, _)| *closed).unwrap();
        state.1 -= 1;
    }
}

pub(crate) struct Proxy {
    model: Arc<Model>,
    /// What it asks of callers, if the kernel does not check them.
    pub(crate) rules: Rules,
    has_rules: bool,
    /// How long each sync takes, and looking for a name that begins with `slow`, in milliseconds.
    pub(crate) sync_ms: AtomicU64,
    /// What makes, moves or removes names comes through here.
    pub(crate) gate: Gate,
    /// Writes come through here.
    pub(crate) write_gate: Gate,
    /// Answers to look-ups come through here.
    pub(crate) answer_gate: Gate,
    /// How many syncs of one inode have ended.
    pub(crate) syncs: AtomicU64,
    /// How many syncs of everything have ended.
    pub(crate) full_syncs: AtomicU64,
    /// How many times all pins were let go.
    pub(crate) ends: AtomicU64,
    /// How many lookups, opens of files and listings came through.
    pub(crate) lookups: AtomicU64,
    /// How many lists were asked for.
    pub(crate) listings: AtomicU64,
    /// How many pages of content were read.
    pub(crate) reads: AtomicU64,
}

impl Proxy {
    pub(crate) fn new() -> Arc<Proxy> {
        Arc::new(Proxy::plain())
    }

    /// One that checks permissions itself.
    pub(crate) fn with_rules() -> Arc<Proxy> {
        Arc::new(Proxy { has_rules: true, ..Proxy::plain() })
    }

    fn plain() -> Proxy {
        Proxy {
            model: model(),
            rules: Rules::default(),
            has_rules: false,
            sync_ms: AtomicU64::new(0),
            gate: Gate::default(),
            write_gate: Gate::default(),
            answer_gate: Gate::default(),
            syncs: AtomicU64::new(0),
            full_syncs: AtomicU64::new(0),
            ends: AtomicU64::new(0),
            lookups: AtomicU64::new(0),
            listings: AtomicU64::new(0),
            reads: AtomicU64::new(0),
        }
    }

    fn take_time(&self) {
        std::thread::sleep(Duration::from_millis(self.sync_ms.load(SeqCst)));
    }
}

impl FileSystem for Proxy {
    fn access_rules(&self) -> AccessRules<'_> {
        if self.has_rules { AccessRules::Own(&self.rules) } else { AccessRules::ModeBits }
    }

    fn space(&self) -> Result<SpaceReport> {
        self.model.space()
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.lookups.fetch_add(1, SeqCst);
        assert!(name.as_bytes() != b"panic", "a planted panic");
        if name.as_bytes().starts_with(b"slow") {
            self.take_time();
        }
        let found = self.model.lookup(parent, name);
        self.answer_gate.pass();
        found
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.model.parent(ino)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.model.pin(ino)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.model.attributes(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.model.forget(ino, count);
    }

    fn forget_all(&self) {
        self.ends.fetch_add(1, SeqCst);
        self.model.forget_all();
    }

    fn set_attributes(&self, caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.model.set_attributes(caller, ino, set)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.model.read_link(ino)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.gate.pass();
        self.model.create(caller, parent, name, node)
    }

    fn create_anonymous(&self, caller: Caller, parent: Ino, mode: u32) -> Result<Attributes> {
        self.gate.pass();
        self.model.create_anonymous(caller, parent, mode)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.gate.pass();
        self.model.link(ino, parent, name)
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.gate.pass();
        self.model.unlink(parent, name)
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.gate.pass();
        self.model.remove_directory(parent, name)
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
        self.gate.pass();
        self.model.rename(caller, parent, name, new_parent, new_name, mode)
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.reads.fetch_add(1, SeqCst);
        self.model.read(ino, offset, len, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        self.write_gate.pass();
        self.model.write(ino, offset, data, options)
    }

    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        self.write_gate.pass();
        self.model.append(ino, data, options)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.listings.fetch_add(1, SeqCst);
        self.model.read_directory(ino, after, with_attributes, visit)
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.model.xattr(ino, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.model.set_xattr(ino, name, value, mode)
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.model.list_xattrs(ino)
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.model.remove_xattr(ino, name)
    }

    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()> {
        self.take_time();
        self.syncs.fetch_add(1, SeqCst);
        self.model.sync(ino, scope)
    }

    fn sync_all(&self) -> Result<()> {
        self.take_time();
        self.full_syncs.fetch_add(1, SeqCst);
        self.model.sync_all()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            ranges: Some(self),
            copying: Some(self),
            marks: Some(self),
            group_sync: Some(self),
            patchgroups: None,
            ..Capabilities::default()
        }
    }
}

impl Ranges for Proxy {
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        self.model.allocate(ino, how, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        self.model.seek(ino, offset, target)
    }
}

impl Copying for Proxy {
    fn copy_range(&self, from: Ino, at: u64, to: Ino, to_at: u64, len: u64) -> Result<u64> {
        self.model.copy_range(from, at, to, to_at, len)
    }
}

impl Marked for Proxy {
    fn marks(&self, _ino: Ino) -> Result<Marks> {
        Ok(Marks::default())
    }

    /// Moves the times, as a change of marks does.
    fn set_marks(&self, ino: Ino, _set: SetMarks) -> Result<()> {
        let set = SetAttributes { accessed: Some(SetTime::Now), ..SetAttributes::default() };
        self.model.set_attributes(Caller { uid: 0, gid: 0 }, ino, &set).map(|_| ())
    }
}

impl GroupSync for Proxy {
    fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
        self.take_time();
        self.syncs.fetch_add(inodes.len() as u64, SeqCst);
        inodes.iter().map(|(ino, scope)| self.model.sync(*ino, *scope)).collect()
    }
}
