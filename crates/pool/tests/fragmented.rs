//! A pool whose free space lies in single grains.

use crate::support::{content, new_pool, noise, put, remove, root, section};
use marram_store::Error;

#[test]
fn blocks_that_were_taken_find_a_place_though_free_space_lies_in_single_grains() {
    let (_memory, pool) = new_pool(64, &[("compression", "off")]);
    let live = root(&pool);
    let mut count = 0;
    while put(&*live, section(count, 0), noise(count, 4096)) == Ok(()) {
        count += 1;
    }
    pool.commit().unwrap();
    for number in (0..count).step_by(2) {
        remove(&*live, section(number, 0)).expect("a full pool can be emptied");
    }
    pool.commit().unwrap();
    let free = pool.status().free_bytes;
    let mut blocks = 0;
    loop {
        match put(&*live, section(1 << 40, blocks << 17), noise(blocks, 128 << 10)) {
            Ok(()) => blocks += 1,
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                break;
            }
        }
        if blocks % 16 == 0 {
            pool.commit().unwrap_or_else(|error| panic!("{error} after {blocks} of {free} bytes"));
        }
    }
    pool.commit().unwrap_or_else(|error| panic!("{error} after {blocks} of {free} bytes"));
    for number in (1..count).step_by(2) {
        remove(&*live, section(number, 0)).expect("a full pool can be emptied");
    }
    pool.commit().expect("what was taken can be committed");
    assert_eq!(content(&*live, section(1 << 40, 0)), Some(noise(0, 128 << 10)));
}
