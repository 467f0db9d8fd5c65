//! Histories: operations with remounts, commits, snapshots, clones, forks, merges, rollbacks and
//! diffs between them, all of it decided by one seed.
//!
//! A history is data: the list of its steps follows from seed and length alone, and any part of
//! the list is a history too. That is what makes shrinking and replaying possible.

use crate::clock::HistoryClock;
use crate::compare::{Agreement, InodeMap, compare_trees};
use crate::forked::{Forked, file_change};
use crate::generate::Generator;
use crate::home::{Answer, Home, Moment};
use crate::merging::{Brought, decided, judged};
use crate::operation::Operation;
use crate::pair::{Outcome, Pair, compare_snapshot};
use crate::random::Random;
use marram_model::{Change, Decisions, Difference, Model};
use marram_vfs::Error;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

/// Most snapshots at a time.
const SNAPSHOTS_MAX: usize = 5;
/// Most states to compare: kept ones, the live one, and that of the fork.
const STATES_MAX: u64 = SNAPSHOTS_MAX as u64 + 2;
/// How many operations a clone lives for.
const CLONE_OPERATIONS: usize = 40;

/// One step of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// An operation on both file systems.
    Operation(Operation),
    /// Unmount and mount again.
    Remount,
    /// Stop without a warning, and go on with what is durable.
    Crash,
    /// Make everything durable.
    Commit,
    /// Keep the present state.
    Snapshot,
    /// Compare a kept state with what the model kept.
    CheckSnapshot {
        /// Which one, counted around.
        which: usize,
    },
    /// Destroy a kept state.
    DestroySnapshot {
        /// Which one, counted around.
        which: usize,
    },
    /// Make a clone of a kept state, work on it, compare and destroy it.
    Clone {
        /// Which one, counted around.
        which: usize,
        /// Decides the work.
        seed: u64,
    },
    /// Let all go back to a kept state, and keep what it was.
    Rollback {
        /// Which state, counted around.
        which: usize,
    },
    /// Compare two of all states that there are: live, kept, of the fork.
    Diff {
        /// The first, counted around.
        before: usize,
        /// The second, counted around.
        after: usize,
    },
    /// Let a directory go back to what it was in a kept state.
    DirectoryBack {
        /// Which state, counted around.
        which: usize,
        /// Chooses the directory.
        seed: u64,
    },
    /// Work on the fork; if there is none, make one of the present state before.
    Fork {
        /// Decides the work.
        seed: u64,
    },
    /// Bring what the fork changed into the file system, if there is a fork.
    Merge {
        /// The fork is destroyed even if nothing is in the way.
        drops: bool,
        /// Decides conflicts, if they are decided.
        decides: Option<u64>,
    },
    /// Bring what the file system changed into the fork, if there is one.
    Update {
        /// Decides conflicts, if they are decided.
        decides: Option<u64>,
    },
    /// Change one file in the file system and in the fork, if there is one.
    Clash {
        /// Decides the file and the changes.
        seed: u64,
    },
    /// Compare the whole trees.
    Compare,
}

/// What the steps of a history are mostly about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// The file system, with a few of all that is done to datasets.
    #[default]
    Files,
    /// A fork that is merged and updated again and again.
    Branches,
}

/// The steps of a history, from its seed and length.
pub fn steps(theme: Theme, seed: u64, count: usize) -> Vec<Step> {
    let mut random = Random::new(seed ^ 0x5bd1_e995);
    let mut generator = Generator::new(seed);
    let (often, special): (u64, fn(&mut Random) -> Step) = match theme {
        Theme::Files => (random.pick(&[15, 50, 200]), special_step),
        Theme::Branches => (random.pick(&[2, 4, 10]), branch_step),
    };
    let draw = |_| {
        if random.once_in(often) { special(&mut random) } else { Step::Operation(generator.draw()) }
    };
    (0..count).map(draw).collect()
}

