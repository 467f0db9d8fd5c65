//! A store in plain memory: the fake beside the real ones, for tests of what stands on the
//! contract.
//!
//! It has usage, holds, lineage, volatile forks, and several datasets at a time of a store's
//! capabilities; nothing of it is ephemeral, frozen or logged. It is stricter than a store need be.
//! A batch that breaks the rule on sharing (see [`crate::Batch`]) or has one key twice panics: that
//! is a bug of the caller that a real store might not see. [`MemoryStore::commit`] and
//! [`MemoryStore::commit_some`] stand for the group commit of a pool: they turn fresh blocks into
//! stored ones, so that callers meet both. Everything is durable at once and gone with the process.

mod blocks;
mod capabilities;
mod dataset;
mod history;
mod view;

use crate::{
    DatasetKind, DatasetName, DatasetReport, Destruction, Error, ItemChange, Key, Properties,
    PropertySource, ROOT_OBJECT, Result, Source, Store, StoreCapabilities, Token, View, name,
};
use blocks::BlockTable;
use dataset::{Contents, MemoryDataset, State};
use history::History;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use view::MemoryView;

/// What an item is taken to need beside its value, in bytes.
const ITEM_BYTES: u64 = 32;
/// The size of a store without a limit, in bytes.
const UNLIMITED_BYTES: u64 = u64::MAX;
/// What batches that free space may use beyond the limit, in bytes.
const RESERVE_BYTES: u64 = 1 << 20;

/// A store in memory. See the module.
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    history: Mutex<History>,
    /// Forks that no list shows.
    volatile: Mutex<BTreeSet<DatasetName>>,
}

/// What the datasets of a store have in common.
#[derive(Debug)]
struct Shared {
    blocks: BlockTable,
    limit_bytes: AtomicU64,
    /// Takes no more changes.
    halted: AtomicBool,
    /// All datasets and snapshots that still exist: what is in use is counted over them.
    views: Mutex<Vec<Weak<MemoryDataset>>>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new()
    }
}

impl MemoryStore {
    /// A store with an empty root dataset and plenty of space.
    pub fn new() -> MemoryStore {
        let shared = Arc::new(Shared {
            blocks: BlockTable::default(),
            limit_bytes: AtomicU64::new(UNLIMITED_BYTES),
            halted: AtomicBool::new(false),
            views: Mutex::default(),
        });
        let store = MemoryStore { shared, history: Mutex::default(), volatile: Mutex::default() };
        let state = State { root_object: ROOT_OBJECT, ..State::default() };
        let mut history = store.history.lock();
        let view = store.view(&mut history, state, DatasetKind::Live);
        history.add_live(&DatasetName::root(), view, None);
        drop(history);
        store
    }

    /// Sets how many bytes batches may take in all.
    pub fn set_limit(&self, bytes: u64) {
        self.shared.limit_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Writes every fresh block, as a group commit does.
    pub fn commit(&self) {
        self.commit_some(0);
    }

    /// Writes a part of the fresh blocks that the seed chooses; 0 chooses all. Some items go on
    /// holding the fresh block that now has a stored place, as between the steps of a real commit.
    pub fn commit_some(&self, seed: u64) {
        for view in self.history.lock().named.values() {
            view.commit_some(seed);
        }
    }

    /// From now on every read of that block fails as damaged.
    pub fn damage(&self, token: &Token) {
        self.shared.blocks.damage(token);
    }

    fn view(&self, history: &mut History, state: State, kind: DatasetKind) -> Arc<MemoryDataset> {
        let view = MemoryDataset::new(Arc::clone(&self.shared), history.new_id(), state, kind);
        let view = Arc::new(view);
        self.shared.views.lock().push(Arc::downgrade(&view));
        view
    }

    fn live(&self, name: &DatasetName) -> Result<Arc<MemoryDataset>> {
        self.history.lock().find(&Source::live(name.clone()))
    }

    /// Keeps the present state of a dataset under a name that is free.
    fn keep(
        &self,
        history: &mut History,
        live: &MemoryDataset,
        source: Source,
    ) -> Arc<MemoryDataset> {
        self.add_snapshot(history, (live.state(), live.id), source)
    }

    fn add_snapshot(
        &self,
        history: &mut History,
        (state, live): (State, u64),
        source: Source,
    ) -> Arc<MemoryDataset> {
        let view = self.view(history, state, DatasetKind::Snapshot);
        history.add_snapshot(source, Arc::clone(&view), live);
        view
    }
}

impl Shared {
    fn existing_views(&self) -> Vec<Arc<MemoryDataset>> {
        let mut known = self.views.lock();
        known.retain(|view| view.strong_count() > 0);
        known.iter().filter_map(Weak::upgrade).collect()
    }

