//! What some stores can do beside the core: each test runs where the store has the capability, and
//! looks at what holds without it.

use super::{
    MakeStore, block_at, bytes, content, fresh, is_absent, live, put, root, section, value,
};
use crate::{
    Batch, Counter, DatasetKind, DatasetName, Error, Item, Key, MergedFrom, Properties, Result,
    Source, Store, View, kind,
};
use std::sync::Arc;

/// Which of its capabilities a store hands out.
fn names_of(store: &dyn Store) -> [bool; 9] {
    let all = store.capabilities();
    [
        all.ephemeral.is_some(),
        all.usage.is_some(),
        all.frozen.is_some(),
        all.log.is_some(),
        all.undo.is_some(),
        all.holds.is_some(),
        all.lineage.is_some(),
        all.volatile.is_some(),
        all.several.is_some(),
    ]
}

fn sources(store: &dyn Store) -> Vec<String> {
    store.list().expect("listed").iter().map(|report| report.source.to_string()).collect()
}

/// A store goes on having what it has.
pub fn store_capabilities_stay(make: MakeStore<'_>) {
    let store = make();
    let before = names_of(&*store);
    put(&*root(&store), section(2, 0), fresh(b"", bytes(1, 5000)));
    store.snapshot(&DatasetName::root(), "s").expect("a snapshot is made");
    assert_eq!(names_of(&*store), before);
}

/// An ephemeral snapshot is a snapshot until it is discarded; without the capability it is one that
/// a list shows.
pub fn ephemeral_snapshots_go_when_they_are_discarded(make: MakeStore<'_>) {
    let store = make();
    let (data, key) = ("data".parse::<DatasetName>().expect("valid"), section(2, 0));
    store.create(&data, &Properties::default()).expect("a dataset is made");
    let view = store.open(&live("data")).expect("it opens");
    put(&*view, key, fresh(b"", bytes(1, 30_000)));
    let first = store.ephemeral_snapshot(&data, "diff").expect("it is kept");
    assert_eq!(store.report(&first).expect("it is reported").kind, DatasetKind::Snapshot);
    let kept = store.open(&first).expect("it opens");
    assert!(!kept.writable() && !store.is_overtaken(&first));
    assert_eq!(content(&*kept, key), bytes(1, 30_000));
    drop((kept, view));
    let is_ephemeral = store.capabilities().ephemeral.is_some();
    match is_ephemeral {
        true => {
            assert_eq!(sources(&*store), ["data", "root"]);
            let destroyed = store.destroy(&live("data"), false);
            assert!(matches!(destroyed, Err(Error::InUse { .. })), "its dataset counts as open");
        }
        false => assert_eq!(sources(&*store), ["data", "data@diff:1", "root"]),
    }
    let view = store.open(&live("data")).expect("it opens");
    put(&*view, key, fresh(b"", bytes(2, 30_000)));
    check_goes_on(&store, (&data, &first));
    store.discard_snapshot(&first);
    assert!(matches!(store.open(&first), Err(Error::NoDataset(_))));
    store.discard_snapshot(&first);
    assert_eq!(sources(&*store), ["data", "root"]);
    assert_eq!(content(&*view, key), bytes(2, 30_000));
}

/// While its dataset goes on, it is what it was, or overtaken; a numbered snapshot never is.
fn check_goes_on(store: &Arc<dyn Store>, (data, first): (&DatasetName, &Source)) {
    let numbered = store.numbered_snapshot(data, "merge").expect("a snapshot is made");
    assert_eq!(numbered, live("data@merge:1"));
    let mut changed = Vec::new();
    let walked = store.changes(first, &numbered, Key::MIN, &mut |change| {
        changed.push(change.key);
        true
    });
    match walked {
        Ok(()) => assert_eq!(changed, [section(2, 0)]),
        Err(error) => assert!(store.is_overtaken(first), "{error}"),
    }
    assert!(!store.is_overtaken(&numbered));
    if let Some(ephemeral) = store.capabilities().ephemeral {
        assert!(!ephemeral.discard_ephemeral(&numbered), "it is on media");
    }
    let kept = store.open(&numbered).expect("it opens");
    assert_eq!(content(&*kept, section(2, 0)), bytes(2, 30_000));
    drop(kept);
    store.discard_snapshot(&numbered);
    assert!(matches!(store.open(&numbered), Err(Error::NoDataset(_))));
}

