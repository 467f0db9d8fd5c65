//! What every folder may use: the order of locks, errors, encoded pointers, planted bugs.

pub(crate) mod error;
pub(crate) mod order;
#[cfg(feature = "planted-bugs")]
pub mod planted;
#[cfg(not(feature = "planted-bugs"))]
pub(crate) mod planted;
pub(crate) mod pointers;
