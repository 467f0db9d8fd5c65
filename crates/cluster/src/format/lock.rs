//! Locks of objects, as clients tell each other of them.

use super::fields::put_count;
use super::{Fields, malformed};
use marram_store::{LockFamily, LockMode, Result};
use std::collections::BTreeMap;

/// The locks of one family of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockPlace {
    /// The number of the dataset or snapshot.
    pub dataset: u64,
    /// The object.
    pub object: u64,
    /// The family.
    pub family: LockFamily,
}

/// A range that users of a client hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockedRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, which it includes.
    pub last: u64,
    /// How it is held.
    pub mode: LockMode,
}

/// What each client holds, by its session. Clients without anything are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockRow(pub BTreeMap<[u8; 16], Vec<LockedRange>>);

const WHOLE: u8 = 0;
const RANGES: u8 = 1;
const SHARED: u8 = 0;
const EXCLUSIVE: u8 = 1;
/// Bytes of a client without ranges, and of a range.
const LEAST_BYTES: [usize; 2] = [20, 17];

impl LockPlace {
    /// The row's key.
    pub fn encode(self) -> Vec<u8> {
        let family = match self.family {
            LockFamily::Whole => WHOLE,
            LockFamily::Ranges => RANGES,
        };
        [&self.dataset.to_be_bytes()[..], &self.object.to_be_bytes(), &[family]].concat()
    }

    /// Reads a row's key.
    ///
    /// # Errors
    /// It is none.
    pub fn decode(key: &[u8]) -> Result<LockPlace> {
        let wrong = || malformed("the row of a lock", "its key is no object with a family");
        let (numbers, family) = key.as_chunks::<8>();
        let (&[dataset, object], &[family]) = (numbers, family) else { return Err(wrong()) };
        let family = match family {
            WHOLE => LockFamily::Whole,
            RANGES => LockFamily::Ranges,
            _ => return Err(wrong()),
        };
        let [dataset, object] = [dataset, object].map(u64::from_be_bytes);
        Ok(LockPlace { dataset, object, family })
    }
}

impl LockRow {
    /// The row's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_count(&mut out, self.0.len());
        for (session, ranges) in &self.0 {
            out.extend_from_slice(session);
            put_count(&mut out, ranges.len());
            for range in ranges {
                out.extend_from_slice(&range.first.to_le_bytes());
                out.extend_from_slice(&range.last.to_le_bytes());
                out.push(match range.mode {
                    LockMode::Shared => SHARED,
                    LockMode::Exclusive => EXCLUSIVE,
                });
            }
        }
        out
    }

    /// Reads a row's value.
    ///
    /// # Errors
    /// It is no such value.
    pub fn decode(bytes: &[u8]) -> Result<LockRow> {
        let mut fields = Fields::new("the row of a lock", bytes);
        let mut clients = BTreeMap::new();
        for _ in 0..fields.count(LEAST_BYTES[0])? {
            let session = fields.array()?;
            let count = fields.count(LEAST_BYTES[1])?;
            let ranges = (0..count).map(|_| range(&mut fields)).collect::<Result<_>>()?;
            if clients.last_key_value().is_some_and(|(last, _)| *last >= session) {
                return fields.refuse("its clients do not ascend");
            }
            clients.insert(session, ranges);
        }
        fields.end()?;
        Ok(LockRow(clients))
    }
}

fn range(fields: &mut Fields<'_>) -> Result<LockedRange> {
    let (first, last) = (fields.u64()?, fields.u64()?);
    let mode = match fields.u8()? {
        SHARED => LockMode::Shared,
        EXCLUSIVE => LockMode::Exclusive,
        _ => return fields.refuse("a range is held in no known way"),
    };
    match first <= last {
        true => Ok(LockedRange { first, last, mode }),
        false => fields.refuse("a range ends before it begins"),
    }
}
