//! A workload runs: on the real file system, whose device remembers all, and on the model.
//!
//! **Moments.** After each action the pool has been at one more moment: what the model holds then.
//! A crash may leave a moment from when its action had begun until a later one was acknowledged
//! as durable. An administrative operation that is under way while others go on doubles them:
//! the same moments without it, until it is acknowledged, and with it. What a snapshot keeps, or a
//! clone begins with, is the state at the moment when the operation began.

use super::action::{Action, Hand, Turn};
use super::digest::Digest;
use super::explorer::guarded;
use super::pause::{Pause, PausingDevice, Stop, stop_before};
use super::table::PRESET;
use super::target::{Mounted, Target};
use super::twin::{Sources, Twin, model_digest};
use super::workload::Workload;
use crate::clock::HistoryClock;
use crate::device::{Event, OverlayDevice, RecordingDevice, Trace};
use marram_device::Device;
use marram_model::Model;
use marram_vfs::Clock;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

/// The clock of a workload starts here; that of the preset at 1.
const START_STEP: u64 = 1000;
/// Most syncs that are under way at once.
const SYNCS_MAX: usize = 3;
/// How long a sync that stands in line may take to be acknowledged too early.
const LINE_TIME: Duration = Duration::from_millis(2);

/// A state that the pool was in.
struct Moment {
    digest: Digest,
    /// After how many actions.
    actions: usize,
    /// With how many of the administrative operations that others went on beside.
    administrations: usize,
    /// The mark from which on a crash may leave it; of the first moment none.
    from: Option<u64>,
    /// The mark from which on a crash must leave a later one.
    until: Option<u64>,
    /// What the model holds, if that was asked for.
    sources: Option<Sources>,
}

/// What a workload did.
pub struct Recording {
    /// What it did to the device.
    pub trace: Trace,
    moments: Vec<Moment>,
    /// The places of marks in the trace.
    marks: Vec<usize>,
    /// How many of the actions that were begun stood still while others went on.
    pub held: u64,
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
    let mut twin = Twin::new(mounted.into(), Model::new(Arc::clone(&clock) as Arc<dyn Clock>))?;
    for (index, action) in PRESET.iter().enumerate() {
        clock.set(1 + index as u64);
        twin.act(action)?;
    }
    twin.act(&Action::Commit)?;
    drop(twin);
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
        let mounted: Arc<dyn Mounted> = mounted.into();
        let twin = Twin::new(Arc::clone(&mounted), model)?;
        let (moments, held) = std::thread::scope(|scope| {
            let mut recorder = Recorder {
                twin,
                mounted,
                clock,
                device: Arc::clone(&device),
                pausing,
                moments: Vec::new(),
                keep_models,
                actions: 0,
                administrations: 0,
                marks: 0,
                scope,
                under_way: Vec::new(),
                held: 0,
            };
            recorder.perform_all(workload)?;
            Ok::<_, String>((recorder.moments, recorder.held))
        })?;
        let trace = device.trace();
        Ok(Recording { marks: places_of_marks(&trace), trace, moments, held })
    }

    /// The moments that a crash after `cut` events may leave.
    fn allowed(&self, cut: usize) -> impl Iterator<Item = &Moment> {
        self.moments.iter().filter(move |moment| {
            moment.from.is_none_or(|mark| self.is_before(mark, cut))
                && !moment.until.is_some_and(|mark| self.is_before(mark, cut))
        })
    }

    fn is_before(&self, mark: u64, cut: usize) -> bool {
        self.marks[mark as usize] < cut
    }

    /// In words, which moments a crash after `cut` events may leave.
    pub fn window(&self, cut: usize) -> String {
        let allowed = |number: fn(&Moment) -> usize| {
            let numbers = || self.allowed(cut).map(number);
            (numbers().min().unwrap_or_default(), numbers().max().unwrap_or_default())
        };
        let (least, most) = allowed(|moment| moment.actions);
        let beside = match allowed(|moment| moment.administrations) {
            (without, with) if without < with => {
                ", with and without the administrative operation that is under way"
            }
            _ => "",
        };
        format!("after {least} to {most} actions{beside}")
    }

    /// Compares what a crash after `cut` events left with what it may leave.
    ///
    /// # Errors
    /// Says what it is instead.
    pub fn judge(&self, cut: usize, found: Digest) -> Result<(), String> {
        if self.allowed(cut).any(|moment| moment.digest == found) {
            return Ok(());
        }
        let window = self.window(cut);
        match self.moments.iter().find(|moment| moment.digest == found) {
            Some(Moment { actions, until: Some(mark), .. }) if self.is_before(*mark, cut) => {
                Err(format!(
                    "what was acknowledged as durable is lost: the state is that after {actions} \
                     actions; it must be one {window}"
                ))
            }
            Some(Moment { actions, .. }) => Err(format!(
                "the state is that after {actions} actions, which had not begun; it must be one \
                 {window}"
            )),
            None => Err(format!("the state is that of no moment; it must be one {window}")),
        }
    }

    /// In words, how a mounted file system differs from each state that it may be in.
    pub fn differences(&self, cut: usize, mounted: &dyn Mounted) -> String {
        let mut text = String::new();
        for moment in self.allowed(cut) {
            let Some(sources) = &moment.sources else { continue };
            let difference = compare(sources, mounted);
            text += &format!("\n  after {} actions: {difference}", moment.actions);
        }
        text
    }
}

