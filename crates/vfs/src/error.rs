//! What can go wrong, and the one table of error numbers.

use thiserror::Error;

/// Why a file-system operation was refused or failed. Nothing has changed when one is returned,
/// unless the operation says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// No entry of that name, or no inode of that number.
    #[error("no such file or directory")]
    NotFound,
    /// The inode existed once; the handle that names it is out of date.
    #[error("stale file handle")]
    Stale,
    /// The name is taken.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was not wanted.
    #[error("is a directory")]
    IsDirectory,
    /// The directory still has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The caller may not do this to this object whatever its mode bits say.
    #[error("operation not permitted")]
    NotPermitted,
    /// The caller's permissions do not reach.
    #[error("permission denied")]
    AccessDenied,
    /// An argument makes no sense; the text names it.
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    /// A name is longer than 255 bytes.
    #[error("file name too long")]
    NameTooLong,
    /// The inode has all the names that it can have.
    #[error("too many links")]
    TooManyLinks,
    /// The file would grow past the largest size.
    #[error("file too large")]
    FileTooLarge,
    /// No space for what was asked; nothing of it was done.
    #[error("no space left in the pool")]
    NoSpace,
    /// A quota is used up.
    #[error("disk quota exceeded")]
    QuotaExceeded,
    /// The file system, snapshot or pool is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// No extended attribute of that name.
    #[error("no such attribute")]
    NoAttribute,
    /// A value does not fit the caller's buffer.
    #[error("buffer too small")]
    BufferTooSmall,
    /// A value is larger than the limit.
    #[error("value too large")]
    ValueTooLarge,
    /// No data or hole at or after the offset asked for.
    #[error("no such offset")]
    NoSuchOffset,
    /// The file system does not do this.
    #[error("operation not supported")]
    NotSupported,
    /// Two file systems are involved where one must be.
    #[error("on different file systems")]
    CrossDevice,
    /// Something else has it for itself at this moment: a mount of its own.
    #[error("in use elsewhere")]
    Busy,
    /// Other hosts have changed what the operation is about, again and again.
    #[error("overtaken by other hosts again and again")]
    Overtaken,
    /// One host holds as many ranges of a file locked as it can.
    #[error("too many locks of one file")]
    TooManyLocks,
    /// As many file systems are open below this one as there can be.
    #[error("too many open file systems")]
    TooManyOpen,
    /// As many patchgroups are there as there can be: some have to be closed first.
    #[error("too many patchgroups")]
    TooManyGroups,
    /// The inode's number does not fit into the numbers of the mount.
    #[error("inode number too large")]
    NumberTooLarge,
    /// Stored bytes failed their checksum in every copy; the text says where.
    #[error("damaged data: {0}")]
    Damaged(String),
    /// A device failed; the text says which and how.
    #[error("input/output error: {0}")]
    Io(String),
}

impl Error {
    /// The Linux error number of this error. This is the only place where one is chosen.
    pub const fn errno(&self) -> i32 {
        match self {
            Error::NotFound => 2,            // ENOENT
            Error::Io(_) => 5,               // EIO
            Error::Damaged(_) => 5,          // EIO
            Error::AccessDenied => 13,       // EACCES
            Error::Busy => 16,               // EBUSY
            Error::Overtaken => 16,          // EBUSY
            Error::Exists => 17,             // EEXIST
            Error::CrossDevice => 18,        // EXDEV
            Error::NotDirectory => 20,       // ENOTDIR
            Error::IsDirectory => 21,        // EISDIR
            Error::InvalidArgument(_) => 22, // EINVAL
            Error::TooManyOpen => 23,        // ENFILE
            Error::TooManyGroups => 23,      // ENFILE
            Error::FileTooLarge => 27,       // EFBIG
            Error::NoSpace => 28,            // ENOSPC
            Error::ReadOnly => 30,           // EROFS
            Error::TooManyLinks => 31,       // EMLINK
            Error::BufferTooSmall => 34,     // ERANGE
            Error::NameTooLong => 36,        // ENAMETOOLONG
            Error::TooManyLocks => 37,       // ENOLCK
            Error::NotEmpty => 39,           // ENOTEMPTY
            Error::NoAttribute => 61,        // ENODATA
            Error::NotPermitted => 1,        // EPERM
            Error::ValueTooLarge => 7,       // E2BIG
            Error::NoSuchOffset => 6,        // ENXIO
            Error::NumberTooLarge => 75,     // EOVERFLOW
            Error::NotSupported => 95,       // EOPNOTSUPP
            Error::Stale => 116,             // ESTALE
            Error::QuotaExceeded => 122,     // EDQUOT
        }
    }
}
