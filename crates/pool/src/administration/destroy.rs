//! Giving back what nobody needs any more.
//!
//! Destroying a snapshot frees what died between it and the next one and was born after the one
//! before it: its own blocks are found on the dead list of the next one, nothing is walked. The
//! rest of that list, and the snapshot's own, are the next one's from then on.
//!
//! Destroying a dataset takes its name at once; its tree is walked by later commits, piece by
//! piece, so that no commit becomes long. Subtrees that are as old as its origin are not entered.

use super::{root_of, running};
use crate::commit::{Commit, Publication, is_shared};
use crate::media::At;
use crate::pointers::decode_pointer;
use crate::pool::Inner;
use crate::tree::{self, NodeSource, PruneSink, Pruned, prune};
use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_format::key::KEY_BYTES;
use marram_format::node::Node;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_format::space::{DeadChunk, cursor_key, dead_key};
use marram_store::{Damage, Destruction, Error, Key, Result, Source, kind};
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// Leaves of a destroyed dataset that one step gives back.
const PRUNE_LEAVES: usize = 2000;

pub(super) fn destroy(pool: &Inner, source: &Source, dry_run: bool) -> Result<Destruction> {
    if dry_run {
        return plan(pool, source).map(|(destruction, _)| destruction);
    }
    let turn = pool.take_turn()?;
    let (destruction, goes) = plan(pool, source)?;
    for gone in &goes {
        refuse_in_use(pool, gone)?;
    }
    turn.commit(Some(&mut |commit| {
        for gone in &goes {
            let record = commit.record(gone.id)?;
            match record.state {
                DatasetState::Snapshot => commit.destroy_snapshot(record)?,
                _ => commit.destroy_live(record)?,
            }
        }
        Ok(())
    }))?;
    Ok(destruction)
}

/// What a destruction takes: to be told, and the records in the order in which they go.
fn plan(pool: &Inner, source: &Source) -> Result<(Destruction, Vec<DatasetRecord>)> {
    let record = pool.find(source)?;
    if record.name == "root" {
        let reason = "the root dataset cannot be destroyed: delete what is in it".to_owned();
        return Err(Error::Invalid(reason));
    }
    let goes = all_that_goes(pool, &record)?;
    let mut sources: Vec<Source> =
        goes.iter().map(|record| record.name.parse()).collect::<Result<_>>()?;
    sources.sort();
    Ok((Destruction { sources, freed_bytes: freed_bytes(pool, &record)? }, goes))
}

/// The record and, for a dataset, its snapshots before it, oldest first.
fn all_that_goes(pool: &Inner, record: &DatasetRecord) -> Result<Vec<DatasetRecord>> {
    let records = pool.records.read();
    let mut goes = vec![record.clone()];
    let mut previous = if record.state == DatasetState::Live { record.previous } else { 0 };
    while previous != 0 {
        let snapshot =
            records.get(&previous).ok_or_else(|| Error::NoDataset(format!("number {previous}")))?;
        goes.push(snapshot.clone());
        previous = snapshot.previous;
    }
    goes.reverse();
    Ok(goes)
}

fn freed_bytes(pool: &Inner, record: &DatasetRecord) -> Result<u64> {
    let records = pool.records.read().clone();
    if record.state == DatasetState::Snapshot {
        return Ok(super::list::unique_grains(pool, &records, record)? * GRAIN_BYTES);
    }
    let shared = records.get(&record.origin).map_or(0, |origin| origin.referenced_grains);
    let mut own = record.referenced_grains;
    let mut previous = record.previous;
    let mut newer = record.clone();
    while let Some(snapshot) = records.get(&previous) {
        own += newer.dead_grains;
        previous = snapshot.previous;
        newer = snapshot.clone();
    }
    Ok((own + newer.dead_grains).saturating_sub(shared) * GRAIN_BYTES)
}

/// **Asked before anything is frozen**: what is written to a dataset after that, through a view
/// that was open, goes into frames that the commit does not include. If the dataset went with the
/// commit, a replay of them would find no dataset, and the pool could not be opened.
fn refuse_in_use(pool: &Inner, gone: &DatasetRecord) -> Result<()> {
    let in_use = |holder: String| Err(Error::InUse { name: gone.name.clone(), holder });
    if running(pool, gone.id).is_some_and(|dataset| dataset.is_open()) {
        return in_use("it is mounted; unmount it first".to_owned());
    }
    let records = pool.records.read();
    let began_as_it =
        |record: &&DatasetRecord| record.origin == gone.id && record.state == DatasetState::Live;
    let clones: Vec<String> =
        records.values().filter(began_as_it).map(|record| record.name.clone()).collect();
    if !clones.is_empty() {
        return in_use(format!("{} began as it; destroy that first", clones.join(", ")));
    }
    Ok(())
}

/// The pointers on the dead list of `record` that were born after `group`.
pub(super) fn dead_only_in(
    pool: &Inner,
    record: &DatasetRecord,
    group: Group,
) -> Result<Vec<Pointer>> {
    let mut found = Vec::new();
    for (_, chunk) in dead_chunks(pool, record.dead_list)? {
        for pointer in chunk.pointers {
            let pointer = decode_pointer(&pointer)?;
            if pointer.birth > group {
                found.push(pointer);
            }
        }
    }
    Ok(found)
}

