//! Forks in memory, by random histories: each has what it began with and its own changes, whatever
//! commits and operations pass; a crash at any point leaves nothing of them that does not go; and
//! the verifier misses no space.

use crate::small_pool;
use marram_check::{CheckOptions, check};
use marram_device::{Device, MemoryDevice};
use marram_format::operation::OperationKind;
use marram_history::{HeldParent, MergeOptions, MergeSides, Overlap, Parent, Touched, merge};
use marram_pool::planted::{PlantedBug, plant};
use marram_pool::{Author, OpenOptions, Pool};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_sim::Random;
use marram_sim::device::{CrashState, Event, Fate, RecordingDevice};
use marram_store::{
    Batch, Block, DatasetName, Edit, Error, ForkBegin, Item, Key, MergedFrom, OperationLog, Result,
    Source, Store, View, kind,
};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const KEYS: u64 = 12;
const FORKS_MAX: usize = 3;

/// Content by key.
type Contents = BTreeMap<Key, Vec<u8>>;

fn open(device: Arc<dyn Device>) -> Arc<Pool> {
    Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens")
}

fn fork_name(id: u64) -> DatasetName {
    DatasetName::of_transaction(&id.to_string()).expect("a valid id")
}

fn noise(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.number().to_le_bytes()[0]).collect()
}

fn key(random: &mut Random) -> Key {
    Key::new(2 + random.below(KEYS), kind::SECTION, 0)
}

fn contents_of(view: &dyn View) -> Contents {
    let mut found = Vec::new();
    let (from, to) = (Key::new(2, kind::SECTION, 0), Key::new(2 + KEYS, kind::SECTION, 0));
    view.scan(from, to, &mut |key, item| {
        found.push((key, item.block.clone().expect("each item has a block")));
        true
    })
    .expect("it is scanned");
    let content = |block: &Block| view.read_block(block).expect("it is read").to_vec();
    found.iter().map(|(key, block)| (*key, content(block))).collect()
}

/// One random change of a dataset and of what it should have.
fn change(random: &mut Random, view: &dyn View, contents: &mut Contents) {
    let at = key(random);
    let mut batch = Batch::new();
    let before = view.get(at).expect("it is read");
    match (random.below(6), before) {
        (0, Some(_)) => {
            batch.remove(at);
            contents.remove(&at);
        }
        (1, Some(item)) => {
            // Two references to one block: the first is put anew.
            let other = key(random);
            if other != at {
                batch.put(at, item.clone());
            }
            batch.put(other, item);
            let content = contents[&at].clone();
            contents.insert(other, content);
        }
        (2, Some(item)) => {
            let data = noise(random, 50);
            let place = 10;
            batch.edits.push(Edit::Patch { key: at, value: item.value, at: place, data: &data });
            match view.apply(batch) {
                Ok(()) => {
                    let content = contents.get_mut(&at).expect("it has content");
                    content.resize(content.len().max(place + data.len()), 0);
                    content[place..place + data.len()].copy_from_slice(&data);
                }
                Err(error) => assert_eq!(error, Error::NotFresh),
            }
            return;
        }
        _ => {
            let len = 200 + usize::try_from(random.below(20_000)).expect("it is small");
            let content = noise(random, len);
            batch.put(at, Item::with_block(Vec::new(), Block::fresh(content.clone())));
            contents.insert(at, content);
        }
    }
    view.apply(batch).expect("there is space");
}

/// A pool in which forks come and go, beside what all should have.
struct Run {
    pool: Arc<Pool>,
    parent: Contents,
    /// What each began with, and has.
    forks: BTreeMap<u64, (Contents, Contents)>,
    begun: u64,
    /// How many have been merged.
    merged: u64,
    /// How many times that was made durable.
    settled: u64,
    snapshots: u64,
}

impl Run {
    fn new(pool: Arc<Pool>) -> Run {
        let (parent, forks) = (Contents::new(), BTreeMap::new());
        Run { pool, parent, forks, begun: 0, merged: 0, settled: 0, snapshots: 0 }
    }

