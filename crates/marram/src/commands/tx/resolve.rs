//! `marram tx resolve`: a transaction over two pools that is in doubt is ended.

use super::word::names;
use crate::arguments::TxResolveArguments;
use crate::commands::answers::unexpected;
use crate::control::daemons;
use crate::control::protocol::{
    Answer, JointId, Operation, PoolPlace, Request, Resolution, Standing, StatusReport, TwoPoolRow,
};
use crate::error::{Error, Result};
use crate::output::Output;
use crate::target::Target;
use serde::Serialize;
use std::fs::File;

#[derive(Serialize)]
struct Resolved {
    id: String,
    /// `committed`, `aborted` or `forgotten`.
    outcome: &'static str,
    by_hand: bool,
}

pub(super) fn resolve(arguments: &TxResolveArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.named.target)?;
    let (row, pool_id) = find(&target, &arguments.named.id)?;
    // What names it in the other pool.
    let there = JointId { id: row.id.clone(), other: pool_id };
    let resolution = match (arguments.commit, arguments.abort, arguments.forget) {
        (true, _, _) => Resolution::CommittedByHand,
        (_, true, _) => Resolution::AbortedByHand,
        (_, _, true) => Resolution::Forgotten,
        _ => asked(&row, &there)?,
    };
    end(&target, row.joint_id(), resolution)?;
    // A second record of the same transaction needs the same word.
    let is_same = |(left, _): (TwoPoolRow, _)| left.joint_id() == row.joint_id();
    let needs_it = || find(&target, &row.id).is_ok_and(is_same);
    if resolution == Resolution::Committed && !needs_it() {
        // It needs no answer any more. If it does not hear of it, it asks.
        let other = Target::unmounted(row.other.path.clone());
        let other = daemon_of(&row.other).ok().flatten().unwrap_or(other);
        let _it_asks = end(&other, there, Resolution::Forgotten);
    }
    let (outcome, by_hand) = match resolution {
        Resolution::Committed => ("committed", false),
        Resolution::Aborted => ("aborted", false),
        Resolution::CommittedByHand => ("committed", true),
        Resolution::AbortedByHand => ("aborted", true),
        Resolution::Forgotten => ("forgotten", false),
    };
    let resolved = Resolved { id: row.id, outcome, by_hand };
    output.print(&resolved, || format!("{} {outcome}\n", resolved.id));
    Ok(())
}

fn end(target: &Target, transaction: JointId, resolution: Resolution) -> Result<()> {
    match target.perform(&Operation::Resolve { transaction, resolution })? {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// The one that a word stands for, and the id of the pool that it was found in.
///
/// # Errors
/// There is none, or more than one.
fn find(target: &Target, word: &str) -> Result<(TwoPoolRow, String)> {
    let StatusReport { two_pools: mut rows, pool_id, .. } = status(target)?;
    rows.retain(|row| names(word, &row.id));
    // Several of one id and one other pool end one after the other.
    let is_one = rows.windows(2).all(|pair| pair[0].joint_id() == pair[1].joint_id());
    if is_one {
        rows.truncate(1);
    }
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok((row, pool_id)),
        (Some(_), false) => Err(Error::usage(format!("several transactions begin with {word}"))
            .hint("`marram status TARGET` has their ids")),
        (None, _) => Err(Error::not_found(format!(
            "no transaction {word} over two pools is unfinished in {}",
            target.pool.display()
        ))
        .hint("`marram tx show TARGET ID` tells whether it was committed")),
    }
}

/// What the other pool says.
///
/// # Errors
/// It cannot be asked, or does not know yet.
fn asked(row: &TwoPoolRow, there: &JointId) -> Result<Resolution> {
    let path = row.other.path.display();
    let by_hand = "`marram tx resolve TARGET ID --commit` or `--abort` decides without it";
    let standing = standing(&row.other, there);
    let standing = standing.map_err(|error| error.during(path.to_string()).hint(by_hand))?;
    let is_over = !standing.is_open && !standing.has_failed;
    match row.state.as_str() {
        TwoPoolRow::PREPARED if standing.is_decided => Ok(Resolution::Committed),
        TwoPoolRow::PREPARED if is_over => Ok(Resolution::Aborted),
        TwoPoolRow::PREPARED => Err(Error::in_use(format!("{path} has not decided yet"))
            .hint(format!("`marram tx abort {path} {}` ends what is open there", row.id))),
        TwoPoolRow::DECIDED if is_over && !standing.is_prepared => Ok(Resolution::Forgotten),
        TwoPoolRow::DECIDED => Err(Error::in_use(format!(
            "the transaction is not over in {path}, which needs the answer"
        ))
        .hint("`marram tx resolve` of that pool ends it")),
        TwoPoolRow::COMMITTED_BY_HAND if standing.is_decided => Ok(Resolution::Forgotten),
        TwoPoolRow::ABORTED_BY_HAND if is_over && !standing.is_decided => Ok(Resolution::Forgotten),
        _ => Err(Error::failed(format!("{path} has it otherwise: the two pools do not agree"))
            .hint("mend by hand what differs; `--forget` ends the warning")),
    }
}

/// How it stands in the other pool, mounted or not.
fn standing(place: &PoolPlace, of: &JointId) -> Result<Standing> {
    if let Some(client) = daemon_of(place)?.map(|it| it.connect()).transpose()?.flatten() {
        return match client.ask(&Request::Standing(of.clone()))? {
            Answer::Standing(standing) => Ok(standing),
            other => Err(unexpected(&other)),
        };
    }
    // What a killed daemon has left in the host's cache alone is nothing to rely on.
    let path = &place.path;
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|error| Error::system("sync", path, error))?;
    let report = status(&Target::unmounted(path.clone()))?;
    if report.pool_id != place.id {
        return Err(Error::not_found("another pool is there now"));
    }
    let mine = report.two_pools.iter().filter(|it| it.joint_id() == *of);
    Ok(Standing {
        is_open: false,
        is_in_use: false,
        is_decided: mine.clone().any(|it| it.state == TwoPoolRow::DECIDED),
        is_prepared: mine.clone().any(|it| it.state != TwoPoolRow::DECIDED),
        has_failed: false,
    })
}

/// The daemon that has the pool, of this user or root; none if it has none.
///
/// # Errors
/// Another pool is where it was, or a copy of it is mounted.
fn daemon_of(place: &PoolPlace) -> Result<Option<Target>> {
    let found = daemons::of_pool_or_moved(&place.path, &place.id)?;
    Ok(found.filter(|daemon| daemon.other_user().is_none()).map(Target::of_daemon))
}

fn status(target: &Target) -> Result<StatusReport> {
    match target.perform(&Operation::Status)? {
        Answer::Status(report) => Ok(*report),
        other => Err(unexpected(&other)),
    }
}