fn special_step(random: &mut Random) -> Step {
    let which = random.below(SNAPSHOTS_MAX as u64) as usize;
    match random.below(26) {
        0 => Step::Remount,
        1 => Step::Crash,
        2..7 => Step::Commit,
        7..10 => Step::Snapshot,
        10..12 => Step::CheckSnapshot { which },
        12 => Step::DestroySnapshot { which },
        13 => Step::Clone { which, seed: random.number() },
        14 | 15 => Step::DirectoryBack { which, seed: random.number() },
        16 | 17 => Step::Fork { seed: random.number() },
        18 | 19 => Step::Merge { drops: !random.once_in(3), decides: None },
        20 => Step::Rollback { which },
        21..24 => Step::Diff {
            before: random.below(STATES_MAX) as usize,
            after: random.below(STATES_MAX) as usize,
        },
        _ => Step::Compare,
    }
}

fn branch_step(random: &mut Random) -> Step {
    match random.below(32) {
        0..8 => Step::Fork { seed: random.number() },
        8..13 => Step::Merge { drops: random.once_in(12), decides: decides(random) },
        13..18 => Step::Update { decides: decides(random) },
        18 => Step::Commit,
        19 => Step::Crash,
        20..25 => Step::Clash { seed: random.number() },
        25 | 26 => Step::Snapshot,
        27 => Step::DirectoryBack {
            which: random.below(SNAPSHOTS_MAX as u64) as usize,
            seed: random.number(),
        },
        28 => Step::Rollback { which: random.below(SNAPSHOTS_MAX as u64) as usize },
        29 => Step::Diff {
            before: random.below(STATES_MAX) as usize,
            after: random.below(STATES_MAX) as usize,
        },
        _ => special_step(random),
    }
}

/// What decides conflicts, two times in three.
fn decides(random: &mut Random) -> Option<u64> {
    (!random.once_in(3)).then(|| random.number())
}

/// What a run has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Operations that both file systems did.
    pub done: u64,
    /// Operations that both refused.
    pub refused: u64,
    /// Operations that the real file system had no space for.
    pub without_space: u64,
    /// Remounts.
    pub remounts: u64,
    /// Crashes.
    pub crashes: u64,
    /// Commits.
    pub commits: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Clones.
    pub clones: u64,
    /// Ways back of all.
    pub rollbacks: u64,
    /// Pairs of states that were compared.
    pub diffs: u64,
    /// Differences that were found.
    pub differences: u64,
    /// Directories that went back.
    pub directories_back: u64,
    /// Forks.
    pub forks: u64,
    /// Merges that were done.
    pub merges: u64,
    /// Updates of forks that were done.
    pub updates: u64,
    /// Merges and updates that both refused for conflicts, before any was decided.
    pub conflicts: u64,
    /// Files whose conflicts were decided by their paths, in merges and updates that were done.
    pub decisions: u64,
    /// Operations and steps that need what the home lacks, and that it refused therefore.
    pub lacking: u64,
}

impl Report {
    /// Adds what another run has done.
    pub fn add(&mut self, other: &Report) {
        self.done += other.done;
        self.refused += other.refused;
        self.without_space += other.without_space;
        self.remounts += other.remounts;
        self.crashes += other.crashes;
        self.commits += other.commits;
        self.snapshots += other.snapshots;
        self.clones += other.clones;
        self.rollbacks += other.rollbacks;
        self.diffs += other.diffs;
        self.differences += other.differences;
        self.directories_back += other.directories_back;
        self.forks += other.forks;
        self.merges += other.merges;
        self.updates += other.updates;
        self.conflicts += other.conflicts;
        self.decisions += other.decisions;
        self.lacking += other.lacking;
    }

    /// All operations.
    pub fn operations(&self) -> u64 {
        self.done + self.refused + self.without_space
    }
}

/// A state that is kept.
struct Kept {
    name: String,
    /// The step that has kept it.
    index: usize,
    model: Model,
    /// What is live did not come from it: a rollback went elsewhere since. The numbers of inodes
    /// that it gave out may have been given out again then, which they never are in the model.
    is_aside: bool,
    /// All went back to it once: as long as what came after it then is kept, it must stay.
    is_branch: bool,
}

/// A history that is being run.
pub(crate) struct Run {
    home: Box<dyn Home>,
    pair: Pair,
    clock: Arc<HistoryClock>,
    kept: Vec<Kept>,
    /// The fork that there is. All of it is durable between steps.
    fork: Option<Forked>,
    /// What a crash may leave: what was promised last, and whatever may have been committed since.
    durable: Vec<Model>,
    report: Report,
}