    /// Bytes in use by all datasets and snapshots, blocks counted once.
    fn used_bytes(&self) -> u64 {
        dataset::used_bytes(self.existing_views().iter().map(|view| view.contents()))
    }

    fn promised_bytes(&self) -> u64 {
        let promised = |view: &Arc<MemoryDataset>| view.promised.load(Ordering::Relaxed);
        self.existing_views().iter().map(promised).sum()
    }
}

fn report(history: &History, source: &Source, view: &MemoryDataset) -> DatasetReport {
    let is_live = view.kind == DatasetKind::Live;
    let origin = is_live.then(|| history.origin(source)).flatten();
    DatasetReport {
        source: source.clone(),
        number: view.id,
        kind: if origin.is_some() { DatasetKind::Clone } else { view.kind },
        origin,
        root_object: view.state().root_object,
        is_fork: is_live && history.is_fork(view.id),
        owner: 0,
        holds: history.holds(view.id),
        created_seconds: 0,
        referenced_bytes: dataset::used_bytes([view.contents()].into_iter()),
    }
}

impl Store for MemoryStore {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        Ok(Arc::new(MemoryView::new(self.history.lock().find(source)?)))
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        let volatile = self.volatile.lock();
        let history = self.history.lock();
        let forks = || volatile.iter().map(|fork| Source::live(fork.clone()));
        let bases: BTreeSet<Source> = forks().filter_map(|fork| history.origin(&fork)).collect();
        let is_seen =
            |source: &Source| !volatile.contains(&source.dataset) && !bases.contains(source);
        let named = history.named.iter().filter(|(source, _)| is_seen(source));
        Ok(named.map(|(source, view)| report(&history, source, view)).collect())
    }

    fn report(&self, source: &Source) -> Result<DatasetReport> {
        let history = self.history.lock();
        Ok(report(&history, source, &*history.find(source)?))
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        for (property, value) in &properties.0 {
            dataset::check_property(property, value)?;
        }
        let mut history = self.history.lock();
        history.refuse_taken(&Source::live(name.clone()))?;
        let local = properties.clone();
        let state = State { local, root_object: ROOT_OBJECT, ..State::default() };
        let view = self.view(&mut history, state, DatasetKind::Live);
        history.add_live(name, view, None);
        Ok(())
    }

    fn snapshot_together(&self, datasets: &[DatasetName], snapshot: &str) -> Result<()> {
        let mut history = self.history.lock();
        let mut lives = BTreeMap::new();
        for dataset in datasets {
            let source: Source = format!("{dataset}@{snapshot}").parse()?;
            history.refuse_taken(&source)?;
            lives.insert(source, history.find(&Source::live(dataset.clone()))?);
        }
        // Batches of all of them wait until the state of each is taken.
        let guards: Vec<_> = lives.values().map(|live| live.contents()).collect();
        let states = lives.values().zip(&guards).map(|(live, contents)| live.state_of(contents));
        let states: Vec<State> = states.collect();
        drop(guards);
        for ((source, live), state) in lives.iter().zip(states) {
            self.add_snapshot(&mut history, (state, live.id), source.clone());
        }
        Ok(())
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        let mut history = self.history.lock();
        let kept = history.snapshot(origin)?;
        history.refuse_taken(&Source::live(name.clone()))?;
        let view = self.view(&mut history, kept.state(), DatasetKind::Live);
        history.add_live(name, view, Some(kept.id));
        Ok(())
    }

    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()> {
        let live = self.live(dataset)?;
        let mut history = self.history.lock();
        history.refuse_taken(&Source::live(name.clone()))?;
        let base = Source::fork_base(dataset, name, &|base| history.named.contains_key(base))?;
        let base = self.keep(&mut history, &live, base);
        let state = State { root_object, ..base.state() };
        let view = self.view(&mut history, state, DatasetKind::Live);
        history.add_fork(name, view, base.id);
        Ok(())
    }

