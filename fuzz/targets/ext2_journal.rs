//! Journals: an ext3 image whose journal has transactions to be replayed, changed by the input in
//! the journal and in what leads to it, then mounted. A mount replays what makes sense, into the
//! image or into memory, and refuses the rest: no panic, no endless walk, no write outside.

#![no_main]

mod content;
mod images;

use content::fill;
use images::{BLOCK_BYTES, Changed, USER, block_of, make, name, open_and_use};
use libfuzzer_sys::fuzz_target;
use marram_device::{Device, MemoryDevice};
use marram_ext2::{Consistency, Ext2, Ext2Options};
use marram_vfs::{FileSystem, Ino, Kind, NewNode, WriteOptions};
use std::sync::{Arc, OnceLock};

/// With this each block of a journal begins that has no copy.
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];
/// The superblock, the descriptors, and the first blocks of the table of inodes.
const LEADING_BLOCKS: std::ops::Range<usize> = 1..16;
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

/// The image, and the blocks of its journal with what leads to them.
fn base() -> &'static (Vec<u8>, Vec<usize>) {
    static BASE: OnceLock<(Vec<u8>, Vec<usize>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = Arc::new(MemoryDevice::from_bytes(make("ext3", 2560, &[])));
        let below = Arc::clone(&device) as Arc<dyn Device>;
        let consistency = Some(Consistency::JournalFull);
        let options = Ext2Options { consistency, ..Ext2Options::default() };
        let files = Ext2::open(below, options).expect("it opens");
        fill(&files).expect("there is room");
        files.sync_all().expect("memory does not fail");
        commit_some(&files).expect("there is room");
        let image = device.snapshot();
        let is_known = |block: &usize| {
            LEADING_BLOCKS.contains(block) || block_of(&image, *block).starts_with(&MAGIC)
        };
        let places = (0..image.len() / BLOCK_BYTES).filter(is_known).collect();
        (image, places)
    })
}

/// Transactions with revokes and with blocks that are escaped.
fn commit_some(files: &Ext2) -> marram_vfs::Result<()> {
    for which in 0..6 {
        let text = format!("file{which}");
        let file = files.create(USER, Ino::ROOT, name(&text), FILE)?.ino;
        files.write(file, 0, &MAGIC.repeat(600), WriteOptions::default())?;
        files.sync_all()?;
        if which % 2 == 0 {
            files.forget(file, 1);
            files.unlink(Ino::ROOT, name(&text))?;
        }
    }
    files.sync_all()
}

fuzz_target!(|bytes: &[u8]| {
    let Some((mode, changes)) = bytes.split_first() else { return };
    let (image, places) = base();
    let options = Ext2Options { writable: mode & 1 != 0, ..Ext2Options::default() };
    open_and_use(Changed::new(image, places, changes), options);
});
