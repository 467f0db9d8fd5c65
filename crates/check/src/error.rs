//! Why a pool could not be checked at all.

use thiserror::Error;

/// Why there is nothing to check, or nothing that this program could check. What is wrong with a
/// pool is a [`crate::Finding`], not an error.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The device does not even report its size, or fails where the pool begins.
    #[error(transparent)]
    Device(#[from] marram_device::Error),
    /// There is neither a signature nor a superblock.
    #[error("{device}: no Marram pool: {reason}; name the file or device that the pool lies on")]
    NoPool {
        /// The device's name.
        device: String,
        /// What was found instead.
        reason: String,
    },
    /// A later version wrote the pool.
    #[error("{device}: {reason}")]
    TooNew {
        /// The device's name.
        device: String,
        /// Which version or features; what to do.
        reason: String,
    },
    /// The pool has more than this program can check.
    #[error("{device}: {reason}")]
    Unsupported {
        /// The device's name.
        device: String,
        /// What that is.
        reason: String,
    },
}
