//! Where frames lie on media: a ring in two copies.
//!
//! Both copies get the same bytes before the one flush. A reader takes the first copy in which a
//! frame is whole. So a frame is lost only if both copies are torn or damaged; if torn, no sync has
//! reported it as durable.

use crate::io::Media;
use marram_format::log::{FRAME_BYTES_MAX, LogHead, LogPart, decode_frame, frame_header};
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_store::Result;

/// Most places behind the end of the log that look like a frame and are read to see whether they
/// are one: content of users can look like that.
const CANDIDATES_MAX: usize = 64;
/// Grains that are looked through at a time.
const SCAN_GRAINS: usize = 256;
/// Bytes of a grain, as a length in memory.
pub(super) const GRAIN_LEN: usize = GRAIN_BYTES as usize;

/// A pool's name for its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) pool_id: [u8; 16],
    pub(super) secret: u64,
}

/// The grains of the log.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) grains: u32,
    pub(super) copies: [Vec<Extent>; 2],
}

/// A frame that was read, whole.
pub(super) struct Found {
    pub(super) bytes: Vec<u8>,
    pub(super) grains: u64,
}

impl Ring {
    pub(super) fn of(head: &LogHead) -> Ring {
        Ring { grains: head.grains, copies: head.copies.clone() }
    }

    /// Writes a frame into both copies.
    pub(super) fn write(&self, media: &Media, position: u64, frame: &[u8]) -> Result<()> {
        for copy in &self.copies {
            self.pieces(copy, position, frame.len(), &mut |device, offset, from, to| {
                media.write(device, offset, &frame[from..to])
            })?;
        }
        Ok(())
    }

    /// Reads a range of one copy.
    pub(super) fn read(
        &self,
        media: &Media,
        copy: usize,
        position: u64,
        len: usize,
    ) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.pieces(&self.copies[copy], position, len, &mut |device, offset, from, to| {
            media.read_at(device, offset, &mut bytes[from..to])
        })?;
        Ok(bytes)
    }

    /// The frame at a position, from the first copy in which it is whole. A copy that can be read
    /// and has none is the end of the log, even if the other cannot be read: a frame that was made
    /// durable is in both, and one bad sector must not keep a pool from being opened.
    ///
    /// # Errors
    /// Neither copy could be read: then nothing shows whether the log ends here.
    pub(super) fn frame(
        &self,
        media: &Media,
        stamp: Stamp,
        position: u64,
    ) -> Result<Option<Found>> {
        let mut unreadable = None;
        let mut is_missing = false;
        for copy in 0..self.copies.len() {
            match self.frame_of_copy(media, stamp, copy, position) {
                Ok(Some(found)) => return Ok(Some(found)),
                Ok(None) => is_missing = true,
                Err(error) => unreadable = Some(error),
            }
        }
        match unreadable {
            Some(error) if !is_missing => Err(error),
            _ => Ok(None),
        }
    }

    fn frame_of_copy(
        &self,
        media: &Media,
        stamp: Stamp,
        copy: usize,
        position: u64,
    ) -> Result<Option<Found>> {
        let first = self.read(media, copy, position, GRAIN_LEN)?;
        let Some(header) = frame_header(&first, &stamp.pool_id, position) else {
            return Ok(None);
        };
        let len = header.len_bytes as usize;
        let grains = len.div_ceil(GRAIN_LEN) as u64;
        if len > FRAME_BYTES_MAX || grains > u64::from(self.grains) {
            return Ok(None);
        }
        let mut bytes = self.read(media, copy, position, len)?;
        crate::base::planted::reseal(&mut bytes, stamp.secret);
        let is_whole = decode_frame(&bytes, &stamp.pool_id, stamp.secret, position).is_some();
        Ok(is_whole.then_some(Found { bytes, grains }))
    }

    /// Whether a whole frame lies behind `end`, where the log seemed to end: then what lay there
    /// had been flushed before it, and is damaged.
    pub(super) fn goes_on_behind(&self, media: &Media, stamp: Stamp, end: u64) -> bool {
        let last = end + u64::from(self.grains);
        let mut candidates = Vec::new();
        for (copy, at) in (0..self.copies.len())
            .flat_map(|copy| (end + 1..last).step_by(SCAN_GRAINS).map(move |at| (copy, at)))
        {
            let grains = usize::try_from(last - at).unwrap_or(SCAN_GRAINS).min(SCAN_GRAINS);
            // What cannot be read cannot be a witness; the other copy can.
            let Ok(bytes) = self.read(media, copy, at, grains * GRAIN_LEN) else { continue };
            for (position, grain) in (at..).zip(bytes.chunks_exact(GRAIN_LEN)) {
                if frame_header(grain, &stamp.pool_id, position).is_some() {
                    candidates.push((copy, position));
                }
            }
        }
        candidates.into_iter().take(CANDIDATES_MAX).any(|(copy, position)| {
            matches!(self.frame_of_copy(media, stamp, copy, position), Ok(Some(_)))
        })
    }

    /// Cuts a range of the log into runs on a device: device, offset in bytes, and which part of
    /// the range lies there.
    fn pieces(
        &self,
        copy: &[Extent],
        position: u64,
        len: usize,
        each: &mut dyn FnMut(u16, u64, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut from = 0;
        while from < len {
            let grain = (position + (from / GRAIN_LEN) as u64) % u64::from(self.grains);
            let (extent, inside) = extent_at(copy, grain);
            let room = (u64::from(extent.grains) - inside) * GRAIN_BYTES;
            let to = len.min(from + usize::try_from(room).unwrap_or(usize::MAX));
            each(extent.device, (extent.start + inside) * GRAIN_BYTES, from, to)?;
            from = to;
        }
        Ok(())
    }
}

/// The extent of a copy in which a grain of the ring lies, and which grain of the extent it is.
fn extent_at(copy: &[Extent], grain: u64) -> (Extent, u64) {
    let mut before = 0;
    for extent in copy {
        if grain < before + u64::from(extent.grains) {
            return (*extent, grain - before);
        }
        before += u64::from(extent.grains);
    }
    unreachable!("a decoded head has as many grains in each copy as in the ring")
}

/// The parts of a frame that [`Ring::frame`] has found.
pub(super) fn parts(
    found: &Found,
    stamp: Stamp,
    position: u64,
) -> std::result::Result<Vec<LogPart<'_>>, String> {
    match decode_frame(&found.bytes, &stamp.pool_id, stamp.secret, position) {
        Some(Ok(parts)) => Ok(parts),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("it changed while it was read".to_owned()),
    }
}
