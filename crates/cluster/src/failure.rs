//! Damage, as the contract of a store names it.

use marram_store::{Damage, Error};

/// Stored bytes that are not what they must be.
pub(crate) fn damaged(what: &'static str, place: String, reason: impl Into<String>) -> Error {
    Error::Damaged(Damage { what, place, reason: reason.into() })
}
