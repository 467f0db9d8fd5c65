//! Giving back what nobody needs any more.
//!
//! Destroying snapshots that another one follows frees what died on the way to that and was born
//! after the one before them: their own blocks are found on the dead lists, nothing is walked. The
//! rest of those lists is the next one's from then on. What there is much of is sorted out by later
//! commits, see [`super::dead_list_reclaim`]; what one commit can do is done at once.
//!
//! A dataset, and a snapshot that is the last of its line, has nobody to hand anything over to. It
//! loses its name at once; its tree is walked by later commits, piece by piece, so that no commit
//! becomes long. Subtrees that are as old as the snapshot before it are not entered. A dataset with
//! its snapshots is taken apart from the newest on: each is the last of its line by then, and each
//! walk meets what no other one does.

use super::operation_log::{entry, is_ephemeral};
use super::plan::{Chain, Plan};
use super::reclaimable::Release;
use crate::base::pointers::decode_pointer;
use crate::base::pointers::is_shared;
use crate::commit::draft::Commit;
use crate::commit::draft::Publication;
use crate::commit::owners;
use crate::commit::turn;
use crate::commit::turn::Turn;
use crate::io::At;
use crate::snapshots::dead_list_reclaim;
use crate::snapshots::lineage;
use crate::snapshots::operation_log;
use crate::snapshots::session::Session;
use crate::snapshots::trash;
use crate::state::State;
use crate::state::pinned_commit::PinnedCommit;
use crate::state::records::is_hidden;
use crate::state::records::parent_of;
use crate::state::records::root_of;
use crate::tree::{self, NodeSource, PruneSink, Pruned, prune};
use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::group::Group;
use marram_format::key::KEY_BYTES;
use marram_format::node::Node;
use marram_format::operation::OperationKind;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_format::space::cursor_key;
use marram_format::version::feature;
use marram_store::{Destruction, Key, Result, Source, kind};
use std::sync::Arc;

/// Leaves of destroyed datasets that one step gives back.
const PRUNE_LEAVES: usize = 2000;
/// Destroyed datasets and snapshots that one step works on.
const PRUNE_DATASETS: usize = 200;

pub(crate) fn destroy(session: &Session, sources: &[Source], dry_run: bool) -> Result<Destruction> {
    let pool = &session.state;
    if dry_run {
        return PinnedCommit::look(pool, &mut |moment| {
            destruction(moment, &Plan::under(pool, &moment.records, sources)?)
        });
    }
    let Prepared { turn, plan, destruction } = prepare(pool, sources)?;
    let mut entries = Vec::new();
    for source in sources.iter().filter(|source| !is_ephemeral(source)) {
        let gone = pool.find(source)?;
        // What is let go before its time has been destroyed before.
        if !is_hidden(&gone) {
            entries.push(entry(OperationKind::Destroy, gone.id, &[&gone.name]));
        }
    }
    turn.commit_reclaiming(0, &mut |commit, pointers| {
        destroy_planned(commit, &plan, pointers)?;
        let mut entries = entries.iter();
        entries.try_for_each(|it| {
            operation_log::enter(commit, session.author.as_ref(), it.clone()).map(|_| ())
        })
    })?;
    Ok(destruction)
}

/// A destruction that nothing is in the way of.
pub(crate) struct Prepared<'p> {
    pub(crate) turn: Turn<'p>,
    pub(crate) plan: Plan,
    pub(crate) destruction: Destruction,
}

/// Plans a destruction, and finds out what it gives back. That may take reading long lists, and
/// commits go on meanwhile; but nobody opens, takes or destroys anything.
pub(crate) fn prepare<'p>(pool: &'p Arc<State>, sources: &[Source]) -> Result<Prepared<'p>> {
    trash::make_room_in_log(pool, sources.len() as u64)?;
    let nobody_opens = pool.turns.administering.lock();
    pool.check_writable()?;
    let plan = Plan::new(pool, sources)?;
    plan.refuse_in_use(pool)?;
    let destruction = PinnedCommit::look(pool, &mut |moment| {
        destruction(moment, &Plan::under(pool, &moment.records, sources)?)
    })?;
    let turn = turn::turn(pool, Some(nobody_opens))?;
    Ok(Prepared { turn, plan, destruction })
}