    fn rename(&self, from: &Source, to: &Source) -> Result<()> {
        name::check_rename(from, to)?;
        let mut history = self.history.lock();
        history.refuse_taken(to)?;
        history.rename(from, to)
    }

    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()> {
        let history = self.history.lock();
        let (before, after) = (history.snapshot(before)?, history.snapshot(after)?);
        drop(history);
        let (before, after) = (Contents::clone(&before.contents()), after.contents());
        dataset::changes(&before, &after, from, visit);
        Ok(())
    }

    fn destroy_together(&self, sources: &[Source], dry_run: bool) -> Result<Destruction> {
        if sources.contains(&Source::live(DatasetName::root())) {
            return Err(Error::Invalid("the root dataset cannot be destroyed".to_owned()));
        }
        let mut history = self.history.lock();
        let sources = history.all_that_goes(sources)?;
        let all = dataset::used_bytes(history.named.values().map(|view| view.contents()));
        let stay = history.named.iter().filter(|(name, _)| !sources.contains(name));
        let freed_bytes = all - dataset::used_bytes(stay.map(|(_, view)| view.contents()));
        if !dry_run {
            sources.iter().for_each(|source| history.remove(source));
        }
        Ok(Destruction { sources, freed_bytes })
    }

    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>> {
        let view = self.live(name)?;
        let local = view.state().local;
        let with_source = |(property, value): (String, String)| {
            let set = local.0.contains_key(&property);
            let source = if set { PropertySource::Local } else { PropertySource::Default };
            (property, (value, source))
        };
        Ok(view.properties().0.into_iter().map(with_source).collect())
    }

    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()> {
        let view = self.live(name)?;
        dataset::check_property(property, value.unwrap_or("4096"))?;
        view.set_property(property, value);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.commit();
        Ok(())
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities {
            usage: Some(self),
            holds: Some(self),
            lineage: Some(self),
            volatile: Some(self),
            several: Some(self),
            ..StoreCapabilities::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryStore;
    use crate::{
        Admission, Batch, Block, DatasetName, Error, Item, Key, Source, Store, conformance,
    };
    use std::sync::Arc;

    #[test]
    fn it_keeps_the_contract() {
        conformance::all(&|| Arc::new(MemoryStore::new()));
    }

    #[test]
    fn a_limit_is_kept_and_freeing_goes_on() {
        let store = MemoryStore::new();
        let root = Source { dataset: DatasetName::root(), snapshot: None };
        let view = store.open(&root).unwrap();
        store.set_limit(10_000);
        let put = |object: u64| {
            let mut batch = Batch::new();
            let item = Item::with_block(Vec::new(), Block::fresh(vec![1; 4096]));
            batch.put(Key::new(object, 5, 0), item);
            view.apply(batch)
        };
        put(1).unwrap();
        put(2).unwrap();
        assert_eq!(put(3), Err(Error::NoSpace));
        let mut batch = Batch { admission: Admission::Freeing, ..Batch::new() };
        batch.remove(Key::new(1, 5, 0));
        view.apply(batch).unwrap();
        put(3).unwrap();
    }

    #[test]
    #[should_panic(expected = "the batch shares a block")]
    fn sharing_behind_its_back_is_a_bug() {
        let store = MemoryStore::new();
        let root = Source { dataset: DatasetName::root(), snapshot: None };
        let view = store.open(&root).unwrap();
        let mut batch = Batch::new();
        batch.put(Key::new(1, 5, 0), Item::with_block(Vec::new(), Block::fresh(vec![1; 10])));
        view.apply(batch).unwrap();
        store.commit();
        let item = view.get(Key::new(1, 5, 0)).unwrap().unwrap();
        let mut batch = Batch::new();
        batch.put(Key::new(2, 5, 0), item);
        let _panics = view.apply(batch);
    }
}
