//! Blocks, named by their content.

use crate::database::{Change, Range, Table};
use crate::failure::damaged;
use crate::format::{BlockId, BlockRow, Reference};
use crate::rows::Rows;
use bytes::Bytes;
use marram_codec::{Compression, codec_id, compress_with_grain, decompress};
use marram_store::{FreshBlock, Result, StoredForm};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Content that one write sends at most, in bytes.
const WRITE_BYTES: usize = 8 << 20;
/// Content that one question asks for, in bytes.
const READ_BYTES: usize = 8 << 20;
/// What compression has to save at least, in bytes.
const GRAIN_BYTES: usize = 512;
/// Content that the cache is made for, in bytes a block.
const CACHED_BLOCK_BYTES: u64 = 32 << 10;

/// The blocks of a store, and a cache of their contents.
pub(crate) struct Blocks {
    rows: Rows,
    cache: Cache<BlockId, Bytes, ByLength>,
}

#[derive(Clone)]
struct ByLength;

impl Weighter<BlockId, Bytes> for ByLength {
    fn weight(&self, _: &BlockId, content: &Bytes) -> u64 {
        content.len() as u64
    }
}

/// A block on its way into the database.
pub(crate) struct Upload {
    pub(crate) reference: Reference,
    pub(crate) block: Arc<FreshBlock>,
}

impl Blocks {
    pub(crate) fn new(rows: Rows, cache_bytes: u64) -> Blocks {
        let items = usize::try_from(cache_bytes / CACHED_BLOCK_BYTES).unwrap_or(usize::MAX).max(16);
        Blocks { rows, cache: Cache::with_weighter(items, cache_bytes, ByLength) }
    }

    /// The name of a content.
    pub(crate) fn reference(&self, content: &[u8]) -> Reference {
        let len = u32::try_from(content.len()).expect("a block is bounded");
        Reference { id: self.rows.hash(content), len }
    }

    /// Writes those of the blocks that are not there. They are loose until a row refers to them.
    pub(crate) fn upload(&self, uploads: &[Upload], now: i64) -> Result<()> {
        if uploads.is_empty() {
            return Ok(());
        }
        let ids: Vec<Vec<u8>> = uploads.iter().map(|it| it.reference.id.to_vec()).collect();
        let known = self.rows.database().has(Table::Blocks, &ids)?;
        let missing = uploads.iter().zip(known).filter(|(_, is_there)| !is_there);
        let (mut changes, mut bytes) = (Vec::new(), 0);
        for (upload, _) in missing {
            changes.push(loose(&self.rows, &upload.reference.id, now));
            changes.push(self.stored(upload));
            bytes += upload.block.data().len();
            if bytes >= WRITE_BYTES {
                self.rows.write(&std::mem::take(&mut changes))?;
                bytes = 0;
            }
        }
        self.rows.write(&changes)?;
        // A file that is written anew has often been written here before.
        for Upload { reference, block } in uploads {
            if !self.is_here(reference) {
                // A copy: what it is a part of may be much larger.
                self.cache.insert(reference.id, Bytes::copy_from_slice(block.data()));
            }
        }
        Ok(())
    }

    fn stored(&self, upload: &Upload) -> Change {
        let content = upload.block.data();
        let key = || upload.reference.id.to_vec();
        if let Some(StoredForm { codec, bytes, .. }) = upload.block.form() {
            let row = BlockRow { codec: *codec, len: upload.reference.len, stored: bytes };
            return self.rows.put(Table::Blocks, key(), row.encode());
        }
        let mut packed = Vec::new();
        let how = if upload.block.is_as_is() { Compression::Off } else { Compression::Lz4 };
        let (codec, stored) = match compress_with_grain(how, content, GRAIN_BYTES, &mut packed) {
            true => (how.id(), &packed[..]),
            false => (codec_id::OFF, content),
        };
        let row = BlockRow { codec, len: upload.reference.len, stored };
        self.rows.put(Table::Blocks, key(), row.encode())
    }

    /// Whether the content of a block is in memory.
    pub(crate) fn is_here(&self, reference: &Reference) -> bool {
        self.cache.get(&reference.id).is_some()
    }

