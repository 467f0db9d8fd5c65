//! Forks, rollbacks, promotion, other names; what differs; what is taken over.

use super::{MakeStore, bytes, content, fresh, is_absent, live, put, root, section, value};
use crate::{Batch, DatasetKind, DatasetName, DatasetReport, Error, Item, ItemChange};
use crate::{Key, ROOT_OBJECT, Source, Store, View};
use std::sync::Arc;

fn name(text: &str) -> DatasetName {
    text.parse().expect("a valid name")
}

fn report(store: &Arc<dyn Store>, source: &str) -> DatasetReport {
    let listed = store.list().expect("listed");
    listed.into_iter().find(|report| report.source == live(source)).expect("it is listed")
}

fn names(store: &Arc<dyn Store>) -> Vec<String> {
    store.list().expect("listed").iter().map(|report| report.source.to_string()).collect()
}

fn is_in_use(store: &Arc<dyn Store>, source: &str) -> bool {
    matches!(store.destroy(&live(source), false), Err(Error::InUse { .. }))
}

fn destroy(store: &Arc<dyn Store>, source: &str) -> Vec<String> {
    let destroyed = store.destroy(&live(source), false).expect(source);
    destroyed.sources.iter().map(Source::to_string).collect()
}

fn open(store: &Arc<dyn Store>, source: &str) -> Arc<dyn View> {
    store.open(&live(source)).expect(source)
}

/// What is under `section(2, 0)`.
fn state(store: &Arc<dyn Store>, source: &str) -> Vec<u8> {
    content(&*open(store, source), section(2, 0))
}

/// A fork begins as its base, shows what it was made for, and goes with it.
pub fn forks_begin_as_their_base(make: MakeStore<'_>) {
    let store = make();
    put(&*root(&store), section(2, 0), fresh(b"", bytes(1, 30_000)));
    store.fork(&DatasetName::root(), &name("forks/a"), 7).expect("a fork is made");
    let fork = report(&store, "forks/a");
    assert_eq!((fork.kind, fork.root_object), (DatasetKind::Clone, 7));
    let base = fork.origin.expect("a fork has a base");
    assert!(base.is_fork_base() && base.dataset == DatasetName::root());
    assert_eq!(report(&store, "root").root_object, ROOT_OBJECT);
    put(&*root(&store), section(2, 0), fresh(b"", bytes(2, 30_000)));
    put(&*open(&store, "forks/a"), section(3, 0), fresh(b"", bytes(3, 30_000)));
    assert_eq!(state(&store, "forks/a"), bytes(1, 30_000));
    assert_eq!(value(&*root(&store), section(3, 0)), None);
    store.snapshot(&name("forks/a"), "s").expect("forks have snapshots");
    assert_eq!(report(&store, "forks/a@s").root_object, 7);
    store.fork(&name("forks/a"), &name("forks/b"), 9).expect("a fork of a fork is made");
    store.fork(&DatasetName::root(), &name("other/a"), 1).expect("another base is made");
    assert_ne!(report(&store, "other/a").origin, Some(base.clone()));
    assert!(matches!(
        store.fork(&DatasetName::root(), &name("forks/a"), 1),
        Err(Error::DatasetExists(_))
    ));
    assert!(is_in_use(&store, "forks/a"), "a fork began as it");
    assert!(is_in_use(&store, &base.to_string()));
    assert_eq!(content(&*open(&store, "forks/b"), section(3, 0)), bytes(3, 30_000));
    assert_eq!(destroy(&store, "forks/b"), ["forks/a@fork:b", "forks/b"]);
    let gone = destroy(&store, "forks/a");
    assert_eq!(gone, ["forks/a", "forks/a@s", "root@fork:a"]);
    destroy(&store, "other/a");
    assert_eq!(names(&store), ["root"]);
    assert_eq!(state(&store, "root"), bytes(2, 30_000));
}

