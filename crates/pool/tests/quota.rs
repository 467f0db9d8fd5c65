//! Quotas and reservations of datasets.

mod support;

use marram_pool::Pool;
use marram_store::{
    Admission, Batch, Block, DatasetName, Error, Item, PropertySource, Result, Store, View,
};
use std::sync::Arc;
use support::{new_pool, noise, open, put, remove, root, section, view};

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
