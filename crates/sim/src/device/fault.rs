//! The faults of media that a test can ask for, and how a write arrives in part.

use std::ops::Range;

use super::SECTOR_BYTES;
use crate::random::Random;

/// One fault, at the operation of its kind before which `nth` others were done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The read answers with an error.
    FailRead {
        /// Which read, from 0.
        nth: u64,
    },
    /// The read succeeds with one bit changed; the medium stays as it is.
    FlipBit {
        /// Which read, from 0.
        nth: u64,
        /// Which bit of the buffer, modulo its length.
        bit: u64,
    },
    /// One bit of what the medium holds there changes before the read, for as long as nobody writes
    /// there.
    RotBit {
        /// Which read, from 0.
        nth: u64,
        /// Which bit of the range, modulo its length.
        bit: u64,
    },
    /// The write answers with an error; nothing is written.
    FailWrite {
        /// Which write, from 0.
        nth: u64,
    },
    /// The write answers with an error; only its first bytes are written.
    TearWrite {
        /// Which write, from 0.
        nth: u64,
        /// How many bytes are written, at most those that there are.
        kept_bytes: usize,
    },
    /// The write answers that it is done; only its first bytes are written.
    CutWrite {
        /// Which write, from 0.
        nth: u64,
        /// How many bytes are written, at most those that there are.
        kept_bytes: usize,
    },
    /// The write answers that it is done; nothing is written.
    LoseWrite {
        /// Which write, from 0.
        nth: u64,
    },
    /// The write answers that it is done; the bytes go elsewhere.
    MisdirectWrite {
        /// Which write, from 0.
        nth: u64,
        /// Where they go, in bytes; moved down if they would reach past the end.
        offset: u64,
    },
    /// The flush answers with an error, and all writes since the last good flush are gone from the
    /// medium. The next flush answers that all is well.
    FailFlush {
        /// Which flush, from 0.
        nth: u64,
    },
}

/// How often each fault comes up by lot: once in so many operations of its kind; 0 is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// [`Fault::FailRead`], in reads.
    pub fail_read: u64,
    /// [`Fault::FlipBit`], in reads.
    pub flip_bit: u64,
    /// [`Fault::FailWrite`], in writes.
    pub fail_write: u64,
    /// [`Fault::TearWrite`], in writes.
    pub tear_write: u64,
    /// [`Fault::LoseWrite`], in writes.
    pub lose_write: u64,
    /// [`Fault::MisdirectWrite`], in writes.
    pub misdirect_write: u64,
    /// [`Fault::FailFlush`], in flushes.
    pub fail_flush: u64,
}

/// Where the faults come from.
#[derive(Debug)]
pub(crate) enum Source {
    Script(Vec<Fault>),
    Lot(Random, FaultRates),
}

impl Source {
    /// The fault of the read numbered `nth`.
    pub(crate) fn read(&mut self, nth: u64) -> Option<Fault> {
        match self {
            Source::Script(faults) => find(faults, |fault| match fault {
                Fault::FailRead { nth: at }
                | Fault::FlipBit { nth: at, .. }
                | Fault::RotBit { nth: at, .. } => at == nth,
                _ => false,
            }),
            Source::Lot(random, rates) => {
                let fail = draw(random, rates.fail_read).then_some(Fault::FailRead { nth });
                let bit = random.number();
                let flip = draw(random, rates.flip_bit).then_some(Fault::FlipBit { nth, bit });
                fail.or(flip)
            }
        }
    }

    /// The fault of the write numbered `nth`, of `len` bytes on a device of `size` bytes.
    pub(crate) fn write(&mut self, nth: u64, len: usize, size: u64) -> Option<Fault> {
        match self {
            Source::Script(faults) => find(faults, |fault| match fault {
                Fault::FailWrite { nth: at }
                | Fault::TearWrite { nth: at, .. }
                | Fault::CutWrite { nth: at, .. }
                | Fault::LoseWrite { nth: at }
                | Fault::MisdirectWrite { nth: at, .. } => at == nth,
                _ => false,
            }),
            Source::Lot(random, rates) => draw_write(random, rates, nth, len, size),
        }
    }

