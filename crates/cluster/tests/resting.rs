//! Clients that rest while nobody uses them, and those that are alone meanwhile.

use crate::stores::{StillClock, company, hear, made};
use crate::tree::{Names, perform, prepare, tree};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database, Heard, Stance};
use marram_model::Model;
use marram_posix::{Posix, PosixOptions};
use marram_store::{
    Batch, Block, Capabilities, Item, Key, LockFamily, LockMode, LockRequest, Moment, Properties,
    Result, Source, Store, Together, View,
};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, SystemClock, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Random histories, and the steps of one.
const SEEDS: u64 = 40;
const STEPS: usize = 80;
/// How often clients go to rest while they are used.
const RESTS: usize = 200;

fn root() -> Source {
    "root".parse().unwrap()
}

/// Clients of an empty store in memory, which answer each other while one of them wakes.
fn clients(count: usize) -> (MemoryDatabase, Vec<Arc<Cluster>>) {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let clients = company(&vec![database; count], &StillClock::new());
    (memory, clients)
}

fn stances(cluster: &Cluster) -> Vec<Stance> {
    cluster.clients().unwrap().into_iter().map(|client| client.stance).collect()
}

fn key(object: u64) -> Key {
    Key::new(object, 5, 0)
}

/// Makes the value of an object larger by one; what it is then.
fn grow(view: &dyn View, object: u64) -> Result<u64> {
    let seen = view.capabilities().together.unwrap().look()?;
    let value = view.get(key(object))?.map_or(0, |item| number(&item)) + 1;
    let mut batch = Batch { seen: Some(seen), ..Batch::new() };
    batch.put(key(object), Item::plain(value.to_le_bytes().to_vec()));
    view.apply(batch)?;
    Ok(value)
}

fn number(item: &Item) -> u64 {
    u64::from_le_bytes(item.value[..].try_into().unwrap())
}

fn value(view: &dyn View, object: u64) -> u64 {
    view.capabilities().together.unwrap().look().unwrap();
    view.get(key(object)).unwrap().map_or(0, |item| number(&item))
}

#[test]
fn where_the_others_rest_one_is_alone_until_they_are_used() {
    let (memory, clients) = clients(3);
    let views: Vec<_> = clients.iter().map(|client| client.open(&root()).unwrap()).collect();
    assert!(clients[1].rest().unwrap() && clients[1].rests());
    assert_eq!(clients[0].listen(&mut || ()).unwrap(), Heard::Same, "the third is awake");
    assert!(clients[2].rest().unwrap());
    assert_eq!(clients[0].listen(&mut || ()).unwrap(), Heard::Alone);
    assert_eq!(stances(&clients[0]), [Stance::Alone, Stance::Resting, Stance::Resting]);
    assert!(!clients[0].is_shared() && clients[0].has_company());
    assert!(!clients[0].rest().unwrap(), "one is always awake");
    for _ in 0..3 {
        grow(&*views[0], 2).unwrap();
    }
    assert!(clients[0].status().unwrap().waiting_bytes > 0, "it is written behind");
    assert_eq!(value(&*views[2], 2), 3, "all of it is seen");
    assert_eq!(stances(&clients[0]), [Stance::Beside, Stance::Resting, Stance::Beside]);
    grow(&*views[1], 2).unwrap();
    assert_eq!(stances(&clients[0]), [Stance::Beside; 3]);
    assert_eq!(value(&*views[0], 2), 4);
    drop(views);
    clients.iter().for_each(|client| client.close().unwrap());
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}

#[test]
fn a_client_that_rests_wakes_for_whatever_is_asked_of_it() {
    let exclusive = LockRequest {
        family: LockFamily::Whole,
        owner: 1,
        first: 0,
        last: u64::MAX,
        mode: Some(LockMode::Exclusive),
        process: 1,
    };
    type Ask<'a> = &'a dyn Fn(&Cluster, &dyn View);
    let asked: [Ask<'_>; 6] = [
        &|_, view| assert_eq!(value(view, 2), 1),
        &|_, view| drop(grow(view, 2)),
        &|_, view| drop(view.capabilities().locks.unwrap().set_lock(2, &exclusive)),
        &|_, view| drop(view.capabilities().locks.unwrap().find_lock(2, &exclusive)),
        &|cluster, _| drop(cluster.list()),
        &|cluster, _| drop(cluster.snapshot(&"root".parse().unwrap(), "now")),
    ];
    for (number, ask) in asked.iter().enumerate() {
        let (_, clients) = clients(2);
        let views: Vec<_> = clients.iter().map(|client| client.open(&root()).unwrap()).collect();
        assert!(clients[1].rest().unwrap());
        assert_eq!(clients[0].listen(&mut || ()).unwrap(), Heard::Alone);
        grow(&*views[0], 2).unwrap();
        ask(&clients[1], &*views[1]);
        assert!(!clients[1].rests(), "{number}");
        assert_eq!(clients[0].status().unwrap().waiting_bytes, 0, "{number}");
        assert!(clients[0].is_shared(), "{number}");
    }
}

