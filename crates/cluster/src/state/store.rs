//! The contract of a store.

use super::{Cluster, Shared, prune};
use crate::catalogue::{Catalogue, Link};
use crate::chain;
use crate::database::{Range, Table};
use crate::draft::{DEFAULTS, Draft};
use crate::format::{StoredItem, keys};
use crate::view::ClusterView;
use marram_store::{
    DatasetName, DatasetReport, Destruction, Error, Holds, Item, ItemChange, Key, Lineage,
    Properties, PropertySource, Result, Source, Store, StoreCapabilities, View,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

/// Marks that one question asks for.
const MARKS_ASKED: usize = 1000;
/// Keys of which the items are read at a time.
const KEYS_READ: usize = 256;

/// Sees a key, with what one state and another have under it; false ends it.
type Visit<'v> = &'v mut dyn FnMut(Key, Option<StoredItem>, Option<StoredItem>) -> bool;

impl Store for Cluster {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        self.shared.look()?;
        let mut state = self.shared.state.write();
        let number = state.catalogue.find(source)?;
        if state.going.contains(&number) {
            return Err(Error::NoDataset(source.to_string()));
        }
        let links = state.links(number)?;
        let open = state.open.get(&number).and_then(Weak::upgrade).unwrap_or_default();
        state.open.retain(|_, open| open.strong_count() > 0);
        state.open.insert(number, Arc::downgrade(&open));
        let snapshot = source.snapshot.is_some().then_some(links);
        Ok(Arc::new(ClusterView {
            shared: Arc::clone(&self.shared),
            number,
            snapshot,
            _open: open,
        }))
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        let catalogue = self.catalogue()?;
        let named = catalogue.named().into_iter().filter(|(source, _)| !source.is_in_trash());
        named.map(|(source, number)| catalogue.report(number, source)).collect()
    }

    fn report(&self, source: &Source) -> Result<DatasetReport> {
        let catalogue = self.catalogue()?;
        catalogue.report(catalogue.find(source)?, source.clone())
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        self.publish(&mut |draft| draft.create(name, &properties.0))
    }

    fn snapshot_together(&self, datasets: &[DatasetName], snapshot: &str) -> Result<()> {
        self.publish(&mut |draft| {
            datasets.iter().try_for_each(|name| draft.snapshot(name, snapshot).map(|_| ()))
        })
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        self.publish(&mut |draft| {
            let origin = draft.catalogue().snapshot(origin)?;
            draft.clone_snapshot(origin, name).map(|_| ())
        })
    }

    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()> {
        self.publish(&mut |draft| match name.transaction() {
            Some(_) => {
                draft.begin_transaction((dataset, root_object), name, &self.shared.session())
            }
            None => draft.fork(dataset, name, root_object),
        })
    }

    fn rename(&self, from: &Source, to: &Source) -> Result<()> {
        self.publish(&mut |draft| draft.rename(from, to))
    }

    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()> {
        let catalogue = self.catalogue()?;
        let links = |source: &Source| {
            let number = catalogue.snapshot(source)?;
            let record = catalogue.record(number).ok_or(Error::NoDataset(source.to_string()))?;
            catalogue.links(record.line, Some(record.period))
        };
        let (before, after) = (links(before)?, links(after)?);
        let foresee = |keys: &[Key]| {
            self.shared.foresee_changed(&before, keys);
            self.shared.foresee_changed(&after, keys);
        };
        let states = (&before[..], &after[..]);
        differing_foreseen(&self.shared, states, from, &foresee, &mut |key, before, after| {
            let shown = |item: Option<StoredItem>| item.as_ref().map(StoredItem::item);
            let (before, after): (Option<Item>, Option<Item>) = (shown(before), shown(after));
            visit(ItemChange { key, before, after })
        })
    }

    fn destroy_together(&self, sources: &[Source], dry_run: bool) -> Result<Destruction> {
        let plan = self.plan_of_destruction(sources)?;
        if dry_run {
            return Ok(plan);
        }
        let sources = self.publish(&mut |draft| self.destroy(draft, sources))?;
        Ok(Destruction { sources, ..plan })
    }

    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>> {
        let catalogue = self.catalogue()?;
        let number = catalogue.dataset(name)?;
        let own = catalogue.record(number).map(|record| record.properties.clone());
        let local = |(name, value)| (name, (value, PropertySource::Local));
        let mut all: BTreeMap<_, _> = own.unwrap_or_default().into_iter().map(local).collect();
        for (property, default) in DEFAULTS {
            let default = || (default.to_owned(), PropertySource::Default);
            all.entry(property.to_owned()).or_insert_with(default);
        }
        Ok(all)
    }

    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()> {
        self.publish(&mut |draft| draft.set_property(name, property, value))
    }

    fn sync(&self) -> Result<()> {
        self.shared.publish_waiting()
    }

    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities {
            log: Some(self),
            undo: Some(self),
            holds: Some(self),
            lineage: Some(self),
            ..StoreCapabilities::default()
        }
    }
}

impl Holds for Cluster {
    fn hold(&self, snapshot: &Source, tag: &str) -> Result<()> {
        self.publish(&mut |draft| draft.hold(snapshot, tag))
    }

