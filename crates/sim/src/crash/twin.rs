//! A pool under test, and beside it the models that say what it should hold.

use super::action::{Action, Administration, Change, Hand, Transaction};
use super::digest::{Digest, tree_digest};
use super::target::Mounted;
use super::transaction::OpenTransaction;
use crate::pair::{Outcome, Pair};
use marram_model::{Decisions, Model};
use marram_vfs::{Error, FileSystem, Ino};
use std::collections::BTreeMap;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The root dataset.
pub(crate) const ROOT: &str = "root";
/// What the clone begins as.
const ORIGIN: &str = "root@s";
/// The clone.
const CLONE: &str = "c";
/// The fork, and what it begins as.
const FORK: &str = "k";
const BASE: &str = "root@fork:k";
/// What was there before a rollback.
const BEFORE: &str = "root@before";

/// All datasets and snapshots by name, as the model has them.
pub(super) type Sources = BTreeMap<&'static str, Model>;

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

/// The digest that a pool with these has.
pub(super) fn model_digest(sources: &Sources) -> Result<Digest, String> {
    sources.iter().try_fold(0, |sum, (name, model)| Ok(add_source(sum, name, tree_digest(model)?)))
}

fn add_source(sum: Digest, name: &str, tree: Digest) -> Digest {
    let name = xxh3_128_with_seed(name.as_bytes(), 1);
    sum.wrapping_add(xxh3_128_with_seed(&(name ^ tree).to_le_bytes(), 2))
}