    fn view(&self, source: &Source) -> Arc<dyn View> {
        self.pool.open(source).expect("it opens")
    }

    fn root(&self) -> Arc<dyn View> {
        self.view(&Source::live(DatasetName::root()))
    }

    fn step(&mut self, random: &mut Random) {
        let store: &dyn Store = &*Arc::clone(&self.pool);
        let some = self.forks.keys().nth(random.below(FORKS_MAX as u64) as usize).copied();
        match (random.below(20), some) {
            (0..=5, _) => {
                let root = self.root();
                change(random, &*root, &mut self.parent);
            }
            (6..=11, Some(id)) => {
                let view = self.view(&Source::live(fork_name(id)));
                let (_, contents) = self.forks.get_mut(&id).expect("it is open");
                change(random, &*view, contents);
            }
            (12, Some(id)) => {
                store.end_fork(&fork_name(id)).expect("it ends");
                self.forks.remove(&id);
            }
            (13, _) => self.pool.commit().expect("it commits"),
            (14, _) => self.root().sync().expect("it syncs"),
            (15, _) if random.below(3) == 0 => self.administer(random),
            (17, Some(id)) => self.merge(id),
            (16, _) => while self.pool.reclaim_step().expect("space comes back") {},
            _ if self.forks.len() < FORKS_MAX => {
                self.begun += 1;
                let begun = store.begin_fork(&DatasetName::root(), &fork_name(self.begun), 1);
                begun.expect("it begins");
                self.forks.insert(self.begun, (self.parent.clone(), self.parent.clone()));
            }
            _ => {}
        }
    }

    /// Brings what a fork has changed into its parent, as it waits if that can be.
    fn merge(&mut self, id: u64) {
        let acting = self.pool.acting_for(Author { user: Some(1), command: "test".to_owned() });
        let store: &dyn Store = &acting;
        let fork = Source::live(fork_name(id));
        let as_it_waits = store.present_state(&fork.dataset, "merge").expect("it is kept");
        let committed = || store.ephemeral_snapshot(&fork.dataset, "merge").expect("it is kept");
        let keys = match as_it_waits.map(|read| merge_state(store, &fork, &read)) {
            Some(Ok(keys)) => keys,
            _ => merge_state(store, &fork, &committed()).expect("it is merged"),
        };
        let (base, contents) = self.forks.remove(&id).expect("it is open");
        for key in base.keys().chain(contents.keys()) {
            assert!(base.get(key) == contents.get(key) || keys.contains(key), "{key:?} is missed");
        }
        for key in keys {
            match contents.get(&key) {
                Some(content) => self.parent.insert(key, content.clone()),
                None => self.parent.remove(&key),
            };
        }
        store.end_fork(&fork.dataset).expect("it ends");
        self.merged += 1;
        // Others wait for what comes: a sync, a commit, an operation, or one of these.
        if id.is_multiple_of(3) {
            store.settle_merges(&*self.root()).expect("they are durable");
            self.settled += 1;
        }
    }

    fn administer(&mut self, random: &mut Random) {
        let name = |number: u64| format!("s{number}");
        if self.snapshots == 0 || random.below(2) == 0 {
            self.snapshots += 1;
            let taken = self.pool.snapshot(&DatasetName::root(), &name(self.snapshots));
            taken.expect("a snapshot is made");
        } else {
            let gone: Source = format!("root@{}", name(self.snapshots)).parse().expect("valid");
            self.pool.destroy(&gone, false).expect("a snapshot goes");
            self.snapshots -= 1;
        }
    }

    fn check(&self, what: &str) {
        assert_eq!(contents_of(&*self.root()), self.parent, "{what}: the parent");
        for (id, (_, contents)) in &self.forks {
            let view = self.view(&Source::live(fork_name(*id)));
            assert_eq!(contents_of(&*view), *contents, "{what}: fork {id}");
        }
    }
}

