//! Quotas and reservations of datasets.

use crate::support::{new_pool, noise, open, put, remove, root, section, view};
use marram_pool::Pool;
use marram_store::{
    Admission, Batch, Block, DatasetName, Error, Item, PropertySource, Result, Store, View,
};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn name(text: &str) -> DatasetName {
    text.parse().expect("the name of a dataset")
}

fn dataset(pool: &Pool, text: &str, properties: &[(&str, &str)]) -> Result<Arc<dyn View>> {
    let properties = properties.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    pool.create(&name(text), &marram_store::Properties(properties.collect()))?;
    Ok(view(pool, text))
}

fn referenced(pool: &Pool, source: &str) -> u64 {
    let rows = pool.list().expect("the test's pool does what it is asked");
    let found = rows.iter().find(|row| row.source.to_string() == source);
    found.expect("the dataset is there").referenced_bytes
}

/// Writes blocks that do not compress until one is refused; returns how many went well, and why.
fn fill(live: &dyn View, from: u64, len: usize) -> (u64, Error) {
    for count in 0..10_000 {
        if let Err(error) = put(live, section(from + count, 0), noise(from + count, len)) {
            return (count, error);
        }
    }
    panic!("it never ends");
}

fn is_quota(error: &Error) -> bool {
    matches!(error, Error::LimitExceeded(_))
}

#[test]
fn a_quota_refuses_growth_in_time_and_deleting_makes_room() {
    let (_memory, pool) = new_pool(256, &[]);
    let live = dataset(&pool, "d", &[("quota", "16M")]).unwrap();
    let (count, refused) = fill(&*live, 10, 100_000);
    assert!(is_quota(&refused), "{refused}");
    live.sync().unwrap();
    let used = referenced(&pool, "d");
    assert!((15 * MIB..=16 * MIB).contains(&used), "{used} bytes of 16 MiB");
    let space = live.space();
    assert!(space.total_bytes <= 16 * MIB && space.free_bytes < MIB, "{space:?}");
    put(&*root(&pool), section(1, 0), noise(1, 1 << 20)).expect("others are not meant");
    for object in 10..60 {
        remove(&*live, section(object, 0)).unwrap();
    }
    let (more, refused) = fill(&*live, 10_000, 100_000);
    assert!(is_quota(&refused), "{refused}");
    assert!((48..=52).contains(&more), "{more} of {count} written again");
    assert!(referenced(&pool, "d") <= 16 * MIB);
}

#[test]
fn what_compresses_counts_as_it_is_stored() {
    let (_memory, pool) = new_pool(128, &[("compression", "lz4")]);
    let live = dataset(&pool, "d", &[("quota", "8M")]).unwrap();
    for object in 0..500 {
        put(&*live, section(object, 0), vec![7; 100_000]).unwrap();
    }
    live.sync().unwrap();
    assert!(referenced(&pool, "d") < 4 * MIB);
}

#[test]
fn snapshots_do_not_count_and_a_changed_quota_holds_at_once() {
    let (memory, pool) = new_pool(256, &[]);
    let live = dataset(&pool, "d", &[("quota", "16M")]).unwrap();
    for round in 0..4 {
        for object in 0..100 {
            put(&*live, section(object, 0), noise(round * 1000 + object, 100_000)).unwrap();
        }
        pool.snapshot(&name("d"), &format!("s{round}")).unwrap();
        for object in 0..100 {
            remove(&*live, section(object, 0)).unwrap();
        }
    }
    put(&*live, section(1, 0), noise(1, 1 << 20)).unwrap();
    pool.set_property(&name("d"), "quota", Some("1M")).unwrap();
    assert!(is_quota(&put(&*live, section(2, 0), noise(2, 100_000)).unwrap_err()));
    remove(&*live, section(1, 0)).unwrap();
    put(&*live, section(2, 0), noise(2, 100_000)).unwrap();
    live.sync().unwrap();
    drop((live, pool));
    let device: Arc<dyn marram_device::Device> = memory;
    let again = open(&device);
    assert!(is_quota(&put(&*view(&again, "d"), section(3, 0), noise(3, 1 << 20)).unwrap_err()));
    again.set_property(&name("d"), "quota", None).unwrap();
    put(&*view(&again, "d"), section(3, 0), noise(3, 1 << 20)).unwrap();
}

