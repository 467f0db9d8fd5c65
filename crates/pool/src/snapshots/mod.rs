//! Datasets and snapshots: made, listed, destroyed. Each change is part of one commit.

mod comparing;
pub(crate) mod dead_list_reclaim;
pub(crate) mod destroy;
pub(crate) mod ephemeral;
pub(crate) mod limits;
pub(crate) mod lineage;
pub(crate) mod list;
mod merge_commit;
pub(crate) mod operation_log;
pub(crate) mod plan;
pub(crate) mod properties;
pub(crate) mod reclaimable;
pub(crate) mod trash;
mod undo;
mod usage;

use crate::commit::{Commit, Publication, Turn};
use crate::front::{Inner, Pool, dataset_of};
use crate::memtable::dataset::Dataset;
use crate::state::records::parent_of;
use crate::state::settings::{Settings, check_property};
use crate::views::live::DatasetView;
use crate::views::pinned_commit::{FrozenView, Moment};
use bytes::Bytes;
use marram_format::dataset::{DATASET_RECORD_BYTES_MAX, DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_format::operation::{KEPT_PREFIX, OperationKind, OperationRecord, kept_for};
use marram_store::{
    Batch, DatasetName, DatasetReport, Destruction, Error, ItemChange, Key, MergedFrom, Properties,
    PropertySource, Result, Source, Store, Usage, View, check_rename, check_tag,
};
use operation_log::is_passing;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) use ephemeral::Passing;
pub(crate) use list::root_object;
pub(crate) use operation_log::entry;
pub use operation_log::{Author, Operation};
pub use trash::Hidden;
pub(crate) use trash::is_hidden;
pub use undo::Reversal;