/// The parts of the space in use add up, and each dataset and snapshot has its own.
pub fn usage_adds_up(make: MakeStore<'_>) {
    let store = make();
    if store.capabilities().usage.is_none() {
        assert!(is_absent(store.usage(true)));
        return;
    }
    let view = root(&store);
    put(&*view, section(2, 0), fresh(b"", bytes(1, 70_000)));
    store.snapshot(&DatasetName::root(), "s").expect("a snapshot is made");
    put(&*view, section(2, 0), fresh(b"", bytes(2, 90_000)));
    put(&*view, section(3, 0), fresh(b"", bytes(3, 50_000)));
    store.sync().expect("the store syncs");
    view.commit().expect("the view commits");
    for exact in [false, true] {
        let usage = store.usage(exact).expect("it is counted");
        let added: u64 = usage.holders.iter().map(|holder| holder.added_bytes).sum();
        let sum = added + usage.own_bytes + usage.leaving_bytes - usage.shared_bytes;
        assert_eq!(sum, usage.allocated_bytes);
        let names: Vec<String> =
            usage.holders.iter().map(|holder| holder.report.source.to_string()).collect();
        assert_eq!(names, sources(&*store));
        let unique = [0, 1].map(|holder: usize| usage.holders[holder].unique_bytes);
        assert!(unique[0] >= 140_000 && unique[1] >= 70_000, "{unique:?}");
    }
    let before = store.usage(true).expect("it is counted");
    store.destroy(&live("root@s"), false).expect("the snapshot goes");
    view.commit().expect("the view commits");
    let after = store.usage(true).expect("it is counted");
    let freed = before.allocated_bytes - (after.allocated_bytes - after.leaving_bytes);
    assert!(freed >= 70_000, "what was unique to it: {freed}");
}

/// A frozen view stays as it is, and says how many hold a block.
pub fn frozen_views_know_what_holds_a_block(make: MakeStore<'_>) {
    let store = make();
    let view = root(&store);
    put(&*view, section(2, 0), fresh(b"", bytes(2, 70_000)));
    view.commit().expect("the view commits");
    assert_eq!(view.holding(&block_at(&*view, 2)), Ok(None), "it is not frozen");
    if store.capabilities().frozen.is_none() {
        assert!(is_absent(store.frozen(&live("root"))));
        return;
    }
    let frozen = store.frozen(&live("root")).expect("it opens");
    assert!(!frozen.writable());
    let block = block_at(&*frozen, 2);
    let ownership = frozen.capabilities().ownership.expect("a frozen view knows owners");
    let holding = ownership.holding(&block).expect("it is read").expect("it takes a place");
    assert_eq!((holding.references, holding.owners, holding.comes_back), (1, 1, true));
    put(&*view, section(2, 0), fresh(b"", bytes(3, 70_000)));
    store.sync().expect("the store syncs");
    assert_eq!(content(&*frozen, section(2, 0)), bytes(2, 70_000));
    assert!(matches!(store.frozen(&live("none")), Err(Error::NoDataset(_))));
}

/// A fork of the root dataset with an item of its own under `section(9, 0)`.
fn forked(store: &Arc<dyn Store>) -> Source {
    let fork = live("fork");
    store.fork(&DatasetName::root(), &fork.dataset, 1).expect("a fork is made");
    put(&*store.open(&fork).expect("it opens"), section(9, 0), fresh(b"", bytes(9, 40_000)));
    fork
}

