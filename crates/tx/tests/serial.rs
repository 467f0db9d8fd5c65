//! Random histories of concurrent transactions, also inside of each other and over two datasets,
//! and plain operations, against a model that runs them one after the other in the order of their
//! commits: what each committed transaction saw, and the state after it, must be the same. What was
//! seen inside of it by one that did not commit must be so too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use marram_history::{
    Branch, MergeOptions, MergePart, MergeReport, MergeSides, merge, merge_together,
};
use marram_posix::{Posix, PosixOptions, hold_together};
use marram_sim::Random;
use marram_sim::serial::{
    SerialModel, SerialOperation, add_state_of, make_directories, run_on_files, run_on_model,
};
use marram_store::memory::MemoryStore;
use marram_store::{DatasetName, ForkBegin, Properties, Source, Store};
use marram_tx::{Aspect, ReadSet, Recording};
use marram_vfs::{Caller, FileSystem, Ino};
use std::sync::Arc;

const CALLER: Caller = Caller { uid: 0, gid: 0 };
const OPEN_MAX: u64 = 5;

/// A transaction that is open: what it did, and what it was answered.
struct Open {
    id: usize,
    /// The one that it is inside of.
    outer: Option<usize>,
    /// What it has of each dataset that it works in.
    parts: Vec<Part>,
    done: Vec<Done>,
}

/// A transaction in one dataset.
struct Part {
    dataset: usize,
    fork: DatasetName,
    files: Arc<Posix>,
    view: Recording,
}

impl Open {
    fn part(&self, dataset: usize) -> Option<&Part> {
        self.parts.iter().find(|part| part.dataset == dataset)
    }

    fn take_over(&self, reads: &[(usize, ReadSet)]) {
        for (dataset, reads) in reads {
            self.part(*dataset).unwrap().view.take_over(reads);
        }
    }
}

/// What was done in a transaction.
#[derive(Clone, Debug)]
enum Done {
    Did(SerialOperation, String),
    /// One began inside of it.
    Began(usize),
    /// The same, of which nothing but what it saw is left.
    Lost(Vec<Done>),
}

struct History {
    store: MemoryStore,
    /// The datasets: one or two.
    parents: Vec<Posix>,
    model: SerialModel,
    open: Vec<Open>,
    random: Random,
    /// A planted bug: what was read inside does not count if it is aborted or refused.
    drops_reads: bool,
    /// A planted bug: one dataset is committed before the other one is compared.
    commits_apart: bool,
    begun: usize,
    committed: usize,
    refused: usize,
    /// Committed inside of another one.
    inside: usize,
    /// Committed with changes in both datasets.
    both: usize,
}

fn name_of(dataset: usize) -> DatasetName {
    [DatasetName::root(), "other".parse().unwrap()][dataset].clone()
}

fn open_files(store: &MemoryStore, dataset: &DatasetName) -> Posix {
    let view = store.open(&Source::live(dataset.clone())).unwrap();
    Posix::new(view, PosixOptions { root_owner: CALLER, ..PosixOptions::default() }).unwrap()
}

impl History {
    fn new(seed: u64) -> History {
        History::over(1, seed)
    }

    /// One over so many datasets.
    fn over(datasets: usize, seed: u64) -> History {
        let store = MemoryStore::new();
        store.create(&name_of(1), &Properties::default()).unwrap();
        let mut parents = Vec::new();
        for dataset in 0..datasets {
            let parent = open_files(&store, &name_of(dataset));
            make_directories(dataset, &parent);
            parents.push(parent);
        }
        let mut history = History {
            store,
            parents,
            model: SerialModel::new(),
            open: Vec::new(),
            random: Random::new(seed),
            drops_reads: false,
            commits_apart: false,
            begun: 0,
            committed: 0,
            refused: 0,
            inside: 0,
            both: 0,
        };
        let paths = [("p", "a"), ("p", "b"), ("q", "a"), ("r", "a"), ("r", "b"), ("s", "a")];
        for path in paths.into_iter().take(3 * datasets) {
            history.do_plainly(SerialOperation::Write(path, b'0')).unwrap();
        }
        history
    }