#[test]
fn content_that_was_accepted_passes_a_quota_but_not_without_end() {
    let (_memory, pool) = new_pool(256, &[]);
    let live = dataset(&pool, "d", &[("quota", "1M")]).unwrap();
    let accepted = |object: u64| {
        let mut batch = Batch { admission: Admission::Accepted, ..Batch::new() };
        let item = Item::with_block(Vec::new(), Block::fresh(noise(object, 1 << 20)));
        batch.put(section(object, 0), item);
        live.apply(batch)
    };
    let passed = (0..100).take_while(|object| accepted(*object).is_ok()).count();
    assert!((10..=17).contains(&passed), "{passed} MiB");
    assert!(is_quota(&accepted(500).unwrap_err()));
}

#[test]
fn a_reservation_is_kept_free_for_its_dataset() {
    let (memory, pool) = new_pool(128, &[]);
    let live = dataset(&pool, "d", &[("reservation", "32M")]).unwrap();
    let free_bytes = |view: &dyn View| view.space().free_bytes;
    let (others, own) = (free_bytes(&*root(&pool)), free_bytes(&*live));
    assert!(own - others > 31 * MIB, "{own} for the dataset, {others} for others");
    let (_, refused) = fill(&*root(&pool), 1, 100_000);
    assert_eq!(refused, Error::NoSpace);
    for object in 0..300 {
        put(&*live, section(object, 0), noise(object, 100_000)).unwrap();
    }
    live.sync().unwrap();
    assert!(referenced(&pool, "d") > 28 * MIB);
    drop((live, pool));
    let device: Arc<dyn marram_device::Device> = memory;
    let pool = open(&device);
    assert_eq!(fill(&*root(&pool), 100_000, 100_000).1, Error::NoSpace);
    for object in 0..300 {
        remove(&*view(&pool, "d"), section(object, 0)).unwrap();
    }
    assert_eq!(fill(&*root(&pool), 100_000, 100_000), (0, Error::NoSpace), "it is kept again");
    pool.set_property(&name("d"), "reservation", None).unwrap();
    assert!(fill(&*root(&pool), 100_000, 100_000).0 > 200, "now others can have it");
}

#[test]
fn a_reservation_must_fit_and_clones_have_none() {
    let (_memory, pool) = new_pool(128, &[]);
    let refused = dataset(&pool, "big", &[("reservation", "1G")]).err().unwrap();
    assert!(matches!(&refused, Error::Invalid(text) if text.contains("free")), "{refused}");
    let _live = dataset(&pool, "d", &[("reservation", "60M"), ("quota", "80M")]).unwrap();
    assert!(dataset(&pool, "e", &[("reservation", "60M")]).is_err(), "two do not fit");
    pool.set_property(&name("d"), "reservation", Some("70M")).unwrap();
    assert!(pool.set_property(&name("d"), "reservation", Some("200M")).is_err());
    pool.snapshot(&name("d"), "s").unwrap();
    pool.clone_snapshot(&"d@s".parse().unwrap(), &name("c")).unwrap();
    let properties = pool.properties(&name("c")).unwrap();
    assert_eq!(properties["reservation"], ("none".to_owned(), PropertySource::Default));
    assert_eq!(properties["quota"], ((80 * MIB).to_string(), PropertySource::Local));
}

/// A batch that adopts these blocks of a snapshot, each under a key of its own from `to` on.
fn adopting(live: &dyn View, from: &dyn View, blocks: &[u64], to: u64) -> Batch<'static> {
    let mut batch = Batch::new();
    for (object, place) in blocks.iter().zip(to..) {
        let item = from.get(section(*object, 0)).unwrap().unwrap();
        let block = live.adopt(from, &item.block.unwrap()).unwrap();
        batch.put(section(place, 0), Item { value: item.value, block: Some(block) });
    }
    batch
}

/// A pool with a dataset `d` that has a quota of 16 MiB, and the snapshot `root@s` with blocks of
/// 100,000 bytes under objects from 0 to 199.
fn with_blocks_to_adopt() -> (Arc<Pool>, Arc<dyn View>, Arc<dyn View>) {
    let (_memory, pool) = new_pool(256, &[]);
    let live = dataset(&pool, "d", &[("quota", "16M")]).unwrap();
    let blocks = root(&pool);
    for object in 0..200 {
        put(&*blocks, section(object, 0), noise(object, 100_000)).unwrap();
    }
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    let kept = view(&pool, "root@s");
    (pool, live, kept)
}

