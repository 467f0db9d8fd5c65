//! A POSIX file system in memory-mapped media: every operation is durable, atomic and in order when
//! it returns.
//!
//! After BPFS (Condit and others, 2009; Frost's thesis, 2010, chapter 3): a tree of pages in which
//! a change is cut short at the lowest word above all that changes, and one store of that word is
//! the commit. What takes several words goes through a small redo record. Which pages and inodes
//! are in use is on media nowhere: a scan finds out, beside the first operations of a mount.
//!
//! `docs/format-pmem.md` is the format, to the byte.

mod error;
mod filesystem;
mod image;
mod layout;
pub mod memory;
mod opening;
mod space;
mod state;
mod time;

pub use error::ImageError;
pub use filesystem::{DatasetReport, Destroyed, Pmem, PmemOptions};
pub use image::{Header, NewImage, make};
pub use layout::HEADER_BYTES;
pub use opening::{Opening, Scan};
pub use state::{AccessTimes, Which};
