//! Several clients of one store: the contract, the change from one to several, and clients that are
//! lost.

use crate::interrupted::{At, Interrupted};
use crate::stores::{StillClock, after_all, beside, hear, instead_of_all, made, together_in};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database, Heard};
use marram_store::{Batch, Block, Error, Item, Key, Lineage, Source, Store, View, conformance};
use marram_stream::{Arrival, Transfers};
use parking_lot::Mutex;
use std::sync::Arc;

fn root() -> Source {
    "root".parse().unwrap()
}

fn key(object: u64) -> Key {
    Key::new(object, 5, 0)
}

/// An empty store in memory.
fn empty() -> (MemoryDatabase, Arc<dyn Database>) {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    (memory, database)
}

fn twice(databases: [Arc<dyn Database>; 2]) -> [Arc<dyn Store>; 2] {
    let clients = together_in(&databases, &StillClock::new());
    let [first, second] = clients.try_into().ok().unwrap();
    [first, second]
}

fn put(view: &dyn View, object: u64, value: u8) -> marram_store::Result<()> {
    let seen = view.capabilities().together.unwrap().look()?;
    let mut batch = Batch { seen: Some(seen), ..Batch::new() };
    let block = Block::fresh(vec![value; 3000]);
    batch.put(key(object), Item::with_block(vec![value], block));
    view.apply(batch)
}

fn value(view: &dyn View, object: u64) -> Option<u8> {
    view.capabilities().together.unwrap().look().unwrap();
    view.get(key(object)).unwrap().map(|item| item.value[0])
}

#[test]
fn a_store_in_memory_that_is_open_twice_keeps_the_contract() {
    conformance::together(&|| {
        let (_, database) = empty();
        twice([Arc::clone(&database), database])
    });
}

#[test]
fn a_store_in_sqlite_that_is_open_twice_keeps_the_contract() {
    let folders = Mutex::new(Vec::new());
    conformance::together(&|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        folders.lock().push(folder);
        let first: Arc<dyn Database> = Arc::new(SqliteDatabase::create(&file).unwrap());
        made(&first);
        twice([first, Arc::new(SqliteDatabase::open(&file).unwrap())])
    });
}

#[test]
fn a_rollback_by_another_client_overtakes_batches() {
    let (_, database) = empty();
    let clients = together_in(&[Arc::clone(&database), database], &StillClock::new());
    let there = clients[1].open(&root()).unwrap();
    put(&*there, 2, 1).unwrap();
    clients[1].snapshot(&root().dataset, "s").unwrap();
    put(&*there, 2, 2).unwrap();
    let seen = there.capabilities().together.unwrap().look().unwrap();
    clients[0].rollback(&"root@s".parse().unwrap(), "kept").unwrap();
    let mut batch = Batch { seen: Some(seen), ..Batch::new() };
    batch.put(key(2), Item::plain(vec![3]));
    assert_eq!(there.apply(batch), Err(Error::Overtaken), "it was prepared from another state");
    assert_eq!(value(&*there, 2), Some(1));
    put(&*there, 2, 4).unwrap();
    let kept = clients[0].open(&"root@kept".parse().unwrap()).unwrap();
    assert_eq!(kept.get(key(2)).unwrap().unwrap().value[..], [2]);
    assert_eq!(value(&*there, 2), Some(4));
}

#[test]
fn a_stream_is_not_shown_over_what_another_client_has_written() {
    let memory = empty().0;
    let handle = Interrupted::new(&memory);
    let databases: [Arc<dyn Database>; 2] = [Arc::new(handle.clone()), Arc::new(memory)];
    let clients = together_in(&databases, &StillClock::new());
    let here = &clients[0];
    here.snapshot(&root().dataset, "s").unwrap();
    let base: Source = "root@s".parse().unwrap();
    let mut begin = here.begin_of(&base).unwrap();
    let hidden = here.hide(&begin, Some(&base)).unwrap();
    put(&*here.open(&Source::live(hidden.clone())).unwrap(), 3, 3).unwrap();
    begin.snapshot.id = [9; 16];
    let snapshot = "root@t".parse().unwrap();
    let arrival = Arrival { hidden, snapshot, base: Some(base), begin };
    let there = clients[1].open(&root()).unwrap();
    let writer = Arc::clone(&there);
    handle.at(At::Write(0), Box::new(move || put(&*writer, 2, 5).unwrap()));
    let refused = here.show(&arrival);
    assert!(matches!(refused, Err(Error::InUse { .. })), "{refused:?}");
    assert_eq!((value(&*there, 2), value(&*there, 3)), (Some(5), None), "what was written stays");
    here.show(&arrival).unwrap();
    assert_eq!((value(&*there, 2), value(&*there, 3)), (None, Some(3)));
}