/// Brings what `read` has under `section(9, 0)` into the root dataset, with `more` edits.
fn merge(
    store: &Arc<dyn Store>,
    (fork, read): (&Source, &Source),
    keep: Option<&str>,
    more: &dyn Fn(&mut Batch<'_>),
) -> Result<()> {
    let (view, from) = (root(store), store.open(read).expect("it opens"));
    let adopted = view.adopt(&*from, &block_at(&*from, 9)).expect("it is adopted");
    let mut batch = Batch::new();
    batch.put(section(9, 0), Item::with_block(&b""[..], adopted));
    more(&mut batch);
    let dataset = DatasetName::root();
    let merged = MergedFrom {
        dataset: &dataset,
        fork,
        read,
        keep,
        root_object: 1,
        base: None,
        moves_base: false,
        may_wait: false,
    };
    store.apply_merge(&*view, batch, &merged).map(|_| ())
}

/// A merge brings its batch and its snapshot, or neither.
pub fn merges_are_one_step(make: MakeStore<'_>) {
    let store = make();
    put(&*root(&store), section(2, 0), fresh(b"", bytes(2, 9_000)));
    let fork = forked(&store);
    let read = store.ephemeral_snapshot(&fork.dataset, "merge").expect("it is kept");
    let names = sources(&*store);
    let counter = Key::new(0, kind::USAGE, 1);
    let past_limit = |batch: &mut Batch<'_>| {
        batch.add(counter, Counter([5, 0]), Counter([4, 0]));
    };
    let refused = merge(&store, (&fork, &read), Some("kept"), &past_limit);
    assert!(matches!(refused, Err(Error::LimitExceeded(_))), "{refused:?}");
    let taken = fork_base_name(&store, &fork);
    let refused = merge(&store, (&fork, &read), Some(&taken), &|_| ());
    assert!(matches!(refused, Err(Error::DatasetExists(_))), "{refused:?}");
    assert_eq!(value(&*root(&store), section(9, 0)), None, "what is refused changes nothing");
    assert_eq!(sources(&*store), names, "and leaves no snapshot");
    merge(&store, (&fork, &read), Some("kept"), &|_| ()).expect("it is merged");
    let view = root(&store);
    assert_eq!(content(&*view, section(9, 0)), bytes(9, 40_000));
    let kept = store.open(&live("root@kept")).expect("the state before is kept");
    assert_eq!(value(&*kept, section(9, 0)), None);
    assert_eq!(content(&*kept, section(2, 0)), bytes(2, 9_000));
    store.discard_snapshot(&read);
    store.destroy(&fork, false).expect("the fork goes");
    view.sync().expect("the view syncs");
    assert_eq!(content(&*view, section(9, 0)), bytes(9, 40_000));
    assert_eq!(sources(&*store), ["root", "root@kept"]);
}

/// The last part of the name of a fork's base.
fn fork_base_name(store: &Arc<dyn Store>, fork: &Source) -> String {
    let origin = store.report(fork).expect("it is reported").origin.expect("it has a base");
    origin.snapshot.expect("a base is a snapshot")
}

/// A state that its dataset has left behind is not merged where its blocks may be gone.
pub fn overtaken_states_are_not_merged(make: MakeStore<'_>) {
    let store = make();
    put(&*root(&store), section(2, 0), fresh(b"", bytes(2, 9_000)));
    let fork = forked(&store);
    let read = store.ephemeral_snapshot(&fork.dataset, "merge").expect("it is kept");
    let writer = store.open(&fork).expect("it opens");
    put(&*writer, section(9, 0), fresh(b"", bytes(10, 40_000)));
    store.sync().expect("the store syncs");
    let view: &dyn View = &*root(&store);
    match merge(&store, (&fork, &read), None, &|_| ()) {
        Ok(()) => assert_eq!(content(view, section(9, 0)), bytes(9, 40_000)),
        Err(error) => {
            assert!(matches!(error, Error::InUse { .. }), "{error}");
            assert!(store.is_overtaken(&read));
            assert_eq!(value(view, section(9, 0)), None);
            store.discard_snapshot(&read);
            let read = store.numbered_snapshot(&fork.dataset, "merge").expect("it is kept");
            merge(&store, (&fork, &read), None, &|_| ()).expect("it is merged");
            assert_eq!(content(view, section(9, 0)), bytes(10, 40_000));
        }
    }
}

