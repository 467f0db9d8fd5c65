//! The clients of a home, for people.

use super::client::{ClientProcess, short};
use super::{databases, open};
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use marram_cluster::{Client, Lost, Stance, glance, locked_ranges};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// A client that has a home open.
#[derive(Debug, Serialize)]
pub(crate) struct ClientRow {
    /// Its process and host.
    pub(crate) name: String,
    /// Whether that process is there; none if it is of another host.
    pub(crate) is_there: Option<bool>,
    /// Since when it has the home open: seconds since 1970, by its clock.
    pub(crate) since: i64,
    /// Whether what it writes may wait, as nobody else reads.
    pub(crate) is_alone: bool,
    /// Whether nobody uses it: it answers nothing before it has woken.
    pub(crate) rests: bool,
    /// How many ranges of files its programs have locked; none if only it knows.
    pub(crate) locks: Option<usize>,
    /// Grows for as long as it lives.
    pub(crate) beat: u64,
    /// Its number, in hexadecimal.
    pub(crate) session: String,
}

/// The clients that have a home open, or had when they died.
///
/// # Errors
/// It cannot be read.
pub(crate) fn clients(path: &Path) -> Result<Vec<ClientRow>> {
    let database = databases::find(path)?.ok_or_else(|| databases::none_at(path))?;
    let failed = |error| Error::from(error).during(path.display());
    let glance = glance(Arc::clone(&database)).map_err(failed)?;
    let locked = locked_ranges(database).map_err(failed)?;
    let is_single = glance.clients.len() == 1;
    let row = |client: Client| ClientRow {
        is_there: ClientProcess::parse(&client.name).and_then(|process| process.is_there()),
        name: short(&client.name).to_owned(),
        since: client.since,
        is_alone: client.stance == Stance::Alone,
        rests: client.stance == Stance::Resting,
        locks: (!is_single).then(|| locked.get(&client.session).copied().unwrap_or(0)),
        beat: client.beat,
        session: hexadecimal(&client.session),
    };
    Ok(glance.clients.into_iter().map(row).collect())
}

/// Takes the client for lost whose session begins so: its locks are free, and what it publishes
/// from then on counts for nothing. Returns its name.
///
/// # Errors
/// There is none, or more than one; or the home cannot be opened.
pub(crate) fn expel(path: &Path, session: &str) -> Result<String> {
    let database = databases::find(path)?.ok_or_else(|| databases::none_at(path))?;
    let there =
        glance(database).map_err(|error| Error::from(error).during(path.display()))?.clients;
    let is_meant = |client: &&Client| hexadecimal(&client.session).starts_with(session);
    let mut meant = there.iter().filter(is_meant);
    let client = match (meant.next().filter(|_| !session.is_empty()), meant.next()) {
        (Some(client), None) => client,
        (None, _) => {
            let text = format!("no client of {} has a session {session:?}", path.display());
            return Err(Error::not_found(text).hint("`marram clients` lists them"));
        }
        (Some(_), Some(_)) => {
            let text = format!("several clients of {} have such a session", path.display());
            return Err(Error::usage(text).hint("give more of it: `marram clients` lists them"));
        }
    };
    let process = ClientProcess::parse(&client.name);
    let may_return = process.is_none_or(|process| process.may_return());
    let lost = Lost { session: client.session, may_return };
    // It is not awaited, as another one that comes would be.
    let store = open::expelling(path, lost)?;
    let expelled = store.expel(lost);
    store.close()?;
    expelled?;
    Ok(short(&client.name).to_owned())
}