/// A rollback shows the old state to views that are open, keeps the one before, and can be taken
/// back; what is left can be destroyed in any order that is not refused.
pub fn rollbacks_go_back_and_keep_what_was(make: MakeStore<'_>) {
    let store = make();
    if store.capabilities().lineage.is_none() {
        store.snapshot(&DatasetName::root(), "s").expect("a snapshot is made");
        assert!(is_absent(store.rollback(&live("root@s"), "kept")));
        assert_eq!(names(&store), ["root", "root@s"]);
        return;
    }
    let data = name("data");
    store.create(&data, &crate::Properties::default()).expect("a dataset is made");
    let view = open(&store, "data");
    for (round, snapshot) in (1..).zip(["one", "two", "three"]) {
        put(&*view, section(2, 0), fresh(b"", bytes(round, 40_000)));
        put(&*view, section(3, round), fresh(b"", bytes(round, 5_000)));
        store.snapshot(&data, snapshot).expect("a snapshot is made");
    }
    put(&*view, section(2, 0), fresh(b"", bytes(4, 40_000)));
    let taken = store.rollback(&live("data@one"), "two");
    assert!(matches!(taken, Err(Error::DatasetExists(_))));
    assert!(matches!(store.rollback(&live("data"), "x"), Err(Error::Invalid(_))));
    assert!(matches!(store.rollback(&live("data@none"), "x"), Err(Error::NoDataset(_))));
    assert_eq!(state(&store, "data"), bytes(4, 40_000), "what is refused changes nothing");
    store.rollback(&live("data@one"), "before").expect("it goes back");
    assert_eq!(content(&*view, section(2, 0)), bytes(1, 40_000));
    assert_eq!(value(&*view, section(3, 2)), None);
    put(&*view, section(2, 0), fresh(b"", bytes(5, 40_000)));
    store.sync().expect("the store syncs");
    for (snapshot, seed) in [("one", 1), ("two", 2), ("three", 3), ("before", 4)] {
        assert_eq!(state(&store, &format!("data@{snapshot}")), bytes(seed, 40_000), "{snapshot}");
    }
    store.rollback(&live("data@before"), "undone").expect("it goes forth again");
    assert_eq!(content(&*view, section(2, 0)), bytes(4, 40_000));
    assert_eq!(content(&*view, section(3, 3)), bytes(3, 5_000));
    assert_eq!(state(&store, "data@undone"), bytes(5, 40_000));
    assert!(is_in_use(&store, "data@one"), "two lines began as it");
    destroy(&store, "data@two");
    destroy(&store, "data@undone");
    destroy(&store, "data@one");
    assert_eq!(state(&store, "data@three"), bytes(3, 40_000));
    destroy(&store, "data@before");
    store.rollback(&live("data@three"), "last").expect("it goes back again");
    assert_eq!(content(&*view, section(2, 0)), bytes(3, 40_000));
    drop(view);
    destroy(&store, "data");
    assert_eq!(names(&store), ["root"]);
}

/// A promoted clone has the snapshots that it began as, and the other one can go.
pub fn promoted_clones_take_their_snapshots_over(make: MakeStore<'_>) {
    let store = make();
    if store.capabilities().lineage.is_none() {
        store.snapshot(&DatasetName::root(), "s").expect("a snapshot is made");
        store.clone_snapshot(&live("root@s"), &name("c")).expect("a clone is made");
        assert!(is_absent(store.promote(&name("c"))));
        assert_eq!(names(&store), ["c", "root", "root@s"]);
        return;
    }
    let data = name("data");
    store.create(&data, &crate::Properties::default()).expect("a dataset is made");
    let view = open(&store, "data");
    for (round, snapshot) in (1..).zip(["one", "two", "three"]) {
        put(&*view, section(2, 0), fresh(b"", bytes(round, 40_000)));
        put(&*view, section(3, round), fresh(b"", bytes(round, 5_000)));
        store.snapshot(&data, snapshot).expect("a snapshot is made");
    }
    drop(view);
    store.clone_snapshot(&live("data@two"), &name("clone")).expect("a clone is made");
    put(&*open(&store, "clone"), section(2, 0), fresh(b"", bytes(7, 40_000)));
    store.snapshot(&name("clone"), "one").expect("a snapshot is made");
    assert!(matches!(store.promote(&name("clone")), Err(Error::DatasetExists(_))));
    store.rename(&live("clone@one"), &live("clone@mine")).expect("it gets another name");
    assert!(is_in_use(&store, "data"), "a clone began as it");
    assert!(matches!(store.promote(&data), Err(Error::Invalid(_))));
    store.promote(&name("clone")).expect("it is promoted");
    assert_eq!(
        names(&store),
        ["clone", "clone@mine", "clone@one", "clone@two", "data", "data@three", "root"]
    );
    assert_eq!(report(&store, "clone").kind, DatasetKind::Live);
    assert_eq!(report(&store, "data").origin, Some(live("clone@two")));
    assert!(is_in_use(&store, "clone"), "what was promoted has the other as its clone");
    assert!(is_in_use(&store, "clone@two"));
    destroy(&store, "clone@one");
    destroy(&store, "data");
    assert_eq!(state(&store, "clone@two"), bytes(2, 40_000));
    assert_eq!(content(&*open(&store, "clone"), section(3, 1)), bytes(1, 5_000));
    assert_eq!(content(&*open(&store, "clone"), section(3, 2)), bytes(2, 5_000));
    destroy(&store, "clone@two");
    assert_eq!(state(&store, "clone"), bytes(7, 40_000));
    assert_eq!(destroy(&store, "clone"), ["clone", "clone@mine"]);
}

