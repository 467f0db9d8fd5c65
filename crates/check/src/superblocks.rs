//! The signature page and the two rings of superblocks.
//!
//! **What an interrupted commit leaves is in order.** The last thing that a commit writes is one
//! slot in each ring. A crash may leave both torn (then the next commit writes the same slots
//! again), or one of them torn or old while the other is good; that one stays so until the ring
//! comes round to it. A torn slot mixes whole sectors of two commits, which differ in many bits;
//! a slot that differs from its good twin in a few bits only was damaged. Where pointers lie, a
//! torn slot may hold any bytes: noise there is no finding as long as the twin is good.

use crate::error::Error;
use crate::finding::{FindingKind, Place};
use crate::reporter::Reporter;
use marram_device::Device;
use marram_format::FormatError;
use marram_format::group::Group;
use marram_format::pointer::GRAIN_BYTES;
use marram_format::signature::{SIGNATURE_BYTES, Signature};
use marram_format::superblock::{
    DATA_START_BYTES, RING_OFFSETS, RING_SLOTS, SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC, Superblock,
};
use marram_format::version::feature;

const SECTOR_BYTES: usize = 512;
/// Sectors of two commits differ in at least as many bits.
const TORN_BITS_MIN: u32 = 16;
/// Sectors of a slot that pointers can reach into.
const POINTER_SECTORS: usize = 4;
/// One ring may lag behind the other in this many slots: each by a crash of its own.
const LAGGING_SLOTS_MAX: usize = 8;
const GROUP_FIELD: usize = 128;
/// A commit takes so many groups at most: an interrupted one has torn the slot of one of them.
const COMMIT_GROUPS_MAX: u64 = 40;
/// A new pool is whole with this group.
const WHOLE_GROUP: Group = Group(2);

/// A slot of a ring.
struct Slot {
    bytes: Vec<u8>,
    decoded: Result<Superblock, FormatError>,
}

impl Slot {
    fn valid(&self) -> Option<&Superblock> {
        self.decoded.as_ref().ok()
    }

    fn group(&self) -> u64 {
        self.valid().map_or(0, |superblock| superblock.group.0)
    }

    fn is_blank(&self) -> bool {
        matches!(self.decoded, Err(FormatError::Blank { .. }))
    }
}

/// A ring: none if the device could not read it.
type Ring = Option<Vec<Slot>>;

/// Finds and verifies superblocks and signature; `None` if there was a pool, but no superblock is
/// left.
pub(crate) fn newest(
    device: &dyn Device,
    report: &mut Reporter<'_>,
) -> Result<Option<Superblock>, Error> {
    let name = device.name();
    if device.size()? < DATA_START_BYTES {
        let reason = "it is smaller than any pool".to_owned();
        return Err(Error::NoPool { device: name, reason });
    }
    let signature = read_signature(device);
    let rings = [read_ring(device, 0, report), read_ring(device, 1, report)];
    refuse_newer(&name, &rings)?;
    let slots = rings.iter().flatten().flatten();
    let newest = slots.filter_map(Slot::valid).reduce(|a, b| if b.group > a.group { b } else { a });
    let Some(newest) = newest.cloned() else {
        return no_superblock(name, &signature, &rings, report);
    };
    if signature.is_err() && is_unfinished(&newest) {
        let reason = "the creation of one was interrupted; create it again".to_owned();
        return Err(Error::NoPool { device: name, reason });
    }
    check_signature(&signature, &newest, report);
    check_rings(&rings, &newest, report);
    check_fields(&newest, device.size()?, report);
    if newest.devices.len() != 1 {
        let reason = format!("the pool has {} devices, not one", newest.devices.len());
        return Err(Error::Unsupported { device: name, reason });
    }
    Ok(Some(newest))
}

/// Whether the superblock is of a pool that was still being made: the group after it brings the
/// root dataset. A pool of format 1.0 was whole with its first group, and has no intent log.
fn is_unfinished(newest: &Superblock) -> bool {
    newest.intent_log.is_some() && newest.group < WHOLE_GROUP
}

fn read_signature(device: &dyn Device) -> Result<Signature, String> {
    let mut page = vec![0; SIGNATURE_BYTES];
    device.read(0, &mut page).map_err(|error| error.to_string())?;
    Signature::decode(&page).map_err(|error| error.to_string())
}