impl Store for Pool {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        match self.inner.passing_state(source) {
            Some(state) => Ok(Arc::new(state.view()?)),
            None => Ok(Arc::new(self.open_view(source)?)),
        }
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        list::list(&self.inner)
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        let local = checked(properties)?;
        let turn = self.begin_operation()?;
        self.inner.refuse_taken(&Source::live(name.clone()))?;
        turn.commit(Some(&mut |commit| {
            let mut record = commit.new_record(name.as_str(), DatasetState::Live);
            record.properties = local.clone();
            commit.pool.check_record_reservation(&record, 0)?;
            let entry = entry(OperationKind::Create, record.id, &[name.as_str()]);
            commit.add(record)?;
            commit.enter(self.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn snapshot_together(&self, datasets: &[DatasetName], snapshot: &str) -> Result<()> {
        let turn = self.begin_operations(datasets.len())?;
        let mut kept = BTreeMap::new();
        for dataset in datasets {
            let source: Source = format!("{dataset}@{snapshot}").parse()?;
            self.inner.refuse_taken(&source)?;
            kept.insert(self.inner.find_live(dataset)?.id, source);
        }
        turn.commit(Some(&mut |commit| {
            for (id, source) in &kept {
                let id = commit.snapshot(*id, source)?;
                if !is_passing(source) {
                    let entry = entry(OperationKind::Snapshot, id, &[&source.to_string()]);
                    commit.enter(self.author.as_ref(), entry)?;
                }
            }
            Ok(())
        }))
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        let turn = self.begin_operation()?;
        self.inner.refuse_taken(&Source::live(name.clone()))?;
        let origin = self.inner.find_snapshot(origin)?;
        turn.commit(Some(&mut |commit| {
            let record = commit.clone_of(origin.id, name)?;
            let texts = [name.as_str(), &origin.name];
            let entry = entry(OperationKind::Clone, record.id, &texts);
            let entry = OperationRecord { other: origin.id, ..entry };
            commit.add(record)?;
            commit.enter(self.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()> {
        let turn = self.begin_operation()?;
        self.inner.refuse_taken(&Source::live(name.clone()))?;
        let id = self.inner.find_live(dataset)?.id;
        let is_taken = |base: &Source| self.inner.find(base).is_ok();
        let base = Source::fork_base(dataset, name, &is_taken)?;
        turn.commit(Some(&mut |commit| {
            let record = commit.fork(id, &base, name, root_object)?;
            let texts = [name.as_str(), dataset.as_str()];
            let entry = entry(OperationKind::Fork, record.id, &texts);
            let entry = OperationRecord { other: record.origin, ..entry };
            commit.add(record)?;
            commit.enter(self.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn rollback(&self, to: &Source, keep: &str) -> Result<()> {
        let kept: Source = format!("{}@{keep}", to.dataset).parse()?;
        let turn = self.begin_operation()?;
        self.inner.refuse_taken(&kept)?;
        let target = self.inner.find_snapshot(to)?.id;
        let id = self.inner.find_live(&to.dataset)?.id;
        turn.commit_alone(&mut |commit| {
            let before = commit.roll_back(id, target, &kept)?;
            let texts = [to.to_string(), kept.to_string()];
            let entry = entry(OperationKind::Rollback, id, &[texts[0].as_str(), &texts[1]]);
            let entry = OperationRecord { other: target, before, ..entry };
            commit.enter(self.author.as_ref(), entry).map(|_| ())
        })
    }

    fn promote(&self, name: &DatasetName) -> Result<()> {
        let turn = self.begin_operation()?;
        let id = self.inner.refuse_promotion(name)?;
        let (other, whose) = self.inner.holder_of_origin(id)?;
        turn.commit(Some(&mut |commit| {
            let detail = commit.promote(id)?;
            let entry = entry(OperationKind::Promote, id, &[name.as_str(), &whose]);
            let entry = OperationRecord { other, detail, ..entry };
            commit.enter(self.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn hold(&self, snapshot: &Source, tag: &str) -> Result<()> {
        check_tag(tag)?;
        let turn = self.begin_operation()?;
        self.change_holds(&turn, snapshot, tag, (true, 0))
    }

    fn release(&self, snapshot: &Source, tag: &str) -> Result<()> {
        let turn = self.begin_operation()?;
        self.change_holds(&turn, snapshot, tag, (false, 0))
    }

    fn rename(&self, from: &Source, to: &Source) -> Result<()> {
        check_rename(from, to)?;
        let turn = self.begin_operation()?;
        self.inner.refuse_taken(to)?;
        let renamed = self.inner.find(from)?;
        refuse_hidden(&renamed)?;
        turn.commit(Some(&mut |commit| {
            commit.give_name(renamed.id, to)?;
            let texts = [renamed.name.as_str(), &to.to_string()];
            let entry = entry(OperationKind::Rename, renamed.id, &texts);
            commit.enter(self.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn apply_merge(
        &self,
        view: &dyn View,
        batch: Batch<'_>,
        merged: &MergedFrom<'_>,
    ) -> Result<()> {
        self.enter_merge(view, batch, merged)
    }

    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()> {
        self.compare((before, after), from, visit)
    }

    fn keep_for_now(&self, dataset: &DatasetName, purpose: &str) -> Result<Source> {
        self.keep_passing(dataset, purpose)
    }

    fn let_go(&self, kept: &Source) {
        if !self.forget_passing(kept) {
            let _stays = self.destroy(kept, false);
        }
    }

    fn is_overtaken(&self, kept: &Source) -> bool {
        self.inner.passing_state(kept).is_some_and(|state| state.is_overtaken())
    }

    fn report(&self, source: &Source) -> Result<DatasetReport> {
        let passing = self.inner.passing_state(source).map(|state| Arc::clone(&state.record));
        let record = passing.map_or_else(|| self.inner.find(source), Ok)?;
        list::report(&self.inner.records.read(), &record)
    }

    fn usage(&self, exact: bool) -> Result<Usage> {
        usage::usage(&self.inner, exact)
    }

    fn frozen(&self, source: &Source) -> Result<Arc<dyn View>> {
        let moment = Moment::hold(&self.inner);
        Ok(Arc::new(FrozenView::open(moment, &source.to_string())?))
    }

    fn destroy_together(&self, sources: &[Source], dry_run: bool) -> Result<Destruction> {
        destroy::destroy(self, sources, dry_run)
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
        let value = value.map(ToOwned::to_owned);
        self.set_properties(name, &BTreeMap::from([(property.to_owned(), value)]))
    }

    fn set_owner_limit(&self, name: &DatasetName, owner: u64, limit: Option<Bytes>) -> Result<()> {
        self.enter_limit(name, owner, limit)
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
        // Somebody may be destroying it: whether anyone has it open is asked only at the start.
        let _nothing_goes = inner.administering.lock();
        let found = inner.find(source)?;
        if source.snapshot.is_none() {
            refuse_hidden(&found)?;
        }
        let id = found.id;
        let datasets = inner.datasets.read();
        let dataset = datasets.get(&id).ok_or_else(|| Error::NoDataset(source.to_string()))?;
        Ok(DatasetView::new(inner.clone(), dataset.clone()))
    }

    /// Waits for the turn to commit an operation that is entered into the log.
    pub(crate) fn begin_operation(&self) -> Result<Turn<'_>> {
        self.inner.begin_operation(self.author.as_ref())
    }

    /// The same, of several that are entered by one commit.
    fn begin_operations(&self, count: usize) -> Result<Turn<'_>> {
        if self.author.is_some() {
            self.inner.make_room_in_log(count as u64)?;
        }
        self.inner.take_turn()
    }
}

/// Refuses what is kept for an undo: for whoever names it, it is not there.
pub(crate) fn refuse_hidden(record: &DatasetRecord) -> Result<()> {
    match is_hidden(record) {
        true => Err(Error::NoDataset(record.name.clone())),
        false => Ok(()),
    }
}

pub(crate) fn refuse_live(source: &Source) -> Result<()> {
    match source.snapshot {
        Some(_) => Ok(()),
        None => Err(Error::Invalid(format!("{source} is no snapshot: take one first"))),
    }
}

impl Inner {
    /// See [`Pool::begin_operation`].
    pub(crate) fn begin_operation(&self, author: Option<&Arc<Author>>) -> Result<Turn<'_>> {
        if author.is_some() {
            self.make_room_in_log(1)?;
        }
        self.take_turn()
    }

    /// The record of a dataset or snapshot that is not being destroyed.
    pub(crate) fn find(&self, source: &Source) -> Result<Arc<DatasetRecord>> {
        let name = source.to_string();
        let found = self.records.read().named(&name).cloned();
        found.ok_or(Error::NoDataset(name))
    }

    pub(crate) fn find_live(&self, name: &DatasetName) -> Result<Arc<DatasetRecord>> {
        let found = self.find(&Source::live(name.clone()))?;
        refuse_hidden(&found)?;
        Ok(found)
    }

    fn find_snapshot(&self, source: &Source) -> Result<Arc<DatasetRecord>> {
        refuse_live(source)?;
        let found = self.find(source)?;
        refuse_hidden(&found)?;
        Ok(found)
    }

    pub(crate) fn refuse_taken(&self, source: &Source) -> Result<()> {
        let name = source.to_string();
        let is_kept = name.starts_with(KEPT_PREFIX) || kept_for(&name).is_some();
        if is_kept || (source.snapshot.is_none() && source.is_own()) {
            return Err(Error::Invalid(format!("{source} is a name of the pool's own")));
        }
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
            let renamed = lineage::handed_over(&taken.name, &live.name)?;
            renamed.parse::<Source>()?;
            if records.named(&renamed).is_some() {
                return Err(Error::DatasetExists(renamed));
            }
            at = records.get(parent_of(taken));
        }
        Ok(live.id)
    }

    /// The dataset whose snapshot a clone began as: its id and name.
    fn holder_of_origin(&self, clone: u64) -> Result<(u64, String)> {
        let records = self.records.read();
        let origin = records.get(clone).and_then(|clone| records.get(clone.origin));
        let holder = origin.and_then(|origin| records.get(origin.parent));
        let holder = holder.ok_or_else(|| Error::NoDataset(format!("number {clone}")))?;
        Ok((holder.id, holder.name.clone()))
    }

    /// Refuses a record with a reservation that there is no space for; `kept_free_bytes` are kept
    /// free for it already.
    fn check_record_reservation(&self, record: &DatasetRecord, kept_free_bytes: u64) -> Result<()> {
        let wanted = Settings::new(&record.properties)?.reservation_bytes.unwrap_or(0);
        self.check_reservation(wanted, record.referenced_grains, kept_free_bytes)
    }
}

/// Refuses a record that does not fit an item.
pub(crate) fn refuse_too_long(record: &DatasetRecord) -> Result<()> {
    if record.encoded_len() <= DATASET_RECORD_BYTES_MAX {
        return Ok(());
    }
    let reason = format!("the properties of {} take too many bytes", record.name);
    Err(Error::Invalid(reason))
}

impl Commit<'_> {
    pub(crate) fn new_record(&mut self, name: &str, state: DatasetState) -> DatasetRecord {
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
    pub(crate) fn keep(&mut self, record: DatasetRecord) -> Result<()> {
        refuse_too_long(&record)?;
        self.records.insert(record.id, Some(record));
        Ok(())
    }

    /// Keeps a new record, and lets the running pool know of it.
    pub(crate) fn add(&mut self, record: DatasetRecord) -> Result<()> {
        let dataset = dataset_of(&record, false, (&self.pool.touched, &self.pool.recent))?;
        self.publications.push(Publication::Add(Arc::new(dataset)));
        self.keep(record)
    }
}

/// The dataset that the running pool has for a record.
pub(crate) fn running(pool: &Inner, id: u64) -> Option<Arc<Dataset>> {
    pool.datasets.read().get(&id).cloned()
}

/// The root of a record, encoded.
pub(crate) fn root_of(record: &DatasetRecord) -> Option<Bytes> {
    record.root.as_ref().map(|root| root.encode())
}
