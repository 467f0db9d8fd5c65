//! The record of a dataset or snapshot in the pool's own tree.
//!
//! Snapshots of a dataset form a line, from the oldest to the live dataset. Blocks that were born
//! in or before the group of the previous snapshot belong to it too: freeing one puts it on the
//! dead list. That one comparison is all that a snapshot costs.
//!
//! A line may branch. The parent of a record is its `previous`, or else its `origin`; the one whose
//! id is the parent's `next` goes on from it, and every other one began as it and is counted in its
//! `clones`. A snapshot without a `next` is the last of its line.

use crate::FormatError;
use crate::group::Group;
use crate::pointer::{GRAINS_MAX, Pointer};
use crate::property;
use crate::reader::Reader;
use crate::space::DEAD_LISTS_MAX;
use bytes::{BufMut, Bytes, BytesMut};

/// Ids of datasets, snapshots and dead lists are below this.
pub const DATASETS_MAX: u64 = 1 << 62;
/// Numbers of clones and holds are below this.
pub const COUNTS_MAX: u32 = 1 << 31;
/// Bytes of a record before name, root and properties.
pub const DATASET_FIXED_BYTES: usize = 120;
/// Longest encoded record, in bytes: it is the value of an item.
pub const DATASET_RECORD_BYTES_MAX: usize = 4096;

/// Property: the object that is the root of what a fork shows, in decimal; without it object 1.
pub const ROOT_OBJECT_PROPERTY: &str = ".root-object";
/// Property: the user whose fork it is, in decimal; without it root's.
pub const OWNER_PROPERTY: &str = ".owner";
/// With this the name of a property begins that says that a snapshot is held; the tag follows.
pub const HOLD_PROPERTY_PREFIX: &str = ".hold:";

const WHAT: &str = "dataset record";
const LAYOUT: u8 = 1;

/// What state a dataset is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatasetState {
    /// It takes changes.
    Live,
    /// A kept state.
    Snapshot,
    /// It has no name any more; its space is given back piece by piece.
    Destroying,
}

/// A dataset or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetRecord {
    /// Its id, never used again after it.
    pub id: u64,
    /// Its name; that of a snapshot starts with the dataset's and an `@`.
    pub name: String,
    /// What state it is in.
    pub state: DatasetState,
    /// Of a snapshot: the dataset that it belongs to; else 0.
    pub parent: u64,
    /// Of a clone: the snapshot of another dataset that it leads back to; else 0. Its snapshots
    /// may have it too; what counts is that of the one without `previous`.
    pub origin: u64,
    /// The snapshot of the same dataset before it, or that a branch began as; 0 if there is none.
    pub previous: u64,
    /// Of a snapshot: the next newer snapshot, or else the live dataset; 0 if it is the last of its
    /// line. Else 0.
    pub next: u64,
    /// The group in which `previous` (or, without one, the origin) was taken. Blocks born in or
    /// before it are not this dataset's to free.
    pub previous_group: Group,
    /// The group in which it was made.
    pub created_group: Group,
    /// When it was made, in seconds since 1970.
    pub created_seconds: i64,
    /// An id that stays the same where the dataset is sent to.
    pub id128: [u8; 16],
    /// Root of its tree; `None` if it is empty.
    pub root: Option<Pointer>,
    /// Grains that it refers to, shared or not, all copies counted.
    pub referenced_grains: u64,
    /// Grains on its dead list.
    pub dead_grains: u64,
    /// Object number under which the pool's tree has the chunks of its dead list. A snapshot takes
    /// over the list of its dataset, which goes on with a new one: so no chunk is moved.
    pub dead_list: u64,
    /// Clones and other lines that began as this snapshot.
    pub clones: u32,
    /// What keeps it from being destroyed, besides clones.
    pub holds: u32,
    /// Properties set on it, sorted by name. Those whose name begins with a dot are the pool's own.
    pub properties: Vec<(String, String)>,
}

