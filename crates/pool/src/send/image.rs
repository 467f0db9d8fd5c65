//! A stream in a file, or a full one with incremental ones on top, as a snapshot that can be read.
//!
//! One pass verifies all of it and keeps, for each item, where its value and its block are: 48
//! bytes of memory an item, and nothing else that grows with the stream. What is asked for later is
//! read from the file and verified again: a file may be altered, or its disk fail, while it is
//! shown. A record's checksum covers that of the record before, whose bytes lie just before it: so
//! one record can be verified without those before it.

use super::{Progress, StreamTotals};
use crate::Error;
use crate::base::order::{self, Mutex};
use crate::memtable::settings::Settings;
use bytes::Bytes;
use marram_format::key::Key;
use marram_format::stream::{
    RECORD_CHECKSUM_BYTES, RECORD_HEAD_BYTES, RecordHead, StreamBegin, StreamBlock, StreamContent,
    StreamPut, StreamRecord, verify_record,
};
use marram_store::{
    Batch, Block, BlockPlace, Capabilities, CountedSpace, Damage, Error as StoreError, Halting,
    Item, Placement, Properties, Result as Stored, Space, Token, View,
};
use marram_stream::reader::{Step, StreamReader, content_of, verify_stored};
use std::collections::VecDeque;
use std::io::{BufReader, ErrorKind, Read, Result as Io};

/// Bytes of a file that are read at once while it is verified.
const PASS_BYTES: usize = 1 << 20;
/// Bytes of unpacked blocks that are kept at hand: a block may be read in several pieces.
const CACHE_BYTES: usize = 16 << 20;
/// Most streams on top of each other.
const STREAMS_MAX: usize = 250;
/// Bits of a place that say where in a file it is.
const OFFSET_BITS: u32 = 56;

/// Bytes that can be read anywhere, from many threads: the caller that opens a file lends it so.
pub trait ReadAt: Send + Sync {
    /// Reads some bytes at `offset`; 0 at the end.
    ///
    /// # Errors
    /// Whatever the file fails with.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Io<usize>;
}

/// A file with a stream in it.
pub struct StreamFile {
    /// What it is called, for errors.
    pub name: String,
    /// The file.
    pub file: Box<dyn ReadAt>,
}

impl StreamFile {
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> Io<()> {
        InOrder { file: &*self.file, offset }.read_exact(bytes)
    }
}

/// A file that is read from one byte on.
struct InOrder<'f> {
    file: &'f dyn ReadAt,
    offset: u64,
}

impl Read for InOrder<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> Io<usize> {
        let read = loop {
            match self.file.read_at(bytes, self.offset) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.offset += read as u64;
        Ok(read)
    }
}

/// A record in one of the files: which file, and the byte where its head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u64);

/// Where an item is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    /// The record with its value.
    value: Place,
    /// The record with its block; [`Place::NONE`] if it has none.
    block: Place,
    /// Bytes of the block's content.
    len: u32,
    /// Bytes of the block as it is stored.
    stored_len: u32,
}

/// See the module.
pub struct StreamImage {
    files: Vec<StreamFile>,
    entries: Vec<Entry>,
    begin: StreamBegin,
    properties: Properties,
    file_bytes: u64,
    /// Blocks that were read last, the newest first.
    cache: Mutex<VecDeque<(Place, Bytes)>>,
}

impl Place {
    const NONE: Place = Place(u64::MAX);

    fn new(file: usize, offset: u64) -> Result<Place, Error> {
        let file = u64::try_from(file).unwrap_or(u64::MAX);
        if offset >> OFFSET_BITS != 0 {
            return Err(Error::Stream("it is longer than can be shown".to_owned()));
        }
        Ok(Place(file << OFFSET_BITS | offset))
    }

    fn file(self) -> usize {
        usize::try_from(self.0 >> OFFSET_BITS).unwrap_or(usize::MAX)
    }

    fn offset(self) -> u64 {
        self.0 & ((1 << OFFSET_BITS) - 1)
    }
}

