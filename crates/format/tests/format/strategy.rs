//! Arbitrary structures in range.

use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_format::key::Key;
use marram_format::log::LogHead;
use marram_format::node::{BranchEntry, LeafEntry};
use marram_format::operation::{OPERATION_TEXTS_MAX, OperationKind, OperationRecord};
use marram_format::pointer::{
    Checksum, DEVICE_GRAINS_MAX, Extent, GRAIN_BYTES, PIECES_MAX, Place, SCATTERED_PIECES_MAX,
};
use marram_format::pointer::{EMBEDDED_BYTES_MAX, LEN_BYTES_MAX, Pointer, PointerFlags};
use marram_format::space::{DeadChunk, Tail, ZONE_GRAINS};
use marram_format::superblock::{DEVICES_MAX, DeviceEntry, Superblock};
use marram_format::version::FormatVersion;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

pub(crate) fn key() -> impl Strategy<Value = Key> {
    // Small numbers too, so that keys share their first fields.
    let number = || prop_oneof![0..4u64, any::<u64>()];
    (number(), any::<u8>(), number()).prop_map(|(object, kind, offset)| Key {
        object,
        kind,
        offset,
    })
}

pub(crate) fn extent() -> impl Strategy<Value = Extent> {
    (1..=ZONE_GRAINS).prop_flat_map(extent_of)
}

/// An extent of so many grains, in one zone.
fn extent_of(grains: u64) -> impl Strategy<Value = Extent> {
    let zone = 0..DEVICE_GRAINS_MAX / ZONE_GRAINS;
    let grains_u32 = u32::try_from(grains).expect("a zone has few grains");
    (any::<u16>(), zone, 0..=ZONE_GRAINS - grains).prop_map(move |(device, zone, within)| Extent {
        device,
        start: zone * ZONE_GRAINS + within,
        grains: grains_u32,
    })
}

fn checksum() -> impl Strategy<Value = Checksum> {
    (0..3u8, any::<[u8; 32]>()).prop_map(|(kind, mut bytes)| {
        bytes[Checksum::len_of(kind).expect("a known kind")..].fill(0);
        Checksum { kind, bytes }
    })
}

/// A copy that adds up to these grains, in up to 16 pieces.
fn copy_of(grains: u32) -> impl Strategy<Value = Vec<Extent>> {
    let cuts = vec(0..grains, 0..PIECES_MAX.min(grains as usize));
    (cuts, vec(extent_of(u64::from(grains)), PIECES_MAX)).prop_map(move |(mut cuts, places)| {
        cuts.push(0);
        cuts.sort_unstable();
        cuts.dedup();
        let ends = cuts.iter().skip(1).copied().chain([grains]);
        cuts.iter()
            .zip(ends)
            .zip(places)
            .map(|((start, end), place)| Extent { grains: end - start, ..place })
            .collect()
    })
}

fn stored() -> impl Strategy<Value = (u32, Place)> {
    (1..=LEN_BYTES_MAX, 1..=3usize, checksum()).prop_flat_map(|(len, copies, checksum)| {
        let grains = u64::from(len).div_ceil(GRAIN_BYTES);
        let grains = u32::try_from(grains).expect("fewer grains than bytes");
        vec(copy_of(grains), copies)
            .prop_map(move |copies| (len, Place::Stored { checksum, copies }))
    })
}

/// The only copy of a block in more pieces than several copies may have, in few zones.
fn scattered() -> impl Strategy<Value = (u32, Place)> {
    let piece = (0..3u64, 0..ZONE_GRAINS - 16, 1..=16u32);
    (vec(piece, PIECES_MAX + 1..=SCATTERED_PIECES_MAX), any::<u16>(), checksum()).prop_map(
        |(mut pieces, device, checksum)| {
            pieces.sort_unstable();
            let extent = |(zone, within, grains): (u64, u64, u32)| Extent {
                device,
                start: zone * ZONE_GRAINS + within,
                grains,
            };
            let copy: Vec<Extent> = pieces.into_iter().map(extent).collect();
            let grains: u32 = copy.iter().map(|piece| piece.grains).sum();
            let len = grains * u32::try_from(GRAIN_BYTES).expect("4096");
            (len, Place::Stored { checksum, copies: vec![copy] })
        },
    )
}

fn embedded() -> impl Strategy<Value = (u32, Place)> {
    vec(any::<u8>(), 0..=EMBEDDED_BYTES_MAX).prop_map(|data| {
        let len = u32::try_from(data.len()).expect("short data");
        (len, Place::Embedded(data.into()))
    })
}

pub(crate) fn pointer() -> impl Strategy<Value = Pointer> {
    let place = prop_oneof![4 => stored(), 1 => scattered(), 1 => embedded()];
    let flags = any::<u16>().prop_map(|bits| bits & PointerFlags::KNOWN.0);
    (any::<u64>(), 0..=LEN_BYTES_MAX, 0..6u8, flags, place).prop_map(
        |(birth, logical_len, codec, flags, (physical_len, place))| Pointer {
            birth: Group(birth),
            logical_len,
            physical_len,
            codec,
            flags: PointerFlags(flags),
            place,
        },
    )
}

