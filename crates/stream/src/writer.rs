//! A stream as it is written: record by record, each sealed by all before it.

use crate::{Error, Progress, StreamTotals};
use marram_format::key::Key;
use marram_format::pointer::{EMBEDDED_BYTES_MAX, checksum_kind};
use marram_format::stream::{
    RecordChain, RecordKind, STREAM_BLOCK_BYTES_MAX, STREAM_VALUE_BYTES_MAX, StreamBegin,
    StreamBlock, StreamContent, StreamEnd, StreamPut,
};
use marram_store::Damage;
use std::io::Write;

/// Bytes of the stream that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// A stream that is being written. Without [`StreamWriter::end`] nobody can take it for whole.
pub struct StreamWriter<'w> {
    chain: RecordChain,
    buffer: Vec<u8>,
    out: &'w mut dyn Write,
    totals: StreamTotals,
    progress: Progress<'w>,
}

impl<'w> StreamWriter<'w> {
    /// Begins a stream.
    ///
    /// # Errors
    /// [`Error::Transfer`] if `out` fails.
    pub fn begin(
        begin: &StreamBegin,
        out: &'w mut dyn Write,
        progress: Progress<'w>,
    ) -> Result<StreamWriter<'w>, Error> {
        let prefix = begin.prefix();
        let mut writer = StreamWriter {
            chain: RecordChain::new(&prefix),
            buffer: prefix.to_vec(),
            out,
            totals: StreamTotals::default(),
            progress,
        };
        writer.record(RecordKind::Begin, &begin.encode())?;
        Ok(writer)
    }

    /// Writes an item. Keys ascend.
    ///
    /// # Errors
    /// An item that no store writes, and no stream can hold; [`Error::Transfer`] if `out` fails.
    pub fn put(&mut self, put: &StreamPut<'_>) -> Result<(), Error> {
        refuse_too_long(put)?;
        if let StreamBlock::Content(content) = &put.block {
            self.totals.blocks += 1;
            self.totals.stored_bytes += content.stored.len() as u64;
        }
        self.totals.puts += 1;
        self.record(RecordKind::Put, &put.encode())
    }

    /// Writes that an item is there no more.
    ///
    /// # Errors
    /// [`Error::Transfer`] if `out` fails.
    pub fn remove(&mut self, key: Key) -> Result<(), Error> {
        self.totals.removals += 1;
        self.record(RecordKind::Remove, &key.encode())
    }

    /// Writes that the stream is whole.
    ///
    /// # Errors
    /// [`Error::Transfer`] if `out` fails.
    pub fn end(mut self) -> Result<StreamTotals, Error> {
        let StreamTotals { puts, removals, blocks, stored_bytes, .. } = self.totals;
        let whole = self.chain.whole();
        let end = StreamEnd { puts, removals, blocks, stored_bytes, whole };
        self.record(RecordKind::End, &end.encode())?;
        self.write_out()?;
        self.out.flush().map_err(|error| unwritable(&error))?;
        Ok(self.totals)
    }

    fn record(&mut self, kind: RecordKind, payload: &[u8]) -> Result<(), Error> {
        self.chain.seal(kind, payload, &mut self.buffer);
        if self.buffer.len() >= WRITE_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<(), Error> {
        self.out.write_all(&self.buffer).map_err(|error| unwritable(&error))?;
        self.totals.stream_bytes += self.buffer.len() as u64;
        self.buffer.clear();
        (self.progress)(&self.totals);
        Ok(())
    }
}

fn unwritable(error: &std::io::Error) -> Error {
    Error::Transfer(format!("cannot write the stream: {error}"))
}

/// Refuses what is longer than any store writes.
fn refuse_too_long(put: &StreamPut<'_>) -> Result<(), Error> {
    if put.value.len() > STREAM_VALUE_BYTES_MAX {
        return Err(too_long(put.key, format!("its value has {} bytes", put.value.len())));
    }
    match &put.block {
        StreamBlock::Content(content) if !fits(content) => {
            let (len, stored) = (content.logical_len, content.stored.len());
            Err(too_long(put.key, format!("its block has {len} bytes, stored as {stored}")))
        }
        _ => Ok(()),
    }
}

fn fits(content: &StreamContent<'_>) -> bool {
    (1..=STREAM_BLOCK_BYTES_MAX).contains(&content.logical_len)
        && (1..=content.logical_len as usize).contains(&content.stored.len())
        && (content.checksum.kind != checksum_kind::NONE
            || content.stored.len() <= EMBEDDED_BYTES_MAX)
}

fn too_long(key: Key, reason: String) -> Error {
    let place = format!("{key:?}");
    marram_store::Error::Damaged(Damage { what: "an item", place, reason }).into()
}