/// A merge that was computed on another base than there is changes nothing.
pub fn merges_on_another_base_are_refused(make: MakeStore<'_>) {
    let store = make();
    put(&*root(&store), section(2, 0), fresh(b"", bytes(2, 9_000)));
    let fork = forked(&store);
    let origin = store.report(&fork).expect("it is reported").origin.expect("it has a base");
    let dataset = DatasetName::root();
    let merge = |base: &Source, edit: u64| {
        let read = store.ephemeral_snapshot(&fork.dataset, "merge").expect("it is kept");
        let mut batch = Batch::new();
        batch.put(section(edit, 0), fresh(b"", bytes(edit, 5_000)));
        let merged = MergedFrom {
            dataset: &dataset,
            fork: &fork,
            read: &read,
            keep: None,
            root_object: 1,
            base: Some(base),
            moves_base: true,
            may_wait: false,
        };
        let done = store.apply_merge(&*root(&store), batch, &merged);
        store.discard_snapshot(&read);
        done
    };
    let newest = || {
        let all = store.list().expect("listed");
        crate::merge_bases(&all, &dataset, &fork.dataset).pop().expect("a base")
    };
    merge(&origin, 21).expect("it is merged");
    let (first, names) = (newest(), sources(&*store));
    let refused = merge(&origin, 22);
    assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
    assert_eq!(value(&*root(&store), section(22, 0)), None, "what is refused changes nothing");
    assert_eq!(sources(&*store), names);
    merge(&first, 22).expect("it is merged");
    assert_eq!(content(&*root(&store), section(22, 0)), bytes(22, 5_000));
    let refused = merge(&first, 23);
    assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
}

/// Held snapshots stay, whatever their name becomes.
pub fn holds_keep_snapshots(make: MakeStore<'_>) {
    let store = make();
    let in_use = |source: &str| {
        let destroyed = store.destroy(&live(source), false);
        matches!(destroyed, Err(Error::InUse { .. }))
    };
    let holds = |source: &str| store.report(&live(source)).expect("it is reported").holds;
    put(&*root(&store), section(2, 0), fresh(b"", bytes(1, 9_000)));
    store.snapshot(&DatasetName::root(), "s").expect("a snapshot is made");
    if store.capabilities().holds.is_none() {
        assert!(is_absent(store.hold(&live("root@s"), "backup")));
        assert!(is_absent(store.release(&live("root@s"), "backup")));
        assert_eq!(holds("root@s"), [""; 0]);
        return;
    }
    store.hold(&live("root@s"), "backup").expect("it is held");
    store.hold(&live("root@s"), "audit").expect("it is held twice");
    assert!(matches!(store.hold(&live("root@s"), "audit"), Err(Error::Invalid(_))));
    assert!(matches!(store.hold(&live("root@s"), "a b"), Err(Error::Invalid(_))));
    assert!(matches!(store.hold(&live("root"), "x"), Err(Error::Invalid(_))));
    assert_eq!(holds("root@s"), ["audit", "backup"]);
    store.clone_snapshot(&live("root@s"), &"c".parse().expect("valid")).expect("a clone is made");
    assert_eq!(holds("c"), [""; 0], "a clone is not held");
    store.destroy(&live("c"), false).expect("the clone goes");
    store.release(&live("root@s"), "audit").expect("it is released");
    assert!(matches!(store.release(&live("root@s"), "audit"), Err(Error::Invalid(_))));
    assert!(in_use("root@s"));
    store.rename(&live("root@s"), &live("root@t")).expect("a snapshot gets another name");
    assert!(in_use("root@t"));
    store.release(&live("root@t"), "backup").expect("it is released");
    store.destroy(&live("root@t"), false).expect("the snapshot goes");
}
