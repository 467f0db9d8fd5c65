//! What a destruction takes, and which state takes over from what goes.
//!
//! Several are destroyed together as one step: what only they hold comes back, also what none of
//! them holds alone. Whatever goes and has something after it that stays lies on a way to that:
//! its **heir**. All that goes on the way to one heir is a **chain**. What goes and has nothing
//! after it that stays is the **last** of a line by the time that it goes.
//!
//! The heir is found beyond everything that goes. A search that stopped at a next state that goes
//! too would take a base of forks for the last of its line. Blocks that the dataset still uses
//! would then be given back.

use super::list::holds;
use super::merge_bases;
use crate::memtable::dataset::Dataset;
use crate::state::State;
use crate::state::records::is_hidden;
use crate::state::records::{Records, parent_of};
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_store::{DatasetName, Error, Result, Source};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// What the running pool has of datasets and snapshots.
type Datasets = BTreeMap<u64, Arc<Dataset>>;

/// What goes before one that stays, the oldest first, each the parent of the next.
pub(crate) struct Chain {
    pub(crate) gone: Vec<Arc<DatasetRecord>>,
    pub(crate) heir: Arc<DatasetRecord>,
}

/// What a destruction takes.
pub(crate) struct Plan {
    goes: BTreeMap<u64, Arc<DatasetRecord>>,
    /// Each before what it began as.
    pub(crate) lasts: Vec<Arc<DatasetRecord>>,
    pub(crate) chains: Vec<Chain>,
}

impl Plan {
    /// Plans to destroy these: snapshots, and datasets with all of theirs; with the last fork that
    /// began as it goes its base.
    ///
    /// # Errors
    /// One that is not there; the root dataset; something that stays began as what would go.
    pub(crate) fn new(pool: &State, sources: &[Source]) -> Result<Plan> {
        let records = Arc::clone(&pool.records.read());
        Plan::under(pool, &records, sources)
    }

    /// The same, by the records of one moment.
    pub(crate) fn under(pool: &State, records: &Records, sources: &[Source]) -> Result<Plan> {
        let datasets = pool.datasets.read();
        let mut plan = Plan { goes: BTreeMap::new(), lasts: Vec::new(), chains: Vec::new() };
        for source in sources {
            plan.take(records, source)?;
        }
        while plan.take_from_trash(records) || plan.take_bases(&datasets, records)? {}
        plan.find_heirs(records)?;
        Ok(plan)
    }

    /// All that goes.
    pub(crate) fn goes(&self) -> impl Iterator<Item = &Arc<DatasetRecord>> {
        self.goes.values()
    }

    /// The names of all that goes, sorted; not of what is out of sight already.
    pub(crate) fn sources(&self) -> Result<Vec<Source>> {
        let seen = self.goes.values().filter(|record| !is_hidden(record));
        let mut sources: Vec<Source> =
            seen.map(|record| record.name.parse()).collect::<Result<_>>()?;
        sources.sort();
        Ok(sources)
    }

    fn take(&mut self, records: &Records, source: &Source) -> Result<()> {
        let name = source.to_string();
        let record = records.named(&name).ok_or_else(|| Error::NoDataset(name.clone()))?;
        if name == "root" {
            let reason = "the root dataset cannot be destroyed: delete what is in it".to_owned();
            return Err(Error::Invalid(reason));
        }
        self.goes.insert(record.id, record.clone());
        let of_it = records.snapshots(record.id);
        self.goes.extend(of_it.map(|snapshot| (snapshot.id, snapshot.clone())));
        // What others have kept for merges with it.
        let bases = merge_bases::taken_in(records, record.id);
        self.goes.extend(bases.map(|base| (base.id, base.clone())));
        Ok(())
    }

    /// Takes what is only kept for an undo and began as something that goes; returns whether there
    /// was any.
    fn take_from_trash(&mut self, records: &Records) -> bool {
        let mut found = Vec::new();
        for gone in self.goes.values() {
            for child in records.children(gone.id).filter(|child| child.id != gone.next) {
                let of_it = match child.state {
                    DatasetState::Snapshot => records.get(child.parent).unwrap_or(child),
                    _ => child,
                };
                if is_hidden(of_it) {
                    found.push(of_it.clone());
                    found.extend(records.snapshots(of_it.id).cloned());
                } else {
                    found.extend(hidden_line(records, child));
                }
            }
        }
        let before = self.goes.len();
        self.goes.extend(found.into_iter().map(|record| (record.id, record)));
        self.goes.len() > before
    }

    /// Takes the bases of forks that nothing needs when this goes; returns whether there were any.
    fn take_bases(&mut self, datasets: &Datasets, records: &Records) -> Result<bool> {
        let mut unneeded = Vec::new();
        for gone in self.goes.values() {
            let Some(base) = records.get(parent_of(gone)) else { continue };
            let is_needed = self.goes.contains_key(&base.id)
                || !base.name.parse::<Source>()?.is_fork_base()
                || base.holds > 0
                || is_open(datasets, base.id)
                || !self.lines_go(records, base);
            if !is_needed {
                unneeded.push((base.id, base.clone()));
            }
        }
        let found = !unneeded.is_empty();
        self.goes.extend(unneeded);
        Ok(found)
    }

