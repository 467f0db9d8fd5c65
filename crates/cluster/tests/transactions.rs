//! Forks that transactions work in, as clients come, go and are lost.

use crate::stores::{StillClock, beside, instead_of_all, made, together_in};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database, Lost};
use marram_store::{
    Batch, DatasetName, Error, Holds, Item, Key, Lineage, MergedFrom, OperationLog, Properties,
    Result, Source, Store, View,
};
use std::sync::Arc;

fn root() -> DatasetName {
    DatasetName::root()
}

fn fork(id: &str) -> DatasetName {
    DatasetName::of_transaction(id).unwrap()
}

fn key() -> Key {
    Key::new(2, 5, 0)
}

/// Two clients of an empty store.
fn two() -> (MemoryDatabase, Arc<dyn Database>, StillClock, Vec<Arc<Cluster>>) {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let clock = StillClock::new();
    let clients = together_in(&[Arc::clone(&database), Arc::clone(&database)], &clock);
    (memory, database, clock, clients)
}

fn batch(view: &dyn View, value: u8) -> Batch<'static> {
    let seen = view.capabilities().together.unwrap().look().unwrap();
    let mut batch = Batch { seen: Some(seen), ..Batch::new() };
    batch.put(key(), Item::plain(vec![value]));
    batch
}

fn value(client: &Cluster, dataset: &DatasetName) -> Option<u8> {
    let view = client.open(&Source::live(dataset.clone())).unwrap();
    view.capabilities().together.unwrap().look().unwrap();
    view.get(key()).unwrap().map(|item| item.value[0])
}

/// Merges the fork of a transaction, as its commit does.
fn commit(client: &Cluster, fork: &DatasetName, value: u8) -> Result<()> {
    let parent = client.open(&Source::live(root()))?;
    merge(client, &*parent, fork, batch(&*parent, value))
}

fn merge(client: &Cluster, parent: &dyn View, fork: &DatasetName, batch: Batch<'_>) -> Result<()> {
    let (dataset, fork) = (root(), Source::live(fork.clone()));
    let merged = MergedFrom {
        dataset: &dataset,
        fork: &fork,
        read: &fork,
        keep: None,
        root_object: 1,
        base: None,
        moves_base: false,
    };
    client.apply_merge(parent, batch, &merged)
}

/// The forks of transactions that a client knows of.
fn forks(client: &Cluster) -> Vec<String> {
    let live = client.list().unwrap().into_iter().map(|report| report.source);
    let is_fork = |it: &Source| it.snapshot.is_none() && it.dataset.transaction().is_some();
    live.filter(is_fork).map(|source| source.to_string()).collect()
}

fn finish(memory: &MemoryDatabase, clients: &[Arc<Cluster>]) {
    clients.iter().for_each(|client| client.close().unwrap());
    assert_eq!(verify(memory).unwrap().findings, [""; 0]);
}

#[test]
fn the_forks_of_a_client_that_is_expelled_go_with_it_and_others_stay() {
    let (memory, _, _, clients) = two();
    clients[0].fork(&root(), &fork("a"), 1).unwrap();
    clients[0].fork(&fork("a"), &fork("inside"), 1).unwrap();
    clients[1].fork(&root(), &fork("b"), 1).unwrap();
    clients[1].fork(&root(), &"kept".parse().unwrap(), 1).unwrap();
    let view = clients[0].open(&Source::live(fork("a"))).unwrap();
    view.apply(batch(&*view, 9)).unwrap();
    assert_eq!(forks(&clients[1]), ["tx:a", "tx:b", "tx:inside"]);
    clients[1].expel(Lost { session: clients[0].session(), may_return: true }).unwrap();
    assert_eq!(forks(&clients[1]), ["tx:b"]);
    let bases = clients[1].list().unwrap().into_iter().filter(|it| it.source.is_fork_base());
    assert_eq!(bases.count(), 2, "what they began as goes too");
    assert_eq!(commit(&clients[1], &fork("b"), 4), Ok(()));
    assert_eq!(value(&clients[1], &root()), Some(4));
    drop(view);
    finish(&memory, &clients[1..]);
}

