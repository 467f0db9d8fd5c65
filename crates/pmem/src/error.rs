//! Why an image cannot be made or opened.

use std::path::PathBuf;
use thiserror::Error;

/// What is wrong with an image or the place where it lies.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// The file cannot be used.
    #[error("{}: {reason}", path.display())]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Another process uses the image.
    #[error("{}: another process uses it", path.display())]
    InUse {
        /// Which file.
        path: PathBuf,
    },
    /// There is no image.
    #[error("no pmem image: {0}")]
    NoImage(String),
    /// The image is of a version that this program does not read.
    #[error("the pmem image has format version {0}, and this program reads version 3 alone")]
    Version(u32),
    /// A crash has left an operation that only a writer can finish.
    #[error(
        "an operation was interrupted, and only a mount that may write can finish it: mount the \
         home once without `ro`"
    )]
    Interrupted,
    /// The medium has failed.
    #[error("the pmem image cannot be read: {0}")]
    Failed(String),
    /// The image makes no sense.
    #[error("the pmem image is damaged: {0}")]
    Damaged(String),
}

impl From<marram_vfs::Error> for ImageError {
    fn from(error: marram_vfs::Error) -> ImageError {
        match error {
            marram_vfs::Error::Damaged(what) => ImageError::Damaged(what),
            marram_vfs::Error::Io(what) => ImageError::Failed(what),
            other => ImageError::Damaged(other.to_string()),
        }
    }
}