/// Merges a state of a fork; returns what was changed.
fn merge_state(store: &dyn Store, fork: &Source, read: &Source) -> Result<Vec<Key>> {
    let base = store.report(fork).expect("it is reported").origin.expect("it has a base");
    let dataset = DatasetName::root();
    let parent = store.open(&Source::live(dataset.clone())).expect("it opens");
    let from = store.open(read).expect("it opens");
    let mut changes = Vec::new();
    store.changes(&base, read, Key::MIN, &mut |change| {
        changes.push(change);
        true
    })?;
    let mut batch = Batch::new();
    for change in &changes {
        match &change.after {
            Some(Item { value, block: Some(block) }) => {
                let block = parent.adopt(&*from, block)?;
                batch.put(change.key, Item::with_block(value.clone(), block));
            }
            _ => {
                batch.remove(change.key);
            }
        }
    }
    let dataset = &dataset;
    let merged = MergedFrom {
        dataset,
        fork,
        read,
        keep: None,
        root_object: 1,
        base: None,
        moves_base: false,
        may_wait: true,
    };
    let applied = store.apply_merge(&*parent, batch, &merged);
    drop(from);
    store.discard_snapshot(read);
    applied.map(|_| changes.iter().map(|change| change.key).collect())
}

/// What a crash has left of forks goes; then nothing is wrong, and nothing lost.
fn clear(pool: &Pool) {
    let left = pool.list().expect("a list").into_iter().map(|report| report.source);
    for source in left.filter(|it| it.snapshot.is_none() && it.dataset.transaction().is_some()) {
        pool.destroy(&source, false).expect("it goes");
    }
    pool.commit().expect("it commits");
    while pool.reclaim_step().expect("space comes back") {}
}

fn findings(device: &dyn Device) -> Vec<String> {
    let mut found = Vec::new();
    let options = CheckOptions { read_data: true, snapshots: true };
    check(device, &options, &mut |finding| found.push(finding.to_string())).expect("a pool");
    // Items that no file system has made.
    let own = ["[root-missing]", "[counters-missing]", "[item-malformed]", "[inode-missing]"];
    found.retain(|text| !own.iter().any(|kind| text.contains(kind)));
    found
}

#[test]
fn forks_and_their_parent_go_their_own_ways() {
    for seed in 0..12 {
        let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("forks")));
        let mut random = Random::new(seed);
        let mut run = Run::new(open(memory.clone()));
        for step in 0..250 {
            run.step(&mut random);
            if step % 5 == 0 {
                run.check(&format!("seed {seed}, step {step}"));
            }
            if step % 50 == 0 {
                run.pool.commit().expect("it commits");
                assert_eq!(findings(&*memory), [""; 0], "seed {seed}, step {step}");
            }
        }
        run.check(&format!("seed {seed}, the end"));
        let store: &dyn Store = &*run.pool;
        run.forks.keys().for_each(|id| store.end_fork(&fork_name(*id)).expect("it ends"));
        clear(&run.pool);
        assert_eq!(findings(&*memory), [""; 0], "seed {seed}: the end");
        let left: Vec<_> = run.pool.list().expect("a list").into_iter().collect();
        assert_eq!(left.len() as u64, 1 + run.snapshots, "{left:?}");
    }
}

#[test]
fn a_crash_leaves_the_parent_at_one_moment_and_no_space_is_lost() {
    for seed in 100..104 {
        cut_states(seed, &mut |found, known, state| {
            assert!(known.contains(found), "seed {seed}, state {state}: no moment after a sync");
        });
    }
}

#[test]
fn a_merge_in_a_frame_without_its_entry_is_found() {
    let mut is_found = false;
    plant(Some(PlantedBug::MergeInFrame));
    for seed in 100..104 {
        cut_states(seed, &mut |found, known, _| is_found |= !known.contains(found));
    }
    plant(None);
    assert!(is_found);
}

/// The parent, and how many merges are entered into the log of operations.
type Moment = (Contents, u64);

