//! The capabilities of a file system that records: those of the one inside that can be noted.
//!
//! What changes more than the dataset is not handed on: its label, its devices, its end. Nor are
//! locks: nobody else changes what it shows, and the kernel's own are enough.

use super::Recording;
use crate::read_set::Aspect;
use marram_vfs::{
    Allocate, Attributes, Caller, Capabilities, Copying, Extent, ExtentMap, FileSystem, GroupSync,
    Ino, Marked, Marks, Name, NewNode, OwnerUsage, QuietReads, Ranges, Result, SeekTarget,
    SetMarks, Sharing, StoredAccessLists, SyncScope, UsageCounts, UsageOwner,
};

impl Recording {
    /// The capabilities of the file system inside, noted.
    pub(super) fn recorded_capabilities(&self) -> Capabilities<'_> {
        let inside = self.files.capabilities();
        Capabilities {
            ranges: inside.ranges.and(Some(self)),
            copying: inside.copying.and(Some(self)),
            sharing: inside.sharing.and(Some(self)),
            extents: inside.extents.and(Some(self)),
            trimming: None,
            label: None,
            usage: inside.usage.and(Some(self)),
            marks: inside.marks.and(Some(self)),
            access_lists: inside.access_lists.and(Some(self)),
            group_sync: Some(self),
            patchgroups: None,
            stopping: None,
            quiet_reads: inside.quiet_reads.and(Some(self)),
            locks: None,
            folds_names: inside.folds_names,
        }
    }

    fn note_copy(&self, from: Ino, to: Ino) {
        self.note(from, Aspect::Content);
        self.note(to, Aspect::Content);
    }
}

impl Ranges for Recording {
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Content);
        self.files.allocate(ino, how, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Content);
        self.files.seek(ino, offset, target)
    }
}

impl Copying for Recording {
    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _going = self.begin()?;
        self.note_copy(from, to);
        self.files.copy_range(from, from_offset, to, to_offset, len)
    }
}

impl Sharing for Recording {
    fn share_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let _going = self.begin()?;
        self.note_copy(from, to);
        self.files.share_range(from, from_offset, to, to_offset, len)
    }
}

impl ExtentMap for Recording {
    fn extents(&self, ino: Ino, offset: u64, max: usize) -> Result<Vec<Extent>> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Content);
        self.files.extents(ino, offset, max)
    }
}

/// What owners use is no part of what is isolated, as is free space.
impl UsageCounts for Recording {
    fn usage(&self, ino: Ino, owner: UsageOwner) -> Result<OwnerUsage> {
        let _going = self.begin()?;
        self.files.usage(ino, owner)
    }
}

impl Marked for Recording {
    fn marks(&self, ino: Ino) -> Result<Marks> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Rights);
        self.files.marks(ino)
    }

    fn set_marks(&self, ino: Ino, set: SetMarks) -> Result<()> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Rights);
        self.files.set_marks(ino, set)
    }
}

impl StoredAccessLists for Recording {
    fn create_masked(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
        umask: u32,
    ) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note_name(parent, name);
        self.note(parent, Aspect::Rights);
        self.files.create_masked(caller, parent, name, node, umask)
    }

    fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes> {
        let _going = self.begin()?;
        self.note(parent, Aspect::Rights);
        self.files.create_anonymous_masked(caller, parent, permissions, umask)
    }

    fn set_access_list(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        clear_setgid: bool,
    ) -> Result<()> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Rights);
        self.note_xattr(ino, name);
        self.files.set_access_list(ino, name, value, clear_setgid)
    }
}

impl GroupSync for Recording {
    fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
        inodes.iter().map(|(ino, scope)| self.sync(*ino, *scope)).collect()
    }
}

impl QuietReads for Recording {
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let _going = self.begin()?;
        self.note(ino, Aspect::Content);
        self.files.read_unnoticed(ino, offset, len, out)
    }
}
