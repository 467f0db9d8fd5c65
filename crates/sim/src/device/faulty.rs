//! A device that fails and lies where its faults say.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use marram_device::{Device, Error, Result, checked_range};
use parking_lot::Mutex;

use super::fault::{Fault, FaultRates, Source};
use crate::random::Random;

/// One call that reached the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A read.
    Read {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// A write.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// A flush.
    Flush,
}

/// Passes everything on to another device, with faults by script or by lot.
pub struct FaultyDevice {
    inner: Arc<dyn Device>,
    state: Mutex<State>,
}

struct State {
    source: Source,
    fired: Vec<Fault>,
    accesses: Vec<Access>,
    reads: u64,
    writes: u64,
    flushes: u64,
    /// What each write since the last good flush replaced, oldest first.
    replaced: Vec<(u64, Vec<u8>)>,
    unreadable: Vec<Range<u64>>,
    hit_its_like: bool,
    is_gone: bool,
}

impl FaultyDevice {
    /// A device with exactly these faults.
    pub fn scripted(inner: Arc<dyn Device>, faults: Vec<Fault>) -> FaultyDevice {
        FaultyDevice::new(inner, Source::Script(faults))
    }

    /// A device with faults by lot: the same for the same seed and operations.
    pub fn seeded(inner: Arc<dyn Device>, seed: u64, rates: FaultRates) -> FaultyDevice {
        FaultyDevice::new(inner, Source::Lot(Random::new(seed), rates))
    }

    fn new(inner: Arc<dyn Device>, source: Source) -> FaultyDevice {
        FaultyDevice {
            inner,
            state: Mutex::new(State {
                source,
                fired: Vec::new(),
                accesses: Vec::new(),
                reads: 0,
                writes: 0,
                flushes: 0,
                replaced: Vec::new(),
                unreadable: Vec::new(),
                hit_its_like: false,
                is_gone: false,
            }),
        }
    }

    /// The faults that have come up so far: a script that replays them.
    pub fn fired(&self) -> Vec<Fault> {
        self.state.lock().fired.clone()
    }

    /// The calls since the script was set: the positions at which faults can be asked for.
    pub fn accesses(&self) -> Vec<Access> {
        self.state.lock().accesses.clone()
    }

    /// Whether a write went astray onto a grain of the same bytes as one that it carried: onto the
    /// other copy of what it should have written. No two copies survive that.
    pub fn hit_its_like(&self) -> bool {
        self.state.lock().hit_its_like
    }

    /// From now on has these faults; operations are counted from here.
    pub fn set_script(&self, faults: Vec<Fault>) {
        let mut state = self.state.lock();
        state.accesses.clear();
        state.source = Source::Script(faults);
        (state.reads, state.writes, state.flushes) = (0, 0, 0);
    }

    /// Makes a range unreadable; each byte of it becomes readable when it is written.
    pub fn spoil(&self, range: Range<u64>) {
        self.state.lock().unreadable.push(range);
    }

    /// Takes the device away: from now on everything fails.
    pub fn vanish(&self) {
        self.state.lock().is_gone = true;
    }

    fn failed(&self, action: &'static str, offset: u64, len: usize, reason: &str) -> Error {
        Error::Failed {
            device: self.inner.name(),
            action,
            offset,
            len: len as u64,
            reason: reason.to_string(),
        }
    }

    fn check_present(&self, state: &State, action: &'static str) -> Result<()> {
        if state.is_gone {
            return Err(self.failed(action, 0, 0, "the device is gone"));
        }
        Ok(())
    }

    /// Changes a bit of the medium; `buffer` is room for the range.
    fn rot(&self, offset: u64, buffer: &mut [u8], bit: u64) -> Result<()> {
        self.inner.read(offset, buffer)?;
        flip(buffer, bit);
        self.inner.write(offset, buffer)
    }

    /// Writes after keeping what was there, for a flush that fails later.
    fn write_through(&self, state: &mut State, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut old = vec![0; bytes.len()];
        self.inner.read(offset, &mut old)?;
        self.inner.write(offset, bytes)?;
        state.replaced.push((offset, old));
        make_readable(&mut state.unreadable, offset..offset + bytes.len() as u64);
        Ok(())
    }
}

