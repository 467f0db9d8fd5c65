//! Volatile forks: each test runs where the store has them.

use super::{MakeStore, bytes, content, fresh, live, put, root, section, value};
use crate::{
    Batch, DatasetKind, DatasetName, Error, Item, Key, MergedFrom, Properties, Result, Source,
    Store, View,
};
use bytes::Bytes;
use std::sync::Arc;

/// The fork of the transaction of this id.
fn fork(id: &str) -> DatasetName {
    DatasetName::of_transaction(id).expect("a valid id")
}

fn begin(store: &Arc<dyn Store>, id: &str) -> Arc<dyn View> {
    store.begin_fork(&DatasetName::root(), &fork(id), 1).expect("it begins");
    store.open(&Source::live(fork(id))).expect("it opens")
}

fn names(store: &Arc<dyn Store>) -> Vec<String> {
    store.list().expect("listed").iter().map(|report| report.source.to_string()).collect()
}

/// Commits, as far as the store has that.
fn commit(store: &Arc<dyn Store>) {
    store.sync().expect("the store syncs");
}

fn remove(view: &dyn View, key: Key) {
    let mut batch = Batch::new();
    batch.remove(key);
    view.apply(batch).expect("the batch applies");
}

fn patch(view: &dyn View, key: Key, at: usize, data: &[u8]) -> Result<()> {
    let mut batch = Batch::new();
    batch.patch(key, Bytes::from_static(b"patched"), at, data);
    view.apply(batch)
}

/// One is reported as a fork, is in no list, and can be merged from.
pub fn volatile_forks_are_forks(make: MakeStore<'_>) {
    let store = make();
    if store.capabilities().volatile.is_none() {
        return;
    }
    put(&*root(&store), section(2, 0), fresh(b"", bytes(2, 9_000)));
    let view = begin(&store, "a");
    assert_eq!(store.is_unchanged(&fork("a")), Ok(true));
    for round in 0..2 {
        let report = store.report(&Source::live(fork("a"))).expect("it is reported");
        assert!(report.is_fork && report.kind == DatasetKind::Clone, "{round}: {report:?}");
        assert!(report.origin.expect("it has a base").is_fork_base());
        assert_eq!(names(&store), ["root"], "no list shows it in round {round}");
        assert_eq!(content(&*view, section(2, 0)), bytes(2, 9_000));
        put(&*root(&store), section(3, round), fresh(b"", bytes(3, 9_000)));
        commit(&store);
    }
    assert_eq!(store.is_unchanged(&fork("a")), Ok(true));
    put(&*view, section(9, 0), fresh(b"", bytes(9, 40_000)));
    assert_eq!(store.is_unchanged(&fork("a")), Ok(false));
    commit(&store);
    assert_eq!(store.is_unchanged(&fork("a")), Ok(false));
    check_merge(&store, &view);
    assert!(matches!(store.end_fork(&fork("a")), Err(Error::InUse { .. })));
    drop(view);
    store.end_fork(&fork("a")).expect("it ends");
    commit(&store);
    let after = root(&store);
    assert_eq!(content(&*after, section(9, 0)), bytes(9, 40_000));
    assert_eq!(value(&*after, section(3, 1)), Some(Vec::new()));
}

/// What it has is adopted by its parent, as from any fork.
fn check_merge(store: &Arc<dyn Store>, view: &Arc<dyn View>) {
    let source = Source::live(fork("a"));
    let read = store.ephemeral_snapshot(&source.dataset, "merge").expect("it is kept");
    let base = store.report(&source).expect("reported").origin.expect("it has a base");
    let mut keys = Vec::new();
    let mut note = |change: crate::ItemChange| {
        keys.push(change.key);
        true
    };
    store.changes(&base, &read, Key::MIN, &mut note).expect("both are compared");
    assert_eq!(keys, [section(9, 0)], "what its parent has got since is none of its changes");
    let (parent, from) = (root(store), store.open(&read).expect("it opens"));
    let block = from.get(section(9, 0)).expect("read").and_then(|it| it.block).expect("a block");
    let mut batch = Batch::new();
    let adopted = parent.adopt(&*from, &block).expect("it is adopted");
    batch.put(section(9, 0), Item::with_block(&b""[..], adopted));
    let dataset = DatasetName::root();
    let (fork, read) = (&source, &read);
    let (keep, base) = (None, None);
    let merged = MergedFrom {
        dataset: &dataset,
        fork,
        read,
        keep,
        root_object: 1,
        base,
        moves_base: false,
        may_wait: false,
    };
    store.apply_merge(&*parent, batch, &merged).expect("it is merged");
    drop(from);
    store.discard_snapshot(read);
    assert_eq!(content(&**view, section(9, 0)), bytes(9, 40_000));
}

