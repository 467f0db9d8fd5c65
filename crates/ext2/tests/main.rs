//! The ext2 home against the model, in every crash, and on images that make no sense.
//!
//! The judge of an image is the stock `e2fsck`, which shares nothing with this crate.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod campaign;
mod crashes;
mod edges;
mod ext4;
mod hostile;
mod images;
mod journal;
mod judge;
mod logged;
mod names;
mod numbered;
mod oracle;
mod patchgroups;
mod races;
mod reclaim;
mod rules;
mod syncs;
mod tags;
mod view;
mod workload;
