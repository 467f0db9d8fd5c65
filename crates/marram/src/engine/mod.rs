//! The engines, behind one seam for the daemon and the commands.
//!
//! | file | what it has |
//! | --- | --- |
//! | [`home`] | [`Home`], what every home answers, and the capabilities that only some have |
//! | [`volume`] | [`Volume`], a dataset or snapshot that is open as a file system |
//! | [`changes`] | what the kernel has to ask anew for |
//! | [`mounts`] | [`Mounts`](mounts::Mounts), what a home asks of the mounts that show it |
//! | [`source`] | how a home is recognised at a path, and opened |
//! | `kinds` | the kinds of homes |
//! | [`posix`] | volumes of homes that are stores |
//! | [`members`] | snapshots and forks of homes that are stores |
//! | `pmem` | the pmem home: a file system in mapped memory |
//! | [`pool`] | the pool: the only folder that names its crate |
//!
//! # How a new home is mounted
//!
//! 1. Its crate implements `marram_store::Store`, whose datasets [`posix::open_view`] opens, or
//!    `marram_vfs::FileSystem`, which one line makes a volume: `impl Volume for MyFiles {}`.
//! 2. A folder beside `pool` has a type that implements [`Home`]. It hands out the capabilities
//!    that it has.
//! 3. `kinds.rs` has its `Kind` in the table: how it is recognised, and how it is opened.
//!
//! Nothing else changes: the daemon, the control socket and the commands ask the home. The tests of
//! the daemon mount such homes, each of a few dozen lines, one on the smallest store that there can
//! be: `daemon/tests/homes.rs`.

pub(crate) mod changes;
mod damage;
pub(crate) mod home;
mod kinds;
pub(crate) mod members;
pub(crate) mod mounts;
mod pmem;
pub(crate) mod pool;
pub(crate) mod posix;
pub(crate) mod source;
pub(crate) mod volume;

pub(crate) use home::Home;
pub(crate) use kinds::{open, probe};
#[cfg(test)]
pub(crate) use mounts::Mounts;
pub(crate) use pmem::{CreatePmem, create as create_pmem};
pub(crate) use pool::{
    CreateRequest, ShownStreams, create, forget_damage, no_pool, pool_lock, properties,
    show_streams, streams,
};
pub(crate) use source::OpenMode;
pub(crate) use volume::Volume;
