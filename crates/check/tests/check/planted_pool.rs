//! One thing wrong with superblocks or the graph of datasets for each test: exactly that is found.

use crate::base::base;
use crate::fixture::check_all;
use crate::tamper::Image;
use bytes::Bytes;
use marram_check::{CheckOptions, Error, FindingKind as Kind, Severity, check};
use marram_device::{Device, MemoryDevice};
use marram_format::dataset::{DatasetRecord, ROOT_OBJECT_PROPERTY};
use marram_format::group::Group;
use marram_format::key::kind;
use marram_format::signature::Signature;
use marram_format::space::{DeadChunk, OwnersRecord, dataset_key, dead_key, owners_key};
use marram_format::superblock::{SUPERBLOCK_BYTES, Superblock, slot_offset};

#[track_caller]
fn expect_record(expected: &[Kind], name: &str, edit: impl FnOnce(&mut DatasetRecord)) {
    let mut image = base().image();
    image.edit_record(name, edit);
    image.assert_found(expected);
}

#[track_caller]
fn expect_superblock(expected: &[Kind], edit: impl FnOnce(&mut Superblock)) {
    let mut image = base().image();
    edit(&mut image.superblock);
    image.write_superblock();
    image.assert_found(expected);
}

fn slot(ring: usize, group: u64) -> usize {
    usize::try_from(slot_offset(ring, Group(group))).unwrap()
}

