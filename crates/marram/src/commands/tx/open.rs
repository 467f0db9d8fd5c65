//! Transactions that are open: found by what a user says, in all pools that they work in.

use super::word::names;
use crate::commands::answers::unexpected;
use crate::control::client::Client;
use crate::control::daemons;
use crate::control::protocol::{Answer, JointId, PoolPlace, Request, TransactionRow};
use crate::error::{Error, Result};
use crate::paths;
use crate::target::Target;
use std::time::Duration;

/// How long another daemon may take to tell how a transaction stands there.
const STANDING_PATIENCE: Duration = Duration::from_secs(5);

/// What is open in a pool; nothing if nobody has it mounted.
pub(super) fn open(target: &Target) -> Result<Vec<TransactionRow>> {
    let mut rows = open_or_ending(target)?;
    rows.retain(|row| !row.is_ending);
    Ok(rows)
}

/// The same, and what is being committed or aborted.
pub(super) fn open_or_ending(target: &Target) -> Result<Vec<TransactionRow>> {
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

/// The other pool of a transaction, in which that is not open.
struct Missing {
    place: PoolPlace,
    /// Its daemon, if there is one.
    daemon: Option<Target>,
}

impl Half {
    /// The halves of a transaction of which one is in this pool, first that. Nothing is changed.
    ///
    /// # Errors
    /// The one in the other pool is not open any more, or that is not known.
    pub(super) fn all_of(target: Target, row: TransactionRow) -> Result<Vec<Half>> {
        let own = Half { target, row };
        match own.other()? {
            (other, None) => Ok(std::iter::once(own).chain(other).collect()),
            (_, Some(missing)) => Err(own
                .without(&missing)
                .hint("`marram tx commit` or `marram tx abort` ends what is left of it")),
        }
    }

    /// The same for a commit.
    ///
    /// # Errors
    /// As for [`Half::all_of`]. If nothing of it is committed and nothing can be, for want of the
    /// other half, this one is ended too.
    pub(super) fn all_to_commit(target: Target, row: TransactionRow) -> Result<Vec<Half>> {
        let own = Half { target, row };
        let missing = match own.other()? {
            (other, None) => return Ok(std::iter::once(own).chain(other).collect()),
            (_, Some(missing)) => missing,
        };
        let (id, path) = (&own.row.id, missing.place.path.display());
        let is_lost = own.is_lost(&missing).map_err(|error| {
            error.during(format!("how transaction {id} stands in {path} is not known"))
        })?;
        if is_lost {
            own.abort()?;
            let hint = "nothing of it is committed; begin it again";
            return Err(own.without(&missing).hint(hint));
        }
        let told = format!("transaction {id} is not open in {path}, and may be being committed");
        let hint = "`marram tx show TARGET ID` tells whether it was; `marram tx abort` ends what \
                    is open still";
        Err(Error::in_use(told).hint(hint))
    }

    /// Ends what there is in its pool, if it is open.
    ///
    /// # Errors
    /// The daemon has gone, or does not answer.
    pub(super) fn abort(&self) -> Result<()> {
        match connected(&self.target)?.ask(&Request::Abort(self.row.id.clone()))? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends the other half, if there is one. What a daemon had open has gone with it.
    ///
    /// # Errors
    /// The other pool is not where it was; its daemon does not answer.
    pub(super) fn abort_other(&self) -> Result<()> {
        let Some(place) = &self.row.other else { return Ok(()) };
        let ended = self.daemon_of(place).and_then(|other| {
            let client = other.as_ref().map(Target::connect).transpose()?.flatten();
            match client.map(|it| it.ask(&Request::Abort(self.row.id.clone()))).transpose()? {
                None | Some(Answer::Done) => Ok(()),
                Some(other) => Err(unexpected(&other)),
            }
        });
        ended.map_err(|error| {
            let path = place.path.display();
            error.during(format!("it is aborted, but for what it has in {path}"))
        })
    }

    /// The other half, if it works in another pool; or that pool, if it is not open there.
    ///
    /// # Errors
    /// That is not known.
    fn other(&self) -> Result<(Option<Half>, Option<Missing>)> {
        let Some(place) = self.row.other.clone() else { return Ok((None, None)) };
        let during = |error: Error| error.during(place.path.display());
        let Some(target) = self.daemon_of(&place).map_err(during)? else {
            return Ok((None, Some(Missing { place, daemon: None })));
        };
        let mut there = open(&target).map_err(during)?.into_iter();
        Ok(match there.find(|there| there.id == self.row.id) {
            Some(row) => (Some(Half { target, row }), None),
            None => (None, Some(Missing { place, daemon: Some(target) })),
        })
    }

    /// The daemon of the other pool, of the same user; none if it has none.
    ///
    /// # Errors
    /// The pool is not where it was.
    fn daemon_of(&self, place: &PoolPlace) -> Result<Option<Target>> {
        let own = self.target.daemon.as_ref();
        let found = daemons::of_pool_or_moved(&place.path, &place.id)?;
        let found = found.filter(|it| own.is_some_and(|own| it.is_of_user_of(own)));
        let is_seen = paths::is_root() || !own.is_some_and(daemons::Daemon::is_of_another_user);
        if found.is_none() && !is_seen && !place.path.exists() {
            let text = format!("{} is not where it was", place.path.display());
            return Err(Error::not_found(text)
                .hint("its daemon is of another user: that user, or root, can find it"));
        }
        Ok(found.map(Target::of_daemon))
    }

    /// Whether nothing of it is committed and nothing can be, when the other pool did not list it.
    ///
    /// # Errors
    /// A daemon does not answer.
    fn is_lost(&self, other: &Missing) -> Result<bool> {
        let own = self.target.daemon.as_ref();
        let client = other.daemon.as_ref().map(Target::connect).transpose()?.flatten();
        let (Some(client), Some(own)) = (client, own) else { return Ok(false) };
        let of = JointId { id: self.row.id.clone(), other: own.greeting.pool_id.clone() };
        let client = client.with_patience(Some(STANDING_PATIENCE));
        let standing = match client.ask(&Request::Standing(of))? {
            Answer::Standing(standing) => standing,
            other => return Err(unexpected(&other)),
        };
        if standing.is_open || standing.is_decided || standing.is_prepared || standing.has_failed {
            return Ok(false);
        }
        // A commit takes it from what is open here before anything is decided. So it has not
        // begun if it is open still, and finds no other half from now on.
        Ok(open(&self.target)?.iter().any(|row| row.id == self.row.id))
    }

    fn without(&self, other: &Missing) -> Error {
        let (id, path) = (&self.row.id, other.place.path.display());
        Error::not_found(format!("what transaction {id} has in {path} is not open any more"))
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
