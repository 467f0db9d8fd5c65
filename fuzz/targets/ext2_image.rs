//! Whole ext2 images: a small one with some of everything, changed by the input, then mounted,
//! searched for leaks, walked and changed. Whatever the bytes are, the answer is a typed error or
//! what is there: no panic, no endless walk, no write outside of the image.

#![no_main]

mod content;
mod images;

use content::fill;
use images::{Changed, block_of, make, open_and_use};
use libfuzzer_sys::fuzz_target;
use marram_device::{Device, MemoryDevice};
use marram_ext2::{Consistency, Ext2, Ext2Options};
use marram_vfs::FileSystem;
use std::sync::{Arc, OnceLock};

/// The image, which a crash under soft updates has left, and its blocks that are not all zeros.
fn base() -> &'static (Vec<u8>, Vec<usize>) {
    static BASE: OnceLock<(Vec<u8>, Vec<usize>)> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = Arc::new(MemoryDevice::from_bytes(make("ext2", 512, &[])));
        let below = Arc::clone(&device) as Arc<dyn Device>;
        let files = Ext2::open(below, Ext2Options::default()).expect("it opens");
        fill(&files).expect("there is room");
        // It is not closed: the image counts as one in use, so that there is a search for leaks.
        files.sync_all().expect("memory does not fail");
        let image = device.snapshot();
        let is_used = |block: &usize| block_of(&image, *block).iter().any(|byte| *byte != 0);
        let used = (0..image.len() / images::BLOCK_BYTES).filter(is_used).collect();
        (image, used)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((mode, changes)) = bytes.split_first() else { return };
    let (image, used) = base();
    let consistency = if mode & 2 == 0 { Consistency::SoftUpdates } else { Consistency::Async };
    let options = Ext2Options {
        writable: mode & 1 != 0,
        consistency: Some(consistency),
        ..Ext2Options::default()
    };
    open_and_use(Changed::new(image, used, changes), options);
});
