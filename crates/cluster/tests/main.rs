//! The tests of the cluster store: one binary, a module for each question.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blind;
mod clients;
mod contract;
mod crashes;
mod dying;
mod histories;
mod hostile;
mod interrupted;
mod locks;
mod operations;
mod postgres;
mod round_trips;
mod server;
mod specification;
mod stores;
mod together;
mod transfers;
mod tree;
mod tunnel;
