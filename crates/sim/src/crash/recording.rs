//! A workload runs: on the real file system, whose device remembers everything, and on the model.

use super::action::{Action, Change, Hand};
use super::digest::{Digest, tree_digest};
use super::pause::PausingDevice;
use super::table::PRESET;
use super::target::{Mounted, Target};
use super::workload::Workload;
use crate::clock::HistoryClock;
use crate::device::{Event, OverlayDevice, RecordingDevice, Trace};
use crate::pair::{Outcome, Pair};
use marram_device::Device;
use marram_model::Model;
use marram_vfs::{Clock, Error, FileSystem, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The root dataset, its snapshot, and the clone of that.
pub(crate) const ROOT: &str = "root";
const SNAPSHOT: &str = "root@s";
const CLONE: &str = "c";
/// The clock of a workload starts here; that of the preset at 1.
const START_STEP: u64 = 1000;

/// What a workload did.
pub struct Recording {
    /// What it did to the device.
    pub trace: Trace,
    /// The digest of the whole pool after each number of actions.
    digests: Vec<Digest>,
    /// For each number of events: how many actions were acknowledged as durable, and how many had
    /// begun.
    windows: Vec<(usize, usize)>,
    /// The models after each number of actions, if they were asked for.
    models: Vec<BTreeMap<String, Model>>,
}

/// A device with the preset on it, from which all workloads start.
///
/// # Errors
/// If the target cannot be made, or behaves differently from the model.
pub(crate) fn preset(target: &dyn Target) -> Result<Arc<[u8]>, String> {
    let empty = target.make()?;
    let device = Arc::new(OverlayDevice::new(Arc::clone(&empty), Arc::default()));
    let clock = Arc::new(HistoryClock::default());
    let mounted = target.mount(Arc::clone(&device) as Arc<dyn Device>, Arc::clone(&clock))?;
    let mut run = Run::new(mounted, Model::new(Arc::clone(&clock) as Arc<dyn Clock>))?;
    for (index, action) in PRESET.iter().enumerate() {
        clock.set(1 + index as u64);
        run.act(action)?;
    }
    run.act(&Action::Commit)?;
    drop(run);
    let mut image = vec![0; empty.len()];
    device.read(0, &mut image).map_err(|error| error.to_string())?;
    Ok(image.into())
}

/// The model with the preset in it.
fn preset_model(clock: &Arc<HistoryClock>) -> Result<Model, String> {
    clock.set(0);
    let model = Model::new(Arc::clone(clock) as Arc<dyn Clock>);
    let mut held = None;
    for (index, action) in PRESET.iter().enumerate() {
        clock.set(1 + index as u64);
        if let Action::Root(change) = action {
            let mut hand = Hand { files: &model, held: &mut held };
            hand.change(change).map_err(|error| format!("{action:?}: {error}"))?;
        }
    }
    Ok(model)
}

impl Recording {
    /// Runs a workload on a device that begins as `base`. With `keep_models`, the models are kept
    /// for [`Recording::differences`].
    ///
    /// # Errors
    /// If the file system fails or differs from the model.
    pub fn new(
        target: &dyn Target,
        base: &Arc<[u8]>,
        workload: &Workload,
        keep_models: bool,
    ) -> Result<Recording, String> {
        let clock = Arc::new(HistoryClock::default());
        let model = preset_model(&clock)?;
        let overlay = Arc::new(OverlayDevice::new(Arc::clone(base), Arc::default()));
        let device = Arc::new(RecordingDevice::over(overlay, Arc::clone(base)));
        let pausing = Arc::new(PausingDevice::new(Arc::clone(&device) as Arc<dyn Device>));
        clock.set(START_STEP);
        let mounted = target.mount(Arc::clone(&pausing) as Arc<dyn Device>, Arc::clone(&clock))?;
        let run = Run::new(mounted, model)?;
        let mut recorder = Recorder {
            digests: vec![run.digest()?],
            models: if keep_models { vec![run.models()] } else { Vec::new() },
            run,
            clock,
            device,
            pausing,
        };
        for action in workload.actions() {
            recorder.perform(&action)?;
        }
        let Recorder { run, digests, models, device, .. } = recorder;
        drop(run);
        let trace = device.trace();
        Ok(Recording { windows: windows(&trace), trace, digests, models })
    }

    /// How many actions may have survived a crash after `cut` events: at least, and at most.
    pub fn window(&self, cut: usize) -> (usize, usize) {
        self.windows[cut]
    }

    /// Compares what a crash after `cut` events left with what it may leave.
    ///
    /// # Errors
    /// Says what it is instead.
    pub fn judge(&self, cut: usize, found: Digest) -> Result<(), String> {
        let (least, most) = self.window(cut);
        if self.digests[least..=most].contains(&found) {
            return Ok(());
        }
        let window = format!("{least} to {most} of {} actions", self.digests.len() - 1);
        match self.digests.iter().position(|digest| *digest == found) {
            Some(after) if after < least => Err(format!(
                "what was acknowledged as durable is lost: the state is that after {after} \
                 actions, {window} must be there"
            )),
            Some(after) => Err(format!(
                "the state is that after {after} actions, which had not begun: {window} may \
                 be there"
            )),
            None => Err(format!("the state is that of no moment: {window} may be there")),
        }
    }

    /// In words, how a mounted file system differs from each state that it may be in.
    pub fn differences(&self, cut: usize, mounted: &dyn Mounted) -> String {
        let (least, most) = self.window(cut);
        let mut text = String::new();
        for after in least..=most {
            let Some(models) = self.models.get(after) else { continue };
            let difference = compare(models, mounted);
            text += &format!("\n  after {after} actions: {difference}");
        }
        text
    }
}

fn compare(models: &BTreeMap<String, Model>, mounted: &dyn Mounted) -> String {
    let names: Vec<&String> = models.keys().collect();
    match mounted.sources() {
        Err(reason) => return reason,
        Ok(found) if found.iter().ne(names.iter().copied()) => {
            return format!("there are {found:?}, not {names:?}");
        }
        Ok(_) => (),
    }
    for (name, model) in models {
        let compared = mounted.open(name).and_then(|files| {
            crate::compare_trees(&mut crate::InodeMap::default(), &*files, model)
        });
        if let Err(reason) = compared {
            return format!("{name}: {reason}");
        }
    }
    "no difference".to_owned()
}

/// For each number of events, how many actions are promised and how many have begun.
fn windows(trace: &Trace) -> Vec<(usize, usize)> {
    let mut window = (0, 0);
    let mut windows = vec![window];
    for event in trace.events() {
        if let Event::Mark(mark) = event {
            let action = (*mark / 2) as usize + 1;
            window = match mark % 2 {
                0 => (window.0, action),
                _ => (window.0.max(action), window.1),
            };
        }
        windows.push(window);
    }
    windows
}

/// The digest of all datasets and snapshots.
///
/// # Errors
/// Says what cannot be read.
pub(crate) fn pool_digest(mounted: &dyn Mounted) -> Result<Digest, String> {
    let mut sum = 0;
    for name in mounted.sources()? {
        let files = mounted.open(&name)?;
        let tree = tree_digest(&*files).map_err(|reason| format!("{name}: {reason}"))?;
        sum = add_source(sum, &name, tree);
    }
    Ok(sum)
}

fn add_source(sum: Digest, name: &str, tree: Digest) -> Digest {
    let name = xxh3_128_with_seed(name.as_bytes(), 1);
    sum.wrapping_add(xxh3_128_with_seed(&(name ^ tree).to_le_bytes(), 2))
}

/// Takes down what a workload does.
struct Recorder {
    run: Run,
    clock: Arc<HistoryClock>,
    device: Arc<RecordingDevice>,
    pausing: Arc<PausingDevice>,
    digests: Vec<Digest>,
    models: Vec<BTreeMap<String, Model>>,
}

impl Recorder {
    /// Does an action, with the marks that belong to it.
    fn perform(&mut self, action: &Action) -> Result<(), String> {
        let done_before = self.digests.len() as u64 - 1;
        if let Action::Busy { at, inner } = action {
            self.commit_around(*at, inner)?;
            if done_before > 0 {
                self.device.mark(2 * (done_before - 1) + 1);
            }
            return Ok(());
        }
        self.clock.set(START_STEP + 1 + done_before);
        self.device.mark(2 * done_before);
        let done = self
            .run
            .act(action)
            .map_err(|reason| format!("action {} ({action:?}): {reason}", done_before + 1))?;
        if done && action.promises() {
            self.device.mark(2 * done_before + 1);
        }
        self.digests.push(self.run.digest()?);
        if !self.models.is_empty() {
            self.models.push(self.run.models());
        }
        Ok(())
    }

    /// Commits, and does other actions while the commit stands before its write or flush number
    /// `at`.
    fn commit_around(&mut self, at: u64, inner: &[Action]) -> Result<(), String> {
        let mounted = Arc::clone(&self.run.mounted);
        let pausing = Arc::clone(&self.pausing);
        let turn = pausing.pause_before(at);
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| {
                let committed = mounted.commit();
                pausing.cancel();
                committed
            });
            turn.wait();
            let done = inner.iter().try_for_each(|action| self.perform(action));
            turn.end();
            let committed = commit.join().map_err(|panic| crate::run::panic_text(&*panic));
            done.and(committed.unwrap_or_else(|panic| Err(format!("panic: {panic}"))))
        })
    }
}

