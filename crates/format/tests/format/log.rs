//! The intent log: what is a frame, what ends the log, and what is an error.

use crate::example::{self, POOL_ID, POSITION, SECRET};
use crate::strategy;
use marram_format::FormatError;
use marram_format::group::Group;
use marram_format::key::Key;
use marram_format::log::{EDIT_OVERHEAD_BYTES_MAX, FRAME_BYTES_MAX, FRAME_HEADER_BYTES};
use marram_format::log::{FrameWriter, LogBlock, LogEdit, LogHead, LogPart, PART_HEADER_BYTES};
use marram_format::log::{decode_frame, frame_header};
use marram_format::operation::OperationRecord;
use marram_format::pointer::{Place, Pointer, PointerFlags};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_128_with_seed;

fn decode(bytes: &[u8]) -> Option<Result<Vec<LogPart<'_>>, FormatError>> {
    decode_frame(bytes, &POOL_ID, SECRET, POSITION)
}

fn frame_bytes() -> Vec<u8> {
    example::encode_frame(&example::frame())
}

fn len_of(frame: &[u8]) -> usize {
    let header = frame_header(frame, &POOL_ID, POSITION).expect("a frame begins here");
    header.len_bytes as usize
}

fn key(offset: u64) -> Key {
    Key::new(0, 0, offset)
}

/// Gives a frame the checksum that it should have.
fn seal(frame: &mut [u8]) {
    let len = len_of(frame).min(frame.len());
    frame[40..FRAME_HEADER_BYTES].fill(0);
    let checksum = xxh3_128_with_seed(&frame[..len], SECRET);
    frame[40..FRAME_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn a_frame_fills_whole_grains_and_says_how_long_it_is() {
    let frame = frame_bytes();
    assert_eq!(frame.len(), 4096);
    let len = len_of(&frame);
    assert!(frame[len..].iter().all(|byte| *byte == 0));
    assert_eq!(decode(&frame), Some(Ok(example::frame())));
    assert_eq!(decode(&frame[..len]), Some(Ok(example::frame())));
}

#[test]
fn what_is_not_the_next_frame_ends_the_log() {
    let frame = frame_bytes();
    let other_pool = decode_frame(&frame, &[1; 16], SECRET, POSITION);
    let other_secret = decode_frame(&frame, &POOL_ID, SECRET + 1, POSITION);
    let other_position = decode_frame(&frame, &POOL_ID, SECRET, POSITION + 64);
    assert_eq!((other_pool, other_secret, other_position), (None, None, None));
    assert_eq!(decode(&[0; 4096]), None);
    assert_eq!(decode(&[0xa5; 4096]), None);
    assert_eq!(frame_header(&[], &POOL_ID, POSITION), None);
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let frame = frame_bytes();
    let len = len_of(&frame);
    for cut in 0..len {
        assert_eq!(decode(&frame[..cut]), None, "cut to {cut} bytes");
    }
    for bit in 0..len * 8 {
        let mut frame = frame.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decode(&frame), None, "bit {bit}");
    }
}

#[test]
fn the_length_of_a_frame_is_in_bounds() {
    for len in [0, FRAME_HEADER_BYTES as u32 - 1, FRAME_BYTES_MAX as u32 + 1, u32::MAX] {
        let mut frame = frame_bytes();
        frame[32..36].copy_from_slice(&len.to_le_bytes());
        assert_eq!(frame_header(&frame, &POOL_ID, POSITION), None, "{len}");
    }
}

/// The error of the example with other bytes at one place and the checksum mended.
fn error_with(at: usize, bytes: &[u8]) -> String {
    let mut frame = frame_bytes();
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&mut frame);
    decode(&frame).expect("the checksum is right").expect_err("it is malformed").to_string()
}

