//! Images that make no sense: a mount refuses them or shows what is left, and never panics or
//! hangs.

use crate::images::{Cut, ROOT_USER, new_image, open};
use marram_pmem::memory::Memory;
use marram_pmem::memory::recorded::Recorded;
use marram_pmem::{ImageError, Pmem, PmemOptions, Which};
use marram_sim::Random;
use marram_vfs::{
    Clock, FileSystem, Ino, Kind, Name, NewNode, SteppedClock, WriteOptions, XattrMode,
};
use std::sync::Arc;

const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

const KEPT: Which<'_> = Which { dataset: "root", snapshot: Some("kept") };
const CLONE: Which<'_> = Which { dataset: "clone", snapshot: None };

/// An image with some of everything, in its first pages.
fn image() -> Vec<u8> {
    let clock: Arc<dyn Clock> = Arc::new(Cut(Arc::new(SteppedClock::default())));
    let medium = new_image(1 << 20, &*clock);
    let files = open(&medium, clock);
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    let make = |parent, text, node| files.create(ROOT_USER, parent, name(text), node).unwrap().ino;
    let directory = make(Ino::ROOT, "d", NewNode::Directory { permissions: 0o755 });
    let file = make(directory, "f", FILE);
    files.write(file, 3000, &[5; 9000], WriteOptions::default()).unwrap();
    files.set_xattr(file, b"user.x", b"value", XattrMode::Any).unwrap();
    files.link(file, Ino::ROOT, name("again")).unwrap();
    make(directory, "short", NewNode::Symlink { target: b"short" });
    make(directory, "long", NewNode::Symlink { target: &[b'l'; 400] });
    files.snapshot("root", "kept").unwrap();
    files.clone_snapshot(KEPT, "clone").unwrap();
    files.write(file, 0, &[6; 100], WriteOptions::default()).unwrap();
    make(directory, "later", FILE);
    medium.image()
}

/// Uses all that is found in a dataset or snapshot.
fn use_all(files: &Pmem) {
    let mut left = vec![Ino::ROOT];
    while let Some(ino) = left.pop() {
        let mut found = Vec::new();
        // What is refused is refused: nothing here may panic.
        let _listed = files.read_directory(ino, 0, false, &mut |entry| {
            found.push((entry.name.to_vec(), entry.ino, entry.kind));
            true
        });
        for (name, below, kind) in found {
            let _ = (files.attributes(below), files.read_link(below), files.list_xattrs(below));
            let _read = files.read(below, 0, 20_000, &mut Vec::new());
            let _written = files.write(below, 4000, &[1; 300], WriteOptions::default());
            let _removed = Name::new(&name).map(|name| files.unlink(ino, name));
            if kind == Kind::Directory {
                left.push(below);
            }
        }
    }
    let _made = files.create(ROOT_USER, Ino::ROOT, Name::new(b"new").unwrap(), FILE);
}

/// Opens an image and uses all that is found; whether it could be opened.
fn is_used(image: Vec<u8>) -> bool {
    let memory = Memory::new(Box::new(Recorded::new(image)));
    let Ok(files) = Pmem::open(memory, PmemOptions::default()) else { return false };
    let _reports = files.datasets();
    for which in [KEPT, CLONE] {
        if let Ok(other) = files.open_other(which) {
            use_all(&other);
        }
    }
    use_all(&files);
    let _back = files.roll_back("root", "kept", "before");
    use_all(&files);
    let _gone = files.destroy(&[KEPT, CLONE], false);
    true
}