/// Shows `judge` what power cuts leave, beside the moments that each may leave.
fn cut_states(seed: u64, judge: &mut dyn FnMut(&Moment, &[Moment], CrashState)) {
    let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("forks")));
    let mut random = Random::new(seed);
    let mut run = Run::new(open(device.clone()));
    let (mut states, mut settled) = (vec![(run.parent.clone(), 0)], 0);
    for step in 0..60 {
        run.step(&mut random);
        let now = (run.parent.clone(), run.merged);
        if states.last() != Some(&now) {
            states.push(now);
        }
        let is_synced = step % 6 == 0;
        if is_synced {
            run.root().sync().expect("it syncs");
        }
        if is_synced || run.settled > settled {
            settled = run.settled;
            device.mark(states.len() as u64 - 1);
        }
    }
    drop(run);
    let trace = device.trace();
    let all: Vec<CrashState> = trace.prefixes().step_by(5).chain(trace.seeded(seed, 150)).collect();
    for state in all {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open(memory.clone());
        let root = pool.open(&Source::live(DatasetName::root())).expect("it opens");
        let operations = pool.operations().expect("the log is read").into_iter();
        let merges = operations.filter(|it| it.record.kind == OperationKind::Merge);
        let found = (contents_of(&*root), merges.count() as u64);
        let synced = trace.last_mark(state.cut).unwrap_or(0) as usize;
        judge(&found, &states[synced..], state);
        drop(root);
        clear(&pool);
        drop(pool);
        assert_eq!(findings(&*memory), [""; 0], "seed {seed}, state {state}");
    }
}

#[test]
fn space_of_a_dead_transaction_that_is_kept_is_found() {
    for bug in [None, Some(PlantedBug::DeadTransactionKept)] {
        let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("forks")));
        let pool = open(memory.clone());
        let store: &dyn Store = &*pool;
        let mut random = Random::new(1);
        store.begin_fork(&DatasetName::root(), &fork_name(1), 1).expect("it begins");
        let view = pool.open(&Source::live(fork_name(1))).expect("it opens");
        let mut batch = Batch::new();
        let block = Block::fresh(noise(&mut random, 100_000));
        batch.put(key(&mut random), Item::with_block(Vec::new(), block));
        view.apply(batch).expect("there is space");
        drop(view);
        pool.commit().expect("it commits");
        store.end_fork(&fork_name(1)).expect("it ends");
        plant(bug);
        clear(&pool);
        plant(None);
        drop(pool);
        let found = findings(&*memory);
        match bug {
            None => assert!(found.is_empty(), "{found:?}"),
            Some(_) => assert!(found.iter().any(|it| it.contains("grains")), "{found:?}"),
        }
    }
}

/// What a transaction does, by the calls of the command that runs it.
fn transaction(pool: &Arc<Pool>, id: u64, parent: &dyn Parent, work: &dyn Fn(&Posix)) {
    let acting = pool.acting_for(Author { user: Some(1), command: "tx run".to_owned() });
    let store: &dyn Store = &acting;
    let (dataset, name) = (DatasetName::root(), fork_name(id));
    store.begin_fork(&dataset, &name, 1).expect("it begins");
    let fork = Source::live(name.clone());
    let files = posix(&acting, &fork);
    work(&files);
    if !store.is_unchanged(&name).expect("it is known") {
        let base = store.report(&fork).expect("it is reported").origin.expect("it has a base");
        let (base, root) = (&base, Ino::ROOT);
        let sides = MergeSides { dataset: &dataset, base, fork: &fork, root };
        let options = MergeOptions {
            strict: Some(&|_| Vec::new()),
            may_wait: true,
            ..MergeOptions::default()
        };
        let report = merge(parent, store, sides, &options).expect("it is merged");
        assert!(report.applied, "{report:?}");
        OperationLog::settle_merges(&acting).expect("it is durable");
    }
    drop(files);
    store.end_fork(&name).expect("it ends");
}

fn posix(store: &dyn Store, source: &Source) -> Posix {
    // As the view of a transaction has it.
    let options = PosixOptions { access_times: AccessTimes::Never, ..PosixOptions::default() };
    Posix::new(store.open(source).expect("it opens"), options).expect("files")
}