    /// The contents of some blocks, verified, many in one question; without those that are not
    /// there, or damaged.
    pub(crate) fn read_all(&self, references: &[Reference]) -> Result<BTreeMap<BlockId, Bytes>> {
        let (mut contents, mut away) = (BTreeMap::new(), Vec::new());
        for reference in references {
            match self.cache.get(&reference.id) {
                Some(content) => drop(contents.insert(reference.id, content)),
                None => away.push(*reference),
            }
        }
        while !away.is_empty() {
            let mut bytes = 0;
            let fits = |reference: &&Reference| {
                bytes += reference.len as usize;
                bytes <= READ_BYTES
            };
            let count = away.iter().take_while(fits).count().max(1);
            let asked: Vec<Reference> = away.drain(..count).collect();
            let one = |it: &Reference| Range::one(Table::Blocks, it.id.to_vec());
            let ranges: Vec<Range> = asked.iter().map(one).collect();
            for (reference, found) in asked.iter().zip(self.rows.read(&ranges)?) {
                let Some((_, value)) = found.first() else { continue };
                if let Ok((_, _, content)) = unpacked(&self.rows, reference, value) {
                    let content = Bytes::from(content);
                    self.cache.insert(reference.id, content.clone());
                    contents.insert(reference.id, content);
                }
            }
        }
        Ok(contents)
    }

    /// The content of a block, verified.
    pub(crate) fn read(&self, reference: &Reference) -> Result<Bytes> {
        if let Some(content) = self.cache.get(&reference.id) {
            return Ok(content);
        }
        let content = Bytes::from(read(&self.rows, reference)?);
        self.cache.insert(reference.id, content.clone());
        Ok(content)
    }
}

/// The content of a block as the database has it, verified.
pub(crate) fn read(rows: &Rows, reference: &Reference) -> Result<Vec<u8>> {
    verified(rows, reference, |_, _, content| content)
}

/// A block as it is stored, when its content has been verified: what compressed it, and the bytes.
pub(crate) fn stored(rows: &Rows, reference: &Reference) -> Result<(u8, Vec<u8>)> {
    verified(rows, reference, |codec, stored, _| (codec, stored.to_vec()))
}

fn verified<T>(
    rows: &Rows,
    reference: &Reference,
    take: impl FnOnce(u8, &[u8], Vec<u8>) -> T,
) -> Result<T> {
    let id: String = reference.id.iter().map(|byte| format!("{byte:02x}")).collect();
    let wrong = |reason: String| damaged("a data block", id.clone(), reason);
    let value = rows.get(Table::Blocks, reference.id.to_vec())?;
    let value = value.ok_or_else(|| wrong("the database does not have it".to_owned()))?;
    let (codec, stored, content) = unpacked(rows, reference, &value)?;
    Ok(take(codec, stored, content))
}

/// What compressed a block, its stored bytes, and its content, verified.
fn unpacked<'r>(
    rows: &Rows,
    reference: &Reference,
    value: &'r [u8],
) -> Result<(u8, &'r [u8], Vec<u8>)> {
    let id: String = reference.id.iter().map(|byte| format!("{byte:02x}")).collect();
    let wrong = |reason: String| damaged("a data block", id.clone(), reason);
    let row = BlockRow::decode(value)?;
    if row.len != reference.len {
        return Err(wrong(format!("it has {} bytes instead of {}", row.len, reference.len)));
    }
    let content = decompress(row.codec, row.stored, row.len as usize);
    let content = content.map_err(|error| wrong(error.to_string()))?;
    match rows.hash(&content) == reference.id {
        true => Ok((row.codec, row.stored, content)),
        false => Err(wrong("its content has another hash".to_owned())),
    }
}

/// A change that lets the next sweep look whether anything refers to a block.
pub(crate) fn loose(rows: &Rows, id: &BlockId, now: i64) -> Change {
    rows.put(Table::Loose, id.to_vec(), now.to_le_bytes().to_vec())
}

/// The first rows that refer to a block, at most so many.
pub(crate) fn uses(id: &BlockId, limit: usize) -> Range {
    let to = [&id[..], &[u8::MAX; 33]].concat();
    Range::first(Table::Uses, id.to_vec(), to, limit)
}
