//! Checksums of metadata, as ext4 images have them: CRC-32C that begins with the image's id, and
//! goes on with what the metadata belongs to.
//!
//! Source: `metadata_csum` in the kernel's description of ext4, and its JBD2.

use crate::bytes::{u16_at, u32_at};
use crc::{Algorithm, CRC_32_ISCSI, Crc, Table};

/// Without the inversions at its ends, so that one goes on where another has ended.
const PLAIN: Algorithm<u32> = Algorithm { init: 0, xorout: 0, ..CRC_32_ISCSI };
/// With tables for sixteen bytes at a time: most sums are of whole blocks.
static SUM: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&PLAIN);
/// With what a sum of nothing begins.
pub(crate) const START: u32 = u32::MAX;
/// Bytes of an entry of a directory's index, and of what follows the last one.
const INDEX_ENTRY: usize = 8;
/// Bytes of what ends a block of a directory, and how it begins: as an entry of no inode.
const TAIL: usize = 12;
const TAIL_HEAD: [u8; 8] = [0, 0, 0, 0, TAIL as u8, 0, 0, 0xde];

/// The sum of all that was summed up before, and of some bytes.
pub(crate) fn add(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = SUM.digest_with_initial(before.reverse_bits());
    digest.update(bytes);
    digest.finalize()
}

/// The same as if there were zeros from `at` to `end`, where the sum itself stands.
pub(crate) fn add_without(before: u32, bytes: &[u8], at: usize, end: usize) -> u32 {
    const ZEROS: [u8; 8] = [0; 8];
    let known = add(before, &bytes[..at]);
    add(add(known, &ZEROS[..end - at]), &bytes[end..])
}

/// Whether the bytes of a group's descriptor are as they were written.
pub(crate) fn is_good_descriptor(seed: u32, group: u64, bytes: &[u8]) -> bool {
    const AT: usize = 30;
    let seed = add(seed, &(group as u32).to_le_bytes());
    add_without(seed, bytes, AT, AT + 2) as u16 == u16_at(bytes, AT)
}

/// With what the sums of an inode begin, and of all that belongs to it.
pub(crate) fn inode_seed(seed: u32, number: u64, generation: u32) -> u32 {
    add(add(seed, &(number as u32).to_le_bytes()), &generation.to_le_bytes())
}

/// Whether the bytes of an inode are as they were written.
pub(crate) fn is_good_inode(seed: u32, bytes: &[u8]) -> bool {
    const LOW: usize = 124;
    const HIGH: usize = 130;
    let has_high = bytes.len() > 128 && u16_at(bytes, 128) >= 4;
    let mut plain = bytes.to_vec();
    plain[LOW..LOW + 2].fill(0);
    let low = u32::from(u16_at(bytes, LOW));
    if !has_high {
        return add(seed, &plain) & 0xffff == low;
    }
    plain[HIGH..HIGH + 2].fill(0);
    add(seed, &plain) == low | u32::from(u16_at(bytes, HIGH)) << 16
}

/// Whether a block of a directory is as it was written: one of entries, or one of its index.
pub(crate) fn is_good_directory_block(seed: u32, bytes: &[u8]) -> bool {
    let len = bytes.len();
    let is_node = u16_at(bytes, 4) as usize == len;
    let is_root = u16_at(bytes, 4) == 12 && u16_at(bytes, 16) as usize == len - 12;
    match (is_node, is_root) {
        (true, _) => is_good_index(seed, bytes, 8),
        (_, true) => is_good_index(seed, bytes, 32),
        _ => {
            let (entries, tail) = bytes.split_at(len - TAIL);
            tail[..8] == TAIL_HEAD && add(seed, entries) == u32_at(tail, 8)
        }
    }
}

/// Whether a block of an index is good whose entries begin at a place.
fn is_good_index(seed: u32, bytes: &[u8], at: usize) -> bool {
    let (most, count) = (usize::from(u16_at(bytes, at)), usize::from(u16_at(bytes, at + 2)));
    let tail = at + most * INDEX_ENTRY;
    if count > most || tail + INDEX_ENTRY > bytes.len() {
        return false;
    }
    let sum = add(seed, &bytes[..at + count * INDEX_ENTRY]);
    add_without(sum, &bytes[tail..tail + INDEX_ENTRY], 4, 8) == u32_at(bytes, tail + 4)
}

/// Whether a block of extents is as it was written; its sum stands behind the last entry that it
/// has room for.
pub(crate) fn is_good_extents(seed: u32, bytes: &[u8]) -> bool {
    let at = 12 + usize::from(u16_at(bytes, 4)) * 12;
    at + 4 <= bytes.len() && add(seed, &bytes[..at]) == u32_at(bytes, at)
}

/// Whether a block of extended attributes is as it was written.
pub(crate) fn is_good_attributes(seed: u32, block: u64, bytes: &[u8]) -> bool {
    const AT: usize = 16;
    let seed = add(seed, &block.to_le_bytes());
    add_without(seed, bytes, AT, AT + 4) == u32_at(bytes, AT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_goes_on_where_another_has_ended() {
        // CRC-32C of the digits, as each description of it has it.
        assert_eq!(!add(START, b"123456789"), 0xe306_9283);
        assert_eq!(add(add(START, b"1234"), b"56789"), add(START, b"123456789"));
        assert_eq!(add_without(START, b"12xx56", 2, 4), add(START, b"12\0\x0056"));
    }
}