fn write_file(files: &Posix, text: &str, content: &[u8]) {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let caller = Caller { uid: 0, gid: 0 };
    let name = Name::new(text.as_bytes()).expect("a name");
    let made = files.create(caller, Ino::ROOT, name, node).expect("it is made");
    files.write(made.ino, 0, content, WriteOptions::default()).expect("it is written");
}

fn read_file(files: &Posix, text: &str) -> Option<Vec<u8>> {
    let name = Name::new(text.as_bytes()).expect("a name");
    let found = files.lookup(Ino::ROOT, name).ok()?;
    let mut content = Vec::new();
    files.read(found.ino, 0, 1 << 20, &mut content).expect("it is read");
    Some(content)
}

/// Flushes of a transaction of ten small files, and of one that only reads: the figures of
/// `docs/transactions.md`.
#[test]
fn flushes_of_a_transaction_do_not_grow() {
    let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("flushes")));
    let pool = open(device.clone());
    let parent = posix(&*pool, &Source::live(DatasetName::root()));
    write_file(&parent, "old", b"old");
    pool.commit().expect("it commits");
    let flushes = || device.trace().events().iter().filter(|it| **it == Event::Flush).count();
    // The first is a commit, and the log may have merges from then on.
    for (id, waits, expected) in [(1, false, 2), (2, true, 1), (3, true, 1)] {
        if waits {
            write_file(&parent, &format!("waits {id}"), &[7; 5000]);
        }
        let before = flushes();
        transaction(&pool, id, &parent, &|files| {
            for number in 0..10 {
                write_file(files, &format!("{id} {number}"), &[number; 3000]);
            }
        });
        assert_eq!(
            flushes() - before,
            expected,
            "begin, ten files, commit and end of transaction {id}"
        );
        for number in 0..10 {
            let read = read_file(&parent, &format!("{id} {number}"));
            assert_eq!(read.as_deref(), Some(&[number; 3000][..]));
        }
    }
    let before = flushes();
    transaction(&pool, 4, &parent, &|files| {
        assert_eq!(read_file(files, "old").as_deref(), Some(&b"old"[..]));
        assert_eq!(read_file(files, "waits 2").map(|it| it.len()), Some(5000));
    });
    assert_eq!(flushes(), before, "one that reads costs none");
    let trace = device.trace();
    drop((parent, pool));
    // Whatever was committed is there after a crash of now, and nothing is wrong.
    let cut = trace.events().len();
    let state = CrashState { cut, fate: Fate::Durable };
    let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
    let after = open(memory.clone());
    let files = posix(&*after, &Source::live(DatasetName::root()));
    for (id, number) in (1..4_u64).flat_map(|id| (0..10_u8).map(move |number| (id, number))) {
        let read = read_file(&files, &format!("{id} {number}"));
        assert_eq!(read.as_deref(), Some(&[number; 3000][..]), "{id} {number}");
    }
    drop(files);
    clear(&after);
    drop(after);
    assert_eq!(findings(&*memory), [""; 0]);
}

/// One over several datasets that has only read costs none either, from its beginning to its end.
#[test]
fn reading_several_datasets_costs_no_flush() {
    let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("several")));
    let pool = open(device.clone());
    let datasets = ["root", "a", "b"].map(|name| name.parse::<DatasetName>().expect("a name"));
    for dataset in &datasets[1..] {
        pool.create(dataset, &Default::default()).expect("it is made");
    }
    let parents = datasets.each_ref().map(|it| posix(&*pool, &Source::live(it.clone())));
    for parent in &parents {
        write_file(parent, "old", b"old");
    }
    pool.commit().expect("it commits");
    let flushes = || device.trace().events().iter().filter(|it| **it == Event::Flush).count();
    let (before, store): (_, &dyn Store) = (flushes(), &*pool);
    for waits in [false, true] {
        if waits {
            parents.iter().for_each(|parent| write_file(parent, "waits", b"it waits"));
        }
        let forks = [0, 1, 2].map(|at| DatasetName::of_transaction_at("7", at).expect("a name"));
        let begins = datasets.iter().zip(&forks);
        let begins: Vec<ForkBegin<'_>> =
            begins.map(|(dataset, name)| ForkBegin { dataset, name, root_object: 1 }).collect();
        store.begin_forks(&begins).expect("they begin");
        for fork in &forks {
            let files = posix(store, &Source::live(fork.clone()));
            assert_eq!(read_file(&files, "old").as_deref(), Some(&b"old"[..]));
            assert_eq!(read_file(&files, "waits").is_some(), waits);
        }
        assert!(forks.iter().all(|fork| store.is_unchanged(fork).expect("it is known")));
        forks.iter().for_each(|fork| store.end_fork(fork).expect("it ends"));
    }
    assert_eq!(flushes(), before);
}

