//! Why an image cannot be opened.

use thiserror::Error;

/// What is wrong with an image or the place where it lies.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImageError {
    /// There is no image.
    #[error("no ext2 or ext3 image: {0}")]
    NoImage(String),
    /// The image has a feature that this program cannot serve.
    #[error("the image has the feature {feature}, which {limit}: {next}")]
    Feature {
        /// The feature, as `tune2fs` calls it.
        feature: String,
        /// What cannot be done.
        limit: &'static str,
        /// What to do next.
        next: &'static str,
    },
    /// An order of writes that the image or this program does not have.
    #[error("consistency={0}")]
    Consistency(String),
    /// Its structures make no sense.
    #[error("the image is damaged: {0}; look at it with `e2fsck -fn`")]
    Damaged(String),
    /// The image says that it has errors.
    #[error("the image is marked as having errors; run e2fsck on it, or mount it with `ro`")]
    HasErrors,
    /// The device failed.
    #[error("{0}")]
    Device(#[from] marram_device::Error),
}

impl From<marram_vfs::Error> for ImageError {
    fn from(error: marram_vfs::Error) -> ImageError {
        match error {
            marram_vfs::Error::Damaged(what) => ImageError::Damaged(what),
            other => ImageError::Damaged(other.to_string()),
        }
    }
}

/// A failed device as an error of an operation.
pub(crate) fn failed(error: marram_device::Error) -> marram_vfs::Error {
    match error {
        marram_device::Error::PastEnd { .. } | marram_device::Error::Unusable { .. } => {
            marram_vfs::Error::Damaged(error.to_string())
        }
        other => marram_vfs::Error::Io(other.to_string()),
    }
}
