//! Dead lists in reclaim: all is in order after every step, and damage is found.

use crate::fixture::{Files, Home, new_home, noise, open_home};
use crate::tamper::{Image, Items};
use bytes::Bytes;
use marram_check::FindingKind as Kind;
use marram_device::{Device, MemoryDevice};
use marram_format::dataset::DatasetRecord;
use marram_format::group::Group;
use marram_format::key::Key;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::space::{
    DeadChunk, ReclaimRecord, dataset_key, dead_key, pool_kind, reclaim_key,
};
use marram_format::superblock::Superblock;
use marram_format::version::feature;
use marram_store::{Lineage, Source, SpaceUsage, Store};
use std::sync::Arc;

const FILES: u64 = 6;
const SNAPSHOTS: usize = 4;
/// Steps of the background in which everything has come back for sure.
const STEPS_MAX: usize = 500;

/// The root dataset with snapshots `s0` to `s3`: each has blocks that the next ones have no more,
/// some that only it has and some that older ones have too, on several chunks of dead lists.
fn history() -> Vec<u8> {
    let home = new_home(32, &[]);
    let files = home.mount("root");
    let names = (0..FILES).map(|number| format!("file {number}"));
    let inos: Vec<u64> = names.map(|name| files.file(1, &name, &noise(1, 30_000))).collect();
    files.commit();
    for round in 0..SNAPSHOTS as u64 {
        home.snapshot("root", &format!("s{round}"));
        rewrite(&files, &inos, round);
    }
    files.commit();
    home.bytes()
}

/// Writes some files anew, one in each commit. The last one is left to the commit that takes the
/// next snapshot: what is born with a snapshot is its own.
fn rewrite(files: &Files, inos: &[u64], round: u64) {
    let anew = (0..).zip(inos).filter(|(number, _)| !(number + round).is_multiple_of(3));
    for (number, ino) in anew {
        files.commit();
        files.write(*ino, 0, &noise(round * 100 + number + 7, 30_000));
    }
}

fn open(bytes: &[u8]) -> Home {
    open_home(Arc::new(MemoryDevice::from_bytes(bytes.to_vec())))
}

fn snapshot(number: usize) -> Source {
    format!("root@s{number}").parse().unwrap()
}

/// All orders of so many.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let with_last = |order: &Vec<usize>| {
        (0..count).map(|place| [&order[..place], &[count - 1], &order[place..]].concat()).collect()
    };
    shorter.iter().flat_map(|order| -> Vec<Vec<usize>> { with_last(order) }).collect()
}

/// Gives back all that waits; returns how many steps that took.
fn finish(home: &Home) -> usize {
    let steps = (0..STEPS_MAX).take_while(|_| home.pool.reclaim_step().unwrap()).count();
    assert!(steps < STEPS_MAX, "giving back comes to an end");
    steps
}

/// Bytes that datasets and snapshots hold, when nothing waits; the sum is exact.
#[track_caller]
fn held(home: &Home) -> u64 {
    let usage = home.pool.usage(true).unwrap();
    let added: u64 = usage.holders.iter().map(|holder| holder.added_bytes).sum();
    assert_eq!((usage.leaving_bytes, usage.shared_bytes), (0, 0));
    assert_eq!(added + usage.own_bytes, usage.allocated_bytes);
    added
}

/// What a crash leaves now: all of it can be given back after it, until so much is held.
fn crash(home: &Home) -> u64 {
    let again = open(&home.bytes());
    finish(&again);
    again.assert_clean();
    held(&again)
}

#[test]
fn snapshots_go_in_any_order_with_steps_in_between() {
    let bytes = history();
    let mut waited = 0;
    for (number, order) in orders(SNAPSHOTS).into_iter().enumerate() {
        let home = open(&bytes);
        let before = held(&home);
        let mut freed = 0;
        for gone in order {
            freed += home.pool.destroy(&snapshot(gone), false).unwrap().freed_bytes;
            home.assert_clean();
            for _ in 0..number % 4 {
                waited += usize::from(home.pool.reclaim_step().unwrap());
                home.assert_clean();
            }
        }
        finish(&home);
        home.assert_clean();
        assert_eq!(before - held(&home), freed, "all that was promised came back, and no more");
    }
    assert!(waited > SNAPSHOTS, "it was given back in steps");
}

