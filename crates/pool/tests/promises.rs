//! Space that is promised through a view is kept back from all others, until it is used, given up,
//! or the view is gone.

use crate::support::{new_pool, noise, put, root, section};
use marram_pool::Pool;
use marram_store::{Admission, Batch, Block, Error, Item, Key, Result, View};

const BLOCK_BYTES: usize = 100_000;
const PROMISED_BLOCKS: u64 = 80;

/// Writes blocks until nothing fits any more; how many.
fn fill(view: &dyn View, object: u64) -> u64 {
    (0..)
        .find(|number| put(view, section(object, *number), noise(*number, BLOCK_BYTES)).is_err())
        .expect("a pool becomes full")
}

fn put_promised(view: &dyn View, key: Key) -> Result<()> {
    let mut batch = Batch { promised_bytes: BLOCK_BYTES as u64, ..Batch::new() };
    batch.put(key, Item::with_block("", Block::fresh(noise(key.offset, BLOCK_BYTES))));
    view.apply(batch)
}

/// Writes all that was promised, telling each time what is left of it.
fn use_up(pool: &Pool, view: &dyn View) {
    for number in 0..PROMISED_BLOCKS {
        put_promised(view, section(9, number)).expect("it was promised");
        view.promise((PROMISED_BLOCKS - 1 - number) * BLOCK_BYTES as u64);
        if number % 16 == 0 {
            pool.commit().expect("what was taken can be committed");
        }
    }
    pool.commit().expect("what was taken can be committed");
}

#[test]
fn what_is_promised_is_there_when_all_else_is_full() {
    let (_memory, pool) = new_pool(64, &[]);
    let (view, other) = (root(&pool), root(&pool));
    let free_before = view.space().free_bytes;
    view.promise(PROMISED_BLOCKS * BLOCK_BYTES as u64);
    let kept_back = free_before - other.space().free_bytes;
    let promised = PROMISED_BLOCKS * BLOCK_BYTES as u64;
    assert!((promised..promised + promised / 10).contains(&kept_back), "{kept_back}");
    assert!(fill(&*other, 1) > 100, "the rest of the pool can be filled");
    pool.commit().unwrap();
    assert_eq!(put(&*other, section(2, 0), noise(7, BLOCK_BYTES)), Err(Error::NoSpace));
    use_up(&pool, &*view);
    let found = fill(&*other, 2);
    assert!(found <= PROMISED_BLOCKS / 8, "{found} blocks more than were promised were kept back");
}

#[test]
fn a_promise_goes_with_its_view() {
    let (_memory, pool) = new_pool(64, &[]);
    let other = root(&pool);
    let view = root(&pool);
    view.promise(PROMISED_BLOCKS * BLOCK_BYTES as u64);
    view.promise(PROMISED_BLOCKS / 2 * BLOCK_BYTES as u64);
    fill(&*other, 1);
    pool.commit().unwrap();
    drop(view);
    let found = fill(&*other, 2);
    assert!(found >= PROMISED_BLOCKS / 2, "only {found} of what was promised came back");
}

#[test]
fn all_that_is_free_can_be_promised_and_is_there() {
    let (_memory, pool) = new_pool(1024, &[("compression", "off")]);
    let (view, other) = (root(&pool), root(&pool));
    let blocks = view.space().free_bytes / BLOCK_BYTES as u64;
    view.promise(blocks * BLOCK_BYTES as u64);
    assert_eq!(put(&*other, section(2, 0), noise(7, BLOCK_BYTES)), Err(Error::NoSpace));
    let mut accepted = Batch { admission: Admission::Accepted, ..Batch::new() };
    let page = Item::with_block("", Block::fresh(noise(1, 4096)));
    accepted.put(section(3, 0), page);
    other.apply(accepted).expect("it was accepted before");
    // Blocks of 100,000 bytes take 25 grains each.
    for number in 0..blocks * 97 / 100 {
        put_promised(&*view, section(9, number)).expect("it was promised");
        view.promise((blocks - 1 - number) * BLOCK_BYTES as u64);
    }
    pool.commit().expect("what was taken can be committed");
}
