//! Random histories of several clients against the model: each operation is as if it had been alone
//! at one moment, also where another client's happens in the middle of it.

use crate::blind::Blind;
use crate::interrupted::{At, Bug, Interrupted};
use crate::mongo_server::Shared;
use crate::seaweed::access;
use crate::server::Server;
use crate::stores::{StillClock, made, together_in};
use crate::tree::{Action, Names, Outcome, perform, prepare, tree};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::verify_reached;
use marram_cluster::{Cluster, Database};
use marram_model::Model;
use marram_posix::{Posix, PosixOptions};
use marram_store::{Source, Store};
use marram_vfs::SystemClock;
use parking_lot::Mutex;
use std::sync::Arc;

/// Histories of each kind, and the steps of one.
const SEEDS: u64 = 40;
const STEPS: usize = 60;
/// Histories on a server, where each call takes longer.
const SEEDS_ON_A_SERVER: u64 = 6;
/// Those on SecantusDB, which is slower.
const SEEDS_IN_MONGODB: u64 = 2;
/// Calls of the database in which another client may come between.
const CALLS_MAX: u64 = 32;
/// The same, of those that write.
const WRITES_MAX: u64 = 5;

struct Client {
    cluster: Arc<Cluster>,
    files: Arc<Posix>,
    database: Interrupted,
}

/// Handles of an empty database in memory, one for each client; of every other seed's on another
/// host.
fn in_memory(clients: usize, seed: u64) -> Vec<Arc<dyn Database>> {
    let memory = MemoryDatabase::default();
    let memory = if seed.is_multiple_of(2) { memory } else { memory.far_away() };
    (0..clients).map(|_| Arc::new(memory.clone()) as Arc<dyn Database>).collect()
}

/// Several clients of one store.
fn clients(databases: &[Arc<dyn Database>], bug: Option<Bug>) -> Vec<Client> {
    let handles: Vec<Interrupted> =
        databases.iter().map(|it| Interrupted::new(Arc::clone(it))).collect();
    let databases: Vec<Arc<dyn Database>> =
        handles.iter().map(|it| Arc::new(it.clone()) as Arc<dyn Database>).collect();
    let clusters = together_in(&databases, &StillClock::new());
    let client = |(cluster, database): (Arc<Cluster>, Interrupted)| {
        let mut view = cluster.open(&root()).unwrap();
        if bug == Some(Bug::Once) {
            view = Arc::new(Blind(view));
        }
        let files = Arc::new(Posix::new(view, PosixOptions::default()).unwrap());
        Client { cluster, files, database }
    };
    let clients: Vec<Client> = clusters.into_iter().zip(handles).map(client).collect();
    clients[1].database.plant(bug);
    clients
}

fn root() -> Source {
    "root".parse().unwrap()
}

/// Runs one history in an empty database; what is wrong is the error.
fn run(seed: u64, databases: &[Arc<dyn Database>], bug: Option<Bug>) -> Result<(), String> {
    made(&databases[0]);
    run_made(seed, databases, bug)
}

/// The same in a store.
pub(crate) fn run_made(
    seed: u64,
    databases: &[Arc<dyn Database>],
    bug: Option<Bug>,
) -> Result<(), String> {
    let mut names = Names::new(seed);
    let clients = clients(databases, bug);
    let mut model = Model::new(Arc::new(SystemClock));
    for step in 0..STEPS {
        let (first, second) = names.pair(clients.len());
        let (action, other) = (names.action(), names.action());
        let at = match names.below(2) {
            0 => At::Call(u32::try_from(names.below(CALLS_MAX)).unwrap()),
            _ => At::Write(u32::try_from(names.below(WRITES_MAX)).unwrap()),
        };
        let said = |what: String| format!("seed {seed}, step {step}, {action:?}: {what}");
        model = together(&clients, (first, second), (&action, &other), at, &model)
            .map_err(|what| said(format!("{other:?} at {at:?}: {what}")))?;
        if step % 10 == 9 {
            for client in &clients {
                let (here, there) = (tree(&*client.files), tree(&model));
                if here != there {
                    return Err(said(format!("{here:#?} is not {there:#?}")));
                }
            }
        }
    }
    drop(clients);
    let found = verify_reached(&*databases[0], Some(&access())).unwrap();
    match found.findings.is_empty() {
        true => Ok(()),
        false => Err(format!("seed {seed}: {:?}", found.findings)),
    }
}

