//! The file system: each method of the contract is led to its operation, under the one lock.

use crate::error::ImageError;
use crate::image::Header;
use crate::layout::{INODE_LIMIT, INODES, PAGE};
use crate::memory::{Memory, Tally};
use crate::state::{Access, AccessTimes, Move, PIECE_BYTES_MAX, State};
use marram_locks::{Mutex, Rank};
use marram_vfs::{
    AccessRules, Attributes, Caller, Capabilities, Clock, DirectoryEntry, Error, FILE_BYTES_MAX,
    FileSystem, Ino, Labelled, Name, NewNode, QuietReads, RenameMode, Result, SetAttributes,
    SpaceReport, SyncScope, SystemClock, Timestamp, WriteOptions, XattrMode,
};
use std::sync::Arc;

/// The place of the lock of an image; it is the only one.
const IMAGE: Rank = Rank { order: 1, name: "image" };

/// How an image is opened.
#[derive(Clone)]
pub struct PmemOptions {
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// When reading moves the access time, until [`Pmem::set_access_times`] says otherwise.
    pub access_times: AccessTimes,
    /// Whether anything may be changed.
    pub writable: bool,
}

impl Default for PmemOptions {
    /// The machine's clock, relative access times, changes allowed.
    fn default() -> PmemOptions {
        PmemOptions {
            clock: Arc::new(SystemClock),
            access_times: AccessTimes::default(),
            writable: true,
        }
    }
}

/// A file system in an image.
pub struct Pmem {
    state: Mutex<State>,
    options: PmemOptions,
}

impl Pmem {
    /// Opens the image in `memory`.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub fn open(memory: Memory, options: PmemOptions) -> std::result::Result<Pmem, ImageError> {
        let mut state = State::open(memory, options.writable)?;
        state.access = Access { times: options.access_times, of_directories: true };
        Ok(Pmem { state: Mutex::new(IMAGE, state), options })
    }

    /// What the image says of itself.
    ///
    /// # Errors
    /// It is damaged.
    pub fn header(&self) -> std::result::Result<Header, ImageError> {
        self.state.lock().header()
    }

    /// What was stored, flushed and fenced since it was opened.
    pub fn tally(&self) -> Tally {
        self.state.lock().memory.tally()
    }

    /// Looks through the whole image, and compares what is in use with what is known of it.
    ///
    /// # Errors
    /// What differs.
    pub fn audit(&self) -> Result<()> {
        self.state.lock().audit()
    }

    /// Sets when reading moves the access time.
    pub fn set_access_times(&self, access_times: AccessTimes, of_directories: bool) {
        self.state.lock().access = Access { times: access_times, of_directories };
    }

    /// Gives back the inode numbers that were promised and not given away, at the end of a mount.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn close(&self) -> Result<()> {
        if !self.options.writable {
            return Ok(());
        }
        let mut state = self.state.lock();
        let next = state.next_inode;
        state.memory.store(INODE_LIMIT, 8, next)?;
        state.memory.persist();
        state.next_inode = u64::MAX;
        Ok(())
    }

    /// Runs an operation: it happens wholly and is durable, or nothing has changed.
    fn change<R>(&self, run: impl FnOnce(&mut State, Timestamp) -> Result<R>) -> Result<R> {
        if !self.options.writable {
            return Err(Error::ReadOnly);
        }
        let mut state = self.state.lock();
        let now = self.options.clock.now();
        let done = run(&mut state, now);
        match &done {
            Ok(_) => state.end_operation(),
            Err(_) => state.give_up(),
        }
        done
    }

    /// Moves the access time of what was read.
    fn note_access(&self, state: &mut State, ino: Ino) -> Result<()> {
        if !self.options.writable || state.access.times == AccessTimes::Never {
            return Ok(());
        }
        let always = state.access.times == AccessTimes::Strict;
        state.stamp_access(ino, self.options.clock.now(), always)?;
        state.end_operation();
        Ok(())
    }
}

impl FileSystem for Pmem {
    fn space(&self) -> Result<SpaceReport> {
        let state = self.state.lock();
        Ok(SpaceReport {
            total_bytes: state.space.pages() * PAGE,
            free_bytes: state.space.free() * PAGE,
            inodes_used: state.inodes_used,
            inodes_free: state.space.free() * INODES,
        })
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.state.lock().lookup(parent, name)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.state.lock().parent(ino)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.state.lock().pinned(ino)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        let mut state = self.state.lock();
        let node = state.node(ino)?;
        state.attributes(node)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.state.lock().forget(ino, count);
    }

    fn forget_all(&self) {
        self.state.lock().forget_all();
    }

    fn set_attributes(&self, _caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.change(|state, now| state.set_attributes(ino, set, now))
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut state = self.state.lock();
        let target = state.read_link(ino)?;
        self.note_access(&mut state, ino)?;
        Ok(target)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.change(|state, now| state.create(caller, parent, name, node, now))
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.change(|state, now| state.create_anonymous(caller, parent, permissions, now))
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.change(|state, now| state.link(ino, parent, name, now))
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.change(|state, now| state.unlink(parent, name, now))
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.change(|state, now| state.remove_directory(parent, name, now))
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
        let way = Move { parent, name, new_parent, new_name };
        self.change(|state, now| state.rename(caller, way, mode, now))
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut state = self.state.lock();
        state.read(ino, offset, len, out)?;
        self.note_access(&mut state, ino)
    }

    /// A write of more than 1 MiB is done in pieces; if one fails, those before it stay.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        if data.len() <= PIECE_BYTES_MAX {
            return self.change(|state, now| state.write(ino, offset, data, options, now));
        }
        self.change(|state, _| state.regular(ino).map(drop))?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::FileTooLarge);
        }
        for (which, piece) in data.chunks(PIECE_BYTES_MAX).enumerate() {
            let at = offset + (which * PIECE_BYTES_MAX) as u64;
            self.change(|state, now| state.write(ino, at, piece, options, now))?;
        }
        Ok(())
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut state = self.state.lock();
        state.read_directory(ino, after, with_attributes, visit)?;
        if state.access.of_directories {
            self.note_access(&mut state, ino)?;
        }
        Ok(())
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.state.lock().xattr(ino, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.change(|state, now| state.set_xattr(ino, (name, value), mode, now))
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.state.lock().list_xattrs(ino)
    }

    fn access_rules(&self) -> AccessRules<'_> {
        AccessRules::ModeBits
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change(|state, now| state.remove_xattr(ino, name, now))
    }

    /// Everything is durable when its call returns.
    fn sync(&self, ino: Ino, _scope: SyncScope) -> Result<()> {
        self.state.lock().node(ino).map(drop)
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { label: Some(self), quiet_reads: Some(self), ..Capabilities::default() }
    }
}

impl Labelled for Pmem {
    fn label(&self) -> Result<String> {
        let header = self.state.lock().header();
        header.map(|header| header.label).map_err(|error| Error::Damaged(error.to_string()))
    }

    fn set_label(&self, _caller: Caller, label: &str) -> Result<()> {
        self.change(|state, _| state.set_label(label))
    }
}

impl QuietReads for Pmem {
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.state.lock().read(ino, offset, len, out)
    }
}
