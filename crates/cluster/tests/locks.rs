//! Locks between clients of one store.

use crate::interrupted::{At, Bug, Interrupted};
use crate::stores::{StillClock, beside, hear, in_memory, made, together_in};
use marram_cluster::database::Table;
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::sqlite::SqliteDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database, Heard, Lost};
use marram_store::{Error, HeldLock, LockFamily, LockMode, LockRequest, Result, Store, View};
use parking_lot::Mutex;
use std::sync::Arc;

const EXCLUSIVE: Option<LockMode> = Some(LockMode::Exclusive);
const SHARED: Option<LockMode> = Some(LockMode::Shared);
const OBJECT: u64 = 7;

fn range(owner: u64, first: u64, last: u64, mode: Option<LockMode>) -> LockRequest {
    LockRequest { family: LockFamily::Ranges, owner, first, last, mode, process: 100 }
}

fn whole(owner: u64, mode: Option<LockMode>) -> LockRequest {
    LockRequest { family: LockFamily::Whole, ..range(owner, 0, u64::MAX, mode) }
}

fn root(cluster: &Cluster) -> Arc<dyn View> {
    cluster.open(&"root".parse().unwrap()).unwrap()
}

fn set(view: &Arc<dyn View>, lock: LockRequest) -> Result<Option<HeldLock>> {
    view.capabilities().locks.unwrap().set_lock(OBJECT, &lock)
}

fn has(view: &Arc<dyn View>, lock: LockRequest) -> bool {
    set(view, lock).unwrap().is_none()
}

fn found(view: &Arc<dyn View>, lock: LockRequest) -> Option<HeldLock> {
    view.capabilities().locks.unwrap().find_lock(OBJECT, &lock).unwrap()
}

/// A store in memory that is open twice, each through a handle of its own.
fn twice() -> (MemoryDatabase, [Interrupted; 2], Vec<Arc<Cluster>>) {
    let memory = MemoryDatabase::default();
    made(&(Arc::new(memory.clone()) as Arc<dyn Database>));
    let handles = [(); 2].map(|()| Interrupted::new(Arc::new(memory.clone())));
    let databases = handles.clone().map(|it| Arc::new(it) as Arc<dyn Database>);
    let clients = together_in(&databases, &StillClock::new());
    (memory, handles, clients)
}

fn lock_rows(memory: &MemoryDatabase) -> usize {
    memory.rows().iter().filter(|(table, _)| *table == Table::Locks).count()
}

fn clients_exclude_each_other(clients: &[Arc<Cluster>]) {
    let [here, there] = [root(&clients[0]), root(&clients[1])];
    assert!(has(&here, range(1, 0, 9, EXCLUSIVE)));
    assert!(has(&there, range(1, 10, u64::MAX, EXCLUSIVE)), "it does not meet the first");
    assert!(!has(&there, range(1, 9, 9, SHARED)) && !has(&here, range(1, 5, 10, SHARED)));
    let held = HeldLock { first: 0, last: 9, mode: LockMode::Exclusive, process: 0 };
    assert_eq!(found(&there, range(2, 0, 5, EXCLUSIVE)), Some(held));
    assert_eq!(found(&here, range(2, 3, 4, SHARED)), Some(HeldLock { process: 100, ..held }));
    assert_eq!(found(&here, range(1, 3, 4, EXCLUSIVE)), None, "it is its own");
    assert!(has(&here, range(1, 3, 4, None)), "the middle goes");
    assert!(has(&there, range(1, 3, 4, SHARED)) && has(&here, range(1, 4, 4, SHARED)));
    assert!(!has(&there, range(1, 2, 4, SHARED)) && !has(&here, range(1, 4, 4, EXCLUSIVE)));
    assert!(has(&there, whole(1, EXCLUSIVE)) && !has(&here, whole(1, SHARED)), "of their own");
    for view in [&here, &there] {
        assert!(has(view, range(1, 0, u64::MAX, None)) && has(view, whole(1, None)));
    }
    assert_eq!(found(&here, range(2, 0, u64::MAX, EXCLUSIVE)), None);
    assert_eq!(found(&there, whole(2, EXCLUSIVE)), None);
}

