//! Giving back what nobody needs any more.
//!
//! Destroying a snapshot that another one follows frees what died between the two and was born
//! after the one before it: its own blocks are found on the dead list of the next one, nothing is
//! walked. The rest of that list, and the snapshot's own, are the next one's from then on.
//!
//! A dataset, and a snapshot that is the last of its line, has nobody to hand anything over to. It
//! loses its name at once; its tree is walked by later commits, piece by piece, so that no commit
//! becomes long. Subtrees that are as old as the snapshot before it are not entered. A dataset with
//! its snapshots is taken apart from the newest on: each is the last of its line by then, and each
//! walk meets what no other one does.

use super::list::{grains_since_parent, grains_without_heir, holds};
use super::records::{Records, parent_of};
use super::root_of;
use crate::commit::{Commit, Publication, is_shared};
use crate::dataset::Dataset;
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
use marram_format::version::feature;
use marram_store::{Damage, Destruction, Error, Key, Result, Source, kind};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Leaves of destroyed datasets that one step gives back.
const PRUNE_LEAVES: usize = 2000;
/// Destroyed datasets and snapshots that one step works on.
const PRUNE_DATASETS: usize = 200;

pub(super) fn destroy(pool: &Inner, source: &Source, dry_run: bool) -> Result<Destruction> {
    if dry_run {
        return Plan::new(pool, source)?.destruction(pool);
    }
    let turn = pool.take_turn()?;
    let plan = Plan::new(pool, source)?;
    plan.refuse_in_use(pool)?;
    let destruction = plan.destruction(pool)?;
    turn.commit(Some(&mut |commit| {
        for gone in &plan.goes {
            let record = commit.record(gone.id)?;
            match plan.heirs.get(&gone.id) {
                Some(heir) => commit.destroy_between(record, *heir)?,
                None => commit.destroy_last(record)?,
            }
        }
        Ok(())
    }))?;
    Ok(destruction)
}

/// What the running pool has of datasets and snapshots.
type Datasets = BTreeMap<u64, Arc<Dataset>>;

/// What a destruction takes.
struct Plan {
    /// In the order in which they go: each after what began as it.
    goes: Vec<Arc<DatasetRecord>>,
    ids: BTreeSet<u64>,
    /// What takes over from those that something stays after.
    heirs: BTreeMap<u64, u64>,
}

impl Plan {
    fn new(pool: &Inner, source: &Source) -> Result<Plan> {
        let record = pool.find(source)?;
        if record.name == "root" {
            let reason = "the root dataset cannot be destroyed: delete what is in it".to_owned();
            return Err(Error::Invalid(reason));
        }
        let (datasets, records) = (pool.datasets.read(), pool.records.read());
        let mut goes = vec![record.clone()];
        if record.state == DatasetState::Live {
            let of_it = |other: &&Arc<DatasetRecord>| {
                other.state == DatasetState::Snapshot && other.parent == record.id
            };
            goes.extend(records.known().filter(of_it).cloned());
        }
        let ids = goes.iter().map(|record| record.id).collect();
        let mut plan = Plan { goes, ids, heirs: BTreeMap::new() };
        while let Some(base) = plan.unneeded_base(&datasets, &records)? {
            plan.ids.insert(base.id);
            plan.goes.push(base);
        }
        // A snapshot is younger, and has a greater number, than what it began as.
        for gone in &plan.goes {
            if let Some(heir) = heir(&records, gone).filter(|heir| !plan.ids.contains(heir)) {
                plan.heirs.insert(gone.id, heir);
            }
        }
        plan.goes.sort_by_key(|gone| Reverse((gone.state == DatasetState::Live, gone.id)));
        Ok(plan)
    }

    /// The base of a fork whose last fork goes, if nobody else needs it.
    fn unneeded_base(
        &self,
        datasets: &Datasets,
        records: &Records,
    ) -> Result<Option<Arc<DatasetRecord>>> {
        for gone in &self.goes {
            let Some(base) = records.get(parent_of(gone)) else { continue };
            // A snapshot that goes leaves what goes on from it to its parent.
            let lines = |other: &&Arc<DatasetRecord>| {
                let stays = heir(records, other).is_some_and(|heir| !self.ids.contains(&heir));
                parent_of(other) == base.id && other.id != base.next && !stays
            };
            let is_needed = self.ids.contains(&base.id)
                || !base.name.parse::<Source>()?.is_fork_base()
                || base.holds > 0
                || is_open(datasets, base.id)
                || self.goes.iter().filter(lines).count() as u64 != u64::from(base.clones);
            if !is_needed {
                return Ok(Some(base.clone()));
            }
        }
        Ok(None)
    }

    fn destruction(&self, pool: &Inner) -> Result<Destruction> {
        let mut sources: Vec<Source> =
            self.goes.iter().map(|record| record.name.parse()).collect::<Result<_>>()?;
        sources.sort();
        let mut freed_grains = 0;
        for gone in &self.goes {
            freed_grains += match self.heirs.get(&gone.id) {
                None => grains_since_parent(pool, gone),
                Some(heir) => grains_without_heir(pool, gone, *heir)?,
            };
        }
        Ok(Destruction { sources, freed_bytes: freed_grains * GRAIN_BYTES })
    }

