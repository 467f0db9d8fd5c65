//! States that are kept in memory for a comparison, in a pool that has so little space that it
//! writes over them.

use crate::support::{content, new_pool, noise, open, put, root, section};
use marram_device::Device;
use marram_pool::{OpenOptions, Pool};
use marram_store::{
    Admission, Batch, Block, DatasetName, EphemeralSnapshots, Error, Item, Key, Result, Store, View,
};
use std::sync::Arc;

const BLOCK: usize = 20_000;
/// Items whose leaves, once written anew, leave more behind than a full pool keeps back.
const VALUES: u64 = 8000;
const VALUE: usize = 400;
const VALUES_AT_ONCE: u64 = 50;
const FIRST_BLOCK: u64 = 1 << 40;

/// Writes all leaves anew.
fn put_values(live: &dyn View, round: u64) {
    for first in (0..VALUES).step_by(VALUES_AT_ONCE as usize) {
        let mut batch = Batch::new();
        for number in first..first + VALUES_AT_ONCE {
            batch.put(section(number, 0), Item::plain(noise(number + round * VALUES, VALUE)));
        }
        live.apply(batch).expect("there is space for it");
    }
}

/// Content that takes space which is kept back for what frees.
fn put_at_any_price(live: &dyn View, number: u64) -> Result<()> {
    let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
    let block = Block::fresh(noise(number, BLOCK));
    batch.put(section(FIRST_BLOCK, number), Item::with_block(Vec::new(), block));
    live.apply(batch)
}

/// Fills a pool to its end; after each few blocks `look` is called. Returns how many there are.
fn fill(pool: &Pool, live: &dyn View, look: &mut dyn FnMut()) -> u64 {
    let mut count = 0;
    while put(live, section(FIRST_BLOCK, count), noise(count, BLOCK)).is_ok() {
        count += 1;
    }
    while put_at_any_price(live, count).is_ok() {
        count += 1;
        if count % 4 == 0 {
            pool.commit().expect("what was taken can be committed");
            look();
        }
    }
    pool.commit().expect("what was taken can be committed");
    count
}

#[test]
fn a_state_that_was_overwritten_while_it_was_compared_is_no_damage_and_does_none() {
    let (memory, pool) = new_pool(48, &[("compression", "off")]);
    drop(pool);
    let device: Arc<dyn Device> = memory;
    // What is compared is read from the device.
    let options = OpenOptions { cache_bytes: 64 << 10, ..OpenOptions::new(|| 0) };
    let pool = Pool::open(vec![device.clone()], options).unwrap();
    let live = root(&pool);
    put_values(&*live, 1);
    pool.snapshot(&DatasetName::root(), "before").unwrap();
    let before = "root@before".parse().unwrap();
    put_values(&*live, 2);
    let kept = pool.ephemeral_snapshot(&DatasetName::root(), "diff").unwrap();
    put_values(&*live, 3);
    pool.commit().unwrap();
    let mut refused = [0, 0];
    let count = fill(&pool, &*live, &mut || {
        let compared = pool.changes(&before, &kept, Key::MIN, &mut |_| true);
        let opened = pool.open(&kept).map(|_| ());
        for (outcome, refused) in [compared, opened].into_iter().zip(&mut refused) {
            match outcome {
                Ok(()) => {}
                Err(Error::InUse { .. }) => *refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert!(refused.iter().all(|times| *times > 0), "the state was left alone: {refused:?}");
    assert!(pool.is_overtaken(&kept));
    pool.discard_ephemeral(&kept);
    let status = pool.status();
    drop((live, pool));
    let again = open(&device);
    let live = root(&again);
    for number in 0..count {
        assert_eq!(content(&*live, section(FIRST_BLOCK, number)), Some(noise(number, BLOCK)));
    }
    for number in 0..VALUES {
        let found = live.get(section(number, 0)).unwrap().unwrap();
        assert_eq!(found.value, noise(number + 3 * VALUES, VALUE));
    }
    assert_eq!(again.status().damage, []);
    assert_eq!((status.healed_blocks, status.damage.len()), (0, 0), "{status:?}");
}
