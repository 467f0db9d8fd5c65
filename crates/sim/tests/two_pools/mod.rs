//! Transactions over two pools: whatever a crash leaves of both, with one order of all that was
//! written, the transaction is in both or in neither once they have heard of each other.

mod serial;

use crate::small_pool;
use marram_check::{CheckOptions, check};
use marram_device::{Device, MemoryDevice};
use marram_format::superblock::Superblock;
use marram_format::version::feature;
use marram_history::{MergeOptions, MergePart, MergeSides, Touched, merge_together};
use marram_pool::planted::{PlantedBug, plant};
use marram_pool::{Author, Ending, OpenOptions, OtherPool, Pool, TransactionState, Verdict};
use marram_posix::{AccessTimes, Posix, PosixOptions, hold_together, turn_together};
use marram_sim::Random;
use marram_sim::device::{CrashState, Event, Fate, Fault, FaultyDevice, RecordingDevice, Trace};
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// A device that marks each of its events with its number among those of all devices.
struct Ordered {
    recorder: RecordingDevice,
    clock: Arc<AtomicU64>,
}

impl Ordered {
    fn mark(&self) {
        self.recorder.mark(self.clock.fetch_add(1, Ordering::SeqCst));
    }
}

impl Device for Ordered {
    fn read(&self, offset: u64, out: &mut [u8]) -> marram_device::Result<()> {
        self.recorder.read(offset, out)
    }
    fn write(&self, offset: u64, data: &[u8]) -> marram_device::Result<()> {
        self.mark();
        self.recorder.write(offset, data)
    }
    fn flush(&self) -> marram_device::Result<()> {
        self.mark();
        self.recorder.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> marram_device::Result<()> {
        self.mark();
        self.recorder.discard(offset, len)
    }
    fn size(&self) -> marram_device::Result<u64> {
        self.recorder.size()
    }
    fn name(&self) -> String {
        self.recorder.name()
    }
}

fn open(device: Arc<dyn Device>) -> Arc<Pool> {
    Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens")
}

fn posix(store: &dyn Store, source: &Source) -> Arc<Posix> {
    let options = PosixOptions { access_times: AccessTimes::Never, ..PosixOptions::default() };
    Arc::new(Posix::new(store.open(source).expect("it opens"), options).expect("files"))
}

fn root() -> Source {
    Source::live(DatasetName::root())
}

/// Makes a file, and says whether it could.
fn write_file(files: &Posix, text: &str, content: &[u8]) -> marram_vfs::Result<()> {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let name = Name::new(text.as_bytes()).expect("a name");
    let made = files.create(Caller { uid: 0, gid: 0 }, Ino::ROOT, name, node)?;
    files.write(made.ino, 0, content, WriteOptions::default()).map(|_| ())
}

fn has_file(files: &Posix, text: &str) -> marram_vfs::Result<bool> {
    match files.lookup(Ino::ROOT, Name::new(text.as_bytes()).expect("a name")) {
        Ok(found) => {
            let mut content = Vec::new();
            files.read(found.ino, 0, 1 << 20, &mut content)?;
            assert_eq!(content, text.as_bytes().repeat(900), "all of {text} is there");
            Ok(true)
        }
        Err(marram_vfs::Error::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A pool that takes part.
struct Side {
    pool: Arc<Pool>,
    files: Arc<Posix>,
}

impl Side {
    fn new(device: Arc<dyn Device>) -> Arc<Side> {
        let pool = open(device);
        let files = posix(&*pool, &root());
        Arc::new(Side { pool, files })
    }

    /// The same pool, whose root is mounted anew.
    fn anew(&self) -> Arc<Side> {
        let pool = Arc::clone(&self.pool);
        let files = posix(&*pool, &root());
        Arc::new(Side { pool, files })
    }

    fn acting(&self) -> Pool {
        self.pool.acting_for(Author { user: Some(1), command: "tx run".to_owned() })
    }

    fn fork(id: u8) -> DatasetName {
        DatasetName::of_transaction(&id.to_string()).expect("a valid id")
    }

    /// Does a transaction's work, which makes a file named after it.
    fn work(&self, id: u8) {
        let store: &dyn Store = &*self.pool;
        store.begin_fork(&DatasetName::root(), &Side::fork(id), 1).expect("it begins");
        let files = posix(store, &Source::live(Side::fork(id)));
        let text = format!("file {id}");
        write_file(&files, &text, &text.as_bytes().repeat(900)).expect("it is written");
    }

    /// Merges that through a handle of the pool; `refused` says that others were in the way.
    fn merge(&self, store: &dyn Store, id: u8, refused: bool) -> marram_vfs::Result<bool> {
        let (dataset, fork) = (DatasetName::root(), Source::live(Side::fork(id)));
        let base = store.report(&fork).expect("it is reported").origin.expect("it has a base");
        let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
        let conflict = || vec![marram_history::Overlap { name: None, what: "content changed" }];
        let strict = |_: &Touched| if refused { conflict() } else { Vec::new() };
        let options =
            MergeOptions { strict: Some(&strict), always: true, ..MergeOptions::default() };
        let part = MergePart { parent: &*self.files, sides, options: &options };
        let hold = || Ok(hold_together(&[&*self.files]));
        let reports = merge_together(store, &[part], &hold)?;
        Ok(reports.iter().all(|report| report.applied))
    }

    fn end(&self, id: u8) {
        let store: &dyn Store = &*self.pool;
        store.end_fork(&Side::fork(id)).expect("it ends");
    }
}

/// How the pool that decides is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It commits.
    Commits,
    /// Others were in the way there.
    Refuses,
    /// It commits, and its answer is lost.
    IsLost,
    /// It is not there.
    IsAway,
}

fn other(id: u8) -> OtherPool {
    OtherPool { id: [id; 16], path: format!("/pool {id}") }
}

/// Runs a transaction in both pools; whether it was acknowledged.
fn run(decides: &Arc<Side>, prepares: &Arc<Side>, id: u8, way: Way) -> bool {
    [decides, prepares].into_iter().for_each(|side| side.work(id));
    if way == Way::Refuses {
        write_file(&decides.files, &format!("beside {id}"), b"beside").expect("it is written");
    }
    let (there, decided) = (Arc::clone(decides), OnceLock::new());
    let decide = move || {
        if way == Way::IsAway {
            return Verdict::Unknown;
        }
        let decide = || {
            let pool = there.acting().deciding([id; 16], other(2));
            there.merge(&pool, id, way == Way::Refuses).is_ok_and(|applied| applied)
        };
        // The daemon of another pool is another process, which decides once.
        let on_its_own = || std::thread::scope(|scope| scope.spawn(decide).join());
        match (*decided.get_or_init(|| on_its_own().expect("no panic")), way) {
            (_, Way::IsLost) => Verdict::Unknown,
            (true, _) => Verdict::Committed,
            (false, _) => Verdict::Aborted,
        }
    };
    let pool = prepares.acting().preparing([id; 16], other(1), Arc::new(decide));
    let committed = prepares.merge(&pool, id, false).is_ok_and(|applied| applied);
    if committed {
        forget(&decides.pool);
    }
    [decides, prepares].into_iter().for_each(|side| side.end(id));
    committed
}

/// What is decided is forgotten.
fn forget(pool: &Pool) {
    for row in pool.two_pool_transactions() {
        pool.forget_transaction(row.number).expect("it is forgotten");
    }
}

/// What the pools do when they hear of each other.
fn resolve(decides: &Pool, prepares: &Pool) {
    for row in prepares.two_pool_transactions() {
        assert_eq!(row.state, TransactionState::Prepared);
        let decided = decides.two_pool_transactions();
        let is_decided = decided.iter().any(|it| it.id == row.id);
        let ending = Ending { committed: is_decided, ..Ending::default() };
        prepares.conclude_prepared(row.number, ending).expect("it is concluded");
    }
    forget(decides);
}

fn findings(device: &dyn Device) -> Vec<String> {
    let mut found = Vec::new();
    let options = CheckOptions { read_data: true, snapshots: true };
    check(device, &options, &mut |finding| found.push(finding.to_string())).expect("a pool");
    found
}

/// What a crash has left of forks goes, as when a pool is opened for mounts.
fn clear(pool: &Pool) {
    marram_history::destroy_leftovers(pool).expect("they go");
    pool.commit().expect("it commits");
    while pool.reclaim_step().expect("space comes back") {}
}

/// How many events of a device come before the event `cut` of all devices.
fn local(trace: &Trace, cut: u64) -> usize {
    let is_later = |event: &Event| matches!(event, Event::Mark(mark) if *mark >= cut);
    trace.events().iter().position(is_later).unwrap_or(trace.events().len())
}

/// What was recorded of both.
struct Recorded {
    traces: [Trace; 2],
    /// Events of both.
    events: u64,
    /// Of each transaction: at which event it was acknowledged, if it was.
    acknowledged: Vec<Option<u64>>,
}

fn record(ways: &[Way], bug: Option<PlantedBug>) -> Recorded {
    let clock = Arc::new(AtomicU64::new(0));
    let devices = ["decides", "prepares"].map(|label| {
        let recorder = RecordingDevice::in_memory(small_pool::empty(label));
        Arc::new(Ordered { recorder, clock: Arc::clone(&clock) })
    });
    let [decides, mut prepares] = [&devices[0], &devices[1]].map(|it| Side::new(it.clone()));
    for side in [&decides, &prepares] {
        write_file(&side.files, "old", b"old").expect("it is written");
        side.pool.commit().expect("it commits");
    }
    plant(bug);
    let mut acknowledged = Vec::new();
    for (id, way) in (1..).zip(ways) {
        let is_there = run(&decides, &prepares, id, *way);
        acknowledged.push(is_there.then(|| clock.load(Ordering::SeqCst)));
        if [Way::IsLost, Way::IsAway].contains(way) {
            resolve(&decides.pool, &prepares.pool);
            prepares = prepares.anew();
        }
    }
    plant(None);
    let traces = [devices[0].recorder.trace(), devices[1].recorder.trace()];
    Recorded { traces, events: clock.load(Ordering::SeqCst), acknowledged }
}

/// What a crash leaves of both.
fn images(recorded: &Recorded, cut: u64, fates: [Fate; 2]) -> [Vec<u8>; 2] {
    [0, 1].map(|which| {
        let trace = &recorded.traces[which];
        trace.image(CrashState { cut: local(trace, cut), fate: fates[which] })
    })
}

/// Recovers both from a crash; what is wrong, if anything is.
fn judge(recorded: &Recorded, cut: u64, images: [Vec<u8>; 2]) -> Result<(), String> {
    let devices = images.map(|bytes| Arc::new(MemoryDevice::from_bytes(bytes)));
    for device in &devices {
        let found = findings(&**device);
        if !found.is_empty() {
            return Err(format!("before they hear of each other: {found:?}"));
        }
    }
    let [decides, prepares] = [&devices[0], &devices[1]].map(|it| open(it.clone()));
    resolve(&decides, &prepares);
    let has = |pool: &Arc<Pool>, id: usize| {
        let files = posix(&**pool, &root());
        has_file(&files, &format!("file {id}")).map_err(|error| error.to_string())
    };
    for (id, acknowledged) in (1..).zip(&recorded.acknowledged) {
        let there = [has(&decides, id)?, has(&prepares, id)?];
        if there[0] != there[1] {
            return Err(format!("transaction {id} is in one of both: {there:?}"));
        }
        if !there[0] && acknowledged.is_some_and(|at| at <= cut) {
            return Err(format!("transaction {id} was acknowledged, and is not there"));
        }
    }
    for (pool, device) in [decides, prepares].into_iter().zip(&devices) {
        clear(&pool);
        assert!(pool.two_pool_transactions().is_empty());
        drop(pool);
        let found = findings(&**device);
        if !found.is_empty() {
            return Err(format!("after they have heard of each other: {found:?}"));
        }
    }
    Ok(())
}

/// Goes through crashes after each `step`-th event; the first violation. States that are known by
/// their bytes are passed over.
fn explore(
    recorded: &Recorded,
    (step, seeds): (usize, u64),
    known: &mut HashSet<u64>,
) -> Option<String> {
    for cut in (0..=recorded.events).step_by(step) {
        let both = |fate: Fate| [fate, fate];
        let mut all = vec![both(Fate::All), both(Fate::Durable)];
        all.extend([[Fate::All, Fate::Durable], [Fate::Durable, Fate::All]]);
        all.extend((0..seeds).map(|seed| [Fate::Seeded(cut + seed), Fate::Seeded(!(cut + seed))]));
        for fates in all {
            let images = images(recorded, cut, fates);
            let mut hasher = DefaultHasher::new();
            images.hash(&mut hasher);
            if known.insert(hasher.finish())
                && let Err(reason) = judge(recorded, cut, images)
            {
                return Some(format!("cut {cut}, {fates:?}: {reason}"));
            }
        }
    }
    None
}

#[test]
fn a_crash_leaves_a_transaction_in_both_pools_or_in_neither() {
    let ways = [Way::Commits, Way::Refuses, Way::Commits];
    let recorded = record(&ways, None);
    assert!(recorded.acknowledged[0].is_some() && recorded.acknowledged[1].is_none());
    let mut known = HashSet::new();
    assert_eq!(explore(&recorded, (5, 1), &mut known), None);
    assert!(known.len() > 30, "{} states", known.len());
}

/// The campaign of `cargo xtask crash --two-pools`, which asks for more by the environment: random
/// transactions that are committed, refused, or in doubt for a while.
#[test]
fn distinct_crash_states_of_two_pools() {
    let asked = |name: &str, least: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(least)
    };
    let states = asked("MARRAM_TWO_POOLS_STATES", 12);
    let (mut known, first) = (HashSet::new(), asked("MARRAM_TWO_POOLS_SEED", 1));
    for seed in first.. {
        let mut random = Random::new(seed);
        let all = [Way::Commits, Way::Refuses, Way::IsLost, Way::IsAway];
        let count = 1 + random.below(3);
        let ways: Vec<Way> = (0..count).map(|_| all[random.below(4) as usize]).collect();
        let recorded = record(&ways, None);
        let bounds = if states > 1000 { (1, 4) } else { (7, 1) };
        let violation = explore(&recorded, bounds, &mut known);
        assert_eq!(violation, None, "seed {seed}, {ways:?}");
        if known.len() as u64 >= states {
            break;
        }
    }
    println!("{} distinct states of two pools", known.len());
}

#[test]
fn a_decision_before_all_is_prepared_is_caught() {
    let recorded = record(&[Way::Commits], Some(PlantedBug::DecisionBeforePrepared));
    let violation = explore(&recorded, (2, 0), &mut HashSet::new());
    let violation = violation.expect("it is in the pool that decides alone");
    assert!(violation.contains("is in one of both"), "{violation}");
}

/// Two pools in which one transaction is in doubt, decided or not, beside their devices.
fn in_doubt(way: Way) -> ([Arc<Side>; 2], [Arc<MemoryDevice>; 2]) {
    let memory = |label| Arc::new(MemoryDevice::from_bytes(small_pool::empty(label)));
    let devices = [memory("decides"), memory("prepares")];
    let sides = [&devices[0], &devices[1]].map(|it| Side::new(it.clone()));
    sides[1].pool.create(&"beside".parse().unwrap(), &Default::default()).expect("it is made");
    write_file(&sides[1].files, "file 0", &b"file 0".repeat(900)).expect("it is written");
    assert!(!run(&sides[0], &sides[1], 1, way));
    (sides, devices)
}

fn features(device: &MemoryDevice) -> u64 {
    let bytes = device.snapshot();
    let slots = bytes[64 << 10..(64 << 10) + 64 * 4096].chunks_exact(4096);
    let all = slots.filter_map(|slot| Superblock::decode(slot).ok());
    let newest = all.max_by_key(|it| it.group).expect("there is a superblock");
    newest.features_incompatible
}

#[test]
fn what_is_in_doubt_is_neither_read_nor_changed_and_all_else_works() {
    for (way, committed) in [(Way::IsLost, true), (Way::IsAway, false)] {
        let ([decides, prepares], devices) = in_doubt(way);
        let row = prepares.pool.two_pool_transactions().remove(0);
        assert!(row.is_in_doubt && row.datasets == ["root"] && row.other == other(1), "{row:?}");
        assert!(has_file(&prepares.files, "file 1").is_err(), "nobody reads it");
        assert!(write_file(&prepares.files, "new", b"new").is_err(), "nobody changes it");
        let refused = prepares.pool.snapshot(&DatasetName::root(), "now").unwrap_err();
        assert!(refused.to_string().contains("tx resolve"), "{refused}");
        assert!(prepares.pool.open(&root()).is_err());
        assert!(prepares.pool.fork(&DatasetName::root(), &"a".parse().unwrap(), 1).is_err());
        let beside = posix(&*prepares.pool, &Source::live("beside".parse().unwrap()));
        write_file(&beside, "file 7", &b"file 7".repeat(900)).expect("other datasets go on");
        prepares.pool.snapshot(&"beside".parse().unwrap(), "now").expect("they have snapshots");
        prepares.pool.sync().expect("it syncs");
        assert_ne!(features(&devices[1]) & feature::TWO_POOLS, 0, "older programs keep away");
        assert_eq!(findings(&*devices[1]), [""; 0]);

        resolve(&decides.pool, &prepares.pool);
        let anew = posix(&*prepares.pool, &root());
        assert_eq!(has_file(&anew, "file 1"), Ok(committed), "whoever opens it now");
        let before = has_file(&prepares.files, "file 1");
        match committed {
            true => assert!(before.is_err(), "a view from before is at its end"),
            false => assert_eq!(before, Ok(false), "a view from before goes on"),
        }
        assert_eq!(features(&devices[1]) & feature::TWO_POOLS, 0);
        let operations = prepares.pool.operations().expect("a log");
        let entry = operations.iter().find(|it| it.record.text(1).starts_with("tx:")).unwrap();
        assert_eq!(marram_store::operations::is_aborted(&entry.record), !committed);
        assert_eq!(entry.obstacle.is_none(), committed, "{:?}", entry.obstacle);
        drop((anew, beside));
        clear(&prepares.pool);
        assert_eq!(findings(&*devices[1]), [""; 0]);
        assert_eq!(has_file(&decides.files, "file 1"), Ok(committed));
    }
}

#[test]
fn a_file_system_that_lived_through_a_doubt_goes_on_as_it_ended() {
    for (way, committed) in [(Way::IsLost, true), (Way::IsAway, false)] {
        let ([decides, prepares], devices) = in_doubt(way);
        let (files, pool) = (&prepares.files, &prepares.pool);
        assert!(has_file(files, "file 0").is_err(), "nobody reads it in doubt");
        let number = pool.two_pool_transactions()[0].number;
        let ending = Ending { committed, by_hand: false, views_go_on: true };
        let conclude = || {
            pool.conclude_prepared(number, ending).expect("it is concluded");
            Ok::<_, marram_vfs::Error>(())
        };
        turn_together(&[&**files], conclude, || ()).expect("it is read anew");
        forget(&decides.pool);
        assert_eq!(has_file(files, "file 0"), Ok(true));
        assert_eq!(has_file(files, "file 1"), Ok(committed), "it goes on with what holds");
        for id in 2..9 {
            let text = format!("file {id}");
            write_file(files, &text, &text.as_bytes().repeat(900)).expect("it is written");
        }
        assert!(run(&decides, &prepares, 9, Way::Commits), "the next one is committed");
        pool.commit().expect("it commits");
        let anew = posix(&**pool, &root());
        for id in 0..10 {
            let is_there = id != 1 || committed;
            assert_eq!(has_file(files, &format!("file {id}")), Ok(is_there), "file {id}");
            assert_eq!(has_file(&anew, &format!("file {id}")), Ok(is_there), "file {id}");
        }
        let inodes = |files: &Posix| files.space().expect("it is counted").inodes_used;
        assert_eq!(inodes(files), inodes(&anew));
        drop(anew);
        clear(pool);
        assert_eq!(findings(&*devices[1]), [""; 0]);
    }
}

#[test]
fn a_pool_that_is_opened_in_doubt_stays_so_until_somebody_decides() {
    for committed in [true, false] {
        let ([_, prepares], devices) = in_doubt(Way::IsAway);
        drop(prepares);
        let pool = open(devices[1].clone());
        let row = pool.two_pool_transactions().remove(0);
        assert!(row.is_in_doubt);
        assert!(pool.open(&root()).is_err());
        let acting = pool.acting_for(Author { user: Some(3), command: "by hand".to_owned() });
        let by_hand = |committed| Ending { committed, by_hand: true, ..Ending::default() };
        acting.conclude_prepared(row.number, by_hand(committed)).expect("it is decided");
        assert!(acting.conclude_prepared(row.number, by_hand(!committed)).is_err(), "once");
        let files = posix(&*pool, &root());
        assert_eq!(has_file(&files, "file 1"), Ok(committed));
        assert_eq!(has_file(&files, "file 0"), Ok(true));
        let operations = pool.operations().expect("a log");
        let noted = operations.iter().any(|it| it.record.texts.iter().any(|it| it == "by hand"));
        assert!(noted, "the log tells of it: {operations:?}");
        let state = pool.two_pool_transactions().remove(0).state;
        let expected = match committed {
            true => TransactionState::CommittedByHand,
            false => TransactionState::AbortedByHand,
        };
        assert_eq!(state, expected, "it is known until the other pool is heard");
        drop(files);
        clear(&pool);
        assert_eq!(findings(&*devices[1]), [""; 0]);
        forget(&pool);
        assert!(pool.two_pool_transactions().is_empty());
    }
}

/// Flushes of both pools since a device was asked last.
fn flushes(recorders: &[Arc<RecordingDevice>; 2]) -> [usize; 2] {
    [0, 1].map(|which| {
        let trace = recorders[which].trace();
        trace.events().iter().filter(|event| **event == Event::Flush).count()
    })
}

/// The figures of `docs/transactions.md`.
#[test]
fn a_transaction_over_two_pools_costs_six_flushes() {
    let device = |label| Arc::new(RecordingDevice::in_memory(small_pool::empty(label)));
    let recorders = [device("decides"), device("prepares")];
    let [decides, prepares] = [&recorders[0], &recorders[1]].map(|it| Side::new(it.clone()));
    for side in [&decides, &prepares] {
        write_file(&side.files, "old", b"old").expect("it is written");
        side.pool.commit().expect("it commits");
    }
    for id in 1..4 {
        let before = flushes(&recorders);
        assert!(run(&decides, &prepares, id, Way::Commits));
        let after = flushes(&recorders);
        assert_eq!([after[0] - before[0], after[1] - before[1]], [2, 4], "transaction {id}");
        assert!(decides.pool.two_pool_transactions().is_empty(), "it is forgotten");
        assert!(decides.pool.knows_transaction([id; 16]), "but no other gets its id");
    }
    // What was decided before the last one has gone with its commit.
    assert!(!decides.pool.knows_transaction([2; 16]));
    let before = flushes(&recorders);
    decides.pool.commit().expect("it commits");
    assert_eq!(flushes(&recorders)[0] - before[0], 2, "a commit in the background takes it");
    assert!(!decides.pool.knows_transaction([3; 16]));
    decides.pool.commit().expect("it commits");
    assert_eq!(flushes(&recorders)[0] - before[0], 2, "and there is nothing more to do");
    // What an unmount leaves has no mark that keeps older programs away.
    assert!(run(&decides, &prepares, 4, Way::Commits));
    decides.pool.close().expect("it closes");
    let memory = MemoryDevice::from_bytes(
        recorders[0]
            .trace()
            .image(CrashState { cut: recorders[0].trace().events().len(), fate: Fate::Durable }),
    );
    assert_eq!(features(&memory) & feature::TWO_POOLS, 0);
    assert_eq!(findings(&memory), [""; 0]);
}

/// What is said of a transaction is said of its id.
#[test]
fn no_other_transaction_has_the_id_of_one_that_is_not_over() {
    let ([decides, prepares], _) = in_doubt(Way::IsLost);
    decides.work(9);
    let pool = decides.acting().deciding([1; 16], other(2));
    let refused = decides.merge(&pool, 9, false).unwrap_err();
    assert!(refused.to_string().contains("another one has its id"), "{refused}");
    decides.end(9);
    resolve(&decides.pool, &prepares.pool);
    assert!(decides.pool.two_pool_transactions().is_empty());
    assert!(decides.pool.knows_transaction([1; 16]), "a crash would bring it back");
    decides.pool.commit().expect("it commits");
    decides.work(9);
    let pool = decides.acting().deciding([1; 16], other(2));
    assert_eq!(decides.merge(&pool, 9, false), Ok(true), "it is gone for good");
}

/// A file system of which the state cannot be read anew when a doubt ends goes on with nothing that
/// it has in memory: it answers errors, also when the device works again, until it is opened anew.
#[test]
fn a_file_system_that_cannot_be_read_when_a_doubt_ends_is_at_its_end() {
    let memory = |label| Arc::new(MemoryDevice::from_bytes(small_pool::empty(label)));
    let faulty = Arc::new(FaultyDevice::scripted(memory("prepares"), Vec::new()));
    let decides = Side::new(memory("decides"));
    let options = OpenOptions { cache_bytes: 0, ..OpenOptions::new(|| 0) };
    let pool = Pool::open(vec![faulty.clone()], options).expect("it opens");
    let beside: DatasetName = "beside".parse().unwrap();
    pool.create(&beside, &Default::default()).expect("it is made");
    let files = posix(&*pool, &root());
    let prepares = Arc::new(Side { pool, files });
    write_file(&prepares.files, "file 0", &b"file 0".repeat(900)).expect("it is written");
    assert!(!run(&decides, &prepares, 1, Way::IsLost));
    let (files, pool) = (&prepares.files, &prepares.pool);
    let row = pool.two_pool_transactions().remove(0);
    let ending = Ending { committed: true, by_hand: false, views_go_on: true };
    let conclude = || {
        pool.conclude_prepared(row.number, ending).expect("it is concluded");
        faulty.set_script((0..200).map(|nth| Fault::FailRead { nth }).collect());
        Ok::<_, marram_vfs::Error>(())
    };
    turn_together(&[&**files], conclude, || pool.end_views(&row.dataset_numbers))
        .expect_err("the device fails");
    faulty.set_script(Vec::new());
    for name in ["file 0", "file 1"] {
        assert!(has_file(files, name).is_err(), "{name} is not read by a view of before");
    }
    assert!(write_file(files, "new", b"new").is_err(), "and nothing is changed by it");
    let anew = posix(&**pool, &root());
    assert_eq!([has_file(&anew, "file 0"), has_file(&anew, "file 1")], [Ok(true), Ok(true)]);
    let beside = posix(&**pool, &Source::live(beside));
    write_file(&beside, "new", b"new").expect("other datasets go on");
}
