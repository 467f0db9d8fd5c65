//! The daemon: one process for each mounted pool, serving any number of its datasets and snapshots.
//!
//! It ends with its last mount: first the mounts go, then a last group commit makes everything
//! durable, then the lock on the pool falls. When the process has ended, the device is free. A
//! program that waits for `umount(2)` alone may give a block device to another one, which the lock
//! does not stop. So nothing is written after the answer, where the kernel lets us answer before
//! that call returns. Else a last commit lands in the file system that `mkfs` makes there next. If
//! it crashes, the kernel drops lock and connection, and what it leaves (a socket file, a mount
//! that answers nothing) is cleared by the next command that meets it.

mod authority;
mod background;
mod catalogue;
mod damage;
pub(crate) mod heaps;
mod image;
mod invalidation;
pub(crate) mod launch;
mod log;
mod loop_device;
mod mounts;
mod namespace;
mod open_transactions;
mod refusals;
mod service;
mod serving;
mod shown;
mod state;
mod steps;
mod streams;
#[cfg(test)]
mod tests;
mod transactions;
mod two_pools;
mod watchers;

pub(crate) use launch::Launch;
pub(crate) use log::Log;
pub(crate) use serving::run;
