//! Mounts what a crash left, and compares it with what may be there.

use super::action::Action;
use super::digest::Digest;
use super::images::Images;
use super::recording::{Recording, preset};
use super::states::{Bounds, states};
use super::target::Target;
use super::twin::{ROOT, pool_digest};
use super::workload::Workload;
use crate::clock::HistoryClock;
use crate::device::{CrashState, Event, Layer, OverlayDevice, RecordingDevice, Trace};
use marram_device::Device;
use marram_vfs::{Caller, Error, FileSystem, Ino, Kind, Name, NewNode};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One in so many images is also crashed while it recovers and goes on.
const CONTINUED_ONE_IN: u128 = 32;
/// Most states of one recovery.
const CONTINUED_STATES_MAX: usize = 48;
/// The clock of what goes on after a recovery.
const LATER_STEP: u64 = 900_000;
/// Most violations that one workload reports.
const VIOLATIONS_MAX: usize = 3;

/// A state by name: `small:rename+fsync@17:subset:5`, and with `>3:all` behind it, the state that a
/// second crash left, while that one recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateId {
    /// What had run.
    pub workload: Workload,
    /// What the crash left of it.
    pub state: CrashState,
    /// What the crash of the recovery left.
    pub second: Option<CrashState>,
}

/// Something that a crash must not leave.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The state, or the workload if that failed before any crash.
    pub id: String,
    /// What is wrong.
    pub reason: String,
}

/// What is known of images, shared by all workers.
pub struct Explorer<'t> {
    target: &'t dyn Target,
    base: Arc<[u8]>,
    /// What each image recovered to; nothing if it is a violation that has been reported.
    known: Mutex<HashMap<u128, Option<Digest>>>,
    states: AtomicU64,
    continued: AtomicU64,
    held: AtomicU64,
}

/// What one crash is compared with.
struct Scene<'a> {
    base: &'a Arc<[u8]>,
    images: Images<'a>,
    judge: &'a dyn Fn(usize, Digest) -> Result<(), String>,
}

