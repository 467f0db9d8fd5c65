//! Transactions over two pools, as their daemons agree on them.
//!
//! The pool with the smaller id decides. The command asks the other one to commit. That one holds
//! its datasets, prepares, and asks the daemon of the first one to decide. Whatever becomes of this
//! conversation, what is prepared and not decided is asked about again, until the answer is known.

use super::open_transactions::not_open;
use super::state::Daemon;
use super::transactions::Ending;
use super::{invalidation, transactions};
use crate::control::client::Client;
use crate::control::daemons;
use crate::control::protocol::{
    Answer, CommitSummary, ConflictRow, JointCommit, JointId, JointOutcome, PoolPlace, Request,
    Resolution, Standing, TwoPoolRow,
};
use crate::engine::home::{CommitOrder, Decide, TwoPools, lacks};
use crate::error::{Error, Result};
use crate::mountinfo::DeviceNumber;
use crate::paths::own_uid;
use parking_lot::Mutex;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a pool may take to decide. The other one makes no commits meanwhile.
const DECISION_PATIENCE: Duration = Duration::from_secs(30);
/// How long it may take to tell how a transaction stands.
const STANDING_PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked for that, before the transaction is left in doubt.
const ASKED_MAX: u32 = 10;
/// How long to wait between these.
const ASKED_PAUSE: Duration = Duration::from_millis(200);

/// What the pool that decides has said.
#[derive(Clone)]
enum Said {
    Committed,
    Refused(Vec<ConflictRow>),
    Failed(Error),
    Nothing(Error),
}

/// Commits a transaction that the other pool decides.
///
/// # Errors
/// Why it could not be; then nothing of it is there, in neither pool.
pub(super) fn prepare(daemon: &Daemon, joint: &JointCommit) -> Result<Answer> {
    if joint.other.id >= daemon.id {
        return Err(Error::usage("of two pools that with the smaller id decides"));
    }
    let pools = capability(daemon)?;
    daemon.transactions.refuse_ending(&joint.id)?;
    check_is_joint(daemon, joint)?;
    let decider = &reached_beside(daemon, &joint.other)?;
    refuse_of_others(&find(decider)?.ok_or_else(|| gone(decider))?, decider)?;
    let said = Arc::new(Mutex::new(None));
    let user = daemon.transactions.user_of(&joint.id);
    let order = JointCommit { id: joint.id.clone(), other: own_place(daemon), user };
    let heard = Arc::clone(&said);
    let place = decider.clone();
    let decide = move || {
        let said = ask_to_decide(&place, &order);
        let verdict = match &said {
            Said::Committed => Some(true),
            Said::Refused(_) | Said::Failed(_) => Some(false),
            Said::Nothing(_) => None,
        };
        *heard.lock() = Some(said);
        verdict
    };
    let decide: Decide = Arc::new(decide);
    let merges =
        |orders: &[CommitOrder<'_>]| pools.prepare(orders, daemon, joint, Arc::clone(&decide));
    let ending = Ending { merges: &merges, is_joint: true };
    let ended = transactions::commit_by(daemon, &joint.id, ending);
    let said = said.lock().clone();
    match (ended, said) {
        // Another attempt has found what others changed meanwhile.
        (Ok(summary), Some(Said::Refused(_) | Said::Failed(_))) if !summary.committed => {
            outcome_of(summary)
        }
        (Ok(summary), None) => outcome_of(summary),
        // What is prepared is durable, whatever has failed since.
        (ended, Some(Said::Committed)) => {
            if ended.is_ok() && !pools.standing(&joint.joint_id()).is_prepared {
                forget_elsewhere(daemon, decider, &joint.id);
            }
            Ok(Answer::Joint(JointOutcome::Committed))
        }
        (Err(_), Some(Said::Refused(conflicts))) => {
            Ok(Answer::Joint(JointOutcome::Refused(conflicts)))
        }
        (Err(_), Some(Said::Failed(error))) => Err(error.during(decider.path.display())),
        (Err(_), Some(Said::Nothing(error))) => {
            daemon.log.write(&format!("transaction {} is in doubt: {error}", joint.id));
            hide(daemon, &joint.joint_id());
            Ok(Answer::Joint(JointOutcome::InDoubt(error.during(decider.path.display()))))
        }
        (Err(error), None) => Err(error),
        (Ok(_), Some(_)) => Err(Error::failed("it was committed against the other pool's word")),
    }
}

/// Refuses to commit a transaction with another pool than that in which it has begun, too: nobody
/// ends what somebody else works in by having begun one of the same id elsewhere.
fn check_is_joint(daemon: &Daemon, joint: &JointCommit) -> Result<()> {
    let other = daemon.transactions.other_pool_of(&joint.id);
    match other.is_some_and(|other| other.id == joint.other.id) {
        true => Ok(()),
        false => Err(not_open(&joint.id)),
    }
}

/// Refuses a pool whose daemon is another user's: one of both could keep the other one waiting as
/// it likes, or would get no answers.
fn refuse_of_others(decider: &Client, place: &PoolPlace) -> Result<()> {
    match decider.user().is_none_or(|user| user == own_uid()) {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "the daemon of {} is another user's than that of the pool beside it",
            place.path.display()
        ))
        .hint("mount both by the same user")),
    }
}