#[test]
fn a_malformed_frame_of_the_right_checksum_is_an_error() {
    const MANY: [u8; 4] = [255; 4];
    let cases: [(usize, &[u8], &str); 15] = [
        (36, &[1], "ends at byte"),
        (81, &[1], "key of edit 1 at byte 101 is not greater than the one before"),
        (36, &[3], "is cut short: freeze of a part at byte"),
        (63, &[0x40], "freeze of a part at byte 56 is 4611686018427388912, expected less than"),
        (71, &[0x40], "dataset of a part at byte 64 is"),
        (72, &[0], "number of edits at byte 72 is 0, expected at least 1"),
        (76, &[9], "bytes of a part at byte 76 is 9, expected as many as are there"),
        (80, &[6], "kind of an edit at byte 80 is 6, expected 0 to 5"),
        (99, &[0x11], "length of a value at byte 98 is 4353, expected at most 4096"),
        (123, &[21], "block pointer is cut short"),
        (171, &[17], "length of a block at byte 169 is 1114117, expected 1 to 2^20"),
        (169, &[0], "length of a block at byte 169 is 0, expected 1 to 2^20"),
        (200, &[1], "number of an earlier block at byte 200 is 1, expected that of a block before"),
        (226, &[0, 0, 16, 0], "end of a patch at byte 226 is 1048581, expected at most 2^20"),
        (230, &MANY, "end of a patch at byte"),
    ];
    for (at, bytes, expected) in cases {
        let found = error_with(at, bytes);
        assert!(found.contains(expected), "{at}: {found}");
    }
}

#[test]
fn a_merge_is_in_a_frame_with_its_entry() {
    let parts = example::merge_frame();
    let frame = example::encode_frame(&parts);
    assert_eq!(decode(&frame), Some(Ok(parts.clone())));
    let entry = parts[1].merge.clone().expect("the second part is a merge");
    let at = frame.windows(12).position(|it| it == &entry.encode()[..12]).expect("it is there");
    // Its kind, its subject, the length before it, and what only a commit can know.
    let cases: [(usize, u8, &str); 7] = [
        (at + 1, 1, "entry of a merge at byte"),
        (at + 32, 2, "is 2, expected that of a merge into the dataset of its part"),
        (at - 2, 90, "entry of the log of operations is cut short"),
        (at + 16, 1, "group of a merge at byte"),
        (at + 24, 1, "entry taken back by a merge at byte"),
        (at + 48, 1, "state before a merge at byte"),
        (at + 56, 1, "state after a merge at byte"),
    ];
    for (at, byte, expected) in cases {
        let mut frame = frame.clone();
        frame[at] = byte;
        seal(&mut frame);
        let found = decode(&frame).expect("the checksum is right").expect_err("it is malformed");
        assert!(found.to_string().contains(expected), "{at}: {found}");
    }
}

#[test]
#[should_panic(expected = "an undo of it is possible for a time")]
fn a_writer_refuses_a_merge_without_an_end_of_its_undo() {
    let entry = example::merge_frame()[1].merge.clone().expect("the second part is a merge");
    let seconds = entry.kept_until_seconds;
    FrameWriter::new().begin_merge(1, &OperationRecord { seconds, ..entry });
}

#[test]
fn parts_without_edits_are_not_written() {
    let mut writer = FrameWriter::new();
    writer.begin_part(1, 1);
    writer.begin_part(2, 2);
    assert!(writer.is_empty());
    assert_eq!(writer.len_bytes(), FRAME_HEADER_BYTES);
    writer.remove(Key::MIN);
    assert!(!writer.is_empty());
    assert_eq!(writer.len_bytes(), FRAME_HEADER_BYTES + PART_HEADER_BYTES + 18);
    writer.begin_part(3, 3);
    let frame = writer.finish(&POOL_ID, SECRET, POSITION);
    let edits = vec![LogEdit::Remove { key: Key::MIN }];
    assert_eq!(
        decode(&frame),
        Some(Ok(vec![LogPart { freeze: 2, dataset: 2, merge: None, edits }]))
    );
    let empty = FrameWriter::new().finish(&POOL_ID, SECRET, POSITION);
    assert_eq!(decode(&empty), Some(Ok(Vec::new())));
}

#[test]
fn an_edit_takes_no_more_than_is_said() {
    let mut writer = FrameWriter::new();
    writer.begin_part(1, 1);
    writer.put(Key::MIN, &[], LogBlock::Content(&[1]));
    let mut before = writer.len_bytes();
    let mut took = |writer: &FrameWriter, payload: usize| {
        let overhead = writer.len_bytes() - before - payload;
        before = writer.len_bytes();
        overhead
    };
    writer.put(key(1), &[1; 9], LogBlock::None);
    assert_eq!(took(&writer, 9), 20);
    writer.put(key(2), &[1; 9], LogBlock::Content(&[2; 7]));
    assert_eq!(took(&writer, 16), 24);
    writer.put(key(3), &[], LogBlock::Earlier(1));
    assert_eq!(took(&writer, 0), 24);
    writer.patch(key(4), &[1; 4096], (1 << 20) - 3, &[1; 3]);
    assert_eq!(took(&writer, 4099), EDIT_OVERHEAD_BYTES_MAX);
}