    /// A plain operation is a transaction by itself.
    fn do_plainly(&mut self, operation: SerialOperation) -> Result<(), String> {
        let seen = run_on_files(&self.parents[operation.dataset()], operation);
        let expected = run_on_model(&mut self.model, operation);
        equal(&seen, &expected, &format!("plainly: {operation:?}"))
    }

    fn operation(&mut self) -> SerialOperation {
        let datasets = [0, 1];
        SerialOperation::random(&mut self.random, &datasets[..self.parents.len()])
    }

    fn begin(&mut self, reads: ReadSet, outer: Option<usize>) {
        self.begun += 1;
        let id = self.begun;
        let wanted = match self.parents.len() {
            1 => vec![0],
            _ => self.random.pick::<&[usize]>(&[&[0], &[1], &[0, 1], &[0, 1]]).to_vec(),
        };
        let parents: Vec<(usize, DatasetName)> = match outer {
            None => wanted.into_iter().map(|dataset| (dataset, name_of(dataset))).collect(),
            Some(at) => {
                let outer = &mut self.open[at];
                outer.done.push(Done::Began(id));
                outer.parts.iter().map(|part| (part.dataset, part.fork.clone())).collect()
            }
        };
        let name = |place| DatasetName::of_transaction_at(&id.to_string(), place).unwrap();
        let forks: Vec<DatasetName> = (0..parents.len()).map(name).collect();
        let begins = parents.iter().zip(&forks);
        let begins: Vec<ForkBegin<'_>> = begins
            .map(|((_, dataset), name)| ForkBegin { dataset, name, root_object: Ino::ROOT.0 })
            .collect();
        let store: &dyn Store = &self.store;
        store.begin_forks(&begins).unwrap();
        let mut parts = Vec::new();
        for ((dataset, _), fork) in parents.into_iter().zip(forks) {
            let files = Arc::new(open_files(&self.store, &fork));
            let shown: Arc<dyn FileSystem> = files.clone();
            let view = Recording::new(shown, Ino::ROOT, reads.clone());
            parts.push(Part { dataset, fork, files, view });
        }
        let outer = outer.map(|at| self.open[at].id);
        self.open.push(Open { id, outer, parts, done: Vec::new() });
    }

    fn place_of(&self, id: usize) -> usize {
        self.open.iter().position(|open| open.id == id).unwrap()
    }

    /// Takes one to be ended; all that is inside of it is aborted before.
    fn take(&mut self, id: usize) -> Open {
        while let Some(inner) = self.open.iter().find(|open| open.outer == Some(id)) {
            let inner = inner.id;
            self.abort(inner);
        }
        let open = self.open.swap_remove(self.place_of(id));
        open.parts.iter().for_each(|part| part.view.end());
        open
    }

    /// Takes the forks away; what was read in them.
    fn close(&self, parts: Vec<Part>) -> Vec<(usize, ReadSet)> {
        let (store, mut reads): (&dyn Store, _) = (&self.store, Vec::new());
        for Part { dataset, fork, files, view } in parts {
            reads.push((dataset, view.reads()));
            drop((files, view));
            store.end_fork(&fork).unwrap();
        }
        reads
    }

    fn abort(&mut self, id: usize) {
        let Open { outer, parts, done, .. } = self.take(id);
        let reads = self.close(parts);
        self.lose(outer, id, (&reads, done));
    }

    /// What is left of one that has not committed, or has changed nothing, is what it has seen.
    fn lose(
        &mut self,
        outer: Option<usize>,
        id: usize,
        (reads, done): (&[(usize, ReadSet)], Vec<Done>),
    ) {
        let Some(outer) = outer else { return };
        let at = self.place_of(outer);
        if !self.drops_reads {
            self.open[at].take_over(reads);
        }
        let began = |it: &&mut Done| matches!(it, Done::Began(begun) if *begun == id);
        *self.open[at].done.iter_mut().find(began).unwrap() = Done::Lost(done);
    }

