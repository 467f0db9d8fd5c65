//! Writes of a commit, gathered so that neighbours go out together.
//!
//! **Two copies of a block never go out in one write**, even if they are neighbours (as on a nearly
//! full pool): a device that loses or misdirects one write must not take both.

use crate::media::Media;
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_store::{FreshBlock, Result};
use std::sync::Arc;

/// The queue is written out when it holds this many bytes.
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Longest single write, in bytes.
const WRITE_BYTES_MAX: usize = 4 << 20;

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
        let mut run: Option<(u16, u64)> = None;
        let mut run_copy = 0;
        let mut buffer = Vec::with_capacity(self.bytes.min(WRITE_BYTES_MAX));
        for write in self.writes.drain(..) {
            let at = (write.extent.device, write.extent.start * GRAIN_BYTES);
            let follows = run.is_some_and(|(device, start)| {
                let is_next = device == at.0 && start + buffer.len() as u64 == at.1;
                is_next && write.copy == run_copy
            });
            run_copy = write.copy;
            if let Some((device, start)) = run
                && (!follows || buffer.len() >= WRITE_BYTES_MAX)
            {
                self.media.write(device, start, &buffer)?;
                buffer.clear();
                run = None;
            }
            run.get_or_insert(at);
            let end = buffer.len() + bytes_of(&write.extent);
            let bytes = write.payload.bytes();
            let to = (write.from + bytes_of(&write.extent)).min(bytes.len());
            buffer.extend_from_slice(&bytes[write.from..to]);
            buffer.resize(end, 0);
        }
        self.bytes = 0;
        match run {
            Some((device, start)) => self.media.write(device, start, &buffer),
            None => Ok(()),
        }
    }
}

fn bytes_of(extent: &Extent) -> usize {
    extent.grains as usize * GRAIN_BYTES as usize
}
