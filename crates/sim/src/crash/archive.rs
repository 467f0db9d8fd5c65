//! A trace as bytes, for runs that no seed can repeat.
//!
//! A real program on a real mount does not do the same twice: the kernel's threads race, and SQLite
//! draws random numbers. What can be kept is what the device saw, and every crash state follows
//! from that alone; so the trace is the thing that replays.

use crate::device::{Event, Trace};
use std::sync::Arc;

const MAGIC: [u8; 8] = *b"MARRTRC1";
/// The image that the trace began with is kept in pages; those of zeros are left out.
const PAGE_BYTES: usize = 4096;
/// Largest device of a trace, and most events, which a damaged file must not exceed.
const BASE_BYTES_MAX: u64 = 16 << 30;
const EVENTS_MAX: u64 = 1 << 32;

const WRITE: u64 = 0;
const DISCARD: u64 = 1;
const FLUSH: u64 = 2;
const MARK: u64 = 3;

/// All of a trace.
pub fn encode_trace(trace: &Trace) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let number = |out: &mut Vec<u8>, number: u64| out.extend(number.to_le_bytes());
    let base = trace.base();
    let pages = || base.chunks(PAGE_BYTES).enumerate().filter(|(_, page)| !is_zeros(page));
    number(&mut out, base.len() as u64);
    number(&mut out, pages().count() as u64);
    for (index, page) in pages() {
        number(&mut out, index as u64);
        out.extend(page);
    }
    number(&mut out, trace.events().len() as u64);
    for event in trace.events() {
        let (kind, place, len) = match event {
            Event::Write { offset, bytes } => (WRITE, *offset, bytes.len() as u64),
            Event::Discard { offset, len } => (DISCARD, *offset, *len),
            Event::Flush => (FLUSH, 0, 0),
            Event::Mark(mark) => (MARK, *mark, 0),
        };
        for field in [kind, place, len] {
            number(&mut out, field);
        }
        if let Event::Write { bytes, .. } = event {
            out.extend(&bytes[..]);
        }
    }
    out
}

/// The trace that [`encode_trace`] kept.
///
/// # Errors
/// The bytes are none.
pub fn decode_trace(bytes: &[u8]) -> Result<Trace, String> {
    let mut left = Left(bytes);
    if left.take(MAGIC.len() as u64)? != MAGIC {
        return Err("this is no trace of a device".to_owned());
    }
    let base_bytes = left.number()?;
    if base_bytes > BASE_BYTES_MAX {
        return Err(format!("a device of {base_bytes} bytes: the trace is damaged"));
    }
    let mut base = vec![0; base_bytes as usize];
    let mut pages: Vec<&mut [u8]> = base.chunks_mut(PAGE_BYTES).collect();
    for _ in 0..left.number()? {
        let index = left.number()? as usize;
        let page = pages.get_mut(index).ok_or_else(|| format!("there is no page {index}"))?;
        page.copy_from_slice(left.take(page.len() as u64)?);
    }
    let count = left.number()?;
    if count > EVENTS_MAX {
        return Err(format!("{count} events: the trace is damaged"));
    }
    let mut trace = Trace::new(base.into());
    for _ in 0..count {
        trace.push(left.event(base_bytes)?);
    }
    Ok(trace)
}

/// What has not been read yet.
struct Left<'b>(&'b [u8]);

impl<'b> Left<'b> {
    fn take(&mut self, len: u64) -> Result<&'b [u8], String> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (taken, left) = self.0.split_at_checked(len).ok_or("the trace is cut short")?;
        self.0 = left;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, String> {
        let bytes = self.take(8)?.try_into().expect("eight bytes were taken");
        Ok(u64::from_le_bytes(bytes))
    }

    fn event(&mut self, base_bytes: u64) -> Result<Event, String> {
        let (kind, place, len) = (self.number()?, self.number()?, self.number()?);
        let inside = || place.checked_add(len).filter(|end| *end <= base_bytes);
        match kind {
            WRITE | DISCARD if inside().is_none() => {
                Err(format!("{len} bytes at {place} lie outside of the device"))
            }
            WRITE => Ok(Event::Write { offset: place, bytes: Arc::from(self.take(len)?) }),
            DISCARD => Ok(Event::Discard { offset: place, len }),
            FLUSH => Ok(Event::Flush),
            MARK => Ok(Event::Mark(place)),
            _ => Err(format!("there is no event of kind {kind}")),
        }
    }
}

fn is_zeros(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::{decode_trace, encode_trace};
    use crate::device::RecordingDevice;
    use marram_device::Device;

    #[test]
    fn a_trace_comes_back_as_it_was() {
        let mut base = vec![0; 3 * 4096 + 512];
        base[3 * 4096 + 5] = 7;
        let device = RecordingDevice::in_memory(base);
        device.write(4000, &[1; 300]).unwrap();
        device.mark(41);
        device.flush().unwrap();
        device.discard(512, 1024).unwrap();
        let trace = device.trace();
        let bytes = encode_trace(&trace);
        assert!(bytes.len() < 2 * 4096, "pages of zeros are not kept");
        assert!(decode_trace(&bytes).unwrap() == trace);
        for len in 0..bytes.len() {
            assert!(decode_trace(&bytes[..len]).is_err(), "{len} bytes of it");
        }
    }
}
