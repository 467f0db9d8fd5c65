//! Datasets and snapshots: made, listed, destroyed. Each change is part of one commit.

mod destroy;
mod list;

use crate::commit::{Commit, Publication};
use crate::dataset::Dataset;
use crate::pool::{Inner, Pool, dataset_of};
use crate::settings::{CASE_FOLDING, RESERVATION, Settings, check_property};
use crate::view::DatasetView;
use bytes::Bytes;
use marram_format::dataset::{DATASET_RECORD_BYTES_MAX, DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_store::{
    DatasetName, DatasetReport, Destruction, Error, Properties, PropertySource, Result, Source,
    Store, View,
};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Store for Pool {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        let inner = &self.inner;
        // A commit may be destroying it: whether anyone has it open is asked only at its start.
        let _no_commit = inner.committing.lock();
        let id = inner.find(source)?.id;
        let datasets = inner.datasets.read();
        let dataset = datasets.get(&id).ok_or_else(|| Error::NoDataset(source.to_string()))?;
        Ok(Arc::new(DatasetView::new(inner.clone(), dataset.clone())))
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        list::list(&self.inner)
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        let local = checked(properties)?;
        let turn = self.inner.take_turn()?;
        self.inner.refuse_taken(name.as_str())?;
        turn.commit(Some(&mut |commit| {
            let mut record = commit.new_record(name.as_str(), DatasetState::Live);
            record.properties = local.clone();
            commit.pool.check_record_reservation(&record, 0)?;
            commit.add(record)
        }))
    }

    fn snapshot(&self, dataset: &DatasetName, snapshot: &str) -> Result<()> {
        let source: Source = format!("{dataset}@{snapshot}").parse()?;
        let turn = self.inner.take_turn()?;
        self.inner.refuse_taken(&source.to_string())?;
        let id = self.inner.find(&dataset.as_str().parse()?)?.id;
        turn.commit(Some(&mut |commit| commit.snapshot(id, &source)))
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        if origin.snapshot.is_none() {
            let reason = format!("{origin} is no snapshot: take one and clone that");
            return Err(Error::Invalid(reason));
        }
        let turn = self.inner.take_turn()?;
        self.inner.refuse_taken(name.as_str())?;
        let origin = self.inner.find(origin)?.id;
        turn.commit(Some(&mut |commit| {
            let origin = commit.record(origin)?;
            commit.clone_of(origin, name)
        }))
    }

    fn destroy(&self, source: &Source, dry_run: bool) -> Result<Destruction> {
        destroy::destroy(&self.inner, source, dry_run)
    }

    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>> {
        let record = self.inner.find(&name.as_str().parse()?)?;
        let all = Settings::new(&record.properties)?.all.0;
        let local = |name: &str| record.properties.iter().any(|(set, _)| set == name);
        Ok(all
            .into_iter()
            .map(|(name, value)| {
                let set = local(&name);
                let source = if set { PropertySource::Local } else { PropertySource::Default };
                (name, (value, source))
            })
            .collect())
    }

    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()> {
        check_property(property, value.unwrap_or_default()).or_else(|error| match value {
            Some(_) => Err(error),
            None => Ok(String::new()),
        })?;
        let value = value.map(|value| check_property(property, value)).transpose()?;
        if property == CASE_FOLDING {
            return Err(Error::Invalid(format!(
                "{CASE_FOLDING} is chosen when a dataset is made, and cannot be changed: make \
                 another dataset with it and copy the files"
            )));
        }
        let turn = self.inner.take_turn()?;
        let mut record = self.inner.find(&name.as_str().parse()?)?;
        record.properties.retain(|(set, _)| set != property);
        if let Some(value) = value {
            record.properties.push((property.to_owned(), value));
            record.properties.sort();
        }
        refuse_too_long(&record)?;
        let settings = Settings::new(&record.properties)?;
        let known = running(&self.inner, record.id);
        turn.commit(Some(&mut |commit| {
            let changed = commit.record(record.id)?;
            let record = DatasetRecord { properties: record.properties.clone(), ..changed };
            if property == RESERVATION {
                let kept_free = known.as_ref().map_or(0, |dataset| dataset.allowance.kept_free());
                commit.pool.check_record_reservation(&record, kept_free)?;
            }
            commit.keep(record)
        }))?;
        if let Some(dataset) = known {
            dataset.set_settings(settings);
        }
        self.inner.sum_reservations();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.commit()
    }
}

fn checked(properties: &Properties) -> Result<Vec<(String, String)>> {
    let check =
        |(name, value): (&String, &String)| Ok((name.clone(), check_property(name, value)?));
    properties.0.iter().map(check).collect()
}

