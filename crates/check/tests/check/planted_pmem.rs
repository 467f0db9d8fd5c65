//! Images of pmem homes: what the engine makes is clean, also in the middle of an operation, and
//! one thing that is wrong is found for what it is.

use crate::fixture::check_all;
use marram_check::{
    CheckOptions, Error as CheckError, Finding, FindingKind as Kind, check, check_image,
};
use marram_device::{Device, Error, MemoryDevice, Result};
use marram_pmem::memory::Memory;
use marram_pmem::memory::recorded::{Event, Recorded};
use marram_pmem::{NewImage, Pmem, PmemOptions, Which, make};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind as FileKind, Name, NewNode, RenameMode, Timestamp, WriteOptions,
    XattrMode,
};
use std::sync::OnceLock;

const BYTES: usize = 1 << 20;
const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: FileKind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
const KEPT: Which<'_> = Which { dataset: "root", snapshot: Some("kept") };
/// The slots in the order in which they were made.
const ROOT: usize = 12_288 + 256;
const SNAPSHOT: usize = ROOT + 256;
const CLONE: usize = ROOT + 512;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn open(medium: &Recorded) -> Pmem {
    Pmem::open(Memory::new(Box::new(medium.clone())), PmemOptions::default()).unwrap()
}

/// Inodes of the image, by number.
#[derive(Clone, Copy)]
struct Inodes {
    directory: u64,
    below: u64,
    file: u64,
    short: u64,
    long: u64,
}

/// An image with some of everything, closed, and its inodes.
fn base() -> &'static (Vec<u8>, Inodes) {
    static BASE: OnceLock<(Vec<u8>, Inodes)> = OnceLock::new();
    BASE.get_or_init(|| {
        let medium = Recorded::new(vec![0xa5; BYTES]);
        let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        let new = NewImage { id: [7; 16], label: "test".to_owned(), now, root_owner: USER };
        make(&mut Memory::new(Box::new(medium.clone())), &new).unwrap();
        let files = open(&medium);
        let make = |parent, text, node| files.create(USER, parent, name(text), node).unwrap().ino;
        let directory = make(Ino::ROOT, "d", DIRECTORY);
        let below = make(directory, "below", DIRECTORY);
        make(below, "x", FILE);
        let file = make(directory, "f", FILE);
        files.write(file, 0, &[5; 9000], WriteOptions::default()).unwrap();
        files.set_xattr(file, b"user.x", b"value", XattrMode::Any).unwrap();
        files.link(file, Ino::ROOT, name("a")).unwrap();
        let short = make(directory, "short", NewNode::Symlink { target: b"short" });
        let long = make(directory, "long", NewNode::Symlink { target: &[b'l'; 400] });
        files.snapshot("root", "kept").unwrap();
        files.clone_snapshot(KEPT, "clone").unwrap();
        files.write(file, 0, &[6; 100], WriteOptions::default()).unwrap();
        make(Ino::ROOT, "b", FILE);
        files.close().unwrap();
        let (directory, below, file, short, long) = (directory.0, below.0, file.0, short.0, long.0);
        (medium.image(), Inodes { directory, below, file, short, long })
    })
}

/// An image that is tampered with.
struct Image {
    bytes: Vec<u8>,
    inodes: Inodes,
}