    fn commit(&mut self, id: usize) -> Result<(), String> {
        let Open { outer, parts, done, .. } = self.take(id);
        let reports = self.merge(outer, &parts);
        let reads = self.close(parts);
        let is_applied = reports.iter().all(|report| report.applied);
        self.refused += usize::from(!is_applied);
        // One that has only read is where it began.
        let changed = reports.iter().filter(|report| !report.change_set.inodes.is_empty()).count();
        let is_there = (is_applied || self.commits_apart) && changed > 0;
        self.both += usize::from(is_applied && changed == 2);
        match outer {
            None => self.conclude(is_there, &done),
            Some(_) if !is_there => {
                self.lose(outer, id, (&reads, done));
                Ok(())
            }
            Some(outer) => {
                self.inside += 1;
                let at = self.place_of(outer);
                self.open[at].take_over(&reads);
                self.open[at].done.extend(done);
                Ok(())
            }
        }
    }

    /// Merges what was done in each dataset into what it is a fork of.
    fn merge(&self, outer: Option<usize>, parts: &[Part]) -> Vec<MergeReport> {
        let branches: Vec<Branch> = parts
            .iter()
            .map(|part| Branch::of(&self.store, &part.fork).unwrap().unwrap())
            .collect();
        let reads: Vec<ReadSet> = parts.iter().map(|part| part.view.reads()).collect();
        let overlaps: Vec<_> =
            reads.iter().map(|reads| |touched: &_| reads.overlaps(touched)).collect();
        let options: Vec<MergeOptions<'_>> = overlaps
            .iter()
            .map(|overlaps| MergeOptions { strict: Some(overlaps), ..MergeOptions::default() })
            .collect();
        let into: Vec<&Posix> = parts
            .iter()
            .map(|part| match outer {
                None => &self.parents[part.dataset],
                Some(outer) => &*self.open[self.place_of(outer)].part(part.dataset).unwrap().files,
            })
            .collect();
        let sides = branches.iter().map(|branch| MergeSides {
            dataset: &branch.parent.dataset,
            base: &branch.base,
            fork: &branch.fork,
            root: branch.root,
        });
        let merges: Vec<MergePart<'_>> = sides
            .zip(&options)
            .zip(&into)
            .map(|((sides, options), into)| MergePart { parent: *into, sides, options })
            .collect();
        if self.commits_apart || parts.len() == 1 {
            let one =
                |it: &MergePart<'_>| merge(it.parent, &self.store, it.sides, it.options).unwrap();
            return merges.iter().map(one).collect();
        }
        merge_together(&self.store, &merges, &|| Ok(hold_together(&into))).unwrap()
    }

    /// The model does what an outermost one has done, if that is there.
    fn conclude(&mut self, is_there: bool, done: &[Done]) -> Result<(), String> {
        if is_there {
            self.committed += 1;
            replay(&mut self.model, done)?;
        }
        let mut state = SerialModel::new();
        for (dataset, parent) in self.parents.iter().enumerate() {
            add_state_of(dataset, parent, &mut state);
        }
        equal(&state, &self.model, "after the end of one")
    }

    fn step(&mut self, reads: &ReadSet) -> Result<(), String> {
        let at = self.random.below(OPEN_MAX) as usize;
        match self.random.below(12) {
            0 | 1 if (self.open.len() as u64) < OPEN_MAX => {
                let outer = Some(at).filter(|at| *at < self.open.len());
                self.begin(reads.clone(), outer);
            }
            2 if at < self.open.len() => return self.commit(self.open[at].id),
            3 if at < self.open.len() && self.open[at].outer.is_some() => {
                return self.commit(self.open[at].id);
            }
            4 if at < self.open.len() && self.open[at].outer.is_some() => {
                self.abort(self.open[at].id);
            }
            5 => {
                let operation = self.operation();
                return self.do_plainly(operation);
            }
            _ if at < self.open.len() => {
                let operation = self.operation();
                let open = &mut self.open[at];
                let Some(part) = open.part(operation.dataset()) else { return Ok(()) };
                let seen = run_on_files(&part.view, operation);
                open.done.push(Done::Did(operation, seen));
            }
            _ => (),
        }
        Ok(())
    }
}

