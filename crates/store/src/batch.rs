//! A change of a dataset, applied wholly or not at all.

use crate::{Error, Item, Key, Moment, Result};
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
    /// Sets the value of the item under a key, and writes into its block, which must be fresh,
    /// and no long one that other items have too (else the batch is refused with
    /// [`crate::Error::NotFresh`]). The block need not be copied when nothing else refers to it: so
    /// does a file grow by small writes in linear time.
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
    /// Adds to the counter under a key. An item that is not there counts as zeros, and one that
    /// becomes zeros goes. What two batches add to one counter at the same time is all in it, and
    /// neither needs to wait for the other, or to know what the counter was.
    Add {
        /// The key.
        key: Key,
        /// What to add.
        by: Counter,
        /// Where the counter may grow to: a batch that would make one of its sums grow past that
        /// is refused with [`crate::Error::LimitExceeded`]. A sum that is past it already may
        /// become smaller, or stay.
        at_most: Counter,
    },
}

/// The value of a counter item: two sums, which change together. Encoded as two little-endian
/// numbers of 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter(pub [i64; COUNTER_SUMS]);

/// Sums of a counter.
const COUNTER_SUMS: usize = 2;

impl Counter {
    /// As a limit: none.
    pub const UNLIMITED: Counter = Counter([i64::MAX; COUNTER_SUMS]);

    /// The value of its item; none if it is zeros.
    pub fn encode(self) -> Option<Bytes> {
        (self != Counter::default()).then(|| {
            let mut value = [0; COUNTER_SUMS * 8];
            for (bytes, sum) in value.chunks_exact_mut(8).zip(self.0) {
                bytes.copy_from_slice(&sum.to_le_bytes());
            }
            Bytes::copy_from_slice(&value)
        })
    }

    /// Reads it from the value of its item; `None` if that is no counter.
    pub fn decode(value: &[u8]) -> Option<Counter> {
        let (sums, rest) = value.as_chunks::<8>();
        let sums: [[u8; 8]; COUNTER_SUMS] = sums.try_into().ok()?;
        rest.is_empty().then(|| Counter(sums.map(i64::from_le_bytes)))
    }

    /// The counter after an [`Edit::Add`] under `key`.
    ///
    /// # Errors
    /// [`Error::LimitExceeded`], also where a sum would pass what a number can hold.
    pub fn add(self, key: Key, by: Counter, at_most: Counter) -> Result<Counter> {
        let mut sums = self.0;
        for ((sum, by), at_most) in sums.iter_mut().zip(by.0).zip(at_most.0) {
            let grown = sum.checked_add(by).filter(|grown| by <= 0 || *grown <= at_most);
            *sum = grown.ok_or_else(|| Error::LimitExceeded(format!("{key:?}")))?;
        }
        Ok(Counter(sums))
    }
}

/// How near to full a store may be for a batch to be taken. What is kept back is shared out, so
/// that each kind still goes through when those before it no longer do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// The caller can still get the error that there is no space: nothing that is kept back is
    /// used.
    #[default]
    Ordinary,
    /// The content was promised to a program already (a shared mapping, a write-back cache), which
    /// can get no error any more: half of what is kept back may be used.
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
    /// Bytes of its content that were promised ([`crate::AdmissionControl::promise`]). The batch
    /// may use as much of the space that is kept back for promises. Its items may use what is kept
    /// back from [`Admission::Ordinary`], as those of [`Admission::Accepted`] may. The promise is
    /// lowered after the batch.
    pub promised_bytes: u64,
    /// What the batch depends on: the dataset as it was at a moment that [`crate::Together::look`]
    /// has named. Once others have changed the dataset since, it is refused with
    /// [`crate::Error::Overtaken`]; so is, while others have the store open, a batch that names
    /// none. A view without that capability does not ask.
    pub seen: Option<Moment>,
    /// Objects that begin with the batch: nothing has ever been under a key of theirs, in the
    /// dataset or in what it began as. A view may take that for known, and look no more.
    pub begun: Vec<u64>,
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

    /// Adds an addition to a counter; see [`Edit::Add`].
    pub fn add(&mut self, key: Key, by: Counter, at_most: Counter) -> &mut Self {
        self.edits.push(Edit::Add { key, by, at_most });
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
            Edit::Put { key, .. }
            | Edit::Patch { key, .. }
            | Edit::Remove { key }
            | Edit::Add { key, .. } => *key,
        }
    }
}