/// Whether a transaction is in use in another pool that it works in. It is not if that has no
/// daemon, also because it is gone; it may be if that does not answer.
pub(super) fn is_in_use(daemon: &Daemon, place: &PoolPlace, id: &str) -> bool {
    match ask_standing(place, &named_here(daemon, id)) {
        Ok(standing) => standing.is_some_and(|standing| standing.is_in_use),
        Err(_) => true,
    }
}

/// Has the kernel ask anew for all of the datasets in which a transaction is in doubt: it would
/// answer programs from what it knows.
fn hide(daemon: &Daemon, of: &JointId) {
    let Ok(pools) = capability(daemon) else { return };
    let rows = pools.unfinished().into_iter().filter(|row| row.joint_id() == *of);
    for source in rows.flat_map(|row| row.datasets).filter_map(|it| it.parse().ok()) {
        if let Some(volume) = invalidation::volume_of(&daemon.mounts, &source) {
            invalidation::all_changed(&daemon.mounts, &source, &*volume);
        }
    }
}

/// Where a pool that decides is, without links on the way. Refuses one that lies in a dataset of
/// this pool, or behind one: neither could be reached while that is held still.
fn reached_beside(daemon: &Daemon, decider: &PoolPlace) -> Result<PoolPlace> {
    let failed = |path: &Path, error| Error::system("look at", path, error);
    let path =
        std::fs::canonicalize(&decider.path).map_err(|error| failed(&decider.path, error))?;
    for place in path.ancestors().chain(decider.path.ancestors()) {
        let found = std::fs::metadata(place).map_err(|error| failed(place, error))?;
        let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        let device = DeviceNumber::from((major, minor));
        if daemon.mounts.reports().iter().any(|mount| mount.device == Some(device)) {
            return Err(Error::usage(format!(
                "{} lies in a dataset of {}, which has to stand still while it commits",
                decider.path.display(),
                daemon.home.path().display()
            )));
        }
    }
    Ok(PoolPlace { id: decider.id.clone(), path })
}

