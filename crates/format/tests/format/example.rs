//! One fixed example of each structure, with a different value in every field.

use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_format::key::{Key, kind};
use marram_format::log::{FrameWriter, LogBlock, LogEdit, LogHead, LogPart};
use marram_format::node::{BranchEntry, LeafEntry, encode_branch, encode_leaf};
use marram_format::operation::{OperationKind, OperationRecord, limit_text};
use marram_format::pointer::{Checksum, Extent, Place, Pointer, PointerFlags};
use marram_format::pointer::{checksum_kind, codec_id};
use marram_format::record::{Counters, Entry, Inode, InodeCount, InodeKind, Limit, OrphanReason};
use marram_format::record::{
    NameRule, OwnerClass, OwnerId, Section, Time, Usage, XattrRecord, state,
};
use marram_format::signature::Signature;
use marram_format::space::{DeadChunk, OwnersRecord, ReclaimRecord, ReferenceRecord, Tail};
use marram_format::superblock::{DeviceEntry, Superblock, device_kind};
use marram_format::transaction::{TransactionDataset, TransactionRecord, TransactionState};
use marram_format::version::{FormatVersion, feature};

/// The pool that the examples are of.
pub(crate) const POOL_ID: [u8; 16] = [
    0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
];
/// The secret of that pool.
pub(crate) const SECRET: u64 = 0x0123_4567_89ab_cdef;
/// Where the example of a frame lies in the log.
pub(crate) const POSITION: u64 = 8195;

/// The encoded examples by name.
pub(crate) fn all() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("key", key().encode().to_vec()),
        ("signature", signature().encode()),
        ("superblock", superblock().encode()),
        ("pointer-stored", pointer_stored().encode().to_vec()),
        ("pointer-pieces", pointer_pieces().encode().to_vec()),
        ("pointer-scattered", pointer_scattered().encode().to_vec()),
        ("pointer-adopted", pointer_adopted().encode().to_vec()),
        ("pointer-embedded", pointer_embedded().encode().to_vec()),
        ("leaf", encode_leaf(7, &leaf()).to_vec()),
        ("branch", encode_branch(7, 1, &branch()).to_vec()),
        ("dataset", dataset().encode().to_vec()),
        ("tail", tail().encode().to_vec()),
        ("dead-chunk", dead_chunk().encode().to_vec()),
        ("references", references().encode().to_vec()),
        ("owners", owners().encode().to_vec()),
        ("reclaim", reclaim().encode().to_vec()),
        ("transaction", transaction().encode().to_vec()),
        ("operation", operation().encode().to_vec()),
        ("operation-limit", operation_limit().encode().to_vec()),
        ("log-head", log_head().to_pointer(Group(1003)).encode().to_vec()),
        ("log-frame", encode_frame(&frame())),
        ("log-merge", encode_frame(&merge_frame())),
    ]
}

/// The encoded examples of the values of a dataset's items by name.
pub(crate) fn records() -> Vec<(&'static str, Vec<u8>)> {
    let section = Section { len_bytes: 61_440, block_start: 4096 };
    let counters = Counters { next_inode: 4098, name_seed: 7, names: NameRule::Exact };
    let entry = Entry { ino: 4098, kind: InodeKind::Symlink, name: b"link" };
    let xattr = XattrRecord { name: b"user.a", value: b"xy" };
    vec![
        ("record-inode", inode().encode().to_vec()),
        ("record-entry", entry.encode()),
        ("record-xattr", xattr.encode()),
        ("record-section", section.encode().to_vec()),
        ("record-counters", counters.encode().to_vec()),
        ("record-count", InodeCount(-2).encode().to_vec()),
        ("record-usage", Usage { bytes: 12_288, inodes: 2 }.encode().to_vec()),
        ("record-limit", Limit { bytes: 10 << 30, ..Limit::NONE }.encode().to_vec()),
        ("record-orphan", OrphanReason::Tail.encode().to_vec()),
    ]
}

fn inode() -> Inode {
    let time = |seconds, nanoseconds| Time { seconds, nanoseconds };
    Inode {
        kind: InodeKind::BlockDevice,
        permissions: 0o4751,
        links: 2,
        uid: 1000,
        gid: 100,
        device: 0x0801,
        flags: 16,
        size: 5000,
        data_bytes: 4096,
        reserved_bytes: 904,
        generation: 11,
        parent: 12,
        state: state::CAPABILITY,
        project: 13,
        accessed: time(1_700_000_000, 1),
        modified: time(1_700_000_001, 2),
        changed: time(1_700_000_002, 3),
        created: time(-1, 999_999_999),
        name_place: 0,
    }
}

pub(crate) fn key() -> Key {
    Key::new(258, kind::SECTION, 131_072)
}

fn id(first: u8) -> [u8; 16] {
    std::array::from_fn(|index| first + u8::try_from(index).expect("below 16"))
}

fn extent(start: u64, grains: u32) -> Extent {
    Extent { device: 0, start, grains }
}

fn checksum(kind: u8, first: u8) -> Checksum {
    let len = Checksum::len_of(kind).expect("a known kind");
    let mut bytes = [0; 32];
    for (byte, value) in bytes[..len].iter_mut().zip(first..) {
        *byte = value;
    }
    Checksum { kind, bytes }
}