#[test]
#[should_panic(expected = "block 1 of 1 came before")]
fn a_writer_refuses_a_block_that_is_not_there() {
    let mut writer = FrameWriter::new();
    writer.begin_part(1, 1);
    writer.put(Key::MIN, &[], LogBlock::Content(&[1]));
    writer.put(key(1), &[], LogBlock::Earlier(1));
}

#[test]
#[should_panic(expected = "the keys of a part ascend")]
fn a_writer_refuses_two_edits_of_a_key() {
    let mut writer = FrameWriter::new();
    writer.begin_part(1, 1);
    writer.remove(key(1));
    writer.remove(key(1));
}

#[test]
fn blocks_are_counted_in_each_part_anew() {
    let mut parts = example::frame();
    let earlier = LogEdit::Put { key: key(1), value: b"", block: LogBlock::Earlier(0) };
    parts[0].edits.truncate(4);
    let mut frame = example::encode_frame(&parts);
    assert_eq!(decode(&frame), Some(Ok(parts.clone())));
    parts[1].edits =
        vec![LogEdit::Put { key: Key::MIN, value: b"", block: LogBlock::Content(b"x") }];
    parts[1].edits.push(earlier);
    frame = example::encode_frame(&parts);
    assert_eq!(decode(&frame), Some(Ok(parts)));
}

fn head_error(change: impl FnOnce(&mut Pointer)) -> String {
    let mut pointer = example::log_head().to_pointer(Group(1003));
    change(&mut pointer);
    LogHead::from_pointer(&pointer).expect_err("it is no head").to_string()
}

/// Changes the content of the pointer.
fn content(pointer: &mut Pointer, change: impl FnOnce(&mut Vec<u8>)) {
    let Place::Embedded(bytes) = &mut pointer.place else { panic!("a head is embedded") };
    let mut changed = bytes.to_vec();
    change(&mut changed);
    *bytes = changed.into();
}

#[test]
fn each_field_of_a_head_out_of_range_is_named() {
    let with = |at: usize, byte: u8| head_error(|pointer| content(pointer, |head| head[at] = byte));
    let what = |text: &str| format!("head of the intent log: {text}");
    assert_eq!(with(0, 2), what("layout at byte 0 is 2, expected 1"));
    assert_eq!(with(2, 1), what("reserved bytes at byte 2 is 1, expected 0"));
    assert_eq!(with(4, 0), what("grains of the ring at byte 4 is 0, expected at least 1"));
    assert!(with(15, 1).contains("start at byte 8 is"));
    assert!(with(23, 0x40).contains("included freeze at byte 16 is"));
    assert_eq!(with(24, 0), what("number of pieces at byte 24 is 0, expected 1 to 16"));
    assert_eq!(with(24, 17), what("number of pieces at byte 24 is 17, expected 1 to 16"));
    let expected =
        what("pieces of a copy at byte 24 is 64, expected as many grains as the ring has");
    assert_eq!(with(4, 65), expected);
    let longer = head_error(|pointer| content(pointer, |head| head.push(0)));
    assert!(longer.contains("1 bytes follow"), "{longer}");
}

#[test]
fn another_pointer_is_no_head() {
    let stored = example::pointer_stored();
    assert!(head_error(|pointer| *pointer = stored).contains("layout of its pointer"));
    assert!(head_error(|pointer| pointer.codec = 1).contains("codec of its pointer"));
    assert!(head_error(|pointer| pointer.logical_len += 1).contains("logical length"));
    let flags = head_error(|pointer| pointer.flags = PointerFlags::default());
    assert!(flags.contains("flags of its pointer at byte 2 is 0, expected 2"), "{flags}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn heads(head in strategy::log_head(), birth: u64) {
        let pointer = head.to_pointer(Group(birth));
        prop_assert_eq!(Pointer::decode(&pointer.encode()), Ok(pointer.clone()));
        prop_assert_eq!(LogHead::from_pointer(&pointer), Ok(head));
    }

    #[test]
    fn sealed_noise_in_a_frame_never_panics(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut frame = frame_bytes();
        let len = len_of(&frame);
        for (place, value) in changes {
            frame[36 + place.index(len - 36)] = value;
        }
        seal(&mut frame);
        if let Some(Ok(parts)) = decode(&frame) {
            prop_assert_eq!(example::encode_frame(&parts), frame);
        }
    }
}
