//! A change of a dataset, applied wholly or not at all.

use crate::{Item, Key};
use bytes::Bytes;

/// One edit of a batch.
#[derive(Debug)]
pub enum Edit<'a> {
    /// Sets the item under a key, whatever was there.
    Put {
        /// The key.
        key: Key,
        /// The new item.
        item: Item,
    },
    /// Sets the value of the item under a key, and writes into its block, which must be fresh
    /// (else the batch is refused with [`crate::Error::NotFresh`]). The block need not be copied
    /// when nothing else refers to it: so does a file grow by small writes in linear time.
    Patch {
        /// The key.
        key: Key,
        /// The new value.
        value: Bytes,
        /// Where in the block; a gap up to there is filled with zeros.
        at: usize,
        /// What to write.
        data: &'a [u8],
    },
    /// Removes the item under a key, if there is one.
    Remove {
        /// The key.
        key: Key,
    },
}

/// How near to full a store may be for a batch to be taken. What is kept back is shared out, so
/// that each kind still goes through when those before it no longer do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// Whoever asks can be told that there is no space: nothing that is kept back is used.
    #[default]
    Ordinary,
    /// The content was promised to a program already (a shared mapping, a write-back cache), which
    /// cannot be told any more: half of what is kept back may be used.
    Accepted,
    /// The batch frees more than it takes (unlink, truncate): it may use nearly all that is kept
    /// back, so that a full store can be emptied.
    Freeing,
}

/// A list of edits with distinct keys.
///
/// **Sharing.** A batch that puts a second reference to a stored block into the dataset must, in
/// the same batch, put anew the item that referred to it before: so the store sees both, and
/// marks the block as shared in both.
#[derive(Debug, Default)]
pub struct Batch<'a> {
    /// The edits; no two have the same key.
    pub edits: Vec<Edit<'a>>,
    /// Which part of the space that is kept back it may use.
    pub admission: Admission,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new() -> Batch<'a> {
        Batch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, key: Key, item: Item) -> &mut Self {
        self.edits.push(Edit::Put { key, item });
        self
    }

    /// Adds a patch.
    pub fn patch(&mut self, key: Key, value: Bytes, at: usize, data: &'a [u8]) -> &mut Self {
        self.edits.push(Edit::Patch { key, value, at, data });
        self
    }

    /// Adds a removal.
    pub fn remove(&mut self, key: Key) -> &mut Self {
        self.edits.push(Edit::Remove { key });
        self
    }
}

impl Edit<'_> {
    /// The key that the edit is about.
    pub fn key(&self) -> Key {
        match self {
            Edit::Put { key, .. } | Edit::Patch { key, .. } | Edit::Remove { key } => *key,
        }
    }
}
