//! How commands reach the daemon of a mounted pool: a Unix socket, one JSON line each way.
//!
//! The daemon greets first with its version, process id and mounts; a command of another version
//! stops there and says so, because what follows may have changed between versions. The greeting
//! itself never changes its first fields.

pub(crate) mod chunks;
pub(crate) mod client;
mod connections;
pub(crate) mod credentials;
pub(crate) mod daemons;
pub(crate) mod owner_names;
pub(crate) mod peer;
pub(crate) mod protocol;
pub(crate) mod server;
