//! Datasets and snapshots that leave with a commit: their records, and what only they held.

use crate::base::pointers::{decode_pointer, is_shared};
use crate::commit::draft::{Commit, Publication};
use crate::commit::kept_states::go_on;
use crate::commit::{dead_list_reclaim, owners};
use crate::io::At;
use crate::state::State;
use crate::state::records::{parent_of, root_of};
use crate::tree::{self, NodeSource, PruneSink, Pruned, prune};
use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_format::key::KEY_BYTES;
use marram_format::node::Node;
use marram_format::pointer::Pointer;
use marram_format::space::cursor_key;
use marram_format::version::feature;
use marram_store::{Key, Result, kind};
use std::sync::Arc;

/// Snapshots that one takes over from, or the dataset. What the oldest of them has on its dead
/// list is the heir's as it is.
pub(crate) fn destroy_chain(commit: &mut Commit<'_>, gone: &[u64], heir: u64) -> Result<()> {
    let Some((oldest, later)) = gone.split_first() else { return Ok(()) };
    let oldest = commit.record(*oldest)?;
    let mut heir = commit.record(heir)?;
    let list_of = |id: &u64| commit.record(*id).map(|record| record.dead_list);
    let mut others: Vec<u64> = later.iter().map(list_of).collect::<Result<_>>()?;
    others.push(heir.dead_list);
    dead_list_reclaim::begin_reclaim(commit, &others, oldest.previous_group, oldest.dead_list);
    heir.dead_list = oldest.dead_list;
    heir.dead_grains = oldest.dead_grains;
    heir.previous = oldest.previous;
    heir.previous_group = oldest.previous_group;
    if oldest.previous == 0 {
        heir.origin = oldest.origin;
    }
    let heir_id = heir.id;
    commit.records.insert(heir_id, Some(heir));
    go_on(commit, oldest.previous, oldest.id, heir_id)?;
    for gone in gone {
        commit.records.insert(*gone, None);
        commit.publications.push(Publication::Remove(*gone));
    }
    Ok(())
}

/// A dataset, or the last snapshot of a line. Takes the name; the space follows with
/// [`prune_dataset`].
pub(crate) fn destroy_last(commit: &mut Commit<'_>, mut gone: DatasetRecord) -> Result<()> {
    dead_list_reclaim::drop_list(commit, gone.dead_list, gone.previous_group);
    gone.dead_list = commit.new_id();
    let parent = parent_of(&gone);
    if parent != 0 {
        let mut before = commit.record(parent)?;
        if before.next == gone.id {
            before.next = 0;
            commit.set_feature(feature::OWNERS);
        } else {
            before.clones = before.clones.saturating_sub(1);
        }
        commit.records.insert(before.id, Some(before));
    }
    commit.publications.push(Publication::Remove(gone.id));
    let (id, is_empty) = (gone.id, gone.root.is_none());
    gone.state = DatasetState::Destroying;
    gone.dead_grains = 0;
    (gone.parent, gone.origin, gone.previous, gone.clones) = (0, 0, 0, 0);
    commit.records.insert(id, (!is_empty).then_some(gone));
    Ok(())
}

/// The key before which everything of a destroyed dataset has been given back, as a tree of the
/// pool's own has it.
pub(crate) fn prune_cursor(at: &At<'_>, pool_tree: Option<&Bytes>, dataset: u64) -> Result<Key> {
    let found = tree::get(at, pool_tree, cursor_key(dataset))?;
    let bytes = found.and_then(|found| <[u8; KEY_BYTES]>::try_from(&found.value[..]).ok());
    Ok(bytes.map_or(Key::MIN, |bytes| Key::decode(&bytes)))
}

/// The same, as the last commit has it.
fn cursor_of(pool: &State, dataset: u64) -> Result<Key> {
    let media = &pool.media;
    let root = pool.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
    prune_cursor(&At { media, epoch: media.epoch() }, root.as_ref(), dataset)
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
        owners::free(self.commit, &decode_pointer(pointer)?)
    }

    /// A shared block goes once, with the item that counts its references.
    fn block_goes(&mut self, key: Key, pointer: &Bytes) -> Result<()> {
        let pointer = decode_pointer(pointer)?;
        let counted_elsewhere = is_shared(&pointer) && key.kind != kind::REFERENCES;
        if counted_elsewhere || pointer.birth <= self.group {
            return Ok(());
        }
        owners::free(self.commit, &pointer)
    }
}

/// Gives back a piece of a destroyed dataset, of at most so many leaves.
pub(crate) fn prune_dataset(
    commit: &mut Commit<'_>,
    record: &DatasetRecord,
    left: &mut usize,
) -> Result<()> {
    let Some(root) = root_of(record) else {
        commit.records.insert(record.id, None);
        return Ok(());
    };
    let from = cursor_of(commit.pool, record.id)?;
    let group = record.previous_group;
    let mut sink = Pruning { commit, group };
    match prune(&mut sink, &root, from, left)? {
        Pruned::All => commit.records.insert(record.id, None),
        Pruned::Before(key) => {
            let cursor = Bytes::copy_from_slice(&key.encode());
            commit.items.insert(cursor_key(record.id), Some(cursor));
            None
        }
    };
    Ok(())
}