/// A commit between the comparison and the refusal: what was compared may be no state of one
/// moment, so it is compared again.
#[test]
fn a_refusal_that_a_commit_has_overtaken_is_judged_again() {
    let pool = open(Arc::new(MemoryDevice::from_bytes(small_pool::empty("overtaken"))));
    let parent = posix(&*pool, &Source::live(DatasetName::root()));
    write_file(&parent, "old", b"old");
    let (dataset, name) = (DatasetName::root(), fork_name(1));
    let acting = pool.acting_for(Author { user: Some(1), command: "tx run".to_owned() });
    let store: &dyn Store = &acting;
    store.begin_fork(&dataset, &name, 1).expect("it begins");
    let fork = Source::live(name.clone());
    let files = posix(store, &fork);
    write_file(&files, "new", b"new");
    write_file(&parent, "beside", b"beside");
    let asked = AtomicUsize::new(0);
    let refused_once = |_: &Touched| {
        if asked.fetch_add(1, Ordering::Relaxed) > 0 {
            return Vec::new();
        }
        pool.commit().expect("it commits");
        vec![Overlap { name: None, what: "content changed" }]
    };
    let base = store.report(&fork).expect("it is reported").origin.expect("it has a base");
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
    let options = MergeOptions { strict: Some(&refused_once), ..MergeOptions::default() };
    let report = merge(&parent, store, sides, &options).expect("it is merged");
    assert!(report.applied, "{report:?}");
    assert_eq!(read_file(&parent, "new").as_deref(), Some(&b"new"[..]));
}

/// A parent at which another program was before: its change has been committed when the hold comes.
struct Waited<'a> {
    files: &'a Posix,
    pool: &'a Pool,
    number: AtomicUsize,
}

impl Parent for Waited<'_> {
    fn view(&self) -> &dyn View {
        self.files.view()
    }
    fn root(&self) -> Ino {
        self.files.root()
    }
    fn check_running(&self) -> marram_vfs::Result<()> {
        self.files.check_running()
    }
    fn hold_still(&self) -> marram_vfs::Result<Box<dyn HeldParent + '_>> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        write_file(self.files, &format!("beside {number}"), b"beside");
        self.pool.commit().expect("it commits");
        self.files.hold_still()
    }
    fn with_space(
        &self,
        attempt: &mut dyn FnMut() -> marram_vfs::Result<()>,
    ) -> marram_vfs::Result<()> {
        self.files.with_space(attempt)
    }
    fn free_removed(&self) -> marram_vfs::Result<()> {
        self.files.free_removed()
    }
    fn give_back(&self, ino: u64) {
        self.files.give_back(ino);
    }
}

#[test]
fn a_commit_while_the_parent_is_waited_for_costs_no_other_one() {
    let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("waited")));
    let pool = open(device.clone());
    let files = posix(&*pool, &Source::live(DatasetName::root()));
    write_file(&files, "old", b"old");
    pool.commit().expect("it commits");
    let flushes = || device.trace().events().iter().filter(|it| **it == Event::Flush).count();
    let waited = Waited { files: &files, pool: &pool, number: AtomicUsize::new(0) };
    for id in 1..4 {
        let before = flushes();
        transaction(&pool, id, &waited, &|files| write_file(files, &format!("{id}"), b"new"));
        assert_eq!(flushes() - before, 4, "two of the other program, two of transaction {id}");
        assert_eq!(read_file(&files, &format!("{id}")).as_deref(), Some(&b"new"[..]));
    }
}
