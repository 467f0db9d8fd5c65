//! What holds where a file system does not have a capability, so that callers need not ask.

use super::{Allocate, Caller, FileSystem, NewNode, SeekTarget, Shutdown, SyncScope};
use crate::{
    Attributes, Error, Extent, HeldLock, Ino, Kind, LockRequest, Marks, Name, OwnerUsage, Result,
    SetMarks, UsageOwner,
};

impl dyn FileSystem + '_ {
    /// [`super::Capabilities::folds_names`].
    pub fn folds_names(&self) -> bool {
        self.capabilities().folds_names
    }

    fn seek_in_whole(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        let Attributes { size, kind, .. } = self.attributes(ino)?;
        match target {
            // The size of a directory is no number of bytes.
            _ if kind == Kind::Directory => Err(Error::IsDirectory),
            _ if offset >= size => Err(Error::NoSuchOffset),
            SeekTarget::Data => Ok(offset),
            SeekTarget::Hole => Ok(size),
        }
    }

    /// [`Ranges::allocate`](super::Ranges::allocate); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        match self.capabilities().ranges {
            Some(it) => it.allocate(ino, how, offset, len),
            None => Err(Error::NotSupported),
        }
    }

    /// [`Ranges::seek`](super::Ranges::seek); without it a file is data up to its end.
    ///
    /// # Errors
    /// As there.
    pub fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        match self.capabilities().ranges {
            Some(it) => it.seek(ino, offset, target),
            None => self.seek_in_whole(ino, offset, target),
        }
    }

    /// [`Copying::copy_range`](super::Copying::copy_range); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        match self.capabilities().copying {
            Some(it) => it.copy_range(from, from_offset, to, to_offset, len),
            None => Err(Error::NotSupported),
        }
    }

    /// [`Sharing::share_range`](super::Sharing::share_range); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn share_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        match self.capabilities().sharing {
            Some(it) => it.share_range(from, from_offset, to, to_offset, len),
            None => Err(Error::NotSupported),
        }
    }

    /// [`ExtentMap::extents`](super::ExtentMap::extents); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn extents(&self, ino: Ino, offset: u64, max: usize) -> Result<Vec<Extent>> {
        match self.capabilities().extents {
            Some(it) => it.extents(ino, offset, max),
            None => Err(Error::NotSupported),
        }
    }

    /// [`FileLocks::set_lock`](super::FileLocks::set_lock); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn set_lock(&self, ino: Ino, lock: &LockRequest) -> Result<Option<HeldLock>> {
        match self.capabilities().locks {
            Some(it) => it.set_lock(ino, lock),
            None => Err(Error::NotSupported),
        }
    }

    /// [`FileLocks::find_lock`](super::FileLocks::find_lock); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn find_lock(&self, ino: Ino, lock: &LockRequest) -> Result<Option<HeldLock>> {
        match self.capabilities().locks {
            Some(it) => it.find_lock(ino, lock),
            None => Err(Error::NotSupported),
        }
    }

    /// [`Trimming::trim`](super::Trimming::trim); without it refused with [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn trim(&self, from: u64, to: u64, min_bytes: u64) -> Result<u64> {
        match self.capabilities().trimming {
            Some(it) => it.trim(from, to, min_bytes),
            None => Err(Error::NotSupported),
        }
    }

    /// [`Labelled::label`](super::Labelled::label); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn label(&self) -> Result<String> {
        match self.capabilities().label {
            Some(it) => it.label(),
            None => Err(Error::NotSupported),
        }
    }

    /// [`Labelled::set_label`](super::Labelled::set_label); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn set_label(&self, caller: Caller, label: &str) -> Result<()> {
        match self.capabilities().label {
            Some(it) => it.set_label(caller, label),
            None => Err(Error::NotSupported),
        }
    }

    /// [`UsageCounts::usage`](super::UsageCounts::usage); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn usage(&self, ino: Ino, owner: UsageOwner) -> Result<OwnerUsage> {
        match self.capabilities().usage {
            Some(it) => it.usage(ino, owner),
            None => Err(Error::NotSupported),
        }
    }

    /// [`Marked::marks`](super::Marked::marks); without it refused with [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn marks(&self, ino: Ino) -> Result<Marks> {
        match self.capabilities().marks {
            Some(it) => it.marks(ino),
            None => Err(Error::NotSupported),
        }
    }

    /// [`Marked::set_marks`](super::Marked::set_marks); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn set_marks(&self, ino: Ino, set: SetMarks) -> Result<()> {
        match self.capabilities().marks {
            Some(it) => it.set_marks(ino, set),
            None => Err(Error::NotSupported),
        }
    }

    /// [`StoredAccessLists::create_masked`](super::StoredAccessLists::create_masked); without it
    /// the umask is taken off.
    ///
    /// # Errors
    /// As there.
    pub fn create_masked(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
        umask: u32,
    ) -> Result<Attributes> {
        match self.capabilities().access_lists {
            Some(it) => it.create_masked(caller, parent, name, node, umask),
            None => self.create(caller, parent, name, node.masked(umask)),
        }
    }

    /// [`create_anonymous_masked`](super::StoredAccessLists::create_anonymous_masked) of the
    /// capability; without it the umask is taken off.
    ///
    /// # Errors
    /// As there.
    pub fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes> {
        match self.capabilities().access_lists {
            Some(it) => it.create_anonymous_masked(caller, parent, permissions, umask),
            None => self.create_anonymous(caller, parent, permissions & !umask),
        }
    }

    /// [`StoredAccessLists::set_access_list`](super::StoredAccessLists::set_access_list); without
    /// it refused with [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn set_access_list(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        clear_setgid: bool,
    ) -> Result<()> {
        match self.capabilities().access_lists {
            Some(it) => it.set_access_list(ino, name, value, clear_setgid),
            None => Err(Error::NotSupported),
        }
    }

    /// [`GroupSync::sync_many`](super::GroupSync::sync_many); without it one after the other.
    pub fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
        match self.capabilities().group_sync {
            Some(it) => it.sync_many(inodes),
            None => inodes.iter().map(|(ino, scope)| self.sync(*ino, *scope)).collect(),
        }
    }

    /// [`Stopping::shutdown`](super::Stopping::shutdown); without it refused with
    /// [`Error::NotSupported`].
    ///
    /// # Errors
    /// As there.
    pub fn shutdown(&self, how: Shutdown) -> Result<()> {
        match self.capabilities().stopping {
            Some(it) => it.shutdown(how),
            None => Err(Error::NotSupported),
        }
    }

    /// [`QuietReads::read_unnoticed`](super::QuietReads::read_unnoticed); without it a read like
    /// any other, since no access time moves.
    ///
    /// # Errors
    /// As there.
    pub fn read_unnoticed(
        &self,
        ino: Ino,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match self.capabilities().quiet_reads {
            Some(it) => it.read_unnoticed(ino, offset, len, out),
            None => self.read(ino, offset, len, out),
        }
    }
}
