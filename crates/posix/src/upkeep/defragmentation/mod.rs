//! Defragmentation: content that lies in small pieces is written anew as whole blocks, and blocks
//! of which little is still used are let go of.
//!
//! `unit` finds out what is worth it and may be done; `unit` and `rewrite` work on a file's
//! sections without regard to its name; `walk` goes through directories, `sweep` through a whole
//! dataset in the background.
//!
//! **Only the space shows it.** A unit is rewritten by one batch of sections with the same bytes;
//! the inode's record is not written. It is prepared without keeping writers out, and dropped if
//! one of its sections has changed meanwhile: a program's write wins.
//!
//! **What another state or section holds is left alone.** A block that a snapshot, a fork, another
//! dataset or a section elsewhere refers to would not come back, and its content would be stored
//! twice. See docs/decisions/0023-overwrites-and-defragmentation.md.

mod rewrite;
mod sweep;
mod unit;
mod walk;

pub use rewrite::DefragmentTotals;
pub use sweep::Defragmenter;
pub use walk::{DefragmentOptions, DefragmentReport, defragment};
