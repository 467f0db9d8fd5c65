//! What a commit takes in, step by step: layers of datasets, and the forks in memory and the merges
//! that wait between them.

use crate::memtable::dataset::Dataset;
use crate::memtable::dirty::Dirty;
use crate::memtable::overlay::Layer;
use crate::state::State;
use crate::state::forks::Fork;
use crate::state::waiting_merges::WaitingMerge;
use marram_format::dataset::DatasetRecord;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which forks in memory a commit makes records of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Those of which it takes in a layer, or of whose parent.
    Touched,
    /// The same; but of what forks have changed themselves it takes in only what is much: for a
    /// commit that is waited for, since no fork is durable.
    Durable,
    /// All; of what they have changed as little.
    All,
}

/// One step of a commit: layers that a dataset takes in, and what is done then.
pub(super) struct Step {
    pub(super) dataset: Arc<Dataset>,
    pub(super) layers: Vec<Arc<Layer>>,
    pub(super) then: Then,
}

/// What is done when the layers of a step have been taken in.
pub(super) enum Then {
    Nothing,
    ForkBegins(Begins),
    /// The next step of the dataset is the batch of this merge.
    MergeBegins(Arc<WaitingMerge>),
    MergeEnds(Arc<WaitingMerge>),
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
    /// How many merges that wait are taken in: all.
    pub(super) merges: usize,
}

/// How many layers of each dataset the steps so far have taken.
type Before = BTreeMap<u64, usize>;

impl Steps {
    /// Orders what was frozen. No batch is under way, and no commit.
    /// Also returns how much is left out: what forks in memory have changed, of which nothing is to
    /// be written. So it is of the forks of merges that wait.
    pub(super) fn of(
        pool: &State,
        datasets: Vec<Arc<Dataset>>,
        (which, left_out): (Which, &[u64]),
    ) -> (Steps, Dirty) {
        let (mut steps, mut left) = (Steps::default(), Dirty::default());
        let mut before = Before::new();
        let mut merges = pool.merges.all();
        steps.merges = merges.len();
        let merged = merges.iter().map(|merge| merge.fork);
        let mut left_out: Vec<u64> = left_out.iter().copied().chain(merged).collect();
        if which != Which::Touched {
            left_out.extend(pool.forks.of_little());
        }
        if !pool.forks.is_empty() {
            let mut table = pool.forks.lock();
            for fork in table.all_mut().filter(|fork| !fork.is_ended) {
                if fork.is_on_media {
                    let is_taken = |it: &Arc<Dataset>| it.id == fork.record.id;
                    fork.is_in_commit =
                        !left_out.contains(&fork.record.id) && datasets.iter().any(is_taken);
                } else if which == Which::All || is_touched(fork, &datasets, &left_out) {
                    let is_earlier = |merge: &mut Arc<WaitingMerge>| {
                        merge.dataset.id == fork.parent.id && merge.layer < fork.base_layers
                    };
                    for merge in merges.extract_if(.., is_earlier) {
                        steps.merge(&merge, &mut before);
                    }
                    steps.begin(fork, &mut before);
                }
            }
        }
        merges.iter().for_each(|merge| steps.merge(merge, &mut before));
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
                steps.steps.push(Step { dataset, layers, then: Then::Nothing });
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
        let is_it =
            |step: &&mut Step| step.dataset.id == dataset.id && matches!(step.then, Then::Nothing);
        let step = self.steps.iter_mut().find(is_it);
        let (dataset, layer) = step.and_then(|it| Some((it.dataset.clone(), it.layers.pop()?)))?;
        Some(Step { dataset, layers: vec![layer], then: Then::Nothing })
    }

    /// The step of a fork's parent after which the fork begins.
    fn begin(&mut self, fork: &mut Fork, before: &mut Before) {
        fork.is_in_commit = true;
        let (_, layers) = fork.dataset.frozen();
        let from = before.get(&fork.parent.id).copied().unwrap_or(0).min(fork.base_layers);
        before.insert(fork.parent.id, fork.base_layers);
        before.insert(fork.record.id, fork.base_layers);
        let (record, base) = (Arc::clone(&fork.record), Arc::clone(&fork.base));
        let begins = Begins { record, base, dataset: Arc::clone(&fork.dataset) };
        let layers = layers[from..fork.base_layers].to_vec();
        let dataset = Arc::clone(&fork.parent);
        self.steps.push(Step { dataset, layers, then: Then::ForkBegins(begins) });
    }

    /// The steps of a merge: what was there before, and its batch.
    fn merge(&mut self, merge: &Arc<WaitingMerge>, before: &mut Before) {
        let (_, layers) = merge.dataset.frozen();
        let from = before.get(&merge.dataset.id).copied().unwrap_or(0).min(merge.layer);
        before.insert(merge.dataset.id, merge.layer + 1);
        let earlier = (layers[from..merge.layer].to_vec(), Then::MergeBegins(Arc::clone(merge)));
        let own = (vec![layers[merge.layer].clone()], Then::MergeEnds(Arc::clone(merge)));
        for (layers, then) in [earlier, own] {
            self.steps.push(Step { dataset: Arc::clone(&merge.dataset), layers, then });
        }
    }

    /// Forks without changes of their own, and parents of which nothing waits but what their forks
    /// began with.
    fn take_clean(&mut self, pool: &State, before: &Before) {
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

/// How many groups the moments of a commit take at most, of all that waits. In each dataset that is
/// one for each merge, and one for what lies behind each fork or merge, as far as there are layers.
pub(super) fn moments(pool: &State) -> usize {
    let merges = pool.merges.all();
    let table = pool.forks.lock();
    let forks: Vec<&Fork> = table.all().filter(|fork| !fork.is_on_media).collect();
    let of_merges = merges.iter().map(|merge| &merge.dataset);
    let into: BTreeMap<u64, &Arc<Dataset>> = forks
        .iter()
        .map(|fork| &fork.parent)
        .chain(of_merges)
        .map(|dataset| (dataset.id, dataset))
        .collect();
    let of_dataset = |dataset: &Arc<Dataset>| {
        let merges = merges.iter().filter(|merge| merge.dataset.id == dataset.id).count();
        let forks = forks.iter().filter(|fork| fork.parent.id == dataset.id).count();
        let layers = dataset.frozen_layers().saturating_sub(merges);
        merges + layers.min(forks + merges) + 1
    };
    into.into_values().map(of_dataset).sum()
}

fn is_touched(fork: &Fork, datasets: &[Arc<Dataset>], left_out: &[u64]) -> bool {
    let is_one = |dataset: &&Arc<Dataset>| [fork.parent.id, fork.record.id].contains(&dataset.id);
    datasets.iter().filter(is_one).any(|dataset| !left_out.contains(&dataset.id))
}