/// A workload under way.
struct Run {
    files: Arc<dyn FileSystem>,
    pair: Pair,
    /// Snapshot and clone as the model has them.
    kept: Option<Model>,
    clone: Option<(Model, Arc<dyn FileSystem>)>,
    /// The inode that is held open: in the real file system, and in the model.
    held: (Option<Ino>, Option<Ino>),
    held_in_clone: (Option<Ino>, Option<Ino>),
    mounted: Arc<dyn Mounted>,
}

impl Run {
    fn new(mounted: Box<dyn Mounted>, model: Model) -> Result<Run, String> {
        let files = mounted.open(ROOT)?;
        Ok(Run {
            pair: Pair::new(Arc::clone(&files), model),
            files,
            kept: None,
            clone: None,
            held: (None, None),
            held_in_clone: (None, None),
            mounted: mounted.into(),
        })
    }

    /// Does an action on both; returns whether both did it.
    fn act(&mut self, action: &Action) -> Result<bool, String> {
        match action {
            Action::Root(change) => both(
                (&*self.files, &mut self.held.0),
                (self.pair.model(), &mut self.held.1),
                change,
            ),
            Action::InClone(change) => {
                let Some((model, files)) = &self.clone else { return Ok(false) };
                let held = &mut self.held_in_clone;
                both((&**files, &mut held.0), (model, &mut held.1), change)
            }
            Action::Drawn(operation) => {
                self.pair.apply(operation).map(|outcome| outcome == Outcome::Done)
            }
            Action::Commit => self.mounted.commit().map(|()| true),
            _ => self.administer(action),
        }
    }

