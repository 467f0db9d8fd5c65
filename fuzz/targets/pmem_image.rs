//! Whole images of a pmem home: changed by the input, then checked, opened, walked, changed, and
//! opened again. Whatever the words are, the answer is a file system or a typed error: no panic, no
//! endless walk. What is refused, or only read, is not changed.
//!
//! The input is a mode and a list of changes. The header and the checkpoints get their checksums
//! mended, so that their fields are hostile and yet believed. Nothing else has one.

#![no_main]

mod pmem;

use libfuzzer_sys::fuzz_target;
use pmem::{PAGE, base, judge, mend_checkpoints, mend_header, used_pages};

/// Changes that one input can make.
const CHANGES_MAX: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    let Some((mode, changes)) = bytes.split_first() else { return };
    let mut image = base(*mode).clone();
    for change in changes.chunks_exact(8).take(CHANGES_MAX) {
        apply(&mut image, *mode, change);
    }
    mend_header(&mut image);
    mend_checkpoints(&mut image);
    judge(image, *mode);
});

/// One change: which used page, which word of it, how, and four bytes.
fn apply(image: &mut [u8], mode: u8, change: &[u8]) {
    let used = used_pages(mode);
    let page = used[usize::from(change[0]) % used.len()];
    let word = (usize::from(change[1]) | usize::from(change[2]) << 8) % (PAGE / 8);
    let place = page * PAGE + word * 8;
    let value = u32::from_le_bytes([change[4], change[5], change[6], change[7]]);
    match change[3] % 4 {
        0 => image[place..place + 4].copy_from_slice(&value.to_le_bytes()),
        1 => image[place..place + 8].copy_from_slice(&(u64::from(value) << 12).to_le_bytes()),
        2 => image[place + usize::from(change[4] % 8)] ^= change[5],
        _ => image[place..(page + 1) * PAGE].fill(change[4]),
    }
}
