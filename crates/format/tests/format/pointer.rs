//! What is wrong with bad block pointers, and how much good ones take.

use crate::example;
use marram_format::pointer::{Extent, POINTER_BYTES_MAX, Place, Pointer, can_be_scattered};
use marram_format::space::ZONE_GRAINS;

fn error_with(at: usize, bytes: &[u8]) -> String {
    let mut pointer = example::pointer_stored().encode().to_vec();
    pointer[at..at + bytes.len()].copy_from_slice(bytes);
    Pointer::decode(&pointer).expect_err("it is out of range").to_string()
}

#[test]
fn each_field_out_of_range_is_named() {
    let cases: [(usize, &[u8], &str); 9] = [
        (0, &[0x21], "layout at byte 0 is 33, expected 0x10 to 0x12"),
        (1, &[6], "codec at byte 1 is 6, expected 0 to 5"),
        (2, &[4], "flags at byte 2 is 4, expected known flags only"),
        (15, &[2], "logical length at byte 12 is 33587200, expected at most 2^24"),
        (20, &[3], "checksum kind at byte 20 is 3, expected 0, 1 or 2"),
        (21, &[4], "number of copies at byte 21 is 4, expected 1 to 3"),
        (38, &[17], "number of pieces at byte 38 is 17, expected 1 to 16"),
        (47, &[0], "grains of an extent at byte 47 is 0, expected at least 1"),
        (39, &[0xfe, 0x3f], "at byte 47 is 3, expected no more than are left in its zone"),
    ];
    for (at, bytes, expected) in cases {
        let found = error_with(at, bytes);
        assert!(found.starts_with("block pointer: "), "{found}");
        assert!(found.ends_with(expected), "{found}");
    }
}

#[test]
fn what_is_wrong_with_a_scattered_block_is_named() {
    let cases: [(usize, &[u8], &str); 6] = [
        (21, &[2], "copies of a scattered block at byte 21 is 2, expected 1"),
        (
            39,
            &[1],
            "zone of a run at byte 39 is 65537, expected the first grain of a zone, \
             another than before",
        ),
        (
            97,
            &[0, 1],
            "zone of a run at byte 96 is 65536, expected the first grain of a zone, \
             another than before",
        ),
        (
            48,
            &[0, 0x80],
            "grains of a piece at byte 48 is 1, expected no more than are left in its zone",
        ),
        (
            110,
            &[1],
            "grains of a piece at byte 108 is 2, expected no more than are left in its zone",
        ),
        (
            16,
            &[1, 0x30, 1, 0],
            "pieces of a copy at byte 38 is 19, \
             expected as many grains as the physical length takes",
        ),
    ];
    let good = example::pointer_scattered().encode().to_vec();
    for (at, bytes, expected) in cases {
        let mut pointer = good.clone();
        pointer[at..at + bytes.len()].copy_from_slice(bytes);
        let found = Pointer::decode(&pointer).expect_err("it is out of range").to_string();
        assert_eq!(found, format!("block pointer: {expected}"));
    }
    for end in 0..good.len() {
        assert!(Pointer::decode(&good[..end]).is_err(), "{end} bytes of {}", good.len());
    }
}

#[test]
fn a_block_can_lie_in_as_many_pieces_as_its_pointer_can_tell() {
    let piece = |number: u64| Extent { device: 0, start: number, grains: 1 };
    let spread = |count: u64, zones: u64| -> Vec<Extent> {
        let mut pieces: Vec<Extent> =
            (0..count).map(|number| piece(number % zones * ZONE_GRAINS + 2 * number)).collect();
        pieces.sort_by_key(|piece| piece.start);
        pieces
    };
    assert!(can_be_scattered(&spread(256, 1)) && can_be_scattered(&spread(256, 20)));
    assert!(!can_be_scattered(&spread(257, 1)) && !can_be_scattered(&spread(256, 30)));
    assert!(!can_be_scattered(&[Extent { grains: 257, ..piece(0) }]));
    let mut pointer = example::pointer_scattered();
    pointer.physical_len = 256 * 4096;
    pointer.place =
        Place::Stored { checksum: example::longest_checksum(), copies: vec![spread(256, 20)] };
    assert!(pointer.encode().len() <= POINTER_BYTES_MAX);
}

#[test]
fn a_copy_is_as_long_as_the_block() {
    assert_eq!(
        error_with(16, &[1, 0x30, 0, 0]),
        "block pointer: pieces of a copy at byte 38 is 3, \
         expected as many grains as the physical length takes"
    );
}

#[test]
fn common_pointers_are_short() {
    let mut pointer = example::pointer_stored();
    assert_eq!(pointer.encode().len(), 64);
    let Place::Stored { copies, .. } = &mut pointer.place else {
        panic!("the example is stored");
    };
    copies.pop();
    assert_eq!(pointer.encode().len(), 51);
    assert_eq!(POINTER_BYTES_MAX, 1044);
}

#[test]
fn a_stored_block_is_known_by_its_first_extent() {
    assert_eq!(example::pointer_stored().address(), Some(0x1234));
    assert_eq!(example::pointer_stored().grains(), 6);
    assert_eq!(example::pointer_embedded().address(), None);
    assert_eq!(example::pointer_embedded().grains(), 0);
}