fn read_ring(device: &dyn Device, ring: usize, report: &mut Reporter<'_>) -> Ring {
    let slots = usize::try_from(RING_SLOTS).unwrap_or(usize::MAX);
    let mut bytes = vec![0; slots * SUPERBLOCK_BYTES];
    if let Err(error) = device.read(RING_OFFSETS[ring], &mut bytes) {
        let place = Place::device(RING_OFFSETS[ring]);
        report.report(FindingKind::DeviceRead, place, error.to_string());
        return None;
    }
    let slots = bytes.chunks_exact(SUPERBLOCK_BYTES);
    let decode = |slot: &[u8]| Slot { bytes: slot.to_vec(), decoded: Superblock::decode(slot) };
    Some(slots.map(decode).collect())
}

fn refuse_newer(device: &str, rings: &[Ring]) -> Result<(), Error> {
    for slot in rings.iter().flatten().flatten() {
        if let Err(error @ (FormatError::Newer { .. } | FormatError::Features { .. })) =
            &slot.decoded
        {
            return Err(Error::TooNew { device: device.to_owned(), reason: error.to_string() });
        }
    }
    Ok(())
}

fn no_superblock(
    device: String,
    signature: &Result<Signature, String>,
    rings: &[Ring],
    report: &mut Reporter<'_>,
) -> Result<Option<Superblock>, Error> {
    let slots = rings.iter().flatten().flatten();
    let torn = slots.filter(|slot| slot.bytes.starts_with(&SUPERBLOCK_MAGIC)).count();
    match signature {
        Err(reason) if torn == 0 => Err(Error::NoPool { device, reason: reason.clone() }),
        _ => {
            let detail = format!("{torn} slots are damaged, the others hold nothing of a pool");
            report.report(FindingKind::SuperblockMissing, Place::device(RING_OFFSETS[0]), detail);
            Ok(None)
        }
    }
}

fn check_signature(
    signature: &Result<Signature, String>,
    newest: &Superblock,
    report: &mut Reporter<'_>,
) {
    let place = Place::device(0);
    match signature {
        Err(reason) => report.report(FindingKind::SignatureDamaged, place, reason.clone()),
        Ok(page) => {
            // A pool can get another label; the page keeps the first.
            let same =
                page.pool_id == newest.pool_id && page.created_seconds == newest.created_seconds;
            if !same {
                let detail =
                    format!("it is labelled {:?}, the pool {:?}", page.label, newest.label);
                report.report(FindingKind::SignatureMismatch, place, detail);
            }
        }
    }
}

fn check_fields(newest: &Superblock, size_bytes: u64, report: &mut Reporter<'_>) {
    let mut field = |detail: &str| {
        report.report(FindingKind::SuperblockField, Place::pool(), detail);
    };
    match (newest.intent_log.is_some(), newest.features_incompatible & feature::INTENT_LOG != 0) {
        (true, false) => field("it has an intent log, but not that feature"),
        (false, true) => field("it has the feature of an intent log, but none"),
        (true, true) | (false, false) => {}
    }
    if newest.device_index != 0 {
        field("it was written for another device");
    }
    if newest.pool_tree.is_none() {
        field("it leads to no tree");
    }
    if newest.group == Group(0) {
        field("its group is 0");
    }
    let Some(device) = newest.devices.first() else { return };
    if device.size_bytes % GRAIN_BYTES != 0 {
        field("the size of the device is not a whole number of grains");
    }
    if device.size_bytes > size_bytes {
        let detail = format!(
            "the device has {size_bytes} bytes, the pool {}: bring back the whole file or device",
            device.size_bytes
        );
        report.report(FindingKind::DeviceShort, Place::device(size_bytes), detail);
    }
}

fn check_rings(rings: &[Ring; 2], newest: &Superblock, report: &mut Reporter<'_>) {
    let none = Vec::new();
    let mut lagging = [0; 2];
    for index in 0..RING_SLOTS {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        for ring in 0..2 {
            let [slots, twins] = [ring, 1 - ring].map(|ring| rings[ring].as_ref().unwrap_or(&none));
            let Some(slot) = slots.get(at) else { continue };
            let twin = twins.get(at);
            let offset = RING_OFFSETS[ring] + index * SUPERBLOCK_BYTES as u64;
            check_slot(slot, twin, index, newest, Place::device(offset), report);
            if twin.is_some_and(|twin| twin.group() > slot.group()) {
                lagging[ring] += 1;
            }
        }
    }
    for (ring, count) in lagging.into_iter().enumerate() {
        if count > LAGGING_SLOTS_MAX {
            let detail = format!("ring {ring} lacks {count} superblocks of the last {RING_SLOTS}");
            let place = Place::device(RING_OFFSETS[ring]);
            report.report(FindingKind::SuperblockRing, place, detail);
        }
    }
}