#[test]
fn a_crash_after_any_step_leaves_what_can_be_given_back() {
    let bytes = history();
    for order in orders(SNAPSHOTS).into_iter().step_by(5) {
        let home = open(&bytes);
        for gone in order {
            home.pool.destroy(&snapshot(gone), false).unwrap();
            let left = crash(&home);
            for _ in 0..3 {
                home.pool.reclaim_step().unwrap();
                assert_eq!(crash(&home), left);
            }
        }
    }
}

#[test]
fn what_goes_on_beside_steps_keeps_them_in_order() {
    let home = open(&history());
    let files = home.mount("root");
    let inos: Vec<u64> = (0..FILES).map(|it| files.find(1, &format!("file {it}"))).collect();
    home.clone_of("root@s1", "clone");
    home.pool.destroy(&snapshot(2), false).unwrap();
    rewrite(&files, &inos, 9);
    home.snapshot("root", "s9");
    home.assert_clean();
    drop(files);
    home.pool.rollback(&snapshot(3), "before").unwrap();
    home.assert_clean();
    home.pool.destroy(&snapshot(9), false).unwrap();
    home.pool.reclaim_step().unwrap();
    home.assert_clean();
    home.pool.promote(&"clone".parse().unwrap()).unwrap();
    home.assert_clean();
    home.destroy("clone@s0");
    home.assert_clean();
    home.destroy("root@before");
    home.assert_clean();
    home.destroy("root@s3");
    home.assert_clean();
    let left = crash(&home);
    finish(&home);
    home.assert_clean();
    assert_eq!(held(&home), left);
}

fn is_told(bytes: &[u8]) -> bool {
    let superblock: Superblock = Image::new(bytes.to_vec()).superblock;
    superblock.features_read_compatible & feature::RECLAIM != 0
}

#[test]
fn older_programs_are_kept_from_writing_as_long_as_something_waits() {
    let home = open(&history());
    assert!(!is_told(&home.bytes()));
    home.pool.destroy(&snapshot(1), false).unwrap();
    assert!(is_told(&home.bytes()));
    finish(&home);
    assert!(!is_told(&home.bytes()));
}

/// A pool in which lists are in reclaim that have free blocks and others.
fn waiting() -> Image {
    let home = open(&history());
    home.pool.destroy(&snapshot(3), false).unwrap();
    home.pool.destroy(&snapshot(2), false).unwrap();
    home.assert_clean();
    Image::new(home.bytes())
}

/// The lists in reclaim.
fn lists(items: &Items) -> Vec<(u64, ReclaimRecord)> {
    let found = items.range(reclaim_key(0)..=reclaim_key(u64::MAX));
    found.map(|(key, item)| (key.offset, ReclaimRecord::decode(&item.0).unwrap())).collect()
}

/// Changes the first chunk in which there is a block of content that is free, or one that is not.
fn edit_chunk(free: bool, edit: impl FnOnce(&mut Vec<Bytes>, usize)) -> Image {
    let mut image = waiting();
    image.edit_pool(|items, _| {
        let wanted = |bytes: &Bytes, reclaim: &ReclaimRecord| {
            let pointer = Pointer::decode(bytes).unwrap();
            !pointer.flags.contains(PointerFlags::METADATA)
                && (pointer.birth > reclaim.threshold) == free
        };
        let chunks = lists(items).into_iter().flat_map(|(list, reclaim)| {
            let chunks = items.range(dead_key(list, 0)..=dead_key(list, u64::MAX));
            chunks.map(move |(key, item)| (*key, DeadChunk::decode(&item.0).unwrap(), reclaim))
        });
        let mut found: Option<(Key, DeadChunk, usize)> = None;
        for (key, chunk, reclaim) in chunks {
            if let Some(place) = chunk.pointers.iter().position(|it| wanted(it, &reclaim)) {
                found.get_or_insert((key, chunk, place));
            }
        }
        let (key, mut chunk, place) = found.expect("there is such a block");
        edit(&mut chunk.pointers, place);
        items.insert(key, (chunk.encode(), None));
    });
    image
}

