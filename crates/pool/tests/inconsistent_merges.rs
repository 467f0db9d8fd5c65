//! Merges by hand whose batches break the contract of `Batch` for blocks that items share: each is
//! refused alone, and the pool goes on.

use crate::support;
use crate::support::{content, new_pool, noise, open, put, root, section};
use marram_device::{Device, MemoryDevice};
use marram_format::operation::OperationKind;
use marram_pool::{Author, Health, Pool};
use marram_store::{
    Batch, Block, DatasetName, EphemeralSnapshots, Error, Item, Key, MergedFrom, OperationLog,
    Source, Store, Token, kind,
};
use std::sync::Arc;

/// A pool with two files, and a fork in which the second is another one.
fn forked_pool() -> (Arc<MemoryDevice>, Pool) {
    let (memory, pool) = new_pool(64, &[]);
    put(&*root(&pool), section(1, 0), noise(1, 5_000)).unwrap();
    put(&*root(&pool), section(2, 0), noise(2, 5_000)).unwrap();
    let pool = pool.acting_for(Author::default());
    pool.fork(&DatasetName::root(), &"f".parse().unwrap(), 1).unwrap();
    put(&*fork(&pool), section(2, 0), noise(3, 5_000)).unwrap();
    pool.commit().unwrap();
    (memory, pool)
}

fn fork(pool: &Pool) -> Arc<dyn marram_store::View> {
    support::view(pool, "f")
}

fn block_of(pool: &Pool, key: Key) -> Block {
    root(pool).get(key).unwrap().unwrap().block.unwrap()
}

fn merge(pool: &Pool, batch: Batch<'_>) -> Result<(), Error> {
    let (dataset, source): (DatasetName, Source) = (DatasetName::root(), "f".parse().unwrap());
    let read = pool.ephemeral_snapshot(&source.dataset, "merge")?;
    let merged = MergedFrom {
        dataset: &dataset,
        fork: &source,
        read: &read,
        keep: None,
        root_object: 1,
        base: None,
        moves_base: false,
        may_wait: false,
    };
    let done = pool.apply_merge(&*root(pool), batch, &merged);
    pool.discard_ephemeral(&read);
    done.map(|_| ())
}

fn with(key: Key, block: Block) -> Batch<'static> {
    let mut batch = Batch::new();
    batch.put(key, Item::with_block("x", block));
    batch
}

/// The merge is refused as one that makes no sense, has changed nothing, and whatever is done next
/// is done.
fn assert_refused(memory: &MemoryDevice, pool: &Pool, batch: Batch<'_>, what: &str) {
    let entries = pool.operations().unwrap().len();
    let error = merge(pool, batch).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{what}: {error:?}");
    assert_eq!(pool.status().health, Health::Online, "{what}");
    assert_eq!(pool.operations().unwrap().len(), entries, "{what}");
    assert_eq!(content(&*root(pool), section(2, 0)), Some(noise(2, 5_000)), "{what}");
    put(&*root(pool), section(9, 0), noise(entries as u64, 3_000)).unwrap();
    pool.commit().unwrap();
    let again: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    let again = open(&again);
    assert_eq!(
        content(&*root(&again), section(9, 0)),
        Some(noise(entries as u64, 3_000)),
        "{what}"
    );
}

