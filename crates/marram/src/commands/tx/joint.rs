//! A transaction as its command has it open: in one pool, or in two.
//!
//! In each pool it is a transaction with a conversation of its own, and both have one id. Both
//! conversations last until the end is known: what one pool has begun ends with its conversation.

use super::open::{Half, connected, open};
use super::report::Outcome;
use super::view::Datasets;
use crate::commands::answers::unexpected;
use crate::control::client::Client;
use crate::control::daemons::Daemon;
use crate::control::protocol::{
    Answer, Author, BeginOrder, BegunTransaction, JointCommit, JointOutcome, PoolPlace, Request,
};
use crate::error::{Error, Kind, Result};
use crate::private_view::Refusal;
use crate::target::Target;
use std::path::PathBuf;
use std::time::Duration;

/// How long the pool that decides may take to end what is not open any more after a commit.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct OpenTransaction {
    /// Its id.
    pub(super) id: String,
    /// Where its views are, in the order of the datasets.
    pub(super) places: Vec<PathBuf>,
    first: Client,
    second: Option<Client>,
    /// Of one that outlives the conversations: the daemons.
    lasting: Vec<Daemon>,
}

impl OpenTransaction {
    /// Begins one in all datasets. With a time in seconds it stays open until nothing has been done
    /// in it for so long; else it ends with the conversations.
    ///
    /// # Errors
    /// What refuses it in one of the pools; then there is none in any.
    pub(super) fn begin(datasets: &Datasets, idle_seconds: Option<u64>) -> Result<OpenTransaction> {
        let pools = datasets.of_pools();
        let first = pools.first().ok_or_else(|| Error::failed("there is no dataset"))?;
        let second = pools.get(1);
        let client_of = |places: &Vec<usize>| connected(&datasets.at(places[0]).target);
        let (first_client, second_client) = (client_of(first)?, second.map(client_of).transpose()?);
        let place_of_first = second_client.as_ref().map(|_| place_of(&first_client));
        let terms = Terms { idle_seconds, id: None, other: second_client.as_ref().map(place_of) };
        let (first_client, begun) = begin_in_pool(first_client, (datasets, first), terms)?;
        let id = begun.id.clone();
        let mut shown: Vec<(usize, PathBuf)> =
            first.iter().copied().zip(begun.places().cloned()).collect();
        let (places, lasting) = (Vec::new(), Vec::new());
        let mut open = OpenTransaction { id, places, first: first_client, second: None, lasting };
        if let (Some(places), Some(client)) = (second, second_client) {
            let terms = Terms { idle_seconds, id: Some(open.id.clone()), other: place_of_first };
            let (client, begun) = match begin_in_pool(client, (datasets, places), terms) {
                Ok(begun) => begun,
                Err(error) => {
                    open.abort();
                    return Err(error);
                }
            };
            shown.extend(places.iter().copied().zip(begun.places().cloned()));
            open.second = Some(client);
        }
        shown.sort();
        open.places = shown.into_iter().map(|(_, place)| place).collect();
        Ok(open)
    }

    /// Takes up one that has been begun before, in all pools that it works in.
    ///
    /// # Errors
    /// A daemon has gone.
    pub(super) fn of_halves(halves: &[Half]) -> Result<OpenTransaction> {
        let missing = || Error::failed("there is no transaction");
        let first = halves.first().ok_or_else(missing)?;
        let second = halves.get(1).map(|half| connected(&half.target)).transpose()?;
        let places = halves.iter().flat_map(|half| half.row.parts()).map(|part| part.place);
        Ok(OpenTransaction {
            id: first.row.id.clone(),
            places: places.collect(),
            first: connected(&first.target)?,
            second,
            lasting: halves.iter().filter_map(|half| half.target.daemon.clone()).collect(),
        })
    }

    /// The conversation with the first pool.
    pub(super) fn client(&self) -> &Client {
        &self.first
    }

    /// Ends it without a trace. The end of a conversation does that too, but nobody waits for that.
    pub(super) fn abort(self) {
        for client in std::iter::once(self.first).chain(self.second) {
            let _aborted_with_the_conversation = client.ask(&Request::Abort(self.id.clone()));
        }
    }