/// The chunks of a dead list, as the last commit has them.
fn dead_chunks(pool: &Inner, list: u64) -> Result<Vec<(Key, DeadChunk)>> {
    let epoch = pool.media.epoch();
    let root = pool.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
    let at = At { media: &pool.media, epoch };
    let mut chunks = Vec::new();
    let mut wrong = None;
    tree::scan(&at, root.as_ref(), dead_key(list, 0), dead_key(list, u64::MAX), &mut |found| {
        match DeadChunk::decode(&found.value) {
            Ok(chunk) => chunks.push((found.key, chunk)),
            Err(error) => wrong = Some(error.to_string()),
        }
        wrong.is_none()
    })?;
    match wrong {
        None => Ok(chunks),
        Some(reason) => Err(Error::Damaged(Damage {
            what: "a dead list",
            place: format!("list {list}"),
            reason,
        })),
    }
}

impl Commit<'_> {
    /// All pointers of a dead list, which is emptied: those of earlier commits and of this one.
    fn take_dead(&mut self, list: u64) -> Result<Vec<Bytes>> {
        let mut pointers = Vec::new();
        for (key, chunk) in dead_chunks(self.pool, list)? {
            if let Entry::Vacant(place) = self.items.entry(key) {
                place.insert(None);
                pointers.extend(chunk.pointers);
            }
        }
        pointers.extend(self.take_new_dead(list));
        Ok(pointers)
    }

    fn destroy_snapshot(&mut self, gone: DatasetRecord) -> Result<()> {
        let mut next = self.record(gone.next)?;
        next.dead_grains = 0;
        let mut stay = self.take_dead(gone.dead_list)?;
        for pointer in self.take_dead(next.dead_list)? {
            let decoded = decode_pointer(&pointer)?;
            if decoded.birth > gone.previous_group {
                self.free(&decoded)?;
            } else {
                stay.push(pointer);
            }
        }
        for pointer in stay {
            next.dead_grains += decode_pointer(&pointer)?.grains();
            self.add_dead(next.dead_list, pointer);
        }
        next.previous = gone.previous;
        next.previous_group = gone.previous_group;
        self.records.insert(next.id, Some(next));
        if gone.previous != 0 {
            let mut before = self.record(gone.previous)?;
            before.next = gone.next;
            self.records.insert(before.id, Some(before));
        }
        self.records.insert(gone.id, None);
        self.publications.push(Publication::Remove(gone.id));
        Ok(())
    }

    /// Takes the name; the space follows in [`Inner::prune_step`].
    fn destroy_live(&mut self, mut gone: DatasetRecord) -> Result<()> {
        self.take_dead(gone.dead_list)?;
        if gone.origin != 0 {
            let mut origin = self.record(gone.origin)?;
            origin.clones = origin.clones.saturating_sub(1);
            self.records.insert(origin.id, Some(origin));
        }
        self.publications.push(Publication::Remove(gone.id));
        gone.state = DatasetState::Destroying;
        gone.dead_grains = 0;
        gone.origin = 0;
        let empty = gone.root.is_none();
        let id = gone.id;
        self.records.insert(id, (!empty).then_some(gone));
        Ok(())
    }
}

impl Inner {
    /// Gives back a piece of a dataset that is being destroyed; returns whether there is more.
    pub(crate) fn prune_step(&self) -> Result<bool> {
        let next = |pool: &Inner| {
            let records = pool.records.read();
            let going = records.values().find(|record| record.state == DatasetState::Destroying);
            going.cloned()
        };
        if next(self).is_none() {
            return Ok(false);
        }
        self.commit_with(Some(&mut |commit| match next(commit.pool) {
            Some(record) => commit.prune(record),
            None => Ok(()),
        }))?;
        Ok(next(self).is_some())
    }
}

impl Commit<'_> {
    fn prune(&mut self, record: DatasetRecord) -> Result<()> {
        let Some(root) = root_of(&record) else {
            self.records.insert(record.id, None);
            return Ok(());
        };
        let from = self.cursor(record.id)?;
        let group = record.previous_group;
        let mut sink = Pruning { commit: self, group };
        match prune(&mut sink, &root, from, PRUNE_LEAVES)? {
            Pruned::All => self.records.insert(record.id, None),
            Pruned::Before(key) => {
                let cursor = Bytes::copy_from_slice(&key.encode());
                self.items.insert(cursor_key(record.id), Some(cursor));
                None
            }
        };
        Ok(())
    }

    fn cursor(&self, dataset: u64) -> Result<Key> {
        let media = &self.pool.media;
        let root = self.pool.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
        let at = At { media, epoch: media.epoch() };
        let found = tree::get(&at, root.as_ref(), cursor_key(dataset))?;
        let bytes = found.and_then(|found| <[u8; KEY_BYTES]>::try_from(&found.value[..]).ok());
        Ok(bytes.map_or(Key::MIN, |bytes| Key::decode(&bytes)))
    }
}

struct Pruning<'c, 'p> {
    commit: &'c mut Commit<'p>,
    group: Group,
}

impl NodeSource for Pruning<'_, '_> {
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>> {
        let media = &self.commit.pool.media;
        media.node(pointer, media.epoch())
    }
}

impl PruneSink for Pruning<'_, '_> {
    fn is_older(&self, pointer: &Bytes) -> Result<bool> {
        Ok(decode_pointer(pointer)?.birth <= self.group)
    }

    fn node_goes(&mut self, pointer: &Bytes) -> Result<()> {
        self.commit.free(&decode_pointer(pointer)?)
    }

    /// A shared block goes once, with the item that counts its references.
    fn block_goes(&mut self, key: Key, pointer: &Bytes) -> Result<()> {
        let pointer = decode_pointer(pointer)?;
        let counted_elsewhere = is_shared(&pointer) && key.kind != kind::REFERENCES;
        if counted_elsewhere || pointer.birth <= self.group {
            return Ok(());
        }
        self.commit.free(&pointer)
    }
}
