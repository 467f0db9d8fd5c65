//! The contract of an item store: the seam between file-system semantics and the places where
//! bytes live.
//!
//! A store holds **datasets**. A dataset is an ordered map from [`Key`] to [`Item`]; an item is a
//! small value and, if it has content, a **block**: an immutable run of bytes kept apart from the
//! map. A change is a [`Batch`]: it applies wholly or not at all, also across a crash. Blocks are
//! shared by referring to one from several items; the store counts.
//!
//! A [`View`] is one dataset, live or as a snapshot kept it. The [`Store`] makes, lists and
//! destroys datasets and snapshots. What only some views or stores can do is a capability
//! ([`Capabilities`], [`StoreCapabilities`]). Beside the contract stand its tests, [`conformance`],
//! and a fake, [`memory`].

mod batch;
mod block;
pub mod conformance;
mod error;
mod grants;
mod lock;
pub mod memory;
pub mod minimal;
mod name;
pub mod operations;
mod scheduled;
mod snapshot_rule;
mod store;
mod undo_time;
mod usage;
mod view;

pub use batch::{Admission, Batch, Counter, Edit};
pub use block::{Block, FreshBlock, Item, SharedContent, StoredForm, Token};
pub use error::{Damage, Error};
pub use grants::{GRANTEES_MAX, Grantee, Grants, Verb};
pub use lock::{HeldLock, LockFamily, LockMode, LockRequest};
pub use marram_format::key::{Key, kind};
pub use name::{
    AUTOMATIC_PREFIX, DatasetName, Source, check_rename, check_tag, is_automatic_name, merge_bases,
};
pub use operations::{Author, Hidden, MergeBack, Operation, Rest, Reversal, Undo};
pub use scheduled::Scheduled;
pub use snapshot_rule::SnapshotRule;
pub use store::{
    Applied, DatasetKind, DatasetReport, Destruction, EphemeralSnapshots, ForkBegin, FrozenViews,
    Holds, ItemChange, Lineage, MergeInto, MergedFrom, OperationLog, Properties, PropertySource,
    ROOT_OBJECT, SeveralDatasets, SpaceUsage, Store, StoreCapabilities, VolatileForks, limit_batch,
};
pub use undo_time::{UNDO_DEFAULT, check_undo_time, undo_seconds};
pub use usage::{Holder, Usage};
pub use view::{
    AdmissionControl, Adoption, BlockPlace, Capabilities, CountedSpace, Foresight, Halting,
    Holding, Labelled, Locking, Moment, Ownership, Part, Placement, Space, Together, Trimming,
    Unread, View,
};

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Largest value of an item, in bytes; what is larger goes into a block.
pub const VALUE_BYTES_MAX: usize = 4096;
/// Largest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
