//! The pool as a home: [`home`] implements the seam, [`volume`] opens datasets as file systems.
//!
//! An operation on a pool that nobody has mounted is in [`operations`] and the files beside it. The
//! same operation under mounts is in [`mounted`]. What goes on beside the mounts is in
//! [`background`].

mod background;
mod create;
mod dedup;
mod defragment;
mod footprints;
mod grants;
mod home;
mod image;
mod known_damage;
mod mounted;
mod open;
mod operations;
mod pass;
pub(crate) mod pool_lock;
pub(crate) mod properties;
mod schedule;
mod space;
mod streams;
mod transactions;
mod two_pools;
mod unfinished;
mod volume;

pub(crate) use create::{CreateRequest, create};
#[cfg(test)]
pub(crate) use home::PoolHome;
pub(super) use home::PoolKind;
pub(crate) use image::{Shown as ShownStreams, show as show_streams};
pub(crate) use known_damage::forget as forget_damage;
pub(crate) use open::no_pool;