#[test]
fn words_that_make_no_sense_are_refused_or_do_no_harm() {
    let image = image();
    assert!(is_used(image.clone()));
    // Words that were stored: neither zero nor what the memory had before.
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let stored = |at: &usize| ![0, u64::from_le_bytes([0xa5; 8])].contains(&word(*at));
    let matters: Vec<usize> = (512..16 * 4096).step_by(8).filter(stored).collect();
    let mut random = Random::new(99);
    let (mut used, mut refused) = (0, 0);
    for _ in 0..1500 {
        let mut image = image.clone();
        for _ in 0..=random.below(3) {
            let at = random.pick(&matters);
            let other = random.below(16 * 512) as usize * 8;
            let value = match random.below(4) {
                0 => random.number(),
                1 => 1 << random.below(64),
                2 => (random.below(260) * 4096) | random.below(8),
                _ => u64::from_le_bytes(image[other..other + 8].try_into().unwrap()),
            };
            image[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        if is_used(image) { used += 1 } else { refused += 1 }
    }
    assert!(used > 200 && refused > 50, "{used} used, {refused} refused");
}

/// A closed image with a change in the middle of it.
fn changed(at: usize, words: &[u64]) -> Vec<u8> {
    let mut image = image();
    for (place, word) in (at..).step_by(8).zip(words) {
        image[place..place + 8].copy_from_slice(&word.to_le_bytes());
    }
    image
}

#[test]
fn an_intent_that_leads_nowhere_is_refused_and_nothing_is_changed() {
    let said = |image: &[u8]| {
        let medium = Recorded::new(image.to_vec());
        let memory = Memory::new(Box::new(medium.clone()));
        let refused = Pmem::open(memory, PmemOptions::default()).err();
        assert!(medium.image() == image, "it was changed");
        refused
    };
    let slot = 12_288 + 256;
    let intent = |entry: u64| 2 | 7 << 8 | (entry / 8) << 24;
    let table = u64::from_le_bytes(image()[slot + 8..slot + 16].try_into().unwrap());
    let entry = (table & !0xfff) + 128;
    for [word, of] in [
        [intent(0), slot as u64],
        [intent(4096), slot as u64],
        [intent(1 << 20), slot as u64],
        [!0xff | 1, slot as u64],
        [intent(entry), u64::MAX],
        [intent(entry), !255],
        [intent(entry), slot as u64 + 8],
        [intent(entry), 1 << 20],
        [intent(entry), 4096],
        // A snapshot's.
        [intent(entry), slot as u64 + 256],
    ] {
        let refused = said(&changed(576, &[word, of]));
        assert!(matches!(refused, Some(ImageError::Damaged(_))), "{word:#x}: {refused:?}");
    }
    // An inode table of nodes that lead nowhere.
    for (top, below) in [(5 << 12 | 6, !0xfff_u64), (5 << 12 | 1, 8), (!0xfff, 0)] {
        let mut image = changed(576, &[intent(entry), slot as u64]);
        image[slot + 8..slot + 16].copy_from_slice(&u64::to_le_bytes(top));
        image[5 << 12..6 << 12].copy_from_slice(&below.to_le_bytes().repeat(512));
        image[entry as usize..][..8].copy_from_slice(&[2, 1, 8, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert!(matches!(said(&image), Some(ImageError::Damaged(_))), "{top:#x}, {below:#x}");
    }
}

#[test]
fn a_record_for_what_no_operation_changes_is_refused() {
    for at in [0, 8, 112, 128, 520, 576, 1024, 4096, 12_280, 1 << 20, (1 << 20) - 8] {
        let words = [at | 2 << 48, 7, 7];
        let bytes: Vec<u8> = words.iter().flat_map(|word| u64::to_le_bytes(*word)).collect();
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes) << 32;
        let image = changed(4096, &[&[1 | 3 << 16 | checksum][..], &words].concat());
        let medium = Recorded::new(image.clone());
        let memory = Memory::new(Box::new(medium.clone()));
        let refused = Pmem::open(memory, PmemOptions::default()).err();
        let Some(ImageError::Damaged(said)) = refused else { panic!("{at:#x}: {refused:?}") };
        assert!(said.contains("redo record"), "{said}");
        assert!(medium.image() == image, "it was changed");
    }
}

#[test]
fn noise_cut_images_and_other_versions_are_refused() {
    let whole = image();
    let said = |image: Vec<u8>| {
        let memory = Memory::new(Box::new(Recorded::new(image)));
        Pmem::open(memory, PmemOptions::default()).err()
    };
    assert!(matches!(said(vec![7; 1 << 20]), Some(ImageError::NoImage(_))));
    assert!(matches!(said(whole[..1 << 19].to_vec()), Some(ImageError::Damaged(_))));
    assert!(matches!(said([&whole[..], &[0; 4096]].concat()), Some(ImageError::Damaged(_))));
    let mut newer = whole.clone();
    newer[8] = 4;
    assert_eq!(said(newer), Some(ImageError::Version(4)));
    let mut hurt = whole;
    hurt[50] ^= 1;
    assert!(matches!(said(hurt), Some(ImageError::Damaged(_))));
}
