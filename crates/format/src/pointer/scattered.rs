//! One copy of a block in many short pieces: how a block finds a place where free space lies in
//! single grains.
//!
//! A pool that is nearly full may have nothing else left, and what it has taken it must be able to
//! commit. So a block can lie in as many pieces as it has grains, and its pointer is no longer than
//! one that holds its data: pieces of one zone share the address of that zone, and take three bytes
//! each. Zones that follow each other differ, so there is one encoding of each pointer.

use super::{Extent, PIECES_MAX, SCATTERED_PIECES_MAX};
use crate::FormatError;
use crate::reader::Reader;
use crate::space::ZONE_GRAINS;
use bytes::{BufMut, BytesMut};

/// Bytes of the head of a run of pieces in one zone.
const RUN_BYTES: usize = 9;
/// Bytes of a piece.
const PIECE_BYTES: usize = 3;
/// Most grains of a piece.
const PIECE_GRAINS_MAX: u32 = 256;

fn zone_of(piece: &Extent) -> (u16, u64) {
    (piece.device, piece.start - piece.start % ZONE_GRAINS)
}

fn runs(copy: &[Extent]) -> impl Iterator<Item = &[Extent]> {
    copy.chunk_by(|one, next| zone_of(one) == zone_of(next))
}

/// Bytes that a copy takes in its pointer.
pub(super) fn encoded_bytes(copy: &[Extent]) -> usize {
    1 + runs(copy).count() * RUN_BYTES + copy.len() * PIECE_BYTES
}

pub(super) fn put(copy: &[Extent], out: &mut BytesMut) {
    assert!(
        (PIECES_MAX + 1..=SCATTERED_PIECES_MAX).contains(&copy.len()),
        "a scattered copy lies in 17 to 256 pieces"
    );
    let count = |count: usize| u8::try_from(count - 1).expect("1 to 256 of them");
    out.put_u8(count(runs(copy).count()));
    for run in runs(copy) {
        let (device, zone) = zone_of(&run[0]);
        out.put_u64_le(u64::from(device) << 48 | zone);
        out.put_u8(count(run.len()));
        for piece in run {
            assert!(piece.is_in_one_zone(), "an extent lies in one zone, below 2^48 grains");
            out.put_u16_le(
                u16::try_from(piece.start - zone).expect("a zone has less than 2^16 grains"),
            );
            out.put_u8(count(piece.grains as usize));
        }
    }
}

pub(super) fn take(from: &mut Reader<'_>) -> Result<Vec<Extent>, FormatError> {
    let offset = from.at();
    let run_count = usize::from(from.u8("number of runs")?) + 1;
    let mut copy = Vec::new();
    for _ in 0..run_count {
        take_run(from, &mut copy)?;
    }
    if !(PIECES_MAX + 1..=SCATTERED_PIECES_MAX).contains(&copy.len()) {
        let found = copy.len() as u64;
        return Err(from.unexpected("pieces of a scattered copy", offset, found, "17 to 256"));
    }
    Ok(copy)
}

fn take_run(from: &mut Reader<'_>, copy: &mut Vec<Extent>) -> Result<(), FormatError> {
    let offset = from.at();
    let head = from.u64("zone of a run")?;
    let [.., low, high] = head.to_le_bytes();
    let (device, zone) = (u16::from_le_bytes([low, high]), head & (super::DEVICE_GRAINS_MAX - 1));
    let is_new = copy.last().is_none_or(|last| zone_of(last) != (device, zone));
    if zone % ZONE_GRAINS != 0 || !is_new {
        let expected = "the first grain of a zone, another than before";
        return Err(from.unexpected("zone of a run", offset, zone, expected));
    }
    let piece_count = usize::from(from.u8("pieces of a run")?) + 1;
    for _ in 0..piece_count {
        let offset = from.at();
        let start = zone + u64::from(from.u16("grain of a piece")?);
        let grains = u32::from(from.u8("grains of a piece")?) + 1;
        let piece = Extent { device, start, grains };
        if !piece.is_in_one_zone() || zone_of(&piece) != (device, zone) {
            let (found, expected) = (u64::from(grains), "no more than are left in its zone");
            return Err(from.unexpected("grains of a piece", offset, found, expected));
        }
        copy.push(piece);
    }
    Ok(())
}

/// Address of the first piece, from the bytes behind the checksum.
pub(super) fn peek_address(copy: &[u8]) -> Option<u64> {
    let zone = u64::from_le_bytes(copy.get(1..9)?.try_into().ok()?);
    let within = u16::from_le_bytes(copy.get(1 + RUN_BYTES..3 + RUN_BYTES)?.try_into().ok()?);
    Some(zone + u64::from(within))
}

/// Whether pieces are short enough, and few enough, to be encoded in `bytes`.
pub(super) fn fits(copy: &[Extent], bytes: usize) -> bool {
    copy.len() <= SCATTERED_PIECES_MAX
        && copy.iter().all(|piece| piece.grains <= PIECE_GRAINS_MAX)
        && encoded_bytes(copy) <= bytes
}