impl StreamImage {
    /// Verifies the streams, the first of which must be a full one and each other go on from the
    /// one before it.
    ///
    /// # Errors
    /// [`Error::Stream`] for one that is cut, damaged or altered, [`Error::Unfit`] for one that
    /// does not go on from the one before, [`Error::Transfer`] if a file cannot be read.
    pub fn open(files: Vec<StreamFile>, progress: Progress<'_>) -> Result<StreamImage, Error> {
        if files.len() > STREAMS_MAX {
            return Err(Error::Unfit(format!("more than {STREAMS_MAX} streams are too many")));
        }
        let mut last: Option<(StreamBegin, Properties)> = None;
        let (mut entries, mut file_bytes) = (Vec::new(), 0);
        for (number, file) in files.iter().enumerate() {
            let named = |error: Error| name_file(&file.name, error);
            let in_order = InOrder { file: &*file.file, offset: 0 };
            let mut input = BufReader::with_capacity(PASS_BYTES, in_order);
            let (mut reader, begin) =
                StreamReader::open(&mut input).map_err(|error| named(error.into()))?;
            check_order(last.as_ref().map(|(begin, _)| begin), &begin).map_err(named)?;
            let mut merging = Merging { old: entries, taken: 0, new: Vec::new() };
            merging.take_all(number, &mut reader, progress).map_err(named)?;
            entries = merging.new;
            file_bytes += reader.totals().stream_bytes;
            // What is set on a dataset comes with its full stream.
            let properties = match last {
                Some((_, properties)) => properties,
                None => Settings::new(&begin.properties)?.all,
            };
            last = Some((begin, properties));
        }
        let (begin, properties) =
            last.ok_or_else(|| Error::Unfit("there is no stream to show".to_owned()))?;
        let cache = Mutex::new(order::AT_HAND, VecDeque::new());
        Ok(StreamImage { files, entries, begin, properties, file_bytes, cache })
    }

    /// What the last of the streams is.
    pub fn begin(&self) -> &StreamBegin {
        &self.begin
    }

