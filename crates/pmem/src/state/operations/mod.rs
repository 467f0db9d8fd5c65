//! The operations, each a change of a [`State`](crate::state::State) under its lock.
//!
//! Each checks everything first. The order of the checks is Linux's, so that errors agree with
//! other file systems.

mod attributes;
mod content;
mod names;
mod rename;
mod xattrs;

pub(crate) use content::PIECE_BYTES_MAX;
pub(crate) use rename::Move;