/// A metadata block of two copies.
pub(crate) fn pointer_stored() -> Pointer {
    Pointer {
        birth: Group(1000),
        logical_len: 32768,
        physical_len: 9000,
        codec: codec_id::LZ4,
        flags: PointerFlags::METADATA,
        place: Place::Stored {
            checksum: checksum(checksum_kind::XXH3_128, 0xa0),
            copies: vec![vec![extent(0x1234, 3)], vec![extent(0x0004_5678, 3)]],
        },
    }
}

/// A shared data block of one copy in two pieces, on two devices.
pub(crate) fn pointer_pieces() -> Pointer {
    let second = Extent { device: 1, start: 0xabcd_ef01_2345, grains: 7 };
    Pointer {
        birth: Group(1001),
        logical_len: 131_072,
        physical_len: 65_536,
        codec: codec_id::ZSTD,
        flags: PointerFlags::SHARED,
        place: Place::Stored {
            checksum: checksum(checksum_kind::BLAKE3, 0xc0),
            copies: vec![vec![extent(0x2000, 9), second]],
        },
    }
}

pub(crate) fn longest_checksum() -> Checksum {
    checksum(checksum_kind::BLAKE3, 0xc0)
}

/// A block of 19 grains in 18 pieces, in two zones.
pub(crate) fn pointer_scattered() -> Pointer {
    let mut copy: Vec<Extent> = (0..16).map(|number| extent(0x1_0000 + 2 * number, 1)).collect();
    copy.extend([extent(0x1_8007, 2), extent(0x1_bfff, 1)]);
    Pointer {
        birth: Group(1001),
        logical_len: 131_072,
        physical_len: 18 * 4096 + 1,
        codec: codec_id::LZ4,
        flags: PointerFlags::default(),
        place: Place::Stored {
            checksum: checksum(checksum_kind::XXH3_128, 0xb0),
            copies: vec![copy],
        },
    }
}

pub(crate) fn pointer_adopted() -> Pointer {
    let copies = vec![vec![extent(0x7_1234, 2)]];
    Pointer {
        birth: Group(1001),
        logical_len: 8192,
        physical_len: 8192,
        codec: codec_id::OFF,
        flags: PointerFlags::ADOPTED,
        place: Place::Stored { checksum: checksum(checksum_kind::XXH3_128, 0xe0), copies },
    }
}

pub(crate) fn transaction() -> TransactionRecord {
    TransactionRecord {
        state: TransactionState::Prepared,
        id: [0x5a; 16],
        other_pool: [0xb0; 16],
        other_path: "/srv/db.pool".to_owned(),
        datasets: vec![TransactionDataset { dataset: 7, before: 41 }],
    }
}

pub(crate) fn reclaim() -> ReclaimRecord {
    ReclaimRecord { threshold: Group(700), destination: 6 }
}

pub(crate) fn owners() -> OwnersRecord {
    OwnersRecord { count: 3 }
}

pub(crate) fn operation() -> OperationRecord {
    OperationRecord {
        kind: OperationKind::Merge,
        user: 1000,
        seconds: 1_795_257_900,
        group: Group(1003),
        undoes: 3,
        subject: 1,
        other: 6,
        before: 7,
        after: 8,
        detail: 258,
        kept_until_seconds: 1_795_261_500,
        command: "marram merge forks/a".to_owned(),
        texts: vec!["root".to_owned(), "forks/a".to_owned()],
    }
}

/// The one kind of version 1.6 that uses all fields that any of them uses.
pub(crate) fn operation_limit() -> OperationRecord {
    let owner = OwnerId { class: OwnerClass::Group, id: 100 };
    let after = Limit { bytes: 10 << 30, ..Limit::NONE };
    OperationRecord {
        kind: OperationKind::Limit,
        undoes: 0,
        other: 0,
        before: 0,
        after: 0,
        detail: owner.to_offset(),
        kept_until_seconds: 0,
        command: "marram quota m".to_owned(),
        texts: vec!["root".to_owned(), limit_text(Limit::NONE), limit_text(after)],
        ..operation()
    }
}

pub(crate) fn pointer_embedded() -> Pointer {
    Pointer {
        birth: Group(1002),
        logical_len: 13,
        physical_len: 13,
        codec: codec_id::OFF,
        flags: PointerFlags::default(),
        place: Place::Embedded(Bytes::from_static(b"hello, marram")),
    }
}

pub(crate) fn leaf() -> Vec<LeafEntry> {
    vec![
        LeafEntry {
            key: Key::new(258, kind::TARGET, 0),
            value: Bytes::from_static(b"a/b"),
            pointer: None,
        },
        LeafEntry {
            key: key(),
            value: Bytes::from_static(b"\x01\x02"),
            pointer: Some(pointer_embedded().encode()),
        },
    ]
}

pub(crate) fn branch() -> Vec<BranchEntry> {
    vec![
        BranchEntry { key: Key::MIN, pointer: pointer_stored().encode() },
        BranchEntry { key: key(), pointer: pointer_pieces().encode() },
    ]
}

