//! Each change of a row is a crash point: what was acknowledged is there, of the rest one moment.

use crate::dying::Dying;
use crate::engines::Engine;
use crate::mongo_server::Shared;
use crate::server::Server;
use crate::stores::{StillClock, after_all, made, options};
use marram_cluster::database::{Range, Table};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::{verify, verify_with};
use marram_cluster::{Cluster, Database, Objects};
use marram_store::{Batch, Block, DatasetName, Item, Key, Lineage, Result, Source, Store, kind};
use marram_stream::{Arrival, Transfers};
use std::sync::Arc;

pub(crate) type Step = fn(&Cluster, &StillClock) -> Result<()>;

/// All items of all datasets and snapshots.
pub(crate) type State = Vec<(String, Key, Vec<u8>, Vec<u8>)>;

fn key(object: u64) -> Key {
    Key::new(object, kind::SECTION, 0)
}

pub(crate) fn put(cluster: &Cluster, dataset: &str, object: u64, content: u8) -> Result<()> {
    let view = cluster.open(&dataset.parse()?)?;
    let mut batch = Batch::new();
    batch.put(key(object), Item::with_block(vec![content], Block::fresh(vec![content; 3000])));
    batch.put(Key::new(object, kind::INODE, 0), Item::plain(vec![content; 9]));
    view.apply(batch)?;
    view.sync()
}

fn remove(cluster: &Cluster, dataset: &str, object: u64) -> Result<()> {
    let view = cluster.open(&dataset.parse()?)?;
    let mut batch = Batch::new();
    batch.remove(key(object));
    view.apply(batch)?;
    view.sync()
}

pub(crate) fn clean(cluster: &Cluster, clock: &StillClock) -> Result<()> {
    while cluster.prune_step()?.more {}
    clock.advance(100);
    cluster.sweep_step(Vec::new()).map(|_| ())
}

fn root() -> DatasetName {
    DatasetName::root()
}

pub(crate) const STEPS: [Step; 30] = [
    |cluster, _| put(cluster, "root", 2, 1),
    |cluster, _| put(cluster, "root", 3, 2),
    |cluster, _| put(cluster, "root", 2, 3),
    |cluster, _| cluster.snapshot(&root(), "s"),
    |cluster, _| put(cluster, "root", 2, 4),
    |cluster, _| remove(cluster, "root", 3),
    clean,
    |cluster, _| cluster.fork(&root(), &"f".parse()?, 1),
    |cluster, _| put(cluster, "f", 2, 5),
    |cluster, _| remove(cluster, "f", 2),
    |cluster, _| put(cluster, "f", 9, 1),
    |cluster, _| cluster.rename(&"root@s".parse()?, &"root@t".parse()?),
    |cluster, _| cluster.snapshot(&"f".parse()?, "u"),
    |cluster, _| put(cluster, "f", 9, 6),
    |cluster, _| cluster.clone_snapshot(&"f@u".parse()?, &"g".parse()?),
    |cluster, _| cluster.promote(&"g".parse()?),
    |cluster, _| cluster.destroy(&"f".parse()?, false).map(|_| ()),
    |cluster, _| hide(cluster, "root@t"),
    |cluster, _| put(cluster, "receive:1", 2, 7),
    |cluster, _| remove(cluster, "receive:1", 3),
    |cluster, _| put(cluster, "receive:1", 5, 8),
    |cluster, _| show(cluster, "root@t", "root@got"),
    |cluster, _| cluster.rollback(&"root@t".parse()?, "before"),
    |cluster, _| put(cluster, "root", 2, 9),
    clean,
    |cluster, _| cluster.rollback(&"root@before".parse()?, "back"),
    |cluster, _| cluster.destroy(&"root@back".parse()?, false).map(|_| ()),
    |cluster, _| cluster.destroy(&"root@t".parse()?, false).map(|_| ()),
    |cluster, _| cluster.destroy(&"g".parse()?, false).map(|_| ()),
    clean,
];

fn hide(cluster: &Cluster, base: &str) -> Result<()> {
    let base = base.parse()?;
    cluster.hide(&cluster.begin_of(&base)?, Some(&base)).map(|_| ())
}

