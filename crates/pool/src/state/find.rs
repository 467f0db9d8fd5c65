//! Datasets and snapshots by their names, and the refusals of names that are not to be used.

use crate::memtable::dataset::{Dataset, Opened};
use crate::state::State;
use crate::state::forks::Named;
use crate::state::records::is_hidden;
use marram_format::dataset::DatasetRecord;
use marram_format::operation::{TRASH_PREFIX, trash_entry};
use marram_store::{DatasetName, Error, Result, Source};
use std::sync::Arc;

impl State {
    /// The record of a dataset or snapshot that is not being destroyed.
    pub(crate) fn find(&self, source: &Source) -> Result<Arc<DatasetRecord>> {
        let name = source.to_string();
        match self.forks.named(&name) {
            Named::InMemory(record) => return Ok(record),
            Named::Ended => return Err(Error::NoDataset(name)),
            Named::Other => {}
        }
        let found = self.records.read().named(&name).cloned();
        found.ok_or(Error::NoDataset(name))
    }

    pub(crate) fn find_live(&self, name: &DatasetName) -> Result<Arc<DatasetRecord>> {
        let found = self.find(&Source::live(name.clone()))?;
        refuse_hidden(&found)?;
        self.refuse_in_doubt(found.id)?;
        Ok(found)
    }

    pub(crate) fn find_snapshot(&self, source: &Source) -> Result<Arc<DatasetRecord>> {
        refuse_live(source)?;
        let found = self.find(source)?;
        refuse_hidden(&found)?;
        Ok(found)
    }

    pub(crate) fn refuse_taken(&self, source: &Source) -> Result<()> {
        let name = source.to_string();
        let is_in_trash = name.starts_with(TRASH_PREFIX) || trash_entry(&name).is_some();
        if is_in_trash || (source.snapshot.is_none() && source.is_own()) {
            return Err(Error::Invalid(format!("{source} is a name of the pool's own")));
        }
        self.refuse_known(source)
    }

    /// Refuses a name under which there is something.
    pub(crate) fn refuse_known(&self, source: &Source) -> Result<()> {
        match self.find(source) {
            Ok(_) => Err(Error::DatasetExists(source.to_string())),
            Err(_) => Ok(()),
        }
    }

    /// Refuses a dataset of which it is not known which state it has.
    pub(crate) fn refuse_in_doubt(&self, id: u64) -> Result<()> {
        match self.running(id).is_some_and(|dataset| dataset.doubt.is_there()) {
            true => Err(self.in_doubt(id)),
            false => Ok(()),
        }
    }

    /// That it is not known which state a dataset has.
    pub(crate) fn in_doubt(&self, id: u64) -> Error {
        Error::InDoubt(format!(
            "{} is in doubt: a transaction over two pools is prepared in it, and the other pool \
             has not said yet whether it is committed; `marram status` names both, and `marram tx \
             resolve` ends it",
            self.name_of(id)
        ))
    }

    /// The name of a dataset, for people.
    pub(crate) fn name_of(&self, id: u64) -> String {
        let records = self.records.read();
        records.get(id).map_or_else(|| format!("dataset {id}"), |record| record.name.clone())
    }

    /// The dataset that the running pool has for a record.
    pub(crate) fn running(&self, id: u64) -> Option<Arc<Dataset>> {
        self.datasets.read().get(&id).cloned()
    }

    /// Opens a dataset or snapshot: as long as it is open it is not destroyed.
    pub(crate) fn open(&self, source: &Source) -> Result<Opened> {
        // Somebody may be destroying it: whether anyone has it open is asked only at the start.
        let _nothing_goes = self.turns.administering.lock();
        let found = self.find(source)?;
        if source.snapshot.is_none() {
            refuse_hidden(&found)?;
            self.refuse_in_doubt(found.id)?;
        }
        let running = self.running(found.id);
        let dataset = running.ok_or_else(|| Error::NoDataset(source.to_string()))?;
        Ok(Opened::new(dataset))
    }
}

/// Refuses what is kept for an undo: by its name it is not there.
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