#[test]
fn what_waits_is_published_before_a_second_client_sees_anything() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = first[0].open(&root()).unwrap();
    put(&*here, 2, 1).unwrap();
    assert!(first[0].status().unwrap().waiting_bytes > 0, "it is written behind");
    let options = beside(2, &clock, &first);
    let second = Cluster::open(Arc::clone(&database), options).unwrap();
    let there = second.open(&root()).unwrap();
    assert_eq!(value(&*there, 2), Some(1));
    put(&*there, 2, 2).unwrap();
    assert_eq!(value(&*here, 2), Some(2));
    second.close().unwrap();
    assert_eq!(first[0].listen(&mut || ()).unwrap(), Heard::Alone);
    put(&*here, 2, 3).unwrap();
    assert!(first[0].status().unwrap().waiting_bytes > 0, "it is written behind again");
    first[0].close().unwrap();
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn what_is_kept_outside_goes_before_the_answer() {
    let (_, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = first[0].open(&root()).unwrap();
    let asked = Arc::new(Mutex::new(0));
    let mut options = beside(2, &clock, &[]);
    let (cluster, count) = (Arc::clone(&first[0]), Arc::clone(&asked));
    options.judge = Arc::new(move |there| {
        let is_alone = there.iter().any(|client| client.is_alone);
        let mut before = || {
            assert!(is_alone, "the answer has not been given");
            *count.lock() += 1;
        };
        cluster.listen(&mut before).map(|_| Vec::new())
    });
    Cluster::open(Arc::clone(&database), options).unwrap();
    assert_eq!(*asked.lock(), 1);
    assert!(here.capabilities().together.unwrap().is_shared());
}

#[test]
fn an_attempt_to_come_that_is_given_up_leaves_no_client() {
    let (_, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let mut options = beside(2, &clock, &[]);
    let questions = Arc::new(Mutex::new(0));
    options.judge = Arc::new(move |_| {
        *questions.lock() += 1;
        match *questions.lock() {
            1..3 => Ok(Vec::new()),
            _ => Err(Error::Io("it does not answer".to_owned())),
        }
    });
    assert!(Cluster::open(Arc::clone(&database), options).is_err());
    assert_eq!(first[0].clients().unwrap().len(), 1);
    hear(&first).unwrap();
    assert!(!first[0].is_shared());
}

#[test]
fn a_client_that_does_not_answer_is_expelled_and_publishes_nothing_any_more() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = first[0].open(&root()).unwrap();
    put(&*here, 2, 1).unwrap();
    here.sync().unwrap();
    put(&*here, 2, 2).unwrap();
    put(&*here, 3, 2).unwrap();
    let second = Cluster::open(Arc::clone(&database), after_all(2, &clock)).unwrap();
    let there = second.open(&root()).unwrap();
    assert_eq!(value(&*there, 2), Some(1));
    assert!(matches!(here.sync(), Err(Error::ReadOnly(_))), "it learns that it is expelled");
    assert!(first[0].beat().is_err() && put(&*here, 4, 1).is_err());
    assert!(here.capabilities().together.unwrap().look().is_err(), "it shows nothing that is old");
    put(&*there, 3, 5).unwrap();
    assert_eq!([2, 3, 4].map(|object| value(&*there, object)), [Some(1), Some(5), None]);
    drop(there);
    second.close().unwrap();
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn what_a_lost_client_had_waiting_is_kept_as_a_fork_when_it_comes_back() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = first[0].open(&root()).unwrap();
    put(&*here, 2, 1).unwrap();
    put(&*here, 3, 1).unwrap();
    here.sync().unwrap();
    put(&*here, 3, 2).unwrap();
    put(&*here, 4, 2).unwrap();
    let second = Cluster::open(Arc::clone(&database), instead_of_all(2, &clock)).unwrap();
    let second = Arc::new(second);
    let there = second.open(&root()).unwrap();
    put(&*there, 2, 7).unwrap();
    assert!(here.sync().is_err() && first[0].has_lost());
    let options = beside(3, &clock, &[Arc::clone(&second)]);
    let again = Cluster::open(Arc::clone(&database), options).unwrap();
    let forks = first[0].rescue(&again).unwrap();
    assert!(!first[0].has_lost());
    assert_eq!(first[0].rescue(&again).unwrap(), []);
    let [fork] = &forks[..] else { panic!("{forks:?}") };
    let report = second.report(&Source::live(fork.clone())).unwrap();
    assert!(report.is_fork, "it can be compared and merged");
    let fork = second.open(&Source::live(fork.clone())).unwrap();
    let values = |view: &dyn View| [2, 3, 4].map(|object| value(view, object));
    assert_eq!(values(&*fork), [Some(1), Some(2), Some(2)], "all that the lost one had");
    assert_eq!(values(&*there), [Some(7), Some(1), None]);
    drop((fork, there, again.close(), second.close()));
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn a_client_that_is_stopped_before_its_rows_does_no_harm_when_it_goes_on() {
    for call in 0..12 {
        let (memory, _) = empty();
        let handle = Interrupted::new(&memory);
        let clock = StillClock::new();
        let first = together_in(&[Arc::new(handle.clone()) as Arc<dyn Database>], &clock);
        let here = first[0].open(&root()).unwrap();
        put(&*here, 2, 1).unwrap();
        here.sync().unwrap();
        put(&*here, 2, 2).unwrap();
        // In the middle of its publication others come, expel it, and publish.
        let (inner, clock) = (memory.clone(), clock.clone());
        let came: Arc<Mutex<Option<u8>>> = Arc::default();
        let found = Arc::clone(&came);
        handle.at(
            At::Call(call),
            Box::new(move || {
                let second = Cluster::open(Arc::new(inner), after_all(2, &clock)).unwrap();
                let there = second.open(&root()).unwrap();
                *found.lock() = value(&*there, 2);
                put(&*there, 2, 7).unwrap();
                there.sync().unwrap();
            }),
        );
        let synced = here.sync();
        if handle.take().is_some() {
            continue;
        }
        let third = Cluster::open(Arc::new(memory.clone()), after_all(3, &StillClock::new()));
        let third = third.unwrap();
        assert_eq!(value(&*third.open(&root()).unwrap(), 2), Some(7), "stopped at call {call}");
        match came.lock().unwrap() {
            1 => {
                assert!(synced.is_err(), "call {call}: what was not published is not acknowledged")
            }
            found => assert_eq!(found, 2, "call {call}"),
        }
        assert_eq!(verify(&memory).unwrap().findings, [""; 0], "call {call}");
    }
}

#[test]
fn a_client_that_slept_while_the_log_was_trimmed_reads_all_anew() {
    let (_, database) = empty();
    let clients = together_in(&[Arc::clone(&database), database], &StillClock::new());
    let views: Vec<_> = clients.iter().map(|client| client.open(&root()).unwrap()).collect();
    put(&*views[0], 2, 1).unwrap();
    for round in 0..1100_u64 {
        put(&*views[1], 3 + round % 5, 9).unwrap();
    }
    clients[1].snapshot(&"root".parse().unwrap(), "s").unwrap();
    put(&*views[0], 2, 4).unwrap();
    assert_eq!([2, 3].map(|object| value(&*views[0], object)), [Some(4), Some(9)]);
    assert!(clients[0].open(&"root@s".parse().unwrap()).is_ok());
    assert_eq!(value(&*views[1], 2), Some(4));
}

#[test]
fn a_client_that_was_expelled_while_it_slept_publishes_nothing() {
    let (_, database) = empty();
    let clock = StillClock::new();
    let clients = together_in(&[Arc::clone(&database), Arc::clone(&database)], &clock);
    let slept = clients[0].open(&root()).unwrap();
    let second = Cluster::open(Arc::clone(&database), after_all(3, &clock)).unwrap();
    let there = second.open(&root()).unwrap();
    for _ in 0..1100 {
        put(&*there, 3, 9).unwrap();
        there.sync().unwrap();
    }
    assert!(put(&*slept, 3, 1).is_err());
    assert_eq!(value(&*there, 3), Some(9));
}

#[test]
fn nothing_is_swept_beside_others() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let clients = together_in(&[Arc::clone(&database), database], &clock);
    let view = clients[0].open(&root()).unwrap();
    put(&*view, 2, 1).unwrap();
    put(&*view, 2, 2).unwrap();
    clock.advance(1000);
    let blocks = || memory.rows().iter().filter(|(table, _)| table.name() == "blocks").count();
    clients[0].sweep_step(Vec::new()).unwrap();
    assert_eq!(blocks(), 2, "another client may be about to refer to it");
    clients[1].close().unwrap();
    hear(&clients[..1]).unwrap();
    clients[0].sweep_step(Vec::new()).unwrap();
    assert_eq!(blocks(), 1);
}
