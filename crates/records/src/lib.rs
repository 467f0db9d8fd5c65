//! What the items of a file system mean, read and written through a store.
//!
//! Each module is one kind of item: its key, its value, and how it is found in a
//! [`marram_store::View`] or put into a [`marram_store::Batch`]. The bytes of the values are
//! `marram_format::record`; `docs/format-records.md` is their specification. [`state::State`] reads
//! a whole state of a dataset item by item.
//!
//! **No state, no locks.** Nothing here outlives a call or knows of a mounted file system: what is
//! read is what the view holds. So what is built on it alone works on states without a
//! mount. Waiting access times, pins and locks are `marram-posix`.

#![deny(clippy::cast_possible_truncation)]

pub mod counters;
pub mod directory;
pub mod failure;
pub mod inode;
pub mod lists;
pub mod orphans;
pub mod renumbering;
pub mod section_edits;
pub mod sections;
pub mod state;
pub mod usage;
pub mod xattr;