    /// Whether every line that began as a snapshot goes wholly.
    fn lines_go(&self, records: &Records, base: &DatasetRecord) -> bool {
        let began = records.children(base.id).filter(|child| child.id != base.next);
        let mut left: Vec<u64> = began.map(|child| child.id).collect();
        while let Some(id) = left.pop() {
            if !self.goes.contains_key(&id) {
                return false;
            }
            left.extend(records.children(id).map(|child| child.id));
        }
        true
    }

    /// Sorts what goes into chains and lasts.
    fn find_heirs(&mut self, records: &Records) -> Result<()> {
        // What is younger has a greater number; a dataset has nothing after it.
        let mut goes: Vec<_> = self.goes.values().cloned().collect();
        goes.sort_by_key(|gone| Reverse((gone.state == DatasetState::Live, gone.id)));
        let mut heirs: HashMap<u64, u64> = HashMap::new();
        let mut chains: BTreeMap<u64, Vec<Arc<DatasetRecord>>> = BTreeMap::new();
        for gone in goes {
            match self.heir_of(records, &gone, &heirs)? {
                None => self.lasts.push(gone),
                Some(heir) => {
                    heirs.insert(gone.id, heir);
                    chains.entry(heir).or_default().push(gone);
                }
            }
        }
        for (heir, mut gone) in chains {
            gone.reverse();
            let heir = records.get(heir).cloned();
            let heir = heir.ok_or_else(|| Error::NoDataset("what takes over".to_owned()))?;
            self.chains.push(Chain { gone, heir });
        }
        Ok(())
    }

    /// What stays and takes over from `gone`, given those of what comes after it.
    fn heir_of(
        &self,
        records: &Records,
        gone: &DatasetRecord,
        heirs: &HashMap<u64, u64>,
    ) -> Result<Option<u64>> {
        let mut stay = Vec::new();
        for child in records.children(gone.id) {
            let stays = match self.goes.contains_key(&child.id) {
                true => heirs.get(&child.id).copied(),
                false => Some(child.id),
            };
            stay.extend(stays.map(|stays| (child.id == gone.next, stays)));
        }
        let of_gone = |id: u64| match records.get(id) {
            Some(other) => other.parent == gone.parent || other.id == gone.parent,
            None => false,
        };
        match stay[..] {
            [] => Ok(None),
            [(is_next, only)] if is_next || of_gone(only) => Ok(Some(only)),
            _ => {
                let began = stay.iter().filter(|(is_next, _)| !is_next);
                // Several lines of one dataset have one name.
                let names: BTreeSet<&str> =
                    began.map(|(_, id)| line_name(records, gone, *id)).collect();
                let holder = what_began(&names.into_iter().collect::<Vec<_>>());
                Err(Error::InUse { name: name_in_sight(gone)?, holder })
            }
        }
    }

    /// **Asked before anything is frozen**: what is written to a dataset after that, through a view
    /// that was open, goes into frames that the commit does not include. If the dataset went with
    /// the commit, a replay of them would find no dataset, and the pool could not be opened.
    pub(crate) fn refuse_in_use(&self, pool: &State) -> Result<()> {
        let datasets = pool.datasets.read();
        for gone in self.goes.values() {
            let in_use = |holder: String| Err(Error::InUse { name: gone.name.clone(), holder });
            if is_open(&datasets, gone.id) {
                return in_use("it is mounted; unmount it first".to_owned());
            }
            if datasets.get(&gone.id).is_some_and(|it| it.doubt.is_there()) {
                return Err(pool.in_doubt(gone.id));
            }
            if gone.holds > 0 {
                let tags: Vec<&str> = holds(gone).collect();
                return in_use(format!("it is held ({}); release it first", tags.join(", ")));
            }
        }
        Ok(())
    }
}

/// A line with all that began as a part of it, if that is only kept for an undo; nothing if some
/// of it is not: a line is taken wholly, or stays and is in the way.
fn hidden_line(records: &Records, first: &Arc<DatasetRecord>) -> Vec<Arc<DatasetRecord>> {
    let mut line = vec![first.clone()];
    let mut at = 0;
    while let Some(record) = line.get(at).cloned() {
        if !is_hidden(&record) {
            return Vec::new();
        }
        line.extend(records.children(record.id).cloned());
        at += 1;
    }
    line
}

/// What of these names is in the way, and what to do about it.
fn what_began(names: &[&str]) -> String {
    let receives = |name: &&str| name.parse().is_ok_and(|name: DatasetName| name.is_receiving());
    let joined_names = names.join(", ");
    if names.iter().any(receives) {
        return format!(
            "{joined_names} goes on from it, a stream that is being received or of which a part is \
             kept; end or drop that first"
        );
    }
    format!("{joined_names} began as it; destroy that first, or promote it")
}

/// What users know it as: the base of a fork, which no list shows, as the dataset that was forked.
fn name_in_sight(gone: &DatasetRecord) -> Result<String> {
    let source: Source = gone.name.parse()?;
    Ok(if source.is_fork_base() { source.dataset.to_string() } else { gone.name.clone() })
}

/// The name of the dataset, or of the snapshot that a rollback has left, which began as `gone`.
fn line_name<'r>(records: &'r Records, gone: &DatasetRecord, first: u64) -> &'r str {
    let Some(first) = records.get(first) else { return "another" };
    let of_gone = first.parent == gone.parent || first.state != DatasetState::Snapshot;
    let dataset = records.get(first.parent).filter(|_| !of_gone).unwrap_or(first);
    dataset.name.as_str()
}

fn is_open(datasets: &Datasets, id: u64) -> bool {
    datasets.get(&id).is_some_and(|dataset| dataset.is_open())
}
