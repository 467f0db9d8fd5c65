//! Random histories of transactions over two pools, beside transactions of one of them, plain
//! operations, remounts, and ends in doubt that are resolved, against a model that runs them one
//! after the other in the order of their decisions. What each committed transaction saw is what the
//! model shows; what any other saw is what there was when it began, with its own changes.

use super::{Side, Way, findings, forget, other, posix, root};
use crate::small_pool;
use marram_device::MemoryDevice;
use marram_history::{MergeOptions, MergePart, MergeReport, MergeSides, Touched, merge_together};
use marram_pool::planted::{PlantedBug, plant};
use marram_pool::{Ending, Verdict};
use marram_posix::{Posix, hold_together, turn_together};
use marram_sim::Random;
use marram_sim::serial::{
    SerialModel, SerialOperation, add_state_of, make_directories, run_on_files, run_on_model,
};
use marram_store::{DatasetName, Source, Store};
use marram_tx::{ReadSet, Recording};
use marram_vfs::{FileSystem, Ino};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The pool that decides, and the one that prepares.
const DECIDES: usize = 0;
const PREPARES: usize = 1;
const OPEN_MAX: u64 = 5;
/// A quota that no change keeps.
const NO_ROOM: &str = "1";

/// A transaction that is open: what it did, and what it was answered.
struct Open {
    id: u128,
    parts: Vec<Part>,
    done: Vec<(SerialOperation, String)>,
    /// What there was when it began.
    base: SerialModel,
}

/// A transaction in one pool.
struct Part {
    pool: usize,
    fork: DatasetName,
    files: Arc<Posix>,
    view: Recording,
}

impl Open {
    fn part(&self, pool: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.pool == pool)
    }
}

/// What has happened in a history, by what it is called in its report.
type Counts = BTreeMap<&'static str, u64>;

/// Has the other pool decide.
type Decide = Arc<dyn Fn() -> Verdict + Send + Sync>;

struct History {
    devices: [Arc<MemoryDevice>; 2],
    /// `None` while a pool is opened anew.
    sides: [Option<Arc<Side>>; 2],
    model: SerialModel,
    open: Vec<Open>,
    /// Of a transaction that is in doubt: whether it is committed.
    doubt: Option<bool>,
    random: Random,
    begun: u128,
    counts: Counts,
}

/// Merges a fork into the root of its pool, unless others have changed what was read there.
fn merge(
    (files, store): (&Posix, &dyn Store),
    fork: &DatasetName,
    (reads, always): (&ReadSet, bool),
) -> marram_vfs::Result<MergeReport> {
    let (dataset, fork) = (DatasetName::root(), Source::live(fork.clone()));
    let base = store.report(&fork).expect("it is reported").origin.expect("it has a base");
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
    let strict = |touched: &Touched| reads.overlaps(touched);
    let options = MergeOptions { strict: Some(&strict), always, ..MergeOptions::default() };
    let part = MergePart { parent: files, sides, options: &options };
    let mut reports = merge_together(store, &[part], &|| Ok(hold_together(&[files])))?;
    Ok(reports.remove(0))
}

impl History {
    fn new(seed: u64) -> History {
        let memory = |label| Arc::new(MemoryDevice::from_bytes(small_pool::empty(label)));
        let devices = [memory("decides"), memory("prepares")];
        let sides = [&devices[0], &devices[1]].map(|it| Some(Side::new(it.clone())));
        let (counts, random) = (Counts::new(), Random::new(seed));
        let (model, open) = (SerialModel::new(), Vec::new());
        let (doubt, begun) = (None, 0);
        let mut history = History { devices, sides, model, open, doubt, random, begun, counts };
        for pool in [DECIDES, PREPARES] {
            make_directories(pool, &*history.side(pool).files);
        }
        for path in [("p", "a"), ("p", "b"), ("q", "a"), ("r", "a"), ("r", "b"), ("s", "a")] {
            history.do_plainly(SerialOperation::Write(path, b'0')).expect("an empty pool");
        }
        history
    }

