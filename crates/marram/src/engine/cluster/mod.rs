//! The cluster home behind the seam: a store in a database.
//!
//! `databases` finds and makes the databases that paths and URLs name, with a `password`;
//! `buckets` says how buckets for blocks are reached; `client` finds out whether a client that has
//! a home open is still there, by its `host` too, and `clients` lists them for people; `open` opens
//! and makes homes; `streams` sends and receives, `attended` answers others meanwhile;
//! `transactions` has those of programs;
//! `usage` knows when a daemon that nobody uses rests;
//! `schedule` says what automatic snapshots ask of it, and `space` what holds its space;
//! `operations` performs what is asked, and `home` implements the seam.

mod attended;
mod buckets;
mod client;
mod clients;
mod databases;
mod home;
mod host;
mod open;
mod operations;
mod password;
mod schedule;
mod space;
mod streams;
mod transactions;
mod usage;
mod verifier;

pub(crate) use clients::{ClientRow, clients, expel};
pub(super) use databases::none_at;
pub(super) use home::ClusterKind;
pub(crate) use open::{CreateCluster, create};
pub(crate) use verifier::{Verified, is_cluster, verify};
