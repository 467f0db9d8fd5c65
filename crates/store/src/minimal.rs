//! The smallest store: the core of [`Store`] and of [`View`], and no capability of either.
//!
//! It is what the contract asks for and nothing beside it, so it shows how little a store has to
//! bring along, and the tests of what holds without a capability run on it. A dataset is a map in
//! memory; a snapshot or clone has the same map until one of them changes. No block is ever
//! written, so all stay fresh. Everything is durable at once and gone with the process. It is
//! small, not fast: some calls cost what there is, not what differs.

mod dataset;

use crate::{
    DatasetKind, DatasetName, DatasetReport, Destruction, Error, ItemChange, Key, Properties,
    PropertySource, Result, Source, Store, StoreCapabilities, View, check_rename,
};
use dataset::{Dataset, MinimalView, address, same};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The largest block of a file where a dataset has no value of its own, in bytes.
const RECORD_BYTES: &str = "131072";

/// A store with a core only. See the module.
pub struct MinimalStore {
    datasets: Mutex<Datasets>,
}

/// All datasets and snapshots.
#[derive(Default)]
struct Datasets {
    named: BTreeMap<Source, Arc<Dataset>>,
    last_number: u64,
}

impl Default for MinimalStore {
    /// A store with an empty root dataset.
    fn default() -> Self {
        let mut datasets = Datasets::default();
        datasets.add(Source::live(DatasetName::root()), Dataset::new(Properties::default()));
        MinimalStore { datasets: Mutex::new(datasets) }
    }
}

impl Datasets {
    fn find(&self, source: &Source) -> Result<&Arc<Dataset>> {
        self.named.get(source).ok_or_else(|| Error::NoDataset(source.to_string()))
    }

    fn live(&self, name: &DatasetName) -> Result<&Arc<Dataset>> {
        self.find(&Source::live(name.clone()))
    }

    fn snapshot(&self, source: &Source) -> Result<&Arc<Dataset>> {
        match self.find(source)? {
            found if found.is_snapshot => Ok(found),
            _ => Err(Error::Invalid(format!("{source} is no snapshot: take one first"))),
        }
    }

    fn refuse_taken(&self, source: &Source) -> Result<()> {
        match self.named.contains_key(source) {
            true => Err(Error::DatasetExists(source.to_string())),
            false => Ok(()),
        }
    }