impl<'t> Explorer<'t> {
    /// Makes the device that all workloads start from.
    ///
    /// # Errors
    /// If that cannot be made.
    pub fn new(target: &'t dyn Target) -> Result<Explorer<'t>, String> {
        Ok(Explorer {
            base: preset(target)?,
            target,
            known: Mutex::default(),
            states: AtomicU64::new(0),
            continued: AtomicU64::new(0),
            held: AtomicU64::new(0),
        })
    }

    /// One that knows nothing of any image yet.
    pub(super) fn anew(&self) -> Explorer<'t> {
        Explorer {
            target: self.target,
            base: Arc::clone(&self.base),
            known: Mutex::default(),
            states: AtomicU64::new(0),
            continued: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// How many images were mounted, no two of them equal.
    pub fn distinct(&self) -> u64 {
        self.known.lock().len() as u64
    }

    /// How many states were compared, equal images included.
    pub fn compared(&self) -> u64 {
        self.states.load(Ordering::Relaxed)
    }

    /// How many recoveries were crashed in turn.
    pub fn continued(&self) -> u64 {
        self.continued.load(Ordering::Relaxed)
    }

    /// How many commits, frames and administrative operations stood still while others went on.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Runs a workload.
    ///
    /// # Errors
    /// If it fails or differs from the model without any crash.
    pub fn record(&self, workload: &Workload, keep_models: bool) -> Result<Recording, String> {
        guarded(|| Recording::new(self.target, &self.base, workload, keep_models))
    }

    /// Goes through the states of a workload; returns the first violations.
    pub fn explore(&self, workload: &Workload, bounds: &Bounds, seed: u64) -> Vec<Violation> {
        let recording = match self.record(workload, false) {
            Ok(recording) => recording,
            Err(reason) => return vec![Violation { id: workload.to_string(), reason }],
        };
        self.held.fetch_add(recording.held, Ordering::Relaxed);
        let judge = |cut, found| recording.judge(cut, found);
        let scene = Scene::new(&self.base, Arc::default(), &recording.trace, &judge);
        let mut violations = Vec::new();
        for state in states(&recording.trace, bounds, seed) {
            if violations.len() >= VIOLATIONS_MAX {
                break;
            }
            let first = scene.image(state);
            let digest = first.digest();
            let id = StateId { workload: workload.clone(), state, second: None };
            match self.examine(&scene, state, first) {
                Err(reason) => violations.push(Violation { id: id.to_string(), reason }),
                Ok(Some(found)) if digest.is_multiple_of(CONTINUED_ONE_IN) => {
                    violations.extend(self.continued_states(&scene, &id, found));
                }
                Ok(_) => (),
            }
        }
        violations
    }

    /// Mounts an image unless an equal one was mounted before. Returns what a new one holds.
    fn examine(
        &self,
        scene: &Scene<'_>,
        state: CrashState,
        image: OverlayDevice,
    ) -> Result<Option<Digest>, String> {
        self.states.fetch_add(1, Ordering::Relaxed);
        let digest = image.digest();
        let known = self.known.lock().get(&digest).copied();
        if let Some(known) = known {
            return known.map_or(Ok(()), |found| (scene.judge)(state.cut, found)).map(|()| None);
        }
        let found = guarded(|| self.recover(Arc::new(image), digest));
        self.known.lock().insert(digest, found.as_ref().ok().copied());
        let found = found?;
        (scene.judge)(state.cut, found).map(|()| Some(found))
    }

    /// Verifies, mounts and reads an image.
    fn recover(&self, device: Arc<OverlayDevice>, digest: u128) -> Result<Digest, String> {
        let verify = |when: &str, content| {
            let verified = self.target.verify(&*device, content);
            verified.map_err(|reason| format!("{when} the mount, {reason}"))
        };
        verify("before", digest.is_multiple_of(8))?;
        let read = |when: &str| {
            let clock = Arc::new(HistoryClock::default());
            let mounted = self.target.mount(Arc::clone(&device) as Arc<dyn Device>, clock);
            let mounted = mounted.map_err(|reason| format!("{when}: {reason}"))?;
            pool_digest(&*mounted).map_err(|reason| format!("{when}: {reason}"))
        };
        let found = read("mount")?;
        if device.write_count() > 0 {
            verify("after", digest.is_multiple_of(8))?;
            if digest.is_multiple_of(4) && read("second mount")? != found {
                return Err("a second mount shows another state than the first".to_owned());
            }
        }
        Ok(found)
    }

    /// Crashes the recovery of a state, and what goes on after it.
    fn continued_states(&self, scene: &Scene<'_>, id: &StateId, found: Digest) -> Vec<Violation> {
        self.continued.fetch_add(1, Ordering::Relaxed);
        let layer = Arc::new(scene.image(id.state).freeze());
        let (trace, later) = match guarded(|| self.go_on(&layer)) {
            Ok(Some(recorded)) => recorded,
            Ok(None) => return Vec::new(),
            Err(reason) => {
                return vec![Violation { id: id.to_string(), reason: format!("then {reason}") }];
            }
        };
        let judge = |cut, digest| judge_second(&trace, (found, later), cut, digest);
        let second = Scene::new(scene.base, layer, &trace, &judge);
        let bounds = Bounds { subset_writes_max: 4, seeds: 8, states_max: CONTINUED_STATES_MAX };
        let mut violations = Vec::new();
        for state in states(&trace, &bounds, 1) {
            if let Err(reason) = self.examine(&second, state, second.image(state)) {
                let id = StateId { second: Some(state), ..id.clone() };
                violations.push(Violation { id: id.to_string(), reason });
                if violations.len() >= VIOLATIONS_MAX {
                    break;
                }
            }
        }
        violations
    }

    /// Mounts an image, creates a file, and makes it durable. Returns what that did to the device,
    /// and what the pool holds then; nothing if there is no space for it.
    fn go_on(&self, layer: &Arc<Layer>) -> Result<Option<(Trace, Digest)>, String> {
        let overlay = Arc::new(OverlayDevice::new(Arc::clone(&self.base), Arc::clone(layer)));
        let device = Arc::new(RecordingDevice::over(
            Arc::clone(&overlay) as Arc<dyn Device>,
            Arc::clone(&self.base),
        ));
        let clock = Arc::new(HistoryClock::default());
        clock.set(LATER_STEP);
        let mounted = self.target.mount(Arc::clone(&device) as Arc<dyn Device>, clock)?;
        let files = mounted.open(ROOT)?;
        device.mark(0);
        match create_file(&*files) {
            Err(Error::NoSpace) => return Ok(None),
            Err(Error::Exists) => return Ok(None),
            created => created.map_err(|error| format!("nothing can be created: {error}"))?,
        }
        files.sync_all().map_err(|error| format!("nothing can be made durable: {error}"))?;
        device.mark(1);
        drop(files);
        let later = pool_digest(&*mounted)?;
        mounted.commit()?;
        drop(mounted);
        self.target.verify(&*overlay, true)?;
        Ok(Some((device.trace(), later)))
    }

    /// Looks at one state by its name, in full.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn replay(&self, id: &StateId) -> Result<String, String> {
        let recording = self.record(&id.workload, true)?;
        if id.state.cut > recording.trace.events().len() {
            return Err(format!(
                "the workload leaves only {} events",
                recording.trace.events().len()
            ));
        }
        let judge = |cut, found| recording.judge(cut, found);
        let scene = Scene::new(&self.base, Arc::default(), &recording.trace, &judge);
        let story = story(&recording, id);
        if let Some(second) = id.second {
            return self.replay_second(&scene, id, second).map(|()| story);
        }
        let found = guarded(|| self.recover(Arc::new(scene.image(id.state)), 0))
            .map_err(|reason| format!("{reason}\n{story}"))?;
        let Err(reason) = recording.judge(id.state.cut, found) else {
            // What is wrong may show only when somebody goes on from it.
            let layer = Arc::new(scene.image(id.state).freeze());
            let went_on = guarded(|| self.go_on(&layer));
            return went_on.map_err(|reason| format!("then {reason}\n{story}")).map(|_| story);
        };
        let clock = Arc::new(HistoryClock::default());
        let mounted = self.target.mount(Arc::new(scene.image(id.state)), clock)?;
        let differences = recording.differences(id.state.cut, &*mounted);
        Err(format!("{reason}{differences}\n{story}"))
    }

    fn replay_second(
        &self,
        scene: &Scene<'_>,
        id: &StateId,
        second: CrashState,
    ) -> Result<(), String> {
        let found = guarded(|| self.recover(Arc::new(scene.image(id.state)), 1))?;
        let layer = Arc::new(scene.image(id.state).freeze());
        let Some((trace, later)) = guarded(|| self.go_on(&layer))? else { return Ok(()) };
        if second.cut > trace.events().len() {
            return Err(format!("the recovery leaves only {} events", trace.events().len()));
        }
        let judge = |cut, digest| judge_second(&trace, (found, later), cut, digest);
        let inner = Scene::new(scene.base, layer, &trace, &judge);
        let digest = guarded(|| self.recover(Arc::new(inner.image(second)), 0))?;
        judge_second(&trace, (found, later), second.cut, digest)
    }
}

/// What the recovery of `before`, and the creation of a file after it, may leave when it is cut.
fn judge_second(
    trace: &Trace,
    (before, later): (Digest, Digest),
    cut: usize,
    found: Digest,
) -> Result<(), String> {
    let allowed: &[Digest] = match trace.last_mark(cut) {
        None => &[before],
        Some(0) => &[before, later],
        Some(_) => &[later],
    };
    if allowed.contains(&found) {
        return Ok(());
    }
    let which = match found {
        found if found == before => "the state before it",
        found if found == later => "the state after it",
        _ => "neither the state before it nor the one after it",
    };
    Err(format!("a crash of the recovery, or of what went on after it, left {which}"))
}

fn create_file(files: &dyn FileSystem) -> marram_vfs::Result<()> {
    let name = Name::new(b"after").expect("a valid name");
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o600, device: 0 };
    let created = files.create(Caller { uid: 0, gid: 0 }, Ino::ROOT, name, node)?;
    files.forget(created.ino, 1);
    Ok(())
}

