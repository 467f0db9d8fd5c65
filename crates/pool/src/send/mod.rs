//! Snapshots on their way between pools: sent as a stream, and received from one.
//!
//! A stream speaks of items and blocks, as the tree of a dataset has them; `docs/stream.md` has its
//! bytes, and crate `stream` what all homes share of them. Sending walks two trees side by side, so
//! its cost follows what has changed (`sender`, `shared`). Receiving verifies each record before it
//! applies it to a hidden dataset (`receive`), and shows the whole at once, in one commit
//! (`incoming`). So a
//! stream that is cut or altered leaves nothing behind, and a crash leaves a dataset with a name of
//! the pool's own, which goes when the pool is next served. A resumable receive keeps what has come
//! instead, and goes on from it (`partial`).

mod image;
pub(crate) mod incoming;
pub(crate) mod partial;
pub(crate) mod receive;
pub(crate) mod sender;
mod shared;
pub(crate) mod unchanged;

pub use image::{ReadAt, StreamFile, StreamImage};
pub use marram_stream::{
    Progress, ReceiveRequest, SendRequest, StreamReport, StreamTotals, peek_begin, verify_stream,
};
pub use receive::{Incoming, Received};

use marram_format::dataset::DatasetRecord;
use marram_format::key::Key;
use marram_format::stream::SnapshotIdentity;
use marram_stream::reader::is_sent_property;

/// Where a dataset that is being received says how far it is: a kind of item that belongs to the
/// engine, and is in no stream.
pub(crate) const POSITION_KEY: Key = Key::new(0, u8::MAX, 0);

/// Which snapshot a record is, wherever it has been sent to.
pub(crate) fn identity_of(record: &DatasetRecord) -> SnapshotIdentity {
    SnapshotIdentity { id: record.id128, created_seconds: record.created_seconds }
}

/// The properties of a dataset that go with it.
fn sent_properties(record: &DatasetRecord) -> Vec<(String, String)> {
    record.properties.iter().filter(|(name, _)| is_sent_property(name)).cloned().collect()
}
