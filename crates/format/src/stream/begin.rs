//! The first record of a stream: what is sent, and what it goes on from.

use super::{STREAM_PREFIX_BYTES, STREAM_VERSION, prefix_of};
use crate::FormatError;
use crate::dataset::DATASET_RECORD_BYTES_MAX;
use crate::key::Key;
use crate::property;
use crate::reader::Reader;
use bytes::BufMut;

const WHAT: &str = "begin record";
const INCREMENTAL: u32 = 1 << 0;
const RESUMED: u32 = 1 << 1;

/// Which snapshot: its id stays the same wherever it is sent to. The time distinguishes those of
/// pools that were copied whole, and so hand out the same ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotIdentity {
    /// The 128-bit id.
    pub id: [u8; 16],
    /// When it was taken, in seconds since 1970.
    pub created_seconds: i64,
}

/// What a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamBegin {
    /// The snapshot.
    pub snapshot: SnapshotIdentity,
    /// The snapshot that the receiver must have; none of a full stream.
    pub base: Option<SnapshotIdentity>,
    /// 128-bit id of the dataset.
    pub dataset_id: [u8; 16],
    /// 128-bit id of the pool that sends.
    pub pool_id: [u8; 16],
    /// The object that is the root of what the snapshot shows.
    pub root_object: u64,
    /// Bytes that the snapshot refers to.
    pub referenced_bytes: u64,
    /// Name of the dataset where it was sent from.
    pub dataset_name: String,
    /// Name of the snapshot.
    pub snapshot_name: String,
    /// Properties set on the dataset, sorted by name.
    pub properties: Vec<(String, String)>,
    /// Of a stream that goes on where another one was cut: the item up to which the receiver has
    /// what came before.
    pub after: Option<Key>,
}

impl StreamBegin {
    /// The prefix of the stream.
    pub fn prefix(&self) -> [u8; STREAM_PREFIX_BYTES] {
        if self.after.is_some() { prefix_of(STREAM_VERSION.minor) } else { prefix_of(0) }
    }

    /// The encoded payload. Names and properties are those of a dataset's record, and as short.
    ///
    /// # Panics
    /// If the properties are not sorted.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.properties.is_sorted_by(|a, b| a.0 < b.0), "properties are sorted by name");
        let mut out = Vec::with_capacity(256);
        let incremental = if self.base.is_some() { INCREMENTAL } else { 0 };
        let resumed = if self.after.is_some() { RESUMED } else { 0 };
        out.put_u32_le(incremental | resumed);
        out.put_u32_le(0);
        put_identity(&mut out, Some(self.snapshot));
        put_identity(&mut out, self.base);
        out.put_slice(&self.dataset_id);
        out.put_slice(&self.pool_id);
        out.put_u64_le(self.root_object);
        out.put_u64_le(self.referenced_bytes);
        put_len(&mut out, self.dataset_name.len());
        put_len(&mut out, self.snapshot_name.len());
        put_len(&mut out, self.properties.len());
        out.put_slice(self.dataset_name.as_bytes());
        out.put_slice(self.snapshot_name.as_bytes());
        for (name, value) in &self.properties {
            put_len(&mut out, name.len());
            put_len(&mut out, value.len());
            out.put_slice(name.as_bytes());
            out.put_slice(value.as_bytes());
        }
        if let Some(after) = self.after {
            out.put_slice(&after.encode());
        }
        out
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub(super) fn decode(payload: &[u8]) -> Result<StreamBegin, FormatError> {
        let mut from = Reader::new(WHAT, payload);
        let flags = from.u32("flags")?;
        if flags & !(INCREMENTAL | RESUMED) != 0 {
            return Err(from.unexpected("flags", 0, u64::from(flags), "0 to 3"));
        }
        from.reserved(4)?;
        let snapshot = take_identity(&mut from)?;
        let base = match flags & INCREMENTAL {
            0 => {
                from.reserved(24)?;
                None
            }
            _ => Some(take_identity(&mut from)?),
        };
        let mut begin = StreamBegin {
            snapshot,
            base,
            dataset_id: from.array("id of the dataset")?,
            pool_id: from.array("id of the pool")?,
            root_object: from.u64("root")?,
            referenced_bytes: from.u64("bytes referred to")?,
            dataset_name: String::new(),
            snapshot_name: String::new(),
            properties: Vec::new(),
            after: None,
        };
        let dataset_len = from.u16("length of the dataset's name")?;
        let snapshot_len = from.u16("length of the snapshot's name")?;
        let count = from.u16("number of properties")?;
        begin.dataset_name = from.text("name of the dataset", usize::from(dataset_len))?;
        begin.snapshot_name = from.text("name of the snapshot", usize::from(snapshot_len))?;
        begin.properties = property::take_all(&mut from, WHAT, count)?;
        if flags & RESUMED != 0 {
            begin.after = Some(Key::decode(&from.array("item that it goes on after")?));
        }
        from.finish()?;
        Ok(begin)
    }
}

pub(super) fn put_identity(out: &mut Vec<u8>, identity: Option<SnapshotIdentity>) {
    let none = SnapshotIdentity { id: [0; 16], created_seconds: 0 };
    let identity = identity.unwrap_or(none);
    out.put_slice(&identity.id);
    out.put_i64_le(identity.created_seconds);
}

pub(super) fn take_identity(from: &mut Reader<'_>) -> Result<SnapshotIdentity, FormatError> {
    let id = from.array("id of a snapshot")?;
    Ok(SnapshotIdentity { id, created_seconds: from.i64("time of a snapshot")? })
}

fn put_len(out: &mut Vec<u8>, len: usize) {
    assert!(len <= DATASET_RECORD_BYTES_MAX, "it is no longer than the record that it is from");
    out.put_u16_le(u16::try_from(len).expect("a record is shorter than 4096 bytes"));
}
