//! The pool engine: an item store on devices, copy-on-write and checksummed.
//!
//! Batches change ordered maps in memory; a group commit writes what they changed to media, all
//! at one moment (module `commit`). Nothing that the last commit uses is overwritten. Reading goes
//! through the layers in memory and then the tree of the last commit (module `memtable`), each
//! block verified by the checksum in the pointer that led to it (module `io`).
//!
//! The engine has no thread and no timer of its own. Its caller runs [`Pool::commit`] as often as
//! changes are to be durable, and may wait for [`Pool::wait_for_work`] to learn that enough has
//! gathered.

mod admission;
mod base;
mod commit;
mod front;
mod io;
mod log;
mod memtable;
mod send;
mod snapshots;
mod space;
mod state;
#[cfg(test)]
mod tests;
mod tree;
mod views;

pub use base::error::Error;
#[cfg(feature = "planted-bugs")]
pub use base::planted;
pub use front::Pool;
pub use front::create::{CreateOptions, POOL_BYTES_MIN, Probe, create, probe};
pub use front::status::{DeviceStatus, Health, PoolStatus};
pub use front::two_pools::TwoPoolTransaction;
pub use io::DamageReport;
pub use marram_format::stream::{ResumeToken, is_stream};
pub use marram_format::transaction::TransactionState;
pub use marram_store::SnapshotRule;
pub use marram_store::{Author, Hidden, MergeBack, Operation, Rest, Reversal};
pub use memtable::settings::check_property;
pub use send::partial::Partial;
pub use send::unchanged::Accessed;
pub use send::{
    Incoming, Progress, ReadAt, ReceiveRequest, Received, SendRequest, StreamFile, StreamImage,
    StreamReport, StreamTotals, peek_begin, verify_stream,
};
pub use snapshots::two_pools::{Decide, Ending, OtherPool, Verdict};
pub use state::options::OpenOptions;
