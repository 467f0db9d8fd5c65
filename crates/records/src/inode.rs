//! Inode records: read, checked, and turned into attributes.

use crate::failure::{from_record, from_store};
use marram_format::record::{Inode, InodeKind, Time};
use marram_store::{Item, Key, View, kind};
use marram_vfs::{Attributes, Error, Ino, InodeFlags, Kind, Result, Timestamp};

/// Flags of an inode that does not change, or only grows.
pub const FROZEN_FLAGS: u32 = InodeFlags::IMMUTABLE.0 | InodeFlags::APPEND_ONLY.0;
/// Bytes in use are counted in units of this many bytes.
const ALLOCATION_BYTES: u64 = 4096;

/// The key of the record of an inode.
pub fn inode_key(ino: u64) -> Key {
    Key::new(ino, kind::INODE, 0)
}

/// A moment as records keep it; nanoseconds that are none are taken as the last of the second.
pub fn time(at: Timestamp) -> Time {
    Time { seconds: at.seconds, nanoseconds: at.nanoseconds.min(999_999_999) }
}

fn timestamp(at: Time) -> Timestamp {
    Timestamp { seconds: at.seconds, nanoseconds: at.nanoseconds }
}

/// The low twelve mode bits.
pub fn permission_bits(permissions: u32) -> u16 {
    u16::try_from(permissions & 0o7777).expect("twelve bits fit sixteen")
}

/// The kind of an inode in the words of the contract.
pub fn kind_of(kind: InodeKind) -> Kind {
    match kind {
        InodeKind::Regular => Kind::Regular,
        InodeKind::Directory => Kind::Directory,
        InodeKind::Symlink => Kind::Symlink,
        InodeKind::Fifo => Kind::Fifo,
        InodeKind::Socket => Kind::Socket,
        InodeKind::CharDevice => Kind::CharDevice,
        InodeKind::BlockDevice => Kind::BlockDevice,
    }
}

/// The record of a new inode without names.
pub fn new_inode(kind: InodeKind, permissions: u32, parent: u64, now: Time) -> Inode {
    Inode {
        kind,
        permissions: permission_bits(permissions),
        links: 0,
        uid: 0,
        gid: 0,
        device: 0,
        flags: 0,
        size: 0,
        data_bytes: 0,
        reserved_bytes: 0,
        generation: 1,
        parent,
        state: 0,
        project: 0,
        accessed: now,
        modified: now,
        changed: now,
        created: now,
        name_place: 0,
    }
}

/// Bytes that the content of an inode uses: what sections cover, rounded up to 4 KiB.
pub fn used_bytes(inode: &Inode) -> u64 {
    let covered = inode.data_bytes.saturating_add(inode.reserved_bytes);
    covered.div_ceil(ALLOCATION_BYTES).saturating_mul(ALLOCATION_BYTES)
}

/// What `stat` shows of an inode.
pub fn attributes(ino: u64, inode: &Inode) -> Attributes {
    Attributes {
        ino: Ino(ino),
        generation: inode.generation,
        kind: kind_of(inode.kind),
        permissions: u32::from(inode.permissions),
        links: inode.links,
        uid: inode.uid,
        gid: inode.gid,
        device: inode.device,
        size: inode.size,
        blocks_512: used_bytes(inode) / 512,
        accessed: timestamp(inode.accessed),
        modified: timestamp(inode.modified),
        changed: timestamp(inode.changed),
        created: timestamp(inode.created),
    }
}

/// Refuses what is no regular file.
///
/// # Errors
/// [`Error::IsDirectory`] or [`Error::InvalidArgument`].
pub fn check_regular(inode: &Inode) -> Result<()> {
    match inode.kind {
        InodeKind::Regular => Ok(()),
        InodeKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::InvalidArgument("not a regular file")),
    }
}

/// Refuses what is no directory.
///
/// # Errors
/// [`Error::NotDirectory`].
pub fn check_directory(inode: &Inode) -> Result<()> {
    match inode.kind {
        InodeKind::Directory => Ok(()),
        _ => Err(Error::NotDirectory),
    }
}

/// Refuses what is no directory, and a directory that has been removed.
///
/// # Errors
/// [`Error::NotDirectory`] or [`Error::NotFound`].
pub fn check_living_directory(inode: &Inode) -> Result<()> {
    check_directory(inode)?;
    if inode.links == 0 {
        return Err(Error::NotFound);
    }
    Ok(())
}

/// The content was changed.
pub fn touch_content(inode: &mut Inode, now: Time) {
    inode.modified = now;
    inode.changed = now;
}

/// The record of an inode, if there is one.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn read_inode(view: &dyn View, ino: u64) -> Result<Option<Inode>> {
    let item = view.get(inode_key(ino)).map_err(from_store)?;
    item.map(|item| decode_inode(ino, &item)).transpose()
}

/// Reads an inode's record from its item.
///
/// # Errors
/// A record that makes no sense.
pub fn decode_inode(ino: u64, item: &Item) -> Result<Inode> {
    Inode::decode(&item.value).map_err(|error| from_record(ino, &error))
}

/// Keys of at most `max` items of an inode, other than its record.
///
/// # Errors
/// A failed read.
pub fn content_keys(view: &dyn View, ino: u64, max: usize) -> Result<Vec<Key>> {
    let mut keys = Vec::new();
    let mut visit = |key: Key, _: &Item| {
        keys.push(key);
        keys.len() < max
    };
    let (from, to) = (Key::new(ino, kind::ENTRY, 0), Key::new(ino, u8::MAX, u64::MAX));
    view.scan(from, to, &mut visit).map_err(from_store)?;
    Ok(keys)
}
