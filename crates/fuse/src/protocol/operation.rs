//! What a request says, once it is decoded.

use super::Opcode;
use super::flags::{ioctl, open, write};

/// Bytes of one entry of a BATCH_FORGET request.
pub(super) const FORGET_BYTES: usize = 16;

/// What every request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the operation; see [`Opcode`].
    pub opcode: u32,
    /// Names this request in its reply.
    pub unique: u64,
    /// The inode that it is about.
    pub node: u64,
    /// The caller's user, or `u32::MAX` where the kernel does not say.
    pub uid: u32,
    /// The caller's group, or `u32::MAX` where the kernel does not say.
    pub gid: u32,
    /// The caller's thread, or 0 where there is none.
    pub pid: u32,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its header.
    pub header: Header,
    /// What it asks for.
    pub operation: Operation<'a>,
}

/// The body of a request. Text is as the kernel sent it: not yet checked to be a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "Opcode documents each operation; fields carry their own names")]
pub enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    GetAttributes {
        open: bool,
    },
    SetAttributes(SetAttributesIn),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode(Node<'a>),
    MakeDirectory(Node<'a>),
    Unlink {
        name: &'a [u8],
    },
    RemoveDirectory {
        name: &'a [u8],
    },
    Rename(Rename<'a>),
    Link {
        node: u64,
        new_name: &'a [u8],
    },
    Open {
        caller_flags: u32,
    },
    Read(Transfer),
    Write(Write<'a>),
    Space,
    Release {
        handle: u64,
    },
    Sync {
        data_only: bool,
    },
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        clear_setgid: bool,
    },
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattrs {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Flush {
        owner: u64,
    },
    Init(Init),
    GetLock(LockIn),
    SetLock {
        lock: LockIn,
        waits: bool,
    },
    OpenDirectory,
    ReadDirectory(Transfer),
    ReleaseDirectory,
    SyncDirectory {
        data_only: bool,
    },
    Access {
        mask: u32,
    },
    Create(Create<'a>),
    Interrupt {
        unique: u64,
    },
    Destroy,
    Ioctl(Ioctl<'a>),
    NotifyReply,
    BatchForget(Forgets<'a>),
    Allocate {
        handle: u64,
        offset: u64,
        len: u64,
        mode: u32,
    },
    ReadDirectoryPlus(Transfer),
    Seek {
        offset: u64,
        whence: u32,
    },
    CopyRange(CopyRange),
    SyncAll,
    CreateAnonymous(Create<'a>),
    ExtendedAttributes {
        open: bool,
    },
    /// Known, and never served: device mapping, readiness, shared mappings.
    Unsupported(Opcode),
    /// A number that the protocol does not have.
    Unknown,
}

/// Body of GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockIn {
    /// The open file.
    pub handle: u64,
    /// Names what the kernel takes for the owner: an open file, or all open files of a process.
    pub owner: u64,
    /// The first byte.
    pub first: u64,
    /// The last byte, which it includes.
    pub last: u64,
    /// How to hold it; see `flags::lock`.
    pub kind: u32,
    /// The process that asks.
    pub process: u32,
    /// It is a lock of `flock`.
    pub is_whole: bool,
}

/// Body of SETATTR. A field counts only where its bit in `valid` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of `stat`")]
pub struct SetAttributesIn {
    /// Which of the others count.
    pub valid: u32,
    pub handle: u64,
    pub size: u64,
    pub accessed_seconds: i64,
    pub modified_seconds: i64,
    pub changed_seconds: i64,
    pub accessed_nanoseconds: u32,
    pub modified_nanoseconds: u32,
    pub changed_nanoseconds: u32,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// Body of MKNOD and MKDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// `st_mode`; MKDIR sends permission bits only.
    pub mode: u32,
    /// Device number; 0 for MKDIR.
    pub device: u32,
    /// The caller's umask.
    pub umask: u32,
    /// The new name.
    pub name: &'a [u8],
}

/// Body of RENAME and RENAME2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// The directory that takes the name.
    pub new_parent: u64,
    /// Flags; 0 for RENAME.
    pub flags: u32,
    /// The old name.
    pub name: &'a [u8],
    /// The new name.
    pub new_name: &'a [u8],
}

/// Body of READ, READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where, in bytes; for directories, after which cookie.
    pub offset: u64,
    /// Most bytes that the reply may have.
    pub size: u32,
    /// How.
    pub flags: u32,
    /// The flags that the caller has opened it with.
    pub caller_flags: u32,
}

/// Body of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// The open file.
    pub handle: u64,
    /// Where, in bytes.
    pub offset: u64,
    /// How.
    pub flags: u32,
    /// The caller's `open` flags; nothing if the kernel writes what it has held back.
    pub caller_flags: u32,
    /// What.
    pub data: &'a [u8],
}

impl Write<'_> {
    /// Whether a program has the file open for appending and writes at once. The offset is then the
    /// end as the kernel has it, which may be out of date; FUSE leaves it to the server to find the
    /// true one. Not so of a direct write: the kernel sends its pieces all at once, and only their
    /// offsets tell their order.
    pub fn is_append(&self) -> bool {
        let is_sent_in_order = self.flags & (write::CACHE | write::DIRECT) == 0;
        is_sent_in_order && self.caller_flags & open::APPEND != 0
    }
}

/// Body of CREATE and TMPFILE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// The caller's `open` flags.
    pub caller_flags: u32,
    /// `st_mode`.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// The kernel's own flags.
    pub open_flags: u32,
    /// The new name; means nothing for TMPFILE.
    pub name: &'a [u8],
}

/// Body of INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// The kernel's major version.
    pub major: u32,
    /// The kernel's minor version.
    pub minor: u32,
    /// The kernel's read-ahead, in bytes.
    pub read_ahead_bytes: u32,
    /// What the kernel offers.
    pub flags: u64,
}

impl Operation<'_> {
    /// Whether it changes attributes of which the kernel goes on remembering the old ones.
    pub(crate) fn changes_unseen(&self) -> bool {
        let changes = |command| matches!(command, ioctl::SET_FLAGS | ioctl::SET_EXTENDED_FLAGS);
        matches!(self, Operation::Ioctl(ioctl) if changes(ioctl.command))
    }
}

/// Body of IOCTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// The kernel's own flags.
    pub flags: u32,
    /// The command.
    pub command: u32,
    /// The caller's argument.
    pub argument: u64,
    /// What the argument points to, as far as the command's number says.
    pub input: &'a [u8],
    /// Most bytes that the answer may have.
    pub output_bytes_max: u32,
}

/// Body of COPY_FILE_RANGE in both forms; the source is the header's inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// Where to read, in bytes.
    pub from_offset: u64,
    /// The inode to write to.
    pub to_node: u64,
    /// The open file that is written to.
    pub to_handle: u64,
    /// Where to write, in bytes.
    pub to_offset: u64,
    /// How many bytes.
    pub len: u64,
    /// Flags.
    pub flags: u64,
    /// Whether the reply's count has 64 bits.
    pub wide: bool,
}

/// Body of BATCH_FORGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgets<'a>(&'a [u8]);

impl<'a> Forgets<'a> {
    pub(super) fn new(entries: &'a [u8]) -> Self {
        Forgets(entries)
    }

    /// The inodes to forget, and how many lookups of each.
    pub fn iter(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        self.0.as_chunks::<FORGET_BYTES>().0.iter().map(|entry| {
            let (node, count) = entry.split_at(8);
            (little_endian(node), little_endian(count))
        })
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
