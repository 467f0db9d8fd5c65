//! A POSIX file system on any item store: inodes, directories, files of sections, attributes.
//!
//! [`Posix`] implements [`marram_vfs::FileSystem`] over one [`marram_store::View`]. It names no
//! engine, reads no clock but the one it is given, and starts no thread: what has to be done in
//! the background is [`Posix::reclaim_step`].
//!
//! **One operation is one batch.** Everything that an operation changes goes into one
//! [`marram_store::Batch`], so a crash leaves all of it or none. What cannot be one batch because
//! it may be of any size (removing the content of a huge file) is begun by a batch that makes it
//! true at once and leaves an orphan item behind; the rest is removed piece by piece, also after
//! a crash. `docs/semantics.md` says which operations on large ranges are done in pieces.
//!
//! **Isolation.** An operation holds the locks of the inodes that it changes from its first read
//! to the end of its batch; see `locks`. What items mean is in `docs/format-records.md`.

#![deny(clippy::cast_possible_truncation)]

mod acl;
mod filesystem;
mod frame;
mod operations;
mod options;
mod parent;
mod upkeep;
mod volume;

pub use acl::{
    Nfs4Entry, Nfs4Inheritance, Nfs4List, Nfs4ListError, Nfs4Rights, Nfs4Verdict, Nfs4Who,
    PosixList, PosixListError,
};
pub use filesystem::Posix;
pub use marram_format::record::{Limit, OwnerClass, OwnerId, Usage};
pub use operations::usage::OwnerReport;
pub use options::{AccessTimes, DamagedRange, OnDamage, PosixOptions};
pub use parent::{hold_together, turn_together};
pub use upkeep::{
    ContentSharing, DedupOptions, DedupReport, Deduplicator, DefragmentOptions, DefragmentReport,
    DefragmentTotals, Defragmenter, Footprint, FootprintOptions, Footprints, LiveTotals, PassPlace,
    Sharing, Skipped, content_sharing, deduplicate, defragment, footprints, share_if_equal,
};