    /// Adds a dataset or snapshot, and gives it a number.
    fn add(&mut self, source: Source, dataset: Dataset) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.named.insert(source, Arc::new(Dataset { number, ..dataset }));
        number
    }

    fn report(&self, source: &Source, dataset: &Dataset) -> DatasetReport {
        let began = |(_, other): &(&Source, &Arc<Dataset>)| Some(other.number) == dataset.origin;
        let origin = self.named.iter().find(began).map(|(origin, _)| origin.clone());
        let kind = match (dataset.is_snapshot, &origin) {
            (true, _) => DatasetKind::Snapshot,
            (false, Some(_)) => DatasetKind::Clone,
            (false, None) => DatasetKind::Live,
        };
        let is_base = origin.as_ref().is_some_and(Source::is_fork_base);
        DatasetReport {
            source: source.clone(),
            number: dataset.number,
            kind,
            origin,
            root_object: dataset.root_object,
            is_fork: is_base && !dataset.is_snapshot,
            owner: 0,
            holds: Vec::new(),
            created_seconds: 0,
            referenced_bytes: bytes_of([dataset].into_iter()),
        }
    }

    /// All that a destruction takes: the sources, their snapshots, and the bases of forks that no
    /// fork needs then.
    fn all_that_goes(&self, sources: &[Source]) -> Result<BTreeSet<Source>> {
        sources.iter().try_for_each(|source| self.find(source).map(|_| ()))?;
        let is_asked = |source: &&Source| {
            let dataset = Source::live(source.dataset.clone());
            sources.contains(source) || sources.contains(&dataset)
        };
        let mut goes: BTreeSet<Source> = self.named.keys().filter(is_asked).cloned().collect();
        while let Some(base) = self.named.keys().find(|base| self.is_unneeded(base, &goes)) {
            goes.insert(base.clone());
        }
        goes.iter().try_for_each(|source| self.refuse_in_use(source, &goes))?;
        Ok(goes)
    }

    /// The datasets that began as a snapshot.
    fn clones_of<'a>(&'a self, origin: &'a Dataset) -> impl Iterator<Item = &'a Source> {
        let began = |(_, clone): &(&Source, &Arc<Dataset>)| clone.origin == Some(origin.number);
        self.named.iter().filter(began).map(|(source, _)| source)
    }

    /// Whether all forks that began as a base go, and the base may go with them.
    fn is_unneeded(&self, base: &Source, goes: &BTreeSet<Source>) -> bool {
        let dataset = &self.named[base];
        let mut clones = self.clones_of(dataset).peekable();
        base.is_fork_base()
            && !goes.contains(base)
            && !is_open(dataset)
            && clones.peek().is_some()
            && clones.all(|clone| goes.contains(clone))
    }

    fn refuse_in_use(&self, source: &Source, goes: &BTreeSet<Source>) -> Result<()> {
        let dataset = &self.named[source];
        let holder = match self.clones_of(dataset).find(|clone| !goes.contains(clone)) {
            _ if is_open(dataset) => "it is open".to_owned(),
            Some(clone) => format!("{clone} began as it"),
            None => return Ok(()),
        };
        Err(Error::InUse { name: source.to_string(), holder })
    }
}

/// Whether a view of it is open: the store itself has one reference.
fn is_open(dataset: &Arc<Dataset>) -> bool {
    Arc::strong_count(dataset) > 1
}

/// Bytes of all items, and of each block once.
fn bytes_of<'a>(datasets: impl Iterator<Item = &'a Dataset>) -> u64 {
    let (mut bytes, mut blocks) = (0, BTreeSet::new());
    for dataset in datasets {
        for item in dataset.items.read().values() {
            bytes += item.value.len() as u64;
            if let Some(block) = &item.block
                && blocks.insert(address(block))
            {
                bytes += block.len() as u64;
            }
        }
    }
    bytes
}

fn check_property(property: &str, value: &str) -> Result<()> {
    let bytes = value.parse::<u64>().unwrap_or(0);
    let is_good = bytes.is_power_of_two() && (4096..=1 << 20).contains(&bytes);
    match is_good && property == "recordsize" {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "{property}={value}: there is recordsize, a power of two from 4096 to 1048576"
        ))),
    }
}