/// Names change while things are open.
pub fn names_change(make: MakeStore<'_>) {
    let store = make();
    put(&*root(&store), section(2, 0), fresh(b"", bytes(1, 9_000)));
    store.snapshot(&DatasetName::root(), "s").expect("a snapshot is made");
    store.rename(&live("root@s"), &live("root@t")).expect("a snapshot gets another name");
    assert_eq!(state(&store, "root@t"), bytes(1, 9_000));
    destroy(&store, "root@t");
    store.create(&name("a"), &crate::Properties::default()).expect("a dataset is made");
    store.snapshot(&name("a"), "s").expect("a snapshot is made");
    let view = open(&store, "a");
    for refused in [("root", "x"), ("a", "root@x"), ("a@s", "root@s"), ("a@s", "a")] {
        let renamed = store.rename(&live(refused.0), &live(refused.1));
        assert!(matches!(renamed, Err(Error::Invalid(_))), "{refused:?}");
    }
    assert!(matches!(store.rename(&live("a"), &live("root")), Err(Error::DatasetExists(_))));
    assert!(matches!(store.rename(&live("b"), &live("c")), Err(Error::NoDataset(_))));
    store.rename(&live("a"), &live("b/c")).expect("a dataset gets another name");
    put(&*view, section(2, 0), Item::plain(&b"still open"[..]));
    assert_eq!(names(&store), ["b/c", "b/c@s", "root"]);
    let known = value(&*open(&store, "b/c"), section(2, 0));
    assert_eq!(known, Some(b"still open".to_vec()));
}

/// Keys and whether each was and is there.
fn changes(store: &Arc<dyn Store>, before: &str, after: &str, from: Key) -> Vec<(Key, bool, bool)> {
    let mut found = Vec::new();
    let mut visit = |ItemChange { key, before, after }: ItemChange| {
        found.push((key, before.is_some(), after.is_some()));
        true
    };
    store.changes(&live(before), &live(after), from, &mut visit).expect("changes are found");
    found
}

