//! Several clients of one store: the contract, the change from one to several, and clients that are
//! lost.

use crate::engines::Engine;
use crate::interrupted::{At, Interrupted};
use crate::mongo_server::Shared;
use crate::server::{Server, access};
use crate::stores::{StillClock, after_all, beside, hear, instead_of_all, made, together_in};
use crate::tunnel::{Flow, Tunnel};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::postgres::PostgresDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database, Heard, Lost, Stance};
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
    if let Some(together) = view.capabilities().together {
        together.look().unwrap();
    }
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
fn a_store_in_postgresql_that_is_open_twice_keeps_the_contract() {
    Server::start().iter().for_each(|server| keeps_the_contract_twice(server));
}

#[test]
fn a_store_in_mongodb_that_is_open_twice_keeps_the_contract() {
    Shared::find().iter().for_each(|server| keeps_the_contract_twice(server));
}

fn keeps_the_contract_twice(engine: &(dyn Engine + Sync)) {
    conformance::together(&|| {
        let databases = engine.store(2);
        made(&databases[0]);
        twice(databases.try_into().ok().unwrap())
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
    let handle = Interrupted::new(Arc::new(memory.clone()));
    let databases: [Arc<dyn Database>; 2] = [Arc::new(handle.clone()), Arc::new(memory)];
    let clients = together_in(&databases, &StillClock::new());
    let here = &clients[0];
    here.snapshot(&root().dataset, "s").unwrap();
    let base: Source = "root@s".parse().unwrap();
    let mut begin = here.begin_of(&base).unwrap();
    let hidden = here.hide(&begin, Some(&base)).unwrap();
    put(&*here.open(&Source::live(hidden.clone())).unwrap(), 3, 3).unwrap();
    let taken = here.snapshot(&hidden, "mine");
    assert!(matches!(taken, Err(Error::Invalid(_))), "what comes is nobody's yet: {taken:?}");
    begin.snapshot.id = [9; 16];
    let snapshot = "root@t".parse().unwrap();
    let arrival = Arrival { hidden, snapshot, base: Some(base), stands: None, begin };
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
fn a_batch_that_was_overtaken_before_the_others_went_changes_nothing() {
    let (_, database) = empty();
    let clock = StillClock::new();
    let clients = together_in(&[Arc::clone(&database), database], &clock);
    let views: Vec<_> = clients.iter().map(|client| client.open(&root()).unwrap()).collect();
    put(&*views[0], 2, 1).unwrap();
    let seen = views[0].capabilities().together.unwrap().look().unwrap();
    put(&*views[1], 2, 2).unwrap();
    clients[1].close().unwrap();
    assert_eq!(clients[0].listen(&mut || ()).unwrap(), Heard::Alone);
    let mut batch = Batch { seen: Some(seen), ..Batch::new() };
    batch.put(key(2), Item::plain(vec![3]));
    assert_eq!(views[0].apply(batch), Err(Error::Overtaken));
    assert_eq!(value(&*views[0], 2), Some(2));
    put(&*views[0], 2, 3).unwrap();
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
        let is_alone = there.iter().any(|client| client.stance == Stance::Alone);
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
        let handle = Interrupted::new(Arc::new(memory.clone()));
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
fn a_client_that_was_expelled_behind_a_trimmed_log_says_so_and_keeps_what_waited() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = first[0].open(&root()).unwrap();
    put(&*here, 2, 1).unwrap();
    here.sync().unwrap();
    put(&*here, 2, 2).unwrap();
    let second = Arc::new(Cluster::open(Arc::clone(&database), instead_of_all(2, &clock)).unwrap());
    let there = second.open(&root()).unwrap();
    for _ in 0..1100 {
        put(&*there, 3, 9).unwrap();
        there.sync().unwrap();
    }
    let together = here.capabilities().together.unwrap();
    assert!(first[0].listen(&mut || ()).is_err() && first[0].has_lost());
    assert!(together.look().is_err() && first[0].list().is_err() && here.sync().is_err());
    let options = beside(3, &clock, &[Arc::clone(&second)]);
    let again = Cluster::open(Arc::clone(&database), options).unwrap();
    let forks = first[0].rescue(&again).unwrap();
    let fork = second.open(&Source::live(forks[0].clone())).unwrap();
    assert_eq!([2, 3].map(|object| value(&*fork, object)), [Some(2), None]);
    assert_eq!([2, 3].map(|object| value(&*there, object)), [Some(1), Some(9)]);
    drop((fork, there, again.close(), second.close()));
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn a_client_that_is_cut_off_from_a_server_does_no_harm_when_the_link_is_back() {
    let Some(server) = Server::start() else { return };
    let (tunnel, place) = (Tunnel::to(&server), server.new_place());
    let near: Arc<dyn Database> =
        Arc::new(PostgresDatabase::create(access(place.clone())).unwrap());
    made(&near);
    let far = PostgresDatabase::open(access(tunnel.place(&place))).unwrap().unwrap();
    let clock = StillClock::new();
    let first = together_in(&[Arc::new(far) as Arc<dyn Database>], &clock);
    let here = first[0].open(&root()).unwrap();
    put(&*here, 2, 1).unwrap();
    here.sync().unwrap();
    put(&*here, 2, 2).unwrap();
    tunnel.let_through(Flow::Nothing);
    let second = std::thread::scope(|scope| {
        let synced = scope.spawn(|| here.sync());
        let second = Cluster::open(Arc::clone(&near), instead_of_all(2, &clock)).unwrap();
        put(&*second.open(&root()).unwrap(), 3, 7).unwrap();
        second.sync().unwrap();
        tunnel.let_through(Flow::Open);
        assert!(matches!(synced.join().unwrap(), Err(Error::ReadOnly(_))));
        Arc::new(second)
    });
    let there = second.open(&root()).unwrap();
    assert_eq!([2, 3].map(|object| value(&*there, object)), [Some(1), Some(7)]);
    let options = beside(3, &clock, &[Arc::clone(&second)]);
    let again = Cluster::open(Arc::clone(&near), options).unwrap();
    let forks = first[0].rescue(&again).unwrap();
    let fork = second.open(&Source::live(forks[0].clone())).unwrap();
    assert_eq!([2, 3].map(|object| value(&*fork, object)), [Some(2), None]);
    drop((fork, there, again.close(), second.close()));
    assert_eq!(verify(&*near).unwrap().findings, [""; 0]);
}

#[test]
fn clients_that_are_lost_one_after_the_other_leave_a_snapshot_each() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let lost: Vec<Cluster> = (1..=20)
        .map(|number| {
            let options = instead_of_all(number, &clock);
            let cluster = Cluster::open(Arc::clone(&database), options).unwrap();
            let view = cluster.open(&root()).unwrap();
            put(&*view, 2, number).unwrap();
            view.sync().unwrap();
            cluster
        })
        .collect();
    let last = Arc::new(Cluster::open(Arc::clone(&database), after_all(21, &clock)).unwrap());
    let listed = last.list().unwrap();
    let live = listed.iter().filter(|report| report.source.snapshot.is_none()).count();
    assert_eq!((live, listed.len()), (1, 20), "nobody came back: no forks, and 19 snapshots");
    let numbers = 1..=20_u8;
    for number in numbers.take(19) {
        let name: Source =
            format!("root@lost-{}", format!("{number:02x}").repeat(8)).parse().unwrap();
        assert_eq!(value(&*last.open(&name).unwrap(), 2), Some(number), "its state");
    }
    drop((lost, last.close()));
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn a_client_that_was_taken_for_lost_goes_on_with_its_views() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = first[0].open(&root()).unwrap();
    put(&*here, 2, 1).unwrap();
    let second = Arc::new(Cluster::open(Arc::clone(&database), instead_of_all(2, &clock)).unwrap());
    let there = second.open(&root()).unwrap();
    put(&*there, 2, 7).unwrap();
    let again = |number: u8| {
        let options = beside(number, &clock, &[Arc::clone(&second)]);
        Cluster::open(Arc::clone(&database), options).unwrap()
    };
    let opened = again(3);
    assert!(matches!(second.go_on_as(&opened), Err(Error::Invalid(_))), "it is not lost");
    assert!(here.sync().is_err() && first[0].is_expelled());
    assert!(matches!(first[0].go_on_as(&opened), Err(Error::Invalid(_))), "something waits");
    assert_eq!(first[0].rescue(&opened).unwrap().len(), 1);
    first[0].go_on_as(&opened).unwrap();
    assert_eq!(first[0].session(), [3; 16], "it lives anew");
    assert!(!first[0].is_expelled());
    assert_eq!(value(&*here, 2), Some(7), "an open view shows what is there now");
    put(&*here, 3, 8).unwrap();
    assert_eq!(value(&*there, 3), Some(8));
    first[0].beat().unwrap();
    // And so again.
    second.expel(Lost { session: [3; 16], may_return: true }).unwrap();
    assert!(here.sync().is_err() || put(&*here, 3, 9).is_err());
    first[0].go_on_as(&again(4)).unwrap();
    put(&*here, 3, 9).unwrap();
    assert_eq!(value(&*there, 3), Some(9));
    let kept = second.list().unwrap();
    assert!(kept.iter().all(|report| !report.source.to_string().contains("root@lost-")));
    first[0].close().unwrap();
    drop((here, there, second.close()));
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn what_waited_when_a_client_was_lost_twice_is_in_two_forks() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = first[0].open(&root()).unwrap();
    let mut forks = Vec::new();
    for round in [1, 2] {
        put(&*here, 2, round).unwrap();
        let taker = Cluster::open(Arc::clone(&database), instead_of_all(10 + round, &clock));
        let taker = Arc::new(taker.unwrap());
        assert!(here.sync().is_err() && first[0].has_lost());
        let options = beside(20 + round, &clock, &[Arc::clone(&taker)]);
        let opened = Cluster::open(Arc::clone(&database), options).unwrap();
        forks.extend(first[0].rescue(&opened).unwrap());
        first[0].go_on_as(&opened).unwrap();
        taker.close().unwrap();
        assert_eq!(first[0].listen(&mut || ()).unwrap(), Heard::Alone);
    }
    let values: Vec<_> = forks
        .iter()
        .map(|fork| value(&*first[0].open(&Source::live(fork.clone())).unwrap(), 2))
        .collect();
    assert_eq!(values, [Some(1), Some(2)], "{forks:?}");
    drop(here);
    first[0].close().unwrap();
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn a_lost_client_is_expelled_where_its_state_cannot_be_kept() {
    let (_, database) = empty();
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = first[0].open(&root()).unwrap();
    first[0].snapshot(&"root".parse().unwrap(), "lost-0101010101010101").unwrap();
    put(&*here, 2, 1).unwrap();
    let second = Arc::new(Cluster::open(Arc::clone(&database), instead_of_all(2, &clock)).unwrap());
    assert_eq!(second.clients().unwrap().len(), 1);
    assert!(here.sync().is_err() && first[0].has_lost());
}

#[test]
fn what_is_refused_is_asked_once() {
    let (memory, database) = empty();
    let clock = StillClock::new();
    let clients = together_in(&[Arc::clone(&database), database], &clock);
    clients[1].close().unwrap();
    let before = memory.round_trips();
    clients[0].expel(Lost { session: [2; 16], may_return: false }).unwrap();
    let trips = memory.round_trips() - before;
    assert!(trips < 10, "it has gone by itself, and that took {trips} round trips");
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
