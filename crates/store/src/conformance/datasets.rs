//! Datasets, snapshots, clones and properties.

use super::{MakeStore, bytes, content, fresh, live, put, root, section, value};
use crate::{
    Batch, DatasetKind, DatasetName, Error, Item, Key, Properties, PropertySource, Source, Store,
    View, kind,
};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A snapshot keeps what was applied before it, whatever happens to the live dataset.
pub fn snapshots_keep_their_moment(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    put(&*view, section(2, 0), fresh(b"v", bytes(1, 50_000)));
    put(&*view, section(3, 0), Item::plain(&b"goes"[..]));
    store.snapshot(&DatasetName::root(), "one").expect("a snapshot is made");
    put(&*view, section(2, 0), fresh(b"w", bytes(2, 60_000)));
    let mut batch = Batch::new();
    batch.remove(section(3, 0));
    view.apply(batch).expect("the batch applies");
    for _ in 0..2 {
        let kept = store.open(&live("root@one")).expect("the snapshot opens");
        assert_eq!(content(&*kept, section(2, 0)), bytes(1, 50_000));
        assert_eq!(value(&*kept, section(3, 0)), Some(b"goes".to_vec()));
        assert_eq!(content(&*view, section(2, 0)), bytes(2, 60_000));
        assert_eq!(value(&*view, section(3, 0)), None);
        assert!(!kept.writable());
        let mut batch = Batch::new();
        batch.remove(section(3, 0));
        assert!(matches!(kept.apply(batch), Err(Error::ReadOnly(_))));
        store.sync().expect("the store syncs");
    }
    let again = store.snapshot(&DatasetName::root(), "one");
    assert!(matches!(again, Err(Error::DatasetExists(_))));
    let listed = store.list().expect("listed");
    let names: Vec<String> = listed.iter().map(|report| report.source.to_string()).collect();
    assert_eq!(names, ["root", "root@one"]);
    assert_eq!(listed[1].kind, DatasetKind::Snapshot);
}

/// A report is that of the list, and there is none of what is not there.
pub fn reports_are_those_of_the_list(make: MakeStore<'_>) {
    let store = make();
    put(&*root(&store), section(2, 0), fresh(b"", bytes(1, 5_000)));
    store.snapshot(&DatasetName::root(), "s").expect("a snapshot is made");
    store.fork(&DatasetName::root(), &"f".parse().expect("valid"), 7).expect("a fork is made");
    let listed = store.list().expect("listed");
    assert_eq!(listed.len(), 4);
    let numbers: std::collections::BTreeSet<u64> = listed.iter().map(|it| it.number).collect();
    assert_eq!(numbers.len(), 4, "each has a number of its own");
    for report in &listed {
        assert_eq!(store.report(&report.source).as_ref(), Ok(report));
    }
    for missing in ["none", "root@none", "f@s"] {
        let refused = store.report(&live(missing));
        assert!(matches!(refused, Err(Error::NoDataset(_))), "{refused:?}");
    }
}

/// Snapshots that are taken together are of one moment, and all or none are taken.
pub fn snapshots_together_are_of_one_moment(make: MakeStore<'_>) {
    const ROUNDS: u8 = 8;
    let store = make();
    let names = ["a", "b"].map(|name| name.parse::<DatasetName>().expect("a valid name"));
    let views = names.each_ref().map(|name| {
        store.create(name, &Properties::default()).expect("a dataset is made");
        store.open(&Source::live(name.clone())).expect("it opens")
    });
    let step = |view: &dyn View, number: u64| {
        put(view, section(2, 0), Item::plain(number.to_le_bytes().to_vec()));
    };
    views.iter().for_each(|view| step(&**view, 0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                views.iter().for_each(|view| step(&**view, number));
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for round in 0..ROUNDS {
            let taken = store.snapshot_together(&names, &format!("s{round}"));
            taken.expect("snapshots are made");
        }
        done.store(true, Ordering::Relaxed);
    });
    for round in 0..ROUNDS {
        let [a, b] = names.each_ref().map(|name| number_in(&store, &format!("{name}@s{round}")));
        assert!(a == b || a == b + 1, "one step before the other: {a}, {b}");
    }
    store.snapshot(&names[1], "taken").expect("a snapshot is made");
    let refused = store.snapshot_together(&names, "taken");
    assert!(matches!(refused, Err(Error::DatasetExists(_))), "{refused:?}");
    let refused = store.snapshot_together(&[names[0].clone(), "c".parse().expect("valid")], "new");
    assert!(matches!(refused, Err(Error::NoDataset(_))), "{refused:?}");
    for missing in ["a@taken", "a@new"] {
        assert!(matches!(store.report(&live(missing)), Err(Error::NoDataset(_))), "{missing}");
    }
}

fn number_in(store: &Arc<dyn Store>, source: &str) -> u64 {
    let view = store.open(&live(source)).expect("the snapshot opens");
    let number = value(&*view, section(2, 0)).expect("there is an item");
    u64::from_le_bytes(number.try_into().expect("8 bytes"))
}