#[test]
fn locks_of_a_client_that_rests_stay_and_those_of_the_other_are_seen() {
    let (_, clients) = clients(2);
    let views: Vec<_> = clients.iter().map(|client| client.open(&root()).unwrap()).collect();
    let lock = |view: &dyn View, object: u64| {
        let (family, mode) = (LockFamily::Whole, Some(LockMode::Exclusive));
        let asked = LockRequest { family, owner: 1, first: 0, last: u64::MAX, mode, process: 1 };
        view.capabilities().locks.unwrap().set_lock(object, &asked).unwrap()
    };
    assert!(lock(&*views[1], 2).is_none());
    assert!(clients[1].rest().unwrap());
    assert_eq!(clients[0].listen(&mut || ()).unwrap(), Heard::Alone);
    assert!(lock(&*views[0], 2).is_some(), "the one that rests has it");
    assert!(lock(&*views[0], 3).is_none());
    assert!(clients[1].rests(), "nobody has used it");
    assert!(lock(&*views[1], 3).is_some(), "the one that was alone has it");
}

#[test]
fn what_one_that_rests_may_have_open_is_not_given_back() {
    let (_, clients) = clients(2);
    let files: Vec<Posix> = clients.iter().map(posix).collect();
    let caller = Caller { uid: 0, gid: 0 };
    let name = Name::new(b"file").unwrap();
    let new = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let made = files[0].create(caller, Ino::ROOT, name, new).unwrap();
    files[0].write(made.ino, 0, &[7; 9000], WriteOptions::default()).unwrap();
    let found = files[1].lookup(Ino::ROOT, name).unwrap();
    assert!(clients[1].rest().unwrap());
    assert_eq!(clients[0].listen(&mut || ()).unwrap(), Heard::Alone);
    files[0].unlink(Ino::ROOT, name).unwrap();
    files[0].forget(made.ino, 1);
    while files[0].reclaim_step(1000).unwrap() {}
    clients[0].sync().unwrap();
    while clients[0].prune_step().unwrap().more {}
    let mut content = Vec::new();
    files[1].read(found.ino, 0, 9000, &mut content).unwrap();
    assert_eq!(content, [7; 9000]);
}

#[test]
fn the_one_that_is_left_wakes_by_itself() {
    let (_, clients) = clients(2);
    assert!(clients[1].rest().unwrap());
    assert_eq!(clients[0].listen(&mut || ()).unwrap(), Heard::Alone);
    clients[0].close().unwrap();
    assert_eq!(clients[1].listen(&mut || ()).unwrap(), Heard::Same);
    assert!(!clients[1].rests());
    assert_eq!(clients[1].listen(&mut || ()).unwrap(), Heard::Alone);
    assert!(!clients[1].has_company());
}

fn posix(cluster: &Arc<Cluster>) -> Posix {
    Posix::new(cluster.open(&root()).unwrap(), PosixOptions::default()).unwrap()
}

/// A view that does not wake its client before it answers.
struct Asleep {
    view: Arc<dyn View>,
    cluster: Arc<Cluster>,
}

impl Together for Asleep {
    fn look(&self) -> Result<Moment> {
        let together = self.view.capabilities().together.unwrap();
        if self.cluster.rests() { Ok(together.known_moment()) } else { together.look() }
    }

    fn known_moment(&self) -> Moment {
        self.view.capabilities().together.unwrap().known_moment()
    }

    fn stirred(&self) -> u64 {
        self.view.capabilities().together.unwrap().stirred()
    }

    fn is_shared(&self) -> bool {
        self.view.capabilities().together.unwrap().is_shared()
    }

    fn has_company(&self) -> bool {
        self.view.capabilities().together.unwrap().has_company()
    }
}

