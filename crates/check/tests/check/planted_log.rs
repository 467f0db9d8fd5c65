//! One thing wrong with the intent log for each test: exactly that is found.

use crate::base::base;
use crate::fixture::{Random, check_all};
use crate::tamper::Image;
use marram_check::{FindingKind as Kind, Summary};
use marram_device::{Device, Error, MemoryDevice, Result};
use marram_format::key::{Key, kind};
use marram_format::log::{FRAME_HEADER_BYTES, FrameWriter, LogBlock, LogHead, PART_HEADER_BYTES};
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::pointer::{Extent, Place, Pointer};
use marram_format::version::feature;
use marram_pool::{OpenOptions, Pool};
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

const KEY: Key = Key::new(2, kind::SECTION, 0);

/// An image without frames, whose log can be written.
struct Log {
    image: Image,
    head: LogHead,
    /// Where the next frame goes.
    next: u64,
}

impl Log {
    fn new() -> Log {
        let image = base().image();
        let head = LogHead::from_pointer(image.superblock.intent_log.as_ref().unwrap()).unwrap();
        Log { next: head.start, image, head }
    }

    /// Writes another head into the superblock.
    fn edit_head(&mut self, edit: impl FnOnce(&mut LogHead)) {
        edit(&mut self.head);
        self.next = self.head.start;
        let pointer = self.head.to_pointer(self.image.superblock.group);
        self.image.superblock.intent_log = Some(pointer);
        self.image.write_superblock();
    }

    /// The frame that comes next, with edits of a dataset for the next freeze.
    fn frame(&self, dataset: u64, fill: impl FnOnce(&mut FrameWriter)) -> Vec<u8> {
        let mut writer = FrameWriter::new();
        writer.begin_part(self.head.included + 1, dataset);
        fill(&mut writer);
        let superblock = &self.image.superblock;
        writer.finish(&superblock.pool_id, superblock.secret, self.next)
    }

    /// Writes a frame into both copies; returns its position.
    fn append(&mut self, frame: &[u8]) -> u64 {
        let position = self.next;
        for grain in frame.chunks(4096) {
            for copy in 0..2 {
                let range = self.grain(copy, self.next);
                self.image.bytes[range].copy_from_slice(grain);
            }
            self.next += 1;
        }
        position
    }

    /// Appends a frame that puts an item of the root dataset.
    fn append_good(&mut self) -> u64 {
        let put = |writer: &mut FrameWriter| writer.put(KEY, b"value", LogBlock::None);
        self.append(&self.frame(self.image.record("root").id, put))
    }

    fn append_to_root(&mut self, fill: impl FnOnce(&mut FrameWriter)) {
        self.append(&self.frame(self.image.record("root").id, fill));
    }

    /// Where a position of a copy is in the image.
    fn grain(&self, copy: usize, position: u64) -> Range<usize> {
        let index = usize::try_from(position % u64::from(self.head.grains)).unwrap();
        let pieces = self.head.copies[copy].iter();
        let grain = pieces.flat_map(|piece| piece.start..piece.end()).nth(index).unwrap();
        let start = usize::try_from(grain * 4096).unwrap();
        start..start + 4096
    }

    fn damage(&mut self, copy: usize, position: u64) {
        let start = self.grain(copy, position).start;
        self.image.bytes[start + 60] ^= 1;
    }

    #[track_caller]
    fn assert_found(&self, expected: &[Kind]) -> Summary {
        self.image.assert_found(expected);
        check_all(&MemoryDevice::from_bytes(self.image.bytes.clone())).0
    }

    fn waiting(&self) -> (u64, u64) {
        let summary = self.assert_found(&[]);
        (summary.log_frames, summary.log_changes)
    }
}

#[test]
fn frames_that_wait_are_in_order_and_counted() {
    let mut log = Log::new();
    assert_eq!(log.waiting(), (0, 0));
    let pointer = log.image.record("root").root.unwrap().encode();
    log.append_good();
    log.append_to_root(|writer| {
        writer.put(Key::MIN, b"value", LogBlock::Stored(&pointer));
        writer.put(KEY, b"value", LogBlock::Content(&[1; 9000]));
        writer.put(Key::MAX, b"value", LogBlock::Earlier(0));
    });
    log.append_to_root(|writer| {
        writer.remove(Key::MIN);
        writer.patch(KEY, b"value", 100, &[2; 100]);
        writer.patch(Key::MAX, b"value", 100, &[2; 100]);
    });
    assert_eq!(log.waiting(), (3, 7));
}

#[test]
fn a_merge_waits_only_where_the_superblock_has_the_feature() {
    let mut log = Log::new();
    let (id, freeze) = (log.image.record("root").id, log.head.included + 1);
    let entry = OperationRecord {
        kept_until_seconds: 1,
        ..OperationRecord::of(OperationKind::Merge, id, &["root", "tx:1"])
    };
    log.append_to_root(|writer| {
        writer.begin_merge(freeze, &entry);
        writer.put(KEY, b"value", LogBlock::None);
    });
    log.assert_found(&[Kind::LogFrame]);
    log.image.superblock.features_incompatible |= feature::LOGGED_MERGES;
    log.image.write_superblock();
    assert_eq!(log.waiting(), (1, 1));
}

