//! One run of the workload.

use super::memory;
use super::settings::Setting;
use super::world::{World, compare_file_system, mount};
use marram_check::CheckOptions;
use marram_device::{Device, MemoryDevice};
use marram_model::Model;
use marram_pool::{CreateOptions, Health, OpenOptions, Pool, create};
use marram_posix::Posix;
use marram_sim::device::{Fault, FaultyDevice};
use marram_sim::faults::{Act, Damaged, Dataset, Nature, nature, workload};
use marram_sim::{HistoryClock, Operation, Pair};
use marram_store::{DatasetName, Properties, Store};
use marram_vfs::{Caller, Error, FileSystem, Ino, Kind, Name, NewNode, SyncScope, WriteOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a run that violated nothing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody noticed anything.
    Correct,
    /// A bad copy was found and made good, or another copy answered.
    Healed,
    /// Some content was refused as damaged.
    Damaged(Damaged),
    /// The write of one copy went astray onto the other, so none is left. Of a block, a clear error
    /// is all that remains. The last frame of the log looks like one that a power cut tore, and the
    /// pool is as of a moment before it.
    BothCopies,
    /// An operation said that a device had failed; the pool took no more changes.
    Reported,
}

/// Why an act did not come to its end.
enum Stop {
    /// What must never be.
    Violation(String),
    /// The error of a device.
    Reported(String),
    /// A frame of the log has no copy left, see [`Outcome::BothCopies`].
    LastFrame,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Stop::Violation(text) | Stop::Reported(text) => text,
            Stop::LastFrame => "the last frame of the log is lost",
        })
    }
}

type Step<T> = Result<T, Stop>;

impl From<String> for Stop {
    fn from(violation: String) -> Stop {
        Stop::Violation(violation)
    }
}

struct Mounted {
    files: Arc<Posix>,
    pair: Pair,
}

pub struct Trial {
    setting: &'static Setting,
    memory: Arc<MemoryDevice>,
    device: Arc<FaultyDevice>,
    nature: Option<Nature>,
    clock: Arc<HistoryClock>,
    pool: Option<Arc<Pool>>,
    mounted: BTreeMap<Dataset, Mounted>,
    /// What the pool holds now.
    now: World,
    /// What may be there after a crash: what was promised last, and each state since.
    moments: Vec<World>,
    /// All that there ever was, oldest first.
    past: Vec<World>,
    damaged: Damaged,
    noticed: bool,
}

const ROOT: &str = "root";
const CLONE: &str = "clone";
/// Most pieces that a reclaim takes: far more than there are.
const RECLAIM_STEPS_MAX: usize = 1000;

fn name_of(dataset: Dataset) -> &'static str {
    match dataset {
        Dataset::Root => ROOT,
        Dataset::Clone => CLONE,
    }
}

impl Trial {
    /// A new pool, made and opened without faults; the script begins after that.
    pub fn new(setting: &'static Setting, faults: Vec<Fault>) -> Result<Trial, String> {
        let memory = memory(setting);
        let device = Arc::new(FaultyDevice::scripted(memory.clone(), Vec::new()));
        let properties = setting.properties.iter();
        let properties = properties.map(|(name, value)| ((*name).into(), (*value).into()));
        let options = CreateOptions {
            label: "faults".to_owned(),
            properties: Properties(properties.collect()),
            pool_id: [3; 16],
            secret: 3,
            now_seconds: 1_700_000_000,
        };
        create(&[device.clone() as Arc<dyn Device>], &options)
            .map_err(|error| error.to_string())?;
        let mut trial = Trial {
            setting,
            memory,
            device,
            nature: faults.first().map(|fault| nature(*fault)),
            clock: Arc::new(HistoryClock::default()),
            pool: None,
            mounted: BTreeMap::new(),
            now: World::default(),
            moments: Vec::new(),
            past: Vec::new(),
            damaged: Damaged::default(),
            noticed: false,
        };
        trial.begin().map_err(|stop| format!("before any fault: {stop}"))?;
        trial.device.set_script(faults);
        Ok(trial)
    }

    fn begin(&mut self) -> Step<()> {
        self.open()?;
        let files = self.mount(ROOT)?;
        let model = Model::new(self.clock.clone());
        let pair = Pair::new(files.clone(), model);
        self.mounted.insert(Dataset::Root, Mounted { files, pair });
        self.pool().commit().map_err(|error| Stop::Reported(error.to_string()))?;
        self.note(Dataset::Root);
        self.promised();
        Ok(())
    }

    pub fn device(&self) -> Arc<FaultyDevice> {
        self.device.clone()
    }

    fn pool(&self) -> &Arc<Pool> {
        self.pool.as_ref().expect("the pool is open while acts run")
    }

    fn mount(&self, name: &str) -> Step<Arc<Posix>> {
        Ok(mount(self.pool(), name, &self.clock)?)
    }

