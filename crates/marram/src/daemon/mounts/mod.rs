//! The mounts of a daemon: made, listed, taken away.

mod again;
mod checks;
mod fuse;
mod making;
mod mounted;
mod sight;
mod table;
mod view;

pub(super) use checks::{check_directory, check_wakeful, fuse_error};
pub(super) use fuse::{describe, fuse_options};
pub(super) use making::mount;
pub(super) use mounted::Served;
pub(super) use sight::is_used;
pub(super) use table::{Borrowed, MountTable};
pub(super) use view::mount_view;
