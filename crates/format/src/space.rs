//! What the pool's own tree knows of space: which grains are in use, which blocks wait for a
//! snapshot to go, how often a shared block is referred to, how many owners a block has.
//!
//! The bitmaps of a group are items of the pool's own tree, and writing that tree allocates and
//! frees grains itself. What its writing changed is in the group's [`Tail`], a block that the
//! superblock points to; the bitmaps of the next group take it in.

use crate::FormatError;
use crate::group::{GROUPS_MAX, Group};
use crate::key::{Key, kind};
use crate::pointer::{EXTENT_BYTES, Extent};
use crate::reader::Reader;
use bytes::{BufMut, Bytes, BytesMut};

/// Grains of a zone, the unit in which bitmaps are kept: 64 MiB.
pub const ZONE_GRAINS: u64 = 16384;
/// Bytes of a zone's bitmap; bit `n % 8` of byte `n / 8` is set if grain `n` is in use.
pub const ZONE_BITMAP_BYTES: usize = 2048;
/// Zones of a summary: for each the number of free grains, 4 bytes little-endian.
pub const SUMMARY_ZONES: u64 = 512;
/// References to a block are fewer than this.
pub const REFERENCES_MAX: u64 = 1 << 62;
/// Owners of a block are fewer than this.
pub const OWNERS_MAX: u64 = 1 << 62;
/// Numbers of dead lists are below this.
pub const DEAD_LISTS_MAX: u64 = 1 << 63;
/// Longest chunk of a dead list, in bytes: it is the value of an item.
pub const DEAD_CHUNK_BYTES_MAX: usize = 4096;
/// Bytes of a chunk of a dead list before its first pointer.
pub const DEAD_CHUNK_HEADER_BYTES: usize = 4;

const LAYOUT: u8 = 1;

/// The kinds of items of the pool's own tree.
pub mod pool_kind {
    /// A [`crate::dataset::DatasetRecord`]; object 1, offset the dataset.
    pub const DATASET: u8 = 1;
    /// The bitmap of a zone; object 3, offset the device (16 bits) and the zone.
    pub const ZONE: u8 = 2;
    /// Free grains of a run of zones; object 2, offset the device (16 bits) and the run.
    pub const SUMMARY: u8 = 3;
    /// A [`super::DeadChunk`]; object 2^32 plus the list, offset a sequence number.
    pub const DEAD: u8 = 4;
    /// An [`crate::operation::OperationRecord`]; object 0, offset its number.
    pub const LOG: u8 = 5;
    /// A property of the pool; object 0.
    pub const PROPERTY: u8 = 6;
    /// How far a dataset that is being destroyed has been given back: an encoded key, before
    /// which everything is gone; object 4, offset the dataset.
    pub const CURSOR: u8 = 7;
    /// An [`super::OwnersRecord`]; object 5, offset the address of the block.
    pub const OWNERS: u8 = 8;
    /// A [`super::ReclaimRecord`]; object 6, offset the dead list.
    pub const RECLAIM: u8 = 9;
    /// A [`crate::transaction::TransactionRecord`]; object 7, offset the number of its first entry
    /// in the log of operations.
    pub const TRANSACTION: u8 = 10;
}

/// Grains allocated and freed while the pool's own tree was being written: the bitmaps in that
/// tree do not have them yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// In use now, free in the bitmaps.
    pub allocated: Vec<Extent>,
    /// Free now, in use in the bitmaps.
    pub freed: Vec<Extent>,
}

/// A part of a dataset's dead list: blocks that it no longer uses, but that its previous snapshot
/// does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadChunk {
    /// Encoded pointers, none of them empty.
    pub pointers: Vec<Bytes>,
}

/// How often a shared block is referred to: the value of a REFERENCES item, whose pointer is that
/// of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceRecord {
    /// Items of the dataset that refer to the block, fewer than [`REFERENCES_MAX`].
    pub count: u64,
    /// Bytes of its content that may be in use, at most its logical length.
    pub used_bytes: u64,
}

/// How many owners a block has that was adopted; a block without this record has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnersRecord {
    /// Owners, 2 to [`OWNERS_MAX`] - 1.
    pub count: u64,
}