    fn open(&mut self) -> Step<()> {
        let options = OpenOptions {
            cache_bytes: self.setting.cache_bytes,
            dirty_bytes_max: usize::MAX / 4,
            reclaim_pointers_max: 1,
            ..OpenOptions::new(|| 0)
        };
        match Pool::open(vec![self.device.clone()], options) {
            Ok(pool) => {
                self.pool = Some(pool);
                Ok(())
            }
            Err(error) => Err(self.judge(format!("opening the pool: {error}"))),
        }
    }

    /// Whether an error may come up: only when the device has said that a write failed. All
    /// else has a second copy.
    fn judge(&self, error: String) -> Stop {
        let fired = !self.device.fired().is_empty();
        if fired && self.nature == Some(Nature::Reported) {
            Stop::Reported(error)
        } else {
            Stop::Violation(error)
        }
    }

    /// Takes over what a dataset holds now.
    fn note(&mut self, dataset: Dataset) {
        let model = Arc::new(self.mounted[&dataset].pair.model().snapshot());
        self.now.0.insert(name_of(dataset).to_owned(), model);
        self.moments.push(self.now.clone());
    }

    fn promised(&mut self) {
        self.past.push(self.now.clone());
        self.moments = vec![self.now.clone()];
    }

    /// The whole workload, and what is to be checked after it.
    pub fn run(mut self) -> Result<Outcome, String> {
        match self.work()? {
            Outcome::BothCopies => Ok(Outcome::BothCopies),
            outcome => self.finish(outcome),
        }
    }

    /// The workload, up to an error that the device returned.
    pub fn work(&mut self) -> Result<Outcome, String> {
        for (index, act) in workload().iter().enumerate() {
            self.clock.set(1 + index as u64);
            let at = |text: String| format!("act {index}, {act:?}: {text}");
            match self.act(act) {
                Ok(()) => {}
                Err(Stop::Violation(text)) => return Err(at(text)),
                Err(Stop::LastFrame) => return Ok(Outcome::BothCopies),
                Err(Stop::Reported(told)) => {
                    self.after_failure().map_err(|text| at(format!("{told}; then {text}")))?;
                    return Ok(Outcome::Reported);
                }
            }
        }
        self.look_at_status();
        Ok(match (self.damaged.is_any(), self.noticed) {
            (true, _) => Outcome::Damaged(self.damaged),
            (false, true) => Outcome::Healed,
            (false, false) => Outcome::Correct,
        })
    }

    fn look_at_status(&mut self) {
        if let Some(pool) = &self.pool {
            let device = &pool.status().devices[0];
            self.noticed |= device.read_errors + device.checksum_errors > 0;
        }
    }

    fn act(&mut self, act: &Act) -> Step<()> {
        match act {
            Act::Operation(dataset, operation) => self.operate(*dataset, operation),
            Act::Commit => {
                let result = self.pool().commit();
                self.administer(result)
            }
            Act::Reclaim => self.reclaim(),
            Act::Snapshot(name) => {
                let kept = self.now.0[ROOT].clone();
                self.now.0.insert(format!("{ROOT}@{name}"), kept);
                self.moments.push(self.now.clone());
                let result = self.pool().snapshot(&DatasetName::root(), name);
                self.administer(result)
            }
            Act::MakeClone(snapshot) => self.make_clone(snapshot),
            Act::DestroyClone => {
                self.mounted.remove(&Dataset::Clone);
                self.destroy(CLONE)
            }
            Act::DestroySnapshot(name) => self.destroy(&format!("{ROOT}@{name}")),
            Act::ReadAll => self.read_all(),
            Act::Remount => {
                for mounted in self.mounted.values() {
                    mounted.files.forget_all();
                }
                let result = self.pool().close();
                self.administer(result)?;
                self.reopen()
            }
            Act::Crash => self.reopen(),
        }
    }

    /// The end of what is durable when it returns.
    fn administer<T>(&mut self, result: marram_store::Result<T>) -> Step<()> {
        match result {
            Ok(_) => {
                self.promised();
                Ok(())
            }
            Err(error @ marram_store::Error::Io(_)) => Err(self.judge(error.to_string())),
            Err(error) => Err(Stop::Violation(format!("{error:?}"))),
        }
    }

    fn destroy(&mut self, name: &str) -> Step<()> {
        self.now.0.remove(name);
        self.moments.push(self.now.clone());
        let source = name.parse().expect("names of the workload are valid");
        let result = self.pool().destroy(&source, false);
        self.administer(result)
    }

