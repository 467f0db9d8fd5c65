//! Operations on a store that mounts show. Programs go on while one is performed, and see what it
//! has changed at once.

mod history;
mod keeping;
mod rename;
mod shown;
mod undo;

pub(crate) use history::{merge, rollback, rollback_directory};
pub(crate) use keeping::{snapshot_below, thin, thin_by};
pub(crate) use rename::{promote, rename};
pub(crate) use shown::{Commits, Shown};
pub(crate) use undo::undo;
