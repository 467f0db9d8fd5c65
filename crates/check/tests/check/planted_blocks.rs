//! One thing wrong with blocks, nodes or space for each test: exactly that is found.

use crate::base::base;
use crate::tamper::{Image, Items, Nodes};
use bytes::Bytes;
use marram_check::FindingKind as Kind;
use marram_format::group::Group;
use marram_format::key::{Key, kind};
use marram_format::node::NODE_HEADER_BYTES;
use marram_format::pointer::{Extent, Place, Pointer, PointerFlags};
use marram_format::space::{ZONE_BITMAP_BYTES, pool_kind, summary_key, zone_key};

#[track_caller]
fn expect_nodes(expected: &[Kind], edit: impl FnOnce(&mut Items, &mut Nodes)) {
    let mut image = base().image();
    image.edit_dataset("root", edit);
    image.assert_found(expected);
}

#[track_caller]
fn expect_pool(expected: &[Kind], edit: impl FnOnce(&mut Items, &mut Nodes)) {
    let mut image = base().image();
    image.edit_pool(edit);
    image.assert_found(expected);
}

/// The pointer of the block of the file `plain`.
fn plain(image: &Image) -> Pointer {
    let (items, _) = image.items(image.record("root").root.as_ref());
    let item = &items[&Key::new(base().plain, kind::SECTION, 0)];
    Pointer::decode(item.1.as_ref().unwrap()).unwrap()
}

fn edit_plain(items: &mut Items, edit: impl FnOnce(&mut Pointer)) {
    let item = items.get_mut(&Key::new(base().plain, kind::SECTION, 0)).unwrap();
    let mut pointer = Pointer::decode(item.1.as_ref().unwrap()).unwrap();
    edit(&mut pointer);
    item.1 = Some(pointer.encode());
}

/// Where a copy of a block begins.
fn offset(pointer: &Pointer, copy: usize) -> usize {
    let Place::Stored { copies, .. } = &pointer.place else { panic!("an embedded block") };
    usize::try_from(copies[copy][0].start * 4096).unwrap()
}

fn flip(image: &mut Image, pointer: &Pointer, copy: usize) {
    image.bytes[offset(pointer, copy) + 10] ^= 1;
}

#[test]
fn a_damaged_copy() {
    for copy in 0..2 {
        let mut image = base().image();
        let root = image.record("root").root.unwrap();
        flip(&mut image, &root, copy);
        let findings = image.assert_found(&[Kind::CopyDamaged]);
        let at = offset(&root, copy) as u64;
        assert_eq!(findings[0].place.offset_bytes, Some(at));
        let tail = image.superblock.tail.clone().unwrap();
        flip(&mut image, &tail, copy);
        assert_eq!(image.assert_found(&[Kind::CopyDamaged]).len(), 2);
    }
}

#[test]
fn a_lost_block_of_content_and_the_file_that_it_belongs_to() {
    let mut image = base().image();
    let pointer = plain(&image);
    flip(&mut image, &pointer, 0);
    let findings = image.assert_found(&[Kind::BlockLost]);
    assert_eq!(findings[0].place.path.as_deref(), Some(&b"/plain"[..]));
    assert_eq!(findings[0].place.offset_bytes, Some(offset(&pointer, 0) as u64));
}

#[test]
fn a_lost_block_that_is_shared_and_the_file_that_it_belongs_to() {
    let mut image = base().image();
    let (items, _) = image.items(image.record("root").root.as_ref());
    let mut counted = items.iter().filter(|(key, _)| key.kind == kind::REFERENCES);
    let counted = counted.next().unwrap().1.1.clone().unwrap();
    flip(&mut image, &Pointer::decode(&counted).unwrap(), 0);
    let findings = image.assert_found(&[Kind::BlockLost]);
    let large = b"/directory/nested/large";
    let named = findings.iter().filter(|it| it.place.path.as_deref() == Some(&large[..]));
    assert_eq!(named.count(), 2);
}

#[test]
fn a_block_that_does_not_decompress() {
    expect_nodes(&[Kind::BlockContent], |items, _| edit_plain(items, |pointer| pointer.codec = 1));
}