    /// Commits it in all pools. What the daemons answer is known; what they do not is not.
    ///
    /// # Errors
    /// Why it could not be; then nothing of it is there.
    pub(super) fn commit(self) -> std::result::Result<Outcome, Refusal> {
        let OpenTransaction { id, first, second, lasting, .. } = self;
        let Some(second) = second else { return commit(first, &id) };
        // Of two pools the one with the smaller id decides, whatever the order of the datasets.
        let is_in_order = first.greeting().pool_id < second.greeting().pool_id;
        let (decides, prepares) = if is_in_order { (first, second) } else { (second, first) };
        let (decider, told) = (place_of(&decides), prepares.greeting().pool.clone());
        let preparing = place_of(&prepares).id;
        let answered =
            prepares.prepare(&JointCommit { id: id.clone(), other: decider, user: None });
        // Until here it was open there, too. One that outlives this is so still if nobody has
        // asked, and stays so if it has been refused untouched.
        let own = lasting.into_iter().find(|daemon| daemon.greeting.pool_id == preparing);
        let is_refused = matches!(answered, Ok(Err(_)));
        let is_ending = matches!(&answered, Ok(Err(error)) if error.kind == Kind::Unknown);
        let stays = is_ending || is_refused && own.is_some_and(|own| may_be_open(own, &id));
        if !stays {
            let decides = decides.with_patience(Some(ABORT_PATIENCE));
            let _ends_with_the_conversation = decides.ask(&Request::Abort(id));
        }
        match answered {
            Ok(Ok(Answer::Joint(JointOutcome::Committed))) => Ok(Outcome::Committed),
            Ok(Ok(Answer::Joint(JointOutcome::Refused(conflicts)))) => {
                Ok(Outcome::Refused(conflicts))
            }
            Ok(Ok(Answer::Joint(JointOutcome::InDoubt(error)))) => Ok(Outcome::Unknown(error)),
            Ok(Ok(other)) => Err(unexpected(&other).into()),
            Ok(Err(error)) if error.kind == Kind::Unknown => Ok(Outcome::Unknown(error)),
            Ok(Err(error)) => Err(error.during("nothing was committed").into()),
            Err(error) => Ok(Outcome::Unknown(error.during(told.display()))),
        }
    }
}

/// Whether a daemon has a transaction open, as far as is known.
fn may_be_open(daemon: Daemon, id: &str) -> bool {
    !open(&Target::of_daemon(daemon)).is_ok_and(|rows| rows.iter().all(|row| row.id != id))
}

/// The pool behind a conversation.
fn place_of(client: &Client) -> PoolPlace {
    let greeting = client.greeting();
    PoolPlace { id: greeting.pool_id.clone(), path: greeting.pool.clone() }
}

/// How one begins in a pool.
struct Terms {
    /// It stays open until nothing has been done in it for so long.
    idle_seconds: Option<u64>,
    /// It has that id.
    id: Option<String>,
    /// It works in that pool, too.
    other: Option<PoolPlace>,
}

/// Begins one in the datasets at some places, which are of one pool.
///
/// # Errors
/// What refuses it.
fn begin_in_pool(
    mut client: Client,
    (datasets, places): (&Datasets, &[usize]),
    terms: Terms,
) -> Result<(Client, BegunTransaction)> {
    let Terms { idle_seconds, id, other } = terms;
    let first = datasets.at(places.first().copied().unwrap_or_default());
    let others = places.iter().skip(1);
    match client.begin_transaction(BeginOrder {
        directory: first.mount.clone(),
        also: others.map(|place| datasets.at(*place).mount.clone()).collect(),
        inside: None,
        author: Author::of_this_process(),
        idle_seconds,
        id,
        other,
        descriptor: false,
    })? {
        Answer::Begun(begun) => Ok((client, begun)),
        other => Err(unexpected(&other)),
    }
}

/// Commits. What the daemon answers is known; what it does not is not.
///
/// # Errors
/// Why it could not be; then nothing of it is there.
pub(super) fn commit(client: Client, id: &str) -> std::result::Result<Outcome, Refusal> {
    let pool = client.greeting().pool.clone();
    match client.commit_transaction(id) {
        Ok(Ok(Answer::Concluded(summary))) if summary.committed => Ok(Outcome::Committed),
        Ok(Ok(Answer::Concluded(summary))) => Ok(match summary.unknown {
            Some(error) => Outcome::Unknown(error.during(pool.display())),
            None => Outcome::Refused(summary.conflicts),
        }),
        Ok(Ok(other)) => Err(unexpected(&other).into()),
        Ok(Err(error)) if error.kind == Kind::Unknown => Ok(Outcome::Unknown(error)),
        Ok(Err(error)) => Err(error.during("nothing was committed").into()),
        Err(error) => Ok(Outcome::Unknown(error.during(pool.display()))),
    }
}
