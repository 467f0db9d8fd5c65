//! Which datasets and snapshots of a store in memory there are, and which began as which.
//!
//! Each has a **parent**: the snapshot before it, or the one that it began as. A snapshot has at
//! most one **next** that goes on from it; whatever else has it as parent is a branch that began
//! as it: a clone, or what a rollback has left.

use super::dataset::MemoryDataset;
use crate::{DatasetKind, DatasetName, Error, Result, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// References to a dataset that is not open: the store's own.
const OWN_REFERENCES: usize = 1;

/// A number that is never used again.
pub(super) type Id = u64;

/// All datasets and snapshots.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) named: BTreeMap<Source, Arc<MemoryDataset>>,
    links: BTreeMap<Id, Links>,
    last_id: Id,
}

/// What one of them has to do with others.
#[derive(Clone, Debug, Default)]
struct Links {
    parent: Option<Id>,
    next: Option<Id>,
    /// Of a fork: the snapshot that was taken for it.
    forked: Option<Id>,
    holds: BTreeSet<String>,
}

impl History {
    pub(super) fn new_id(&mut self) -> Id {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn find(&self, source: &Source) -> Result<Arc<MemoryDataset>> {
        self.named.get(source).cloned().ok_or_else(|| Error::NoDataset(source.to_string()))
    }

    pub(super) fn snapshot(&self, source: &Source) -> Result<Arc<MemoryDataset>> {
        let found = self.find(source)?;
        if found.kind == DatasetKind::Snapshot {
            return Ok(found);
        }
        Err(Error::Invalid(format!("{source} is no snapshot: take one first")))
    }

    pub(super) fn refuse_taken(&self, source: &Source) -> Result<()> {
        match self.named.get(source) {
            Some(_) => Err(Error::DatasetExists(source.to_string())),
            None => Ok(()),
        }
    }

    /// A new dataset, empty or begun as a snapshot.
    pub(super) fn add_live(
        &mut self,
        name: &DatasetName,
        view: Arc<MemoryDataset>,
        origin: Option<Id>,
    ) {
        self.links.insert(view.id, Links { parent: origin, ..Links::default() });
        self.named.insert(Source::live(name.clone()), view);
    }

    /// A new fork, of the snapshot that was taken for it.
    pub(super) fn add_fork(&mut self, name: &DatasetName, view: Arc<MemoryDataset>, base: Id) {
        let id = view.id;
        self.add_live(name, view, Some(base));
        self.links_of(id).forked = Some(base);
    }

    /// Whether a dataset is a fork, and leads back to the snapshot that was taken for it.
    pub(super) fn is_fork(&self, id: Id) -> bool {
        let forked = self.links.get(&id).and_then(|links| links.forked);
        let origin = self.name_of(id).and_then(|name| self.origin(&name));
        forked.is_some_and(|base| self.name_of(base) == origin)
    }

    /// After a rollback: bases of merges that are younger than the snapshot are none any more, and
    /// neither are those before them that are still being read.
    pub(super) fn forget_bases(&mut self, dataset: &DatasetName, live: Id, to: Id) {
        let pair = |source: &Source| {
            let (taker, _) = source.merge_base()?;
            let of = self.named.get(&Source::live(source.dataset.clone()))?.id;
            Some((of.min(taker), of.max(taker)))
        };
        let is_later = |(source, view): &(&Source, &Arc<MemoryDataset>)| {
            let taker = source.merge_base().map(|(taker, _)| taker);
            (taker == Some(live) || source.dataset == *dataset) && view.id > to
        };
        let lost = self.named.iter().filter(is_later).filter_map(|(source, _)| pair(source));
        let lost: BTreeSet<(Id, Id)> = lost.collect();
        let is_lost = |source: &&Source| pair(source).is_some_and(|pair| lost.contains(&pair));
        let gone: Vec<Source> = self.named.keys().filter(is_lost).cloned().collect();
        gone.iter().for_each(|source| self.remove(source));
    }

    /// A new snapshot between a dataset and its parent.
    pub(super) fn add_snapshot(&mut self, source: Source, view: Arc<MemoryDataset>, live: Id) {
        let parent = self.parent(live);
        self.go_on(parent, live, Some(view.id));
        let links = Links { parent, next: Some(live), ..Links::default() };
        self.links.insert(view.id, links);
        self.links_of(live).parent = Some(view.id);
        self.named.insert(source, view);
    }

    /// The dataset goes on from `to`; the snapshot before it, just taken, is the last of its line.
    pub(super) fn roll_back(&mut self, live: Id, to: Id) {
        if let Some(kept) = self.parent(live) {
            self.links_of(kept).next = None;
        }
        self.links_of(live).parent = Some(to);
        self.links_of(to).next = Some(live);
    }

    /// What a dataset or snapshot goes on from or began as.
    pub(super) fn parent_of(&self, source: &Source) -> Option<Source> {
        let id = self.named.get(source)?.id;
        self.name_of(self.parent(id)?)
    }

    /// The first snapshot of another dataset that a dataset leads back to.
    pub(super) fn origin(&self, source: &Source) -> Option<Source> {
        let mut at = self.named.get(source)?.id;
        while let Some(parent) = self.parent(at) {
            let name = self.name_of(parent)?;
            if name.dataset != source.dataset {
                return Some(name);
            }
            at = parent;
        }
        None
    }

    pub(super) fn holds(&self, id: Id) -> Vec<String> {
        self.links.get(&id).map_or_else(Vec::new, |links| links.holds.iter().cloned().collect())
    }

    pub(super) fn hold(&mut self, id: Id, tag: &str) -> bool {
        self.links_of(id).holds.insert(tag.to_owned())
    }

    pub(super) fn release(&mut self, id: Id, tag: &str) -> bool {
        self.links_of(id).holds.remove(tag)
    }

    /// Gives the origin of `name`, and those of the same dataset before it, to `name`.
    pub(super) fn promote(&mut self, name: &DatasetName) -> Result<()> {
        let live = Source::live(name.clone());
        let promoted = self.find(&live)?.id;
        let Some(origin) = self.origin(&live) else {
            return Err(Error::Invalid(format!("{name} is no clone")));
        };
        let mut taken = Vec::new();
        let mut at = self.named.get(&origin).map(|view| view.id);
        while let Some(source) = at.and_then(|id| self.name_of(id)) {
            if source.dataset != origin.dataset {
                break;
            }
            let renamed = Source { dataset: name.clone(), ..source.clone() };
            self.refuse_taken(&renamed)?;
            at = at.and_then(|id| self.parent(id));
            taken.push((source, renamed));
        }
        // What leads from the clone to its origin goes on from it now.
        let mut first = promoted;
        let origin_id = self.find(&origin)?.id;
        while let Some(parent) = self.parent(first).filter(|parent| *parent != origin_id) {
            first = parent;
        }
        let mut child = first;
        for (source, renamed) in taken {
            let view = self.named.remove(&source).expect("it was found");
            self.links_of(view.id).next = Some(child);
            child = view.id;
            self.named.insert(renamed, view);
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Source, to: &Source) -> Result<()> {
        self.find(from)?;
        let all: Vec<Source> = self.goes_with(from);
        for source in all {
            let view = self.named.remove(&source).expect("it was listed");
            let renamed = match &from.snapshot {
                Some(_) => to.clone(),
                None => Source { dataset: to.dataset.clone(), ..source },
            };
            self.named.insert(renamed, view);
        }
        Ok(())
    }

    /// What a destruction takes: the source, its snapshots, and bases of forks that no fork
    /// needs then.
    pub(super) fn all_that_goes(&self, sources: &[Source]) -> Result<Vec<Source>> {
        sources.iter().try_for_each(|source| self.find(source).map(|_| ()))?;
        let mut goes: Vec<Source> =
            sources.iter().flat_map(|source| self.goes_with(source)).collect();
        let whole = sources.iter().filter(|source| source.snapshot.is_none());
        let takers: BTreeSet<Id> = whole.map(|source| self.named[source].id).collect();
        let is_base_of =
            |other: &&Source| other.merge_base().is_some_and(|(taker, _)| takers.contains(&taker));
        goes.extend(self.named.keys().filter(is_base_of).cloned());
        goes.sort();
        goes.dedup();
        while let Some(base) = self.unneeded_base(&goes) {
            goes.push(base);
        }
        goes.sort();
        let ids: BTreeSet<Id> = goes.iter().map(|source| self.named[source].id).collect();
        for source in &goes {
            self.refuse_in_use(source, &ids)?;
        }
        Ok(goes)
    }

    pub(super) fn remove(&mut self, source: &Source) {
        let Some(id) = self.named.get(source).map(|view| view.id) else { return };
        let heir = self.heir(id);
        self.named.remove(source);
        let gone = self.links.remove(&id).unwrap_or_default();
        if let Some(heir) = heir.filter(|heir| self.links.contains_key(heir)) {
            self.links_of(heir).parent = gone.parent;
        }
        self.go_on(gone.parent, id, heir);
    }

    fn goes_with(&self, source: &Source) -> Vec<Source> {
        let goes = |other: &&Source| {
            *other == source || (source.snapshot.is_none() && source.dataset == other.dataset)
        };
        self.named.keys().filter(goes).cloned().collect()
    }

    fn unneeded_base(&self, goes: &[Source]) -> Option<Source> {
        let gone: BTreeSet<Id> = goes.iter().map(|source| self.named[source].id).collect();
        let is_unneeded = |base: &Source| {
            let view = &self.named[base];
            base.is_fork_base()
                && !gone.contains(&view.id)
                && Arc::strong_count(view) == OWN_REFERENCES
                && self.holds(view.id).is_empty()
                && self.branches(view.id).iter().all(|branch| self.goes_wholly(*branch, &gone))
        };
        let parents = gone.iter().filter_map(|id| self.parent(*id));
        parents.filter_map(|id| self.name_of(id)).find(is_unneeded)
    }

    /// Whether nothing goes on from a line that goes: the first of a fork's snapshots may be taken
    /// away, and the fork still began as its base.
    fn goes_wholly(&self, first: Id, gone: &BTreeSet<Id>) -> bool {
        let mut at = Some(first);
        while let Some(id) = at {
            if !gone.contains(&id) {
                return false;
            }
            at = self.links.get(&id).and_then(|links| links.next);
        }
        true
    }

    fn refuse_in_use(&self, source: &Source, goes: &BTreeSet<Id>) -> Result<()> {
        let in_use = |holder: String| Err(Error::InUse { name: source.to_string(), holder });
        let view = &self.named[source];
        if Arc::strong_count(view) > OWN_REFERENCES {
            return in_use("it is open".to_owned());
        }
        if let Some(tag) = self.holds(view.id).first() {
            return in_use(format!("it is held ({tag})"));
        }
        let next = self.links.get(&view.id).and_then(|links| links.next);
        let stay: Vec<(bool, Id)> = self
            .children(view.id)
            .into_iter()
            .flat_map(|child| self.stay(child, goes).into_iter().map(move |id| (child, id)))
            .map(|(child, id)| (next == Some(child), id))
            .collect();
        if let [(is_next, only)] = stay[..]
            && (is_next || self.dataset_of(only) == self.dataset_of(view.id))
        {
            return Ok(());
        }
        match stay.iter().find(|(is_next, _)| !is_next).and_then(|(_, id)| self.name_of(*id)) {
            Some(branch) => in_use(format!("{branch} began as it")),
            None => Ok(()),
        }
    }

    /// The first that stay of a line: itself, or what comes after it.
    fn stay(&self, id: Id, goes: &BTreeSet<Id>) -> Vec<Id> {
        match goes.contains(&id) {
            false => vec![id],
            true => self.children(id).into_iter().flat_map(|id| self.stay(id, goes)).collect(),
        }
    }

    fn children(&self, id: Id) -> Vec<Id> {
        let of_it = self.links.iter().filter(|(_, links)| links.parent == Some(id));
        of_it.map(|(id, _)| *id).collect()
    }

    fn dataset_of(&self, id: Id) -> Option<DatasetName> {
        self.name_of(id).map(|source| source.dataset)
    }

    /// What takes over from a snapshot when it goes: the next one, or the only one of the same
    /// dataset that began as it.
    fn heir(&self, id: Id) -> Option<Id> {
        let next = self.links.get(&id).and_then(|links| links.next);
        next.or(match self.children(id)[..] {
            [only] if self.dataset_of(only) == self.dataset_of(id) => Some(only),
            _ => None,
        })
    }

    fn branches(&self, id: Id) -> Vec<Id> {
        let next = self.heir(id);
        let is_branch =
            |(child, links): &(&Id, &Links)| links.parent == Some(id) && next != Some(**child);
        self.links.iter().filter(is_branch).map(|(child, _)| *child).collect()
    }

    /// What went on from `parent` to `from` goes on to `to`.
    fn go_on(&mut self, parent: Option<Id>, from: Id, to: Option<Id>) {
        if let Some(links) = parent.and_then(|parent| self.links.get_mut(&parent))
            && links.next == Some(from)
        {
            links.next = to;
        }
    }

    fn parent(&self, id: Id) -> Option<Id> {
        self.links.get(&id).and_then(|links| links.parent)
    }

    fn links_of(&mut self, id: Id) -> &mut Links {
        self.links.entry(id).or_default()
    }

    fn name_of(&self, id: Id) -> Option<Source> {
        self.named.iter().find(|(_, view)| view.id == id).map(|(source, _)| source.clone())
    }
}
