//! Snapshots that go to other homes, and come from there.

use super::store::differing;
use super::{Cluster, Shared};
use crate::blocks::uses;
use crate::catalogue::{Catalogue, Link};
use crate::chain;
use crate::draft::{IDENTITY, check_property, identity_text};
use crate::format::{Record, Reference, Role, StoredItem, keys};
use crate::pending::Pending;
use marram_codec::{ChecksumKind, checksum};
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::pointer::checksum_kind;
use marram_format::stream::{SnapshotIdentity, StreamBegin};
use marram_store::{Block, DatasetName, Error, Key, Properties, Result, Source, StoredForm, kind};
use marram_stream::accessed::{differ_in_access_time, is_bookkeeping, is_nameless};
use marram_stream::reader::is_sent_property;
use marram_stream::{Arrival, Since, Transfers};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Uses of a block that are looked at for one in a base.
const USES_ASKED: usize = 32;
/// Items that one entry brings into a dataset, and bytes of them. More become its own line, one
/// deeper than before.
const ITEMS_MAX: usize = 200_000;
const ITEMS_BYTES_MAX: usize = 64 << 20;
/// Inodes without a name that are looked for among what differs.
const NAMELESS_MAX: usize = 1024;
/// What an item takes in an entry beside its value, at most.
const ITEM_BYTES: usize = 128;

impl Transfers for Cluster {
    fn begin_of(&self, snapshot: &Source) -> Result<StreamBegin> {
        let catalogue = self.catalogue()?;
        let number = catalogue.snapshot(snapshot)?;
        let record = catalogue.record(number).ok_or(Error::NoDataset(snapshot.to_string()))?;
        let Role::Snapshot { of } = record.role else {
            return Err(Error::NoDataset(snapshot.to_string()));
        };
        let dataset = catalogue.record(of);
        let properties = dataset.map(|it| it.properties.clone()).unwrap_or_default();
        Ok(StreamBegin {
            snapshot: identity(&self.shared, number, record),
            base: None,
            dataset_id: own_id(&self.shared, of),
            pool_id: self.shared.id,
            root_object: record.root_object,
            referenced_bytes: record.referenced_bytes,
            dataset_name: snapshot.dataset.to_string(),
            snapshot_name: record.name.clone(),
            properties: properties.into_iter().filter(|(name, _)| is_sent_property(name)).collect(),
            after: None,
        })
    }

    fn identified(
        &self,
        wanted: SnapshotIdentity,
        of: Option<&DatasetName>,
    ) -> Result<Option<Source>> {
        let catalogue = self.catalogue()?;
        let within = of.map(|name| catalogue.dataset(name)).transpose()?;
        let is_it = |(number, record): &(u64, &Record)| match record.role {
            Role::Snapshot { of } => {
                within.is_none_or(|within| within == of)
                    && identity(&self.shared, *number, record) == wanted
            }
            Role::Dataset { .. } => false,
        };
        let found = catalogue.records().find(is_it);
        Ok(found.and_then(|(number, _)| catalogue.source(number)))
    }

    fn is_there(&self, identity: SnapshotIdentity) -> Result<bool> {
        if !self.shared.read_only {
            self.shared.take_in(&mut self.shared.publisher.lock())?;
        }
        Ok(self.identified(identity, None)?.is_some())
    }

    fn stored(&self, block: &Block) -> Result<StoredForm> {
        let Block::Stored(token) = block else {
            return Err(Error::Invalid("a block that was never written is not sent".to_owned()));
        };
        let reference = Reference::of_token(token)?;
        let (codec, bytes) = self.shared.blocks.stored(&reference)?;
        let checksum = checksum(ChecksumKind::Xxh3, &bytes);
        let checksum_kind = checksum_kind::XXH3_128;
        Ok(StoredForm { codec, checksum_kind, checksum, bytes: Arc::new(bytes) })
    }