/// Does on the model what was done, and compares what it sees.
fn replay(model: &mut SerialModel, done: &[Done]) -> Result<(), String> {
    for one in done {
        match one {
            Done::Did(operation, seen) => {
                let expected = run_on_model(model, *operation);
                equal(seen, &expected, &format!("in a transaction: {operation:?}"))?;
            }
            Done::Began(_) => (),
            Done::Lost(inside) => replay(&mut model.clone(), inside)?,
        }
    }
    Ok(())
}

fn equal<T: PartialEq + std::fmt::Debug>(seen: &T, expected: &T, what: &str) -> Result<(), String> {
    match seen == expected {
        true => Ok(()),
        false => Err(format!("{what}: {seen:?} in place of {expected:?}")),
    }
}

/// Runs a history.
fn play(mut history: History, steps: usize, reads: &ReadSet) -> Result<History, String> {
    for step in 0..steps {
        history.step(reads).map_err(|error| format!("step {step}: {error}"))?;
    }
    while let Some(first) = history.open.first() {
        let first = first.id;
        history.commit(first).map_err(|error| format!("at the end: {error}"))?;
    }
    Ok(history)
}

#[test]
fn histories_are_those_of_transactions_one_after_the_other() {
    let (mut committed, mut refused, mut inside) = (0, 0, 0);
    for seed in 1..=300 {
        let history = play(History::new(seed), 100, &ReadSet::default());
        let history = history.unwrap_or_else(|error| panic!("seed {seed}, {error}"));
        committed += history.committed;
        refused += history.refused;
        inside += history.inside;
    }
    let told = format!("{committed} committed, {inside} inside of others, {refused} refused");
    assert!(committed > 300 && refused > 300 && inside > 150, "{told}");
}

#[test]
fn histories_over_two_datasets_are_those_of_transactions_one_after_the_other() {
    let (mut committed, mut refused, mut both) = (0, 0, 0);
    for seed in 1..=150 {
        let history = play(History::over(2, seed), 100, &ReadSet::default());
        let history = history.unwrap_or_else(|error| panic!("seed {seed}, {error}"));
        committed += history.committed;
        refused += history.refused;
        both += history.both;
    }
    let told = format!("{committed} committed, {both} in both datasets, {refused} refused");
    assert!(committed > 150 && refused > 75 && both > 50, "{told}");
}

/// A dataset that is committed before another one is compared is there without that.
#[test]
fn datasets_that_are_committed_apart_are_found_out() {
    let found = (1..=600).find_map(|seed| {
        let history = History { commits_apart: true, ..History::over(2, seed) };
        play(history, 100, &ReadSet::default()).err()
    });
    assert!(found.is_some(), "histories are as good with a commit of each dataset");
}

/// What one has seen inside of another counts for that other one, also when it is aborted.
#[test]
fn reads_inside_that_do_not_count_are_found_out() {
    let found = (1..=600).find_map(|seed| {
        let history = History { drops_reads: true, ..History::new(seed) };
        play(history, 100, &ReadSet::default()).err()
    });
    assert!(found.is_some(), "histories are as good without what was read inside");
}

/// What the model does not see of a kind, it cannot miss: rights and lists of attributes are not
/// among the operations.
#[test]
fn reads_that_are_not_noted_are_found_out() {
    for aspect in [Aspect::Name, Aspect::Listing, Aspect::Attributes, Aspect::Content] {
        let reads = ReadSet::omitting(aspect);
        let found = (1..=600).find_map(|seed| play(History::new(seed), 100, &reads).err());
        assert!(found.is_some(), "histories without notes of {aspect:?} are as good");
    }
}
