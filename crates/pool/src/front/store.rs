//! The pool as a store: each operation forwards to the room that has it.

use crate::front::Pool;
use crate::snapshots::{comparing, datasets, destroy, list, properties};
use crate::views;
use marram_store::{
    DatasetName, DatasetReport, Destruction, ItemChange, Key, Properties, PropertySource, Result,
    Source, Store, StoreCapabilities, View,
};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Store for Pool {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        views::open(&self.session, source)
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        list::list(&self.session.state)
    }

    fn report(&self, source: &Source) -> Result<DatasetReport> {
        list::report_of(&self.session, source)
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        datasets::create(&self.session, name, properties)
    }

    fn snapshot_together(&self, datasets: &[DatasetName], snapshot: &str) -> Result<()> {
        datasets::snapshot_together(&self.session, datasets, snapshot)
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        datasets::clone_snapshot(&self.session, origin, name)
    }

    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()> {
        datasets::fork(&self.session, dataset, name, root_object)
    }

    fn rename(&self, from: &Source, to: &Source) -> Result<()> {
        datasets::rename(&self.session, from, to)
    }

    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()> {
        comparing::compare(&self.session, (before, after), from, visit)
    }

    fn destroy_together(&self, sources: &[Source], dry_run: bool) -> Result<Destruction> {
        destroy::destroy(&self.session, sources, dry_run)
    }

    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>> {
        properties::properties(&self.session, name)
    }

    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()> {
        let value = value.map(ToOwned::to_owned);
        self.set_properties(name, &BTreeMap::from([(property.to_owned(), value)]))
    }

    fn sync(&self) -> Result<()> {
        self.commit()
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities {
            ephemeral: Some(self),
            usage: Some(self),
            frozen: Some(self),
            log: Some(self),
            holds: Some(self),
            lineage: Some(self),
            volatile: Some(self),
            several: Some(self),
        }
    }
}
