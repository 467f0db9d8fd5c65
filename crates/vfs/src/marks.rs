//! Marks of inodes: the flags that `chattr` sets and `lsattr` shows, and the project.

use std::ops::BitOr;

/// Flags of an inode, in Linux's numbers (`FS_IOC_GETFLAGS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct InodeFlags(pub u32);

impl InodeFlags {
    /// Changes of the content are durable when they return (`S`).
    pub const SYNC: InodeFlags = InodeFlags(0x8);
    /// Nothing of it can change, and it can neither lose nor get a name (`i`).
    pub const IMMUTABLE: InodeFlags = InodeFlags(0x10);
    /// A file can only grow, a directory can only get names (`a`).
    pub const APPEND_ONLY: InodeFlags = InodeFlags(0x20);
    /// Programs that make backups are to leave it out (`d`).
    pub const NO_DUMP: InodeFlags = InodeFlags(0x40);
    /// Reading does not move the access time (`A`).
    pub const NO_ACCESS_TIME: InodeFlags = InodeFlags(0x80);
    /// What is written to it is not compressed (`m`).
    pub const NO_COMPRESSION: InodeFlags = InodeFlags(0x400);
    /// Changes of a directory's names are durable when they return (`D`).
    pub const SYNC_DIRECTORY: InodeFlags = InodeFlags(0x1_0000);
    /// What is made in a directory belongs to its project (`P`).
    pub const INHERIT_PROJECT: InodeFlags = InodeFlags(0x2000_0000);
    /// Names in a directory are the same when only their case differs (`F`).
    pub const FOLDED_NAMES: InodeFlags = InodeFlags(0x4000_0000);

    /// Whether any of `flags` is set.
    pub const fn any(self, flags: InodeFlags) -> bool {
        self.0 & flags.0 != 0
    }

    /// Those of these flags that are also in `mask`.
    #[must_use]
    pub const fn within(self, mask: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & mask.0)
    }

    /// These flags without those in `mask`.
    #[must_use]
    pub const fn without(self, mask: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 & !mask.0)
    }
}

impl BitOr for InodeFlags {
    type Output = InodeFlags;

    fn bitor(self, other: InodeFlags) -> InodeFlags {
        InodeFlags(self.0 | other.0)
    }
}

/// The marks of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Its flags.
    pub flags: InodeFlags,
    /// Its project, for quotas; 0 is none.
    pub project: u32,
}

/// Which marks to set; `None` leaves as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetMarks {
    /// All flags, as they are to be.
    pub flags: Option<InodeFlags>,
    /// The project.
    pub project: Option<u32>,
}
