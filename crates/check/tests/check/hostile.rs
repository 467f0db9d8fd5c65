//! Any image gets an answer; and no bit that is in use can flip without being noticed.

use crate::base::base;
use crate::fixture::{Random, check_all, open_pool};
use crate::tamper::{Image, Items};
use bytes::Bytes;
use marram_device::{Device, MemoryDevice};
use marram_format::pointer::{Place, Pointer};
use marram_format::superblock::{SUPERBLOCK_BYTES, slot_offset};
use marram_pool::{OpenOptions, Pool};
use marram_store::{Batch, Error, Item, Key, Source, Store, kind};
use std::sync::Arc;

/// Where the copies of a block lie: offset and bytes.
fn add_places(places: &mut Vec<(u64, u64)>, pointer: &Pointer) {
    let Place::Stored { copies, .. } = &pointer.place else { return };
    for copy in copies {
        let mut left = u64::from(pointer.physical_len);
        for piece in copy {
            let len = left.min(u64::from(piece.grains) * 4096);
            places.push((piece.start * 4096, len));
            left -= len;
        }
    }
}

fn add_tree(places: &mut Vec<(u64, u64)>, image: &Image, root: Option<&Pointer>) -> Items {
    let (items, nodes) = image.items(root);
    nodes.iter().for_each(|node| add_places(places, node));
    for (_, pointer) in items.values() {
        if let Some(pointer) = pointer {
            add_places(places, &Pointer::decode(pointer).unwrap());
        }
    }
    items
}

/// Everything that is in use.
fn used(image: &Image) -> Vec<(u64, u64)> {
    let slot_bytes = SUPERBLOCK_BYTES as u64;
    let slots = [0, 1].map(|ring| (slot_offset(ring, image.superblock.group), slot_bytes));
    let mut places = vec![(0, slot_bytes), slots[0], slots[1]];
    add_tree(&mut places, image, image.superblock.pool_tree.as_ref());
    add_places(&mut places, image.superblock.tail.as_ref().unwrap());
    for name in ["root", "other", "other@one", "other@two", "clone"] {
        add_tree(&mut places, image, image.record(name).root.as_ref());
    }
    places
}

#[test]
fn every_flipped_bit_of_what_is_in_use_is_found() {
    let image = base().image();
    let places = used(&image);
    assert!(places.len() > 30);
    let mut random = Random::new(1);
    let device = MemoryDevice::from_bytes(image.bytes.clone());
    for round in 0..400 {
        let (start, len) = places[round % places.len()];
        let at = start + random.below(len);
        let index = usize::try_from(at).unwrap();
        let flipped = image.bytes[index] ^ 1 << random.below(8);
        marram_device::Device::write(&device, at, &[flipped]).unwrap();
        let (summary, findings) = check_all(&device);
        assert!(!findings.is_empty() && !summary.is_clean(), "a flipped bit at {at:#x}");
        marram_device::Device::write(&device, at, &[image.bytes[index]]).unwrap();
    }
    assert!(check_all(&device).1.is_empty());
}

#[test]
fn blocks_of_noise_are_answered() {
    let mut random = Random::new(2);
    for _ in 0..60 {
        let mut bytes = base().image().bytes;
        for _ in 0..1 + random.below(40) {
            let grain = usize::try_from(random.below(1500)).unwrap() * 4096;
            let noise = crate::fixture::noise(random.next(), 4096);
            bytes[grain..grain + 4096].copy_from_slice(&noise);
        }
        let device = MemoryDevice::from_bytes(bytes);
        let options = marram_check::CheckOptions { read_data: true, snapshots: true };
        drop(marram_check::check(&device, &options, &mut |finding| drop(finding.to_string())));
    }
}

/// Changes bytes of some items.
fn spoil(items: &mut Items, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let which = usize::try_from(random.below(items.len() as u64)).unwrap();
        let key = *items.keys().nth(which).unwrap();
        let mut item = items[&key].clone();
        match (random.below(8), &item.1) {
            (0, _) => drop(items.remove(&key)),
            (1, _) => {
                let mut moved = key;
                moved.object ^= random.below(4);
                moved.offset ^= 1 << random.below(64);
                items.insert(moved, item);
            }
            (2..4, Some(pointer)) => {
                item.1 = Some(spoilt(pointer, random));
                items.insert(key, item);
            }
            _ => {
                item.0 = spoilt(&item.0, random);
                items.insert(key, item);
            }
        }
    }
}

fn spoilt(bytes: &Bytes, random: &mut Random) -> Bytes {
    let mut bytes = bytes.to_vec();
    if let Some(last) = bytes.len().checked_sub(1) {
        let at = usize::try_from(random.below(last as u64 + 1)).unwrap();
        match random.below(4) {
            0 => bytes[at] = 0xff,
            1 => bytes.truncate(at.max(1)),
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
    bytes.into()
}

/// What a deliberate change of the device could make of it: all checksums are right.
#[test]
fn items_with_any_content_are_answered() {
    for seed in 0..250 {
        let mut random = Random::new(seed);
        let mut image = base().image();
        match seed % 3 {
            0 => image.edit_pool(|items, _| spoil(items, &mut random)),
            _ => image.edit_root(|items| spoil(items, &mut random)),
        }
        for finding in image.check() {
            assert!(finding.to_string().contains(finding.code()));
        }
    }
}

fn device_of(image: &Image) -> Vec<Arc<dyn Device>> {
    vec![Arc::new(MemoryDevice::from_bytes(image.bytes.clone()))]
}

#[test]
fn sums_that_no_device_can_have_are_refused() {
    let refused = |image: &Image| {
        let opened = Pool::open(device_of(image), OpenOptions::new(|| 0));
        assert!(opened.is_err(), "it is open");
    };
    let mut image = base().image();
    image.superblock.allocated_grains = 1 << 55;
    image.write_superblock();
    refused(&image);
    let mut image = base().image();
    image.edit_record("other", |record| record.referenced_grains = 1 << 55);
    refused(&image);
    let mut image = base().image();
    image.edit_record("other@one", |record| record.dead_grains = 1 << 55);
    refused(&image);
}

#[test]
fn reservations_of_more_than_there_can_be_are_added_up() {
    let mut image = base().image();
    for name in ["root", "other", "clone"] {
        image.edit_record(name, |record| {
            record.properties.push(("reservation".to_owned(), u64::MAX.to_string()));
        });
    }
    let pool = open_pool(device_of(&image));
    assert_eq!(pool.status().free_bytes, 0);
    let live = pool.open(&"root".parse::<Source>().unwrap()).unwrap();
    let mut batch = Batch::new();
    batch.put(Key::new(1 << 40, kind::XATTR, 0), Item::plain(vec![0; 100]));
    // Either of them may get the space.
    assert!(matches!(live.apply(batch), Ok(()) | Err(Error::NoSpace)));
}
