//! One dataset, live or as a snapshot kept it: the map and its blocks.
//!
//! What only some stores can do is a capability ([`Capabilities`]), which the view hands out or
//! does not have. What holds without it is written once, beside it, in the methods of `dyn View`.

mod absent;
mod capabilities;

pub use capabilities::{
    AdmissionControl, Adoption, BlockPlace, Capabilities, CountedSpace, Foresight, Halting,
    Holding, Labelled, Locking, Moment, Ownership, Placement, Space, Together, Trimming,
};

use crate::{Batch, Block, Error, Item, Key, Properties, Result};
use bytes::Bytes;

/// What a request wants of a block, and where in its answer.
#[derive(Clone, Copy, Debug)]
pub struct Part<'b> {
    /// The block.
    pub block: &'b Block,
    /// Where in its content the part begins.
    pub from: usize,
    /// Bytes of it.
    pub len: usize,
    /// Where in the answer it begins: where the part before ends, or behind that.
    pub at: usize,
    /// Much goes by here that nobody is likely to ask for again: the store need not keep it in
    /// memory.
    pub passes_by: bool,
}

/// A part of a request that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its number among the parts, from 0 on.
    pub number: usize,
    /// Why.
    pub error: Error,
}

impl Part<'_> {
    /// Whether it is all of the content.
    pub fn is_whole(&self) -> bool {
        self.from == 0 && self.len == self.block.len()
    }

    /// Appends it, from the whole content.
    ///
    /// # Panics
    /// When it does not lie within the content.
    pub fn append(&self, content: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&content[self.from..self.from + self.len]);
    }
}

/// An ordered map of items. All methods may be called from many threads; `apply` is the only
/// change, and what it changed is seen by every call that starts after it returned. A view with the
/// capability [`Together`] is changed by other clients too.
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
    /// [`crate::Error::LimitExceeded`], [`crate::Error::Overtaken`], or a failed read; then nothing
    /// of the batch has been applied.
    fn apply(&self, batch: Batch<'_>) -> Result<()>;

    /// The whole content of a block, verified.
    fn read_block(&self, block: &Block) -> Result<Bytes>;

    /// Appends the parts of one request to its answer, in their order and verified; what lies
    /// between them is zeros. A store may read them in fewer steps than one by one. All contents
    /// may be in memory at once beside the answer, so the caller bounds their sum.
    ///
    /// # Errors
    /// The first part that cannot be read. Then whatever was appended means nothing, and the caller
    /// takes it away: there may be bytes that did not stand the test.
    fn read_parts(&self, parts: &[Part<'_>], out: &mut Vec<u8>) -> std::result::Result<(), Unread> {
        for (number, part) in parts.iter().enumerate() {
            let content = self.read_block(part.block).map_err(|error| Unread { number, error })?;
            out.resize(part.at, 0);
            part.append(&content, out);
        }
        Ok(())
    }

    /// Returns when all batches that were applied before are durable.
    fn sync(&self) -> Result<()>;

    /// Whether `apply` can work at all.
    fn writable(&self) -> bool;

    /// The properties in force.
    fn properties(&self) -> Properties;

    /// What the view can do beside that; [`Capabilities::default`] where it can do no more. The
    /// answer is the same at every call.
    fn capabilities(&self) -> Capabilities<'_>;
}