impl Inner {
    /// The record of a dataset or snapshot that is not being destroyed.
    pub(crate) fn find(&self, source: &Source) -> Result<DatasetRecord> {
        let name = source.to_string();
        let records = self.records.read();
        let found = records.values().find(|record| is_named(record, &name));
        found.cloned().ok_or(Error::NoDataset(name))
    }

    fn refuse_taken(&self, name: &str) -> Result<()> {
        match self.find(&name.parse()?) {
            Ok(_) => Err(Error::DatasetExists(name.to_owned())),
            Err(_) => Ok(()),
        }
    }

    /// Refuses a record with a reservation that there is no space for; `kept_free_bytes` are kept
    /// free for it already.
    fn check_record_reservation(&self, record: &DatasetRecord, kept_free_bytes: u64) -> Result<()> {
        let wanted = Settings::new(&record.properties)?.reservation_bytes.unwrap_or(0);
        self.check_reservation(wanted, record.referenced_grains, kept_free_bytes)
    }
}

fn is_named(record: &DatasetRecord, name: &str) -> bool {
    record.state != DatasetState::Destroying && record.name == name
}

/// Refuses a record that does not fit an item.
fn refuse_too_long(record: &DatasetRecord) -> Result<()> {
    if record.encoded_len() <= DATASET_RECORD_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("the properties of {} take too many bytes", record.name);
    Err(Error::Invalid(reason))
}

impl Commit<'_> {
    fn new_record(&mut self, name: &str, state: DatasetState) -> DatasetRecord {
        let (id, dead_list) = (self.new_id(), self.new_id());
        let mut id128 = self.pool.superblock.lock().pool_id;
        for (byte, of_id) in id128.iter_mut().zip(id.to_le_bytes()) {
            *byte ^= of_id;
        }
        DatasetRecord {
            id,
            name: name.to_owned(),
            state,
            parent: 0,
            origin: 0,
            previous: 0,
            next: 0,
            previous_group: Group(0),
            created_group: self.group,
            created_seconds: self.now_seconds,
            id128,
            root: None,
            referenced_grains: 0,
            dead_grains: 0,
            dead_list,
            clones: 0,
            holds: 0,
            properties: Vec::new(),
        }
    }

    /// Keeps a changed record, if it still fits an item.
    fn keep(&mut self, record: DatasetRecord) -> Result<()> {
        refuse_too_long(&record)?;
        self.records.insert(record.id, Some(record));
        Ok(())
    }

    /// Keeps a new record, and lets the running pool know of it.
    fn add(&mut self, record: DatasetRecord) -> Result<()> {
        let dataset = dataset_of(&record, false)?;
        self.publications.push(Publication::Add(Arc::new(dataset)));
        self.keep(record)
    }

    /// The snapshot takes over the dataset's root and dead list; the dataset goes on with an
    /// empty dead list, and owns only what is born after this group.
    fn snapshot(&mut self, dataset: u64, source: &Source) -> Result<()> {
        let mut live = self.record(dataset)?;
        let mut kept = self.new_record(&source.to_string(), DatasetState::Snapshot);
        kept.parent = live.id;
        kept.origin = live.origin;
        kept.previous = live.previous;
        kept.next = live.id;
        kept.previous_group = live.previous_group;
        kept.root = live.root.clone();
        kept.referenced_grains = live.referenced_grains;
        kept.properties = live.properties.clone();
        std::mem::swap(&mut kept.dead_list, &mut live.dead_list);
        kept.dead_grains = std::mem::take(&mut live.dead_grains);
        if live.previous != 0 {
            let mut before = self.record(live.previous)?;
            before.next = kept.id;
            self.keep(before)?;
        }
        live.previous = kept.id;
        live.previous_group = self.group;
        self.keep(live)?;
        self.add(kept)
    }

    fn clone_of(&mut self, mut origin: DatasetRecord, name: &DatasetName) -> Result<()> {
        let mut record = self.new_record(name.as_str(), DatasetState::Live);
        record.origin = origin.id;
        record.previous_group = origin.created_group;
        record.root = origin.root.clone();
        record.referenced_grains = origin.referenced_grains;
        record.properties = origin.properties.clone();
        record.properties.retain(|(name, _)| name != RESERVATION);
        origin.clones += 1;
        self.keep(origin)?;
        self.add(record)
    }
}

/// The dataset that the running pool has for a record.
fn running(pool: &Inner, id: u64) -> Option<Arc<Dataset>> {
    pool.datasets.read().get(&id).cloned()
}

/// The root of a record, encoded.
fn root_of(record: &DatasetRecord) -> Option<Bytes> {
    record.root.as_ref().map(|root| root.encode())
}