impl Image {
    fn new() -> Image {
        let (bytes, inodes) = base().clone();
        Image { bytes, inodes }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    fn byte(&mut self, at: usize) -> &mut u8 {
        &mut self.bytes[at]
    }

    fn put(&mut self, at: usize, word: u64) {
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// The page of a tree at a place.
    fn page(&self, root: u64, place: u64) -> usize {
        let (mut at, height) = (root & !0xfff, root & 7);
        for level in (0..height).rev() {
            at = self.word(at as usize + (place >> (9 * level) & 511) as usize * 8);
        }
        assert_ne!(at, 0);
        at as usize
    }

    /// Where an inode of the root dataset lies.
    fn inode(&self, ino: u64) -> usize {
        self.page(self.word(ROOT + 8), ino / 32) + (ino % 32) as usize * 128
    }

    /// Where an entry lies.
    fn entry(&self, directory: u64, name: &[u8]) -> usize {
        let mut at = self.page(self.word(self.inode(directory) + 24), 0);
        loop {
            let word = self.word(at);
            assert_ne!(word & 0xff, 0, "{} is there", name.escape_ascii());
            let len = (word >> 8 & 0xff) as usize;
            if word >> 20 & 0xf == 1 && &self.bytes[at + 8..at + 8 + len] == name {
                return at;
            }
            at += (word & 0xff) as usize * 8;
        }
    }

    /// Where the file's node of pointers lies.
    fn node(&self) -> usize {
        let root = self.word(self.inode(self.inodes.file) + 24);
        assert_eq!(root & 0xfff, 1);
        (root & !0xfff) as usize
    }
}

/// What is found in an image after something was planted.
fn found(plant: impl FnOnce(&mut Image)) -> Vec<Kind> {
    let mut image = Image::new();
    plant(&mut image);
    let device = MemoryDevice::from_bytes(image.bytes);
    let (summary, findings) = check_all(&device);
    assert_eq!(summary.is_clean(), findings.is_empty());
    findings.iter().map(|finding| finding.kind).collect()
}

#[track_caller]
fn finds(kind: Kind, plant: impl FnOnce(&mut Image)) {
    let found = found(plant);
    assert!(found.contains(&kind), "{kind:?} is not among {found:?}");
}

#[test]
fn what_the_engine_makes_is_clean() {
    let (bytes, _) = base();
    let (summary, findings) = check_all(&MemoryDevice::from_bytes(bytes.clone()));
    assert!(findings.is_empty(), "{findings:?}");
    assert_eq!((summary.datasets, summary.snapshots, summary.label.as_str()), (2, 1, "test"));
    assert!(summary.files >= 5 && summary.directories >= 6 && summary.blocks > 5, "{summary:?}");
}

/// Stores of an operation, one after the other.
fn stores(events: &[Event]) -> impl Iterator<Item = (usize, &[u8])> {
    events.iter().filter_map(|event| match event {
        Event::Store { at, bytes } | Event::Fill { at, bytes } => Some((*at as usize, &bytes[..])),
        Event::Flush { .. } | Event::Fence | Event::WriteBack => None,
    })
}

#[test]
fn what_an_interrupted_operation_leaves_is_no_damage() {
    let changes: [fn(&Pmem, Inodes) -> marram_vfs::Result<()>; 7] = [
        |it, has| {
            let (from, to) = (Ino(has.directory), Ino::ROOT);
            it.rename(USER, from, name("below"), to, name("b"), RenameMode::Exchange)
        },
        |it, has| it.link(Ino(has.file), Ino(has.below), name("more")).map(drop),
        |it, _| it.unlink(Ino::ROOT, name("a")),
        |it, has| it.create(USER, Ino(has.directory), name("new"), DIRECTORY).map(drop),
        |it, has| it.write(Ino(has.file), 4090, &[9; 12], WriteOptions::default()),
        |it, _| it.roll_back("root", "kept", "before"),
        |it, _| it.destroy(&[Which { dataset: "clone", snapshot: None }], false).map(drop),
    ];
    let mut states = 0;
    for (which, change) in changes.iter().enumerate() {
        let (bytes, inodes) = base();
        let medium = Recorded::new(bytes.clone());
        let files = open(&medium);
        let mut image = medium.image();
        medium.start();
        change(&files, *inodes).unwrap();
        for (at, bytes) in stores(&medium.stop()) {
            image[at..at + bytes.len()].copy_from_slice(bytes);
            let (summary, findings) = check_all(&MemoryDevice::from_bytes(image.clone()));
            let bad = summary.errors + summary.fatal;
            assert_eq!(bad, 0, "change {which}, after a store at {at:#x}: {findings:?}");
            states += 1;
        }
    }
    assert!(states > 50, "{states}");
}

#[test]
fn the_header_and_records_are_looked_at() {
    finds(Kind::ImageHeader, |it| it.bytes[50] ^= 1);
    finds(Kind::ImageHeader, |it| it.put(520, 1 << 41));
    finds(Kind::ImageHeader, |it| it.bytes.extend([0; 4096]));
    finds(Kind::DeviceShort, |it| it.bytes.truncate(BYTES / 2));
    finds(Kind::InodeNumber, |it| it.put(520, 5));
    finds(Kind::ImageRecord, |it| it.bytes[4096] = 2);
    finds(Kind::ImageRecord, |it| it.put(4096, 1 | 1 << 16 | 77 << 32));
    finds(Kind::ImageRecord, |it| it.bytes[576] = 3);
    finds(Kind::ImageRecord, |it| {
        it.put(576, 1 | 2 << 8 | 0x0a03 << 24);
        it.put(584, 77);
    });
    let mut newer = Image::new();
    newer.bytes[8] += 1;
    let device = MemoryDevice::from_bytes(newer.bytes);
    let refused = check(&device, &CheckOptions::default(), &mut |_| {});
    assert!(matches!(refused, Err(CheckError::TooNew { .. })), "{refused:?}");
}

/// An open redo record with these words; what it says happens.
fn record(image: &mut Image, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes) & 0xffff_ffff;
    image.bytes[4104..4104 + bytes.len()].copy_from_slice(&bytes);
    image.put(4096, 1 | (words.len() as u64) << 16 | checksum << 32);
}

#[test]
fn a_redo_record_is_carried_out_or_found() {
    let (_, inodes) = base();
    assert!(
        found(|it| {
            let at = it.inode(inodes.file);
            let word = it.word(at);
            it.put(at, word & 0xffff_ffff | 9 << 32);
            record(it, &[at as u64 | 1 << 48, word]);
        })
        .is_empty()
    );
    finds(Kind::ImageRecord, |it| record(it, &[(BYTES as u64) | 1 << 48, 7]));
    finds(Kind::ImageRecord, |it| record(it, &[16_384 | 3 << 48, 7]));
    finds(Kind::ImageRecord, |it| record(it, &[16_385 | 1 << 48, 7]));
}

#[test]
fn slots_that_disagree_are_found() {
    finds(Kind::SlotMalformed, |it| it.bytes[CLONE] = 3);
    finds(Kind::SlotMalformed, |it| it.bytes[CLONE + 1] = 2);
    finds(Kind::SlotMalformed, |it| it.bytes[CLONE + 2] = 201);
    finds(Kind::SlotMalformed, |it| it.bytes[CLONE + 5] = 1);
    finds(Kind::SlotMalformed, |it| it.put(CLONE + 16, 0));
    finds(Kind::SlotMalformed, |it| it.put(CLONE + 40, 2));
    finds(Kind::SlotDouble, |it| it.put(CLONE + 16, it.word(ROOT + 16)));
    finds(Kind::SlotDouble, |it| {
        it.bytes[CLONE + 2] = 4;
        it.bytes[CLONE + 48..CLONE + 52].copy_from_slice(b"root");
    });
    finds(Kind::SlotOwner, |it| it.put(SNAPSHOT + 24, 0));
    finds(Kind::SlotOwner, |it| it.put(CLONE + 24, it.word(ROOT + 16)));
    finds(Kind::DatasetName, |it| it.bytes[CLONE + 49] = b'@');
    finds(Kind::DatasetName, |it| it.bytes[CLONE + 49] = 0xff);
    finds(Kind::RootMissing, |it| it.bytes[ROOT + 48] = b'R');
    finds(Kind::RootMissing, |it| it.put(ROOT + 8, 0));
    finds(Kind::RootPointer, |it| it.bytes[ROOT + 8] |= 8);
    finds(Kind::PointerRange, |it| it.put(12_288, 8192));
    finds(Kind::PageDouble, |it| it.put(12_288, it.word(ROOT + 8) & !0xfff));
}

#[test]
fn pointers_that_lead_elsewhere_are_found() {
    let (_, inodes) = base();
    finds(Kind::RootPointer, |it| *it.byte(it.inode(inodes.file) + 24) = 7);
    finds(Kind::RootPointer, |it| *it.byte(it.inode(inodes.file) + 24) = 0);
    for wild in [1 << 45, BYTES as u64, 8192, 20_488] {
        finds(Kind::PointerRange, |it| it.put(it.node(), wild));
    }
    finds(Kind::PageDouble, |it| it.put(it.node() + 8, it.word(it.node())));
    finds(Kind::PageDouble, |it| {
        let page = it.word(it.inode(1) + 24) & !0xfff;
        it.put(it.node() + 8, page);
    });
    // A page that is said to be free.
    finds(Kind::PageDouble, |it| {
        let (node, inode) = (it.node(), it.inode(inodes.file));
        let spare = (it.word(2048) & 0x7fff_ffff) as usize * 4096;
        assert!(spare != 0);
        it.bytes.copy_within(node..node + 4096, spare);
        it.put(inode + 24, spare as u64 | 1);
    });
    // A page of inodes that is content elsewhere.
    finds(Kind::PageDouble, |it| it.put(it.node(), it.inode(inodes.file) as u64 & !0xfff));
}

#[test]
fn inodes_that_make_no_sense_are_found() {
    let (_, inodes) = base();
    let inode = |it: &Image| it.inode(inodes.file);
    finds(Kind::InodeMalformed, |it| *it.byte(inode(it) + 1) = 0x70);
    finds(Kind::InodeMalformed, |it| *it.byte(inode(it) + 2) |= 4);
    finds(Kind::InodeMalformed, |it| *it.byte(inode(it) + 2) |= 2);
    finds(Kind::InodeMalformed, |it| *it.byte(inode(it) + 6) = 1);
    finds(Kind::InodeMalformed, |it| it.put(inode(it) + 16, 1 << 63));
    for time in 0..4 {
        finds(Kind::InodeMalformed, |it| it.put(inode(it) + 32 + time * 8, 0xffff << 16));
    }
    finds(Kind::LinkCount, |it| *it.byte(inode(it) + 4) += 1);
    finds(Kind::LinkCount, |it| *it.byte(it.inode(inodes.directory) + 4) -= 1);
    finds(Kind::DirectoryParent, |it| it.put(it.inode(inodes.directory) + 16, inodes.below));
    finds(Kind::DirectoryParent, |it| it.put(it.inode(1) + 16, inodes.below));
    finds(Kind::EntryDangling, |it| it.put(inode(it), it.word(inode(it)) & !0xffff));
    finds(Kind::SymlinkTarget, |it| it.put(it.inode(inodes.short) + 16, 0));
    finds(Kind::SymlinkTarget, |it| it.put(it.inode(inodes.short) + 16, 33));
    finds(Kind::SymlinkTarget, |it| *it.byte(it.inode(inodes.short) + 98) = 0);
    finds(Kind::SymlinkTarget, |it| it.put(it.inode(inodes.long) + 24, 0));
    finds(Kind::SymlinkTarget, |it| {
        let page = it.word(it.inode(inodes.long) + 24) as usize;
        it.bytes[page + 5] = 0;
    });
    let xattrs = |it: &Image| it.word(it.inode(inodes.file) + 64) as usize;
    finds(Kind::XattrMalformed, |it| it.put(xattrs(it), 1 << 40));
    finds(Kind::XattrMalformed, |it| *it.byte(xattrs(it)) += 1);
    finds(Kind::XattrMalformed, |it| *it.byte(xattrs(it) + 8) = 0);
    finds(Kind::XattrMalformed, |it| *it.byte(xattrs(it) + 12) += 1);
    finds(Kind::XattrMalformed, |it| *it.byte(xattrs(it) + 17) = 0);
    finds(Kind::XattrMalformed, |it| it.put(it.inode(inodes.file) + 64, 0));
}

#[test]
fn directories_that_are_wrong_are_found() {
    let (_, inodes) = base();
    let entry = |it: &Image, name: &[u8]| it.entry(inodes.directory, name);
    finds(Kind::EntryMalformed, |it| *it.byte(entry(it, b"f")) = 1);
    finds(Kind::EntryMalformed, |it| *it.byte(entry(it, b"f")) = 255);
    finds(Kind::EntryMalformed, |it| *it.byte(entry(it, b"f") + 1) = 0);
    finds(Kind::EntryMalformed, |it| *it.byte(entry(it, b"f") + 1) = 9);
    finds(Kind::EntryMalformed, |it| *it.byte(entry(it, b"f") + 2) = 0x28);
    finds(Kind::EntryKind, |it| *it.byte(entry(it, b"f") + 2) = 0x14);
    finds(Kind::EntryDangling, |it| *it.byte(entry(it, b"f") + 4) = 9);
    finds(Kind::EntryName, |it| *it.byte(entry(it, b"f") + 8) = b'/');
    finds(Kind::EntryName, |it| *it.byte(entry(it, b"f") + 8) = b'.');
    finds(Kind::NameDuplicate, |it| *it.byte(it.entry(1, b"b") + 8) = b'a');
    finds(Kind::LinkCount, |it| *it.byte(entry(it, b"f") + 2) = 8);
    finds(Kind::InodeNameless, |it| *it.byte(it.entry(1, b"b") + 2) = 8);
    finds(Kind::InodeUnreachable, |it| *it.byte(it.entry(1, b"d") + 2) = 4);
    finds(Kind::DirectoryLoop, |it| {
        let (into, out) = (it.entry(inodes.below, b"x"), it.entry(1, b"d"));
        it.bytes[out + 2] = 4;
        let word = it.word(into) & 0xffff;
        it.put(into, word | 0x14 << 16 | inodes.directory << 24);
    });
}

#[test]
fn an_image_that_was_not_closed_is_looked_at_by_its_checkpoint() {
    let medium = Recorded::unordered(base().0.clone(), 5);
    let files = open(&medium);
    files.checkpoint().unwrap();
    files.create(USER, Ino::ROOT, name("later"), FILE).unwrap();
    drop(files);
    let whole = medium.image();
    let mut image = whole.clone();
    let found = |image: &[u8], host: Option<u64>| {
        let device = MemoryDevice::from_bytes(image.to_vec());
        let (options, mut kinds) = (CheckOptions::default(), Vec::new());
        let mut tell = |finding: Finding| kinds.push(finding.kind);
        check_image(&device, &options, host, &mut tell).unwrap();
        kinds
    };
    assert_eq!((found(&image, Some(5)), found(&image, None)), (vec![], vec![]));
    // The live slots are torn: the run in which they were right is over.
    image[ROOT + 16..ROOT + 24].fill(0xff);
    assert!(found(&image, Some(5)).contains(&Kind::SlotMalformed));
    assert_eq!((found(&image, Some(6)), found(&image, None)), (vec![], vec![]));
    image[1024..2048].fill(0);
    assert_eq!(found(&image, Some(6)), [Kind::ImageRecord]);

    // While the live state is right, the checkpoint is what a power cut would leave.
    let place = if whole[1024..1032] == [0; 8] { 1536 } else { 1024 };
    let slots = u64::from_le_bytes(whole[place + 16..place + 24].try_into().unwrap()) as usize;
    let mut image = whole.clone();
    image[slots + 256] = 3;
    let kinds = [Kind::SlotMalformed, Kind::SlotOwner, Kind::RootMissing];
    for host in [Some(5), Some(6)] {
        assert_eq!(found(&image, host), kinds, "{host:?}");
    }
    // One in the place of the other is none.
    let mut image = whole.clone();
    let other = 1024 + 1536 - place;
    image.copy_within(place..place + 32, other);
    image[place..place + 32].fill(0);
    for host in [Some(5), Some(6)] {
        assert_eq!(found(&image, host), [Kind::ImageRecord], "{host:?}");
    }
}

#[test]
fn intents_that_lead_nowhere_are_found() {
    for word in [!0xfff, !0xff, 8, BYTES as u64] {
        finds(Kind::ImageRecord, |it| {
            let entry = it.entry(1, b"d");
            it.put(576, 1 | 3 << 8 | (entry as u64 / 8) << 24);
            it.put(584, ROOT as u64);
            let node = BYTES - 4096;
            (node..BYTES).step_by(8).for_each(|at| it.put(at, word));
            it.put(ROOT + 8, node as u64 | 1);
        });
    }
}

/// A device of which some bytes cannot be read.
struct Broken {
    device: MemoryDevice,
    at: u64,
}

impl Device for Broken {
    fn name(&self) -> String {
        "broken".to_owned()
    }