#[test]
fn clients_exclude_each_other_in_memory() {
    let (memory, _, clients) = twice();
    clients_exclude_each_other(&clients);
    assert_eq!(lock_rows(&memory), 0, "what nobody holds has no row");
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn clients_exclude_each_other_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store");
    let first: Arc<dyn Database> = Arc::new(SqliteDatabase::create(&file).unwrap());
    made(&first);
    let second: Arc<dyn Database> = Arc::new(SqliteDatabase::open(&file).unwrap());
    clients_exclude_each_other(&together_in(&[first, second], &StillClock::new()));
}

#[test]
fn a_lock_of_the_whole_that_is_held_otherwise_is_let_go_of_first() {
    let (_, _, clients) = twice();
    let [here, there] = [root(&clients[0]), root(&clients[1])];
    assert!(has(&here, whole(1, SHARED)) && has(&there, whole(1, SHARED)));
    assert!(!has(&here, whole(1, EXCLUSIVE)), "another one has it");
    assert!(has(&there, whole(1, EXCLUSIVE)), "the first has let go of its own: no deadlock");
    assert!(!has(&here, whole(1, SHARED)));
}

#[test]
fn locks_of_one_that_is_alone_cost_no_round_trip() {
    let (memory, cluster) = in_memory();
    let view = root(&cluster);
    let before = memory.round_trips();
    assert!(has(&view, range(1, 0, 9, EXCLUSIVE)) && !has(&view, range(2, 5, 5, SHARED)));
    assert!(has(&view, whole(1, SHARED)) && has(&view, whole(2, SHARED)));
    assert!(has(&view, range(1, 0, 9, None)) && has(&view, range(2, 5, 5, SHARED)));
    assert_eq!(memory.round_trips(), before);
}

#[test]
fn locks_are_kept_when_others_come_and_when_they_go() {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let clock = StillClock::new();
    let first = together_in(&[Arc::clone(&database)], &clock);
    let here = root(&first[0]);
    assert!(has(&here, range(1, 0, 9, EXCLUSIVE)));
    let second = Cluster::open(Arc::clone(&database), beside(2, &clock, &first)).unwrap();
    let there = root(&second);
    assert!(!has(&there, range(1, 0, 0, SHARED)), "the first has written down what it held");
    assert!(has(&there, range(1, 20, 29, EXCLUSIVE)) && !has(&here, range(2, 25, 25, SHARED)));
    second.close().unwrap();
    assert_eq!(first[0].listen(&mut || ()).unwrap(), Heard::Alone);
    assert_eq!(lock_rows(&memory), 0);
    let before = memory.round_trips();
    assert!(has(&here, range(2, 25, 25, SHARED)), "they have gone with their client");
    assert!(!has(&here, range(2, 5, 5, SHARED)), "the first still has its own");
    assert_eq!(memory.round_trips(), before, "alone again");
    first[0].close().unwrap();
    let third = Cluster::open(Arc::clone(&database), beside(3, &clock, &[])).unwrap();
    assert!(has(&root(&third), range(1, 0, 30, EXCLUSIVE)));
}

#[test]
fn the_locks_of_an_expelled_client_are_gone_and_it_is_given_none() {
    let (_, _, clients) = twice();
    let [here, there] = [root(&clients[0]), root(&clients[1])];
    assert!(has(&here, range(1, 0, 9, EXCLUSIVE)) && !has(&there, range(1, 0, 0, SHARED)));
    clients[1].expel(Lost { session: [1; 16], may_return: false }).unwrap();
    assert!(has(&there, range(1, 0, 0, EXCLUSIVE)));
    let refused = set(&here, range(2, 50, 59, EXCLUSIVE));
    assert!(matches!(&refused, Err(Error::ReadOnly(why)) if why.contains("lost")), "{refused:?}");
    assert!(has(&here, range(1, 0, 9, None)), "to let go never fails");
    assert!(has(&there, range(2, 50, 59, EXCLUSIVE)) && !has(&there, range(2, 0, 0, SHARED)));
}

