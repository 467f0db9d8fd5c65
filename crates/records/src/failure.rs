//! From the errors of stores and records to those of file systems.

use marram_format::FormatError;
use marram_store::Error as StoreError;
use marram_vfs::Error;

/// What a store's error means to the caller of a file system.
pub fn from_store(error: StoreError) -> Error {
    match error {
        StoreError::NoSpace => Error::NoSpace,
        StoreError::LimitExceeded(_) => Error::QuotaExceeded,
        StoreError::ReadOnly(_) => Error::ReadOnly,
        StoreError::Overtaken => Error::Overtaken,
        StoreError::InDoubt(_) => Error::Busy,
        StoreError::Damaged(damage) => Error::Damaged(damage.to_string()),
        StoreError::Io(text) => Error::Io(text),
        StoreError::Unsupported(_) => Error::NotSupported,
        other => Error::Io(other.to_string()),
    }
}

/// What a store's error means to the caller of a sync. A store that takes no more changes since
/// something failed may have lost what was not durable then: each sync reports that, while a
/// change is refused as on a read-only file system.
pub fn from_sync(error: StoreError) -> Error {
    match error {
        StoreError::ReadOnly(reason) => Error::Io(reason),
        other => from_store(other),
    }
}

/// A record of `object` that makes no sense, though its checksum was right.
pub fn from_record(object: u64, error: &FormatError) -> Error {
    Error::Damaged(format!("inode {object}: {error}"))
}