impl View for Asleep {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        self.view.get(key)
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        self.view.scan(from, to, visit)
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        self.view.last(from, to)
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        self.view.apply(batch)
    }

    fn read_block(&self, block: &Block) -> Result<bytes::Bytes> {
        self.view.read_block(block)
    }

    fn sync(&self) -> Result<()> {
        self.view.sync()
    }

    fn writable(&self) -> bool {
        self.view.writable()
    }

    fn properties(&self) -> Properties {
        self.view.properties()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { together: Some(self), ..Capabilities::default() }
    }
}

/// One history: clients are used, and rest, by chance; what differs from the model is the error.
fn run(seed: u64, is_asleep: bool) -> std::result::Result<(), String> {
    let (memory, clients) = clients(2 + usize::try_from(seed % 2).unwrap());
    let files = |cluster: &Arc<Cluster>| match is_asleep {
        false => posix(cluster),
        true => {
            let view = cluster.open(&root()).unwrap();
            let view = Arc::new(Asleep { view, cluster: Arc::clone(cluster) });
            Posix::new(view, PosixOptions::default()).unwrap()
        }
    };
    let files: Vec<Posix> = clients.iter().map(files).collect();
    let (mut names, model) = (Names::new(seed), Model::new(Arc::new(SystemClock)));
    for step in 0..STEPS {
        let (first, second) = names.pair(clients.len());
        if names.below(2) == 0 {
            clients[second].rest().unwrap();
            hear(&clients).unwrap();
        }
        let action = names.action();
        let expected = perform(&model, &action, prepare(&model, &action));
        let outcome = perform(&files[first], &action, prepare(&files[first], &action));
        if outcome != expected {
            return Err(format!("seed {seed}, step {step}, {action:?}: {outcome:?}, {expected:?}"));
        }
        if step % 10 == 9 && tree(&files[second]) != tree(&model) {
            return Err(format!("seed {seed}, step {step}: the trees differ"));
        }
    }
    drop(files);
    clients.iter().for_each(|client| client.close().unwrap());
    match verify(&memory).unwrap().findings {
        findings if findings.is_empty() => Ok(()),
        findings => Err(format!("seed {seed}: {findings:?}")),
    }
}

#[test]
fn operations_of_clients_that_rest_between_are_those_of_one() {
    (0..SEEDS).for_each(|seed| run(seed, false).unwrap());
}

#[test]
fn a_client_that_answers_while_it_rests_is_caught() {
    let fails = |seed| {
        let run = std::panic::AssertUnwindSafe(|| run(seed, true));
        std::panic::catch_unwind(run).map_or(true, |run| run.is_err())
    };
    assert!((0..SEEDS).any(fails));
}

/// Threads use two clients at once, which go to rest whenever they can: each sees whatever was done
/// before it looked, and nothing is lost.
#[test]
fn clients_that_rest_while_others_work_see_all_that_was_done_before() {
    let (memory, clients) = clients(2);
    let views: Vec<_> = clients.iter().map(|client| client.open(&root()).unwrap()).collect();
    let (done, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let made = AtomicU64::new(0);
    let work = |view: &Arc<dyn View>, pause: Duration| {
        while !is_over.load(Ordering::Acquire) {
            let before = done.load(Ordering::Acquire);
            let grown = loop {
                match grow(&**view, 2) {
                    Err(marram_store::Error::Overtaken) => {}
                    done => break done.unwrap(),
                }
            };
            assert!(grown > before, "{grown} follows {before}");
            done.fetch_max(grown, Ordering::AcqRel);
            made.fetch_add(1, Ordering::Relaxed);
            thread::sleep(pause);
        }
    };
    let work = &work;
    thread::scope(|scope| {
        for client in &clients {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    client.listen(&mut || ()).unwrap();
                    thread::sleep(Duration::from_micros(200));
                }
            });
        }
        for (view, pause) in views.iter().zip([0, 700]) {
            scope.spawn(move || work(view, Duration::from_micros(pause)));
        }
        let (began, mut rests) = (Instant::now(), 0);
        while rests < RESTS {
            assert!(began.elapsed() < Duration::from_secs(120), "they wait for each other");
            rests += clients.iter().filter(|client| client.rest().unwrap()).count();
        }
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(value(&*views[0], 2), made.load(Ordering::Relaxed));
    drop(views);
    clients.iter().for_each(|client| client.close().unwrap());
    assert_eq!(verify(&memory).unwrap().findings, [""; 0]);
}
