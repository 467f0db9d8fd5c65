//! What is known of one inode.

/// Number of an inode: unique within a file system and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(1);
}

/// A moment: seconds since 1970 (negative before) and nanoseconds below 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds since the epoch.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// What kind of object an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file of bytes.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A UNIX-domain socket.
    Socket,
    /// A character device node.
    CharDevice,
    /// A block device node.
    BlockDevice,
}

impl Kind {
    /// The `S_IFMT` bits of this kind.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Kind::Fifo => 0o010_000,
            Kind::CharDevice => 0o020_000,
            Kind::Directory => 0o040_000,
            Kind::BlockDevice => 0o060_000,
            Kind::Regular => 0o100_000,
            Kind::Symlink => 0o120_000,
            Kind::Socket => 0o140_000,
        }
    }

    /// The kind that a full `st_mode` names, if it names one.
    pub const fn from_mode(mode: u32) -> Option<Kind> {
        match mode & 0o170_000 {
            0o010_000 => Some(Kind::Fifo),
            0o020_000 => Some(Kind::CharDevice),
            0o040_000 => Some(Kind::Directory),
            0o060_000 => Some(Kind::BlockDevice),
            0o100_000 => Some(Kind::Regular),
            0o120_000 => Some(Kind::Symlink),
            0o140_000 => Some(Kind::Socket),
            _ => None,
        }
    }
}

/// The attributes of one inode, as `stat` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// The inode's number.
    pub ino: Ino,
    /// Distinguishes two inodes that ever had the same number (none do; for file handles).
    pub generation: u64,
    /// What kind of object it is.
    pub kind: Kind,
    /// Permission, setuid, setgid and sticky bits: the low twelve bits of `st_mode`.
    pub permissions: u32,
    /// How many names refer to it; for a directory, 2 plus its subdirectories.
    pub links: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Device number of a device node, in the kernel's 32-bit encoding; else 0.
    pub device: u32,
    /// Size in bytes (of a symlink: of its target).
    pub size: u64,
    /// Space in use by the content, in units of 512 bytes.
    pub blocks_512: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of content.
    pub modified: Timestamp,
    /// Last change of content or attributes.
    pub changed: Timestamp,
    /// Birth.
    pub created: Timestamp,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The file system's present time.
    Now,
    /// This very time.
    At(Timestamp),
}

/// Which attributes to change; `None` leaves as it is.
///
/// The change time moves to now unless `changed` names one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// New permission bits (low twelve bits).
    pub permissions: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size of a regular file: cut, or extended by a hole.
    pub size: Option<u64>,
    /// New access time.
    pub accessed: Option<SetTime>,
    /// New modification time.
    pub modified: Option<SetTime>,
    /// New change time (a kernel that owns times while it writes back sends it).
    pub changed: Option<Timestamp>,
    /// Clear setuid and (if group-executable) setgid, as an unprivileged truncate or chown must.
    /// `security.capability` goes with any of these, and with any change of size or owner.
    pub clear_privileges: bool,
    /// Clear setgid also if it is not group-executable, as a change by a caller that is no member
    /// of the file's group must. Directories keep it.
    pub clear_setgid: bool,
}