/// Several begin at moments of their own, beside changes of their parent and of each other, and
/// commits in between change nothing of what each has.
pub fn volatile_forks_keep_their_moment(make: MakeStore<'_>) {
    for commits in 0..16_u32 {
        let store = make();
        if store.capabilities().volatile.is_none() {
            return;
        }
        let commit_at = |place: u32| {
            if commits & (1 << place) != 0 {
                commit(&store);
            }
        };
        let parent = root(&store);
        put(&*parent, section(2, 0), fresh(b"", bytes(1, 8_192)));
        put(&*parent, section(4, 0), fresh(b"", bytes(4, 20_000)));
        commit_at(0);
        let first = begin(&store, "1");
        put(&*parent, section(2, 0), fresh(b"", bytes(2, 8_192)));
        remove(&*parent, section(4, 0));
        patch(&*first, section(2, 0), 3, b"first").or_else(only_not_fresh).expect("patched");
        commit_at(1);
        let second = begin(&store, "2");
        put(&*parent, section(2, 0), fresh(b"", bytes(3, 8_192)));
        put(&*second, section(6, 0), fresh(b"", bytes(6, 8_192)));
        remove(&*second, section(2, 0));
        commit_at(2);
        let is_patched = value(&*first, section(2, 0)) == Some(b"patched".to_vec());
        let mut expected = bytes(1, 8_192);
        if is_patched {
            expected[3..8].copy_from_slice(b"first");
        }
        for round in 0..2 {
            assert_eq!(content(&*first, section(2, 0)), expected, "{commits} {round}");
            assert_eq!(content(&*first, section(4, 0)), bytes(4, 20_000), "{commits} {round}");
            assert_eq!(value(&*first, section(6, 0)), None);
            assert_eq!(value(&*second, section(2, 0)), None);
            assert_eq!(value(&*second, section(4, 0)), None);
            assert_eq!(content(&*second, section(6, 0)), bytes(6, 8_192), "{commits} {round}");
            assert_eq!(content(&*parent, section(2, 0)), bytes(3, 8_192), "{commits} {round}");
            assert_eq!(value(&*parent, section(6, 0)), None);
            let base = store.report(&Source::live(fork("2"))).expect("reported").origin;
            let as_it_waits = match round {
                0 => store.present_state(&fork("2"), "diff").expect("it is kept"),
                _ => None,
            };
            let committed = || store.ephemeral_snapshot(&fork("2"), "diff").expect("it is kept");
            let read = as_it_waits.unwrap_or_else(committed);
            check_state(&store, &read);
            let mut keys = Vec::new();
            let mut note = |change: crate::ItemChange| {
                keys.push(change.key);
                true
            };
            store.changes(&base.expect("a base"), &read, Key::MIN, &mut note).expect("compared");
            assert_eq!(keys, [section(2, 0), section(6, 0)], "{commits} {round}");
            store.discard_snapshot(&read);
            commit_at(3);
        }
        drop((first, second));
        for id in ["1", "2"] {
            store.end_fork(&fork(id)).expect("it ends");
        }
        commit(&store);
        assert_eq!(content(&*parent, section(2, 0)), bytes(3, 8_192));
    }
}

/// The second of the forks of a test, as it was kept.
fn check_state(store: &Arc<dyn Store>, read: &Source) {
    let kept = store.open(read).expect("it opens");
    assert!(!kept.writable());
    assert_eq!(value(&*kept, section(2, 0)), None);
    assert_eq!(content(&*kept, section(6, 0)), bytes(6, 8_192));
    let mut keys = Vec::new();
    let mut note = |key: Key, _: &Item| {
        keys.push(key);
        true
    };
    kept.scan(section(1, 0), section(9, 0), &mut note).expect("it is scanned");
    assert_eq!(keys, [section(6, 0)]);
    let last = |to: u64| kept.last(section(1, 0), section(to, 0)).expect("it is read");
    assert_eq!(last(9).map(|(key, _)| key), Some(section(6, 0)));
    assert!(last(5).is_none());
}

fn only_not_fresh(error: Error) -> Result<()> {
    if error == Error::NotFresh { Ok(()) } else { Err(error) }
}