/// A dead list in reclaim, which no dataset has any more. What a destruction has freed is given
/// back from it piece by piece, and the rest goes to the list of the heir.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReclaimRecord {
    /// Blocks that were born after this group are free; below 2^40.
    pub threshold: Group,
    /// The dead list that the others go to; 0: to none, as another snapshot has them anyway.
    pub destination: u64,
}

/// Key of the bitmap of a zone.
pub const fn zone_key(device: u16, zone: u64) -> Key {
    Key::new(3, pool_kind::ZONE, on_device(device, zone))
}

/// Key of the summary of the zones from `index` times [`SUMMARY_ZONES`].
pub const fn summary_key(device: u16, index: u64) -> Key {
    Key::new(2, pool_kind::SUMMARY, on_device(device, index))
}

/// Key of the record of a dataset. The records of all datasets lie together.
pub const fn dataset_key(dataset: u64) -> Key {
    Key::new(1, pool_kind::DATASET, dataset)
}

/// Key of the cursor of a dataset that is being destroyed.
pub const fn cursor_key(dataset: u64) -> Key {
    Key::new(4, pool_kind::CURSOR, dataset)
}

/// Key of a chunk of a dead list.
///
/// # Panics
/// If the list's number is not below [`DEAD_LISTS_MAX`].
pub const fn dead_key(list: u64, sequence: u64) -> Key {
    assert!(list < DEAD_LISTS_MAX, "a dead list has a number below 2^63");
    Key::new((1 << 32) + list, pool_kind::DEAD, sequence)
}

/// Key of the record of a dead list in reclaim.
pub const fn reclaim_key(list: u64) -> Key {
    Key::new(6, pool_kind::RECLAIM, list)
}

/// Key of the record of a transaction over two pools, by its first entry in the log of operations.
pub const fn transaction_key(number: u64) -> Key {
    Key::new(7, pool_kind::TRANSACTION, number)
}

/// Key of an entry of the log of operations.
pub const fn operation_key(number: u64) -> Key {
    Key::new(0, pool_kind::LOG, number)
}

/// Key of the number of owners of a block.
pub const fn owners_key(address: u64) -> Key {
    Key::new(5, pool_kind::OWNERS, address)
}

/// Key, in a dataset's tree, of the count of references to a shared block; `adopted` is the birth
/// of a pointer with the flag adopted.
pub fn references_key(address: u64, adopted: Option<Group>) -> Key {
    let object = adopted.map_or(0, |birth| ADOPTED_OBJECTS | birth.0);
    Key::new(object, kind::REFERENCES, address)
}

/// Objects from this on count references to adopted blocks.
const ADOPTED_OBJECTS: u64 = 1 << 63;

const fn on_device(device: u16, index: u64) -> u64 {
    assert!(index < 1 << 48, "a device has fewer than 2^48 zones");
    (device as u64) << 48 | index
}

impl Tail {
    /// The encoded tail: 12 bytes and 12 for each extent.
    ///
    /// # Panics
    /// If an extent is out of range.
    pub fn encode(&self) -> Bytes {
        let count = self.allocated.len() + self.freed.len();
        let mut out = BytesMut::with_capacity(12 + count * EXTENT_BYTES);
        out.put_u8(LAYOUT);
        out.put_bytes(0, 3);
        for extents in [&self.allocated, &self.freed] {
            out.put_u32_le(u32::try_from(extents.len()).expect("fewer extents than grains"));
        }
        for extent in self.allocated.iter().chain(&self.freed) {
            extent.put(&mut out);
        }
        out.freeze()
    }

    /// Decodes a tail.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Tail, FormatError> {
        let mut from = Reader::new("tail", bytes);
        from.expect_u8("layout", LAYOUT, "1")?;
        from.reserved(3)?;
        let allocated_count = from.u32("number of allocated extents")?;
        let freed_count = from.u32("number of freed extents")?;
        let tail = Tail {
            allocated: take_extents(&mut from, allocated_count)?,
            freed: take_extents(&mut from, freed_count)?,
        };
        from.finish()?;
        Ok(tail)
    }
}

fn take_extents(from: &mut Reader<'_>, count: u32) -> Result<Vec<Extent>, FormatError> {
    let mut extents = Vec::new();
    for _ in 0..count {
        extents.push(Extent::take(from)?);
    }
    Ok(extents)
}

impl DeadChunk {
    /// Bytes that a pointer of this length takes in a chunk, after the chunk's
    /// [`DEAD_CHUNK_HEADER_BYTES`].
    pub const fn entry_bytes(pointer_len: usize) -> usize {
        2 + pointer_len
    }