impl Run {
    /// Begins with an empty home that takes its time from `clock`, which stands at 0.
    pub(crate) fn new(home: Box<dyn Home>, clock: Arc<HistoryClock>) -> Run {
        let model = Model::new(Arc::clone(&clock) as Arc<dyn marram_vfs::Clock>);
        let durable = vec![model.snapshot()];
        let pair = Pair::new(home.file_system(), model);
        let (kept, fork, report) = (Vec::new(), None, Report::default());
        Run { home, pair, clock, kept, fork, durable, report }
    }

    /// Runs the step that has place `index` in its history.
    pub(crate) fn step(&mut self, index: usize, step: &Step) -> Agreement {
        self.clock.set(1 + index as u64);
        match step {
            Step::Operation(operation) => self.operate(operation),
            Step::Remount => self.remount(),
            Step::Crash => self.crash(),
            Step::Commit => {
                self.report.commits += 1;
                self.home.commit()?;
                self.all_is_durable();
                Ok(())
            }
            Step::Snapshot => self.snapshot(index),
            Step::CheckSnapshot { which } => self.check_snapshot(*which),
            Step::DestroySnapshot { which } => self.destroy_snapshot(*which),
            Step::Clone { which, seed } => self.clone_snapshot(index, *which, *seed),
            Step::Rollback { which } => self.roll_back(index, *which),
            Step::Diff { before, after } => self.diff(*before, *after),
            Step::DirectoryBack { which, seed } => self.directory_back(*which, *seed),
            Step::Fork { seed } => self.work_on_fork(index, *seed),
            Step::Merge { drops, decides } => self.merge(index, *drops, *decides),
            Step::Update { decides } => self.update(index, *decides),
            Step::Clash { seed } => self.clash(*seed),
            Step::Compare => self.pair.compare(),
        }
    }

    /// Compares everything that there is at the end.
    pub(crate) fn finish(mut self) -> Result<Report, String> {
        fn at<T>(moment: &str, result: Result<T, String>) -> Result<T, String> {
            result.map_err(|reason| format!("{moment}: {reason}"))
        }
        at("at the end", self.pair.compare())?;
        for which in 0..self.kept.len() {
            at("at the end", self.check_snapshot(which))?;
        }
        at("in the last remount", self.remount())?;
        at("after the last remount", self.pair.compare())?;
        at("in the last check", self.home.check())?;
        Ok(self.report)
    }

    fn operate(&mut self, operation: &Operation) -> Agreement {
        if self.home.commits_by_itself() {
            self.durable.push(self.pair.model().snapshot());
        }
        let outcome = self.pair.apply(operation)?;
        self.report.count(outcome);
        let syncs = matches!(operation, Operation::Sync { .. } | Operation::SyncAll);
        match outcome {
            Outcome::Done if syncs => self.all_is_durable(),
            // A pool that is short of space commits to get back what was freed.
            Outcome::NoSpace => self.durable.push(self.pair.model().snapshot()),
            _ => (),
        }
        Ok(())
    }

    /// Every home makes all durable when one thing has to be.
    fn all_is_durable(&mut self) {
        self.durable = vec![self.pair.model().snapshot()];
    }

    fn remount(&mut self) -> Agreement {
        self.report.remounts += 1;
        self.pair.release();
        self.home.remount()?;
        self.pair.resume(self.home.file_system());
        self.pair.forget_all();
        self.all_is_durable();
        Ok(())
    }

    fn crash(&mut self) -> Agreement {
        if !self.home.capabilities().crash {
            return Ok(());
        }
        if self.home.commits_by_itself() {
            self.durable.push(self.pair.model().snapshot());
        }
        self.pair.release();
        self.home.crash()?;
        self.report.crashes += 1;
        let real = self.home.file_system();
        let mut reason = String::new();
        for durable in self.durable.iter().rev() {
            match compare_trees(&mut InodeMap::default(), &*real, durable) {
                Ok(()) => {
                    self.pair = Pair::new(real, durable.fork());
                    self.all_is_durable();
                    // A fork is numbered by all inodes that there are.
                    return self.pair.compare();
                }
                Err(difference) => reason = difference,
            }
        }
        Err(format!("a crash left nothing that may be there, nor what was promised: {reason}"))
    }