fn show(cluster: &Cluster, base: &str, snapshot: &str) -> Result<()> {
    let mut begin = cluster.begin_of(&base.parse()?)?;
    begin.snapshot.id = [3; 16];
    let base = Some(base.parse()?);
    let (hidden, snapshot) = ("receive:1".parse()?, snapshot.parse()?);
    cluster.show(&Arrival { hidden, snapshot, base, stands: None, begin })
}

fn state_of(cluster: &Cluster) -> State {
    let mut state = State::new();
    for report in cluster.list().unwrap() {
        let view = cluster.open(&report.source).unwrap();
        let mut items = Vec::new();
        view.scan(Key::MIN, Key::MAX, &mut |key, item| {
            items.push((key, item.clone()));
            true
        })
        .unwrap();
        for (key, item) in items {
            let content = item.block.map(|block| view.read_block(&block).unwrap().to_vec());
            let content = content.unwrap_or_default();
            state.push((report.source.to_string(), key, item.value.to_vec(), content));
        }
        state.push((report.source.to_string(), Key::MIN, Vec::new(), Vec::new()));
    }
    state
}

fn begun() -> (MemoryDatabase, Cluster, StillClock) {
    begun_in(MemoryDatabase::default())
}

fn begun_in(memory: MemoryDatabase) -> (MemoryDatabase, Cluster, StillClock) {
    let clock = StillClock::new();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let cluster = Cluster::open(database, options(1, None, &clock)).unwrap();
    (memory, cluster, clock)
}

/// The state before the first step and after each.
pub(crate) fn moments() -> (Vec<State>, u64) {
    let (memory, cluster, clock) = begun();
    let mut moments = vec![state_of(&cluster)];
    for step in STEPS {
        step(&cluster, &clock).unwrap();
        moments.push(state_of(&cluster));
    }
    (moments, memory.changes_made())
}

#[test]
fn what_was_acknowledged_is_there_after_each_crash() {
    is_there_after_each_crash(&MemoryDatabase::default);
}

/// Of a database in which an entry and its rows are one step, which is cut in its middle.
#[test]
fn what_was_acknowledged_far_away_is_there_after_each_crash() {
    is_there_after_each_crash(&|| MemoryDatabase::default().far_away());
}

fn is_there_after_each_crash(make: &dyn Fn() -> MemoryDatabase) {
    let (moments, end) = moments();
    let begin = begun().0.changes_made();
    assert!(end - begin > 100, "the steps are more than {}", end - begin);
    for cut in begin..end {
        let (memory, cluster, clock) = begun_in(make());
        memory.cut_after(Some(cut));
        let done = STEPS.iter().take_while(|step| step(&cluster, &clock).is_ok()).count();
        let left = memory.copy();
        let found = verify(&left).unwrap();
        assert_eq!(found.findings, [""; 0], "before a mount, cut after {cut}");
        let found =
            check_reopened(&(Arc::new(left) as Arc<dyn Database>), &clock, &moments[done..]);
        found.unwrap_or_else(|what| panic!("cut after {cut}: {what}"));
    }
}

/// The steps of one client of a server, which dies at one call: another handle of its database, the
/// calls that wrote, and the steps that were done.
fn until_death(
    server: &dyn Engine,
    clock: &StillClock,
    at: Option<(u64, bool)>,
) -> (Arc<dyn Database>, u64, usize) {
    let mut databases = server.store(2);
    made(&databases[0]);
    let dying = Arc::new(Dying::new(Arc::clone(&databases[0]), at));
    let opened = Cluster::open(Arc::clone(&dying) as Arc<dyn Database>, options(1, None, clock));
    let steps = |cluster| STEPS.iter().take_while(|step| step(&cluster, clock).is_ok()).count();
    let done = opened.map_or(0, steps);
    (databases.remove(1), dying.written(), done)
}

#[test]
fn what_was_acknowledged_is_there_when_a_client_of_a_server_dies() {
    Server::start().iter().for_each(|server| acknowledged_is_there(server, 3));
}

#[test]
fn what_was_acknowledged_is_there_when_a_client_of_mongodb_dies() {
    Shared::find().iter().for_each(|server| acknowledged_is_there(server, 15));
}

