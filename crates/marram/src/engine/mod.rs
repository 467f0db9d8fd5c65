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
//! | [`history`] | what differs, merges and rollbacks of homes that are stores |
//! | [`mounted`] | operations on such homes while programs use what they change |
//! | `rights`, `owners`, `places` | what users may change, limits of owners, paths of directories |
//! | `change_sets`, `dataset_kinds` | changes as mounts take them, kinds in the words of users |
//! | [`streams`] | streams, whatever home they come from |
//! | `transactions` | transactions of homes that are stores |
//! | `undo` | the log of operations, and taking operations back |
//! | `automatic`, `schedules` | snapshots that are taken by themselves, and when |
//! | `thinning` | which of them go |
//! | `store_operations` | operations that are the same on every store |
//! | `cluster` | the cluster home: a store in a database |
//! | `ext2` | ext2 and ext3 images |
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

mod automatic;
mod change_sets;
pub(crate) mod changes;
mod cluster;
mod damage;
mod dataset_kinds;
mod ext2;
pub(crate) mod history;
pub(crate) mod home;
mod kinds;
pub(crate) mod members;
mod mounted;
pub(crate) mod mounts;
mod owners;
mod places;
mod pmem;
pub(crate) mod pool;
pub(crate) mod posix;
pub(crate) mod rights;
mod schedules;
pub(crate) mod source;
mod store_operations;
pub(crate) mod streams;
mod thinning;
mod transactions;
mod undo;
pub(crate) mod volume;

pub(crate) use cluster::{
    ClientRow, CreateCluster, Verified as VerifiedCluster, clients, create as create_cluster,
    expel, is_cluster, verify as verify_cluster,
};
pub(crate) use ext2::is_image as is_ext2_image;
pub(crate) use home::Home;
pub(crate) use kinds::{none_at, open, probe, probe_within};
#[cfg(test)]
pub(crate) use mounts::Mounts;
pub(crate) use pmem::{
    CreatePmem, create as create_pmem, host as pmem_host, medium as pmem_medium, on_dax_device,
};
pub(crate) use pool::{
    CreateRequest, ShownStreams, create, forget_damage, no_pool, pool_lock, properties,
    show_streams,
};
pub(crate) use source::{OpenMode, path_at, path_of, server_url, sqlite_file};
pub(crate) use volume::Volume;