#[test]
fn a_lost_node() {
    let mut image = base().image();
    let root = image.record("root").root.unwrap();
    flip(&mut image, &root, 0);
    flip(&mut image, &root, 1);
    image.assert_found(&[Kind::MetadataLost, Kind::Unchecked]);
    let mut image = base().image();
    let root = image.superblock.pool_tree.clone().unwrap();
    flip(&mut image, &root, 0);
    flip(&mut image, &root, 1);
    image.assert_found(&[Kind::MetadataLost, Kind::Unchecked]);
}

/// One leaf of many is lost: nothing is said of what could be only a consequence.
#[test]
fn a_lost_leaf_is_not_told_in_other_words_again() {
    let mut image = base().image();
    image.edit_dataset("root", |_, nodes| nodes.leaf_items = 20);
    let (_, nodes) = image.items(image.record("root").root.as_ref());
    assert!(nodes.len() > 8);
    for node in &nodes[1..] {
        let mut damaged = Image::new(image.bytes.clone());
        flip(&mut damaged, node, 0);
        flip(&mut damaged, node, 1);
        let findings = damaged.check();
        let mut kinds: Vec<Kind> = findings.iter().map(|finding| finding.kind).collect();
        kinds.retain(|kind| ![Kind::MetadataLost, Kind::Unchecked].contains(kind));
        assert!(
            kinds.is_empty() || kinds.iter().all(|kind| *kind == Kind::ReferencesFlag),
            "{findings:?}"
        );
    }
}

#[test]
fn metadata_that_makes_no_sense() {
    expect_nodes(&[Kind::MetadataMalformed, Kind::Unchecked], |_, nodes| {
        nodes.spoil_leaf = Some(|bytes| bytes[NODE_HEADER_BYTES + 3] ^= 0x40);
    });
    let mut image = base().image();
    let noise = image.write(&[1, 2, 3, 4], 2);
    image.superblock.tail = Some(noise);
    image.write_superblock();
    image.assert_found(&[Kind::MetadataMalformed, Kind::Unchecked]);
}

#[test]
fn a_node_of_the_wrong_level() {
    expect_nodes(&[Kind::NodeLevel, Kind::Unchecked], |_, nodes| nodes.level_added = 1);
}

#[test]
fn a_node_of_another_tree() {
    expect_nodes(&[Kind::NodeTree], |_, nodes| nodes.tree = 77);
}

#[test]
fn keys_outside_of_what_the_parent_says() {
    expect_nodes(&[Kind::NodeBounds, Kind::Unchecked], |_, nodes| {
        nodes.branch_key = |index, key| if index == 1 { key.successor().unwrap() } else { key };
    });
}

#[test]
fn a_node_that_is_not_flagged_as_metadata() {
    expect_nodes(&[Kind::PointerFlags], |_, nodes| nodes.flags = PointerFlags::default());
}

#[test]
fn blocks_younger_than_what_leads_to_them() {
    expect_nodes(&[Kind::PointerBirth], |_, nodes| nodes.birth = Group(1000));
    expect_nodes(&[Kind::PointerBirth], |items, _| {
        edit_plain(items, |pointer| pointer.birth = Group(1000));
    });
}

#[test]
fn a_block_where_none_can_lie() {
    for start in [100, 1 << 40] {
        let expected = [Kind::ExtentRange, Kind::BlockLost, Kind::SpaceLeak];
        expect_nodes(&expected, |items, _| {
            edit_plain(items, |pointer| {
                let Place::Stored { copies, .. } = &mut pointer.place else { panic!("embedded") };
                copies[0][0].start = start;
            });
        });
    }
}

#[test]
fn two_blocks_in_the_same_space() {
    let mut image = base().image();
    let expected = [Kind::SpaceDouble, Kind::SpaceFree, Kind::BlockLost, Kind::SpaceLeak];
    image.edit_dataset("root", |items, _| {
        edit_plain(items, |pointer| {
            let Place::Stored { copies, .. } = &mut pointer.place else { panic!("embedded") };
            copies[0][0].start = 256;
        });
    });
    let findings = image.check();
    assert!(findings.iter().any(|finding| finding.kind == Kind::SpaceDouble));
    assert!(findings.iter().all(|finding| expected.contains(&finding.kind)), "{findings:?}");
}