/// What two snapshots differ in is found, in order, and nothing else.
pub fn changes_are_found(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    for object in 1..200 {
        put(&*view, section(object, 0), fresh(b"v", bytes(object, 2_000)));
    }
    store.snapshot(&DatasetName::root(), "a").expect("a snapshot is made");
    put(&*view, section(5, 0), fresh(b"v", bytes(1_000, 2_000)));
    put(&*view, section(7, 1), Item::plain(&b"new"[..]));
    let same = view.get(section(9, 0)).expect("read").expect("there is an item");
    put(&*view, section(9, 0), Item { value: same.value.clone(), block: same.block.clone() });
    let mut batch = Batch::new();
    batch.remove(section(8, 0));
    batch.put(section(11, 0), Item { value: b"w"[..].into(), ..same_block(&*view, 11) });
    view.apply(batch).expect("the batch applies");
    store.snapshot(&DatasetName::root(), "b").expect("a snapshot is made");
    let (changed, new, gone) = ((true, true), (false, true), (true, false));
    let expected = [(5, 0, changed), (7, 1, new), (8, 0, gone), (11, 0, changed)]
        .map(|(object, offset, (was, is))| (section(object, offset), was, is));
    assert_eq!(changes(&store, "root@a", "root@b", Key::MIN), expected);
    assert_eq!(changes(&store, "root@a", "root@b", section(7, 1)), expected[1..]);
    let back = changes(&store, "root@b", "root@a", Key::MIN);
    assert_eq!(back, expected.map(|(key, was, is)| (key, is, was)));
    assert_eq!(changes(&store, "root@a", "root@a", Key::MIN), []);
    store.clone_snapshot(&live("root@a"), &name("c")).expect("a clone is made");
    put(&*open(&store, "c"), section(100, 3), Item::plain(&b"new"[..]));
    store.snapshot(&name("c"), "s").expect("a snapshot is made");
    let across = changes(&store, "root@a", "c@s", Key::MIN);
    assert_eq!(across, [(section(100, 3), false, true)]);
    let mut seen = 0;
    let mut stop = |_: ItemChange| {
        seen += 1;
        false
    };
    store.changes(&live("root@a"), &live("root@b"), Key::MIN, &mut stop).expect("it stops");
    assert_eq!(seen, 1);
    let refused = store.changes(&live("root"), &live("root@a"), Key::MIN, &mut |_| true);
    assert!(matches!(refused, Err(Error::Invalid(_))));
}

fn same_block(view: &dyn View, object: u64) -> Item {
    view.get(section(object, 0)).expect("read").expect("there is an item")
}

/// A block of another dataset is taken over whatever its state, and stays when the other goes.
pub fn adopted_blocks_outlive_their_first_owner(make: MakeStore<'_>) {
    let store = make();
    let target = root(&store);
    put(&*target, section(1, 0), fresh(b"", bytes(9, 20_000)));
    store.fork(&DatasetName::root(), &name("forks/f"), 1).expect("a fork is made");
    let fork = open(&store, "forks/f");
    let lens = [300, 20_000, 90_000];
    for (object, len) in (2..).zip(lens) {
        put(&*fork, section(object, 0), fresh(b"", bytes(object, len)));
    }
    store.snapshot(&name("forks/f"), "merge:1").expect("a snapshot is made");
    put(&*fork, section(9, 0), fresh(b"", bytes(9, 50_000)));
    let kept = open(&store, "forks/f@merge:1");
    let mut batch = Batch::new();
    for object in 2..5 {
        let item = same_block(&*kept, object);
        let block = item.block.expect("it has a block");
        let adopted = target.adopt(&*kept, &block).expect("it is adopted");
        assert_eq!(target.read_block(&adopted).expect("it is read").len(), block.len());
        batch.put(section(object, 0), Item { value: item.value.clone(), block: Some(adopted) });
    }
    let unwritten = same_block(&*fork, 9).block.expect("it has a block");
    let adopted = target.adopt(&*fork, &unwritten).expect("it is adopted");
    // Two items of the adopting dataset share it.
    batch.put(section(9, 0), Item::with_block(&b""[..], adopted.clone()));
    batch.put(section(9, 100), Item::with_block(&b""[..], adopted));
    target.apply(batch).expect("the batch applies");
    drop((kept, fork));
    assert_eq!(content(&*target, section(3, 0)), bytes(3, 20_000), "before it is durable");
    destroy(&store, "forks/f");
    store.sync().expect("the store syncs");
    for round in 0..20 {
        put(&*target, section(50, round), fresh(b"", bytes(50 + round, 60_000)));
        store.sync().expect("the store syncs");
    }
    for (object, len) in (2..).zip(lens) {
        assert_eq!(content(&*target, section(object, 0)), bytes(object, len), "{object}");
    }
    assert_eq!(content(&*target, section(9, 100)), bytes(9, 50_000));
    assert_eq!(names(&store), ["root"]);
}