/// Writes a superblock into one slot.
fn put_slot(image: &mut Image, at: usize, superblock: &Superblock) {
    image.bytes[at..at + SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
}

#[test]
fn a_damaged_signature_page() {
    let mut image = base().image();
    image.bytes[40] ^= 1;
    image.assert_found(&[Kind::SignatureDamaged]);
    let page = Signature {
        version: image.superblock.version,
        pool_id: [9; 16],
        label: "other".to_owned(),
        created_seconds: 1,
    };
    image.bytes[..4096].copy_from_slice(&page.encode());
    image.assert_found(&[Kind::SignatureMismatch]);
}

#[test]
fn a_damaged_copy_of_the_newest_superblock() {
    for (ring, byte) in [(0, 20), (1, 300), (0, 3000), (1, 4090)] {
        let mut image = base().image();
        let at = slot(ring, image.superblock.group.0) + byte;
        image.bytes[at] ^= 4;
        let findings = image.assert_found(&[Kind::SuperblockCopy]);
        assert_eq!(findings[0].place.offset_bytes, Some(((at - byte) as u64) / 4096 * 4096));
    }
}

#[test]
fn what_an_interrupted_commit_leaves_is_in_order() {
    let group = base().image().superblock.group.0;
    let (now, before) = (slot(1, group), slot(1, group - 1));
    for sectors in 0..8 {
        let mut image = base().image();
        let cut = sectors * 512;
        image.bytes[now + cut..now + SUPERBLOCK_BYTES].fill(0);
        image.assert_found(&[]);
    }
    let mut image = base().image();
    let mut next = image.superblock.clone();
    next.group = Group(group + 1);
    let bytes = next.encode();
    for ring in 0..2 {
        let at = slot(ring, group + 1);
        image.bytes[at..at + 512].copy_from_slice(&bytes[..512]);
    }
    image.assert_found(&[]);
    image.bytes[before..before + SUPERBLOCK_BYTES].fill(0);
    image.assert_found(&[]);
}

#[test]
fn what_an_interrupted_commit_leaves_stays_when_a_later_one_passes_over_its_group() {
    let mut image = base().image();
    let group = image.superblock.group.0;
    let at = |ring| slot(ring, group + 3);
    let interrupted = Superblock { group: Group(group + 3), ..image.superblock.clone() }.encode();
    for ring in 0..2 {
        image.bytes[at(ring)..at(ring) + 512].copy_from_slice(&interrupted[..512]);
        let next = Superblock { group: Group(group + 10), ..image.superblock.clone() };
        put_slot(&mut image, slot(ring, group + 10), &next);
    }
    image.assert_found(&[]);
    // One copy is as before: nothing was written to it.
    let old = Superblock { group: Group((group + 3) % 64), ..image.superblock.clone() };
    put_slot(&mut image, at(1), &old);
    image.assert_found(&[]);
    image.bytes[at(0)..at(0) + 64].fill(0x5a);
    image.assert_found(&[Kind::SuperblockSlot]);
    // Nothing was written to either: one bad bit is damage.
    put_slot(&mut image, at(0), &old);
    image.assert_found(&[]);
    image.bytes[at(0) + 1000] ^= 1;
    image.assert_found(&[Kind::SuperblockSlot]);
}

#[test]
fn a_damaged_slot_of_an_earlier_commit() {
    let mut image = base().image();
    let group = image.superblock.group.0 - 2;
    image.bytes[slot(0, group) + 1000] ^= 1;
    image.assert_found(&[Kind::SuperblockSlot]);
}

#[test]
fn a_ring_that_is_blank() {
    let mut image = base().image();
    let start = slot(1, 0);
    image.bytes[start..start + 64 * SUPERBLOCK_BYTES].fill(0);
    image.assert_found(&[Kind::SuperblockRing]);
}

#[test]
fn superblocks_that_do_not_belong_where_they_lie() {
    let mut image = base().image();
    let old = Superblock { group: Group(3), ..image.superblock.clone() };
    put_slot(&mut image, slot(0, 40), &old);
    image.assert_found(&[Kind::SuperblockMisplaced]);
    let mut image = base().image();
    let foreign = Superblock { pool_id: [1; 16], group: Group(2), ..image.superblock.clone() };
    put_slot(&mut image, slot(1, 2), &foreign);
    image.assert_found(&[Kind::SuperblockForeign]);
    let mut image = base().image();
    let other = Superblock { committed_seconds: 99, ..image.superblock.clone() };
    let at = slot(1, other.group.0);
    put_slot(&mut image, at, &other);
    image.assert_found(&[Kind::SuperblockSplit]);
}

#[test]
fn fields_of_the_superblock_that_cannot_be() {
    expect_superblock(&[Kind::AllocatedGrains], |superblock| superblock.allocated_grains += 1);
    expect_superblock(&[Kind::NextDataset], |superblock| superblock.next_dataset = 3);
    expect_superblock(&[Kind::SuperblockField], |superblock| {
        superblock.features_incompatible = 0;
    });
    expect_superblock(&[Kind::SuperblockField, Kind::SpaceLeak], |superblock| {
        superblock.intent_log = None;
    });
    expect_superblock(&[Kind::SuperblockField, Kind::SpaceSummary], |superblock| {
        superblock.devices[0].size_bytes -= 100;
    });
}

#[test]
fn a_device_that_is_cut_off() {
    let image = base().image();
    let bytes = image.bytes[..image.bytes.len() / 2].to_vec();
    let (summary, findings) = check_all(&MemoryDevice::from_bytes(bytes));
    assert!(findings.iter().any(|finding| finding.kind == Kind::DeviceShort));
    assert_eq!(findings[0].severity(), Severity::Fatal);
    assert!(summary.fatal > 0);
}

/// Cannot read where the second ring lies.
struct Unreadable(MemoryDevice);

impl Device for Unreadable {
    fn name(&self) -> String {
        self.0.name()
    }

    fn size(&self) -> marram_device::Result<u64> {
        self.0.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> marram_device::Result<()> {
        if offset == slot_offset(1, Group(0)) {
            let (device, reason) = (self.name(), "bad sector".to_owned());
            let len = buffer.len() as u64;
            return Err(marram_device::Error::Failed {
                device,
                action: "read",
                offset,
                len,
                reason,
            });
        }
        self.0.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> marram_device::Result<()> {
        self.0.write(offset, buffer)
    }

    fn flush(&self) -> marram_device::Result<()> {
        self.0.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> marram_device::Result<()> {
        self.0.discard(offset, len)
    }
}

#[test]
fn a_ring_that_cannot_be_read() {
    let device = Unreadable(MemoryDevice::from_bytes(base().image().bytes));
    let (_, findings) = check_all(&device);
    let kinds: Vec<Kind> = findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::DeviceRead]);
}

#[test]
fn a_pool_without_any_superblock() {
    let mut image = base().image();
    image.bytes[4096..1 << 20].fill(0x5a);
    image.assert_found(&[Kind::SuperblockMissing]);
}

fn refused(bytes: Vec<u8>) -> Error {
    let device = MemoryDevice::from_bytes(bytes);
    check(&device, &CheckOptions::default(), &mut |finding| panic!("{finding}")).unwrap_err()
}

#[test]
fn what_is_no_pool_or_too_new_is_refused() {
    assert!(matches!(refused(vec![0; 1 << 25]), Error::NoPool { .. }));
    assert!(matches!(refused(vec![7; 1 << 25]), Error::NoPool { .. }));
    assert!(matches!(refused(vec![0; 5000]), Error::NoPool { .. }));
    let mut image = base().image();
    image.superblock.version.major = 2;
    image.write_superblock();
    let error = refused(image.bytes);
    assert!(matches!(error, Error::TooNew { .. }));
    assert!(error.to_string().contains("use a newer"), "{error}");
    let mut image = base().image();
    let device = image.superblock.devices[0].clone();
    image.superblock.devices.push(device);
    image.write_superblock();
    assert!(matches!(refused(image.bytes), Error::Unsupported { .. }));
}

#[test]
fn what_an_interrupted_creation_leaves_is_no_pool() {
    let Image { mut superblock, .. } = base().image();
    superblock.group = Group(1);
    let mut bytes = vec![0; 1 << 25];
    let at = slot(0, 1);
    bytes[at..at + SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode());
    let error = refused(bytes);
    assert!(matches!(error, Error::NoPool { .. }));
    assert!(error.to_string().contains("interrupted"), "{error}");
}

#[test]
fn snapshots_that_do_not_agree_on_their_order() {
    expect_record(&[Kind::DatasetLink], "other@one", |record| record.next = 77);
    expect_record(&[Kind::DatasetLink], "other@two", |record| record.next = record.id);
    expect_record(&[Kind::DatasetLink], "root", |record| record.parent = 5);
    let expected = [Kind::DatasetLink, Kind::DatasetGroup, Kind::DeadContent, Kind::SpaceDouble];
    let mut image = base().image();
    image.edit_record("other@two", |record| record.previous = 0);
    let findings = image.check();
    assert!(findings.iter().any(|finding| finding.kind == Kind::DatasetLink));
    assert!(findings.iter().all(|finding| expected.contains(&finding.kind)), "{findings:?}");
}

#[test]
fn a_wrong_group_of_the_previous_snapshot() {
    let mut image = base().image();
    image.edit_record("other", |record| record.previous_group = Group(1));
    let findings = image.check();
    assert!(findings.iter().any(|finding| finding.kind == Kind::DatasetGroup));
    let mut image = base().image();
    image.edit_record("root", |record| record.previous_group = Group(1));
    let findings = image.check();
    assert!(findings.iter().any(|finding| finding.kind == Kind::DatasetGroup));
}

#[test]
fn a_wrong_number_of_clones() {
    expect_record(&[Kind::DatasetClones], "other@one", |record| record.clones = 0);
    expect_record(&[Kind::DatasetClones], "root", |record| record.clones = 1);
}

#[test]
fn holds_and_roots_that_make_no_sense() {
    expect_record(&[Kind::DatasetProperty], "other@one", |record| record.holds = 2);
    expect_record(&[Kind::DatasetProperty], "root", |record| {
        let root = (ROOT_OBJECT_PROPERTY.to_owned(), "x".to_owned());
        record.properties.insert(0, root);
    });
}

#[test]
fn a_wrong_number_of_owners() {
    let mut image = base().image();
    let (items, _) = image.items(image.record("root").root.as_ref());
    let blocks = items.iter().filter(|(key, _)| key.kind == kind::REFERENCES);
    let block = blocks.map(|(key, _)| key.offset).next().unwrap();
    image.edit_pool(|items, _| {
        items.insert(owners_key(block), (OwnersRecord { count: 2 }.encode(), None));
    });
    // The superblock says nothing of owners either.
    image.assert_found(&[Kind::ItemMisplaced, Kind::OwnersCount]);
}

#[test]
fn names_that_no_dataset_can_have() {
    expect_record(&[Kind::DatasetName], "root", |record| record.name = "a//b".to_owned());
    expect_record(&[Kind::DatasetName], "root", |record| record.name = "clone".to_owned());
    expect_record(&[Kind::DatasetName], "root", |record| record.name = "root@now".to_owned());
    expect_record(&[Kind::DatasetName], "other@one", |record| record.name = "root@one".to_owned());
}

#[test]
fn wrong_sums_of_grains() {
    expect_record(&[Kind::DatasetGrains], "root", |record| record.referenced_grains += 1);
    expect_record(&[Kind::DeadGrains], "other", |record| record.dead_grains += 1);
}

/// The chunks of the dead list of a dataset.
fn edit_dead(image: &mut Image, name: &str, edit: impl FnOnce(&mut Vec<Bytes>)) {
    let mut record = image.record(name);
    let list = record.dead_list;
    image.edit_pool(|items, _| {
        let range = dead_key(list, 0)..=dead_key(list, u64::MAX);
        let key = *items.range(range).next().unwrap().0;
        let mut chunk = DeadChunk::decode(&items[&key].0).unwrap();
        edit(&mut chunk.pointers);
        let grains =
            |bytes: &Bytes| marram_format::pointer::Pointer::decode(bytes).unwrap().grains();
        record.dead_grains = chunk.pointers.iter().map(grains).sum();
        items.insert(key, (chunk.encode(), None));
        items.insert(dataset_key(record.id), (record.encode(), None));
    });
}

#[test]
fn a_dead_list_that_is_not_what_died() {
    for name in ["other", "other@two", "clone"] {
        let mut image = base().image();
        edit_dead(&mut image, name, |pointers| drop(pointers.pop()));
        image.assert_found(&[Kind::DeadContent]);
        let mut image = base().image();
        edit_dead(&mut image, name, |pointers| pointers.push(pointers[0].clone()));
        image.assert_found(&[Kind::DeadContent]);
    }
}

#[test]
fn a_dead_list_of_nobody() {
    let mut image = base().image();
    image.edit_pool(|items, _| {
        items.insert(dead_key(5000, 1), (DeadChunk::default().encode(), None));
    });
    image.assert_found(&[Kind::DeadUnowned]);
}

#[test]
fn without_snapshots_space_is_still_checked_for_all() {
    let mut image = base().image();
    let record = image.record("other@one");
    let (_, nodes) = image.items(record.root.as_ref());
    image.free(&nodes[0]);
    image.edit_pool(|_, _| {});
    let options = CheckOptions { read_data: false, snapshots: false };
    let mut kinds = Vec::new();
    let device = MemoryDevice::from_bytes(image.bytes);
    check(&device, &options, &mut |finding| kinds.push(finding.kind)).unwrap();
    kinds.dedup();
    assert_eq!(kinds, [Kind::SpaceFree]);
}