pub(crate) fn signature() -> Signature {
    Signature {
        version: FormatVersion { major: 1, minor: 1 },
        pool_id: POOL_ID,
        label: "work".to_owned(),
        created_seconds: 1_795_257_000,
    }
}

pub(crate) fn superblock() -> Superblock {
    Superblock {
        pool_id: POOL_ID,
        label: "work".to_owned(),
        version: FormatVersion { major: 1, minor: 1 },
        features_incompatible: feature::INTENT_LOG,
        features_read_compatible: 0,
        features_compatible: 2,
        group: Group(1003),
        committed_seconds: 1_795_258_000,
        created_seconds: 1_795_257_000,
        devices: vec![DeviceEntry {
            id: id(0x30),
            size_bytes: 20 << 30,
            kind: device_kind::SINGLE,
        }],
        device_index: 0,
        pool_tree: Some(pointer_stored()),
        tail: Some(pointer_embedded()),
        intent_log: Some(log_head().to_pointer(Group(1003))),
        next_dataset: 9,
        allocated_grains: 54_321,
        secret: SECRET,
    }
}

pub(crate) fn dataset() -> DatasetRecord {
    let text = str::to_owned;
    DatasetRecord {
        id: 8,
        name: text("root@before"),
        state: DatasetState::Snapshot,
        parent: 1,
        origin: 2,
        previous: 5,
        next: 1,
        previous_group: Group(700),
        created_group: Group(990),
        created_seconds: 1_795_257_500,
        id128: id(0x50),
        root: Some(pointer_stored()),
        referenced_grains: 4096,
        dead_grains: 17,
        dead_list: 6,
        clones: 2,
        holds: 3,
        properties: vec![
            (text("compression"), text("zstd:3")),
            (text("recordsize"), text("131072")),
        ],
    }
}

pub(crate) fn tail() -> Tail {
    Tail { allocated: vec![extent(0x300, 2), extent(0x400, 3)], freed: vec![extent(0x500, 4)] }
}

pub(crate) fn dead_chunk() -> DeadChunk {
    DeadChunk { pointers: vec![pointer_stored().encode(), pointer_pieces().encode()] }
}

pub(crate) fn references() -> ReferenceRecord {
    ReferenceRecord { count: 3, used_bytes: 70_000 }
}

pub(crate) fn log_head() -> LogHead {
    LogHead {
        grains: 64,
        start: POSITION,
        included: 1007,
        copies: [vec![extent(0x100, 64)], vec![extent(0x9000, 40), extent(0xa000, 24)]],
    }
}

/// A frame with every kind of edit.
pub(crate) fn frame() -> Vec<LogPart<'static>> {
    // A pointer as an earlier group has written it.
    const STORED: &[u8] =
        b"\x10\x00\x00\x00\xea\x03\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x02\x00\x00\x00hi";
    let put = |offset, value, block| LogEdit::Put { key: key_at(offset), value, block };
    vec![
        LogPart {
            freeze: 1008,
            dataset: 1,
            merge: None,
            edits: vec![
                LogEdit::Put {
                    key: Key::new(258, kind::INODE, 0),
                    value: b"i",
                    block: LogBlock::None,
                },
                put(0, b"s0", LogBlock::Stored(STORED)),
                put(4096, b"s1", LogBlock::Content(b"fresh")),
                put(8192, b"s2", LogBlock::Earlier(0)),
                LogEdit::Patch { key: key_at(12_288), value: b"s3", at: 512, data: b"patch" },
            ],
        },
        LogPart {
            freeze: 1009,
            dataset: 3,
            merge: None,
            edits: vec![LogEdit::Remove { key: key() }],
        },
    ]
}

/// A frame with the batch of a merge.
pub(crate) fn merge_frame() -> Vec<LogPart<'static>> {
    let put = |value| LogEdit::Put { key: key(), value, block: LogBlock::None };
    let entry = OperationRecord { group: Group(0), undoes: 0, before: 0, after: 0, ..operation() };
    let part =
        |freeze, merge, value| LogPart { freeze, dataset: 1, merge, edits: vec![put(value)] };
    vec![part(1010, None, &b"a"[..]), part(1011, Some(entry), b"b"), part(1012, None, b"c")]
}

fn key_at(offset: u64) -> Key {
    Key::new(258, kind::SECTION, offset)
}

/// The frame with these parts, for the example's pool at [`POSITION`].
pub(crate) fn encode_frame(parts: &[LogPart<'_>]) -> Vec<u8> {
    let mut writer = FrameWriter::new();
    for part in parts {
        match &part.merge {
            None => writer.begin_part(part.freeze, part.dataset),
            Some(entry) => writer.begin_merge(part.freeze, entry),
        }
        for edit in &part.edits {
            match *edit {
                LogEdit::Remove { key } => writer.remove(key),
                LogEdit::Put { key, value, block } => writer.put(key, value, block),
                LogEdit::Patch { key, value, at, data } => writer.patch(key, value, at, data),
            }
        }
    }
    writer.finish(&POOL_ID, SECRET, POSITION)
}