/// A clone begins as its snapshot, and neither sees what happens to the other.
pub fn clones_diverge_from_their_origin(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    for offset in 0..50 {
        put(&*view, section(2, offset), fresh(b"", bytes(offset, 3000)));
    }
    let origin = live("root@base");
    store.snapshot(&DatasetName::root(), "base").expect("a snapshot is made");
    let name: DatasetName = "work".parse().expect("a valid name");
    store.clone_snapshot(&origin, &name).expect("a clone is made");
    let clone = store.open(&live("work")).expect("the clone opens");
    put(&*clone, section(2, 1), Item::plain(&b"clone's"[..]));
    put(&*view, section(2, 2), Item::plain(&b"root's"[..]));
    let mut batch = Batch::new();
    batch.remove(section(2, 3));
    view.apply(batch).expect("the batch applies");
    store.sync().expect("the store syncs");
    assert_eq!(value(&*view, section(2, 1)), Some(Vec::new()));
    assert_eq!(value(&*clone, section(2, 2)), Some(Vec::new()));
    assert_eq!(content(&*clone, section(2, 3)), bytes(3, 3000), "the clone keeps its block");
    let listed = store.list().expect("listed");
    let report = listed.iter().find(|report| report.source == live("work")).expect("listed");
    assert_eq!((report.kind, report.origin.as_ref()), (DatasetKind::Clone, Some(&origin)));
    let taken = store.clone_snapshot(&origin, &name);
    assert!(matches!(taken, Err(Error::DatasetExists(_))));
    let missing = store.clone_snapshot(&live("root@none"), &"x".parse().expect("valid"));
    assert!(matches!(missing, Err(Error::NoDataset(_))));
}

/// What is open or has clones stays; a dry run destroys nothing.
pub fn destruction_is_refused_while_in_use(make: MakeStore<'_>) {
    let store = make();
    let name: DatasetName = "base".parse().expect("a valid name");
    store.create(&name, &Properties::default()).expect("a dataset is made");
    let view = store.open(&live("base")).expect("it opens");
    put(&*view, section(2, 0), fresh(b"", bytes(1, 100_000)));
    store.snapshot(&name, "s").expect("a snapshot is made");
    store.clone_snapshot(&live("base@s"), &"clone".parse().expect("valid")).expect("a clone");
    let in_use =
        |source: &str| matches!(store.destroy(&live(source), false), Err(Error::InUse { .. }));
    assert!(in_use("base"), "it is open and has a clone");
    assert!(in_use("base@s"), "it has a clone");
    drop(view);
    assert!(in_use("base"), "its snapshot has a clone");
    store.destroy(&live("clone"), false).expect("the clone goes");
    let plan = store.destroy(&live("base"), true).expect("a dry run");
    assert_eq!(plan.sources, [live("base"), live("base@s")]);
    store.open(&live("base@s")).expect("a dry run destroys nothing");
    store.destroy(&live("base"), false).expect("the dataset goes");
    assert!(matches!(store.open(&live("base@s")), Err(Error::NoDataset(_))));
    assert!(matches!(store.destroy(&live("base"), false), Err(Error::NoDataset(_))));
}

/// Properties have defaults, can be set where they make sense, and reset.
pub fn properties_are_set_and_reset(make: MakeStore<'_>) {
    let store = make();
    let name = DatasetName::root();
    let record = || store.properties(&name).expect("properties")["recordsize"].clone();
    assert_eq!(record().1, PropertySource::Default);
    store.set_property(&name, "recordsize", Some("16384")).expect("it is set");
    assert_eq!(record(), ("16384".to_owned(), PropertySource::Local));
    assert_eq!(root(&store).properties().0["recordsize"], "16384");
    for bad in ["", "5000", "2048", "2097152", "x"] {
        let refused = store.set_property(&name, "recordsize", Some(bad));
        assert!(matches!(refused, Err(Error::Invalid(_))), "{bad}");
    }
    let refused = store.set_property(&name, "no-such-property", Some("1"));
    assert!(matches!(refused, Err(Error::Invalid(_))));
    store.set_property(&name, "recordsize", None).expect("it is reset");
    assert_eq!(record().1, PropertySource::Default);
}

/// A limit is an item of its dataset: set, taken away, and kept by snapshots.
pub fn limits_of_owners_are_items(make: MakeStore<'_>) {
    let store = make();
    let name = DatasetName::root();
    let (owner, key) = (1 << 32 | 100, Key::new(0, kind::LIMIT, 1 << 32 | 100));
    let item = |source: &str| {
        let view = store.open(&live(source)).expect("it opens");
        view.get(key).expect("it is read").map(|item| item.value)
    };
    let limit = Bytes::from_static(&[7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    store.set_owner_limit(&name, owner, Some(limit.clone())).expect("a limit is set");
    assert_eq!(item("root"), Some(limit.clone()));
    store.snapshot(&name, "kept").expect("a snapshot is taken");
    store.set_owner_limit(&name, owner, None).expect("a limit is taken away");
    assert_eq!((item("root"), item("root@kept")), (None, Some(limit.clone())));
    let missing = "missing".parse().expect("a valid name");
    let refused = store.set_owner_limit(&missing, owner, Some(limit));
    assert!(matches!(refused, Err(Error::NoDataset(_))), "{refused:?}");
}