/// What an administrative operation does to the sources.
enum Effect {
    Add(Vec<(&'static str, Model)>),
    Remove(Vec<&'static str>),
}

/// Real file systems and models.
pub(super) struct Twin {
    mounted: Arc<dyn Mounted>,
    files: Arc<dyn FileSystem>,
    pair: Pair,
    /// Snapshots and the clone as the model has them.
    others: Sources,
    /// The clone and the fork, open.
    clone_files: Option<Arc<dyn FileSystem>>,
    fork_files: Option<Arc<dyn FileSystem>>,
    /// The inode that is held open: in the real file system, and in the model.
    held: (Option<Ino>, Option<Ino>),
    held_in_clone: (Option<Ino>, Option<Ino>),
    held_in_fork: (Option<Ino>, Option<Ino>),
    /// The root dataset has gone back: what began as its snapshots is in several lines, of which
    /// the model knows nothing, so a refusal to destroy one is taken as it is.
    went_back: bool,
    /// It has gone back since the fork was made: the model tells inodes apart by their numbers
    /// alone, so it cannot say what a merge of that fork should do.
    fork_is_old: bool,
    /// The transaction that is open.
    transaction: Option<OpenTransaction>,
    /// How many have begun.
    transactions: u64,
    /// What the administrative operation that is under way does, unless it is refused.
    coming: Option<Effect>,
}

impl Twin {
    /// Both hold the same.
    pub(super) fn new(mounted: Arc<dyn Mounted>, model: Model) -> Result<Twin, String> {
        let files = mounted.open(ROOT)?;
        Ok(Twin {
            pair: Pair::new(Arc::clone(&files), model),
            files,
            others: Sources::new(),
            clone_files: None,
            fork_files: None,
            held: (None, None),
            held_in_clone: (None, None),
            held_in_fork: (None, None),
            went_back: false,
            fork_is_old: false,
            transaction: None,
            transactions: 0,
            coming: None,
            mounted,
        })
    }

    /// Does an action on both; returns whether both did it.
    pub(super) fn act(&mut self, action: &Action) -> Result<bool, String> {
        match action {
            Action::Root(change) => both(
                (&*self.files, &mut self.held.0),
                (self.pair.model(), &mut self.held.1),
                change,
            ),
            Action::InClone(change) => {
                let (Some(files), Some(model)) = (&self.clone_files, self.others.get(CLONE)) else {
                    return Ok(false);
                };
                let held = &mut self.held_in_clone;
                both((&**files, &mut held.0), (model, &mut held.1), change)
            }
            Action::InFork(change) => {
                let (Some(files), Some(model)) = (&self.fork_files, self.others.get(FORK)) else {
                    return Ok(false);
                };
                let held = &mut self.held_in_fork;
                both((&**files, &mut held.0), (model, &mut held.1), change)
            }
            Action::InTransaction(change) => match &mut self.transaction {
                Some(transaction) => transaction.change(ROOT, change),
                None => Ok(false),
            },
            Action::InTransactionOnClone(change) => match &mut self.transaction {
                Some(transaction) => transaction.change(CLONE, change),
                None => Ok(false),
            },
            Action::Transact(Transaction::Begin) => self.begin_transaction(false),
            Action::Transact(Transaction::BeginOnBoth) => self.begin_transaction(true),
            Action::Transact(Transaction::Commit) => self.commit_transaction(),
            Action::Transact(Transaction::Abort) => self.end_transaction(),
            Action::Administer(Administration::Merge) => self.merge(),
            Action::Administer(Administration::Rollback) => self.roll_back(),
            Action::Administer(Administration::DirectoryRollback(path)) => {
                self.roll_back_directory(path)
            }
            Action::Drawn(operation) => {
                self.pair.apply(operation).map(|outcome| outcome == Outcome::Done)
            }
            Action::Commit | Action::Administer(_) => {
                let work = self.begin(action)?;
                self.end(action, work())
            }
            Action::Begin { .. } | Action::End(_) => Ok(false),
        }
    }

    /// Begins what can be done by another thread: returns what that has to do. To be followed by
    /// [`Twin::end`].
    pub(super) fn begin(
        &mut self,
        action: &Action,
    ) -> Result<impl FnOnce() -> Result<(), String> + Send + use<>, String> {
        if !action.can_begin() {
            return Err(format!("{action:?} cannot be begun"));
        }
        if let Action::Administer(administration) = action {
            self.coming = self.effect(*administration);
            match *administration {
                Administration::Destroy(CLONE) => {
                    // It would be in use.
                    if self.transaction.as_ref().is_some_and(|it| it.datasets().contains(&CLONE)) {
                        self.end_transaction()?;
                    }
                    self.clone_files = None;
                    self.held_in_clone = (None, None);
                }
                Administration::Destroy(FORK) => {
                    self.fork_files = None;
                    self.held_in_fork = (None, None);
                }
                Administration::Fork if self.coming.is_some() => self.fork_is_old = false,
                _ => (),
            }
        }
        let (mounted, files) = (Arc::clone(&self.mounted), Arc::clone(&self.files));
        let action = action.clone();
        Ok(move || match action {
            Action::Commit => mounted.commit(),
            Action::Administer(Administration::Snapshot(source)) => mounted.snapshot(source),
            Action::Administer(Administration::Clone) => mounted.clone_snapshot("s", CLONE),
            Action::Administer(Administration::Destroy(source)) => mounted.destroy(source),
            Action::Administer(Administration::Fork) => mounted.fork(FORK),
            _ => files.sync_all().map_err(|error| format!("{error:?}")),
        })
    }

    /// What was begun is done, with this result; returns whether both did it.
    pub(super) fn end(
        &mut self,
        action: &Action,
        done: Result<(), String>,
    ) -> Result<bool, String> {
        if !matches!(action, Action::Administer(_)) {
            return done.map(|()| true);
        }
        match (self.coming.take(), done) {
            (None, Ok(())) => Err("was done; the model refuses it".to_owned()),
            (None, Err(_)) => Ok(false),
            (Some(_), Err(_)) if self.went_back && is_destruction(action) => {
                self.open_others().map(|()| false)
            }
            (Some(_), Err(reason)) => Err(reason),
            (Some(effect), Ok(())) => {
                effect.apply(&mut self.others);
                self.open_others().map(|()| true)
            }
        }
    }

    /// Opens the clone and the fork, if they are there.
    fn open_others(&mut self) -> Result<(), String> {
        for (name, files) in [(CLONE, &mut self.clone_files), (FORK, &mut self.fork_files)] {
            if self.others.contains_key(name) && files.is_none() {
                *files = Some(self.mounted.open(name)?);
            }
        }
        Ok(())
    }

    /// Whether a transaction is open, or one was: something may be left of that.
    pub(super) fn has_had_transactions(&self) -> bool {
        self.transactions > 0
    }

    fn begin_transaction(&mut self, is_on_both: bool) -> Result<bool, String> {
        if self.transaction.is_some() {
            return Ok(false);
        }
        self.transactions += 1;
        let id = self.transactions.to_string();
        let clone = self.others.get(CLONE).filter(|_| is_on_both).map(|model| (CLONE, model));
        let parents: Vec<(&'static str, &Model)> =
            std::iter::once((ROOT, self.pair.model())).chain(clone).collect();
        self.transaction = OpenTransaction::begin(&*self.mounted, id, &parents)?;
        Ok(self.transaction.is_some())
    }

    /// Commits the transaction on both, if there is one.
    fn commit_transaction(&mut self) -> Result<bool, String> {
        let Some(transaction) = self.transaction.take() else { return Ok(false) };
        let mut parents = Vec::new();
        for dataset in transaction.datasets() {
            let other = || self.others.get(dataset).ok_or("its dataset is gone from the model");
            parents.push((dataset, if dataset == ROOT { self.pair.model() } else { other()? }));
        }
        let committed = transaction.commit(&*self.mounted, &parents)?;
        self.pair.compare().map(|()| committed)
    }

    fn end_transaction(&mut self) -> Result<bool, String> {
        let Some(transaction) = self.transaction.take() else { return Ok(false) };
        transaction.end(&*self.mounted).map(|()| true)
    }

    /// Merges the fork on both, if there is one.
    fn merge(&mut self) -> Result<bool, String> {
        let (Some(base), Some(fork)) = (self.others.get(BASE), self.others.get(FORK)) else {
            return Ok(false);
        };
        if self.fork_is_old {
            return Ok(false);
        }
        let merged = self.mounted.merge(FORK)?;
        let clashes = self.pair.model().merge(base, fork, &Decisions::new());
        match (merged, clashes.is_empty()) {
            (true, false) => Err(format!("was done; the model has the conflicts {clashes:?}")),
            (false, true) => Err("was refused; the model has no conflict".to_owned()),
            (merged, _) => self.pair.compare().map(|()| merged),
        }
    }

    /// Goes back to the snapshot on both, if there is one. What is open is let go of before:
    /// whether it is there afterwards is not what is asked here.
    fn roll_back(&mut self) -> Result<bool, String> {
        let there = |name: &str| self.others.contains_key(name);
        if !there(ORIGIN) || there(BEFORE) {
            return Ok(false);
        }
        self.pair.let_go();
        let (files, model) = (&*self.files, self.pair.model());
        both((files, &mut self.held.0), (model, &mut self.held.1), &Change::LetGo)?;
        self.mounted.roll_back("s", "before")?;
        self.others.insert(BEFORE, self.pair.model().snapshot());
        self.pair = Pair::new(Arc::clone(&self.files), self.others[ORIGIN].fork());
        (self.went_back, self.fork_is_old) = (true, true);
        // The model cannot say what its commit should do, either.
        self.end_transaction()?;
        self.pair.compare().map(|()| true)
    }

    /// Lets a directory go back on both, if it is there and has something to go back to. After a
    /// rollback of the dataset the model cannot tell inodes of the two states apart.
    fn roll_back_directory(&mut self, path: &str) -> Result<bool, String> {
        let Some(past) = self.others.get(ORIGIN).filter(|_| !self.went_back) else {
            return Ok(false);
        };
        let model = self.pair.model();
        let real = Hand { files: &*self.files, held: &mut None }.find(path);
        let expected = Hand { files: model, held: &mut None }.find(path);
        let (Ok(real), Ok(expected)) = (&real, &expected) else {
            return match (&real, &expected) {
                (Err(_), Err(_)) => Ok(false),
                _ => Err(format!("{path} is {real:?}; in the model {expected:?}")),
            };
        };
        let done = self.mounted.roll_back_directory(*real, "s")?;
        match (done, model.roll_back_directory(past, *expected)) {
            (true, Ok(())) => self.pair.meet_anew().map(|()| true),
            (false, Err(_)) => Ok(false),
            (done, expected) => Err(format!("was done: {done}; the model gives {expected:?}")),
        }
    }

    /// What an administrative operation would do; nothing if it has to be refused.
    fn effect(&self, administration: Administration) -> Option<Effect> {
        let is_there = |source: &str| self.others.contains_key(source);
        match administration {
            Administration::Snapshot(source) => {
                let (dataset, _) = source.split_once('@')?;
                let kept = match dataset {
                    ROOT => self.pair.model(),
                    _ => self.others.get(dataset)?,
                };
                (!is_there(source)).then(|| Effect::Add(vec![(source, kept.snapshot())]))
            }
            Administration::Clone => {
                let origin = self.others.get(ORIGIN)?;
                (!is_there(CLONE)).then(|| Effect::Add(vec![(CLONE, origin.fork())]))
            }
            Administration::Fork => {
                let fork = self.pair.model().snapshot();
                let base = fork.snapshot();
                (!is_there(FORK)).then(|| Effect::Add(vec![(FORK, fork), (BASE, base)]))
            }
            Administration::Destroy(FORK) => {
                is_there(FORK).then(|| Effect::Remove(vec![FORK, BASE]))
            }
            Administration::Merge
            | Administration::Rollback
            | Administration::DirectoryRollback(_) => None,
            Administration::Destroy(ORIGIN) if is_there(CLONE) => None,
            Administration::Destroy(CLONE) => is_there(CLONE).then(|| {
                let names = self.others.keys().copied();
                Effect::Remove(names.filter(|name| name.starts_with(CLONE)).collect())
            }),
            Administration::Destroy(source) => {
                is_there(source).then(|| Effect::Remove(vec![source]))
            }
        }
    }

    /// What the pool holds as the model has it; and what it holds with the administrative operation
    /// that is under way, if one is.
    pub(super) fn sources(&self) -> (Sources, Option<Sources>) {
        let mut now = Sources::from([(ROOT, self.pair.model().snapshot())]);
        now.extend(self.others.iter().map(|(name, model)| (*name, model.snapshot())));
        let coming = self.coming.as_ref().map(|effect| {
            let copies = now.iter().map(|(name, model)| (*name, model.snapshot()));
            let mut coming: Sources = copies.collect();
            effect.apply(&mut coming);
            coming
        });
        (now, coming)
    }
}

impl Effect {
    fn apply(&self, sources: &mut Sources) {
        match self {
            Effect::Add(added) => {
                sources.extend(added.iter().map(|(name, model)| (*name, model.fork())));
            }
            Effect::Remove(names) => sources.retain(|name, _| !names.contains(name)),
        }
    }
}

fn is_destruction(action: &Action) -> bool {
    matches!(action, Action::Administer(Administration::Destroy(_)))
}

/// A file system and what is held open in it.
type At<'a> = (&'a dyn FileSystem, &'a mut Option<Ino>);

pub(super) fn both(real: At<'_>, model: At<'_>, change: &Change) -> Result<bool, String> {
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
