//! Transactions that are open: found by what a user says, in all pools that they work in.

use super::word::names;
use crate::commands::answers::unexpected;
use crate::control::client::Client;
use crate::control::daemons;
use crate::control::protocol::{Answer, Request, TransactionRow};
use crate::error::{Error, Result};
use crate::target::Target;

/// What is open in a pool; nothing if nobody has it mounted.
pub(super) fn open(target: &Target) -> Result<Vec<TransactionRow>> {
    let Some(client) = target.connect()? else { return Ok(Vec::new()) };
    match client.ask(&Request::Transactions)? {
        Answer::Transactions(rows) => Ok(rows),
        other => Err(unexpected(&other)),
    }
}

/// The open transaction that a word stands for.
///
/// # Errors
/// There is none, or more than one.
pub(super) fn find_open(target: &Target, word: &str) -> Result<TransactionRow> {
    let mut rows = open(target)?;
    rows.retain(|row| names(word, &row.id));
    match (rows.pop(), rows.is_empty()) {
        (Some(row), true) => Ok(row),
        (Some(_), false) => Err(Error::usage(format!("several transactions begin with {word}"))
            .hint("`marram tx list TARGET` has their ids")),
        (None, _) => Err(Error::not_found(format!("no transaction {word} is open"))
            .hint("it was committed or aborted, or nothing was done in it for too long")),
    }
}

/// What there is in one pool of a transaction that stays open.
pub(super) struct Half {
    /// How its daemon is asked.
    pub(super) target: Target,
    /// What that tells of it.
    pub(super) row: TransactionRow,
}

impl Half {
    /// The halves of a transaction of which one is in this pool, first that.
    ///
    /// # Errors
    /// The one in the other pool is not there any more: then this one is ended too.
    pub(super) fn all_of(target: Target, row: TransactionRow) -> Result<Vec<Half>> {
        let Some(place) = row.other.clone() else { return Ok(vec![Half { target, row }]) };
        let found = daemons::of_pool(&place.path, &place.id).ok().flatten();
        let found =
            found.filter(|it| target.daemon.as_ref().is_some_and(|own| it.is_of_user_of(own)));
        if let Some(other) = found.map(Target::of_daemon) {
            let there = open(&other)?.into_iter().find(|there| there.id == row.id);
            if let Some(there) = there {
                return Ok(vec![Half { target, row }, Half { target: other, row: there }]);
            }
        }
        if let Ok(client) = connected(&target) {
            let _ends_by_itself_at_worst = client.ask(&Request::Abort(row.id.clone()));
        }
        let (id, path) = (&row.id, place.path.display());
        Err(Error::not_found(format!("what transaction {id} has in {path} is not open any more"))
            .hint("nothing of it is committed; begin it again"))
    }
}

/// A conversation with the daemon.
///
/// # Errors
/// There is none any more.
pub(super) fn connected(target: &Target) -> Result<Client> {
    let gone = || Error::failed(format!("the daemon of {} has gone", target.pool.display()));
    target.connect()?.ok_or_else(gone)
}
