//! What a superblock says when it cannot be used.

use crate::example;
use marram_format::FormatError;
use marram_format::group::Group;
use marram_format::pointer::{PIECES_MAX, Place, Pointer};
use marram_format::superblock::{DATA_START_BYTES, DEVICES_MAX, RING_OFFSETS, RING_SLOTS};
use marram_format::superblock::{SUPERBLOCK_BYTES, Superblock, slot_offset};
use marram_format::version::{FormatVersion, feature};

fn error_of(superblock: &Superblock) -> FormatError {
    Superblock::decode(&superblock.encode()).expect_err("it cannot be used")
}

#[test]
fn a_slot_that_was_never_written_is_blank() {
    let error = Superblock::decode(&[0; SUPERBLOCK_BYTES]).unwrap_err();
    assert_eq!(error, FormatError::Blank { what: "superblock" });
}

#[test]
fn something_else_is_foreign() {
    let error = Superblock::decode(&[0xeb; SUPERBLOCK_BYTES]).unwrap_err();
    assert!(matches!(error, FormatError::Foreign { .. }), "{error}");
    let error = Superblock::decode(&example::signature().encode()).unwrap_err();
    assert!(matches!(error, FormatError::Foreign { .. }), "{error}");
}

#[test]
fn a_torn_slot_fails_its_checksum() {
    let old = example::superblock();
    let mut new = old.clone();
    new.group = Group(old.group.0 + RING_SLOTS);
    let mut bytes = new.encode();
    bytes[512..].copy_from_slice(&old.encode()[512..]);
    let error = Superblock::decode(&bytes).unwrap_err();
    assert!(matches!(error, FormatError::Checksum { .. }), "{error}");
}

#[test]
fn a_newer_version_is_named() {
    let mut superblock = example::superblock();
    superblock.version = FormatVersion { major: 2, minor: 3 };
    assert_eq!(
        error_of(&superblock).to_string(),
        "superblock has format version 2.3; this program reads up to 1.6: use a newer"
    );
}

#[test]
fn a_later_minor_version_is_read() {
    let mut superblock = example::superblock();
    superblock.version = FormatVersion { major: 1, minor: 9 };
    assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock.clone()));
}

#[test]
fn unknown_incompatible_features_are_named() {
    let mut superblock = example::superblock();
    superblock.features_incompatible = feature::ENCRYPTION | 1 << 40;
    assert_eq!(
        error_of(&superblock).to_string(),
        "superblock uses features unknown to this program: encryption, bit 40: use a newer one"
    );
}

#[test]
fn unknown_read_compatible_features_stand_in_the_way_of_writing_alone() {
    let mut superblock = example::superblock();
    assert_eq!(superblock.write_obstacle(), None);
    superblock.features_read_compatible = 1 << 40;
    let read = Superblock::decode(&superblock.encode()).unwrap();
    assert_eq!(read.write_obstacle(), Some("bit 40".to_owned()));
}

#[test]
fn the_largest_superblock_fits_into_a_slot() {
    let mut pointer = example::pointer_pieces();
    pointer.physical_len = 4096 * u32::try_from(PIECES_MAX).unwrap();
    let Place::Stored { copies, .. } = &mut pointer.place else {
        panic!("the example is stored");
    };
    let mut piece = copies[0][0];
    piece.grains = 1;
    *copies = vec![vec![piece; PIECES_MAX]; 3];
    let mut superblock = example::superblock();
    superblock.label = "x".repeat(64);
    superblock.devices = vec![superblock.devices[0].clone(); DEVICES_MAX];
    superblock.pool_tree = Some(pointer.clone());
    superblock.tail = Some(embedded_1024());
    superblock.intent_log = Some(embedded_1024());
    assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock.clone()));
}

fn embedded_1024() -> Pointer {
    let mut pointer = example::pointer_embedded();
    pointer.physical_len = 1024;
    pointer.place = Place::Embedded(vec![3; 1024].into());
    pointer
}

#[test]
fn the_slots_of_the_rings_do_not_overlap() {
    let end_of = |ring| slot_offset(ring, Group(RING_SLOTS - 1)) + SUPERBLOCK_BYTES as u64;
    assert_eq!(slot_offset(0, Group(RING_SLOTS)), RING_OFFSETS[0]);
    assert_eq!(slot_offset(1, Group(65)), RING_OFFSETS[1] + 4096);
    assert!(end_of(0) <= RING_OFFSETS[1]);
    assert!(end_of(1) <= DATA_START_BYTES);
}