    fn holder(&self, snapshot: &Source, block: &Block) -> Result<Option<Key>> {
        let Block::Stored(token) = block else { return Ok(None) };
        let reference = Reference::of_token(token)?;
        let links = links_of(&*self.catalogue()?, snapshot)?;
        let rows = self.shared.rows.read(&[uses(&reference.id, USES_ASKED)])?.concat();
        let mut keys = Vec::new();
        for (row, _) in &rows {
            let (_, (line, key, _)) = keys::decode_usage(row)?;
            if links.iter().any(|link| link.line == line) {
                keys.push(key);
            }
        }
        let items = chain::get_all(&self.shared.rows, &links, &keys)?;
        let has_it = |item: &Option<StoredItem>| {
            item.as_ref().is_some_and(|item| item.block == Some(reference))
        };
        Ok(keys.into_iter().zip(items).find(|(_, item)| has_it(item)).map(|(key, _)| key))
    }

    fn hide(&self, begin: &StreamBegin, base: Option<&Source>) -> Result<DatasetName> {
        // When snapshots are taken and go is the business of each home.
        let is_kept = |(name, value): &&(String, String)| {
            name == "recordsize" && check_property(name, value).is_ok()
        };
        let own = begin.properties.iter().filter(is_kept);
        let properties = Properties(own.cloned().collect());
        for hidden in DatasetName::receiving() {
            let made = self.shared.publish(&mut |draft| match base {
                None => draft.create(&hidden, &properties.0),
                Some(base) => {
                    let base = draft.catalogue().snapshot(base)?;
                    draft.clone_snapshot(base, &hidden).map(|_| ())
                }
            });
            match made {
                Err(Error::DatasetExists(_)) => {}
                made => return made.map(|()| hidden),
            }
        }
        Err(Error::Invalid("too many streams are being received: wait for some".to_owned()))
    }

    fn since(&self, snapshot: &Source) -> Result<Since> {
        self.shared.publish_waiting()?;
        self.since_in(&*self.catalogue()?, snapshot)
    }

    fn show(&self, arrival: &Arrival) -> Result<()> {
        let Arrival { hidden, snapshot, base, stands, begin } = arrival;
        if base.is_none() {
            return self.shared.publish(&mut |draft| {
                let number = draft.catalogue().dataset(hidden)?;
                draft.change(number, |record| record.root_object = begin.root_object)?;
                draft.name_arrival(hidden, &snapshot.dataset)?;
                draft.snapshot_arrival(snapshot, &begin.snapshot)?;
                draft.act_for(self.author.as_ref());
                let name = snapshot.dataset.as_str();
                draft.enter(OperationRecord::of(OperationKind::Create, number, &[name]))?;
                Ok(())
            });
        }
        self.shared.publish_waiting()?;
        let catalogue = self.catalogue()?;
        let place = |catalogue: &Catalogue| -> Result<_> {
            let number = catalogue.dataset(&snapshot.dataset)?;
            let moment = self.shared.state.read().moment(number);
            Ok((catalogue.record(number).map(|record| (record.line, record.period)), moment))
        };
        let before = place(&catalogue)?;
        let changed = || Error::InUse {
            name: snapshot.dataset.to_string(),
            holder: "it was changed while the stream was shown: receive it again".to_owned(),
        };
        if let Some(stands) = stands
            && self.since_in(&catalogue, stands)? == Since::Changed
        {
            return Err(changed());
        }
        let items = difference(&self.shared, &catalogue, (&snapshot.dataset, hidden))?;
        self.shared.publish_items(items.as_ref().unwrap_or(&Pending::default()), &mut |draft| {
            if place(draft.catalogue())? != before {
                return Err(changed());
            }
            match items {
                Some(_) => draft.drop_arrival(hidden)?,
                None => draft.take_over(&snapshot.dataset, hidden)?,
            }
            draft.snapshot_arrival(snapshot, &begin.snapshot)?;
            draft.act_for(self.author.as_ref());
            let number = draft.catalogue().dataset(&snapshot.dataset)?;
            let texts = [snapshot.to_string(), String::new()];
            let texts = texts.each_ref().map(String::as_str);
            draft.enter(OperationRecord::of(OperationKind::Rollback, number, &texts))?;
            Ok(())
        })
    }
}