/// What a destruction takes and gives back.
fn destruction(moment: &PinnedCommit, plan: &Plan) -> Result<Destruction> {
    let mut release = Release::new(moment, moment.has_owners()?);
    release.plan(plan)?;
    Ok(Destruction { sources: plan.sources()?, freed_bytes: release.grains()? * GRAIN_BYTES })
}

/// The same, as a tree of the pool's own has it.
pub(crate) fn prune_cursor(at: &At<'_>, pool_tree: Option<&Bytes>, dataset: u64) -> Result<Key> {
    let found = tree::get(at, pool_tree, cursor_key(dataset))?;
    let bytes = found.and_then(|found| <[u8; KEY_BYTES]>::try_from(&found.value[..]).ok());
    Ok(bytes.map_or(Key::MIN, |bytes| Key::decode(&bytes)))
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

/// Gives back a piece of what is being destroyed; returns whether there is more.
pub(crate) fn give_back_step(pool: &State) -> Result<bool> {
    let is_leaving = |pool: &State| pool.records.read().is_leaving();
    if !is_leaving(pool) {
        return Ok(false);
    }
    turn::take_turn(pool)?.commit_reclaiming(1, &mut |commit, pointers| {
        dead_list_reclaim::reclaim(commit, pointers)?;
        let going = commit.pool.records.read().going(PRUNE_DATASETS);
        let mut left = PRUNE_LEAVES;
        for record in going {
            if left > 0 {
                prune_dataset(commit, &record, &mut left)?;
            }
        }
        Ok(())
    })?;
    Ok(is_leaving(pool))
}

/// The key before which everything of a destroyed dataset has been given back.
fn cursor_of(pool: &State, dataset: u64) -> Result<Key> {
    let media = &pool.media;
    let root = pool.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
    prune_cursor(&At { media, epoch: media.epoch() }, root.as_ref(), dataset)
}

/// Lasts first: what they leave of the ones before them may be on the way to an heir. Then so
/// many pointers are reclaimed.
pub(crate) fn destroy_planned(commit: &mut Commit<'_>, plan: &Plan, pointers: usize) -> Result<()> {
    plan.goes().try_for_each(|gone| operation_log::forget_in_trash(commit, gone.id, &gone.name))?;
    for last in &plan.lasts {
        let record = commit.record(last.id)?;
        destroy_last(commit, record)?;
    }
    plan.chains.iter().try_for_each(|chain| destroy_chain(commit, chain))?;
    dead_list_reclaim::reclaim(commit, pointers)
}

/// Snapshots that one takes over from, or the dataset. What the oldest of them has on its dead
/// list is the heir's as it is.
fn destroy_chain(commit: &mut Commit<'_>, chain: &Chain) -> Result<()> {
    let Some(oldest) = chain.gone.first() else { return Ok(()) };
    let oldest = commit.record(oldest.id)?;
    let mut heir = commit.record(chain.heir.id)?;
    let others = chain.gone[1..].iter().map(|gone| gone.dead_list).chain([heir.dead_list]);
    let others: Vec<u64> = others.collect();
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
    lineage::go_on(commit, oldest.previous, oldest.id, heir_id)?;
    for gone in &chain.gone {
        commit.records.insert(gone.id, None);
        commit.publications.push(Publication::Remove(gone.id));
    }
    Ok(())
}

/// A dataset, or the last snapshot of a line. Takes the name; the space follows in
/// [`give_back_step`].
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

fn prune_dataset(commit: &mut Commit<'_>, record: &DatasetRecord, left: &mut usize) -> Result<()> {
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
