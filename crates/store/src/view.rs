//! One dataset, live or as a snapshot kept it.

use crate::{Batch, Block, Item, Key, Properties, Result};
use bytes::Bytes;

/// How much space a view's store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of the store in bytes, without what it keeps for itself.
    pub total_bytes: u64,
    /// Bytes that batches can still take.
    pub free_bytes: u64,
}

/// An ordered map of items. All methods may be called from many threads; `apply` is the only
/// change, and what it changed is seen by every call that starts after it returned.
pub trait View: Send + Sync {
    /// The item under `key`.
    fn get(&self, key: Key) -> Result<Option<Item>>;

    /// Visits the items from `from` to `to`, both included, in key order, until the visitor
    /// returns false. Items that are there during the whole scan are visited exactly once. The
    /// visitor must not call the view.
    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()>;

    /// The item with the greatest key from `from` to `to`, both included.
    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>>;

    /// Applies a batch.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], [`crate::Error::ReadOnly`], [`crate::Error::NotFresh`],
    /// [`crate::Error::LimitExceeded`], or a failed read; then nothing of the batch has been
    /// applied.
    fn apply(&self, batch: Batch<'_>) -> Result<()>;

    /// The whole content of a block, verified.
    fn read_block(&self, block: &Block) -> Result<Bytes>;

    /// Bytes that a stored block takes in the store (a fresh one: its length).
    fn stored_bytes(&self, block: &Block) -> u64;

    /// Returns when all batches that were applied before are durable.
    fn sync(&self) -> Result<()>;

    /// The store of this view takes no more changes and writes nothing more, as if the power were
    /// cut now: what is not durable yet will be gone when it is opened again. Reads go on working;
    /// a sync fails with [`crate::Error::Io`].
    fn halt(&self);

    /// How much space the store has.
    fn space(&self) -> Space;

    /// Whether `apply` can work at all.
    fn writable(&self) -> bool;

    /// The properties in force.
    fn properties(&self) -> Properties;
}
