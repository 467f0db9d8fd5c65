//! Records of transactions that work in two pools.
//!
//! A transaction is prepared in one pool, and decided by the commit of the other. The pool in which
//! it is prepared has a record from that commit on until it knows the decision. The one that has
//! decided has a record from the commit that is the decision on until the other one needs it no
//! more. A crash between both leaves one that is in doubt, and names where the decision is.

use crate::FormatError;
use crate::dataset::DATASETS_MAX;
use crate::reader::Reader;
use bytes::{BufMut, Bytes, BytesMut};

/// Most datasets of one record.
pub const TRANSACTION_DATASETS_MAX: usize = 64;
/// Longest path of the other pool, in bytes; a longer one is left out.
pub const TRANSACTION_PATH_BYTES_MAX: usize = 2048;
const WHAT: &str = "record of a transaction over two pools";
const LAYOUT: u8 = 1;

/// What a pool knows of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    /// It is prepared here, and the other pool decides.
    Prepared,
    /// It is committed here, and the other pool is to hear of it.
    Decided,
    /// It was prepared here, and somebody has said that it is committed.
    CommittedByHand,
    /// It was prepared here, and somebody has said that it is not.
    AbortedByHand,
}

impl TransactionState {
    const ALL: [TransactionState; 4] = [
        TransactionState::Prepared,
        TransactionState::Decided,
        TransactionState::CommittedByHand,
        TransactionState::AbortedByHand,
    ];

    /// Its number on media.
    pub const fn number(self) -> u8 {
        match self {
            TransactionState::Prepared => 1,
            TransactionState::Decided => 2,
            TransactionState::CommittedByHand => 3,
            TransactionState::AbortedByHand => 4,
        }
    }
}

/// A dataset that a transaction has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionDataset {
    /// The dataset.
    pub dataset: u64,
    /// The snapshot with its state before; 0 where the transaction is decided.
    pub before: u64,
}

/// A transaction over two pools, as one of them has it. The number of its first entry in the log of
/// operations is the offset of its key; it has one for each dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    /// What is known of it.
    pub state: TransactionState,
    /// Its id, the same in both pools.
    pub id: [u8; 16],
    /// The id of the other pool.
    pub other_pool: [u8; 16],
    /// Where that was, for people and for a first look; empty if that is too long.
    pub other_path: String,
    /// The datasets, at least one and at most [`TRANSACTION_DATASETS_MAX`].
    pub datasets: Vec<TransactionDataset>,
}

impl TransactionRecord {
    /// The encoded record: 42 bytes, the path, and 16 bytes for each dataset.
    ///
    /// # Panics
    /// If there are too many datasets, or the path is too long.
    pub fn encode(&self) -> Bytes {
        assert!(self.datasets.len() <= TRANSACTION_DATASETS_MAX, "a transaction has few datasets");
        assert!(self.other_path.len() <= TRANSACTION_PATH_BYTES_MAX, "a path of bounded length");
        let mut out = BytesMut::new();
        out.put_u8(LAYOUT);
        out.put_u8(self.state.number());
        out.put_u16_le(u16::try_from(self.datasets.len()).expect("at most 64"));
        out.put_bytes(0, 4);
        out.put_slice(&self.id);
        out.put_slice(&self.other_pool);
        out.put_u16_le(u16::try_from(self.other_path.len()).expect("at most 2048"));
        out.put_slice(self.other_path.as_bytes());
        for of in &self.datasets {
            out.put_u64_le(of.dataset);
            out.put_u64_le(of.before);
        }
        out.freeze()
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<TransactionRecord, FormatError> {
        let mut from = Reader::new(WHAT, bytes);
        from.expect_u8("layout", LAYOUT, "1")?;
        let number = from.u8("state")?;
        let state = TransactionState::ALL.into_iter().find(|state| state.number() == number);
        let state =
            state.ok_or_else(|| from.unexpected("state", 1, u64::from(number), "1 to 4"))?;
        let count = from.u16("number of datasets")?;
        if !(1..=TRANSACTION_DATASETS_MAX).contains(&usize::from(count)) {
            return Err(from.unexpected("number of datasets", 2, u64::from(count), "1 to 64"));
        }
        from.reserved(4)?;
        let id = id_of(&mut from, "id")?;
        let other_pool = id_of(&mut from, "other pool")?;
        let offset = from.at();
        let len = from.u16("length of the path")?;
        if usize::from(len) > TRANSACTION_PATH_BYTES_MAX {
            let len = u64::from(len);
            return Err(from.unexpected("length of the path", offset, len, "at most 2048"));
        }
        let other_path = from.text("path", usize::from(len))?;
        let mut datasets = Vec::new();
        for _ in 0..count {
            datasets.push(TransactionDataset {
                dataset: from.u64_below("dataset", DATASETS_MAX, "below 2^62")?,
                before: from.u64_below("state before", DATASETS_MAX, "below 2^62")?,
            });
        }
        from.finish()?;
        Ok(TransactionRecord { state, id, other_pool, other_path, datasets })
    }
}

fn id_of(from: &mut Reader<'_>, field: &'static str) -> Result<[u8; 16], FormatError> {
    let mut id = [0; 16];
    id.copy_from_slice(from.take(field, 16)?);
    Ok(id)
}
