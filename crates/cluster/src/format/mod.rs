//! Rows and entries as bytes; `docs/cluster-format.md` is the specification.
//!
//! Whatever a decoder is given, it answers with a value or with [`Error::Damaged`]. Numbers in
//! keys are big-endian, so that bytes sort as numbers do; all others are little-endian.

mod bucket;
mod entry;
mod fields;
mod header;
mod holder;
mod item;
pub mod keys;
mod lock;
mod object;
mod operation;
mod record;

pub use bucket::BucketPlace;
pub use entry::{Edit, Entry, Presence, Section};
pub use header::{HEADER_BYTES, Header, Seal, VERSION};
pub use holder::{Holder, HolderRow, TOKENS_MAX, Token};
pub use item::{BlockId, BlockRow, Head, Past, Reference, StoredItem};
pub use lock::{LockPlace, LockRow, LockedRange};
pub use object::{BlocksPlace, ObjectName, UploadId};
pub use operation::decode_operation;
pub use record::{ClientRecord, LineRecord, Record, Role, Stance};

use crate::failure::damaged;
use fields::Fields;
use marram_store::Error;

/// Longest encoded entry, in bytes: what is larger is refused before it is published.
pub const ENTRY_BYTES_MAX: usize = 256 << 20;
/// Longest list in a record.
const LIST_MAX: usize = 1 << 16;

/// A row whose bytes are no such row.
fn malformed(what: &'static str, reason: impl Into<String>) -> Error {
    damaged(what, "a row of the database".to_owned(), reason)
}
