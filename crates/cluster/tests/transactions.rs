//! Forks that transactions work in, as clients come, go and are lost.

use crate::answers::{Answer, Answers};
use crate::interrupted::{At, Interrupted};
use crate::stores::{StillClock, beside, instead_of_all, made, together_in};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database, Lost};
use marram_store::{
    Batch, DatasetName, Error, Holds, Item, Key, Lineage, MergedFrom, OperationLog, Properties,
    Result, Source, Store, Undo, View,
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
        may_wait: false,
    };
    client.apply_merge(parent, batch, &merged).map(|_| ())
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

/// A store with a transaction of its first client, whose answers may be lost, beside another one.
fn two_with_answers() -> (MemoryDatabase, Answers, Vec<Arc<Cluster>>) {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let answers = Answers::new(Arc::clone(&database));
    let handles: [Arc<dyn Database>; 2] = [Arc::new(answers.clone()), database];
    let clients = together_in(&handles, &StillClock::new());
    clients[0].fork(&root(), &fork("a"), 1).unwrap();
    (memory, answers, clients)
}

#[test]
fn a_commit_of_which_the_answer_is_lost_is_there_not_there_or_unknown() {
    for answer in [Answer::Lost, Answer::Repeated, Answer::Refused] {
        for goes in [false, true] {
            let (memory, answers, clients) = two_with_answers();
            let parent = clients[0].open(&Source::live(root())).unwrap();
            let judged = batch(&*parent, 9);
            let acting = clients[0].without_author();
            answers.next(answer, goes);
            let committed = merge(&acting, &*parent, &fork("a"), judged);
            let is_known = !goes;
            let is_there = answer != Answer::Refused;
            let told = format!("{answer:?}, away {goes}: {committed:?}");
            assert_eq!(committed.is_ok(), is_known && is_there, "{told}");
            assert_eq!(acting.has_merged(), is_known && is_there, "{told}");
            assert_eq!(clients[0].is_in_doubt(), !is_known, "{told}");
            answers.set_away(false);
            assert_eq!(value(&clients[1], &root()), is_there.then_some(9), "{told}");
            if is_known {
                let again = clients[0].without_author();
                if !is_there {
                    assert_eq!(commit(&again, &fork("a"), 9), Ok(()), "it goes on");
                }
                drop(parent);
                finish(&memory, &clients);
            }
        }
    }
}

/// A commit inside of another one has no entry in the log of operations. It is known to be there
/// all the same, when the database fails after it.
#[test]
fn a_commit_that_is_there_is_known_to_be_whatever_fails_after_it() {
    let (memory, answers, clients) = two_with_answers();
    let acting = clients[0].without_author();
    let parent = acting.open(&Source::live(root())).unwrap();
    let view = clients[0].open(&Source::live(fork("a"))).unwrap();
    assert_eq!(commit(&acting, &fork("a"), 9), Ok(()));
    answers.set_away(true);
    assert!(clients[0].beat().is_err());
    assert!(acting.has_merged(), "the first is there");
    assert!(!clients[0].without_author().has_merged(), "a handle knows of its own merges alone");
    answers.set_away(false);
    assert_eq!(value(&clients[1], &root()), Some(9));
    assert_eq!(clients[1].operations().unwrap().len(), 0, "no entry tells of it");
    drop((parent, view));
    finish(&memory, &clients);
}

/// A client is taken for lost before one of the calls of its commit: the commit is there and
/// whole if its entry came first, and else nothing of it is.
#[test]
fn a_commit_of_a_client_that_is_expelled_meanwhile_is_refused() {
    let mut outcomes = [0; 2];
    for call in 0..12 {
        let memory = MemoryDatabase::default();
        let database: Arc<dyn Database> = Arc::new(memory.clone());
        made(&database);
        let interrupted = Interrupted::new(Arc::clone(&database));
        let handles: [Arc<dyn Database>; 2] = [Arc::new(interrupted.clone()), database];
        let clients = together_in(&handles, &StillClock::new());
        clients[0].fork(&root(), &fork("a"), 1).unwrap();
        let parent = clients[0].open(&Source::live(root())).unwrap();
        let judged = batch(&*parent, 9);
        let (other, lost) = (Arc::clone(&clients[1]), clients[0].session());
        let expel = move || other.expel(Lost { session: lost, may_return: true }).unwrap();
        interrupted.at(At::Call(call), Box::new(expel));
        let committed = merge(&clients[0], &*parent, &fork("a"), judged);
        if interrupted.take().is_some() {
            break;
        }
        assert!(!clients[0].is_in_doubt(), "call {call}: {committed:?}");
        let is_there = value(&clients[1], &root()) == Some(9);
        assert_eq!(is_there, committed.is_ok(), "call {call}: {committed:?}");
        outcomes[usize::from(is_there)] += 1;
        // Again: it is not there any more.
        clients[1].expel(Lost { session: lost, may_return: true }).unwrap();
        assert_eq!(forks(&clients[1]), [""; 0], "call {call}");
        assert!(commit(&clients[0], &fork("a"), 8).is_err(), "it is expelled");
        drop(parent);
        finish(&memory, &clients[1..]);
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

/// Two clients take a third one for lost at one moment.
#[test]
fn a_client_that_another_one_expels_just_then_is_expelled_once() {
    for call in 0..6 {
        let memory = MemoryDatabase::default();
        let database: Arc<dyn Database> = Arc::new(memory.clone());
        made(&database);
        let interrupted = Interrupted::new(Arc::clone(&database));
        let slow: Arc<dyn Database> = Arc::new(interrupted.clone());
        let handles = [Arc::clone(&database), slow, database];
        let clients = together_in(&handles, &StillClock::new());
        clients[0].fork(&root(), &fork("a"), 1).unwrap();
        let session = clients[0].session();
        let lost = move || Lost { session, may_return: true };
        let other = Arc::clone(&clients[2]);
        interrupted.at(At::Call(call), Box::new(move || other.expel(lost()).unwrap()));
        clients[1].expel(lost()).unwrap();
        if interrupted.take().is_some() {
            clients[2].expel(lost()).unwrap();
        }
        assert_eq!([&clients[1], &clients[2]].map(|it| forks(it).len()), [0, 0], "call {call}");
        assert_eq!(clients[1].clients().unwrap().len(), 2, "call {call}");
        finish(&memory, &clients[1..]);
    }
}
