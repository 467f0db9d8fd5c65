//! What databases on servers have in common: how they are named and reached, and how long they are
//! waited for.

mod access;
mod attempts;
pub(crate) mod tcp;
pub(crate) mod tls;
pub(crate) mod url;

pub use access::{Access, Elapsed, PATIENCE, Password};
pub(crate) use attempts::Attempts;
