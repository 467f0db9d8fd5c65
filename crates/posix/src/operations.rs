//! Operations of the file system, one file each: functions over a [`crate::volume::Volume`].
//!
//! Each takes the locks of its inodes, reads, checks, and commits one
//! [`crate::frame::change::Change`].

pub(crate) mod allocate;
pub(crate) mod allocate_piece;
pub(crate) mod attributes;
pub(crate) mod copy;
pub(crate) mod create;
pub(crate) mod directory;
pub(crate) mod extents;
pub(crate) mod label;
pub(crate) mod limits;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod marks;
pub(crate) mod read;
pub(crate) mod rename;
pub(crate) mod rollback;
pub(crate) mod seek;
pub(crate) mod shift;
pub(crate) mod shutdown;
pub(crate) mod space;
pub(crate) mod sync;
pub(crate) mod truncate;
pub(crate) mod unshare;
pub(crate) mod usage;
pub(crate) mod write;
pub(crate) mod xattr;
