//! A stream as it is read: record by record, each verified before anybody uses it.

use crate::error::wrong;
use crate::{Error, Progress, StreamTotals};
use marram_codec::{ChecksumKind, checksum, decompress};
use marram_format::key::{Key, kind};
use marram_format::pointer::{checksum_kind, codec_id};
use marram_format::stream::{
    RECORD_CHECKSUM_BYTES, RECORD_HEAD_BYTES, RecordChain, RecordHead, RecordKind,
    STREAM_PREFIX_BYTES, StreamBegin, StreamBlock, StreamContent, StreamEnd, StreamPut,
    StreamRecord, check_stream_prefix,
};
use std::io::{ErrorKind, Read};

/// How many records pass between two tellings of progress.
const PROGRESS_RECORDS: u64 = 1024;

/// What a stream holds that is whole.
#[derive(Clone, Debug)]
pub struct StreamReport {
    /// What it is.
    pub begin: StreamBegin,
    /// What is in it.
    pub totals: StreamTotals,
}

/// Properties that say how much of its home a dataset may take, how that finds what it has already,
/// or what users may do.
const STAYING: [&str; 5] = ["allow", "delta", "quota", "reservation", "userforks"];

/// A stream that is being read.
pub struct StreamReader<'r> {
    input: &'r mut dyn Read,
    chain: RecordChain,
    payload: Vec<u8>,
    last: Option<Key>,
    is_incremental: bool,
    totals: StreamTotals,
}

/// What comes next in a stream.
pub enum Step<'s> {
    /// An item is this.
    Put(StreamPut<'s>),
    /// An item is gone.
    Remove(Key),
    /// That was all, and nothing follows.
    End,
}

/// Reads a whole stream and verifies all of it, as receiving it would.
///
/// # Errors
/// [`Error::Stream`] says what is wrong with it, [`Error::Transfer`] that it cannot be read.
pub fn verify_stream(input: &mut dyn Read, progress: Progress<'_>) -> Result<StreamReport, Error> {
    let (mut reader, begin) = StreamReader::open(input)?;
    let mut content = Vec::new();
    loop {
        match reader.step()? {
            Step::Put(StreamPut { key, block: StreamBlock::Content(block), .. }) => {
                content_of(key, &block, &mut content)?;
            }
            Step::Put(_) | Step::Remove(_) => {}
            Step::End => return Ok(StreamReport { begin, totals: reader.totals }),
        }
        if (reader.totals.puts + reader.totals.removals).is_multiple_of(PROGRESS_RECORDS) {
            progress(&reader.totals);
        }
    }
}

/// What a stream is that begins so; nothing if these bytes are too few.
pub fn peek_begin(bytes: &[u8]) -> Option<StreamBegin> {
    let mut input = bytes;
    StreamReader::open(&mut input).ok().map(|(_, begin)| begin)
}

impl<'r> StreamReader<'r> {
    /// Reads what the stream is.
    ///
    /// # Errors
    /// [`Error::Stream`] for what is no stream, or none that this version can read;
    /// [`Error::Transfer`] if `input` fails.
    pub fn open(input: &'r mut dyn Read) -> Result<(StreamReader<'r>, StreamBegin), Error> {
        let mut prefix = [0; STREAM_PREFIX_BYTES];
        fill(input, &mut prefix, 0)?;
        check_stream_prefix(&prefix).map_err(|error| wrong(0, &error))?;
        let totals =
            StreamTotals { stream_bytes: STREAM_PREFIX_BYTES as u64, ..StreamTotals::default() };
        let mut reader = StreamReader {
            input,
            chain: RecordChain::new(&prefix),
            payload: Vec::new(),
            last: None,
            is_incremental: false,
            totals,
        };
        let kind = reader.read_record()?;
        let record = StreamRecord::decode(kind, &reader.payload);
        let StreamRecord::Begin(begin) = record.map_err(|error| wrong(0, &error))? else {
            return Err(Error::Stream("it does not say what it is".to_owned()));
        };
        if let Some((name, _)) = begin.properties.iter().find(|(name, _)| !is_sent_property(name)) {
            return Err(Error::Stream(format!("it sets {name}, and no stream may do that")));
        }
        reader.is_incremental = begin.base.is_some();
        reader.last = begin.after;
        Ok((reader, begin))
    }

    /// Reads a record into the payload.
    fn read_record(&mut self) -> Result<RecordKind, Error> {
        let records = self.chain.records();
        let (mut head, mut checksum) = ([0; RECORD_HEAD_BYTES], [0; RECORD_CHECKSUM_BYTES]);
        fill(self.input, &mut head, records)?;
        let decoded = RecordHead::decode(&head).map_err(|error| wrong(records, &error))?;
        self.payload.resize(decoded.payload_len, 0);
        fill(self.input, &mut self.payload, records)?;
        fill(self.input, &mut checksum, records)?;
        if decoded.kind == RecordKind::End {
            self.check_end(records)?;
        }
        let opened = self.chain.open(&head, &self.payload, checksum);
        opened.map_err(|error| wrong(records, &error))?;
        let len = RECORD_HEAD_BYTES + decoded.payload_len + RECORD_CHECKSUM_BYTES;
        self.totals.stream_bytes += len as u64;
        Ok(decoded.kind)
    }

