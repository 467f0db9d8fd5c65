//! What can go wrong with a pool as a whole.

use thiserror::Error;

/// Why a pool cannot be created, opened or changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The device holds no pool.
    #[error("{device} holds no Marram pool: {reason}")]
    NoPool {
        /// The device's name.
        device: String,
        /// What was found instead.
        reason: String,
    },
    /// The pool needs a newer program.
    #[error("{device}: {reason}")]
    TooNew {
        /// The device's name.
        device: String,
        /// Which version or feature it needs.
        reason: String,
    },
    /// The device is smaller than a pool can be, or than the pool says it is.
    #[error("{device} has {found_bytes} bytes; {needed_bytes} are needed: {reason}")]
    TooSmall {
        /// The device's name.
        device: String,
        /// Its size.
        found_bytes: u64,
        /// The size it should have.
        needed_bytes: u64,
        /// What that means, and what to do.
        reason: String,
    },
    /// This version cannot do what was asked.
    #[error("{0}")]
    Unsupported(String),
    /// The intent log cannot be replayed. Without it the pool can be read as its last group commit
    /// left it: [`crate::OpenOptions::skip_log`].
    #[error("what was synced last cannot be brought back: {0}")]
    Log(marram_store::Error),
    /// A stream is cut, damaged, altered, or not one that this version can read. Nothing of it has
    /// been kept.
    #[error("the stream cannot be used: {0}")]
    Stream(String),
    /// A stream does not fit what is here, or the other way round: the text says how, and what to
    /// do. Nothing has been changed.
    #[error("{0}")]
    Unfit(String),
    /// The source or the destination of the stream has failed.
    #[error("{0}")]
    Transfer(String),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] marram_device::Error),
    /// The pool's own structures could not be read or changed.
    #[error(transparent)]
    Store(#[from] marram_store::Error),
}

impl From<marram_stream::Error> for Error {
    fn from(error: marram_stream::Error) -> Error {
        match error {
            marram_stream::Error::Stream(reason) => Error::Stream(reason),
            marram_stream::Error::Unfit(reason) => Error::Unfit(reason),
            marram_stream::Error::Transfer(reason) => Error::Transfer(reason),
            marram_stream::Error::Store(error) => Error::Store(error),
        }
    }
}