    /// How many items there are.
    pub fn items(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// The payload of a record, verified.
    fn payload(&self, place: Place) -> Stored<Vec<u8>> {
        let file = self.files.get(place.file()).ok_or_else(|| foreign("a place in no file"))?;
        let read = |bytes: &mut [u8], offset: u64| {
            file.read_exact_at(bytes, offset).map_err(|error| {
                StoreError::Io(format!("cannot read byte {offset} of {}: {error}", file.name))
            })
        };
        let mut before = [0; RECORD_CHECKSUM_BYTES + RECORD_HEAD_BYTES];
        let offset = place.offset();
        read(&mut before, offset.saturating_sub(RECORD_CHECKSUM_BYTES as u64))?;
        let (previous, head) = before.split_at(RECORD_CHECKSUM_BYTES);
        let (previous, head) = (array(previous), array(head));
        let len = RecordHead::decode(&head).map_err(|error| self.damaged(place, &error))?;
        let mut payload = vec![0; len.payload_len + RECORD_CHECKSUM_BYTES];
        read(&mut payload, offset + RECORD_HEAD_BYTES as u64)?;
        let checksum = array(&payload[len.payload_len..]);
        payload.truncate(len.payload_len);
        verify_record(&previous, &head, &payload, checksum)
            .map_err(|error| self.damaged(place, &error))?;
        Ok(payload)
    }

    /// Has the item in a record that has been read looked at.
    fn with_put<T>(
        &self,
        place: Place,
        payload: &[u8],
        look: impl FnOnce(StreamPut<'_>) -> Stored<T>,
    ) -> Stored<T> {
        let head = marram_format::stream::RecordKind::Put;
        match StreamRecord::decode(head, payload).map_err(|error| self.damaged(place, &error))? {
            StreamRecord::Put(put) => look(put),
            _ => Err(foreign("a record without an item")),
        }
    }

    fn damaged(&self, place: Place, reason: &dyn std::fmt::Display) -> StoreError {
        let name = self.files.get(place.file()).map_or("", |file| file.name.as_str());
        StoreError::Damaged(Damage {
            what: "a record of a stream",
            place: format!("byte {} of {name}", place.offset()),
            reason: reason.to_string(),
        })
    }

    /// A record that is right by itself is not the one that was verified at this place.
    fn exchanged(&self, place: Place) -> StoreError {
        self.damaged(place, &"the file has been exchanged for another one since it was opened")
    }

    /// A reader of a block counts on its length.
    fn check_len(&self, place: Place, content: &Bytes, len: usize) -> Stored<()> {
        if content.len() == len { Ok(()) } else { Err(self.exchanged(place)) }
    }

    fn item(&self, entry: &Entry) -> Stored<Item> {
        let payload = self.payload(entry.value)?;
        self.with_put(entry.value, &payload, |put| {
            if put.key != entry.key {
                return Err(self.exchanged(entry.value));
            }
            let value = Bytes::copy_from_slice(put.value);
            if entry.block == Place::NONE {
                return Ok(Item { value, block: None });
            }
            if let StreamBlock::Content(content) = &put.block {
                // A lookup of the item is most likely followed by a read of its block.
                let unpacked = self.unpack(entry.block, put.key, content)?;
                self.check_len(entry.block, &unpacked, entry.len as usize)?;
            }
            let mut place = entry.block.0.to_be_bytes().to_vec();
            place.extend(entry.stored_len.to_be_bytes());
            let token = Token { place: place.into(), len: entry.len };
            Ok(Item { value, block: Some(Block::Stored(token)) })
        })
    }

    /// The content of a block, kept at hand.
    fn unpack(&self, place: Place, key: Key, content: &StreamContent<'_>) -> Stored<Bytes> {
        if let Some(found) = self.at_hand(place) {
            return Ok(found);
        }
        let mut unpacked = Vec::new();
        verify_stored(0, content)
            .and_then(|()| content_of(key, content, &mut unpacked))
            .map_err(|error| self.damaged(place, &error))?;
        let unpacked = Bytes::from(unpacked);
        let mut cache = self.cache.lock();
        cache.push_front((place, unpacked.clone()));
        let mut bytes = 0;
        let fits = |(_, block): &(Place, Bytes)| {
            bytes += block.len();
            bytes <= CACHE_BYTES
        };
        let kept = cache.iter().map(fits).take_while(|fits| *fits).count();
        cache.truncate(kept.max(1));
        Ok(unpacked)
    }

    fn at_hand(&self, place: Place) -> Option<Bytes> {
        let cache = self.cache.lock();
        cache.iter().find(|(one, _)| *one == place).map(|(_, block)| block.clone())
    }

    fn between(&self, from: Key, to: Key) -> &[Entry] {
        let start = self.entries.partition_point(|entry| entry.key < from);
        let end = self.entries.partition_point(|entry| entry.key <= to);
        self.entries.get(start..end).unwrap_or_default()
    }
}

impl View for StreamImage {
    fn get(&self, key: Key) -> Stored<Option<Item>> {
        find(&self.entries, key).map(|entry| self.item(entry)).transpose()
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Stored<()> {
        for entry in self.between(from, to) {
            if !visit(entry.key, &self.item(entry)?) {
                break;
            }
        }
        Ok(())
    }

    fn last(&self, from: Key, to: Key) -> Stored<Option<(Key, Item)>> {
        let last = self.between(from, to).last();
        last.map(|entry| Ok((entry.key, self.item(entry)?))).transpose()
    }

    fn apply(&self, _batch: Batch<'_>) -> Stored<()> {
        Err(StoreError::ReadOnly("a stream in a file cannot be changed".to_owned()))
    }

    fn read_block(&self, block: &Block) -> Stored<Bytes> {
        let (place, _) = parts_of(block)?;
        let content = match self.at_hand(place) {
            Some(found) => found,
            None => {
                let payload = self.payload(place)?;
                self.with_put(place, &payload, |put| match &put.block {
                    StreamBlock::Content(content) => self.unpack(place, put.key, content),
                    _ => Err(self.exchanged(place)),
                })?
            }
        };
        self.check_len(place, &content, block.len())?;
        Ok(content)
    }

    fn sync(&self) -> Stored<()> {
        Ok(())
    }

    fn writable(&self) -> bool {
        false
    }

    fn properties(&self) -> Properties {
        self.properties.clone()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            space: Some(self),
            placement: Some(self),
            halting: Some(self),
            ..Capabilities::default()
        }
    }
}

impl CountedSpace for StreamImage {
    fn space(&self) -> Space {
        Space { total_bytes: self.file_bytes, free_bytes: 0 }
    }
}

impl Placement for StreamImage {
    fn stored_bytes(&self, block: &Block) -> u64 {
        parts_of(block).map_or(0, |(_, stored_len)| u64::from(stored_len))
    }

    fn place_of(&self, block: &Block) -> BlockPlace {
        BlockPlace::in_memory(self.stored_bytes(block))
    }

    fn read_block_anew(&self, block: &Block) -> Stored<Bytes> {
        self.read_block(block)
    }

    fn is_held_only_by(&self, _block: &Block, _keys: &[Key]) -> Stored<bool> {
        Ok(false)
    }
}

impl Halting for StreamImage {
    fn halt(&self) {}
}

/// A stream on its way onto what the streams before it have brought.
struct Merging {
    old: Vec<Entry>,
    /// How many of those have been looked at.
    taken: usize,
    new: Vec<Entry>,
}

impl Merging {
    fn take_all(
        &mut self,
        file: usize,
        reader: &mut StreamReader<'_>,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let mut content = Vec::new();
        let mut reported = StreamTotals::default();
        loop {
            let place = Place::new(file, reader.totals().stream_bytes)?;
            match reader.step()? {
                Step::Put(put) => {
                    if let StreamBlock::Content(block) = &put.block {
                        content_of(put.key, block, &mut content)?;
                    }
                    self.put(place, &put)?;
                }
                Step::Remove(key) => {
                    self.pass(key);
                }
                Step::End => break,
            }
            if reader.totals().stream_bytes - reported.stream_bytes >= PASS_BYTES as u64 {
                reported = *reader.totals();
                progress(&reported);
            }
        }
        self.new.extend_from_slice(&self.old[self.taken..]);
        self.old = Vec::new();
        self.new.shrink_to_fit();
        Ok(())
    }

    /// Takes over what is before `key`; returns what was under it.
    fn pass(&mut self, key: Key) -> Option<Entry> {
        let rest = &self.old[self.taken..];
        let before = rest.partition_point(|entry| entry.key < key);
        self.new.extend_from_slice(&rest[..before]);
        let under = rest.get(before).filter(|entry| entry.key == key).copied();
        self.taken += before + usize::from(under.is_some());
        under
    }

    fn put(&mut self, value: Place, put: &StreamPut<'_>) -> Result<(), Error> {
        let key = put.key;
        let under = self.pass(key);
        let none = Entry { key, value, block: Place::NONE, len: 0, stored_len: 0 };
        let found = match &put.block {
            StreamBlock::None => Some(none),
            StreamBlock::Content(content) => {
                let stored_len = u32::try_from(content.stored.len()).unwrap_or(u32::MAX);
                Some(Entry { block: value, len: content.logical_len, stored_len, ..none })
            }
            StreamBlock::Kept => under,
            StreamBlock::OfBase(of) => find(&self.old, *of).copied(),
            StreamBlock::Earlier(of) => find(&self.new, *of).copied(),
        };
        let has_block = |entry: &Entry| entry.block != Place::NONE;
        let is_named = !matches!(put.block, StreamBlock::None);
        let found = found.filter(|entry| !is_named || has_block(entry)).ok_or_else(|| {
            Error::Stream(format!("{key:?} is to have the block of an item that has none"))
        })?;
        self.new.push(Entry { key, value, ..found });
        Ok(())
    }
}

fn find(entries: &[Entry], key: Key) -> Option<&Entry> {
    let at = entries.binary_search_by(|entry| entry.key.cmp(&key)).ok()?;
    entries.get(at)
}

/// Refuses a stream that does not go on from the one before it.
fn check_order(before: Option<&StreamBegin>, begin: &StreamBegin) -> Result<(), Error> {
    let unfit = |reason: &str| Err(Error::Unfit(reason.to_owned()));
    if begin.after.is_some() {
        return unfit("it is the rest of a stream that was cut: receive it into a pool");
    }
    match (before, begin.base) {
        (None, None) => Ok(()),
        (None, Some(_)) => unfit(
            "it is incremental: name the full stream first, and those that go on from it behind",
        ),
        (Some(_), None) => unfit("it is a full stream, and goes on from nothing: show it alone"),
        (Some(before), Some(base)) if before.snapshot == base => Ok(()),
        (Some(before), Some(_)) => Err(Error::Unfit(format!(
            "it does not go on from {}@{}, which is what the stream before it brings",
            before.dataset_name, before.snapshot_name
        ))),
    }
}

fn name_file(name: &str, error: Error) -> Error {
    match error {
        Error::Stream(reason) => Error::Stream(format!("{name}: {reason}")),
        Error::Unfit(reason) => Error::Unfit(format!("{name}: {reason}")),
        Error::Transfer(reason) => Error::Transfer(format!("{name}: {reason}")),
        other => other,
    }
}

fn foreign(what: &str) -> StoreError {
    StoreError::Io(format!("a block that is not of this stream: {what}"))
}

/// Which record a block is in, and how many bytes it takes there.
fn parts_of(block: &Block) -> Stored<(Place, u32)> {
    let Block::Stored(token) = block else { return Err(foreign("it was never written")) };
    let parts = token.place.split_first_chunk::<8>();
    let (place, stored) = parts.ok_or_else(|| foreign("another store's"))?;
    let stored: [u8; 4] = stored.try_into().map_err(|_| foreign("another store's"))?;
    Ok((Place(u64::from_be_bytes(*place)), u32::from_be_bytes(stored)))
}

fn array<const BYTES: usize>(bytes: &[u8]) -> [u8; BYTES] {
    let mut array = [0; BYTES];
    array.copy_from_slice(bytes);
    array
}