    fn side(&self, pool: usize) -> Arc<Side> {
        Arc::clone(self.sides[pool].as_ref().expect("it is open"))
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn is_in_doubt(&self, pool: usize) -> bool {
        pool == PREPARES && self.doubt.is_some()
    }

    fn do_plainly(&mut self, operation: SerialOperation) -> Result<(), String> {
        let side = self.side(operation.dataset());
        if self.is_in_doubt(operation.dataset()) {
            let found = side.files.attributes(Ino::ROOT);
            return equal(&found.is_err(), &true, "what is in doubt is read");
        }
        let seen = run_on_files(&*side.files, operation);
        let expected = run_on_model(&mut self.model, operation);
        equal(&seen, &expected, &format!("plainly: {operation:?}"))
    }

    fn begin(&mut self) {
        let pools = self.random.pick::<&[usize]>(&[&[0], &[1], &[0, 1], &[0, 1]]);
        if pools.iter().any(|pool| self.is_in_doubt(*pool)) {
            return;
        }
        self.begun += 1;
        let (id, mut parts) = (self.begun, Vec::new());
        for pool in pools.iter().copied() {
            let fork = DatasetName::of_transaction(&id.to_string()).expect("a valid id");
            let (side, live) = (self.side(pool), Source::live(fork.clone()));
            let store: &dyn Store = &*side.pool;
            store.begin_fork(&DatasetName::root(), &fork, Ino::ROOT.0).expect("it begins");
            let files = posix(store, &live);
            let shown: Arc<dyn FileSystem> = files.clone();
            let view = Recording::new(shown, Ino::ROOT, ReadSet::default());
            parts.push(Part { pool, fork, files, view });
        }
        let base = self.model.clone();
        self.open.push(Open { id, parts, done: Vec::new(), base });
    }

    /// Takes the forks away of one that has ended. If it is not there, it saw what it began with.
    fn close(&mut self, open: Open, is_there: bool) -> Result<(), String> {
        let Open { parts, done, mut base, .. } = open;
        for Part { pool, fork, files, view } in parts {
            drop((files, view));
            let store: &dyn Store = &*self.side(pool).pool;
            store.end_fork(&fork).map_err(|error| format!("a fork ends: {error}"))?;
        }
        let seen_in = if is_there { &mut self.model } else { &mut base };
        for (operation, seen) in done {
            let expected = run_on_model(seen_in, operation);
            equal(&seen, &expected, &format!("in one that is there ({is_there}): {operation:?}"))?;
        }
        self.compare()
    }

    fn commit(&mut self, at: usize) -> Result<(), String> {
        let open = self.open.swap_remove(at);
        open.parts.iter().for_each(|part| part.view.end());
        if open.parts.len() == 2 {
            return self.commit_both(open);
        }
        let part = &open.parts[0];
        let (side, reads) = (self.side(part.pool), part.view.reads());
        let acting = side.acting();
        let store: &dyn Store = &acting;
        if store.is_unchanged(&part.fork).map_err(|error| error.to_string())? {
            self.count("one pool, read");
            return self.close(open, false);
        }
        let merged = merge((&side.files, store), &part.fork, (&reads, false));
        let is_there = match (merged, self.is_in_doubt(part.pool)) {
            (Ok(report), false) => report.applied && !report.change_set.inodes.is_empty(),
            (Err(_), true) => false,
            (merged, _) => return Err(format!("a commit in one pool: {merged:?}")),
        };
        self.count(if is_there { "one pool, committed" } else { "one pool, refused" });
        self.close(open, is_there)
    }

    /// The decision of the other pool, which is made once, and how the one that prepares hears it;
    /// and the place where it says whether it has committed.
    fn decision(&self, open: &Open, way: Way) -> (Decide, Arc<OnceLock<bool>>) {
        let (side, id) = (self.side(DECIDES), open.id.to_be_bytes());
        let part = open.part(DECIDES).expect("it is in both");
        let (fork, reads) = (part.fork.clone(), part.view.reads());
        let decided = Arc::new(OnceLock::new());
        let kept = Arc::clone(&decided);
        let decide = move || {
            if way == Way::IsAway {
                return Verdict::Unknown;
            }
            let is_committed = *kept.get_or_init(|| {
                // The daemon of another pool is another process.
                let merge = || {
                    let pool = side.acting().deciding(id, other(2));
                    merge((&side.files, &pool), &fork, (&reads, true))
                };
                let merged = std::thread::scope(|scope| scope.spawn(merge).join());
                merged.expect("no panic").is_ok_and(|report| report.applied)
            });
            match (way, is_committed) {
                (Way::IsLost, _) => Verdict::Unknown,
                (_, true) => Verdict::Committed,
                (_, false) => Verdict::Aborted,
            }
        };
        (Arc::new(decide), decided)
    }

    fn commit_both(&mut self, open: Open) -> Result<(), String> {
        let way = match self.random.below(10) {
            0 | 1 => Way::IsLost,
            2 => Way::IsAway,
            _ => Way::Commits,
        };
        let has_room = !self.random.once_in(5) || self.doubt.is_some();
        let (decide, decided) = self.decision(&open, way);
        let side = self.side(PREPARES);
        self.set_quota(&side, (!has_room).then_some(NO_ROOM))?;
        let part = open.part(PREPARES).expect("it is in both");
        let reads = part.view.reads();
        let pool = side.acting().preparing(open.id.to_be_bytes(), other(1), decide);
        let merged = merge((&side.files, &pool), &part.fork, (&reads, true));
        let was_in_doubt = self.doubt.is_some();
        let rows = side.pool.two_pool_transactions();
        let is_in_doubt = rows.iter().any(|row| row.is_in_doubt);
        let is_told = merged.as_ref().is_ok_and(|report| report.applied);
        let is_there = match is_in_doubt && !was_in_doubt {
            true => decided.get() == Some(&true),
            false => is_told,
        };
        if is_in_doubt && !was_in_doubt {
            self.doubt = Some(is_there);
            self.count(if is_there { "in doubt, committed" } else { "in doubt, not" });
        } else {
            self.set_quota(&side, None)?;
            if is_told {
                forget(&self.side(DECIDES).pool);
            }
            self.count(match (is_there, &merged, has_room) {
                (true, ..) => "two pools, committed",
                (_, Ok(_), _) => "two pools, refused where it is prepared",
                (_, Err(_), true) => "two pools, refused where it is decided",
                (_, Err(_), false) => "two pools, no room",
            });
        }
        self.close(open, is_there)
    }

    fn set_quota(&self, side: &Side, quota: Option<&str>) -> Result<(), String> {
        if self.doubt.is_some() {
            return Ok(());
        }
        let set = side.pool.set_property(&DatasetName::root(), "quota", quota);
        set.map_err(|error| format!("a quota is set: {error}"))
    }

    fn abort(&mut self, at: usize) -> Result<(), String> {
        let open = self.open.swap_remove(at);
        self.count("aborted");
        self.close(open, false)
    }

    /// A doubt ends as the other pool has it, by its word or by hand.
    fn settle(&mut self, is_mounted: bool) -> Result<(), String> {
        let Some(committed) = self.doubt.take() else { return Ok(()) };
        let [decides, prepares] = [DECIDES, PREPARES].map(|pool| self.side(pool));
        let by_hand = self.random.once_in(3);
        let rows = prepares.pool.two_pool_transactions();
        let [row] = &rows[..] else { return Err(format!("one is in doubt: {rows:?}")) };
        let known = decides.pool.two_pool_transactions();
        equal(&known.iter().any(|it| it.id == row.id), &committed, "what the other pool knows")?;
        let ending = Ending { committed, by_hand, views_go_on: committed && is_mounted };
        let conclude = || {
            let concluded = prepares.pool.conclude_prepared(row.number, ending);
            concluded.map_err(|error| marram_vfs::Error::Io(error.to_string()))
        };
        match ending.views_go_on {
            true => turn_together(&[&*prepares.files], conclude, || ()),
            false => conclude(),
        }
        .map_err(|error| format!("a doubt ends: {error}"))?;
        forget(&decides.pool);
        forget(&prepares.pool);
        self.set_quota(&prepares, None)?;
        self.count(match (is_mounted, committed) {
            (true, true) => "a mount goes on with what was committed",
            (true, false) => "a mount goes on without what was not",
            (false, _) => "a doubt ends before the mount",
        });
        Ok(())
    }

    /// A pool is closed and opened again. What was open in it is gone.
    fn remount(&mut self, pool: usize) -> Result<(), String> {
        while let Some(at) = self.open.iter().position(|open| open.part(pool).is_some()) {
            self.abort(at)?;
        }
        let side = self.sides[pool].take().expect("it is open");
        side.pool.close().map_err(|error| error.to_string())?;
        drop(side);
        let opened = super::open(self.devices[pool].clone());
        if self.is_in_doubt(pool) {
            let refused = opened.open(&root()).is_err();
            equal(&refused, &true, "what is in doubt cannot be opened")?;
            // Of no use but for its pool: it is mounted when the doubt is over.
            let files = posix(&*self.side(DECIDES).pool, &root());
            self.sides[pool] = Some(Arc::new(Side { pool: Arc::clone(&opened), files }));
            self.settle(false)?;
        }
        super::clear(&opened);
        let files = posix(&*opened, &root());
        self.sides[pool] = Some(Arc::new(Side { pool: opened, files }));
        self.count("remounts");
        self.compare()
    }

    /// The state of all that can be read is that of the model.
    fn compare(&self) -> Result<(), String> {
        let (mut state, mut expected) = (SerialModel::new(), self.model.clone());
        for pool in [DECIDES, PREPARES] {
            match self.is_in_doubt(pool) {
                true => expected.retain(|path, _| !["r", "s"].contains(&path.0)),
                false => add_state_of(pool, &*self.side(pool).files, &mut state),
            }
        }
        equal(&state, &expected, "the state")
    }

    fn step(&mut self) -> Result<(), String> {
        let at = self.random.below(OPEN_MAX) as usize;
        match self.random.below(20) {
            0..=3 if (self.open.len() as u64) < OPEN_MAX => self.begin(),
            4 | 5 if at < self.open.len() => return self.commit(at),
            6 if at < self.open.len() && self.random.once_in(2) => return self.abort(at),
            7 if self.random.once_in(10) => {
                let pool = self.random.below(2) as usize;
                return self.remount(pool);
            }
            8 => {
                self.settle(true)?;
                return self.compare();
            }
            9 | 10 => {
                let operation = SerialOperation::random(&mut self.random, &[0, 1]);
                return self.do_plainly(operation);
            }
            _ if at < self.open.len() => {
                let operation = SerialOperation::random(&mut self.random, &[0, 1]);
                let open = &mut self.open[at];
                let Some(part) = open.part(operation.dataset()) else { return Ok(()) };
                let seen = run_on_files(&part.view, operation);
                open.done.push((operation, seen));
            }
            _ => (),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Counts, String> {
        while !self.open.is_empty() {
            self.commit(0)?;
            self.settle(true)?;
        }
        self.settle(true)?;
        self.compare()?;
        for pool in [DECIDES, PREPARES] {
            self.remount(pool)?;
        }
        let (devices, counts) = (self.devices.clone(), std::mem::take(&mut self.counts));
        drop(self);
        for device in devices {
            equal(&findings(&*device), &Vec::new(), "what the verifier finds")?;
        }
        Ok(counts)
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T, what: &str) -> Result<(), String> {
    match seen == expected {
        true => Ok(()),
        false => Err(format!("{what}: {seen:?} in place of {expected:?}")),
    }
}

fn play(seed: u64, steps: u64) -> Result<Counts, String> {
    let mut history = History::new(seed);
    for step in 0..steps {
        history.step().map_err(|error| format!("step {step}: {error}"))?;
    }
    history.finish().map_err(|error| format!("at the end: {error}"))
}

fn asked(name: &str, least: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(least)
}

/// The histories of `cargo xtask sim --two-pools`, which asks for more by the environment.
#[test]
fn histories_over_two_pools_are_those_of_transactions_one_after_the_other() {
    let first = asked("MARRAM_TWO_POOLS_SEED", 1);
    let histories = asked("MARRAM_TWO_POOLS_HISTORIES", 12);
    let steps = asked("MARRAM_TWO_POOLS_STEPS", 150);
    let mut counts = Counts::new();
    for seed in first..first + histories {
        let found = play(seed, steps).unwrap_or_else(|error| panic!("seed {seed}, {error}"));
        found.into_iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
    }
    counts.iter().for_each(|(what, count)| println!("{count:8} {what}"));
    if histories * steps >= 1500 {
        let all = [
            "two pools, committed",
            "two pools, refused where it is prepared",
            "two pools, refused where it is decided",
            "two pools, no room",
            "in doubt, committed",
            "in doubt, not",
            "one pool, committed",
            "remounts",
        ];
        let missing = all.iter().find(|what| !counts.contains_key(*what));
        assert_eq!(missing, None, "{counts:?}");
    }
}

/// A pool that has decided while the other one may still find no room has a transaction alone.
#[test]
fn a_decision_before_all_is_prepared_is_found_by_the_model() {
    plant(Some(PlantedBug::DecisionBeforePrepared));
    let found = (1..100).find_map(|seed| play(seed, 150).err());
    plant(None);
    let found = found.expect("histories are as good with a decision that comes first");
    assert!(found.contains("the state"), "{found}");
}