/// After its end nothing finds it, its name and its parent are free, and wrong names are refused.
pub fn volatile_forks_end_without_a_trace(make: MakeStore<'_>) {
    let store = make();
    if store.capabilities().volatile.is_none() {
        return;
    }
    let data: DatasetName = "data".parse().expect("valid");
    let invalid = store.begin_fork(&DatasetName::root(), &data, 1);
    assert!(matches!(invalid, Err(Error::Invalid(_))), "{invalid:?}");
    assert!(matches!(store.begin_fork(&data, &fork("1"), 1), Err(Error::NoDataset(_))));
    store.create(&data, &Properties::default()).expect("a dataset is made");
    put(&*store.open(&live("data")).expect("it opens"), section(2, 0), fresh(b"", bytes(2, 9_000)));
    for with_commit in [false, true] {
        store.begin_fork(&data, &fork("1"), 1).expect("it begins");
        let again = store.begin_fork(&data, &fork("1"), 1);
        assert!(matches!(again, Err(Error::DatasetExists(_))), "{again:?}");
        let view = store.open(&Source::live(fork("1"))).expect("it opens");
        put(&*view, section(3, 0), fresh(b"", bytes(3, 200_000)));
        if with_commit {
            commit(&store);
        }
        drop(view);
        let base = store.report(&Source::live(fork("1"))).expect("reported").origin;
        store.snapshot(&data, &format!("during-{with_commit}")).expect("a snapshot is made");
        let refused = store.destroy(&live("data"), false);
        assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
        store.end_fork(&fork("1")).expect("it ends");
        assert!(matches!(store.end_fork(&fork("1")), Err(Error::NoDataset(_))));
        for gone in [Source::live(fork("1")), base.expect("it had a base")] {
            assert!(matches!(store.open(&gone), Err(Error::NoDataset(_))), "{gone}");
            assert!(matches!(store.report(&gone), Err(Error::NoDataset(_))), "{gone}");
        }
    }
    let kept = ["data", "data@during-false", "data@during-true", "root"];
    assert_eq!(names(&store), kept);
    store.destroy(&live("data"), false).expect("its dataset goes");
    assert_eq!(names(&store), ["root"]);
}

/// One begins in another, and several at a time: each has the state of its own moment, what is
/// merged into the outer one is nowhere else, and all end in any order of inner before outer.
pub fn volatile_forks_begin_in_each_other(make: MakeStore<'_>) {
    for commits in 0..8_u32 {
        let store = make();
        if store.capabilities().volatile.is_none() {
            return;
        }
        let commit_at = |place: u32| {
            if commits & (1 << place) != 0 {
                commit(&store);
            }
        };
        let parent = root(&store);
        put(&*parent, section(2, 0), fresh(b"", bytes(1, 8_192)));
        let outer = begin(&store, "outer");
        put(&*outer, section(9, 0), fresh(b"", bytes(9, 40_000)));
        commit_at(0);
        let first = begin_in(&store, "outer", "a");
        put(&*outer, section(2, 0), fresh(b"", bytes(2, 8_192)));
        let second = begin_in(&store, "outer", "b");
        commit_at(1);
        put(&*first, section(9, 0), fresh(b"", bytes(3, 8_192)));
        put(&*parent, section(3, 0), fresh(b"", bytes(4, 8_192)));
        assert_eq!(content(&*first, section(2, 0)), bytes(1, 8_192), "{commits}");
        assert_eq!(content(&*second, section(2, 0)), bytes(2, 8_192), "{commits}");
        assert_eq!(content(&*second, section(9, 0)), bytes(9, 40_000), "{commits}");
        assert_eq!(content(&*outer, section(9, 0)), bytes(9, 40_000), "{commits}");
        assert_eq!(store.is_unchanged(&fork("b")), Ok(true), "{commits}");
        assert_eq!(names(&store), ["root"]);
        check_keys(&store, "a", &[section(9, 0)]);
        check_keys(&store, "b", &[]);
        check_keys(&store, "outer", &[section(2, 0), section(9, 0)]);
        commit_at(2);
        drop((first, second));
        let busy = store.end_fork(&fork("outer"));
        assert!(matches!(busy, Err(Error::InUse { .. })), "{busy:?}");
        drop(outer);
        for id in ["a", "b", "outer"] {
            store.end_fork(&fork(id)).expect("it ends");
        }
        commit(&store);
        assert_eq!(content(&*parent, section(2, 0)), bytes(1, 8_192), "{commits}");
        assert_eq!(value(&*parent, section(9, 0)), None, "{commits}");
    }
}

fn begin_in(store: &Arc<dyn Store>, outer: &str, id: &str) -> Arc<dyn View> {
    store.begin_fork(&fork(outer), &fork(id), 1).expect("it begins");
    store.open(&Source::live(fork(id))).expect("it opens")
}

/// What a fork has changed since its base is just this.
fn check_keys(store: &Arc<dyn Store>, id: &str, expected: &[Key]) {
    let base = store.report(&Source::live(fork(id))).expect("reported").origin;
    let read = store.ephemeral_snapshot(&fork(id), "diff").expect("it is kept");
    let mut keys = Vec::new();
    let mut note = |change: crate::ItemChange| {
        keys.push(change.key);
        true
    };
    store.changes(&base.expect("a base"), &read, Key::MIN, &mut note).expect("compared");
    assert_eq!(keys, expected, "{id}");
    store.discard_snapshot(&read);
}
