//! A fork beside a history: it begins as the state of one moment, is worked on now and then, and
//! is merged back in the end, or now and then in either direction.
//!
//! What is done in it is few operations, on what is there already: else nearly every merge would
//! be refused for a conflict.

use crate::branching::{self, Branching, Bringing};
use crate::clock::HistoryClock;
use crate::compare::Agreement;
use crate::generate::Generator;
use crate::history::Report;
use crate::operation::{Operation, Slot};
use crate::pair::Pair;
use crate::random::Random;
use marram_model::{Clash, Decisions, Model};
use marram_vfs::{Caller, FileSystem, SetAttributes, WriteOptions, XattrMode};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most operations at a time.
const OPERATIONS_MAX: u64 = 12;

/// See the module.
pub(crate) struct Forked {
    pub(crate) name: String,
    /// What it has in common with the history.
    pub(crate) branch: Branching,
    /// What it is, without pins.
    pub(crate) model: Model,
}

impl Forked {
    /// A fork of `model` as it is now.
    pub(crate) fn new(name: String, index: usize, model: &Model) -> Forked {
        let branch = Branching::new(model, index as u64);
        Forked { name, branch, model: model.snapshot() }
    }

    /// The paths of files that it and `parent` have had since it was made.
    pub(crate) fn known_files(&self, parent: &Model) -> BTreeSet<Vec<u8>> {
        let [origin, fork, parent] =
            [self.branch.origin(), &self.model, parent].map(branching::files);
        origin
            .into_iter()
            .filter(|it| fork.contains(it) && parent.contains(it))
            .map(|it| it.0)
            .collect()
    }

    /// What changed in it goes into `parent`; without conflicts the parent has all of it then.
    pub(crate) fn merge(
        &mut self,
        index: usize,
        parent: &Model,
        decisions: &Decisions,
    ) -> BTreeSet<(Clash, Vec<u8>)> {
        let fork = Bringing { source: &self.model, is_fork: true, at: index as u64 };
        self.branch.bring(fork, parent, decisions)
    }

    /// What changed in `parent` comes into it.
    pub(crate) fn update(
        &mut self,
        index: usize,
        parent: &Model,
        decisions: &Decisions,
    ) -> BTreeSet<(Clash, Vec<u8>)> {
        let updated = self.model.fork();
        let parent = Bringing { source: &parent.snapshot(), is_fork: false, at: index as u64 };
        let clashes = self.branch.bring(parent, &updated, decisions);
        self.model = updated.snapshot();
        clashes
    }

    /// Works on it, where `real` shows it, and compares all of it.
    pub(crate) fn work(
        &mut self,
        real: Arc<dyn FileSystem>,
        (seed, clock): (u64, &HistoryClock),
        report: &mut Report,
    ) -> Agreement {
        let fail = |name: &str, difference: String| format!("fork {name}: {difference}");
        let mut random = Random::new(seed);
        let mut pair = Pair::new(real, self.model.fork());
        pair.pick_up(&mut random).map_err(|difference| fail(&self.name, difference))?;
        let mut generator = Generator::going_on(random.number());
        for _ in 0..=random.below(OPERATIONS_MAX) {
            clock.tick();
            let operation = generator.draw();
            let outcome = pair
                .apply(&operation)
                .map_err(|difference| fail(&self.name, format!("{operation:?}: {difference}")))?;
            report.count(outcome);
        }
        pair.compare().map_err(|difference| fail(&self.name, difference))?;
        pair.let_go();
        self.model = pair.model().snapshot();
        Ok(())
    }

    /// Changes one file of it, where `real` shows it.
    pub(crate) fn change_file(
        &mut self,
        real: Arc<dyn FileSystem>,
        (path, random): (&[u8], &mut Random),
        report: &mut Report,
    ) -> Agreement {
        let fail = |difference: String| format!("fork {}: {difference}", self.name);
        let mut pair = Pair::new(real, self.model.fork());
        let subject = pair.hold_file(path).map_err(fail)?;
        report.count(pair.apply(&file_change(subject, random)).map_err(fail)?);
        pair.let_go();
        self.model = pair.model().snapshot();
        Ok(())
    }

    /// After a merge with `parent`: what it has made has the number that the parent has for it, if
    /// the home kept that. It may or may not; and a diff knows things by their numbers.
    pub(crate) fn number_as(&mut self, real: Arc<dyn FileSystem>, parent: &Pair) -> Agreement {
        let mut pair = Pair::new(real, self.model.fork());
        pair.compare().map_err(|difference| format!("fork {}: {difference}", self.name))?;
        self.model = self.branch.renumber(&self.model, &pair.common_inodes(parent));
        Ok(())
    }

    /// After a way back of the parent: what it has again, and the fork has from the time before,
    /// is one inode if the home gave it the number again that it had, as after a crash it may.
    /// `real` shows what the fork began as.
    pub(crate) fn number_origin_as(
        &mut self,
        real: Arc<dyn FileSystem>,
        parent: &Pair,
    ) -> Agreement {
        let mut origin = Pair::new(real, self.branch.origin().fork());
        origin.compare().map_err(|it| format!("what fork {} began as: {it}", self.name))?;
        self.model = self.branch.renumber_all(&self.model, origin.common_inodes(parent));
        Ok(())
    }
}

/// A change of the content or the attributes of a file.
pub(crate) fn file_change(subject: Slot, random: &mut Random) -> Operation {
    let caller = Caller { uid: 0, gid: 0 };
    match random.below(4) {
        0 => {
            let permissions = Some(random.pick(&[0o600, 0o640, 0o755]));
            let set = SetAttributes { permissions, ..SetAttributes::default() };
            Operation::SetAttributes { caller, subject, set }
        }
        1 => {
            let seed = random.number();
            Operation::SetXattr { subject, name: 2, len: 9, seed, mode: XattrMode::Any }
        }
        _ => {
            let (offset, seed) = (random.below(5_000), random.number());
            let options = WriteOptions::default();
            Operation::Write { subject, offset, len: 100, seed, options }
        }
    }
}
