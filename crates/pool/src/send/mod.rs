//! Snapshots on their way between pools: sent as a stream, and received from one.
//!
//! A stream speaks of items and blocks, as the tree of a dataset has them; `docs/stream.md` has its
//! bytes. Sending walks two trees side by side, so its cost follows what has changed (`send`,
//! `shared`). Receiving verifies each record before it uses it (`reader`), applies it to a hidden
//! dataset (`receive`, `apply`), and shows the whole at once, in one commit (`incoming`). So a
//! stream that is cut or altered leaves nothing behind, and a crash leaves a dataset with a name of
//! the pool's own, which goes when the pool is next served. A resumable receive keeps what has come
//! instead, and goes on from it (`partial`).

mod apply;
mod image;
pub(crate) mod incoming;
pub(crate) mod partial;
mod reader;
pub(crate) mod receive;
pub(crate) mod sender;
mod shared;
pub(crate) mod unchanged;

pub use image::{ReadAt, StreamFile, StreamImage};
pub use reader::{StreamReport, peek_begin, verify_stream};
pub use receive::{Incoming, ReceiveRequest, Received};
pub use sender::SendRequest;

use crate::Error;
use crate::memtable::settings::{ALLOW, QUOTA, RESERVATION, USER_FORKS};
use marram_format::FormatError;
use marram_format::dataset::DatasetRecord;
use marram_format::key::Key;
use marram_format::stream::SnapshotIdentity;

/// Where a dataset that is being received says how far it is: a kind of item that belongs to the
/// engine, and is in no stream.
pub(crate) const POSITION_KEY: Key = Key::new(0, u8::MAX, 0);

/// How much has been sent or received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// Items put.
    pub puts: u64,
    /// Items removed.
    pub removals: u64,
    /// Blocks that came with their content.
    pub blocks: u64,
    /// Stored bytes of those.
    pub stored_bytes: u64,
    /// Bytes of the stream.
    pub stream_bytes: u64,
}

/// Reports how far it is.
pub type Progress<'p> = &'p mut dyn FnMut(&StreamTotals);

/// Which snapshot a record is, wherever it has been sent to.
pub(crate) fn identity_of(record: &DatasetRecord) -> SnapshotIdentity {
    SnapshotIdentity { id: record.id128, created_seconds: record.created_seconds }
}

/// The properties of a dataset that go with it.
fn sent_properties(record: &DatasetRecord) -> Vec<(String, String)> {
    record.properties.iter().filter(|(name, _)| is_sent_property(name)).cloned().collect()
}

/// Whether a property goes with its dataset: not those that say how much of its pool it may take,
/// and none of the pool's own.
fn is_sent_property(name: &str) -> bool {
    !name.starts_with('.') && ![ALLOW, QUOTA, RESERVATION, USER_FORKS].contains(&name)
}

/// The error for bytes of a stream that are wrong.
fn wrong(records: u64, error: &FormatError) -> Error {
    match error {
        FormatError::Foreign { .. } | FormatError::Newer { .. } | FormatError::Features { .. } => {
            Error::Stream(error.to_string())
        }
        _ => Error::Stream(format!(
            "its record {records} is damaged, altered or not where it belongs: {error}"
        )),
    }
}