#[test]
fn nothing_outlives_the_fork_of_a_transaction() {
    let (memory, _, _, clients) = two();
    clients[0].fork(&root(), &fork("a"), 1).unwrap();
    assert!(matches!(clients[1].snapshot(&fork("a"), "s"), Err(Error::Invalid(_))));
    assert!(matches!(clients[1].promote(&fork("a")), Err(Error::Invalid(_))));
    clients[0].snapshot(&fork("a"), "merge:1").unwrap();
    let [kept, other] = ["kept", "other"].map(|name| name.parse::<DatasetName>().unwrap());
    clients[1].create(&other, &Properties::default()).unwrap();
    assert_eq!(forks(&clients[1]), ["tx:a"]);
    let read: Source = "tx:a@merge:1".parse().unwrap();
    let [live, kept_live, other_live] = [fork("a"), kept.clone(), other.clone()].map(Source::live);
    let refused = [
        clients[1].fork(&fork("a"), &kept, 1),
        clients[1].clone_snapshot(&read, &kept),
        clients[1].hold(&read, "tag"),
        clients[1].rename(&live, &kept_live),
        clients[1].rename(&other_live, &Source::live(fork("b"))),
        clients[1].create(&fork("b"), &Properties::default()),
    ];
    for (at, done) in refused.iter().enumerate() {
        assert!(matches!(done, Err(Error::Invalid(_))), "{at}: {done:?}");
    }
    clients[0].destroy(&Source::live(fork("a")), false).unwrap();
    assert_eq!(forks(&clients[1]), [""; 0]);
    finish(&memory, &clients);
}

#[test]
fn what_a_client_leaves_when_it_closes_the_store_is_destroyed_by_another() {
    let (memory, _, _, clients) = two();
    clients[0].fork(&root(), &fork("a"), 1).unwrap();
    clients[0].fork(&fork("a"), &fork("inside"), 1).unwrap();
    clients[1].fork(&root(), &fork("b"), 1).unwrap();
    assert_eq!(clients[1].end_lost_transactions().unwrap(), [], "both are there");
    clients[0].close().unwrap();
    assert!(clients[1].end_lost_transactions().unwrap().contains(&Source::live(fork("a"))));
    assert_eq!(forks(&clients[1]), ["tx:b"]);
    finish(&memory, &clients[1..]);
}

#[test]
fn a_client_that_has_come_back_commits_nothing_of_before() {
    let (memory, database, clock, mut clients) = two();
    clients.pop().unwrap().close().unwrap();
    clients[0].listen(&mut || ()).unwrap();
    assert!(!clients[0].is_shared());
    clients[0].fork(&root(), &fork("a"), 1).unwrap();
    let view = clients[0].open(&Source::live(fork("a"))).unwrap();
    // It waits for its publication when the client is taken for lost.
    view.apply(batch(&*view, 9)).unwrap();
    assert!(clients[0].has_begun(&fork("a")).unwrap());
    let second = Arc::new(Cluster::open(Arc::clone(&database), instead_of_all(3, &clock)).unwrap());
    assert_eq!(forks(&second), [""; 0]);
    assert!(clients[0].sync().is_err() && clients[0].is_expelled());
    let options = beside(4, &clock, &[Arc::clone(&second)]);
    let opened = Cluster::open(Arc::clone(&database), options).unwrap();
    assert_eq!(clients[0].rescue(&opened).unwrap(), [], "nothing of a transaction is kept");
    clients[0].go_on_as(&opened).unwrap();
    assert!(matches!(commit(&clients[0], &fork("a"), 9), Err(Error::NoDataset(_))));
    // The same where the fork is another client's.
    second.fork(&root(), &fork("b"), 1).unwrap();
    assert!(!clients[0].has_begun(&fork("b")).unwrap());
    assert!(matches!(commit(&clients[0], &fork("b"), 9), Err(Error::NoDataset(_))));
    assert_eq!(value(&clients[0], &root()), None);
    assert_eq!(commit(&second, &fork("b"), 5), Ok(()));
    assert_eq!(value(&clients[0], &root()), Some(5));
    drop(view);
    finish(&memory, &[Arc::clone(&clients[0]), second]);
}

/// A commit is judged, then another client writes what it writes: whether that is overwritten. The
/// bug is a commit that names the moment at which it is published.
fn is_update_lost(has_bug: bool) -> bool {
    let (memory, _, _, clients) = two();
    clients[0].fork(&root(), &fork("a"), 1).unwrap();
    let parent = clients[0].open(&Source::live(root())).unwrap();
    let mut judged = batch(&*parent, 9);
    let there = clients[1].open(&Source::live(root())).unwrap();
    there.apply(batch(&*there, 3)).unwrap();
    if has_bug {
        judged.seen = batch(&*parent, 9).seen;
    }
    let committed = merge(&clients[0], &*parent, &fork("a"), judged);
    let is_lost = value(&clients[1], &root()) != Some(3);
    if !is_lost {
        assert_eq!(committed, Err(Error::Overtaken));
        assert_eq!(commit(&clients[0], &fork("a"), 9), Ok(()), "judged anew");
        assert_eq!(value(&clients[1], &root()), Some(9));
    }
    drop((parent, there));
    finish(&memory, &clients);
    is_lost
}

#[test]
fn a_commit_that_was_overtaken_is_refused_and_leaves_nothing() {
    assert!(!is_update_lost(false));
}

#[test]
fn a_commit_that_is_not_judged_at_the_end_of_the_log_is_caught() {
    assert!(is_update_lost(true));
}
