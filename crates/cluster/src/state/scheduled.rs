//! Snapshots that are taken by themselves: which datasets have a rule for them, and how one of
//! several clients takes each.
//!
//! What is due is judged outside, by what is known, and again in the entry that takes it: where
//! another client has taken or destroyed a snapshot of the dataset since, nothing is taken. A
//! client that was taken for lost publishes nothing, so it takes none.

use super::Cluster;
use super::company::Clocks;
use crate::catalogue::Catalogue;
use crate::draft::{SNAPSHOTS, is_hidden};
use crate::format::Role;
use marram_store::{DatasetName, Key, Result, Scheduled, SnapshotRule, Source, Store, View, kind};
use marram_stream::{Since, Transfers};

impl Cluster {
    /// The datasets that have a rule for automatic snapshots.
    ///
    /// # Errors
    /// The database fails, or has a name that makes no sense.
    pub fn scheduled(&self) -> Result<Vec<Scheduled>> {
        let catalogue = self.catalogue()?;
        let numbers = catalogue.records().map(|(number, _)| number);
        numbers.filter_map(|number| scheduled(&catalogue, number).transpose()).collect()
    }

    /// Whether anything that users see has changed in a dataset since a snapshot of it but times
    /// of access; without a snapshot, whether there is anything in it.
    ///
    /// # Errors
    /// The database fails; no such dataset or snapshot.
    pub fn has_changed_since(&self, of: &Scheduled) -> Result<bool> {
        if let Some(newest) = &of.newest {
            return Ok(self.since(newest)? == Since::Changed);
        }
        let live = Source::live(of.dataset.clone());
        let (root, view) = (self.report(&live)?.root_object, self.open(&live)?);
        let mut is_empty = true;
        let (from, to) = (Key::new(root, kind::ENTRY, 0), Key::new(root, kind::ENTRY, u64::MAX));
        View::scan(&*view, from, to, &mut |_, _| {
            is_empty = false;
            false
        })?;
        Ok(!is_empty)
    }

    /// Takes a snapshot of each of these datasets, all in one entry; of none of which others have
    /// changed the rule, or taken or destroyed a snapshot, since it was judged. Returns of which.
    ///
    /// # Errors
    /// The database fails; [`marram_store::Error::ReadOnly`] once others have taken this client for
    /// lost. Then there is none.
    pub fn take_due(&self, due: &[Scheduled], snapshot: &str) -> Result<Vec<DatasetName>> {
        self.without_author().publish(&mut |draft| {
            let mut taken = Vec::new();
            for of in due {
                let number = draft.catalogue().dataset(&of.dataset);
                let now = number.and_then(|number| scheduled(draft.catalogue(), number));
                if now.is_ok_and(|now| now.as_ref() == Some(of)) {
                    draft.snapshot(&of.dataset, snapshot)?;
                    taken.push(of.dataset.clone());
                }
            }
            Ok(taken)
        })
    }

    /// What the log tells of the clocks of others.
    pub fn clocks(&self) -> Clocks {
        self.shared.state.read().company.clocks()
    }
}

/// A dataset, if it has a rule.
fn scheduled(catalogue: &Catalogue, number: u64) -> Result<Option<Scheduled>> {
    let Some(record) = catalogue.record(number) else { return Ok(None) };
    let rule = record.properties.get(SNAPSHOTS).and_then(|text| text.parse::<SnapshotRule>().ok());
    let (Role::Dataset { origin, .. }, Some(rule)) = (record.role, rule) else { return Ok(None) };
    let dataset: DatasetName = record.name.parse()?;
    if is_hidden(record) || dataset.is_receiving() || dataset.transaction().is_some() {
        return Ok(None);
    }
    let snapshots = seen(catalogue, number);
    Ok(Some(Scheduled {
        automatic: snapshots.iter().filter(|source| source.is_automatic()).cloned().collect(),
        began_seconds: (origin != 0).then_some(record.created_seconds),
        newest: snapshots.into_iter().next(),
        is_kept: false,
        dataset,
        rule,
    }))
}

/// The snapshots of a dataset that users see, newest first.
fn seen(catalogue: &Catalogue, dataset: u64) -> Vec<Source> {
    let mut numbers: Vec<u64> = catalogue.snapshots_of(dataset).collect();
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    let sources = numbers.into_iter().filter_map(|number| catalogue.source(number));
    sources.filter(|source| !source.is_own()).collect()
}