#[test]
fn what_the_superblock_includes_is_passed_over() {
    let mut log = Log::new();
    log.append(&log.frame(99, |writer| {
        writer.patch(KEY, b"value", 100, &[2; 100]);
    }));
    log.edit_head(|head| head.included += 1);
    assert_eq!(log.waiting(), (0, 0));
}

#[test]
fn a_ring_in_pieces_is_read_over_its_end() {
    let mut log = Log::new();
    log.edit_head(|head| {
        head.start = 7 * u64::from(head.grains) - 2;
        for copy in &mut head.copies {
            let whole = copy.remove(0);
            let first = Extent { grains: whole.grains - 1, ..whole };
            *copy = vec![Extent { start: first.end(), grains: 1, ..whole }, first];
        }
    });
    let long = vec![3; 5 * 4096];
    log.append_to_root(|writer| writer.put(KEY, b"value", LogBlock::Content(&long)));
    log.append_good();
    assert_eq!(log.waiting(), (2, 2));
}

#[test]
fn a_head_that_makes_no_sense() {
    let mut log = Log::new();
    let superblock = &mut log.image.superblock;
    let Place::Embedded(head) = &mut superblock.intent_log.as_mut().unwrap().place else {
        panic!("a head is embedded");
    };
    let mut bytes = head.to_vec();
    bytes[0] = 2;
    *head = bytes.into();
    log.image.write_superblock();
    log.assert_found(&[Kind::LogHead, Kind::Unchecked]);
}

#[test]
fn a_ring_where_none_can_be() {
    let mut log = Log::new();
    log.edit_head(|head| head.copies[1] = head.copies[0].clone());
    log.assert_found(&[Kind::SpaceDouble, Kind::SpaceLeak]);
    let mut log = Log::new();
    let grains = log.head.grains;
    let free = log.image.allocate(grains);
    log.edit_head(|head| head.copies[0] = vec![free]);
    log.assert_found(&[Kind::SpaceFree, Kind::SpaceLeak]);
    let mut log = Log::new();
    log.edit_head(|head| head.copies[1][0].device = 1);
    log.assert_found(&[Kind::ExtentRange, Kind::SpaceLeak]);
}

