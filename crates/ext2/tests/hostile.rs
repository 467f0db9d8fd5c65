//! Images that make no sense: a mount refuses them or shows what is left, and never panics or
//! hangs.

use crate::images::{SMALL, Shape, make, name, open_bytes, program};
use marram_device::{Device, MemoryDevice};
use marram_ext2::{Consistency, Ext2, Ext2Options, ImageError};
use marram_sim::Random;
use marram_vfs::{
    Caller, Error, FileSystem, Ino, Kind, NewNode, RenameMode, SetAttributes, WriteOptions,
    XattrMode,
};
use std::process::Command;
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

/// An image with some of everything.
fn image() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::from_bytes(make(SMALL)));
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, Ext2Options::default()).unwrap();
    let directory = NewNode::Directory { permissions: 0o755 };
    let below = files.create(USER, Ino::ROOT, name("d"), directory).unwrap().ino;
    let file = files.create(USER, below, name("file"), FILE).unwrap().ino;
    files.write(file, 5_000_000, &[5; 400_000], WriteOptions::default()).unwrap();
    files.link(file, Ino::ROOT, name("again")).unwrap();
    files.set_xattr(file, b"user.small", b"value", XattrMode::Any).unwrap();
    files.set_xattr(file, b"security.large", &[4; 600], XattrMode::Any).unwrap();
    for (text, target) in [("short", &b"short"[..]), ("long", &[b'l'; 400])] {
        files.create(USER, below, name(text), NewNode::Symlink { target }).unwrap();
    }
    files.close().unwrap();
    device.snapshot()
}

/// Uses some of all that is found, bounded; what it answers does not matter. The first thing that
/// makes no sense ends all changes, so another is met first each time.
fn use_all(files: &Ext2, random: &mut Random) {
    let mut left = vec![Ino::ROOT];
    let mut count = 0;
    while let Some(directory) = left.pop() {
        let mut found = Vec::new();
        let _listed = files.read_directory(directory, 0, false, &mut |entry| {
            found.push((entry.ino, entry.kind, entry.name.to_vec()));
            found.len() < 100
        });
        for (ino, kind, text) in found {
            count += 1;
            let mut out = Vec::new();
            let _read = files.read(ino, 4_990_000, 100_000, &mut out);
            let _target = files.read_link(ino);
            let tags = files.list_xattrs(ino).unwrap_or_default();
            let _tags: Vec<_> = tags.iter().map(|tag| files.xattr(ino, tag)).collect();
            if random.once_in(3) {
                let _tagged = files.set_xattr(ino, b"user.new", &[3; 200], XattrMode::Any);
            }
            if random.once_in(2) {
                let _written = files.write(ino, 1_000, &[1; 3000], WriteOptions::default());
            }
            if kind == Kind::Directory && count < 200 {
                left.push(ino);
                let _made = files.create(USER, ino, name("new"), FILE);
            }
            let set = SetAttributes { size: Some(10), ..SetAttributes::default() };
            if random.once_in(2) {
                let _cut = files.set_attributes(USER, ino, &set);
            }
            if let Ok(text) = marram_vfs::Name::new(&text) {
                let _gone = files.unlink(directory, text);
                let _gone = files.remove_directory(directory, text);
            }
        }
    }
    let _synced = files.sync_all();
    let _closed = files.close();
}

#[test]
fn damaged_images_are_refused_or_served_without_a_panic() {
    let good = image();
    let used: Vec<usize> = (0..good.len()).filter(|at| good[*at] != 0).collect();
    let (mut random, mut opened) = (Random::new(1), 0);
    for _ in 0..400 {
        let mut bad = good.clone();
        for _ in 0..=random.below(6) {
            let at = match random.below(3) {
                0 => 1024 + random.below(400) as usize,
                1 => 2048 + random.below(64) as usize,
                _ => used[random.below(used.len() as u64) as usize],
            };
            bad[at] = random.below(256) as u8;
        }
        if let Ok(files) = open_bytes(bad) {
            opened += 1;
            use_all(&files, &mut random);
        }
    }
    assert!(opened > 80, "{opened}");
}

#[test]
fn cut_images_are_refused() {
    let good = image();
    for len in [0, 1, 1023, 1024, 1500, 2047, 2048, 70_000, good.len() - 1] {
        assert!(open_bytes(good[..len].to_vec()).is_err(), "{len} bytes");
    }
}

#[test]
fn a_feature_that_is_not_served_is_refused_by_its_name() {
    let good = image();
    let with = |at: usize, bits: u32| {
        let mut image = good.clone();
        let old = u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        image[at..at + 4].copy_from_slice(&(old | bits).to_le_bytes());
        open_bytes(image).map(drop).unwrap_err().to_string()
    };
    assert!(with(1024 + 96, 0x40).contains("extents"));
    assert!(with(1024 + 96, 0x2_0000).contains("casefold"));
    assert!(with(1024 + 96, 0x8000_0000).contains("0x80000000"));
    assert!(with(1024 + 96, 4).contains("its journal is not there"));
    assert!(with(1024 + 100, 0x400).contains("metadata_csum"));
    let refused = |text: &str| Consistency::parse(text).unwrap_err().to_string();
    assert!(refused("ordered").contains("no order of writes"));
    let device = Arc::new(MemoryDevice::from_bytes(good.clone()));
    let journal = Some(Consistency::Journal);
    let options = Ext2Options { consistency: journal, ..Ext2Options::default() };
    let refused = Ext2::open(device, options).map(drop).unwrap_err().to_string();
    assert!(refused.contains("needs a journal"), "{refused}");
}