impl DatasetRecord {
    /// The encoded record. Callers keep name and properties so short that it has at most
    /// [`DATASET_RECORD_BYTES_MAX`] bytes; see [`DatasetRecord::encoded_len`].
    ///
    /// # Panics
    /// If the record is longer than that, or the properties are not sorted.
    pub fn encode(&self) -> Bytes {
        let root = self.root.as_ref().map_or_else(Bytes::new, Pointer::encode);
        let total = self.encoded_len();
        assert!(
            total <= DATASET_RECORD_BYTES_MAX,
            "a dataset record of {total} bytes is longer than {DATASET_RECORD_BYTES_MAX}"
        );
        assert!(self.properties.is_sorted_by(|a, b| a.0 < b.0), "properties are sorted by name");
        let mut out = BytesMut::with_capacity(total);
        self.put_fixed(&mut out);
        put_len(&mut out, self.name.len());
        put_len(&mut out, root.len());
        put_len(&mut out, self.properties.len());
        out.put_u16_le(0);
        out.put_slice(self.name.as_bytes());
        out.put_slice(&root);
        for (name, value) in &self.properties {
            put_len(&mut out, name.len());
            put_len(&mut out, value.len());
            out.put_slice(name.as_bytes());
            out.put_slice(value.as_bytes());
        }
        out.freeze()
    }

    /// Bytes that the encoded record takes.
    pub fn encoded_len(&self) -> usize {
        let property_len = |(name, value): &(String, String)| 4 + name.len() + value.len();
        DATASET_FIXED_BYTES
            + 8
            + self.name.len()
            + self.root.as_ref().map_or(0, |root| root.encode().len())
            + self.properties.iter().map(property_len).sum::<usize>()
    }

    fn put_fixed(&self, out: &mut BytesMut) {
        out.put_u8(LAYOUT);
        out.put_u8(match self.state {
            DatasetState::Live => 0,
            DatasetState::Snapshot => 1,
            DatasetState::Destroying => 2,
        });
        out.put_bytes(0, 6);
        out.put_u64_le(self.id);
        out.put_slice(&self.id128);
        out.put_u64_le(self.parent);
        out.put_u64_le(self.origin);
        out.put_u64_le(self.previous);
        out.put_u64_le(self.next);
        out.put_u64_le(self.previous_group.0);
        out.put_u64_le(self.created_group.0);
        out.put_i64_le(self.created_seconds);
        out.put_u64_le(self.referenced_grains);
        out.put_u64_le(self.dead_grains);
        out.put_u64_le(self.dead_list);
        out.put_u32_le(self.clones);
        out.put_u32_le(self.holds);
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<DatasetRecord, FormatError> {
        let mut from = Reader::new(WHAT, bytes);
        from.expect_u8("layout", LAYOUT, "1")?;
        let state = take_state(&mut from)?;
        from.reserved(6)?;
        let mut record = DatasetRecord {
            state,
            id: from.u64("id")?,
            id128: from.array("128-bit id")?,
            parent: from.u64("parent")?,
            origin: from.u64("origin")?,
            previous: from.u64("previous")?,
            next: from.u64("next")?,
            previous_group: Group(from.u64("previous group")?),
            created_group: Group(from.u64("group of creation")?),
            created_seconds: from.i64("time of creation")?,
            referenced_grains: from.u64_below("referenced grains", GRAINS_MAX, "less than 2^56")?,
            dead_grains: from.u64_below("dead grains", GRAINS_MAX, "less than 2^56")?,
            dead_list: from.u64_below("dead list", DEAD_LISTS_MAX, "less than 2^63")?,
            clones: take_count(&mut from, "number of clones")?,
            holds: take_count(&mut from, "number of holds")?,
            name: String::new(),
            root: None,
            properties: Vec::new(),
        };
        let name_len = from.u16("length of the name")?;
        let root_len = from.u16("length of the root's pointer")?;
        let property_count = from.u16("number of properties")?;
        from.reserved(2)?;
        record.name = from.text("name", usize::from(name_len))?;
        let root = from.take("root's pointer", usize::from(root_len))?;
        if !root.is_empty() {
            record.root = Some(Pointer::decode(root)?);
        }
        record.properties = property::take_all(&mut from, WHAT, property_count)?;
        from.finish()?;
        Ok(record)
    }
}

fn take_count(from: &mut Reader<'_>, field: &'static str) -> Result<u32, FormatError> {
    let offset = from.at();
    let count = from.u32(field)?;
    if count < COUNTS_MAX {
        return Ok(count);
    }
    Err(from.unexpected(field, offset, u64::from(count), "less than 2^31"))
}

fn take_state(from: &mut Reader<'_>) -> Result<DatasetState, FormatError> {
    match from.u8("state")? {
        0 => Ok(DatasetState::Live),
        1 => Ok(DatasetState::Snapshot),
        2 => Ok(DatasetState::Destroying),
        found => Err(from.unexpected("state", 1, u64::from(found), "0, 1 or 2")),
    }
}

fn put_len(out: &mut BytesMut, len: usize) {
    out.put_u16_le(u16::try_from(len).expect("a record is shorter than 4096 bytes"));
}
