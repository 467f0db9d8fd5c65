//! A store in plain memory: the fake beside the real ones, for tests of whatever stands on the
//! contract.
//!
//! It is stricter than a store need be. A batch that breaks the rule on sharing (see
//! [`crate::Batch`]) or has one key twice panics: that is a bug of the caller that a real store
//! might not see. [`MemoryStore::commit`] and [`MemoryStore::commit_some`] stand for the group
//! commit of a pool: they turn fresh blocks into stored ones, so that callers meet both.
//! Everything is durable at once and gone with the process.

mod blocks;
mod dataset;

use crate::{
    DatasetKind, DatasetName, DatasetReport, Destruction, Error, Properties, PropertySource,
    Result, Source, Store, Token, View,
};
use blocks::BlockTable;
use dataset::{Contents, MemoryView};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

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
    datasets: Mutex<BTreeMap<Source, Arc<MemoryView>>>,
}

/// What the datasets of a store have in common.
#[derive(Debug)]
struct Shared {
    blocks: BlockTable,
    limit_bytes: AtomicU64,
    /// Takes no more changes.
    halted: AtomicBool,
    /// All datasets and snapshots that still exist: what is in use is counted over them.
    views: Mutex<Vec<Weak<MemoryView>>>,
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
        let store = MemoryStore { shared, datasets: Mutex::default() };
        let root = Source { dataset: DatasetName::root(), snapshot: None };
        let view = store.view(Contents::default(), DatasetKind::Live, None, Properties::default());
        store.datasets.lock().insert(root, view);
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
        for view in self.datasets.lock().values() {
            view.commit_some(seed);
        }
    }

    /// From now on every read of that block fails as damaged.
    pub fn damage(&self, token: &Token) {
        self.shared.blocks.damage(token);
    }

    fn view(
        &self,
        contents: Contents,
        kind: DatasetKind,
        origin: Option<Source>,
        properties: Properties,
    ) -> Arc<MemoryView> {
        let view = MemoryView::new(Arc::clone(&self.shared), contents, kind, origin, properties);
        let view = Arc::new(view);
        self.shared.views.lock().push(Arc::downgrade(&view));
        view
    }

    fn find(&self, source: &Source) -> Result<Arc<MemoryView>> {
        let found = self.datasets.lock().get(source).cloned();
        found.ok_or_else(|| Error::NoDataset(source.to_string()))
    }

    fn live(&self, name: &DatasetName) -> Result<Arc<MemoryView>> {
        self.find(&Source { dataset: name.clone(), snapshot: None })
    }

    fn insert(&self, source: Source, view: Arc<MemoryView>) -> Result<()> {
        let mut datasets = self.datasets.lock();
        if datasets.contains_key(&source) {
            return Err(Error::DatasetExists(source.to_string()));
        }
        datasets.insert(source, view);
        Ok(())
    }
}

impl Shared {
    /// Bytes in use by all datasets and snapshots, blocks counted once.
    fn used_bytes(&self) -> u64 {
        let mut known = self.views.lock();
        known.retain(|view| view.strong_count() > 0);
        let views: Vec<_> = known.iter().filter_map(Weak::upgrade).collect();
        drop(known);
        dataset::used_bytes(views.iter().map(|view| view.contents()))
    }
}

/// Whether a destruction of `source` takes `other`.
fn goes_with(source: &Source, other: &Source) -> bool {
    source == other || (source.snapshot.is_none() && source.dataset == other.dataset)
}

/// References to a view that nobody else holds: the store's own.
const OWN_REFERENCES: usize = 1;

impl Store for MemoryStore {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        Ok(self.find(source)?)
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        let datasets = self.datasets.lock();
        let reports = datasets.iter().map(|(source, view)| {
            let others = datasets.values().filter(|other| !Arc::ptr_eq(other, view));
            let others = dataset::used_bytes(others.map(|other| other.contents()));
            let all = dataset::used_bytes(datasets.values().map(|view| view.contents()));
            DatasetReport {
                source: source.clone(),
                kind: view.kind,
                origin: view.origin.clone(),
                created_seconds: 0,
                referenced_bytes: dataset::used_bytes([view.contents()].into_iter()),
                unique_bytes: all - others,
            }
        });
        Ok(reports.collect())
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        for (property, value) in &properties.0 {
            dataset::check_property(property, value)?;
        }
        let view = self.view(Contents::default(), DatasetKind::Live, None, properties.clone());
        self.insert(Source { dataset: name.clone(), snapshot: None }, view)
    }

    fn snapshot(&self, dataset: &DatasetName, snapshot: &str) -> Result<()> {
        let live = self.live(dataset)?;
        let source: Source = format!("{dataset}@{snapshot}").parse()?;
        let kept = Contents::clone(&live.contents());
        let view = self.view(kept, DatasetKind::Snapshot, None, live.local_properties());
        self.insert(source, view)
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        let kept = self.find(origin)?;
        if kept.kind != DatasetKind::Snapshot {
            return Err(Error::Invalid(format!("{origin} is not a snapshot")));
        }
        let contents = Contents::clone(&kept.contents());
        let properties = kept.local_properties();
        let view = self.view(contents, DatasetKind::Clone, Some(origin.clone()), properties);
        self.insert(Source { dataset: name.clone(), snapshot: None }, view)
    }

    fn destroy(&self, source: &Source, dry_run: bool) -> Result<Destruction> {
        if *source == (Source { dataset: DatasetName::root(), snapshot: None }) {
            return Err(Error::Invalid("the root dataset cannot be destroyed".to_owned()));
        }
        let mut datasets = self.datasets.lock();
        let sources: Vec<Source> =
            datasets.keys().filter(|other| goes_with(source, other)).cloned().collect();
        if !sources.contains(source) {
            return Err(Error::NoDataset(source.to_string()));
        }
        let in_use =
            |name: &Source, holder: String| Error::InUse { name: name.to_string(), holder };
        for name in &sources {
            if Arc::strong_count(&datasets[name]) > OWN_REFERENCES {
                return Err(in_use(name, "it is open".to_owned()));
            }
        }
        for (name, view) in datasets.iter().filter(|(name, _)| !sources.contains(name)) {
            if let Some(origin) = view.origin.as_ref().filter(|origin| sources.contains(origin)) {
                return Err(in_use(origin, format!("{name} is a clone of it")));
            }
        }
        let all = dataset::used_bytes(datasets.values().map(|view| view.contents()));
        let stay = datasets.iter().filter(|(name, _)| !sources.contains(name));
        let freed_bytes = all - dataset::used_bytes(stay.map(|(_, view)| view.contents()));
        if !dry_run {
            datasets.retain(|name, _| !sources.contains(name));
        }
        Ok(Destruction { sources, freed_bytes })
    }

    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>> {
        let view = self.live(name)?;
        let local = view.local_properties();
        let with_source = |(property, value): (String, String)| {
            let set = local.0.contains_key(&property);
            let source = if set { PropertySource::Local } else { PropertySource::Default };
            (property, (value, source))
        };
        Ok(View::properties(&*view).0.into_iter().map(with_source).collect())
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