fn check_slot(
    slot: &Slot,
    twin: Option<&Slot>,
    index: u64,
    newest: &Superblock,
    place: Place,
    report: &mut Reporter<'_>,
) {
    let both = twin;
    let found = match &slot.decoded {
        Ok(found) => found,
        Err(_) if slot.is_blank() => return,
        Err(error) => {
            let twin = twin.filter(|twin| twin.valid().is_some());
            let next = index_after(index, newest.group) <= COMMIT_GROUPS_MAX;
            let is_torn = |twin: &Slot| is_torn(&slot.bytes, &twin.bytes);
            if next || twin.is_some_and(is_torn) || is_passed_over(slot, both, index, newest) {
                return;
            }
            let is_newest = twin.is_some_and(|twin| twin.group() == newest.group.0);
            let kind = match is_newest {
                true => FindingKind::SuperblockCopy,
                false => FindingKind::SuperblockSlot,
            };
            return report.report(kind, place, error.to_string());
        }
    };
    if found.pool_id != newest.pool_id {
        let detail = format!("it is of the pool {:?}", found.label);
        report.report(FindingKind::SuperblockForeign, place, detail);
    } else if found.group.0 % RING_SLOTS != index {
        let detail = format!("slot {index} holds group {}", found.group);
        report.report(FindingKind::SuperblockMisplaced, place, detail);
    } else if twin.is_some_and(|twin| is_split(found, &slot.bytes, twin)) {
        let detail = format!("both are of group {}", found.group);
        report.report(FindingKind::SuperblockSplit, place, detail);
    }
}

/// Whether a slot can be what an interrupted commit has left, and a later one has passed over its
/// group: one takes several. Then no slot of that group is whole.
fn is_passed_over(slot: &Slot, twin: Option<&Slot>, index: u64, newest: &Superblock) -> bool {
    let passed = RING_SLOTS - index_after(index, newest.group);
    let Some(due) = newest.group.0.checked_sub(passed) else { return false };
    let good = Superblock { group: Group(due), ..newest.clone() }.encode();
    let is_old = |(sector, bytes): (usize, &[u8])| {
        let good = &good[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES];
        may_be_old(sector, bytes, good)
    };
    // Of two copies that differ in a few bits, one is damaged.
    let is_mixed = |twin: &Slot| {
        let sectors = slot.bytes.chunks_exact(SECTOR_BYTES);
        let mut both = sectors.zip(twin.bytes.chunks_exact(SECTOR_BYTES));
        twin.valid().is_none()
            || both.any(|(one, other)| differing_bits(one, other) >= TORN_BITS_MIN)
    };
    twin.is_some_and(|twin| twin.group() < due && is_mixed(twin))
        && slot.bytes.chunks_exact(SECTOR_BYTES).enumerate().all(is_old)
}

/// How many groups after one the next is that has this slot.
fn index_after(index: u64, group: Group) -> u64 {
    (RING_SLOTS + index - (group.0 + 1) % RING_SLOTS) % RING_SLOTS + 1
}

/// Whether two slots say different things of the same commit.
fn is_split(found: &Superblock, bytes: &[u8], twin: &Slot) -> bool {
    let same = |other: &Superblock| other.group == found.group && other.pool_id == found.pool_id;
    twin.valid().is_some_and(same) && twin.bytes != bytes
}

fn differing_bits(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(a, b)| (a ^ b).count_ones()).sum()
}

/// Whether a slot can be what a write of `good` leaves when it is interrupted, maybe after another
/// write of the same group that was interrupted too.
fn is_torn(slot: &[u8], good: &[u8]) -> bool {
    let differing: Vec<u32> = slot
        .chunks_exact(SECTOR_BYTES)
        .zip(good.chunks_exact(SECTOR_BYTES))
        .map(|(sector, good)| differing_bits(sector, good))
        .collect();
    // The first sector, or the one with the checksum, differs in many bits if any does.
    let is_mixed = differing.iter().any(|bits| *bits >= TORN_BITS_MIN);
    let sectors = slot.chunks_exact(SECTOR_BYTES).zip(good.chunks_exact(SECTOR_BYTES));
    sectors.zip(&differing).enumerate().all(|(index, ((sector, good), differing))| {
        *differing == 0 || (is_mixed && may_be_old(index, sector, good))
    })
}

