//! Allocation against what must hold at every commit.

use super::{HEAD_GRAINS, Purpose, SpaceMap, ZoneSource};
use marram_format::pointer::Extent;
use marram_format::space::{ZONE_BITMAP_BYTES, ZONE_GRAINS};
use marram_store::Error;
use std::collections::BTreeMap;

#[derive(Default)]
struct Written(BTreeMap<u64, [u8; ZONE_BITMAP_BYTES]>);

impl ZoneSource for Written {
    fn bitmap(&self, zone: u64) -> marram_store::Result<Option<[u8; ZONE_BITMAP_BYTES]>> {
        Ok(self.0.get(&zone).copied())
    }
}

#[test]
fn nothing_freed_is_reused_before_the_commit_is_durable() {
    let source = Written::default();
    let mut map = SpaceMap::new(HEAD_GRAINS + 10);
    let first = map.allocate(10, Purpose::Data, &source).unwrap().unwrap();
    map.serialize();
    map.finish();
    map.free(first[0], &source).unwrap();
    assert_eq!(map.allocate(1, Purpose::Data, &source).unwrap(), None);
    assert_eq!(map.free_grains_after(), 10);
    map.serialize();
    map.finish();
    assert_eq!(map.allocate(10, Purpose::Data, &source).unwrap().unwrap(), first);
}

#[test]
fn a_map_read_back_with_its_tail_is_the_map_that_was_written() {
    let mut source = Written::default();
    let mut map = SpaceMap::new(3 * ZONE_GRAINS);
    let gone = map.allocate(7, Purpose::Data, &source).unwrap().unwrap();
    map.serialize();
    map.finish();
    map.allocate(100, Purpose::Metadata, &source).unwrap().unwrap();
    let images = map.serialize();
    let summary: Vec<(u64, u32)> =
        images.iter().map(|image| (image.zone, image.free_grains)).collect();
    source.0.extend(images.iter().map(|image| (image.zone, image.bitmap)));
    map.allocate(5, Purpose::MetadataCopy, &source).unwrap().unwrap();
    map.free(gone[0], &source).unwrap();
    let tail = map.tail();
    map.finish();

    let mut back = SpaceMap::with_summary(3 * ZONE_GRAINS, &summary);
    back.replay(&tail, &source).unwrap();
    assert_eq!(back.gauge().free_grains(), map.gauge().free_grains());
}

#[test]
fn a_failed_commit_leaves_the_map_as_it_was() {
    let source = Written::default();
    let mut map = SpaceMap::new(2 * ZONE_GRAINS);
    let kept = map.allocate(20, Purpose::Data, &source).unwrap().unwrap();
    map.serialize();
    map.finish();
    let before = map.gauge().free_grains();
    map.allocate(30, Purpose::Data, &source).unwrap();
    map.free(kept[0], &source).unwrap();
    map.serialize();
    map.roll_back();
    assert_eq!(map.gauge().free_grains(), before);
    assert_eq!(map.free_grains_after(), before);
    assert_eq!(map.serialize().len(), 1);
}

#[test]
fn what_is_free_or_goes_already_is_not_freed_once_more() {
    let source = Written::default();
    let mut map = SpaceMap::new(HEAD_GRAINS + 300);
    let first = map.allocate(200, Purpose::Data, &source).unwrap().unwrap()[0];
    let part = |start: u64, grains| Extent { device: 0, start: first.start + start, grains };
    map.serialize();
    map.finish();
    for _ in 0..2 {
        map.free(part(100, 50), &source).unwrap();
        for wrong in [part(100, 50), part(149, 2), part(60, 41), part(199, 2), part(250, 1)] {
            let refused = map.free(wrong, &source).unwrap_err();
            assert!(matches!(refused, Error::Damaged(_)), "{wrong:?}: {refused}");
        }
        map.roll_back();
    }
    map.free(part(100, 50), &source).unwrap();
    map.free(part(150, 50), &source).unwrap();
    map.free(part(0, 100), &source).unwrap();
    map.serialize();
    map.finish();
    assert!(map.free(part(0, 1), &source).is_err(), "it is free");
    assert_eq!(map.gauge().free_grains(), 300);
}

#[test]
fn what_is_held_back_for_a_reader_is_not_freed_once_more() {
    let source = Written::default();
    let mut map = SpaceMap::new(HEAD_GRAINS + 300);
    let first = map.allocate(200, Purpose::Data, &source).unwrap().unwrap()[0];
    map.serialize();
    map.finish();
    map.hold();
    map.free(first, &source).unwrap();
    map.serialize();
    map.finish();
    let part = Extent { start: first.start + 199, grains: 1, ..first };
    assert!(map.free(part, &source).is_err());
    map.let_go();
    assert!(map.free(part, &source).is_err(), "it is free");
    assert_eq!(map.gauge().free_grains(), 300);
}

#[test]
fn scattered_space_is_given_in_pieces() {
    let source = Written::default();
    let mut map = SpaceMap::new(HEAD_GRAINS + 64);
    let all: Vec<_> =
        (0..32).map(|_| map.allocate(2, Purpose::Data, &source).unwrap().unwrap()[0]).collect();
    map.serialize();
    map.finish();
    all.iter().step_by(2).for_each(|extent| map.free(*extent, &source).unwrap());
    map.serialize();
    map.finish();
    let pieces = map.allocate(8, Purpose::Data, &source).unwrap().unwrap();
    assert_eq!(pieces.len(), 4);
    assert_eq!(map.allocate(32, Purpose::Data, &source).unwrap(), None);
    assert_eq!(map.gauge().free_grains(), 24);
}