/// Lets the second client act before a call of the database by which the first takes a lock:
/// whether each has the lock then; nothing once there are no more such calls.
fn both_take(call: u32, expels: bool, bug: Option<Bug>) -> Option<[bool; 2]> {
    let (_memory, [handle, _], clients) = twice();
    let here = root(&clients[0]);
    let second = Arc::clone(&clients[1]);
    let taken: Arc<Mutex<bool>> = Arc::default();
    let takes = Arc::clone(&taken);
    handle.plant(bug);
    handle.at(
        At::Call(call),
        Box::new(move || {
            if expels {
                second.expel(Lost { session: [1; 16], may_return: false }).unwrap();
            }
            *takes.lock() = has(&root(&second), whole(1, EXCLUSIVE));
        }),
    );
    let has_it = matches!(set(&here, whole(1, EXCLUSIVE)), Ok(None));
    let happened = handle.take().is_none();
    happened.then(|| [has_it, *taken.lock()])
}

#[test]
fn of_two_that_take_a_lock_at_once_one_has_it() {
    let mut calls = 0;
    while let Some(taken) = both_take(calls, false, None) {
        assert_eq!(taken.iter().filter(|it| **it).count(), 1, "call {calls}: {taken:?}");
        calls += 1;
    }
    assert!(calls >= 3, "{calls} calls");
}

#[test]
fn a_client_that_is_stopped_while_it_takes_a_lock_is_given_none() {
    let mut calls = 0;
    while let Some(taken) = both_take(calls, true, None) {
        assert_eq!(taken, [false, true], "call {calls}");
        calls += 1;
    }
    assert!(calls >= 4, "{calls} calls");
}

#[test]
fn a_step_that_is_not_guarded_is_caught() {
    let taken = (0..8).filter_map(|call| both_take(call, false, Some(Bug::NoGuard)));
    assert!(taken.into_iter().any(|taken| taken == [true, true]));
}

#[test]
fn what_is_let_go_of_while_the_database_fails_is_free_later() {
    let (memory, _, clients) = twice();
    let [here, there] = [root(&clients[0]), root(&clients[1])];
    assert!(has(&here, range(1, 0, 9, EXCLUSIVE)));
    memory.cut_after(Some(0));
    assert!(has(&here, range(1, 0, 9, None)), "to let go never fails");
    assert!(set(&here, range(2, 0, 0, SHARED)).is_err());
    memory.cut_after(None);
    assert!(!has(&there, range(1, 0, 0, SHARED)), "the row says so still");
    hear(&clients[..1]).unwrap();
    assert!(has(&there, range(1, 0, 0, SHARED)));
}

#[test]
fn only_so_many_ranges_are_held() {
    let (_memory, cluster) = in_memory();
    let view = root(&cluster);
    for at in 0..4096 {
        assert!(has(&view, range(1, 2 * at, 2 * at, SHARED)));
    }
    let refused = set(&view, range(1, 9000, 9000, SHARED));
    assert!(matches!(refused, Err(Error::LimitExceeded(_))), "{refused:?}");
    assert!(has(&view, range(1, 0, 9000, SHARED)), "one that takes the place of all");
}

#[test]
fn a_row_of_a_lock_that_is_none_is_an_error_and_a_finding() {
    let (memory, _, clients) = twice();
    let [here, there] = [root(&clients[0]), root(&clients[1])];
    assert!(has(&here, range(1, 0, 9, EXCLUSIVE)));
    let rows = memory.rows();
    let (_, (key, _)) = rows.iter().find(|(table, _)| *table == Table::Locks).unwrap();
    let sealed = crate::stores::seal().close(Table::Locks, key, vec![1, 0, 0, 0]);
    memory
        .write(&[marram_cluster::database::Change::put(Table::Locks, key.to_vec(), sealed)])
        .unwrap();
    assert!(matches!(set(&there, range(1, 50, 59, SHARED)), Err(Error::Damaged(_))));
    assert!(!verify(&memory).unwrap().findings.is_empty());
}
