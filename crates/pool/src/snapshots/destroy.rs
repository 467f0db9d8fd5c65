//! Giving back what nobody needs any more.
//!
//! Destroying snapshots that another one follows frees what died on the way to that and was born
//! after the one before them: their own blocks are found on the dead lists, nothing is walked. The
//! rest of those lists is the next one's from then on. What there is much of is sorted out by later
//! commits, see [`crate::commit::dead_list_reclaim`]; what one commit can do is done at once.
//!
//! A dataset, and a snapshot that is the last of its line, has nobody to hand anything over to. It
//! loses its name at once; its tree is walked by later commits, piece by piece, so that no commit
//! becomes long. Subtrees that are as old as the snapshot before it are not entered. A dataset with
//! its snapshots is taken apart from the newest on: each is the last of its line by then, and each
//! walk meets what no other one does.

use super::plan::Plan;
use super::reclaimable::Release;
use crate::commit::dead_list_reclaim;
use crate::commit::draft::Commit;
use crate::commit::leaving::{destroy_chain, destroy_last, prune_dataset};
use crate::commit::operation_log;
use crate::commit::operation_log::{entry, is_ephemeral};
use crate::commit::turn;
use crate::commit::turn::Turn;
use crate::snapshots::session::Session;
use crate::snapshots::trash;
use crate::state::State;
use crate::state::pinned_commit::PinnedCommit;
use crate::state::records::is_hidden;
use marram_format::operation::OperationKind;
use marram_format::pointer::GRAIN_BYTES;
use marram_store::{Destruction, Result, Source};
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
    turn::settle_forks(pool)?;
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

/// Takes away the records of forks in memory that have ended; false if there are none, or somebody
/// reads the base of each.
pub(crate) fn drop_ended(pool: &State) -> Result<bool> {
    if !pool.forks.has_ended() {
        return Ok(false);
    }
    drop(turn::take_turn(pool)?);
    Ok(!pool.forks.has_ended())
}

/// Gives back a piece of what is being destroyed; returns whether there is more. Nothing of it can
/// be the base of a fork in memory, so those stay where they are.
pub(crate) fn give_back_step(pool: &State) -> Result<bool> {
    let is_leaving = |pool: &State| pool.records.read().is_leaving();
    if !is_leaving(pool) {
        return Ok(false);
    }
    let turn = turn::turn(pool, Some(pool.turns.administering.lock()))?;
    turn.commit_reclaiming(1, &mut |commit, pointers| {
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

/// Lasts first: what they leave of the ones before them may be on the way to an heir. Then so
/// many pointers are reclaimed.
pub(crate) fn destroy_planned(commit: &mut Commit<'_>, plan: &Plan, pointers: usize) -> Result<()> {
    plan.goes().try_for_each(|gone| operation_log::forget_in_trash(commit, gone.id, &gone.name))?;
    for last in &plan.lasts {
        let record = commit.record(last.id)?;
        destroy_last(commit, record)?;
    }
    for chain in &plan.chains {
        let gone: Vec<u64> = chain.gone.iter().map(|gone| gone.id).collect();
        destroy_chain(commit, &gone, chain.heir.id)?;
    }
    dead_list_reclaim::reclaim(commit, pointers)
}