    fn administer(&mut self, action: &Action) -> Result<bool, String> {
        let (kept, cloned) = (self.kept.is_some(), self.clone.is_some());
        match action {
            Action::Snapshot => {
                let done = agree(self.mounted.snapshot("s"), !kept)?;
                if done {
                    self.kept = Some(self.pair.model().snapshot());
                }
                Ok(done)
            }
            Action::Clone => {
                let done = agree(self.mounted.clone_snapshot("s", CLONE), kept && !cloned)?;
                if let Some(kept) = self.kept.as_ref().filter(|_| done) {
                    self.clone = Some((kept.fork(), self.mounted.open(CLONE)?));
                }
                Ok(done)
            }
            Action::DestroySnapshot => {
                let done = agree(self.mounted.destroy(SNAPSHOT), kept && !cloned)?;
                if done {
                    self.kept = None;
                }
                Ok(done)
            }
            _ => {
                self.clone = None;
                self.held_in_clone = (None, None);
                agree(self.mounted.destroy(CLONE), cloned)
            }
        }
    }

    /// All sources as the model has them.
    fn models(&self) -> BTreeMap<String, Model> {
        let live = (ROOT, Some(self.pair.model()));
        let kept = (SNAPSHOT, self.kept.as_ref());
        let clone = (CLONE, self.clone.as_ref().map(|(model, _)| model));
        let sources = [live, kept, clone].into_iter();
        sources.filter_map(|(name, model)| Some((name.to_owned(), model?.snapshot()))).collect()
    }

    /// The digest that the pool should have.
    fn digest(&self) -> Result<Digest, String> {
        let mut sum = 0;
        for (name, model) in self.models() {
            sum = add_source(sum, &name, tree_digest(&model)?);
        }
        Ok(sum)
    }
}

/// A file system and what is held open in it.
type At<'a> = (&'a dyn FileSystem, &'a mut Option<Ino>);

fn both(real: At<'_>, model: At<'_>, change: &Change) -> Result<bool, String> {
    let done = Hand { files: real.0, held: real.1 }.change(change);
    if matches!(done, Err(Error::NoSpace)) {
        return Ok(false);
    }
    let expected = Hand { files: model.0, held: model.1 }.change(change);
    match (done, expected) {
        (Ok(()), Ok(())) => Ok(true),
        (Err(a), Err(b)) if std::mem::discriminant(&a) == std::mem::discriminant(&b) => Ok(false),
        (done, expected) => Err(format!("gave {done:?}; the model gives {expected:?}")),
    }
}

/// Whether it was done, as it should have been or not.
fn agree(done: Result<(), String>, expected: bool) -> Result<bool, String> {
    match done {
        Ok(()) if !expected => Err("was done; the model refuses it".to_owned()),
        Err(reason) if expected => Err(reason),
        _ => Ok(expected),
    }
}