#[test]
fn a_block_that_gains_a_reference_without_its_first_being_put_anew_is_refused() {
    let (memory, pool) = forked_pool();
    let first = block_of(&pool, section(1, 0));
    assert_refused(&memory, &pool, with(section(7, 0), first.clone()), "a second reference");
    let mut batch = with(section(7, 0), first.clone());
    batch.put(section(8, 0), Item::with_block("x", first.clone()));
    batch.put(section(2, 0), Item::with_block("x", Block::fresh(noise(4, 3_000))));
    assert_refused(&memory, &pool, batch, "two of them beside what is right");
    let of_fork = fork(&pool).get(section(2, 0)).unwrap().unwrap().block.unwrap();
    assert_refused(&memory, &pool, with(section(2, 0), of_fork), "the fork's, not adopted");
    let token = Token { place: vec![0xee; 40].into(), len: 5_000 };
    assert_refused(&memory, &pool, with(section(2, 0), Block::Stored(token)), "no pointer");

    // As the contract has it, the same blocks are taken.
    let mut batch = with(section(7, 0), first.clone());
    batch.put(section(1, 0), Item::with_block("x", first));
    let of_fork = fork(&pool).get(section(2, 0)).unwrap().unwrap().block.unwrap();
    let adopted = root(&pool).adopt(&*fork(&pool), &of_fork).unwrap();
    batch.put(section(2, 0), Item::with_block("x", adopted));
    merge(&pool, batch).unwrap();
    assert_eq!(content(&*root(&pool), section(7, 0)), Some(noise(1, 5_000)));
    assert_eq!(content(&*root(&pool), section(2, 0)), Some(noise(3, 5_000)));
    let last = pool.operations().unwrap().pop().unwrap();
    assert_eq!(last.record.kind, OperationKind::Merge);
}

#[test]
fn a_block_that_items_share_may_move_and_multiply_but_must_be_counted() {
    let (memory, pool) = forked_pool();
    let first = block_of(&pool, section(1, 0));
    let mut batch = with(section(7, 0), first.clone());
    batch.put(section(1, 0), Item::with_block("x", first.clone()));
    merge(&pool, batch).unwrap();
    // A third one of what is counted needs no other; neither does one that takes another's place.
    merge(&pool, with(section(8, 0), block_of(&pool, section(1, 0)))).unwrap();
    merge(&pool, with(section(10, 0), first)).unwrap();
    let mut batch = with(section(11, 0), block_of(&pool, section(2, 0)));
    batch.remove(section(2, 0));
    merge(&pool, batch).unwrap();
    let mut batch = with(section(2, 0), block_of(&pool, section(11, 0)));
    batch.remove(section(11, 0));
    merge(&pool, batch).unwrap();
    for object in [1, 7, 8, 10] {
        assert_eq!(content(&*root(&pool), section(object, 0)), Some(noise(1, 5_000)), "{object}");
    }
    // Once they are gone, nothing vouches for what was read before.
    let shared = block_of(&pool, section(7, 0));
    let mut batch = Batch::new();
    for object in [1, 7, 8, 10] {
        batch.remove(Key::new(object, kind::SECTION, 0));
    }
    merge(&pool, batch).unwrap();
    assert_refused(&memory, &pool, with(section(7, 0), shared), "a block that is gone");
}

/// Births tell what waits from what a merge brings only if they are of two groups.
#[test]
fn what_a_merge_brings_may_replace_what_waits() {
    for undo in ["off", "1h"] {
        let (memory, pool) = forked_pool();
        pool.set_property(&DatasetName::root(), "undo", Some(undo)).unwrap();
        let adopted = || {
            let block = fork(&pool).get(section(2, 0)).unwrap().unwrap().block.unwrap();
            root(&pool).adopt(&*fork(&pool), &block).unwrap()
        };
        put(&*root(&pool), section(7, 0), noise(7, 5_000)).unwrap();
        root(&pool).apply(with(section(8, 0), adopted())).unwrap();
        let mut batch = with(section(7, 0), Block::fresh(noise(17, 5_000)));
        batch.remove(section(8, 0));
        batch.put(section(9, 0), Item::with_block("x", adopted()));
        merge(&pool, batch).expect(undo);
        assert_eq!(pool.status().health, Health::Online, "{undo}");
        put(&*root(&pool), section(10, 0), noise(10, 50_000)).unwrap();
        pool.commit().expect(undo);
        let again: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
        let again = open(&again);
        let found = [7, 8, 9].map(|object| content(&*root(&again), section(object, 0)));
        assert_eq!(found, [Some(noise(17, 5_000)), None, Some(noise(3, 5_000))], "{undo}");
        support::remove(&*root(&again), section(9, 0)).unwrap();
        again.commit().expect(undo);
        assert_eq!(content(&*fork(&again), section(2, 0)), Some(noise(3, 5_000)), "{undo}");
    }
}
