//! The inode record.

use crate::FormatError;
use crate::reader::Reader;

/// Bytes of an encoded inode record.
pub const INODE_BYTES: usize = 128;

const VERSION: u8 = 1;

/// What kind of object an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum InodeKind {
    /// A file of bytes.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A UNIX-domain socket.
    Socket = 5,
    /// A character device node.
    CharDevice = 6,
    /// A block device node.
    BlockDevice = 7,
}

/// Bits of [`Inode::state`].
pub mod state {
    /// Sections at and past the size wait to be removed: they are no part of the file. An orphan
    /// item of the inode says so too. Removed before the size may grow.
    pub const TAIL: u32 = 1;
    /// The inode has the attribute `security.capability`.
    pub const CAPABILITY: u32 = 2;
    /// The inode has the attribute `system.posix_acl_access`.
    pub const POSIX_ACCESS: u32 = 4;
    /// The inode has the attribute `system.posix_acl_default`.
    pub const POSIX_DEFAULT: u32 = 8;
    /// The inode has the attribute `system.nfs4_acl`.
    pub const NFS4_LIST: u32 = 16;
    /// All bits that have a meaning.
    pub const ALL: u32 = TAIL | CAPABILITY | POSIX_ACCESS | POSIX_DEFAULT | NFS4_LIST;
}

/// A moment: seconds since 1970 and nanoseconds below 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanoseconds: u32,
}

/// The value of an inode item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// What it is.
    pub kind: InodeKind,
    /// The low twelve mode bits.
    pub permissions: u16,
    /// Names that refer to it; of a directory 2 plus its subdirectories; 0 without a name.
    pub links: u32,
    /// Owning user.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Device number of a device node, in Linux's 32-bit encoding.
    pub device: u32,
    /// Flags, in the numbers of Linux (`FS_IOC_GETFLAGS`); bits without a meaning are kept.
    pub flags: u32,
    /// Size in bytes; of a symlink its target's, of a directory its number of entries.
    pub size: u64,
    /// Bytes of sections that have a block.
    pub data_bytes: u64,
    /// Bytes of sections that have none.
    pub reserved_bytes: u64,
    /// Distinguishes inodes that ever had the same number.
    pub generation: u64,
    /// The parent directory: of a directory exactly, else a directory that once held a name of it.
    pub parent: u64,
    /// Bits of [`state`].
    pub state: u32,
    /// Project for quotas; 0 is none.
    pub project: u32,
    /// Last access.
    pub accessed: Time,
    /// Last change of content.
    pub modified: Time,
    /// Last change of content or attributes.
    pub changed: Time,
    /// Birth.
    pub created: Time,
    /// The offset of the entry in `parent` that led to it when that was last made, by which a name
    /// is found: a hint; 0 if none is known.
    pub name_place: u64,
}

impl InodeKind {
    /// Reads the byte that names a kind.
    pub(super) fn read(fields: &mut Reader<'_>) -> Result<InodeKind, FormatError> {
        let offset = fields.at();
        let byte = fields.u8("kind")?;
        Ok(match byte {
            1 => InodeKind::Regular,
            2 => InodeKind::Directory,
            3 => InodeKind::Symlink,
            4 => InodeKind::Fifo,
            5 => InodeKind::Socket,
            6 => InodeKind::CharDevice,
            7 => InodeKind::BlockDevice,
            _ => return Err(fields.unexpected("kind", offset, u64::from(byte), "1 to 7")),
        })
    }
}

impl Inode {
    /// The encoded record.
    pub fn encode(&self) -> [u8; INODE_BYTES] {
        let mut bytes = [0; INODE_BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&[self.kind as u8, VERSION]);
        put(&self.permissions.to_le_bytes());
        for number in [self.links, self.uid, self.gid, self.device, self.flags] {
            put(&number.to_le_bytes());
        }
        let sizes = [self.size, self.data_bytes, self.reserved_bytes];
        for number in sizes.into_iter().chain([self.generation, self.parent]) {
            put(&number.to_le_bytes());
        }
        put(&self.state.to_le_bytes());
        put(&self.project.to_le_bytes());
        let times = [self.accessed, self.modified, self.changed, self.created];
        for time in times {
            put(&time.seconds.to_le_bytes());
        }
        for time in times {
            put(&time.nanoseconds.to_le_bytes());
        }
        put(&self.name_place.to_le_bytes());
        bytes
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// A wrong length, version or kind, bits without a meaning, or nanoseconds out of range.
    pub fn decode(bytes: &[u8]) -> Result<Inode, FormatError> {
        let mut fields = Reader::new("inode", bytes);
        let kind = InodeKind::read(&mut fields)?;
        fields.expect_u8("record version", VERSION, "1")?;
        let mut inode = Inode {
            kind,
            permissions: read_permissions(&mut fields)?,
            links: fields.u32("links")?,
            uid: fields.u32("user")?,
            gid: fields.u32("group")?,
            device: fields.u32("device number")?,
            flags: fields.u32("flags")?,
            size: read_size(&mut fields)?,
            data_bytes: fields.u64("data bytes")?,
            reserved_bytes: fields.u64("reserved bytes of the file")?,
            generation: fields.u64("generation")?,
            parent: fields.u64("parent")?,
            state: read_state(&mut fields)?,
            project: fields.u32("project")?,
            accessed: Time::default(),
            modified: Time::default(),
            changed: Time::default(),
            created: Time::default(),
            name_place: 0,
        };
        inode.read_times(&mut fields)?;
        inode.name_place = fields.u64("name place")?;
        fields.finish()?;
        Ok(inode)
    }

    fn read_times(&mut self, fields: &mut Reader<'_>) -> Result<(), FormatError> {
        let times = [&mut self.accessed, &mut self.modified, &mut self.changed, &mut self.created];
        let mut seconds = [0; 4];
        for second in &mut seconds {
            *second = fields.i64("seconds")?;
        }
        for (time, seconds) in times.into_iter().zip(seconds) {
            let offset = fields.at();
            let nanoseconds = fields.u32("nanoseconds")?;
            if nanoseconds >= 1_000_000_000 {
                let found = u64::from(nanoseconds);
                return Err(fields.unexpected("nanoseconds", offset, found, "below 1000000000"));
            }
            *time = Time { seconds, nanoseconds };
        }
        Ok(())
    }
}

fn read_permissions(fields: &mut Reader<'_>) -> Result<u16, FormatError> {
    let offset = fields.at();
    let permissions = fields.u16("permissions")?;
    if permissions > 0o7777 {
        let found = u64::from(permissions);
        return Err(fields.unexpected("permissions", offset, found, "at most twelve bits"));
    }
    Ok(permissions)
}

fn read_size(fields: &mut Reader<'_>) -> Result<u64, FormatError> {
    let offset = fields.at();
    let size = fields.u64("size")?;
    if size > i64::MAX as u64 {
        return Err(fields.unexpected("size", offset, size, "at most 2^63 - 1"));
    }
    Ok(size)
}

fn read_state(fields: &mut Reader<'_>) -> Result<u32, FormatError> {
    let offset = fields.at();
    let bits = fields.u32("state")?;
    if bits & !state::ALL != 0 {
        return Err(fields.unexpected("state", offset, u64::from(bits), "known bits"));
    }
    Ok(bits)
}