#[test]
fn data_finds_a_place_in_single_grains_and_what_has_two_copies_only_in_few() {
    let source = Written::default();
    let mut map = SpaceMap::new(HEAD_GRAINS + 600);
    let all: Vec<_> =
        (0..600).map(|_| map.allocate(1, Purpose::Data, &source).unwrap().unwrap()[0]).collect();
    map.serialize();
    map.finish();
    all.iter().step_by(2).for_each(|extent| map.free(*extent, &source).unwrap());
    map.serialize();
    map.finish();
    assert_eq!(map.allocate(17, Purpose::Metadata, &source).unwrap(), None);
    assert_eq!(map.allocate(17, Purpose::MetadataCopy, &source).unwrap(), None);
    assert_eq!(map.allocate(257, Purpose::Data, &source).unwrap(), None);
    assert_eq!(map.gauge().free_grains(), 300);
    let pieces = map.allocate(256, Purpose::Data, &source).unwrap().unwrap();
    assert_eq!(pieces.len(), 256);
    assert_eq!(map.allocate(44, Purpose::Data, &source).unwrap().unwrap().len(), 44);
    assert_eq!(map.gauge().free_grains(), 0);
}

#[test]
fn growth_adds_what_the_last_zone_lacked() {
    let source = Written::default();
    let mut map = SpaceMap::new(HEAD_GRAINS + 10);
    map.grow(ZONE_GRAINS + 5, &source).unwrap();
    assert_eq!(map.gauge().free_grains(), ZONE_GRAINS + 5 - HEAD_GRAINS);
}

#[test]
fn a_commit_that_fails_to_grow_the_map_leaves_it_as_it_was() {
    let source = Written::default();
    for (from, to) in [
        (2 * ZONE_GRAINS + 100, 2 * ZONE_GRAINS + 300),
        (2 * ZONE_GRAINS + 100, 5 * ZONE_GRAINS + 7),
        (2 * ZONE_GRAINS, 3 * ZONE_GRAINS),
    ] {
        let mut map = SpaceMap::new(from);
        let kept = map.allocate(20, Purpose::Data, &source).unwrap().unwrap();
        map.serialize();
        map.finish();
        let before = (map.total_grains(), map.gauge().free_grains());
        map.grow(to, &source).unwrap();
        assert!(map.gauge().free_grains() > before.1);
        let more = u32::try_from(before.1 / 2 + 50).unwrap();
        map.allocate(more, Purpose::Data, &source).unwrap().unwrap();
        map.serialize();
        map.roll_back();
        assert_eq!((map.total_grains(), map.gauge().free_grains()), before, "{from} to {to}");
        let all = u32::try_from(before.1).unwrap();
        let pieces = map.allocate(all, Purpose::Data, &source).unwrap().unwrap();
        assert!(pieces.iter().all(|piece| piece.end() <= from && *piece != kept[0]));
        map.roll_back();
        map.grow(to, &source).unwrap();
        assert_eq!(map.total_grains(), to - HEAD_GRAINS);
        map.serialize();
        map.finish();
        assert_eq!(map.gauge().free_grains(), to - HEAD_GRAINS - 20);
    }
}

#[test]
fn what_a_reader_holds_back_is_free_for_all_but_the_allocator() {
    let source = Written::default();
    let mut map = SpaceMap::new(HEAD_GRAINS + 20);
    let first = map.allocate(8, Purpose::Data, &source).unwrap().unwrap()[0];
    map.serialize();
    map.finish();
    let before = map.hold();
    map.free(first, &source).unwrap();
    map.serialize();
    map.finish();
    assert_eq!((map.gauge().free_grains(), map.free_grains_after()), (20, 20));
    let second = map.allocate(8, Purpose::Data, &source).unwrap().unwrap()[0];
    assert!(second.start >= first.end(), "{second:?} was given back a moment ago");
    let images = map.serialize();
    assert_eq!(images[0].free_grains, 12, "on media it is free");
    map.finish();
    assert_eq!(map.breaks(), before);
    map.let_go();
    assert_eq!(map.allocate(8, Purpose::Data, &source).unwrap().unwrap()[0], first);
}

#[test]
fn what_a_reader_holds_back_is_used_when_nothing_else_is_left() {
    let source = Written::default();
    let mut map = SpaceMap::new(HEAD_GRAINS + 20);
    let first = map.allocate(16, Purpose::Data, &source).unwrap().unwrap()[0];
    map.serialize();
    map.finish();
    let before = map.hold();
    map.free(first, &source).unwrap();
    map.serialize();
    map.finish();
    assert!(map.allocate(10, Purpose::Data, &source).unwrap().is_some());
    assert_ne!(map.breaks(), before);
    map.roll_back();
    assert_eq!((map.gauge().free_grains(), map.free_grains_after()), (20, 20));
    map.let_go();
    assert_eq!(map.gauge().free_grains(), 20);
}
