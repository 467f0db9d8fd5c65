//! A transaction as its command has it open: in one pool, or in two.
//!
//! In each pool it is a transaction with a conversation of its own, and both have one id. Both
//! conversations last until the end is known: what one pool has begun ends with its conversation.

use super::report::Outcome;
use super::view::Datasets;
use crate::commands::answers::unexpected;
use crate::control::client::Client;
use crate::control::protocol::{
    Answer, Author, BeginOrder, BegunTransaction, JointCommit, JointOutcome, PoolPlace, Request,
};
use crate::error::{Error, Result};
use crate::private_view::Refusal;
use crate::target::Target;
use std::path::PathBuf;

/// See the module.
pub(super) struct OpenTransaction {
    /// Its id.
    pub(super) id: String,
    /// Where its views are, in the order of the datasets.
    pub(super) places: Vec<PathBuf>,
    first: Client,
    second: Option<Client>,
}

impl OpenTransaction {
    /// Begins one in all datasets.
    ///
    /// # Errors
    /// What refuses it in one of the pools; then there is none in any.
    pub(super) fn begin(datasets: &Datasets) -> Result<OpenTransaction> {
        let mut shown: Vec<(usize, PathBuf)> = Vec::new();
        let (mut clients, mut id) = (Vec::new(), None);
        for places in datasets.of_pools() {
            let (client, begun) = begin_in_pool(datasets, &places, (None, id.clone()))?;
            shown.extend(places.into_iter().zip(begun.places().cloned()));
            clients.push(client);
            id = Some(begun.id);
        }
        shown.sort();
        let missing = || Error::failed("there is no dataset");
        let mut clients = clients.into_iter();
        Ok(OpenTransaction {
            id: id.ok_or_else(missing)?,
            places: shown.into_iter().map(|(_, place)| place).collect(),
            first: clients.next().ok_or_else(missing)?,
            second: clients.next(),
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
        let OpenTransaction { id, first, second, .. } = self;
        let Some(second) = second else { return commit(first, &id) };
        // Of two pools the one with the smaller id decides, whatever the order of the datasets.
        let is_in_order = first.greeting().pool_id < second.greeting().pool_id;
        let (decides, prepares) = if is_in_order { (first, second) } else { (second, first) };
        let (decider, told) = (place_of(&decides), prepares.greeting().pool.clone());
        let answered = prepares.prepare(&JointCommit { id, other: decider });
        // Until here it was open there, too.
        drop(decides);
        match answered {
            Ok(Ok(Answer::Joint(JointOutcome::Committed))) => Ok(Outcome::Committed),
            Ok(Ok(Answer::Joint(JointOutcome::Refused(conflicts)))) => {
                Ok(Outcome::Refused(conflicts))
            }
            Ok(Ok(Answer::Joint(JointOutcome::InDoubt(error)))) => Ok(Outcome::Unknown(error)),
            Ok(Ok(other)) => Err(unexpected(&other).into()),
            Ok(Err(error)) => Err(error.during("nothing was committed").into()),
            Err(error) => Ok(Outcome::Unknown(error.during(told.display()))),
        }
    }
}

/// The pool behind a conversation.
fn place_of(client: &Client) -> PoolPlace {
    let greeting = client.greeting();
    PoolPlace { id: greeting.pool_id.clone(), path: greeting.pool.clone() }
}

/// Begins one in the datasets at some places, which are of one pool. With a time in seconds it
/// stays open until nothing has been done in it for so long; with an id it has that.
///
/// # Errors
/// What refuses it.
pub(super) fn begin_in_pool(
    datasets: &Datasets,
    places: &[usize],
    (idle_seconds, id): (Option<u64>, Option<String>),
) -> Result<(Client, BegunTransaction)> {
    let first = datasets.at(places.first().copied().unwrap_or_default());
    let mut client = connected(&first.target)?;
    let others = places.iter().skip(1);
    match client.begin_transaction(BeginOrder {
        directory: first.mount.clone(),
        also: others.map(|place| datasets.at(*place).mount.clone()).collect(),
        inside: None,
        author: Author::of_this_process(),
        idle_seconds,
        id,
        descriptor: false,
    })? {
        Answer::Begun(begun) => Ok((client, begun)),
        other => Err(unexpected(&other)),
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

/// Commits. What the daemon answers is known; what it does not is not.
///
/// # Errors
/// Why it could not be; then nothing of it is there.
pub(super) fn commit(client: Client, id: &str) -> std::result::Result<Outcome, Refusal> {
    let pool = client.greeting().pool.clone();
    match client.commit_transaction(id) {
        Ok(Ok(Answer::Concluded(summary))) if summary.committed => Ok(Outcome::Committed),
        Ok(Ok(Answer::Concluded(summary))) => Ok(Outcome::Refused(summary.conflicts)),
        Ok(Ok(other)) => Err(unexpected(&other).into()),
        Ok(Err(error)) => Err(error.during("nothing was committed").into()),
        Err(error) => Ok(Outcome::Unknown(error.during(pool.display()))),
    }
}