impl Store for MinimalStore {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        Ok(Arc::new(MinimalView(Arc::clone(self.datasets.lock().find(source)?))))
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        let datasets = self.datasets.lock();
        let named = datasets.named.iter();
        Ok(named.map(|(source, dataset)| datasets.report(source, dataset)).collect())
    }

    fn report(&self, source: &Source) -> Result<DatasetReport> {
        let datasets = self.datasets.lock();
        Ok(datasets.report(source, datasets.find(source)?))
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        properties.0.iter().try_for_each(|(name, value)| check_property(name, value))?;
        let (source, mut datasets) = (Source::live(name.clone()), self.datasets.lock());
        datasets.refuse_taken(&source)?;
        datasets.add(source, Dataset::new(properties.clone()));
        Ok(())
    }

    fn snapshot_together(&self, names: &[DatasetName], snapshot: &str) -> Result<()> {
        let mut datasets = self.datasets.lock();
        let mut lives = BTreeMap::new();
        for name in names {
            let source: Source = format!("{name}@{snapshot}").parse()?;
            datasets.refuse_taken(&source)?;
            lives.insert(source, Arc::clone(datasets.live(name)?));
        }
        // While all are locked no batch applies: they are of one moment.
        let locked: Vec<_> = lives.values().map(|live| live.items.read()).collect();
        let kept = lives.values().zip(&locked).map(|(live, items)| live.snapshot_of(items));
        let kept: Vec<Dataset> = kept.collect();
        drop(locked);
        lives.keys().zip(kept).for_each(|(source, kept)| {
            datasets.add(source.clone(), kept);
        });
        Ok(())
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        let (source, mut datasets) = (Source::live(name.clone()), self.datasets.lock());
        datasets.refuse_taken(&source)?;
        let clone = datasets.snapshot(origin)?.clone_of();
        datasets.add(source, clone);
        Ok(())
    }

    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()> {
        let (source, mut datasets) = (Source::live(name.clone()), self.datasets.lock());
        datasets.refuse_taken(&source)?;
        let live = Arc::clone(datasets.live(dataset)?);
        let base = Source::fork_base(dataset, name, &|base| datasets.named.contains_key(base))?;
        let kept = live.snapshot_of(&live.items.read());
        let fork = kept.clone_of();
        let origin = Some(datasets.add(base, kept));
        datasets.add(source, Dataset { origin, root_object, ..fork });
        Ok(())
    }

    fn rename(&self, from: &Source, to: &Source) -> Result<()> {
        check_rename(from, to)?;
        let mut datasets = self.datasets.lock();
        datasets.refuse_taken(to)?;
        datasets.find(from)?;
        for (source, dataset) in std::mem::take(&mut datasets.named) {
            let renamed = match from.snapshot.is_none() && source.dataset == from.dataset {
                true => Source { dataset: to.dataset.clone(), ..source },
                false if source == *from => to.clone(),
                false => source,
            };
            datasets.named.insert(renamed, dataset);
        }
        Ok(())
    }

    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()> {
        let [before, after] = {
            let datasets = self.datasets.lock();
            [datasets.snapshot(before)?.items(), datasets.snapshot(after)?.items()]
        };
        let keys: BTreeSet<Key> =
            before.range(from..).chain(after.range(from..)).map(|(key, _)| *key).collect();
        for key in keys {
            let (before, after) = (before.get(&key).cloned(), after.get(&key).cloned());
            if !same(before.as_ref(), after.as_ref()) && !visit(ItemChange { key, before, after }) {
                break;
            }
        }
        Ok(())
    }

    fn destroy_together(&self, sources: &[Source], dry_run: bool) -> Result<Destruction> {
        if sources.contains(&Source::live(DatasetName::root())) {
            return Err(Error::Invalid("the root dataset cannot be destroyed".to_owned()));
        }
        let mut datasets = self.datasets.lock();
        let goes = datasets.all_that_goes(sources)?;
        let all = bytes_of(datasets.named.values().map(|dataset| &**dataset));
        let stays = datasets.named.iter().filter(|(source, _)| !goes.contains(source));
        let freed_bytes = all - bytes_of(stays.map(|(_, dataset)| &**dataset));
        if !dry_run {
            datasets.named.retain(|source, _| !goes.contains(source));
        }
        Ok(Destruction { sources: goes.into_iter().collect(), freed_bytes })
    }

    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>> {
        let datasets = self.datasets.lock();
        let dataset = datasets.live(name)?;
        let is_set = !dataset.properties.read().0.is_empty();
        let source = if is_set { PropertySource::Local } else { PropertySource::Default };
        let with_source = |(property, value)| (property, (value, source));
        Ok(dataset.all_properties().0.into_iter().map(with_source).collect())
    }

    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()> {
        check_property(property, value.unwrap_or(RECORD_BYTES))?;
        let datasets = self.datasets.lock();
        let mut local = datasets.live(name)?.properties.write();
        match value {
            Some(value) => local.0.insert(property.to_owned(), value.to_owned()),
            None => local.0.remove(property),
        };
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::default()
    }
}