    fn snapshot(&mut self, index: usize) -> Agreement {
        if self.kept.len() == SNAPSHOTS_MAX {
            self.destroy_snapshot(index)?;
        }
        let name = format!("s{index}");
        self.home.snapshot(&name)?;
        self.kept.push(Kept {
            name,
            index,
            model: self.pair.model().snapshot(),
            is_aside: false,
            is_branch: false,
        });
        self.all_is_durable();
        self.report.snapshots += 1;
        Ok(())
    }

    /// A kept state by a number that need not be below their count.
    fn which(&self, which: usize) -> Option<usize> {
        (!self.kept.is_empty()).then(|| which % self.kept.len())
    }

    fn check_snapshot(&mut self, which: usize) -> Agreement {
        let Some(which) = self.which(which) else {
            return Ok(());
        };
        let Kept { name, model, .. } = &self.kept[which];
        let real = self.home.open_snapshot(name)?;
        compare_snapshot(&*real, model).map_err(|difference| format!("{name}: {difference}"))
    }

    fn destroy_snapshot(&mut self, which: usize) -> Agreement {
        for at in 0..self.kept.len() {
            let which = (which + at) % self.kept.len();
            match self.home.destroy_snapshot(&self.kept[which].name) {
                Err(_) if self.kept[which].is_branch => (),
                destroyed => {
                    self.kept.remove(which);
                    self.all_is_durable();
                    return destroyed;
                }
            }
        }
        Ok(())
    }

    fn roll_back(&mut self, index: usize, which: usize) -> Agreement {
        let Some(which) = self.which(which) else {
            return Ok(());
        };
        let (to, name) = (&self.kept[which], format!("b{index}"));
        let fail = |reason: String| format!("back to {}: {reason}", to.name);
        if !self.home.capabilities().rollback {
            let answer = self.home.roll_back(&to.name, &name).map_err(fail)?;
            return self.lacks("a rollback", answer);
        }
        let before = self.pair.model().snapshot();
        let go_back = || self.home.roll_back(&to.name, &name)?.map_err(|error| error.to_string());
        self.pair.roll_back(&to.model, go_back).map_err(fail)?;
        let was_aside = to.is_aside;
        self.fork.iter_mut().for_each(|fork| fork.branch.goes_back(to.index as u64));
        for (at, kept) in self.kept.iter_mut().enumerate() {
            kept.is_aside = at != which && (kept.is_aside || was_aside || at > which);
            kept.is_branch |= at == which;
        }
        self.kept.push(Kept { name, index, model: before, is_aside: true, is_branch: false });
        self.report.rollbacks += 1;
        self.number_origin()?;
        self.all_is_durable();
        if self.kept.len() > SNAPSHOTS_MAX { self.destroy_snapshot(index) } else { Ok(()) }
    }

    /// All states that there are.
    fn states(&self) -> Vec<(Moment, &Model)> {
        let mut states = vec![(Moment::Live, self.pair.model())];
        states.extend(self.kept.iter().map(|kept| (Moment::Kept(kept.name.clone()), &kept.model)));
        states.extend(self.fork.iter().map(|fork| (Moment::Fork(fork.name.clone()), &fork.model)));
        states
    }

    /// The home says that it cannot do what it lacks, and nothing has changed.
    fn lacks<T: Debug>(&mut self, what: &str, answer: marram_vfs::Result<T>) -> Agreement {
        let Err(Error::NotSupported) = answer else {
            return Err(format!("the home lacks {what}, and answers with {answer:?}"));
        };
        self.report.lacking += 1;
        self.pair.compare().map_err(|difference| format!("{what}, which it lacks: {difference}"))
    }

    fn diff(&mut self, before: usize, after: usize) -> Agreement {
        if !self.home.capabilities().diff {
            let answer = self.home.diff(&Moment::Live, &Moment::Live)?;
            return self.lacks("a diff", answer);
        }
        match self.compare_moments(before, after)? {
            Err(_) => self.report.without_space += 1,
            Ok(count) => {
                self.report.diffs += 1;
                self.report.differences += count as u64;
            }
        }
        // It may have been committed to be compared.
        self.durable.push(self.pair.model().snapshot());
        Ok(())
    }