#[test]
fn space_that_nothing_refers_to() {
    let mut image = base().image();
    let extent = image.allocate(3);
    image.edit_pool(|_, _| {});
    let findings = image.assert_found(&[Kind::SpaceLeak]);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].place.offset_bytes, Some(extent.start * 4096));
    assert_eq!(findings[0].detail, "3 grains, 12288 bytes");
}

#[test]
fn a_block_in_space_that_is_free() {
    let mut image = base().image();
    let pointer = plain(&image);
    image.free(&pointer);
    image.edit_pool(|_, _| {});
    let findings = image.assert_found(&[Kind::SpaceFree]);
    assert_eq!(findings[0].place.object, Some(base().plain));
}

#[test]
fn structures_of_the_pool_in_space_that_is_free() {
    let mut image = base().image();
    image.tail = |tail| tail.allocated.truncate(tail.allocated.len() - 1);
    image.edit_pool(|_, _| {});
    image.assert_found(&[Kind::SpaceFree, Kind::AllocatedGrains]);
}

#[test]
fn a_summary_that_is_not_what_the_bitmap_says() {
    expect_pool(&[Kind::SpaceSummary], |items, _| {
        let item = items.get_mut(&summary_key(0, 0)).unwrap();
        let mut counts = item.0.to_vec();
        counts[0] ^= 1;
        item.0 = counts.into();
    });
    expect_pool(&[Kind::SpaceSummary], |items, _| {
        items.remove(&summary_key(0, 0));
    });
    expect_pool(&[Kind::SpaceSummary], |items, _| {
        items.insert(summary_key(0, 5), (Bytes::from_static(&[0; 8]), None));
    });
}

#[test]
fn a_tail_that_contradicts_the_bitmaps() {
    let mut image = base().image();
    image.tail = |tail| {
        let twice = tail.allocated[0];
        tail.allocated.push(twice);
    };
    image.edit_pool(|_, _| {});
    image.assert_found(&[Kind::SpaceTail]);
    image.tail = |tail| tail.freed.push(Extent { device: 0, start: 8000, grains: 1 });
    image.edit_pool(|_, _| {});
    image.assert_found(&[Kind::SpaceTail]);
    image.tail = |tail| tail.freed.push(Extent { device: 3, start: 8000, grains: 1 });
    image.edit_pool(|_, _| {});
    image.assert_found(&[Kind::SpaceTail]);
}

#[test]
fn a_bitmap_of_what_is_past_the_end() {
    expect_pool(&[Kind::SpaceEnd], |items, _| {
        items.insert(zone_key(0, 5), (Bytes::from_static(&[0; ZONE_BITMAP_BYTES]), None));
    });
    let expected = [Kind::SpaceEnd, Kind::SpaceSummary, Kind::SpaceLeak, Kind::AllocatedGrains];
    expect_pool(&expected, |items, _| {
        let item = items.get_mut(&zone_key(0, 0)).unwrap();
        let mut bitmap = item.0.to_vec();
        bitmap[2000] |= 1;
        item.0 = bitmap.into();
    });
}

#[test]
fn items_of_the_pool_that_cannot_be() {
    let put = |items: &mut Items, key: Key, value: &'static [u8]| {
        items.insert(key, (Bytes::from_static(value), None));
    };
    let dead = Key::new((1 << 32) + 5000, pool_kind::DEAD, 0);
    for key in [summary_key(0, 9), zone_key(0, 0), dead] {
        expect_pool(&[Kind::ItemMalformed, Kind::Unchecked], |items, _| put(items, key, b"x"));
    }
    let misplaced =
        [Key::new(9, pool_kind::DATASET, 1), zone_key(1, 0), Key::new(4, pool_kind::CURSOR, 1)];
    for key in misplaced {
        expect_pool(&[Kind::ItemMisplaced, Kind::Unchecked], |items, _| put(items, key, &[0; 17]));
    }
    expect_pool(&[Kind::ItemUnknown], |items, _| put(items, Key::new(7, 99, 0), b""));
    expect_pool(&[Kind::ItemBlock], |items, _| {
        let pointer = Pointer {
            birth: Group(1),
            logical_len: 1,
            physical_len: 1,
            codec: 0,
            flags: PointerFlags::default(),
            place: Place::Embedded(Bytes::from_static(b"x")),
        };
        items.get_mut(&summary_key(0, 0)).unwrap().1 = Some(pointer.encode());
    });
}
