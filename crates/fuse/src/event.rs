//! What happens while serving that no caller gets in words, for the daemon's log.

use crate::protocol::Malformed;
use marram_vfs::{Error, Ino};
use std::fmt;
use std::sync::Arc;

/// Something that the log should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The kernel sent something that is no request; it was answered with an input/output error.
    Malformed {
        /// What is wrong with it.
        reason: Malformed,
    },
    /// Serving a request panicked; it was answered with an input/output error.
    Panicked {
        /// Number of the operation; see [`crate::protocol::Opcode`].
        opcode: u32,
        /// The inode that it was about.
        ino: Ino,
        /// What the panic said.
        message: String,
    },
    /// Data is damaged or a device failed: the caller sees only an input/output error.
    Failed {
        /// Number of the operation; see [`crate::protocol::Opcode`].
        opcode: u32,
        /// The inode that it was about.
        ino: Ino,
        /// What the file system said.
        error: Error,
    },
    /// One of the threads that serve lost its connection with the kernel.
    Disconnected {
        /// What the system said.
        reason: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Malformed { reason } => write!(out, "request from the kernel: {reason}"),
            Event::Panicked { opcode, ino, message } => {
                write!(out, "operation {opcode} on inode {} panicked: {message}", ino.0)
            }
            Event::Failed { opcode, ino, error } => {
                write!(out, "operation {opcode} on inode {}: {error}", ino.0)
            }
            Event::Disconnected { reason } => write!(out, "connection with the kernel: {reason}"),
        }
    }
}

/// The receiver of events.
pub type EventSink = Arc<dyn Fn(Event) + Send + Sync>;