/// Changes a byte of a frame, and gives it the checksum that it should have then.
fn change_and_seal(frame: &mut [u8], at: usize, byte: u8, secret: u64) {
    frame[at] = byte;
    let len = usize::try_from(u32::from_le_bytes(frame[32..36].try_into().unwrap())).unwrap();
    frame[40..FRAME_HEADER_BYTES].fill(0);
    let checksum = xxh3_128_with_seed(&frame[..len], secret);
    frame[40..FRAME_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn frames_that_make_no_sense() {
    let mut log = Log::new();
    let mut frame = log.frame(1, |writer| writer.remove(KEY));
    let secret = log.image.superblock.secret;
    change_and_seal(&mut frame, FRAME_HEADER_BYTES + PART_HEADER_BYTES, 0xff, secret);
    log.append(&frame);
    log.append_good();
    assert_eq!(log.assert_found(&[Kind::LogFrame]).log_frames, 1);
    let mut log = Log::new();
    log.append_good();
    log.append_to_root(|writer| writer.patch(KEY, b"value", 0, &[1; 10]));
    log.assert_found(&[Kind::LogFrame]);
    let mut log = Log::new();
    log.append_to_root(|writer| writer.put(KEY, b"value", LogBlock::Content(&[1])));
    log.append_to_root(|writer| writer.remove(KEY));
    log.append_to_root(|writer| writer.patch(KEY, b"value", 0, &[1; 10]));
    log.assert_found(&[Kind::LogFrame]);
}

#[test]
fn frames_for_datasets_that_there_are_not() {
    let snapshot = base().image().record("other@one").id;
    for dataset in [99, 0, snapshot] {
        let mut log = Log::new();
        log.append(&log.frame(dataset, |writer| writer.remove(KEY)));
        log.append_good();
        log.assert_found(&[Kind::LogDataset]);
    }
}

#[test]
fn frames_that_lead_to_blocks_that_are_not_in_use() {
    let put = |log: &mut Log, pointer: &Pointer| {
        let pointer = pointer.encode();
        log.append_to_root(|writer| writer.put(KEY, b"value", LogBlock::Stored(&pointer)));
    };
    let mut log = Log::new();
    let free = log.image.write(&[5; 5000], 1);
    put(&mut log, &free);
    log.assert_found(&[Kind::LogBlock]);
    let mut log = Log::new();
    let mut far = log.image.record("root").root.unwrap();
    let Place::Stored { copies, .. } = &mut far.place else { panic!("a node is stored") };
    copies[1][0].start = 1 << 40;
    put(&mut log, &far);
    log.assert_found(&[Kind::LogBlock]);
    let mut log = Log::new();
    let mut young = log.image.record("root").root.unwrap();
    young.birth.0 = log.image.superblock.group.0 + 1;
    put(&mut log, &young);
    log.assert_found(&[Kind::PointerBirth]);
}

#[test]
fn a_bad_copy_before_a_later_frame_is_damage() {
    for copy in 0..2 {
        let mut log = Log::new();
        let first = log.append_good();
        log.append_good();
        log.damage(copy, first);
        assert_eq!(log.assert_found(&[Kind::LogCopy]).log_frames, 2);
    }
}

#[test]
fn bad_copies_of_the_last_frame_are_what_a_power_cut_leaves() {
    let mut log = Log::new();
    log.append_good();
    let last = log.append_good();
    log.damage(1, last);
    assert_eq!(log.waiting().0, 2);
    log.damage(0, last);
    assert_eq!(log.waiting().0, 1);
}

#[test]
fn a_lost_frame_before_a_later_one_is_damage() {
    for gap in 1..4 {
        let mut log = Log::new();
        let first = log.append_good();
        let lost: Vec<u64> = (0..gap).map(|_| log.append_good()).collect();
        let later = log.append_good();
        for position in lost {
            (0..2).for_each(|copy| log.damage(copy, position));
        }
        assert_eq!(log.assert_found(&[Kind::LogLost]).log_frames, 1);
        log.damage(0, later);
        log.assert_found(&[Kind::LogLost]);
        log.damage(0, first);
        log.assert_found(&[Kind::LogCopy, Kind::LogLost]);
        log.damage(1, later);
        assert_eq!(log.waiting().0, 1);
    }
}

/// A device that cannot read some grains.
struct Unreadable {
    memory: MemoryDevice,
    ranges: Vec<Range<usize>>,
}

impl Device for Unreadable {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn size(&self) -> Result<u64> {
        self.memory.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let start = usize::try_from(offset).unwrap();
        let end = start + buffer.len();
        if self.ranges.iter().any(|bad| bad.start < end && start < bad.end) {
            let (device, reason) = (self.name(), "scratched".to_owned());
            return Err(Error::Failed { device, action: "read", offset, len: 0, reason });
        }
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
}

/// It cannot be known whether a log ends where neither copy can be read.
#[test]
fn copies_that_cannot_be_read() {
    let mut log = Log::new();
    let first = log.append_good();
    let last = log.append_good();
    let found = |places: &[(usize, u64)]| {
        let memory = MemoryDevice::from_bytes(log.image.bytes.clone());
        let ranges = places.iter().map(|(copy, position)| log.grain(*copy, *position)).collect();
        let (_, findings) = check_all(&Unreadable { memory, ranges });
        let mut kinds: Vec<Kind> = findings.iter().map(|finding| finding.kind).collect();
        kinds.dedup();
        kinds
    };
    assert_eq!(found(&[(0, first)]), [Kind::LogCopy]);
    assert_eq!(found(&[(1, last)]), []);
    assert_eq!(found(&[(0, last), (1, last)]), [Kind::LogLost]);
    assert_eq!(found(&[(0, log.next)]), []);
    assert_eq!(found(&[(0, log.next), (1, log.next)]), [Kind::LogLost]);
}

/// What begins like a frame in many places does not make a check endless.
#[test]
fn what_only_begins_like_frames_ends_the_log() {
    let mut log = Log::new();
    log.append_good();
    let end = log.next;
    for _ in 0..log.head.grains - 2 {
        log.append_good();
    }
    for position in end..log.next {
        (0..2).for_each(|copy| log.damage(copy, position));
    }
    assert_eq!(log.waiting().0, 1);
}

/// With the secret, anyone can write frames that are believed. Whatever they say, verifier and
/// engine answer.
#[test]
fn hostile_frames_get_an_answer() {
    let mut random = Random::new(1);
    let pointer = base().image().record("root").root.unwrap().encode();
    let (mut clean, mut taken) = (0, 0);
    for round in 0..150 {
        let mut log = Log::new();
        log.append_to_root(|writer| {
            writer.put(KEY, b"value", LogBlock::Content(b"content"));
        });
        let mut frame = log.frame(log.image.record("root").id, |writer| {
            writer.remove(Key::MIN);
            writer.patch(KEY, b"value", 3, b"patch");
            let blocks = [LogBlock::None, LogBlock::Content(b"x"), LogBlock::Stored(&pointer)];
            writer.put(Key::MAX, b"value", blocks[round % 3]);
        });
        let len = u64::from(u32::from_le_bytes(frame[32..36].try_into().unwrap()));
        let secret = log.image.superblock.secret;
        for _ in 0..1 + random.below(2) {
            let at = FRAME_HEADER_BYTES as u64 - 20 + random.below(len + 20 - 56);
            let byte = if random.below(2) == 0 { 0 } else { random.next() as u8 };
            let at = usize::try_from(at).unwrap();
            change_and_seal(&mut frame, at, byte, secret);
        }
        log.append(&frame);
        clean += u32::from(log.image.check().is_empty());
        let memory: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(log.image.bytes));
        if let Ok(pool) = Pool::open(vec![memory], OpenOptions::new(|| 0)) {
            taken += u32::from(pool.commit().is_ok());
        }
    }
    assert!(clean > 10 && taken > 10, "{clean} {taken}");
}
