//! What can go wrong in a store.

use thiserror::Error;

/// Why a store refused or failed. Nothing has changed when one is returned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// No space for the batch, counting what is kept back.
    #[error("no space left in the pool")]
    NoSpace,
    /// A counter would grow past its limit, or a dataset past its quota; the text says which.
    #[error("limit exceeded: {0}")]
    LimitExceeded(String),
    /// A snapshot, a read-only mount, or a pool that no longer takes changes; the text says why.
    #[error("read-only: {0}")]
    ReadOnly(String),
    /// A patch met a block that has been written meanwhile, or no block, or one that other items
    /// have too and that a store does not copy unasked: read it and put a new one.
    #[error("the block is not fresh")]
    NotFresh,
    /// Another client has changed what the batch depends on ([`crate::Batch::seen`]), or may have:
    /// look again ([`crate::Together::look`]), and execute the operation anew.
    #[error("another client has changed it meanwhile: try again")]
    Overtaken,
    /// Stored bytes failed their checksum in every copy.
    #[error("{0}")]
    Damaged(Damage),
    /// A device failed, or the store behind it; the text says which and how.
    #[error("{0}")]
    Io(String),
    /// No dataset or snapshot of that name.
    #[error("no dataset or snapshot named {0}")]
    NoDataset(String),
    /// The name is taken.
    #[error("a dataset or snapshot named {0} exists")]
    DatasetExists(String),
    /// It is mounted or has clones; the text says what holds it.
    #[error("{name} is in use: {holder}")]
    InUse {
        /// What was to be changed.
        name: String,
        /// What holds it, and what to do.
        holder: String,
    },
    /// It is not known which of two states a dataset has; the text says which dataset, and what
    /// ends that.
    #[error("{0}")]
    InDoubt(String),
    /// A name or property value makes no sense; the text says which and what would.
    #[error("{0}")]
    Invalid(String),
    /// A capability is asked for that the store does not have; the text says which.
    #[error("this kind of store has no {0}")]
    Unsupported(&'static str),
}

/// Which stored bytes are damaged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at {place} is damaged in every copy: {reason}")]
pub struct Damage {
    /// What it was: a data block, a tree node.
    pub what: &'static str,
    /// Device and byte offset of the first copy.
    pub place: String,
    /// What was found: a checksum mismatch, a read error.
    pub reason: String,
}