#[test]
fn what_is_adopted_counts_in_time() {
    let (pool, live, kept) = with_blocks_to_adopt();
    let adopt = |object: u64| live.apply(adopting(&*live, &*kept, &[object], object));
    let adopted = (0..200).take_while(|object| adopt(*object).is_ok()).count();
    assert!((150..=165).contains(&adopted), "{adopted} blocks of 100,000 bytes in 16 MiB");
    assert!(is_quota(&adopt(199).unwrap_err()));
    let free_bytes = live.space().free_bytes;
    assert!(free_bytes < MIB, "{free_bytes} are free beside what has been adopted");
    live.commit().unwrap();
    let used = referenced(&pool, "d");
    assert!((15 * MIB..=16 * MIB).contains(&used), "{used} bytes of 16 MiB");
}

#[test]
fn a_batch_that_adopts_too_much_fails_its_dry_run_and_does_nothing() {
    let (pool, live, kept) = with_blocks_to_adopt();
    let all: Vec<u64> = (0..200).collect();
    assert!(is_quota(&live.dry_run(adopting(&*live, &*kept, &all, 0)).unwrap_err()));
    assert!(is_quota(&live.apply(adopting(&*live, &*kept, &all, 0)).unwrap_err()));
    assert!(live.get(section(0, 0)).unwrap().is_none());
    let fewer = &all[..100];
    live.dry_run(adopting(&*live, &*kept, fewer, 0)).unwrap();
    live.apply(adopting(&*live, &*kept, fewer, 0)).unwrap();
    live.commit().unwrap();
    assert!((9 * MIB..=11 * MIB).contains(&referenced(&pool, "d")));
}

#[test]
fn a_block_that_is_adopted_under_many_keys_at_once_counts_once() {
    let (pool, live, kept) = with_blocks_to_adopt();
    live.apply(adopting(&*live, &*kept, &[7; 500], 0)).unwrap();
    put(&*live, section(1000, 0), noise(1000, 8 << 20)).unwrap();
    live.commit().unwrap();
    assert!(referenced(&pool, "d") < 10 * MIB);
}

#[test]
fn what_a_batch_that_adopts_replaces_is_taken_off() {
    let (pool, live, kept) = with_blocks_to_adopt();
    for object in 0..150 {
        put(&*live, section(object, 0), noise(1000 + object, 100_000)).unwrap();
    }
    live.commit().unwrap();
    let all: Vec<u64> = (0..200).collect();
    let room = adopting(&*live, &*kept, &all[..150], 0);
    live.dry_run(room).unwrap();
    assert!(is_quota(&live.apply(adopting(&*live, &*kept, &all[..50], 150)).unwrap_err()));
    assert!(is_quota(&live.apply(adopting(&*live, &*kept, &all, 0)).unwrap_err()));
    live.apply(adopting(&*live, &*kept, &all[..150], 0)).unwrap();
    live.commit().unwrap();
    let used = referenced(&pool, "d");
    assert!(used <= 16 * MIB, "{used} bytes of 16 MiB");
    // Above a quota that came later, what makes nothing grow goes through.
    pool.set_property(&name("d"), "quota", Some("8M")).unwrap();
    let mut smaller = adopting(&*live, &*kept, &all[150..], 0);
    (50..60).for_each(|object| _ = smaller.remove(section(object, 0)));
    live.apply(smaller).unwrap();
    assert!(is_quota(&live.apply(adopting(&*live, &*kept, &all[..1], 500)).unwrap_err()));
}

#[test]
fn a_block_that_stays_under_another_key_is_not_taken_off() {
    let (_pool, live, kept) = with_blocks_to_adopt();
    for object in 0..80 {
        put(&*live, section(object, 0), noise(1000 + object, 100_000)).unwrap();
    }
    live.commit().unwrap();
    // Each block gets a second key, so it stays when the first one goes.
    for object in 0..80 {
        let item = live.get(section(object, 0)).unwrap().unwrap();
        let mut batch = Batch::new();
        batch.put(section(object, 0), item.clone()).put(section(object + 500, 0), item);
        live.apply(batch).unwrap();
    }
    live.commit().unwrap();
    let all: Vec<u64> = (0..100).collect();
    assert!(is_quota(&live.apply(adopting(&*live, &*kept, &all, 0)).unwrap_err()));
    let mut both = adopting(&*live, &*kept, &all, 0);
    (500..580).for_each(|object| _ = both.remove(section(object, 0)));
    live.apply(both).unwrap();
}