    fn size(&self) -> Result<u64> {
        self.device.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if (offset..offset + buffer.len() as u64).contains(&self.at) {
            let (device, reason) = (self.name(), "poisoned".to_owned());
            return Err(Error::Unusable { device, reason });
        }
        self.device.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.device.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.device.discard(offset, len)
    }
}

#[test]
fn pages_that_cannot_be_read_are_found() {
    let image = Image::new();
    let content = image.word(image.node());
    let inodes = image.inode(image.inodes.file) as u64;
    for (at, read_data, is_found) in
        [(content, false, false), (content, true, true), (inodes, false, true), (4096, true, true)]
    {
        let device = Broken { device: MemoryDevice::from_bytes(image.bytes.clone()), at };
        let (options, mut kinds) = (CheckOptions { read_data, snapshots: true }, Vec::new());
        check(&device, &options, &mut |finding: Finding| kinds.push(finding.kind)).unwrap();
        assert_eq!(kinds.contains(&Kind::PageUnreadable), is_found, "{at:#x}: {kinds:?}");
    }
}

#[test]
fn snapshots_can_be_passed_over() {
    let mut image = Image::new();
    // The file as the snapshot and the clone have it, before it was written to.
    let table = image.page(image.word(SNAPSHOT + 8), image.inodes.file / 32);
    let at = table + (image.inodes.file % 32) as usize * 128;
    image.put(at + 16, 1 << 63);
    image.bytes[CLONE] = 2;
    let device = MemoryDevice::from_bytes(image.bytes);
    for (snapshots, is_found) in [(true, true), (false, false)] {
        let (options, mut kinds) = (CheckOptions { read_data: false, snapshots }, Vec::new());
        check(&device, &options, &mut |finding: Finding| kinds.push(finding.kind)).unwrap();
        assert_eq!(kinds.contains(&Kind::InodeMalformed), is_found, "{kinds:?}");
    }
}