fn acknowledged_is_there(server: &dyn Engine, step: usize) {
    let (moments, (_, calls, done)) = (moments().0, until_death(server, &StillClock::new(), None));
    assert_eq!(done, STEPS.len());
    assert!(calls > 40, "{calls} calls write");
    for at in (0..calls).step_by(step) {
        let is_made = at % 2 == 0;
        let clock = StillClock::new();
        let (database, _, done) = until_death(server, &clock, Some((at, is_made)));
        let found = check_reopened(&database, &clock, &moments[done..]);
        found.unwrap_or_else(|what| panic!("dead at call {at}, made: {is_made}: {what}"));
    }
}

/// Another client sees one of two moments, and works on; what is wrong is the error.
pub(crate) fn check_reopened(
    left: &Arc<dyn Database>,
    clock: &StillClock,
    moments: &[State],
) -> std::result::Result<(), String> {
    check_reopened_with((left, None), clock, moments)
}

/// The same of a store whose blocks lie outside of the database.
pub(crate) fn check_reopened_with(
    (left, objects): (&Arc<dyn Database>, Option<&Arc<dyn Objects>>),
    clock: &StillClock,
    moments: &[State],
) -> std::result::Result<(), String> {
    let cluster = match objects {
        None => Cluster::open(Arc::clone(left), after_all(2, clock)),
        Some(objects) => {
            Cluster::open_with(Arc::clone(left), Arc::clone(objects), after_all(2, clock))
        }
    };
    let cluster = cluster.unwrap();
    let state = state_of(&cluster);
    if !moments.iter().take(2).any(|moment| *moment == state) {
        return Err(format!("{state:?} is neither {:?}", &moments[0]));
    }
    put(&cluster, "root", 7, 7).unwrap();
    // First a block goes, and then its object.
    (0..3).for_each(|_| clean(&cluster, clock).unwrap());
    let found = match objects {
        None => verify(&**left).unwrap(),
        Some(objects) => verify_with(&**left, Arc::clone(objects)).unwrap(),
    };
    let loose = Range::first(Table::Loose, Vec::new(), vec![u8::MAX; 33], usize::MAX);
    let loose = left.read(&[loose]).unwrap().concat().len();
    match (found.findings.is_empty(), loose) {
        (true, 0) => Ok(()),
        _ => Err(format!("{:?}, and {loose} loose blocks stay", found.findings)),
    }
}

#[test]
fn an_opening_that_is_cut_off_is_done_again() {
    let (memory, cluster, clock) = begun();
    put(&cluster, "root", 2, 1).unwrap();
    // The next entry is in the log, and no row follows it.
    memory.cut_after(Some(memory.changes_made() + 3));
    put(&cluster, "root", 2, 2).unwrap_err();
    let whole = memory.copy();
    for cut in 0..40 {
        let left = whole.copy();
        left.cut_after(Some(cut));
        let database: Arc<dyn Database> = Arc::new(left.clone());
        let opened = Cluster::open(database, options(2, Some(1), &clock));
        left.cut_after(None);
        drop(opened);
        let database: Arc<dyn Database> = Arc::new(left.copy());
        let again = Cluster::open(database, after_all(3, &clock)).unwrap();
        let source: Source = "root".parse().unwrap();
        let item = again.open(&source).unwrap().get(key(2)).unwrap().unwrap();
        assert_eq!(item.value[..], [2], "cut after {cut}");
    }
}

#[test]
fn space_comes_back_with_the_last_that_needs_it() {
    let (memory, cluster, clock) = begun();
    let blocks = || memory.rows().iter().filter(|(table, _)| table.name() == "blocks").count();
    put(&cluster, "root", 2, 1).unwrap();
    put(&cluster, "root", 3, 1).unwrap();
    assert_eq!(blocks(), 1, "equal content is stored once");
    cluster.snapshot(&root(), "s").unwrap();
    put(&cluster, "root", 2, 2).unwrap();
    put(&cluster, "root", 3, 2).unwrap();
    clean(&cluster, &clock).unwrap();
    assert_eq!(blocks(), 2, "the snapshot has the old one");
    cluster.destroy(&"root@s".parse().unwrap(), false).unwrap();
    clean(&cluster, &clock).unwrap();
    assert_eq!(blocks(), 1);
    let rows = memory.rows();
    let count = |name: &str| rows.iter().filter(|(table, _)| table.name() == name).count();
    assert_eq!(["heads", "pasts", "marks", "uses"].map(count), [4, 0, 4, 2]);
}
