//! The pool engine: an item store on devices, copy-on-write and checksummed.
//!
//! Batches change ordered maps in memory; a group commit writes what they changed to media, all
//! at one moment (module `commit`). Nothing that the last commit uses is overwritten. Reading goes
//! through the layers in memory and then the tree of the last commit (module `dataset`), each
//! block verified by the checksum in the pointer that led to it (module `media`).
//!
//! The engine has no thread and no timer of its own: whoever runs it calls [`Pool::commit`] as
//! often as it wants changes to be durable, and may wait for [`Pool::wait_for_work`] to learn
//! that enough has gathered.

mod administration;
mod adoptions;
mod commit;
mod counters;
mod create;
mod dataset;
mod dirty;
mod error;
mod halt;
mod holding;
mod label;
mod log;
mod media;
mod moment;
mod order;
mod overlay;
#[cfg(feature = "planted-bugs")]
pub mod planted;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
mod pointers;
mod pool;
mod quota;
mod recent;
mod settings;
mod shortage;
mod space;
mod status;
mod stream;
#[cfg(test)]
mod tests;
mod touched;
mod tree;
mod trim;
mod unwritten;
mod view;

pub use administration::{Accessed, Author, Hidden, Operation, Partial, Reversal};
pub use create::{CreateOptions, POOL_BYTES_MIN, Probe, create, probe};
pub use error::Error;
pub use marram_format::stream::{ResumeToken, is_stream};
pub use media::DamageReport;
pub use pool::{OpenOptions, Pool};
pub use settings::check_property;
pub use status::{DeviceStatus, Health, PoolStatus};
pub use stream::{
    Incoming, Progress, ReadAt, ReceiveRequest, Received, SendRequest, StreamFile, StreamImage,
    StreamReport, StreamTotals, peek_begin, verify_stream,
};