#[test]
fn blocks_that_are_missing_on_a_list_in_reclaim_or_there_twice() {
    let image = edit_chunk(true, |pointers, place| drop(pointers.remove(place)));
    image.assert_found(&[Kind::SpaceLeak]);
    let image = edit_chunk(false, |pointers, place| drop(pointers.remove(place)));
    image.assert_found(&[Kind::DeadContent]);
    let image = edit_chunk(true, |pointers, place| pointers.push(pointers[place].clone()));
    image.assert_found(&[Kind::SpaceDouble]);
    let image = edit_chunk(false, |pointers, place| pointers.push(pointers[place].clone()));
    image.assert_found(&[Kind::DeadContent]);
}

/// Whether the kinds that were found have this one among them: what is wrong with where a list
/// leads shows in what is on it too.
#[track_caller]
fn expect_among(kind: Kind, edit: impl FnOnce(&mut Items, u64, ReclaimRecord)) {
    let mut image = waiting();
    image.edit_pool(|items, _| {
        let (list, reclaim) = lists(items)[0];
        edit(items, list, reclaim);
    });
    let found: Vec<Kind> = image.check().into_iter().map(|finding| finding.kind).collect();
    assert!(found.contains(&kind), "{found:?}");
}

fn put(items: &mut Items, list: u64, reclaim: ReclaimRecord) {
    items.insert(reclaim_key(list), (reclaim.encode(), None));
}

#[test]
fn lists_in_reclaim_and_lead_to_the_wrong_one() {
    expect_among(Kind::ReclaimList, |items, list, reclaim| {
        put(items, list, ReclaimRecord { destination: list, ..reclaim });
    });
    expect_among(Kind::ReclaimList, |items, list, reclaim| {
        let threshold = Group(reclaim.threshold.0 - 1);
        put(items, list, ReclaimRecord { threshold, ..reclaim });
    });
    expect_among(Kind::ReclaimList, |items, _, reclaim| {
        put(items, reclaim.destination, reclaim);
    });
    expect_among(Kind::NextDataset, |items, _, reclaim| put(items, 1 << 40, reclaim));
    expect_among(Kind::DeadUnowned, |items, list, _| drop(items.remove(&reclaim_key(list))));
    expect_among(Kind::ItemMalformed, |items, list, _| {
        items.insert(reclaim_key(list), (Bytes::from_static(b"no record"), None));
    });
    expect_among(Kind::ItemMisplaced, |items, list, reclaim| {
        let key = Key::new(7, pool_kind::RECLAIM, list);
        items.insert(key, (reclaim.encode(), None));
    });
}

#[test]
fn a_list_that_leads_to_another_snapshot() {
    expect_among(Kind::ReclaimList, |items, list, reclaim| {
        let records = items.range(dataset_key(0)..=dataset_key(u64::MAX));
        let mut records = records.map(|(_, item)| DatasetRecord::decode(&item.0).unwrap());
        let other = records.find(|record| record.dead_list != reclaim.destination).unwrap();
        put(items, list, ReclaimRecord { destination: other.dead_list, ..reclaim });
    });
}

#[test]
fn a_list_in_reclaim_in_a_pool_that_does_not_tell() {
    let mut image = waiting();
    image.superblock.features_read_compatible &= !feature::RECLAIM;
    image.write_superblock();
    image.assert_found(&[Kind::ReclaimList]);
}

#[test]
fn a_pool_in_which_lists_are_in_reclaim_is_opened_for_reading() {
    let home = open(&history());
    home.pool.destroy(&snapshot(1), false).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(home.bytes()));
    let options =
        marram_pool::OpenOptions { read_only: true, ..marram_pool::OpenOptions::new(|| 0) };
    let pool = marram_pool::Pool::open(vec![device], options).unwrap();
    assert_eq!(pool.reclaim_step(), Ok(false));
    let (here, there) = (home.pool.usage(true).unwrap(), pool.usage(true).unwrap());
    assert_eq!(here, there);
    assert!(here.leaving_bytes > 0);
}