    fn release(&self, snapshot: &Source, tag: &str) -> Result<()> {
        self.publish(&mut |draft| draft.release(snapshot, tag))
    }
}

impl Lineage for Cluster {
    fn rollback(&self, to: &Source, keep: &str) -> Result<()> {
        self.shared.look()?;
        self.publish(&mut |draft| {
            let mut state = self.shared.state.write();
            let gone = draft.roll_back(to, keep, &|number| state.is_open(number))?;
            state.going.extend(gone);
            Ok(())
        })
    }

    fn promote(&self, name: &DatasetName) -> Result<()> {
        self.shared.look()?;
        self.publish(&mut |draft| draft.promote(name).map(|_| ()))
    }
}

impl Cluster {
    /// The datasets and snapshots that this client knows of, whatever others have done since.
    pub fn known(&self) -> Vec<Source> {
        let catalogue = Arc::clone(&self.shared.state.read().catalogue);
        catalogue.named().into_iter().map(|(source, _)| source).collect()
    }

    pub(super) fn catalogue(&self) -> Result<Arc<Catalogue>> {
        self.shared.look()?;
        Ok(Arc::clone(&self.shared.state.read().catalogue))
    }

    /// Lets a draft destroy, and keeps what goes from being opened until it is gone.
    fn destroy(&self, draft: &mut Draft, sources: &[Source]) -> Result<Vec<Source>> {
        let mut state = self.shared.state.write();
        let before = Arc::clone(&state.catalogue);
        let gone = draft.destroy(sources, &|number| state.is_open(number))?;
        let numbers = gone.iter().filter_map(|source| before.find(source).ok());
        state.going.extend(numbers);
        Ok(gone)
    }

    pub(super) fn plan_of_destruction(&self, sources: &[Source]) -> Result<Destruction> {
        let (catalogue, open) = {
            let state = self.shared.state.read();
            let numbers = state.catalogue.records().map(|(number, _)| number);
            let open: BTreeSet<u64> = numbers.filter(|number| state.is_open(*number)).collect();
            ((*state.catalogue).clone(), open)
        };
        let mut draft = Draft::new(catalogue, 0, self.shared.now());
        let sources = draft.destroy(sources, &|number| open.contains(&number))?;
        let drafted = draft.finish();
        let freed_bytes = prune::freed(&self.shared, &drafted.catalogue, &drafted.work)?;
        Ok(Destruction { sources, freed_bytes })
    }
}

/// Visits the items in which two states differ, by ascending keys from one on, until the visitor
/// returns false.
pub(super) fn differing(
    shared: &Shared,
    states: (&[Link], &[Link]),
    from: Key,
    visit: Visit<'_>,
) -> Result<()> {
    differing_foreseen(shared, states, from, &|_| (), visit)
}

/// The same; `foresee` hears of keys that may differ, many at a time, before they are visited.
fn differing_foreseen(
    shared: &Shared,
    states: (&[Link], &[Link]),
    from: Key,
    foresee: &dyn Fn(&[Key]),
    visit: Visit<'_>,
) -> Result<()> {
    let keys: Vec<Key> = changed_keys(shared, states, from)?.into_iter().collect();
    for keys in keys.chunks(KEYS_READ) {
        foresee(keys);
        let before = chain::get_all(&shared.rows, states.0, keys)?;
        let after = chain::get_all(&shared.rows, states.1, keys)?;
        for ((key, before), after) in keys.iter().zip(before).zip(after) {
            if before != after && !visit(*key, before, after) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The keys, from one on, under which two states may differ: those that were changed on the lines
/// and in the periods that only one of them has.
fn changed_keys(shared: &Shared, states: (&[Link], &[Link]), from: Key) -> Result<BTreeSet<Key>> {
    let mut keys = BTreeSet::new();
    for (own, other) in [(states.0, states.1), (states.1, states.0)] {
        for link in own {
            let known = other.iter().find(|it| it.line == link.line).and_then(|it| it.period);
            let upto = link.period.unwrap_or(u64::MAX);
            let after = known.unwrap_or(0);
            marked(shared, (link.line, after, upto), from, &mut keys)?;
            if known.is_some() {
                // Both have it, and all before it.
                break;
            }
        }
    }
    Ok(keys)
}

/// Adds the keys that were changed on a line behind one period, up to another.
fn marked(
    shared: &Shared,
    (line, after, upto): (u64, u64, u64),
    from: Key,
    found: &mut BTreeSet<Key>,
) -> Result<()> {
    let mut next = keys::mark(line, after.saturating_add(1), Key::MIN);
    let to = keys::mark(line, upto, Key::MAX);
    while next <= to {
        let range = Range::first(Table::Marks, next.clone(), to.clone(), MARKS_ASKED);
        let rows = shared.rows.read(&[range])?.concat();
        for (row, _) in &rows {
            let (_, _, key) = keys::decode_mark(row)?;
            if key >= from {
                found.insert(key);
            }
        }
        match rows.last() {
            Some((last, _)) if rows.len() == MARKS_ASKED => next = [&last[..], &[0]].concat(),
            _ => break,
        }
    }
    Ok(())
}
