//! What was found of the bytes of a block is known until they are others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_device::{Device, MemoryDevice};
use marram_patch::{Cache, Content, Plan};
use std::sync::Arc;

const BLOCK: usize = 4096;
/// More blocks than the cache keeps.
const BLOCKS: usize = 9000;

/// Whether a block is good for something, and whether its bytes were looked at.
fn asked(cache: &mut Cache, block: u64, what: u32) -> (bool, bool) {
    let mut is_asked = false;
    let is_good = |bytes: &[u8]| {
        is_asked = true;
        bytes[0] == 0
    };
    let is_good = cache.read_good(block, what, is_good).unwrap().is_some();
    (is_good, is_asked)
}

fn opened() -> (Arc<MemoryDevice>, Cache) {
    let device = Arc::new(MemoryDevice::new(BLOCK * BLOCKS));
    let cache = Cache::new(Arc::clone(&device) as Arc<dyn Device>, 0, BLOCK);
    (device, cache)
}

#[test]
fn a_block_is_looked_at_once_until_it_changes() {
    let (_device, mut cache) = opened();
    assert_eq!(asked(&mut cache, 7, 1), (true, true));
    assert_eq!(asked(&mut cache, 7, 1), (true, false));
    // What is good for one thing may not be for another.
    assert_eq!(asked(&mut cache, 7, 2), (true, true));
    let mut plan = Plan::default();
    plan.write(&mut cache, (7, Content::Metadata), 0, &[1], &[]).unwrap();
    cache.apply(plan).unwrap();
    assert_eq!(asked(&mut cache, 7, 2), (false, true));
    // What is not good is looked at each time.
    assert_eq!(asked(&mut cache, 7, 2), (false, true));
}

#[test]
fn a_block_that_is_read_anew_is_looked_at_anew() {
    let (device, mut cache) = opened();
    assert_eq!(asked(&mut cache, 7, 1), (true, true));
    device.write(7 * BLOCK as u64, &[1]).unwrap();
    assert_eq!(asked(&mut cache, 7, 1), (true, false), "it is in memory still");
    for block in 8..BLOCKS as u64 {
        cache.read(block).unwrap();
    }
    assert_eq!(asked(&mut cache, 7, 1), (false, true));
}
