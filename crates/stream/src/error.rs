//! What can go wrong with a stream.

use marram_format::FormatError;
use thiserror::Error;

/// Why a stream cannot be written, read or received. Nothing of it has been kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// It is cut, damaged, altered, or not one that this version can read.
    #[error("the stream cannot be used: {0}")]
    Stream(String),
    /// It does not fit what is here, or the other way round: the text says how, and what to do.
    #[error("{0}")]
    Unfit(String),
    /// Its source or its destination has failed.
    #[error("{0}")]
    Transfer(String),
    /// The store could not be read or changed.
    #[error(transparent)]
    Store(#[from] marram_store::Error),
}

/// The error for bytes of a stream that are wrong.
pub(crate) fn wrong(records: u64, error: &FormatError) -> Error {
    match error {
        FormatError::Foreign { .. } | FormatError::Newer { .. } | FormatError::Features { .. } => {
            Error::Stream(error.to_string())
        }
        _ => Error::Stream(format!(
            "its record {records} is damaged, altered or not where it belongs: {error}"
        )),
    }
}