#[test]
fn an_image_that_says_it_has_errors_is_only_read() {
    let mut bad = image();
    bad[1024 + 58] = 3;
    assert_eq!(open_bytes(bad.clone()).map(drop).unwrap_err(), ImageError::HasErrors);
    let device = Arc::new(MemoryDevice::from_bytes(bad));
    let options = Ext2Options { writable: false, ..Ext2Options::default() };
    let files = Ext2::open(device, options).unwrap();
    assert!(files.lookup(Ino::ROOT, name("again")).is_ok());
    assert_eq!(files.unlink(Ino::ROOT, name("again")), Err(Error::ReadOnly));
}

/// An image in which `e2fsprogs` have changed something.
fn changed(request: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, image()).unwrap();
    let run = Command::new(program("debugfs")).args(["-w", "-R", request]).arg(&path).output();
    assert!(run.unwrap().status.success());
    std::fs::read(&path).unwrap()
}

#[test]
fn what_makes_no_sense_ends_all_changes_and_is_marked() {
    let huge = changed("set_inode_field /d/file size 0xffffffffffffffff");
    let device = Arc::new(MemoryDevice::from_bytes(huge));
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, Ext2Options::default()).unwrap();
    let below = files.lookup(Ino::ROOT, name("d")).unwrap().ino;
    let found = files.lookup(below, name("file"));
    assert!(matches!(found, Err(Error::Damaged(_))), "{found:?}");
    assert_eq!(files.create(USER, below, name("new"), FILE), Err(Error::ReadOnly));
    let short = files.lookup(below, name("short")).unwrap().ino;
    assert_eq!(files.read_link(short).unwrap(), b"short", "the rest is read");
    assert!(files.failure().is_some_and(|told| told.contains("bytes")));
    files.close().unwrap();
    let opened = open_bytes(device.snapshot()).map(drop);
    assert_eq!(opened.unwrap_err(), ImageError::HasErrors, "the image says so");
}

#[test]
fn a_first_inode_of_users_behind_a_group_is_no_panic() {
    let shape = Shape { kib: 32_768, ..SMALL };
    let good = make(shape);
    let per_group = u32::from_le_bytes(good[1024 + 40..1024 + 44].try_into().unwrap());
    let mut bad = good;
    bad[1024 + 84..1024 + 88].copy_from_slice(&(per_group * 3).to_le_bytes());
    if let Ok(files) = open_bytes(bad) {
        let _made = files.create(USER, Ino::ROOT, name("f"), FILE);
        let _closed = files.close();
    }
}

#[test]
fn a_directory_with_more_subdirectories_than_can_be_counted_stays() {
    let device = Arc::new(MemoryDevice::from_bytes(changed("set_inode_field /d links_count 1")));
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, Ext2Options::default()).unwrap();
    let directory = NewNode::Directory { permissions: 0o755 };
    let below = files.lookup(Ino::ROOT, name("d")).unwrap().ino;
    let links = || files.attributes(below).unwrap().links;
    for text in ["one", "two"] {
        files.create(USER, below, name(text), directory).unwrap();
        assert_eq!(links(), 1);
    }
    files.remove_directory(below, name("one")).unwrap();
    let (mode, up) = (RenameMode::Replace, Ino::ROOT);
    files.rename(USER, below, name("two"), up, name("two"), mode).unwrap();
    files.rename(USER, up, name("d"), up, name("e"), mode).unwrap();
    assert_eq!(links(), 1);
    files.forget_all();
    assert!(files.lookup(below, name("file")).is_ok(), "it has not been removed");
}

#[test]
fn an_inode_that_is_marked_as_free_is_not_freed_again() {
    let mut bad = image();
    let files = open_bytes(bad.clone()).unwrap();
    let ino = files.lookup(Ino::ROOT, name("again")).unwrap().ino;
    let bitmap = u32::from_le_bytes(bad[2052..2056].try_into().unwrap()) as usize * 1024;
    let bit = ino.0 as usize - 1;
    bad[bitmap + bit / 8] &= !(1 << (bit % 8));
    let files = open_bytes(bad).unwrap();
    let below = files.lookup(Ino::ROOT, name("d")).unwrap().ino;
    files.forget_all();
    files.unlink(below, name("file")).unwrap();
    let freed = files.unlink(Ino::ROOT, name("again"));
    assert!(matches!(freed, Err(Error::Damaged(_))), "{freed:?}");
}