    /// Bytes that the encoded chunk takes.
    pub fn encoded_len(&self) -> usize {
        let entries = self.pointers.iter();
        DEAD_CHUNK_HEADER_BYTES
            + entries.map(|pointer| DeadChunk::entry_bytes(pointer.len())).sum::<usize>()
    }

    /// The encoded chunk.
    ///
    /// # Panics
    /// If it is longer than [`DEAD_CHUNK_BYTES_MAX`], or a pointer is empty.
    pub fn encode(&self) -> Bytes {
        let total = self.encoded_len();
        assert!(
            total <= DEAD_CHUNK_BYTES_MAX,
            "a chunk of {total} bytes is longer than {DEAD_CHUNK_BYTES_MAX}"
        );
        let put_len = |out: &mut BytesMut, len: usize| {
            out.put_u16_le(u16::try_from(len).expect("at most DEAD_CHUNK_BYTES_MAX"));
        };
        let mut out = BytesMut::with_capacity(total);
        out.put_u8(LAYOUT);
        out.put_u8(0);
        put_len(&mut out, self.pointers.len());
        for pointer in &self.pointers {
            assert!(!pointer.is_empty(), "a pointer is not empty");
            put_len(&mut out, pointer.len());
            out.put_slice(pointer);
        }
        out.freeze()
    }

    /// Decodes a chunk; the pointers are not looked into.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<DeadChunk, FormatError> {
        let mut from = Reader::new("chunk of a dead list", bytes);
        from.expect_u8("layout", LAYOUT, "1")?;
        from.reserved(1)?;
        let count = from.u16("number of pointers")?;
        let mut pointers = Vec::new();
        for _ in 0..count {
            let offset = from.at();
            let len = from.u16("length of a pointer")?;
            if len == 0 {
                return Err(from.unexpected("length of a pointer", offset, 0, "at least 1"));
            }
            let pointer = from.take("pointer", usize::from(len))?;
            pointers.push(Bytes::copy_from_slice(pointer));
        }
        from.finish()?;
        Ok(DeadChunk { pointers })
    }
}

impl ReferenceRecord {
    /// The encoded record, 24 bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(24);
        out.put_u8(LAYOUT);
        out.put_bytes(0, 7);
        out.put_u64_le(self.count);
        out.put_u64_le(self.used_bytes);
        out.freeze()
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<ReferenceRecord, FormatError> {
        let mut from = Reader::new("record of references", bytes);
        from.expect_u8("layout", LAYOUT, "1")?;
        from.reserved(7)?;
        let record = ReferenceRecord {
            count: from.u64_below("count", REFERENCES_MAX, "less than 2^62")?,
            used_bytes: from.u64("used bytes")?,
        };
        from.finish()?;
        Ok(record)
    }
}

impl OwnersRecord {
    /// The encoded record, 16 bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(16);
        out.put_u8(LAYOUT);
        out.put_bytes(0, 7);
        out.put_u64_le(self.count);
        out.freeze()
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<OwnersRecord, FormatError> {
        let mut from = Reader::new("record of owners", bytes);
        from.expect_u8("layout", LAYOUT, "1")?;
        from.reserved(7)?;
        let offset = from.at();
        let count = from.u64_below("number of owners", OWNERS_MAX, "less than 2^62")?;
        if count < 2 {
            return Err(from.unexpected("number of owners", offset, count, "at least 2"));
        }
        from.finish()?;
        Ok(OwnersRecord { count })
    }
}

impl ReclaimRecord {
    /// The encoded record, 24 bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(24);
        out.put_u8(LAYOUT);
        out.put_bytes(0, 7);
        out.put_u64_le(self.threshold.0);
        out.put_u64_le(self.destination);
        out.freeze()
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<ReclaimRecord, FormatError> {
        let mut from = Reader::new("record of a list in reclaim", bytes);
        from.expect_u8("layout", LAYOUT, "1")?;
        from.reserved(7)?;
        let record = ReclaimRecord {
            threshold: Group(from.u64_below("threshold", GROUPS_MAX, "less than 2^40")?),
            destination: from.u64_below("destination", DEAD_LISTS_MAX, "less than 2^63")?,
        };
        from.finish()?;
        Ok(record)
    }
}