impl Device for FaultyDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64> {
        self.check_present(&self.state.lock(), "size")?;
        self.inner.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut state = self.state.lock();
        self.check_present(&state, "read")?;
        let size = self.inner.size()?;
        let range = checked_range(&self.inner.name(), offset, buffer.len() as u64, size)?;
        state.accesses.push(Access::Read { offset, len: buffer.len() as u64 });
        let nth = state.reads;
        state.reads += 1;
        let fault = state.source.read(nth);
        state.fired.extend(fault);
        if matches!(fault, Some(Fault::FailRead { .. })) {
            return Err(self.failed("read", offset, buffer.len(), "injected fault"));
        }
        let overlaps = |bad: &Range<u64>| bad.start < range.end && range.start < bad.end;
        if state.unreadable.iter().any(overlaps) {
            return Err(self.failed("read", offset, buffer.len(), "unreadable sector"));
        }
        if let Some(Fault::RotBit { bit, .. }) = fault {
            self.rot(offset, buffer, bit)?;
        }
        self.inner.read(offset, buffer)?;
        if let Some(Fault::FlipBit { bit, .. }) = fault {
            flip(buffer, bit);
        }
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        self.check_present(&state, "write")?;
        let (len, size) = (buffer.len() as u64, self.inner.size()?);
        checked_range(&self.inner.name(), offset, len, size)?;
        state.accesses.push(Access::Write { offset, len });
        let nth = state.writes;
        state.writes += 1;
        let fault = state.source.write(nth, buffer.len(), size);
        state.fired.extend(fault);
        let failed = || self.failed("write", offset, buffer.len(), "injected fault");
        match fault {
            Some(Fault::FailWrite { .. }) => Err(failed()),
            Some(Fault::TearWrite { kept_bytes, .. }) => {
                let kept = &buffer[..kept_bytes.min(buffer.len())];
                self.write_through(&mut state, offset, kept)?;
                Err(failed())
            }
            Some(Fault::CutWrite { kept_bytes, .. }) => {
                let kept = &buffer[..kept_bytes.min(buffer.len())];
                self.write_through(&mut state, offset, kept)
            }
            Some(Fault::LoseWrite { .. }) => Ok(()),
            Some(Fault::MisdirectWrite { offset, .. }) => {
                let offset = offset.min(size - len);
                let mut hit = vec![0; buffer.len()];
                self.inner.read(offset, &mut hit)?;
                state.hit_its_like |= have_a_grain_in_common(&hit, buffer);
                self.write_through(&mut state, offset, buffer)
            }
            _ => self.write_through(&mut state, offset, buffer),
        }
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.state.lock();
        self.check_present(&state, "flush")?;
        state.accesses.push(Access::Flush);
        let nth = state.flushes;
        state.flushes += 1;
        let fault = state.source.flush(nth);
        state.fired.extend(fault);
        if fault.is_none() {
            state.replaced.clear();
            return self.inner.flush();
        }
        while let Some((offset, old)) = state.replaced.pop() {
            self.inner.write(offset, &old)?;
        }
        Err(self.failed("flush", 0, 0, "injected fault"))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_present(&self.state.lock(), "discard")?;
        self.inner.discard(offset, len)
    }
}

/// Bytes of a grain: what blocks are made of.
const GRAIN_BYTES: usize = 4096;

fn have_a_grain_in_common(first: &[u8], second: &[u8]) -> bool {
    let grains: HashSet<&[u8]> = first.chunks_exact(GRAIN_BYTES).collect();
    let mut others = second.chunks_exact(GRAIN_BYTES);
    others.any(|grain| grain.iter().any(|byte| *byte != 0) && grains.contains(grain))
}

fn flip(buffer: &mut [u8], bit: u64) {
    let bits = buffer.len() as u64 * 8;
    if bits > 0 {
        let bit = bit % bits;
        let index = usize::try_from(bit / 8).expect("it lies inside of the buffer");
        buffer[index] ^= 1 << (bit % 8);
    }
}

/// Takes `written` out of the unreadable ranges.
fn make_readable(unreadable: &mut Vec<Range<u64>>, written: Range<u64>) {
    let rest = unreadable.drain(..).flat_map(|bad| {
        let before = bad.start..bad.end.min(written.start);
        let after = bad.start.max(written.end)..bad.end;
        [before, after]
    });
    *unreadable = rest.filter(|range| !range.is_empty()).collect();
}
