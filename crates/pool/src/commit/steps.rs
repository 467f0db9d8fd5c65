//! What a commit takes in, step by step: layers of datasets, and the forks in memory that begin
//! between them.

use crate::memtable::dataset::Dataset;
use crate::memtable::dirty::Dirty;
use crate::memtable::overlay::Layer;
use crate::state::State;
use crate::state::forks::Fork;
use marram_format::dataset::DatasetRecord;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which forks in memory a commit makes records of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those of which it takes in a layer, or of whose parent.
    Touched,
    /// All.
    All,
}

/// One step of a commit: layers that a dataset takes in, and the fork that begins then.
pub(super) struct Step {
    pub(super) dataset: Arc<Dataset>,
    pub(super) layers: Vec<Arc<Layer>>,
    pub(super) begins: Option<Begins>,
}

/// A fork of the dataset of a step.
pub(super) struct Begins {
    pub(super) record: Arc<DatasetRecord>,
    pub(super) base: Arc<DatasetRecord>,
    pub(super) dataset: Arc<Dataset>,
}

/// What a commit takes in.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) steps: Vec<Step>,
    /// How many frozen layers of each dataset that are.
    pub(super) taken: Vec<(Arc<Dataset>, usize)>,
    /// Ended forks that go, and their bases: those that have begun later first.
    pub(super) ended: Vec<(u64, u64)>,
}

impl Steps {
    /// Orders what was frozen. No batch is under way, and no commit.
    /// Also returns how much is left out: what forks in memory have changed, of which nothing is to
    /// be written.
    pub(super) fn of(
        pool: &State,
        datasets: Vec<Arc<Dataset>>,
        (which, left_out): (Which, &[u64]),
    ) -> (Steps, Dirty) {
        let (mut steps, mut left) = (Steps::default(), Dirty::default());
        let mut before: BTreeMap<u64, usize> = BTreeMap::new();
        if !pool.forks.is_empty() {
            let mut table = pool.forks.lock();
            for fork in table.all_mut().filter(|fork| !fork.is_ended) {
                if fork.is_on_media {
                    let is_taken = |it: &Arc<Dataset>| it.id == fork.record.id;
                    fork.is_in_commit =
                        !left_out.contains(&fork.record.id) && datasets.iter().any(is_taken);
                } else if which == Which::All || is_touched(fork, &datasets) {
                    steps.begin(fork, &mut before);
                }
            }
        }
        for dataset in datasets {
            let (_, layers) = dataset.frozen();
            let from = before.get(&dataset.id).copied().unwrap_or(0);
            if left_out.contains(&dataset.id) {
                left = left.plus(dataset.frozen_dirty(from));
                continue;
            }
            let layers = layers[from.min(layers.len())..].to_vec();
            steps.taken.push((Arc::clone(&dataset), from + layers.len()));
            before.remove(&dataset.id);
            if !layers.is_empty() {
                steps.steps.push(Step { dataset, layers, begins: None });
            }
        }
        steps.take_clean(pool, &before);
        (steps, left)
    }

    /// What a freeze has found open in a dataset, as a step of its own, if that was anything.
    pub(super) fn split(&mut self, dataset: &Dataset, freeze: u64) -> Option<Step> {
        if !dataset.has_frozen(freeze) {
            return None;
        }
        let is_it = |step: &&mut Step| step.dataset.id == dataset.id && step.begins.is_none();
        let step = self.steps.iter_mut().find(is_it);
        let (dataset, layer) = step.and_then(|it| Some((it.dataset.clone(), it.layers.pop()?)))?;
        Some(Step { dataset, layers: vec![layer], begins: None })
    }

    /// The step of a fork's parent after which the fork begins.
    fn begin(&mut self, fork: &mut Fork, before: &mut BTreeMap<u64, usize>) {
        fork.is_in_commit = true;
        let (_, layers) = fork.dataset.frozen();
        let from = before.get(&fork.parent.id).copied().unwrap_or(0).min(fork.base_layers);
        before.insert(fork.parent.id, fork.base_layers);
        before.insert(fork.record.id, fork.base_layers);
        let (record, base) = (Arc::clone(&fork.record), Arc::clone(&fork.base));
        let begins = Begins { record, base, dataset: Arc::clone(&fork.dataset) };
        let layers = layers[from..fork.base_layers].to_vec();
        self.steps.push(Step { dataset: Arc::clone(&fork.parent), layers, begins: Some(begins) });
    }

    /// Forks without changes of their own, and parents of which nothing waits but what their forks
    /// began with.
    fn take_clean(&mut self, pool: &State, before: &BTreeMap<u64, usize>) {
        let datasets = pool.datasets.read();
        let clean =
            before.iter().filter_map(|(id, taken)| Some((datasets.get(id)?.clone(), *taken)));
        self.taken.extend(clean);
    }

    /// Takes along what has ended, and nobody reads.
    pub(super) fn take_ended(&mut self, pool: &State) {
        if pool.forks.is_empty() {
            return;
        }
        let table = pool.forks.lock();
        let datasets = pool.datasets.read();
        let is_open = |id: &u64| datasets.get(id).is_some_and(|dataset| dataset.is_open());
        let records = pool.records.read();
        // What this commit takes in goes with the next one.
        let goes = |fork: &&Fork| fork.is_ended && fork.is_on_media && !fork.is_in_commit;
        let mut ended: Vec<(u64, u64)> =
            table.all().filter(goes).map(|fork| (fork.record.id, fork.base.id)).collect();
        // A fork of one that goes has begun after it.
        ended.reverse();
        for (fork, base) in ended {
            let is_going = |id: u64| self.ended.iter().any(|(_, gone)| *gone == id);
            let is_begun_in =
                table.all().any(|other| other.is_in_commit && other.parent.id == fork);
            let is_alone = records.snapshots(fork).all(|it| is_going(it.id))
                && records.children(fork).next().is_none();
            if is_alone && !is_begun_in && !is_open(&base) {
                self.ended.push((fork, base));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

fn is_touched(fork: &Fork, datasets: &[Arc<Dataset>]) -> bool {
    datasets.iter().any(|dataset| dataset.id == fork.parent.id || dataset.id == fork.record.id)
}