    /// How many differences both have; an error of the home if it has no space.
    fn compare_moments(&self, before: usize, after: usize) -> Answer<usize> {
        let states = self.states();
        let (before, old) = &states[before % states.len()];
        let (after, new) = &states[after % states.len()];
        let fail = |reason: String| format!("{before:?} to {after:?}: {reason}");
        match self.home.diff(before, after).map_err(fail)? {
            Err(Error::NoSpace) => Ok(Err(Error::NoSpace)),
            Err(error) => Err(fail(format!("refused with {error:?}"))),
            Ok(reported) => {
                let reported: BTreeSet<Difference> =
                    reported.into_iter().map(|difference| plain(new, difference)).collect();
                compare_differences(&reported, &old.diff(new)).map_err(fail)?;
                Ok(Ok(reported.len()))
            }
        }
    }

    fn directory_back(&mut self, which: usize, seed: u64) -> Agreement {
        let origins: Vec<&Kept> = self.kept.iter().filter(|kept| !kept.is_aside).collect();
        let Some(Kept { name, model: past, .. }) = origins.get(which % origins.len().max(1)) else {
            return Ok(());
        };
        let (path, [real, model]) = self.pair.directory(&mut Random::new(seed))?;
        let fail = |reason: String| format!("{path} back to {name}: {reason}");
        let real = self.home.roll_back_directory(name, real)?;
        if !self.home.capabilities().directory_rollback {
            return self.lacks("a rollback of a directory", real);
        }
        // What it had to write before it was refused is durable.
        if real == Err(Error::NoSpace) {
            self.report.without_space += 1;
            self.all_is_durable();
            return Ok(());
        }
        let model = self.pair.model().roll_back_directory(past, model);
        match (real, model) {
            (Ok(()), Ok(())) => {
                self.report.directories_back += 1;
                self.pair.meet_anew().map_err(fail)?;
            }
            (Err(a), Err(b)) if a == b => (),
            (real, model) => return Err(fail(format!("gave {real:?}; the model gives {model:?}"))),
        }
        self.all_is_durable();
        Ok(())
    }

    fn work_on_fork(&mut self, index: usize, seed: u64) -> Agreement {
        if self.fork.is_none() {
            let name = format!("f{index}");
            let answer = self.home.fork(&name)?;
            if !self.home.capabilities().forks {
                return self.lacks("a fork", answer);
            }
            answer.map_err(|error| format!("fork {name}: refused with {error:?}"))?;
            self.fork = Some(Forked::new(name, index, self.pair.model()));
            self.report.forks += 1;
        }
        if let Some(fork) = &mut self.fork {
            let real = self.home.open_fork(&fork.name)?;
            fork.work(real, (seed, &self.clock), &mut self.report)?;
        }
        self.home.commit()?;
        self.all_is_durable();
        Ok(())
    }

    fn clash(&mut self, seed: u64) -> Agreement {
        let known = self.fork.as_ref().map(|fork| fork.known_files(self.pair.model()));
        let known: Vec<Vec<u8>> = known.into_iter().flatten().collect();
        if known.is_empty() {
            return Ok(());
        }
        let mut random = Random::new(seed);
        let path = &known[random.below(known.len() as u64) as usize];
        let subject = self.pair.hold_file(path)?;
        self.operate(&file_change(subject, &mut random))?;
        self.clock.tick();
        if let Some(fork) = &mut self.fork {
            let real = self.home.open_fork(&fork.name)?;
            fork.change_file(real, (path, &mut random), &mut self.report)?;
        }
        self.home.commit()?;
        self.all_is_durable();
        Ok(())
    }

    fn merge(&mut self, index: usize, drops: bool, decides: Option<u64>) -> Agreement {
        let Some(fork) = &mut self.fork else {
            return Ok(());
        };
        let name = fork.name.clone();
        let fail = |reason: String| format!("merge of {name}: {reason}");
        let (home, parent) = (&mut self.home, self.pair.model());
        let known = fork.known_files(parent);
        let mut bring = |decisions: &Decisions| {
            let real = home.merge(&name, decisions)?;
            judged(real, || fork.merge(index, parent, decisions)).map_err(fail)
        };
        let brought = decided(decides, &|path| known.contains(path), &mut bring)?;
        let is_done = self.report.count_brought(&brought);
        if is_done {
            self.report.merges += 1;
            self.pair.meet_anew().map_err(fail)?;
        }
        // What was written before anything was refused is durable.
        self.all_is_durable();
        if drops || !is_done { self.drop_fork() } else { self.number_fork() }
    }