impl<'a> Scene<'a> {
    fn new(
        base: &'a Arc<[u8]>,
        lower: Arc<Layer>,
        trace: &'a Trace,
        judge: &'a dyn Fn(usize, Digest) -> Result<(), String>,
    ) -> Scene<'a> {
        Scene { base, images: Images::new(base, lower, trace), judge }
    }

    /// What a crash left.
    fn image(&self, state: CrashState) -> OverlayDevice {
        self.images.image(state)
    }
}

/// What ran, and what the device saw around the cut.
fn story(recording: &Recording, id: &StateId) -> String {
    let mut text = String::from("actions:");
    let mut count = 0;
    for action in id.workload.actions() {
        count += usize::from(!matches!(action, Action::Begin { .. } | Action::End(_)));
        text += &format!("\n  {count}: {action:?}");
    }
    text += &format!("\nallowed: {}\nevents:", recording.window(id.state.cut));
    let durable = recording.trace.durable_before(id.state.cut);
    for (index, event) in recording.trace.events().iter().enumerate().skip(durable) {
        if index == id.state.cut {
            text += "\n  --- power cut";
            break;
        }
        text += &match event {
            Event::Write { offset, bytes } => {
                format!("\n  {index}: write {} bytes at {offset}", bytes.len())
            }
            other => format!("\n  {index}: {other:?}"),
        };
    }
    text
}

/// Runs something that must not panic.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(format!("panic: {}", crate::run::panic_text(&*panic))))
}

impl fmt::Display for StateId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}@{}", self.workload, self.state)?;
        self.second.map_or(Ok(()), |second| write!(out, ">{second}"))
    }
}

impl FromStr for StateId {
    type Err = String;

    fn from_str(text: &str) -> Result<StateId, String> {
        let (workload, state) = text
            .split_once('@')
            .ok_or_else(|| format!("{text:?} is not a state like small:rename+fsync@17:all"))?;
        let (first, second) = match state.split_once('>') {
            None => (state, None),
            Some((first, second)) => (first, Some(second)),
        };
        let parse = |text: &str| text.parse().map_err(|error| format!("{error}"));
        Ok(StateId {
            workload: workload.parse()?,
            state: parse(first)?,
            second: second.map(parse).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::StateId;

    #[test]
    fn a_state_is_read_from_its_name() {
        for text in ["small:rename+fsync@17:subset:5", "random:1:9@3:all>4:torn:1:512:2"] {
            assert_eq!(text.parse::<StateId>().unwrap().to_string(), text);
        }
        for text in ["small:rename", "small:rename@", "small:rename@1:all>"] {
            assert!(text.parse::<StateId>().is_err(), "{text}");
        }
    }
}
