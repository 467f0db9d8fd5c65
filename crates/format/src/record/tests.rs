//! The example bytes of `docs/format-records.md`, and hostile bytes.

use super::*;
use crate::FormatError;

/// The examples: `example NAME` lines followed by lines of hexadecimal bytes.
const DOCUMENT: &str = include_str!("../../../../docs/format-records.md");

fn example(name: &str) -> Vec<u8> {
    let start = format!("example {name}\n");
    let from = DOCUMENT.find(&start).expect("the example is there") + start.len();
    let text = &DOCUMENT[from..];
    let text = &text[..text.find("```").expect("the example ends")];
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("a hexadecimal byte"))
        .collect()
}

fn example_inode() -> Inode {
    Inode {
        kind: InodeKind::Regular,
        permissions: 0o644,
        links: 1,
        uid: 1000,
        gid: 100,
        device: 0,
        flags: 0,
        size: 5000,
        data_bytes: 4096,
        reserved_bytes: 904,
        generation: 1,
        parent: 1,
        state: state::CAPABILITY,
        project: 0,
        accessed: Time { seconds: 1_700_000_000, nanoseconds: 1 },
        modified: Time { seconds: 1_700_000_001, nanoseconds: 2 },
        changed: Time { seconds: 1_700_000_002, nanoseconds: 3 },
        created: Time { seconds: -1, nanoseconds: 999_999_999 },
        name_place: 0,
    }
}

#[test]
fn the_example_inode_is_what_the_document_says() {
    let bytes = example("inode");
    assert_eq!(Inode::decode(&bytes), Ok(example_inode()));
    assert_eq!(example_inode().encode()[..], bytes);
}

#[test]
fn the_small_examples_are_what_the_document_says() {
    let bytes = example("entry");
    let entry = Entry::decode(&bytes).unwrap();
    assert_eq!((entry.ino, entry.kind), (4098, InodeKind::Symlink));
    assert_eq!(entry.name, b"link");
    assert_eq!(entry.encode(), bytes);

    let bytes = example("xattr");
    let xattr = XattrRecord::decode(&bytes).unwrap();
    assert_eq!((xattr.name, xattr.value), (&b"user.a"[..], &b"xy"[..]));
    assert_eq!(xattr.encode(), bytes);

    let bytes = example("section");
    let section = Section::decode(&bytes, 131_072, Some(131_072)).unwrap();
    assert_eq!((section.len_bytes, section.block_start), (61_440, 4096));
    assert_eq!(section.encode()[..], bytes);

    let bytes = example("counters");
    let counters = Counters::decode(&bytes).unwrap();
    assert_eq!((counters.next_inode, counters.name_seed), (4098, 7));
    assert_eq!(counters.encode()[..], bytes);

    assert_eq!(InodeCount::decode(&example("count")), Ok(InodeCount(-2)));
    assert_eq!(OrphanReason::decode(&example("orphan")), Ok(OrphanReason::Tail));
    let usage = Usage { bytes: 12_288, inodes: 2 };
    assert_eq!(Usage::decode(&example("usage")), Ok(usage));
    assert_eq!(usage.encode()[..], example("usage"));
    let limit = Limit { bytes: 10 << 30, ..Limit::NONE };
    assert_eq!(Limit::decode(&example("limit")), Ok(limit));
    assert_eq!(limit.encode()[..], example("limit"));
    assert!(Usage::decode(&(-1_i128).to_le_bytes()).is_err(), "less than nothing");
}

#[test]
fn the_name_offset_is_the_hash_over_eight_slot_bits() {
    assert_eq!(name_offset(0, b"link"), name_offset(0, b"link"));
    assert_ne!(name_offset(0, b"link"), name_offset(1, b"link"));
    let bytes = example("offset");
    let offset = u64::from_be_bytes(bytes.try_into().unwrap());
    assert_eq!(name_offset(7, b"link"), offset);
    for name in 0..1000_u32 {
        let offset = name_offset(7, &name.to_le_bytes());
        assert_eq!(offset % NAME_SLOTS, 0);
        assert!(offset + NAME_SLOTS <= 1 << 62);
    }
}

#[test]
fn inodes_with_nonsense_are_refused() {
    let good = example_inode().encode();
    let broken = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        match Inode::decode(&bytes) {
            Err(FormatError::Unexpected { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(broken(0, 0), "kind");
    assert_eq!(broken(0, 8), "kind");
    assert_eq!(broken(1, 2), "record version");
    assert_eq!(broken(3, 0xff), "permissions");
    assert_eq!(broken(64, 0xff), "state");
    assert_eq!(broken(31, 0x80), "size");
    assert_eq!(broken(107, 0xff), "nanoseconds");
    assert!(Inode::decode(&good[1..]).is_err());
}

#[test]
fn small_records_with_nonsense_are_refused() {
    assert!(Entry::decode(b"").is_err());
    assert!(Entry::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 0]).is_err());
    assert!(Entry::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 9, 1, b'x']).is_err());
    assert!(Entry::decode(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 2, b'x']).is_err());
    assert!(XattrRecord::decode(b"").is_err());
    assert!(XattrRecord::decode(&[0, 1]).is_err());
    assert!(XattrRecord::decode(&[3, b'a']).is_err());
    assert!(XattrRecord::decode(&[1; 4000]).is_err());
    let section = |len_bytes: u64, block_start: u32| {
        let section = Section { len_bytes, block_start };
        section.encode()
    };
    assert!(Section::decode(&section(0, 0), 0, None).is_err());
    assert!(Section::decode(&section(10, 1), 0, Some(10)).is_err());
    assert!(Section::decode(&section(10, 1), 0, None).is_err());
    assert!(Section::decode(&section(u64::MAX, 0), 1, None).is_err());
    assert!(Section::decode(&section(10, 0), i64::MAX as u64, None).is_err());
    assert!(OrphanReason::decode(&[3]).is_err());
    assert!(Counters::decode(&[2; 24]).is_err());
    let counters = |next_inode: u64| {
        let counters = Counters { next_inode, name_seed: 7, names: NameRule::Exact };
        Counters::decode(&counters.encode())
    };
    assert!(counters(1 << 63).is_ok() && counters((1 << 63) + 1).is_err());
    assert!(InodeCount::decode(&[0; 7]).is_err());
    assert!(decode_target(b"").is_err());
    assert!(decode_target(&[b'x'; 4096]).is_err());
}