/// Whether a sector can be that of the superblock which was in the slot before.
fn may_be_old(index: usize, sector: &[u8], good: &[u8]) -> bool {
    if sector.iter().all(|byte| *byte == 0) {
        return true;
    }
    let number = |sector: &[u8]| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&sector[GROUP_FIELD..GROUP_FIELD + 8]);
        u64::from_le_bytes(eight)
    };
    match index {
        0 => {
            let (old, new) = (number(sector), number(good));
            sector.starts_with(&SUPERBLOCK_MAGIC) && old <= new && (new - old) % RING_SLOTS == 0
        }
        // Pointers to blocks in many pieces reach into these.
        1..POINTER_SECTORS => true,
        _ => sector[..SECTOR_BYTES - 16] == good[..SECTOR_BYTES - 16],
    }
}

#[cfg(test)]
mod tests {
    use super::{SECTOR_BYTES, is_torn};
    use marram_format::group::Group;
    use marram_format::pointer::{Checksum, Extent, Place, Pointer, PointerFlags};
    use marram_format::superblock::{DeviceEntry, Superblock};
    use marram_format::version::FormatVersion;

    fn slot(group: u64) -> Vec<u8> {
        let checksum = Checksum {
            kind: marram_codec::ChecksumKind::Xxh3.id(),
            bytes: marram_codec::checksum(marram_codec::ChecksumKind::Xxh3, &group.to_le_bytes()),
        };
        let root = Pointer {
            birth: Group(group),
            logical_len: 100,
            physical_len: 100,
            codec: 0,
            flags: PointerFlags::METADATA,
            place: Place::Stored {
                checksum,
                copies: vec![vec![Extent { device: 0, start: 300 + group, grains: 1 }]],
            },
        };
        let superblock = Superblock {
            pool_id: [1; 16],
            label: "pool".to_owned(),
            version: FormatVersion::CURRENT,
            features_incompatible: 0,
            features_read_compatible: 0,
            features_compatible: 0,
            group: Group(group),
            committed_seconds: 1000,
            created_seconds: 1,
            devices: vec![DeviceEntry { id: [1; 16], size_bytes: 1 << 30, kind: 0 }],
            device_index: 0,
            pool_tree: Some(root),
            tail: None,
            intent_log: None,
            next_dataset: 3,
            allocated_grains: 100,
            secret: 1,
        };
        superblock.encode()
    }

    #[test]
    fn a_tear_mixes_whole_sectors_of_two_commits() {
        let (old, new) = (slot(100), slot(164));
        for which in 0..256 {
            let mut torn = new.clone();
            for sector in (0..8).filter(|sector| which >> sector & 1 == 1) {
                let range = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
                torn[range.clone()].copy_from_slice(&old[range]);
            }
            assert!(is_torn(&torn, &new), "{which:#b}");
        }
    }

    #[test]
    fn a_commit_that_was_interrupted_twice_mixes_two_attempts_of_one_group() {
        let (mut torn, new) = (slot(164), slot(164));
        // Another root, which reaches into the second sector, and no checksum yet.
        torn[200..560].fill(0x5a);
        torn[4 * SECTOR_BYTES..].fill(0);
        assert!(is_torn(&torn, &new));
        torn[5 * SECTOR_BYTES] = 1;
        assert!(!is_torn(&torn, &new), "nothing is ever written there");
    }

    #[test]
    fn flipped_bits_noise_and_other_groups_are_no_tear() {
        let new = slot(164);
        for bit in 0..new.len() * 8 {
            let mut damaged = new.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_torn(&damaged, &new), "bit {bit}");
        }
        assert!(!is_torn(&[0x5a; 4096], &new));
        assert!(!is_torn(&slot(101), &new));
    }

    #[test]
    fn noise_passes_for_a_tear_only_where_pointers_lie() {
        let new = slot(164);
        for sector in 0..8 {
            let mut damaged = new.clone();
            damaged[sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES - 16].fill(0x5a);
            assert_eq!(is_torn(&damaged, &new), (1..4).contains(&sector), "sector {sector}");
        }
    }
}