    /// **Asked before anything is frozen**: what is written to a dataset after that, through a view
    /// that was open, goes into frames that the commit does not include. If the dataset went with
    /// the commit, a replay of them would find no dataset, and the pool could not be opened.
    fn refuse_in_use(&self, pool: &Inner) -> Result<()> {
        let (datasets, records) = (pool.datasets.read(), pool.records.read());
        for gone in &self.goes {
            let in_use = |holder: String| Err(Error::InUse { name: gone.name.clone(), holder });
            if is_open(&datasets, gone.id) {
                return in_use("it is mounted; unmount it first".to_owned());
            }
            if gone.holds > 0 {
                let tags: Vec<&str> = holds(gone).collect();
                return in_use(format!("it is held ({}); release it first", tags.join(", ")));
            }
            let began: Vec<&str> = match gone.clones {
                0 => Vec::new(),
                _ => self.lines_that_stay(&records, gone),
            };
            if !began.is_empty() {
                let began = began.join(", ");
                return in_use(format!("{began} began as it; destroy that first, or promote it"));
            }
        }
        Ok(())
    }

    /// Names of datasets, and of snapshots that rollbacks have left, which began as a snapshot.
    fn lines_that_stay<'r>(&self, records: &'r Records, gone: &DatasetRecord) -> Vec<&'r str> {
        let began_as_it = |other: &&Arc<DatasetRecord>| {
            parent_of(other) == gone.id
                && self.heirs.get(&gone.id) != Some(&other.id)
                && !self.ids.contains(&other.id)
        };
        let name = |first: &'r Arc<DatasetRecord>| {
            let of_gone = first.parent == gone.parent || first.state != DatasetState::Snapshot;
            let dataset = records.get(first.parent).filter(|_| !of_gone).unwrap_or(first);
            dataset.name.as_str()
        };
        records.known().filter(began_as_it).map(name).collect()
    }
}

/// What takes over from a snapshot when it goes: the next one, or the only one of the same dataset
/// that began as it, where a rollback's other line is gone.
pub(super) fn heir(records: &Records, gone: &DatasetRecord) -> Option<u64> {
    if gone.next != 0 || gone.clones != 1 {
        return Some(gone.next).filter(|next| *next != 0);
    }
    let only = records.known().find(|other| parent_of(other) == gone.id)?;
    (only.parent == gone.parent || only.id == gone.parent).then_some(only.id)
}

fn is_open(datasets: &Datasets, id: u64) -> bool {
    datasets.get(&id).is_some_and(|dataset| dataset.is_open())
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

    /// A snapshot that another one takes over from, or the dataset.
    fn destroy_between(&mut self, gone: DatasetRecord, heir: u64) -> Result<()> {
        let mut next = self.record(heir)?;
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
        if gone.previous == 0 {
            next.origin = gone.origin;
        }
        self.records.insert(next.id, Some(next));
        self.go_on(gone.previous, gone.id, heir)?;
        self.records.insert(gone.id, None);
        self.publications.push(Publication::Remove(gone.id));
        Ok(())
    }

    /// A dataset, or the last snapshot of a line. Takes the name; the space follows in
    /// [`Inner::prune_step`].
    fn destroy_last(&mut self, mut gone: DatasetRecord) -> Result<()> {
        self.take_dead(gone.dead_list)?;
        let parent = parent_of(&gone);
        if parent != 0 {
            let mut before = self.record(parent)?;
            if before.next == gone.id {
                before.next = 0;
                self.set_feature(feature::OWNERS);
            } else {
                before.clones = before.clones.saturating_sub(1);
            }
            self.records.insert(before.id, Some(before));
        }
        self.publications.push(Publication::Remove(gone.id));
        let (id, is_empty) = (gone.id, gone.root.is_none());
        gone.state = DatasetState::Destroying;
        gone.dead_grains = 0;
        (gone.parent, gone.origin, gone.previous, gone.clones) = (0, 0, 0, 0);
        self.records.insert(id, (!is_empty).then_some(gone));
        Ok(())
    }
}

impl Inner {
    /// Gives back a piece of what is being destroyed; returns whether there is more.
    pub(crate) fn prune_step(&self) -> Result<bool> {
        let is_going = |pool: &Inner| !pool.records.read().going(1).is_empty();
        if !is_going(self) {
            return Ok(false);
        }
        self.commit_with(Some(&mut |commit| {
            let going = commit.pool.records.read().going(PRUNE_DATASETS);
            let mut left = PRUNE_LEAVES;
            for record in going {
                if left > 0 {
                    commit.prune(&record, &mut left)?;
                }
            }
            Ok(())
        }))?;
        Ok(is_going(self))
    }
}

impl Commit<'_> {
    fn prune(&mut self, record: &DatasetRecord, left: &mut usize) -> Result<()> {
        let Some(root) = root_of(record) else {
            self.records.insert(record.id, None);
            return Ok(());
        };
        let from = self.cursor(record.id)?;
        let group = record.previous_group;
        let mut sink = Pruning { commit: self, group };
        match prune(&mut sink, &root, from, left)? {
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