/// Commits a transaction that is prepared in the other pool: the decision.
///
/// # Errors
/// Why it could not be; then nothing of it is there.
pub(super) fn decide(daemon: &Daemon, joint: &JointCommit) -> Result<Answer> {
    if daemon.id >= joint.other.id {
        return Err(Error::usage("of two pools that with the smaller id decides"));
    }
    let pools = capability(daemon)?;
    check_is_joint(daemon, joint)?;
    if daemon.transactions.user_of(&joint.id) != joint.user {
        return Err(not_open(&joint.id));
    }
    let merges = |orders: &[CommitOrder<'_>]| pools.decide(orders, daemon, joint);
    let ending = Ending { merges: &merges, is_joint: true };
    transactions::commit_by(daemon, &joint.id, ending).and_then(outcome_of)
}

fn outcome_of(summary: CommitSummary) -> Result<Answer> {
    Ok(Answer::Joint(match summary.committed {
        true => JointOutcome::Committed,
        false => JointOutcome::Refused(summary.conflicts),
    }))
}

/// How a transaction stands here.
pub(super) fn standing(daemon: &Daemon, of: &JointId) -> Result<Answer> {
    // Asked first: what ends meanwhile is in the records then.
    let is_open = daemon.transactions.may_be_committed(&of.id);
    let is_in_use = daemon.transactions.is_in_use(&of.id);
    Ok(Answer::Standing(Standing { is_open, is_in_use, ..capability(daemon)?.standing(of) }))
}

/// Asks about all that is not over, and ends what can be.
pub(super) fn settle(daemon: &Daemon) {
    let pools = daemon.home.transactions().and_then(|it| it.two_pools());
    let Some(pools) = pools.filter(|_| !daemon.mode.read_only) else { return };
    for row in pools.unfinished() {
        // What is prepared and in no doubt is just being decided.
        let is_waiting = row.state != TwoPoolRow::PREPARED || row.is_in_doubt;
        if !is_waiting || daemon.refusals.is_final(&row) {
            continue;
        }
        let Some(resolution) = resolution_of(daemon, &row) else { continue };
        match pools.resolve(&row.joint_id(), resolution, daemon) {
            Ok(()) => {
                daemon.refusals.forget(&row);
                daemon.log.write(&format!("transaction {}: {resolution:?}", row.id));
                // A second record of the same transaction needs the same word.
                let needs_it = || pools.standing(&row.joint_id()).is_prepared;
                if resolution == Resolution::Committed && !needs_it() {
                    forget_elsewhere(daemon, &row.other, &row.id);
                }
            }
            // What cannot be done now is tried again.
            Err(error) if daemon.refusals.note(&row, &error) => {
                daemon.log.write(&format!("transaction {}: {resolution:?}: {error}", row.id));
            }
            Err(_) => (),
        }
    }
}

/// What the other pool's word means for one that is not over; nothing if that is not known.
fn resolution_of(daemon: &Daemon, row: &TwoPoolRow) -> Option<Resolution> {
    let standing = ask_standing(&row.other, &named_here(daemon, &row.id)).ok().flatten()?;
    // Where nothing is at its path it is found by its id, which a copy of before has too: that
    // knows of no decision, and is no witness that there was none.
    let is_moved = std::fs::symlink_metadata(&row.other.path).is_err();
    let is_over = !standing.is_open && !standing.has_failed && !is_moved;
    match row.state.as_str() {
        TwoPoolRow::PREPARED if standing.is_decided => Some(Resolution::Committed),
        TwoPoolRow::PREPARED => is_over.then_some(Resolution::Aborted),
        TwoPoolRow::DECIDED => (is_over && !standing.is_prepared).then_some(Resolution::Forgotten),
        TwoPoolRow::COMMITTED_BY_HAND => standing.is_decided.then_some(Resolution::Forgotten),
        TwoPoolRow::ABORTED_BY_HAND => {
            (is_over && !standing.is_decided).then_some(Resolution::Forgotten)
        }
        _ => None,
    }
}

/// Has the other pool decide, and finds out what it has decided if it does not say.
fn ask_to_decide(place: &PoolPlace, order: &JointCommit) -> Said {
    let client = match find(place) {
        Ok(Some(client)) => client,
        Ok(None) => return Said::Failed(gone(place)),
        Err(error) => return Said::Failed(error),
    };
    let (until, of) = (Instant::now() + DECISION_PATIENCE, order.joint_id());
    match client.with_patience(Some(DECISION_PATIENCE)).decide(order) {
        Ok(Ok(Answer::Joint(JointOutcome::Committed))) => Said::Committed,
        Ok(Ok(Answer::Joint(JointOutcome::Refused(conflicts)))) => Said::Refused(conflicts),
        Ok(Ok(_)) => find_out(place, &of, until, answered_otherwise()),
        Ok(Err(error)) | Err(error) => find_out(place, &of, until, error),
    }
}

/// What a pool has decided that has not said so, for the reason `error`. It is asked some times,
/// and not after `until`.
fn find_out(place: &PoolPlace, of: &JointId, until: Instant, error: Error) -> Said {
    for _ in 0..ASKED_MAX {
        if let Ok(Some(standing)) = ask_standing(place, of) {
            if standing.is_decided {
                return Said::Committed;
            }
            if !standing.is_open && !standing.has_failed {
                return Said::Failed(error);
            }
        }
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(ASKED_PAUSE);
    }
    Said::Nothing(error)
}

/// What names a transaction of this pool in the other one.
fn named_here(daemon: &Daemon, id: &str) -> JointId {
    JointId { id: id.to_owned(), other: daemon.id.clone() }
}

/// How a transaction stands in another pool; nothing if that has no daemon.
///
/// # Errors
/// The pool is not where it was; the daemon does not answer.
fn ask_standing(place: &PoolPlace, of: &JointId) -> Result<Option<Standing>> {
    let Some(client) = find(place)? else { return Ok(None) };
    let client = client.with_patience(Some(STANDING_PATIENCE));
    match client.ask(&Request::Standing(of.clone()))? {
        Answer::Standing(standing) => Ok(Some(standing)),
        _ => Err(answered_otherwise()),
    }
}

/// What is prepared nowhere any more need not be known to the pool that has decided. If it does
/// not hear of it, it asks.
fn forget_elsewhere(daemon: &Daemon, place: &PoolPlace, id: &str) {
    if let Ok(Some(client)) = find(place) {
        let client = client.with_patience(Some(STANDING_PATIENCE));
        let request = Request::Resolve(named_here(daemon, id), Resolution::Forgotten);
        let _it_asks = client.ask(&request);
    }
}

/// A conversation with the daemon of a pool, of this user or root, wherever that is now; none if it
/// has no daemon.
///
/// # Errors
/// Another pool is where it was.
fn find(place: &PoolPlace) -> Result<Option<Client>> {
    let daemon = daemons::of_pool_or_moved(&place.path, &place.id)?;
    match daemon.filter(|daemon| daemon.other_user().is_none()) {
        Some(daemon) => daemon.connect(),
        None => Ok(None),
    }
}

fn gone(place: &PoolPlace) -> Error {
    Error::failed(format!("the daemon of {} has gone", place.path.display()))
}

fn answered_otherwise() -> Error {
    Error::failed("it answered something else")
}

fn own_place(daemon: &Daemon) -> PoolPlace {
    PoolPlace { id: daemon.id.clone(), path: daemon.home.path().to_owned() }
}

/// What the home of a daemon has for transactions over two pools.
///
/// # Errors
/// It has no such thing.
pub(super) fn capability(daemon: &Daemon) -> Result<&dyn TwoPools> {
    let pools = daemon.home.transactions().and_then(|it| it.two_pools());
    pools.ok_or_else(|| lacks(&*daemon.home, "transactions over two pools"))
}

/// Ends what can be ended, for as long as mounts show the pool.
pub(super) fn run(daemon: &Daemon, tick: Duration) {
    while !daemon.mounts.is_shut() {
        std::thread::sleep(tick);
        settle(daemon);
    }
}
