//! One call of the file system, written down so that it can be run on two of them.
//!
//! Operations name inodes by **slots** and names by number, never by inode number: so a list of
//! operations means something on any file system, and still does when some of them are left out.
//! A slot that nothing has been put into stands for the root directory.

use marram_vfs::{
    Allocate, Caller, Kind, RenameMode, SeekTarget, SetAttributes, SyncScope, WriteOptions,
    XattrMode,
};

/// How many slots hold directories; the first is always the root.
pub(crate) const DIRECTORY_SLOTS: u8 = 6;
/// How many slots hold regular files.
pub(crate) const FILE_SLOTS: u8 = 9;
/// How many slots hold everything else.
pub(crate) const SPECIAL_SLOTS: u8 = 3;
/// How many slots there are: directories come first, then regular files.
pub(crate) const SLOTS: u8 = DIRECTORY_SLOTS + FILE_SLOTS + SPECIAL_SLOTS;
/// How many names there are.
pub(crate) const NAMES: u8 = 12;
/// The first of the names that are mostly given to directories.
pub(crate) const DIRECTORY_NAMES_FIRST: u8 = 9;
/// How many names of extended attributes there are.
pub(crate) const XATTR_NAMES: u8 = 5;

/// A place where an inode is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub u8);

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The directory.
    pub directory: Slot,
    /// Number of the name, below `NAMES`.
    pub name: u8,
}

/// What to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum New {
    /// A file, fifo, socket or device node.
    Node {
        /// Its kind.
        kind: Kind,
        /// Its mode bits.
        permissions: u32,
        /// Its device number.
        device: u32,
    },
    /// A directory.
    Directory {
        /// Its mode bits.
        permissions: u32,
    },
    /// A symbolic link.
    Symlink {
        /// Length of its target, in bytes.
        target_len: usize,
    },
}

/// One call. Where a result is an inode, it goes into slot `into` of its kind (see [`Slot`]).
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the parameters of the methods of the same name")]
pub enum Operation {
    Lookup { place: Place, into: u8 },
    Parent { directory: Slot, into: u8 },
    Attributes { subject: Slot },
    Pin { subject: Slot },
    Forget { subject: Slot },
    SetAttributes { caller: Caller, subject: Slot, set: SetAttributes },
    ReadLink { subject: Slot },
    Create { caller: Caller, place: Place, new: New, into: u8 },
    CreateAnonymous { caller: Caller, directory: Slot, permissions: u32, into: u8 },
    Link { subject: Slot, place: Place },
    Unlink { place: Place },
    RemoveDirectory { place: Place },
    Rename { caller: Caller, from: Place, to: Place, mode: RenameMode },
    Read { subject: Slot, offset: u64, len: usize },
    Write { subject: Slot, offset: u64, len: usize, seed: u64, options: WriteOptions<'static> },
    Append { subject: Slot, len: usize, seed: u64 },
    Allocate { subject: Slot, how: Allocate, offset: u64, len: u64 },
    Seek { subject: Slot, offset: u64, target: SeekTarget },
    CopyRange { from: Slot, from_offset: u64, to: Slot, to_offset: u64, len: u64, share: bool },
    ReadDirectory { directory: Slot, with_attributes: bool, entries_per_call: usize },
    Xattr { subject: Slot, name: u8 },
    SetXattr { subject: Slot, name: u8, len: usize, seed: u64, mode: XattrMode },
    ListXattrs { subject: Slot },
    RemoveXattr { subject: Slot, name: u8 },
    Sync { subject: Slot, scope: SyncScope },
    SyncAll,
    Space,
}

impl Operation {
    /// The slots whose inodes the operation names.
    pub fn slots(&self) -> Vec<Slot> {
        match *self {
            Operation::Lookup { place, .. }
            | Operation::Create { place, .. }
            | Operation::Unlink { place }
            | Operation::RemoveDirectory { place } => vec![place.directory],
            Operation::Parent { directory, .. }
            | Operation::CreateAnonymous { directory, .. }
            | Operation::ReadDirectory { directory, .. } => vec![directory],
            Operation::Link { subject, place } => vec![subject, place.directory],
            Operation::Rename { from, to, .. } => vec![from.directory, to.directory],
            Operation::CopyRange { from, to, .. } => vec![from, to],
            Operation::Attributes { subject }
            | Operation::Pin { subject }
            | Operation::Forget { subject }
            | Operation::SetAttributes { subject, .. }
            | Operation::ReadLink { subject }
            | Operation::Read { subject, .. }
            | Operation::Write { subject, .. }
            | Operation::Append { subject, .. }
            | Operation::Allocate { subject, .. }
            | Operation::Seek { subject, .. }
            | Operation::Xattr { subject, .. }
            | Operation::SetXattr { subject, .. }
            | Operation::ListXattrs { subject }
            | Operation::RemoveXattr { subject, .. }
            | Operation::Sync { subject, .. } => vec![subject],
            Operation::SyncAll | Operation::Space => Vec::new(),
        }
    }
}

/// The bytes of a name: short ones, the longest, and bytes that are no text.
pub(crate) fn name_bytes(number: u8) -> Vec<u8> {
    match number % NAMES {
        0 => vec![b'x'; 255],
        1 => vec![0xff; 255],
        2 => b"with space \xfe\n".to_vec(),
        3 => b"...".to_vec(),
        short => vec![b'a' + short],
    }
}

/// The bytes of the name of an extended attribute.
pub(crate) fn xattr_name_bytes(number: u8) -> Vec<u8> {
    match number % XATTR_NAMES {
        0 => [&b"user."[..], &[b'n'; 250]].concat(),
        1 => b"security.capability".to_vec(),
        2 => b"user.a".to_vec(),
        3 => b"user.ab".to_vec(),
        _ => b"trusted.\xff".to_vec(),
    }
}