fn compare(sources: &Sources, mounted: &dyn Mounted) -> String {
    let names: Vec<&str> = sources.keys().copied().collect();
    match mounted.sources() {
        Err(reason) => return reason,
        Ok(found) if found != names => {
            return format!("there are {found:?}, not {names:?}");
        }
        Ok(_) => (),
    }
    for (name, model) in sources {
        let compared = mounted.open(name).and_then(|files| {
            crate::compare_trees(&mut crate::InodeMap::default(), &*files, model)
        });
        if let Err(reason) = compared {
            return format!("{name}: {reason}");
        }
    }
    "no difference".to_owned()
}

fn places_of_marks(trace: &Trace) -> Vec<usize> {
    let events = trace.events().iter().enumerate();
    events.filter(|(_, event)| matches!(event, Event::Mark(_))).map(|(place, _)| place).collect()
}

/// What another thread does.
struct UnderWay<'scope> {
    action: Action,
    turn: Turn,
    stop: Option<Stop>,
    thread: ScopedJoinHandle<'scope, Result<(), String>>,
    /// How many actions and administrative operations came before it.
    before: (usize, usize),
}

/// Takes down what a workload does.
struct Recorder<'scope, 'env> {
    twin: Twin,
    mounted: Arc<dyn Mounted>,
    clock: Arc<HistoryClock>,
    device: Arc<RecordingDevice>,
    pausing: Arc<PausingDevice>,
    moments: Vec<Moment>,
    keep_models: bool,
    /// Done so far.
    actions: usize,
    administrations: usize,
    /// Left in the trace so far.
    marks: u64,
    scope: &'scope Scope<'scope, 'env>,
    under_way: Vec<UnderWay<'scope>>,
    held: u64,
}

