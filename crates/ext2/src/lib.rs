//! Ext2 and ext3 images as a POSIX file system; ext4 images are read.
//!
//! Each operation is a plan of changes to sectors of the image, each with what has to be durable
//! before it; `marram_patch` writes them in such an order that every crash leaves an image which
//! the mount and `e2fsck` understand. `docs/ext2.md` says what is served and what a crash may
//! leave.

mod access;
mod acl;
mod bytes;
mod checksum;
mod error;
mod filesystem;
mod inode;
mod part;
mod state;
mod superblock;

pub use error::ImageError;
pub use filesystem::{Consistency, Ext2, Ext2Options, Planted};
pub use marram_patch::{Counters, Merging, Study};
pub use state::AccessTimes;
pub use state::journal::log::JournalBug;
pub use state::rules::Rule;
pub use superblock::{Header, SUPERBLOCK_AT, SUPERBLOCK_BYTES, decode_header};
