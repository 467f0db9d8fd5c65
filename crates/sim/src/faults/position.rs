//! Where a fault can be put, and what kinds of fault there are.

use crate::device::{Access, Fault, SECTOR_BYTES};
use crate::random::Random;

/// Bits that flip at each read, one run each, besides the first bit.
const FLIPS: usize = 2;
/// Places that each write goes to instead, besides those that the caller names.
const STRAYS: usize = 2;
/// Reads in a row that are no scan yet.
const SCAN_READS_MIN: u64 = 8;
/// Of how many reads of a scan one is a position.
const SCAN_STEP: u64 = 16;
/// The grain of what is allocated, in bytes.
const GRAIN_BYTES: u64 = 4096;

/// What a fault does to the promises of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// A read goes wrong once; the medium is as it should be.
    Passing,
    /// The device says that a write or flush failed.
    Reported,
    /// The medium is not as it should be, and the device has not said so.
    Lied,
}

/// What kind of fault it is.
pub fn nature(fault: Fault) -> Nature {
    match fault {
        Fault::FailRead { .. } | Fault::FlipBit { .. } => Nature::Passing,
        Fault::FailWrite { .. } | Fault::TearWrite { .. } | Fault::FailFlush { .. } => {
            Nature::Reported
        }
        Fault::RotBit { .. }
        | Fault::CutWrite { .. }
        | Fault::LoseWrite { .. }
        | Fault::MisdirectWrite { .. } => Nature::Lied,
    }
}

/// All faults of the campaign on a run that made these calls on a device of `size_bytes`.
/// `targets` are places that a stray write should hit. The seed chooses bits and places.
pub fn positions(accesses: &[Access], size_bytes: u64, targets: &[u64], seed: u64) -> Vec<Fault> {
    let mut random = Random::new(seed);
    let (mut reads, mut writes, mut flushes) = (0, 0, 0);
    let (mut faults, mut scan) = (Vec::new(), Scan::default());
    let written: Vec<(u64, u64)> = accesses.iter().filter_map(|access| writing(*access)).collect();
    for access in accesses {
        match *access {
            Access::Read { offset, len } => {
                if scan.is_position(offset, len) {
                    at_read(reads, len, &mut random, &mut faults);
                }
                reads += 1;
            }
            Access::Write { offset, len } => {
                at_write(writes, len, &mut random, &mut faults);
                let mut places = targets.to_vec();
                places.push(random.below(size_bytes / GRAIN_BYTES) * GRAIN_BYTES);
                places.extend((0..STRAYS).map(|_| random.pick(&written).0));
                places.retain(|place| *place != offset && place + len <= size_bytes);
                places.sort_unstable();
                places.dedup();
                faults.extend(
                    places
                        .iter()
                        .map(|offset| Fault::MisdirectWrite { nth: writes, offset: *offset }),
                );
                writes += 1;
            }
            Access::Flush => {
                faults.push(Fault::FailFlush { nth: flushes });
                flushes += 1;
            }
        }
    }
    faults
}

/// Tells scans (of the intent log, in two copies by turns) from other reads: of a long one,
/// some positions stand for all.
#[derive(Default)]
struct Scan {
    /// The ends of the last two reads.
    ends: [u64; 2],
    reads: u64,
}

impl Scan {
    fn is_position(&mut self, offset: u64, len: u64) -> bool {
        self.reads = if self.ends.contains(&offset) { self.reads + 1 } else { 0 };
        self.ends = [self.ends[1], offset + len];
        self.reads < SCAN_READS_MIN || self.reads.is_multiple_of(SCAN_STEP)
    }
}

fn writing(access: Access) -> Option<(u64, u64)> {
    match access {
        Access::Write { offset, len } => Some((offset, len)),
        _ => None,
    }
}

fn at_read(nth: u64, len: u64, random: &mut Random, faults: &mut Vec<Fault>) {
    faults.push(Fault::FailRead { nth });
    faults.push(Fault::FlipBit { nth, bit: 0 });
    for _ in 0..FLIPS {
        faults.push(Fault::FlipBit { nth, bit: random.below(len * 8) });
    }
    faults.push(Fault::RotBit { nth, bit: random.below(len * 8) });
}

/// Torn and cut at a sector, before the first one, and short of the last.
fn at_write(nth: u64, len: u64, random: &mut Random, faults: &mut Vec<Fault>) {
    let len = usize::try_from(len).expect("it counts memory");
    let sectors = (len / SECTOR_BYTES).max(1) as u64;
    let middle = usize::try_from(random.below(sectors)).expect("small") * SECTOR_BYTES;
    faults.push(Fault::FailWrite { nth });
    faults.push(Fault::LoseWrite { nth });
    let mut kept = vec![middle, len.saturating_sub(SECTOR_BYTES)];
    kept.retain(|bytes| *bytes > 0);
    kept.dedup();
    for kept_bytes in kept {
        faults.push(Fault::TearWrite { nth, kept_bytes });
        faults.push(Fault::CutWrite { nth, kept_bytes });
    }
}