    fn update(&mut self, index: usize, decides: Option<u64>) -> Agreement {
        let Some(fork) = &mut self.fork else {
            return Ok(());
        };
        let name = fork.name.clone();
        let fail = |reason: String| format!("update of {name}: {reason}");
        let (home, parent) = (&mut self.home, self.pair.model());
        let known = fork.known_files(parent);
        let mut bring = |decisions: &Decisions| {
            let real = home.update(&name, decisions)?;
            judged(real, || fork.update(index, parent, decisions)).map_err(fail)
        };
        let brought = decided(decides, &|path| known.contains(path), &mut bring)?;
        let is_done = self.report.count_brought(&brought);
        if is_done {
            self.report.updates += 1;
        }
        self.all_is_durable();
        if is_done { self.number_fork() } else { self.drop_fork() }
    }

    fn number_fork(&mut self) -> Agreement {
        let Some(fork) = &mut self.fork else {
            return Ok(());
        };
        fork.number_as(self.home.open_fork(&fork.name)?, &self.pair)
    }

    fn number_origin(&mut self) -> Agreement {
        let Some(fork) = &mut self.fork else {
            return Ok(());
        };
        fork.number_origin_as(self.home.open_origin(&fork.name)?, &self.pair)
    }

    fn drop_fork(&mut self) -> Agreement {
        let Some(fork) = self.fork.take() else {
            return Ok(());
        };
        self.home.destroy_clone(&fork.name)?;
        self.all_is_durable();
        Ok(())
    }

    fn clone_snapshot(&mut self, index: usize, which: usize, seed: u64) -> Agreement {
        let Some(which) = self.which(which) else {
            return Ok(());
        };
        let Kept { name, model, .. } = &self.kept[which];
        let clone = format!("c{index}");
        let mut pair = Pair::new(self.home.clone_snapshot(name, &clone)?, model.fork());
        self.report.clones += 1;
        let mut generator = Generator::new(seed);
        for _ in 0..CLONE_OPERATIONS {
            let operation = generator.draw();
            let outcome = pair.apply(&operation).map_err(|difference| {
                format!("clone {clone} of {name}: {operation:?}: {difference}")
            })?;
            self.report.count(outcome);
        }
        pair.compare().map_err(|difference| format!("clone {clone} of {name}: {difference}"))?;
        drop(pair);
        self.home.destroy_clone(&clone)?;
        self.all_is_durable();
        Ok(())
    }
}

/// A difference as the model reports it: the choice among several names has no meaning where none
/// has changed.
fn plain(after: &Model, difference: Difference) -> Difference {
    match difference.what {
        Change::Created
        | Change::Removed
        | Change::Renamed(_)
        | Change::Linked
        | Change::Unlinked => difference,
        _ => Difference { path: after.first_name(&difference.path), ..difference },
    }
}

fn compare_differences(
    reported: &BTreeSet<Difference>,
    wanted: &BTreeSet<Difference>,
) -> Agreement {
    let text = |difference: Option<&Difference>| {
        difference.map(|it| format!("{}: {:?}", String::from_utf8_lossy(&it.path), it.what))
    };
    match (reported.difference(wanted).next(), wanted.difference(reported).next()) {
        (None, None) => Ok(()),
        (more, less) => Err(format!("tells {:?}; the model {:?}", text(more), text(less))),
    }
}

impl Report {
    /// Counts a merge or update; true if it was done.
    fn count_brought(&mut self, brought: &Brought) -> bool {
        match brought {
            Brought::Done { decided } => {
                self.decisions += *decided as u64;
                self.conflicts += u64::from(*decided > 0);
            }
            Brought::Refused(_) => self.conflicts += 1,
            Brought::WithoutSpace => self.without_space += 1,
        }
        matches!(brought, Brought::Done { .. })
    }

    pub(crate) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done => self.done += 1,
            Outcome::Refused => self.refused += 1,
            Outcome::NoSpace => self.without_space += 1,
            Outcome::Lacking => self.lacking += 1,
        }
    }
}