pub(crate) fn log_head() -> impl Strategy<Value = LogHead> {
    let numbers = (0..1u64 << 56, 0..1u64 << 62);
    let copies = (1..=4096u32).prop_flat_map(|grains| {
        (copy_of(grains), copy_of(grains)).prop_map(move |(first, second)| (grains, first, second))
    });
    (numbers, copies).prop_map(|((start, included), (grains, first, second))| LogHead {
        grains,
        start,
        included,
        copies: [first, second],
    })
}

fn blob(len: std::ops::Range<usize>) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), len).prop_map(Bytes::from)
}

pub(crate) fn leaf() -> impl Strategy<Value = Vec<LeafEntry>> {
    btree_map(key(), (blob(0..300), option::of(blob(1..100))), 0..60).prop_map(|entries| {
        entries
            .into_iter()
            .map(|(key, (value, pointer))| LeafEntry { key, value, pointer })
            .collect()
    })
}

pub(crate) fn branch() -> impl Strategy<Value = Vec<BranchEntry>> {
    btree_map(key(), blob(1..100), 1..200).prop_map(|entries| {
        entries.into_iter().map(|(key, pointer)| BranchEntry { key, pointer }).collect()
    })
}

pub(crate) fn tail() -> impl Strategy<Value = Tail> {
    (vec(extent(), 0..20), vec(extent(), 0..20))
        .prop_map(|(allocated, freed)| Tail { allocated, freed })
}

pub(crate) fn dead_chunk() -> impl Strategy<Value = DeadChunk> {
    vec(blob(1..200), 0..20).prop_map(|pointers| DeadChunk { pointers })
}

fn properties() -> impl Strategy<Value = Vec<(String, String)>> {
    btree_map("[a-z]{1,20}", ".{0,20}", 0..10).prop_map(|entries| entries.into_iter().collect())
}

pub(crate) fn dataset() -> impl Strategy<Value = DatasetRecord> {
    let state = prop_oneof![
        Just(DatasetState::Live),
        Just(DatasetState::Snapshot),
        Just(DatasetState::Destroying),
    ];
    let texts = (".{0,200}", state, properties());
    let numbers = (any::<[u64; 10]>(), any::<i64>(), any::<[u32; 2]>());
    (texts, numbers, any::<[u8; 16]>(), option::of(pointer())).prop_map(
        |((name, state, properties), (numbers, created_seconds, counts), id128, root)| {
            DatasetRecord {
                id: numbers[0],
                name,
                state,
                parent: numbers[1],
                origin: numbers[2],
                previous: numbers[3],
                next: numbers[4],
                previous_group: Group(numbers[5]),
                created_group: Group(numbers[6]),
                created_seconds,
                id128,
                root,
                referenced_grains: numbers[7] >> 8,
                dead_grains: numbers[8] >> 8,
                dead_list: numbers[9] >> 1,
                clones: counts[0] >> 1,
                holds: counts[1] >> 1,
                properties,
            }
        },
    )
}

pub(crate) fn operation() -> impl Strategy<Value = OperationRecord> {
    let texts = (".{0,200}", vec(".{0,100}", 0..=OPERATION_TEXTS_MAX));
    let kind = proptest::sample::select(OperationKind::ALL);
    let numbers = (any::<[u64; 7]>(), any::<[i64; 2]>(), any::<u32>());
    (kind, texts, numbers).prop_map(|(kind, (command, texts), (numbers, times, user))| {
        OperationRecord {
            kind,
            user,
            seconds: times[0],
            group: Group(numbers[0]),
            undoes: numbers[1] >> 2,
            subject: numbers[2] >> 2,
            other: numbers[3] >> 2,
            before: numbers[4] >> 2,
            after: numbers[5] >> 2,
            detail: numbers[6],
            kept_until_seconds: times[1],
            command,
            texts,
        }
    })
}

fn devices() -> impl Strategy<Value = Vec<DeviceEntry>> {
    let device = (any::<[u8; 16]>(), any::<u64>()).prop_map(|(id, size_bytes)| DeviceEntry {
        id,
        size_bytes,
        kind: 0,
    });
    vec(device, 1..=DEVICES_MAX)
}

pub(crate) fn superblock() -> impl Strategy<Value = Superblock> {
    let pointers = (option::of(pointer()), option::of(pointer()), option::of(pointer()));
    let numbers = (any::<[u64; 6]>(), any::<[i64; 2]>(), any::<u16>());
    let identity = ("[ -~]{0,64}", any::<[u8; 16]>());
    (identity, numbers, devices(), pointers).prop_map(
        |((label, pool_id), (numbers, times, minor), devices, pointers)| Superblock {
            pool_id,
            label,
            version: FormatVersion { major: 1, minor },
            features_incompatible: 0,
            features_read_compatible: numbers[0],
            features_compatible: numbers[1],
            group: Group(numbers[2] >> 24),
            committed_seconds: times[0],
            created_seconds: times[1],
            device_index: u16::try_from(devices.len() - 1).expect("few devices"),
            devices,
            pool_tree: pointers.0,
            tail: pointers.1,
            intent_log: pointers.2,
            next_dataset: numbers[3] >> 2,
            allocated_grains: numbers[4] >> 8,
            secret: numbers[5],
        },
    )
}
