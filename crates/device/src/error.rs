//! What can go wrong with a device.

use thiserror::Error;

/// Why a device operation failed: which device, what was tried and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// The device answered with an error.
    #[error("{device}: {action} of {len} bytes at offset {offset} failed: {reason}")]
    Failed {
        /// The device's name.
        device: String,
        /// read, write, flush, discard, size.
        action: &'static str,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
        /// What the system said.
        reason: String,
    },
    /// The range reaches past the end of the device.
    #[error("{device}: {len} bytes at offset {offset} reach past its end at {size}")]
    PastEnd {
        /// The device's name.
        device: String,
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
        /// Size of the device in bytes.
        size: u64,
    },
    /// The device cannot be opened or used; the text says why and what to do.
    #[error("{device}: {reason}")]
    Unusable {
        /// The device's name.
        device: String,
        /// Why, and what to do.
        reason: String,
    },
}