/// One client's action, with another one's in the middle of it; the model after both.
fn together(
    clients: &[Client],
    (first, second): (usize, usize),
    (action, other): (&Action, &Action),
    at: At,
    model: &Model,
) -> Result<Model, String> {
    let (here, there) = (&clients[first], &clients[second]);
    let theirs: Arc<Mutex<Option<Outcome>>> = Arc::default();
    let prepared = prepare(&*here.files, action);
    let event = {
        let (files, other, theirs) = (Arc::clone(&there.files), other.clone(), Arc::clone(&theirs));
        move || {
            let outcome = perform(&*files, &other, prepare(&*files, &other));
            *theirs.lock() = Some(outcome);
        }
    };
    here.database.at(at, Box::new(event));
    let outcome = perform(&*here.files, action, prepared);
    // What has not come between comes behind.
    let event = here.database.take();
    let came_between = event.is_none();
    event.into_iter().for_each(|event| event());
    let theirs = theirs.lock().take().unwrap();
    let after = [false, true].map(|is_theirs_first| {
        let fork = model.fork();
        let prepared = prepare(&fork, action);
        let (expected, expected_theirs);
        if is_theirs_first {
            expected_theirs = perform(&fork, other, prepare(&fork, other));
            expected = perform(&fork, action, prepared);
        } else {
            expected = perform(&fork, action, prepared);
            expected_theirs = perform(&fork, other, prepare(&fork, other));
        }
        ((expected, expected_theirs), fork)
    });
    let fits = |(expected, _): &(_, _)| *expected == (outcome.clone(), theirs.clone());
    let mut fitting: Vec<_> = after.into_iter().map(|it| (fits(&it), it)).collect();
    if !came_between {
        fitting.truncate(1);
    }
    let seen: Vec<_> = fitting.iter().map(|(_, (expected, _))| expected.clone()).collect();
    fitting.retain(|(fits, _)| *fits);
    if fitting.len() > 1 {
        let now = tree(&*here.files);
        fitting.retain(|(_, (_, model))| tree(model) == now);
    }
    let fit = fitting.into_iter().next();
    fit.map(|(_, (_, model))| model)
        .ok_or_else(|| format!("{outcome:?} and {theirs:?}; the model says one of {seen:?}"))
}

#[test]
fn operations_of_two_clients_are_each_at_one_moment() {
    (0..SEEDS).for_each(|seed| run(seed, &in_memory(2, seed), None).unwrap());
}

#[test]
fn operations_of_three_clients_are_each_at_one_moment() {
    (0..SEEDS).for_each(|seed| run(1000 + seed, &in_memory(3, seed), None).unwrap());
}

#[test]
fn operations_of_clients_of_a_server_are_each_at_one_moment() {
    let Some(server) = Server::start() else { return };
    for seed in 0..SEEDS_ON_A_SERVER {
        run(2000 + seed, &server.store(2 + seed as usize % 2), None).unwrap();
    }
}

#[test]
fn operations_of_clients_of_mongodb_are_each_at_one_moment() {
    let Some(server) = Shared::find() else { return };
    for seed in 0..SEEDS_IN_MONGODB {
        run(3000 + seed, &server.store(2 + seed as usize % 2), None).unwrap();
    }
}

/// Whether one of many histories goes wrong.
fn is_caught(bug: Bug) -> bool {
    (0..300).any(|seed| caught_in(seed, bug))
}

/// What a bug leads to may also be a failure of the other client.
fn caught_in(seed: u64, bug: Bug) -> bool {
    let run = std::panic::AssertUnwindSafe(|| run(seed, &in_memory(2, seed), Some(bug)));
    std::panic::catch_unwind(run).map_or(true, |run| run.is_err())
}

#[test]
fn a_client_that_does_not_catch_up_is_caught() {
    assert!(is_caught(Bug::Blind));
}

#[test]
fn a_client_that_publishes_whatever_has_come_is_caught() {
    assert!(is_caught(Bug::NoFence));
}

#[test]
fn operations_that_are_not_executed_anew_are_caught() {
    assert!(is_caught(Bug::Once));
}

#[test]
fn a_client_that_writes_rows_whatever_they_follow_is_caught() {
    assert!(is_caught(Bug::NoGuard));
}

#[test]
fn the_last_client_goes_on_alone() {
    let databases = in_memory(2, 0);
    made(&databases[0]);
    let clients = clients(&databases, None);
    clients[1].cluster.close().unwrap();
    assert!(clients[0].cluster.is_shared());
    clients[0].cluster.listen(&mut || ()).unwrap();
    assert!(!clients[0].cluster.is_shared());
}
