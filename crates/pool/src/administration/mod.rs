//! Datasets and snapshots: made, listed, destroyed. Each change is part of one commit.

mod destroy;
mod lines;
mod list;
mod records;

use crate::commit::{Commit, Publication};
use crate::dataset::Dataset;
use crate::pool::{Inner, Pool, dataset_of};
use crate::settings::{CASE_FOLDING, RESERVATION, Settings, check_property};
use crate::view::DatasetView;
use bytes::Bytes;
use marram_format::dataset::{
    DATASET_RECORD_BYTES_MAX, DatasetRecord, DatasetState, HOLD_PROPERTY_PREFIX,
};
use marram_format::group::Group;
use marram_format::version::feature;
use marram_store::{
    DatasetName, DatasetReport, Destruction, Error, ItemChange, Key, Properties, PropertySource,
    Result, Source, Store, View, check_rename, check_tag,
};
use records::parent_of;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use records::Records;

/// Changes the properties of a record.
type ChangeProperties<'c> = &'c mut dyn FnMut(&mut Vec<(String, String)>) -> Result<()>;

impl Store for Pool {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        Ok(Arc::new(self.open_view(source)?))
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        list::list(&self.inner)
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        let local = checked(properties)?;
        let turn = self.inner.take_turn()?;
        self.inner.refuse_taken(&Source::live(name.clone()))?;
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
        self.inner.refuse_taken(&source)?;
        let id = self.inner.find_live(dataset)?.id;
        turn.commit(Some(&mut |commit| commit.snapshot(id, &source).map(|_| ())))
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        let turn = self.inner.take_turn()?;
        self.inner.refuse_taken(&Source::live(name.clone()))?;
        let origin = self.inner.find_snapshot(origin)?.id;
        turn.commit(Some(&mut |commit| {
            let record = commit.clone_of(origin, name)?;
            commit.add(record)
        }))
    }

    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()> {
        let turn = self.inner.take_turn()?;
        self.inner.refuse_taken(&Source::live(name.clone()))?;
        let id = self.inner.find_live(dataset)?.id;
        let is_taken = |base: &Source| self.inner.find(base).is_ok();
        let base = Source::fork_base(dataset, name, &is_taken)?;
        turn.commit(Some(&mut |commit| commit.fork(id, &base, name, root_object)))
    }

    fn rollback(&self, to: &Source, keep: &str) -> Result<()> {
        let kept: Source = format!("{}@{keep}", to.dataset).parse()?;
        let turn = self.inner.take_turn()?;
        self.inner.refuse_taken(&kept)?;
        let target = self.inner.find_snapshot(to)?.id;
        let id = self.inner.find_live(&to.dataset)?.id;
        turn.commit_alone(&mut |commit| commit.roll_back(id, target, &kept))
    }

    fn promote(&self, name: &DatasetName) -> Result<()> {
        let turn = self.inner.take_turn()?;
        let id = self.inner.refuse_promotion(name)?;
        turn.commit(Some(&mut |commit| commit.promote(id)))
    }

    fn hold(&self, snapshot: &Source, tag: &str) -> Result<()> {
        check_tag(tag)?;
        self.inner.change_holds(snapshot, &mut |properties| {
            let name = format!("{HOLD_PROPERTY_PREFIX}{tag}");
            if properties.iter().any(|(known, _)| *known == name) {
                return Err(Error::Invalid(format!(
                    "{snapshot} is held with the tag {tag} already"
                )));
            }
            properties.push((name, String::new()));
            properties.sort();
            Ok(())
        })
    }

    fn release(&self, snapshot: &Source, tag: &str) -> Result<()> {
        self.inner.change_holds(snapshot, &mut |properties| {
            let name = format!("{HOLD_PROPERTY_PREFIX}{tag}");
            let count = properties.len();
            properties.retain(|(known, _)| *known != name);
            if properties.len() == count {
                return Err(Error::Invalid(format!("{snapshot} has no hold with the tag {tag}")));
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Source, to: &Source) -> Result<()> {
        check_rename(from, to)?;
        let turn = self.inner.take_turn()?;
        self.inner.refuse_taken(to)?;
        let id = self.inner.find(from)?.id;
        let renamed = self.inner.renamed(id, to)?;
        turn.commit(Some(&mut |commit| {
            for (id, name) in &renamed {
                let record = commit.record(*id)?;
                commit.keep(DatasetRecord { name: name.clone(), ..record })?;
            }
            Ok(())
        }))
    }

    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()> {
        // As long as they are open neither can be destroyed, and no block of theirs used again.
        let (before, after) = (self.open_snapshot(before)?, self.open_snapshot(after)?);
        before.changes_to(&after, from, visit)
    }

    fn unique_bytes(&self, source: &Source) -> Result<u64> {
        list::unique_bytes(&self.inner, source)
    }

    fn destroy(&self, source: &Source, dry_run: bool) -> Result<Destruction> {
        destroy::destroy(&self.inner, source, dry_run)
    }

    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>> {
        let record = self.inner.find_live(name)?;
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
        let mut record = DatasetRecord::clone(&*self.inner.find_live(name)?);
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

impl Pool {
    fn open_view(&self, source: &Source) -> Result<DatasetView> {
        let inner = &self.inner;
        // A commit may be destroying it: whether anyone has it open is asked only at its start.
        let _no_commit = inner.committing.lock();
        let id = inner.find(source)?.id;
        let datasets = inner.datasets.read();
        let dataset = datasets.get(&id).ok_or_else(|| Error::NoDataset(source.to_string()))?;
        Ok(DatasetView::new(inner.clone(), dataset.clone()))
    }

    fn open_snapshot(&self, source: &Source) -> Result<DatasetView> {
        refuse_live(source)?;
        self.open_view(source)
    }
}

fn refuse_live(source: &Source) -> Result<()> {
    match source.snapshot {
        Some(_) => Ok(()),
        None => Err(Error::Invalid(format!("{source} is no snapshot: take one first"))),
    }
}

impl Inner {
    /// The record of a dataset or snapshot that is not being destroyed.
    pub(crate) fn find(&self, source: &Source) -> Result<Arc<DatasetRecord>> {
        let name = source.to_string();
        let found = self.records.read().named(&name).cloned();
        found.ok_or(Error::NoDataset(name))
    }

    fn find_live(&self, name: &DatasetName) -> Result<Arc<DatasetRecord>> {
        self.find(&Source::live(name.clone()))
    }

    fn find_snapshot(&self, source: &Source) -> Result<Arc<DatasetRecord>> {
        refuse_live(source)?;
        self.find(source)
    }

    fn refuse_taken(&self, source: &Source) -> Result<()> {
        match self.find(source) {
            Ok(_) => Err(Error::DatasetExists(source.to_string())),
            Err(_) => Ok(()),
        }
    }

    /// Refuses to promote what is no clone, or has names that are taken; returns the clone's id.
    fn refuse_promotion(&self, name: &DatasetName) -> Result<u64> {
        let live = self.find_live(name)?;
        let records = self.records.read();
        let Some(origin) = records.get(live.origin) else {
            return Err(Error::Invalid(format!("{name} is no clone: it began as no snapshot")));
        };
        let mut at = Some(origin);
        while let Some(taken) = at.filter(|taken| taken.parent == origin.parent) {
            let renamed = lines::handed_over(&taken.name, &live.name)?;
            renamed.parse::<Source>()?;
            if records.named(&renamed).is_some() {
                return Err(Error::DatasetExists(renamed));
            }
            at = records.get(parent_of(taken));
        }
        Ok(live.id)
    }

    /// Changes the properties of a snapshot that hold it.
    fn change_holds(&self, snapshot: &Source, change: ChangeProperties<'_>) -> Result<()> {
        let turn = self.take_turn()?;
        let mut record = DatasetRecord::clone(&*self.find_snapshot(snapshot)?);
        change(&mut record.properties)?;
        refuse_too_long(&record)?;
        let holds = list::holds(&record).count();
        turn.commit(Some(&mut |commit| {
            let holds = u32::try_from(holds).expect("a record has few properties");
            let properties = record.properties.clone();
            commit.set_feature(feature::OWNERS);
            let record = commit.record(record.id)?;
            commit.keep(DatasetRecord { properties, holds, ..record })
        }))
    }

    /// The records that get another name, and which, when one does.
    fn renamed(&self, id: u64, to: &Source) -> Result<Vec<(u64, String)>> {
        let records = self.records.read();
        let mut renamed = vec![(id, to.to_string())];
        if to.snapshot.is_none() {
            let of_it = |record: &&Arc<DatasetRecord>| {
                record.state == DatasetState::Snapshot && record.parent == id
            };
            for record in records.known().filter(of_it) {
                let name = lines::handed_over(&record.name, to.dataset.as_str())?;
                renamed.push((record.id, name.parse::<Source>()?.to_string()));
            }
        }
        Ok(renamed)
    }

    /// Refuses a record with a reservation that there is no space for; `kept_free_bytes` are kept
    /// free for it already.
    fn check_record_reservation(&self, record: &DatasetRecord, kept_free_bytes: u64) -> Result<()> {
        let wanted = Settings::new(&record.properties)?.reservation_bytes.unwrap_or(0);
        self.check_reservation(wanted, record.referenced_grains, kept_free_bytes)
    }
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
}

/// The dataset that the running pool has for a record.
fn running(pool: &Inner, id: u64) -> Option<Arc<Dataset>> {
    pool.datasets.read().get(&id).cloned()
}

/// The root of a record, encoded.
fn root_of(record: &DatasetRecord) -> Option<Bytes> {
    record.root.as_ref().map(|root| root.encode())
}
