//! Writes of a commit, gathered so that neighbours go out together.
//!
//! **Two copies of a block never go out in one write**, even if they are neighbours (as on a nearly
//! full pool): a device that loses or misdirects one write must not take both.

use crate::io::Media;
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_store::{FreshBlock, Result};
use std::sync::Arc;

/// The queue is written out when it holds this many bytes.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Longest single write, in bytes.
const WRITE_BYTES_MAX: usize = 4 << 20;
/// What follows a block in its last grain.
const ZEROS: [u8; GRAIN_BYTES as usize] = [0; GRAIN_BYTES as usize];

/// Bytes to write.
#[derive(Clone)]
pub(crate) enum Payload {
    Owned(Arc<Vec<u8>>),
    Fresh(Arc<FreshBlock>),
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Owned(bytes) => bytes,
            Payload::Fresh(fresh) => fresh.data(),
        }
    }
}

struct Write {
    /// Which copy of its block it is, from 0.
    copy: usize,
    extent: Extent,
    payload: Payload,
    /// Which part of the payload goes here.
    from: usize,
}

impl Write {
    fn start_bytes(&self) -> u64 {
        self.extent.start * GRAIN_BYTES
    }

    /// Whether it can go out in one with the write `before`.
    fn follows(&self, before: &Write) -> bool {
        let end = before.extent.start + u64::from(before.extent.grains);
        let is_next = self.extent.device == before.extent.device && self.extent.start == end;
        is_next && self.copy == before.copy
    }

    /// What goes here, and the zeros behind it.
    fn parts(&self) -> [&[u8]; 2] {
        let (len, bytes) = (bytes_of(&self.extent), self.payload.bytes());
        let content = &bytes[self.from..(self.from + len).min(bytes.len())];
        [content, &ZEROS[..len - content.len()]]
    }
}

/// Writes that wait.
pub(crate) struct WriteQueue<'p> {
    media: &'p Media,
    writes: Vec<Write>,
    bytes: usize,
}

impl<'p> WriteQueue<'p> {
    pub(crate) fn new(media: &'p Media) -> WriteQueue<'p> {
        WriteQueue { media, writes: Vec::new(), bytes: 0 }
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Queues the copy numbered `copy` of a block, which lies in `pieces`.
    pub(crate) fn push(&mut self, copy: usize, pieces: &[Extent], payload: &Payload) -> Result<()> {
        let mut from = 0;
        for extent in pieces {
            self.writes.push(Write { copy, extent: *extent, payload: payload.clone(), from });
            from += bytes_of(extent);
        }
        self.bytes += from;
        if self.bytes >= QUEUE_BYTES_MAX { self.write_out() } else { Ok(()) }
    }

    /// Writes everything that waits, neighbours in one go; what does not fill a grain is followed
    /// by zeros.
    pub(crate) fn write_out(&mut self) -> Result<()> {
        self.writes.sort_by_key(|write| (write.copy, write.extent.device, write.extent.start));
        let written = self.write_runs();
        self.writes.clear();
        self.bytes = 0;
        written
    }

    fn write_runs(&self) -> Result<()> {
        let mut rest = &self.writes[..];
        while let Some(first) = rest.first() {
            let (run, after) = rest.split_at(run_len(rest));
            let parts: Vec<&[u8]> = run.iter().flat_map(Write::parts).collect();
            self.media.write_parts(first.extent.device, first.start_bytes(), &parts)?;
            rest = after;
        }
        Ok(())
    }
}

/// How many of these writes, from the first on, go out as one.
fn run_len(writes: &[Write]) -> usize {
    let mut bytes = 0;
    let joined = writes.windows(2).take_while(|pair| {
        bytes += bytes_of(&pair[0].extent);
        bytes < WRITE_BYTES_MAX && pair[1].follows(&pair[0])
    });
    1 + joined.count()
}

fn bytes_of(extent: &Extent) -> usize {
    extent.grains as usize * GRAIN_BYTES as usize
}
