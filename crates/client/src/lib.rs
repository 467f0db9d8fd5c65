//! Transactions for programs that know of them.
//!
//! A transaction begins on a directory of a mounted Marram file system. What comes back is a
//! descriptor of the same directory, in a view that nobody else sees; everything below it is the
//! ordinary system calls. The commit makes all of it happen at once, or is refused by name if
//! others have changed what the transaction has read or written. A transaction that is not
//! committed was never there.
//!
//! ```no_run
//! use marram_client::{Transaction, retry};
//! use rustix::fs::{Mode, OFlags, openat, renameat};
//!
//! # fn main() -> Result<(), marram_client::Error> {
//! retry("/srv/data", 5, |tx: &Transaction| {
//!     renameat(tx.directory(), "next", tx.directory(), "current")?;
//!     let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
//!     rustix::io::write(openat(tx.directory(), "log", flags, Mode::from(0o644))?, b"moved\n")?;
//!     Ok::<_, marram_client::Error>(())
//! })
//! # }
//! ```
//!
//! Nothing of an engine is in this crate: it finds the daemon of the mount and asks it. The page
//! `docs/transactions-library.md` has the rules, and decision 0064 the reasons.

#![deny(unsafe_code)]

mod conversation;
mod daemon;
mod device;
mod directory;
mod error;
mod folders;
mod maps;
mod mount_table;
mod protocol;
mod retry;
mod socket;
mod transaction;

pub use error::{Conflict, Error, Result};
pub use retry::{retry, retry_several};
pub use transaction::{Committed, Transaction};

/// How a daemon is found and asked: what the `marram` command shares with the library. No program
/// needs it.
pub mod control {
    pub use crate::device::DeviceNumber;
    pub use crate::folders::{
        control_folder, control_folders, control_folders_of, is_private, is_root, own_uid,
        private_control_folders_of,
    };
    pub use crate::mount_table::{MountEntry, entries_of, mounts};
    pub use crate::protocol::{DATASETS_MAX, PROTOCOL};
    pub use crate::retry::pause;
    pub use crate::socket::connect;
}