impl Cluster {
    /// How the dataset of a snapshot differs from it, of what has been published.
    fn since_in(&self, catalogue: &Catalogue, snapshot: &Source) -> Result<Since> {
        let links = (links_of(catalogue, snapshot)?, live_links(catalogue, &snapshot.dataset)?);
        let (mut since, mut others) = (Since::Nothing, BTreeSet::new());
        let states = (&links.0[..], &links.1[..]);
        differing(&self.shared, states, Key::MIN, &mut |key, before, after| {
            match (before, after) {
                (Some(before), Some(after)) if is_accessed(key, &before, &after) => {
                    since = Since::Accessed;
                }
                _ if is_bookkeeping(key) => since = Since::Accessed,
                _ => _ = others.insert(key.object),
            }
            others.len() <= NAMELESS_MAX
        })?;
        match others.is_empty() {
            true => Ok(since),
            false if self.are_nameless(&links.0, &others)? => Ok(Since::Accessed),
            false => Ok(Since::Changed),
        }
    }

    /// Whether all of these are inodes without a name in a state: a mount frees them.
    fn are_nameless(&self, links: &[Link], inodes: &BTreeSet<u64>) -> Result<bool> {
        if inodes.len() > NAMELESS_MAX {
            return Ok(false);
        }
        let keys: Vec<Key> = inodes.iter().map(|ino| Key::new(0, kind::ORPHAN, *ino)).collect();
        let found = chain::get_all(&self.shared.rows, links, &keys)?;
        let is_it = |orphan: &Option<StoredItem>| {
            orphan.as_ref().is_some_and(|orphan| is_nameless(&orphan.value))
        };
        Ok(found.iter().all(is_it))
    }
}

/// The items by which one dataset becomes what another one is; none if they are too many for one
/// entry.
fn difference(
    shared: &Shared,
    catalogue: &Catalogue,
    (dataset, hidden): (&DatasetName, &DatasetName),
) -> Result<Option<Pending>> {
    let links = (live_links(catalogue, dataset)?, live_links(catalogue, hidden)?);
    let number = catalogue.dataset(dataset)?;
    let (mut items, mut count, mut bytes) = (Pending::default(), 0, 0);
    let mut fits = true;
    differing(shared, (&links.0, &links.1), Key::MIN, &mut |key, _, after| {
        count += 1;
        bytes += ITEM_BYTES + after.as_ref().map_or(0, |item| item.value.len());
        items.set(number, key, after.map(|item| item.item()));
        fits = count <= ITEMS_MAX && bytes <= ITEMS_BYTES_MAX;
        fits
    })?;
    Ok(fits.then_some(items))
}

fn is_accessed(key: Key, before: &StoredItem, after: &StoredItem) -> bool {
    key.kind == kind::INODE
        && before.block.is_none()
        && after.block.is_none()
        && differ_in_access_time(&before.value, &after.value)
}

fn links_of(catalogue: &Catalogue, snapshot: &Source) -> Result<Vec<Link>> {
    let record = catalogue.record(catalogue.snapshot(snapshot)?);
    let record = record.ok_or_else(|| Error::NoDataset(snapshot.to_string()))?;
    catalogue.links(record.line, Some(record.period))
}

/// The lines of a dataset as its last publication has it.
fn live_links(catalogue: &Catalogue, name: &DatasetName) -> Result<Vec<Link>> {
    let record = catalogue.record(catalogue.dataset(name)?);
    let record = record.ok_or_else(|| Error::NoDataset(name.to_string()))?;
    catalogue.links(record.line, Some(record.period))
}

/// The identity of a snapshot: the one that it came with, or one of its own.
fn identity(shared: &Shared, number: u64, record: &Record) -> SnapshotIdentity {
    let came = record.properties.get(IDENTITY).and_then(|text| id_of(text));
    let id = came.unwrap_or_else(|| own_id(shared, number));
    SnapshotIdentity { id, created_seconds: record.created_seconds }
}

fn id_of(text: &str) -> Option<[u8; 16]> {
    let id = u128::from_str_radix(text, 16).ok()?.to_be_bytes();
    (identity_text(&id) == text).then_some(id)
}

/// An id for what has a number here, that nothing else has anywhere.
fn own_id(shared: &Shared, number: u64) -> [u8; 16] {
    let hash = shared.rows.hash(&[&shared.id[..], &number.to_le_bytes()].concat());
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    id
}
