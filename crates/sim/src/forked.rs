//! A fork beside a history: it begins as the state of one moment, is worked on now and then, and
//! is merged back in the end, or now and then in either direction.
//!
//! What is done in it is few operations, on what is there already: else nearly every merge would
//! be refused for a conflict.

use crate::branching::Branching;
use crate::clock::HistoryClock;
use crate::compare::Agreement;
use crate::generate::Generator;
use crate::history::Report;
use crate::pair::Pair;
use crate::random::Random;
use marram_model::{Clash, Model};
use marram_vfs::FileSystem;
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
    /// The step that has brought the base.
    pub(crate) based_at: usize,
    /// A directory of the parent went back while it was there: what was copied then has the birth
    /// of another inode.
    pub(crate) has_copies_beside: bool,
}

impl Forked {
    /// A fork of `model` as it is now.
    pub(crate) fn new(name: String, index: usize, model: &Model) -> Forked {
        let branch = Branching::new(model);
        Forked { name, branch, model: model.snapshot(), based_at: index, has_copies_beside: false }
    }

    /// What changed in it goes into `parent`; without conflicts the parent has all of it then.
    pub(crate) fn merge(&mut self, parent: &Model) -> BTreeSet<(Clash, Vec<u8>)> {
        self.branch.bring((&self.model, true), parent)
    }

    /// What changed in `parent` comes into it.
    pub(crate) fn update(&mut self, parent: &Model) -> BTreeSet<(Clash, Vec<u8>)> {
        let updated = self.model.fork();
        let clashes = self.branch.bring((&parent.snapshot(), false), &updated);
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

    /// After a merge with `parent`: what it has made has the number that the parent has for it, if
    /// the home kept that. It may or may not; and a diff knows things by their numbers.
    pub(crate) fn number_as(&mut self, real: Arc<dyn FileSystem>, parent: &Pair) -> Agreement {
        let mut pair = Pair::new(real, self.model.fork());
        pair.compare().map_err(|difference| format!("fork {}: {difference}", self.name))?;
        self.model.renumber(self.branch.origin(), &pair.common_inodes(parent));
        self.branch.fork_is_renumbered(&self.model);
        Ok(())
    }
}