    fn make_clone(&mut self, snapshot: &str) -> Step<()> {
        let model = self.now.0[&format!("{ROOT}@{snapshot}")].clone();
        self.now.0.insert(CLONE.to_owned(), model.clone());
        self.moments.push(self.now.clone());
        let source = format!("{ROOT}@{snapshot}").parse().expect("a valid name");
        let name: DatasetName = CLONE.parse().expect("a valid name");
        let result = self.pool().clone_snapshot(&source, &name);
        self.administer(result)?;
        let files = self.mount(CLONE)?;
        let pair = Pair::new(files.clone(), model.fork());
        self.mounted.insert(Dataset::Clone, Mounted { files, pair });
        Ok(())
    }

    fn reclaim(&mut self) -> Step<()> {
        for mounted in self.mounted.values() {
            for _ in 0..RECLAIM_STEPS_MAX {
                match mounted.files.reclaim_step(100) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => return Err(Stop::Violation(format!("reclaiming: {error}"))),
                }
            }
        }
        for _ in 0..RECLAIM_STEPS_MAX {
            let more = self.pool().reclaim_step();
            let done = matches!(more, Ok(false));
            self.administer(more)?;
            if done {
                break;
            }
        }
        Ok(())
    }

    fn operate(&mut self, dataset: Dataset, operation: &Operation) -> Step<()> {
        let is_sync = matches!(operation, Operation::Sync { .. } | Operation::SyncAll);
        let mounted = self.mounted.get_mut(&dataset).expect("the workload mounts what it uses");
        match mounted.pair.apply_with_faults(operation)? {
            Ok(_) if is_sync => self.promised(),
            Ok(_) => self.note(dataset),
            Err(error) if is_sync => return Err(self.judge_sync(&error)),
            Err(Error::Damaged(_)) if self.may_be_damaged(operation) => {
                self.damaged.values += 1;
            }
            Err(error) => return Err(Stop::Violation(format!("{error:?}"))),
        }
        Ok(())
    }

    fn judge_sync(&self, error: &Error) -> Stop {
        match error {
            Error::Io(_) => self.judge(error.to_string()),
            _ => Stop::Violation(format!("a sync answers {error:?}")),
        }
    }

    /// Content has one copy.
    fn may_be_damaged(&self, operation: &Operation) -> bool {
        let reads = matches!(operation, Operation::Read { .. } | Operation::CopyRange { .. });
        reads && !self.device.fired().is_empty() && self.nature != Some(Nature::Reported)
    }

    fn read_all(&mut self) -> Step<()> {
        let mut damaged = Damaged::default();
        for mounted in self.mounted.values() {
            compare_file_system(&*mounted.files, mounted.pair.model(), &mut damaged)?;
        }
        for (name, model) in self.now.0.iter().filter(|(name, _)| name.contains('@')) {
            let files = self.mount(name)?;
            compare_file_system(&*files, model, &mut damaged)
                .map_err(|text| format!("{name}: {text}"))?;
        }
        self.judge_damage(damaged)?;
        Ok(())
    }

    fn judge_damage(&mut self, damaged: Damaged) -> Result<(), String> {
        if !damaged.is_any() {
            return Ok(());
        }
        if self.device.fired().is_empty() || self.nature == Some(Nature::Reported) {
            return Err(format!("damage where the device did not lie: {damaged:?}"));
        }
        if self.pool().status().damage.is_empty() {
            return Err(format!("damage that the status does not report: {damaged:?}"));
        }
        self.damaged = damaged;
        Ok(())
    }

    /// Opens the pool anew, with a cold cache; all that it held was promised.
    fn reopen(&mut self) -> Step<()> {
        self.look_at_status();
        for mounted in self.mounted.values_mut() {
            mounted.pair.release();
            mounted.pair.forget_all();
        }
        let mut models = BTreeMap::new();
        for (dataset, mounted) in std::mem::take(&mut self.mounted) {
            models.insert(dataset, mounted.pair);
        }
        self.pool = None;
        self.open()?;
        if self.device.hit_its_like() && self.is_of_the_past() {
            return Err(Stop::LastFrame);
        }
        for (dataset, mut pair) in models {
            let files = self.mount(name_of(dataset))?;
            pair.resume(files.clone());
            self.mounted.insert(dataset, Mounted { files, pair });
            self.note(dataset);
        }
        self.promised();
        Ok(())
    }

    /// Whether the pool is not as it is now, but as of a moment that was promised before.
    fn is_of_the_past(&self) -> bool {
        let is = |world: &World| {
            world.compare(self.pool(), &self.clock, &mut Damaged::default()).is_ok()
        };
        !is(&self.now) && self.past.iter().rev().any(is)
    }

    /// A device has failed: what is in memory can still be read, no sync succeeds any more, and
    /// nothing can be changed.
    fn after_failure(&mut self) -> Result<(), String> {
        let Some(pool) = self.pool.clone() else { return Ok(()) };
        if !matches!(pool.status().health, Health::ReadOnly(_)) {
            return Err(format!("the pool says that it is {:?}", pool.status().health));
        }
        for (dataset, mounted) in &self.mounted {
            let files = &mounted.files;
            let at = |text: String| format!("{}: {text}", name_of(*dataset));
            for round in 0..3 {
                refuses_sync(&**files).map_err(|text| at(format!("round {round}: {text}")))?;
            }
            refuses_changes(&**files).map_err(at)?;
            let mut damaged = Damaged::default();
            compare_file_system(&**files, mounted.pair.model(), &mut damaged).map_err(at)?;
            if damaged.is_any() {
                return Err(at(format!("{damaged:?} in memory")));
            }
        }
        if pool.commit().is_ok() {
            return Err("a commit succeeds after one has failed".to_owned());
        }
        Ok(())
    }

    /// The device is well again: the pool opens, holds what may be there, and works.
    fn finish(mut self, outcome: Outcome) -> Result<Outcome, String> {
        if outcome != Outcome::Reported {
            let closed = self.pool().close();
            match self.administer(closed) {
                Ok(()) | Err(Stop::Reported(_) | Stop::LastFrame) => {}
                Err(Stop::Violation(text)) => return Err(format!("closing: {text}")),
            }
        }
        self.mounted.clear();
        self.pool = None;
        self.device.set_script(Vec::new());
        let lied = self.nature == Some(Nature::Lied);
        let findings = self.verify()?;
        if !lied && !findings.is_empty() {
            return Err(format!("the verifier finds:{findings}"));
        }
        self.open().map_err(|stop| format!("without faults: {stop}"))?;
        let damaged = self.compare_with_moments()?;
        if damaged.is_any() && (!lied || findings.is_empty()) {
            return Err(format!("{damaged:?} at the end; the verifier finds:{findings}"));
        }
        if damaged.is_any() && self.pool().status().damage.is_empty() {
            return Err(format!("{damaged:?} that the status does not report"));
        }
        self.goes_on()?;
        Ok(match outcome {
            Outcome::Correct | Outcome::Healed if damaged.is_any() => Outcome::Damaged(damaged),
            _ => outcome,
        })
    }

    fn verify(&self) -> Result<String, String> {
        let mut findings = String::new();
        let options = CheckOptions { read_data: true, snapshots: true };
        let mut note = |finding| findings += &format!("\n  {finding:?}");
        marram_check::check(&*self.memory, &options, &mut note)
            .map_err(|error| format!("the verifier cannot begin: {error}"))?;
        Ok(findings)
    }

    fn compare_with_moments(&self) -> Result<Damaged, String> {
        let mut reasons = String::new();
        for world in self.moments.iter().rev() {
            let mut damaged = Damaged::default();
            match world.compare(self.pool(), &self.clock, &mut damaged) {
                Ok(()) => return Ok(damaged),
                Err(reason) => reasons = format!("{reasons}\n  {reason}"),
            }
        }
        Err(format!("the pool holds none of {} states:{reasons}", self.moments.len()))
    }

    /// The pool can be written, synced, and opened once more.
    fn goes_on(&mut self) -> Result<(), String> {
        let text = |error: Error| format!("going on: {error:?}");
        let name = Name::new(b"afterwards").expect("a valid name");
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o600, device: 0 };
        let files = mount(self.pool(), ROOT, &self.clock)?;
        let ino = files.create(CALLER, Ino::ROOT, name, node).map_err(text)?.ino;
        files.write(ino, 0, &[7; 10_000], WriteOptions::default()).map_err(text)?;
        files.sync(ino, SyncScope::All).map_err(text)?;
        drop(files);
        self.pool = None;
        self.open().map_err(|stop| format!("going on: {stop}"))?;
        let files = mount(self.pool(), ROOT, &self.clock)?;
        let mut content = Vec::new();
        files.read(ino, 0, 20_000, &mut content).map_err(text)?;
        if content == [7; 10_000] { Ok(()) } else { Err("going on: wrong content".to_owned()) }
    }
}

const CALLER: Caller = Caller { uid: 0, gid: 0 };

fn refuses_sync(files: &dyn FileSystem) -> Result<(), String> {
    for scope in [SyncScope::All, SyncScope::Data] {
        match files.sync(Ino::ROOT, scope) {
            Err(Error::Io(_)) => {}
            other => return Err(format!("a later sync answers {other:?}")),
        }
    }
    match files.sync_all() {
        Err(Error::Io(_)) => Ok(()),
        other => Err(format!("a later sync of all answers {other:?}")),
    }
}

fn refuses_changes(files: &dyn FileSystem) -> Result<(), String> {
    let name = Name::new(b"too late").expect("a valid name");
    let node = NewNode::Directory { permissions: 0o755 };
    match files.create(CALLER, Ino::ROOT, name, node) {
        Err(Error::ReadOnly | Error::Io(_)) => Ok(()),
        other => Err(format!("a later change answers {other:?}")),
    }
}