    /// The fault of the flush numbered `nth`.
    pub(crate) fn flush(&mut self, nth: u64) -> Option<Fault> {
        match self {
            Source::Script(faults) => find(faults, |fault| match fault {
                Fault::FailFlush { nth: at } => at == nth,
                _ => false,
            }),
            Source::Lot(random, rates) => {
                draw(random, rates.fail_flush).then_some(Fault::FailFlush { nth })
            }
        }
    }
}

fn find(faults: &[Fault], is_due: impl Fn(Fault) -> bool) -> Option<Fault> {
    faults.iter().copied().find(|&fault| is_due(fault))
}

/// Whether something that happens once in `rate` happens now.
fn draw(random: &mut Random, rate: u64) -> bool {
    rate > 0 && random.once_in(rate)
}

/// Draws for all faults each time, so that one rate does not move the others' places.
fn draw_write(
    random: &mut Random,
    rates: &FaultRates,
    nth: u64,
    len: usize,
    size: u64,
) -> Option<Fault> {
    let fail = draw(random, rates.fail_write).then_some(Fault::FailWrite { nth });
    let sectors = random.below((len / SECTOR_BYTES) as u64 + 1);
    let kept_bytes = usize::try_from(sectors).expect("it counts memory") * SECTOR_BYTES;
    let tear = draw(random, rates.tear_write).then_some(Fault::TearWrite { nth, kept_bytes });
    let lose = draw(random, rates.lose_write).then_some(Fault::LoseWrite { nth });
    let offset = random.below(size / 4096 + 1) * 4096;
    let misdirect = draw(random, rates.misdirect_write);
    let misdirect = misdirect.then_some(Fault::MisdirectWrite { nth, offset });
    fail.or(tear).or(lose).or(misdirect)
}

/// Names the parts of a write of `len` bytes at `start` that arrive, maybe none: the first sectors,
/// or any sectors of 512 or of 4096 bytes.
pub(crate) fn tear(
    start: usize,
    len: usize,
    random: &mut Random,
    arrive: &mut dyn FnMut(Range<usize>),
) {
    match random.below(4) {
        0 => {}
        1 => {
            let count = sectors(start, len, SECTOR_BYTES).count() as u64;
            let kept = random.below(count.max(1));
            tear_after(start, len, SECTOR_BYTES, kept as usize).for_each(arrive);
        }
        2 => {
            sectors(start, len, SECTOR_BYTES).filter(|_| random.once_in(2)).for_each(arrive);
        }
        _ => {
            sectors(start, len, 8 * SECTOR_BYTES).filter(|_| random.once_in(2)).for_each(arrive);
        }
    }
}

/// The first `kept` sectors of a write of `len` bytes at `start`.
pub(crate) fn tear_after(
    start: usize,
    len: usize,
    sector_bytes: usize,
    kept: usize,
) -> impl Iterator<Item = Range<usize>> {
    sectors(start, len, sector_bytes).take(kept)
}

/// The parts of a range that lie in different sectors of the medium.
pub(crate) fn sectors(
    start: usize,
    len: usize,
    sector_bytes: usize,
) -> impl Iterator<Item = Range<usize>> {
    let end = start + len;
    let first = start / sector_bytes;
    let last = end.div_ceil(sector_bytes);
    (first..last).map(move |sector| {
        let from = (sector * sector_bytes).max(start);
        let to = ((sector + 1) * sector_bytes).min(end);
        from..to
    })
}

#[cfg(test)]
mod tests {
    use super::sectors;

    #[test]
    fn writes_tear_where_the_medium_has_its_sectors() {
        let parts: Vec<_> = sectors(500, 1000, 512).collect();
        assert_eq!(parts, [500..512, 512..1024, 1024..1500]);
        let parts: Vec<_> = sectors(4096, 4096, 4096).collect();
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0], 4096..8192);
        assert_eq!(sectors(512, 0, 512).count(), 0);
    }
}