impl<'scope> Recorder<'scope, '_> {
    fn perform_all(&mut self, workload: &Workload) -> Result<(), String> {
        self.note_moment(None)?;
        for action in workload.actions() {
            let number = self.actions + 1;
            let performed = self.perform(&action);
            performed.map_err(|reason| format!("action {number} ({action:?}): {reason}"))?;
        }
        [Turn::Commit, Turn::Frame].into_iter().try_for_each(|turn| self.end(turn))
    }

    /// Does an action, with the marks that belong to it.
    fn perform(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Begin { action, at } => self.begin(action, *at),
            Action::End(turn) => self.end(*turn),
            _ => self.act(action),
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), String> {
        let waits = matches!(action, Action::Transact(_)) && self.is_administering();
        let turn = action.turn().or(waits.then_some(Turn::Commit));
        turn.map_or(Ok(()), |turn| self.end(turn))?;
        self.clock.set(START_STEP + 1 + self.actions as u64);
        let begun = self.mark();
        let done = self.twin.act(action)?;
        self.actions += 1;
        self.note_moment(Some(begun))?;
        if done && action.promises() {
            self.promise((self.actions, self.administrations));
        }
        Ok(())
    }

    /// Whether an operation is under way in which no transaction begins or ends.
    fn is_administering(&self) -> bool {
        let is_one = |under_way: &UnderWay<'_>| matches!(under_way.action, Action::Administer(_));
        self.under_way.iter().any(is_one)
    }

    /// Begins an action in a thread of its own, which waits before its write or flush number `at`.
    fn begin(&mut self, action: &Action, at: u64) -> Result<(), String> {
        let turn = action.turn().ok_or("it cannot be begun")?;
        // It would settle forks in memory by a commit of its own: what others did beside that would
        // be in its moment or not, as it happens.
        if matches!(action, Action::Administer(_)) && self.twin.has_had_transactions() {
            return self.act(action);
        }
        let before_it = self.under_way.iter().filter(|under_way| under_way.turn == turn).count();
        if turn == Turn::Frame && (1..SYNCS_MAX).contains(&before_it) {
            return self.stand_in_line(action);
        }
        self.end(turn)?;
        let begun = self.mark();
        let (pause, stop) = stop_before(at);
        let mut begun_action = self.spawn(action, Some(pause))?;
        self.held += u64::from(stop.wait());
        begun_action.stop = Some(stop);
        self.under_way.push(begun_action);
        self.note_moment(Some(begun))
    }

    /// A sync beside a frame that is under way. It waits for its own frame: if it is acknowledged
    /// before the other one has gone on, what it promises must be durable already.
    fn stand_in_line(&mut self, action: &Action) -> Result<(), String> {
        let waiting = self.spawn(action, None)?;
        std::thread::sleep(LINE_TIME);
        if waiting.thread.is_finished() {
            return self.settle(vec![waiting]);
        }
        self.under_way.push(waiting);
        Ok(())
    }

    fn spawn(&mut self, action: &Action, pause: Option<Pause>) -> Result<UnderWay<'scope>, String> {
        let before = (self.actions, self.administrations);
        let work = self.twin.begin(action)?;
        let (mounted, pausing) = (Arc::clone(&self.mounted), Arc::clone(&self.pausing));
        let thread = self.scope.spawn(move || {
            mounted.enter_thread();
            pause.into_iter().for_each(|pause| pausing.arm(pause));
            let done = guarded(work);
            pausing.disarm();
            done
        });
        let (action, turn) = (action.clone(), action.turn().ok_or("it cannot be begun")?);
        Ok(UnderWay { action, turn, stop: None, thread, before })
    }

    /// Lets go on what is under way, and waits for it.
    fn end(&mut self, turn: Turn) -> Result<(), String> {
        let all = std::mem::take(&mut self.under_way);
        let (ending, going_on) = all.into_iter().partition(|under_way| under_way.turn == turn);
        self.under_way = going_on;
        self.settle(ending)
    }

    /// First all of them end, then they are acknowledged: where marks lie does not depend on which
    /// is faster.
    fn settle(&mut self, ending: Vec<UnderWay<'_>>) -> Result<(), String> {
        let mut ended = Vec::new();
        for UnderWay { action, stop, thread, before, .. } in ending {
            stop.into_iter().for_each(Stop::end);
            let done = thread.join().unwrap_or_else(|_| Err("its thread is lost".to_owned()));
            ended.push((action, before, done));
        }
        for (action, before, done) in ended {
            let done = self
                .twin
                .end(&action, done)
                .map_err(|reason| format!("{action:?}, which others went on beside: {reason}"))?;
            match action {
                _ if !done => {}
                Action::Administer(_) => {
                    self.administrations += 1;
                    self.promise((before.0, self.administrations));
                }
                _ => self.promise(before),
            }
        }
        Ok(())
    }

    fn mark(&mut self) -> u64 {
        self.device.mark(self.marks);
        self.marks += 1;
        self.marks - 1
    }

    /// The pool is at the moment after all actions so far, with and without what is coming.
    fn note_moment(&mut self, from: Option<u64>) -> Result<(), String> {
        let (now, coming) = self.twin.sources();
        for (more, sources) in std::iter::once(now).chain(coming).enumerate() {
            let administrations = self.administrations + more;
            let is_known = |moment: &Moment| {
                (moment.actions, moment.administrations) == (self.actions, administrations)
            };
            if self.moments.iter().rev().take(2).any(is_known) {
                continue;
            }
            self.moments.push(Moment {
                digest: model_digest(&sources)?,
                actions: self.actions,
                administrations,
                from,
                until: None,
                sources: self.keep_models.then_some(sources),
            });
        }
        Ok(())
    }

    /// It is acknowledged that so many actions and administrative operations are durable.
    fn promise(&mut self, (actions, administrations): (usize, usize)) {
        let mark = self.mark();
        for moment in &mut self.moments {
            let is_older = moment.actions < actions || moment.administrations < administrations;
            if is_older && moment.until.is_none() {
                moment.until = Some(mark);
            }
        }
    }
}
