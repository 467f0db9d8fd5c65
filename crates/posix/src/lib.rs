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
mod allocate;
mod attributes;
mod change;
mod content;
mod copy;
mod counters;
mod create;
mod damage;
mod dedup;
mod descent;
mod directory;
mod extents;
mod filesystem;
mod footprint;
mod lazy;
mod link;
mod locks;
mod marks;
mod options;
mod orphans;
mod parent;
mod pass;
mod pins;
mod promises;
mod quota;
mod read;
mod rename;
mod rewriting;
mod rollback;
mod seek;
mod shift;
mod shutdown;
mod truncate;
mod unshare;
mod usage;
mod write;
mod xattr;

pub use acl::{
    Nfs4Entry, Nfs4Inheritance, Nfs4List, Nfs4ListError, Nfs4Rights, Nfs4Verdict, Nfs4Who,
    PosixList, PosixListError,
};
pub use dedup::{
    ContentSharing, DedupOptions, DedupReport, Deduplicator, LiveTotals, Sharing, content_sharing,
    deduplicate,
};
pub use filesystem::Posix;
pub use footprint::{Footprint, FootprintOptions, Footprints, footprints};
pub use marram_format::record::{Limit, OwnerClass, OwnerId, Usage};
pub use options::{AccessTimes, DamagedRange, OnDamage, PosixOptions};
pub use pass::{PassPlace, Skipped};
pub use rewriting::{DefragmentOptions, DefragmentReport, Rewriter, RewritingTotals, defragment};
pub use usage::OwnerReport;