    /// Whether the end says what has come before it.
    fn check_end(&self, records: u64) -> Result<(), Error> {
        let record = StreamRecord::decode(RecordKind::End, &self.payload);
        let StreamRecord::End(end) = record.map_err(|error| wrong(records, &error))? else {
            return Ok(());
        };
        let StreamTotals { puts, removals, blocks, stored_bytes, .. } = self.totals;
        let whole = self.chain.whole();
        if end == (StreamEnd { puts, removals, blocks, stored_bytes, whole }) {
            return Ok(());
        }
        Err(Error::Stream("its end does not match what came before it".to_owned()))
    }

    /// What has been read up to now.
    pub fn totals(&self) -> &StreamTotals {
        &self.totals
    }

    /// The next record, verified.
    ///
    /// # Errors
    /// [`Error::Stream`] says what is wrong with it; [`Error::Transfer`] if the input fails.
    pub fn step(&mut self) -> Result<Step<'_>, Error> {
        let number = self.chain.records();
        let kind = self.read_record()?;
        if kind == RecordKind::End {
            self.refuse_more()?;
            return Ok(Step::End);
        }
        let decoded = StreamRecord::decode(kind, &self.payload);
        let record = decoded.map_err(|error| wrong(number, &error))?;
        let (StreamRecord::Put(StreamPut { key, .. }) | StreamRecord::Remove(key)) = record else {
            return Err(nonsense(number, "it begins twice"));
        };
        if self.last.is_some_and(|last| key <= last) {
            return Err(nonsense(number, "its keys do not ascend"));
        }
        self.last = Some(key);
        if !is_sent(key.kind) {
            return Err(nonsense(number, "it has items of a kind that is not sent"));
        }
        let StreamRecord::Put(put) = record else {
            self.totals.removals += 1;
            return Ok(Step::Remove(key));
        };
        self.totals.puts += 1;
        match &put.block {
            StreamBlock::Kept | StreamBlock::OfBase(_) if !self.is_incremental => {
                return Err(nonsense(number, "it has no base, and yet refers to it"));
            }
            StreamBlock::Content(content) => {
                verify_stored(number, content)?;
                self.totals.blocks += 1;
                self.totals.stored_bytes += content.stored.len() as u64;
            }
            _ => {}
        }
        Ok(Step::Put(put))
    }

    fn refuse_more(&mut self) -> Result<(), Error> {
        let mut more = [0; 1];
        loop {
            match self.input.read(&mut more) {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    let reason = "something follows after its end: receive one stream at a time";
                    return Err(Error::Stream(reason.to_owned()));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(&error)),
            }
        }
    }
}

/// Whether items of this kind are in streams.
pub fn is_sent(of_kind: u8) -> bool {
    (kind::INODE..=kind::LIMIT).contains(&of_kind) && of_kind != kind::REFERENCES
}

/// Whether a property goes with its dataset: not those that say how much of its home it may take,
/// and none of the home's own.
pub fn is_sent_property(name: &str) -> bool {
    !name.starts_with('.') && !STAYING.contains(&name)
}

fn nonsense(record: u64, what: &str) -> Error {
    Error::Stream(format!("record {record}: {what}"))
}

fn unreadable(error: &std::io::Error) -> Error {
    Error::Transfer(format!("cannot read the stream: {error}"))
}

/// Reads exactly so many bytes.
fn fill(input: &mut dyn Read, bytes: &mut [u8], records: u64) -> Result<(), Error> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Error::Stream(format!(
            "it is cut: it ends after {records} records, and not with its end"
        )),
        _ => unreadable(&error),
    })
}

/// Looks whether the stored bytes are those that the sender has written.
///
/// # Errors
/// [`Error::Stream`], which names the record.
pub fn verify_stored(record: u64, content: &StreamContent<'_>) -> Result<(), Error> {
    if content.checksum.kind == checksum_kind::NONE {
        return Ok(());
    }
    let kind = ChecksumKind::from_id(content.checksum.kind)
        .ok_or_else(|| nonsense(record, "a checksum of an unknown kind"))?;
    if checksum(kind, content.stored) == content.checksum.bytes {
        return Ok(());
    }
    Err(nonsense(record, "a block does not match the checksum that the sender had for it"))
}

/// Unpacks a block into `into`.
///
/// # Errors
/// [`Error::Stream`] if its bytes cannot be unpacked.
pub fn content_of(key: Key, content: &StreamContent<'_>, into: &mut Vec<u8>) -> Result<(), Error> {
    let len = content.logical_len as usize;
    if content.codec == codec_id::OFF && content.stored.len() == len {
        into.clear();
        into.extend_from_slice(content.stored);
        return Ok(());
    }
    *into = decompress(content.codec, content.stored, len)
        .map_err(|error| Error::Stream(format!("the block of {key:?}: {error}")))?;
    Ok(())
}
