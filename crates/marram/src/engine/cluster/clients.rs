//! The clients of a home, for people.

use super::client::{ClientProcess, short};
use super::databases;
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use marram_cluster::{Client, glance};
use serde::Serialize;
use std::path::Path;

/// A client that has a home open.
#[derive(Debug, Serialize)]
pub(crate) struct ClientRow {
    /// Its process and host.
    pub(crate) name: String,
    /// Whether that process is there; none if it is of another host.
    pub(crate) is_there: Option<bool>,
    /// Whether what it writes may wait, as nobody else reads.
    pub(crate) is_alone: bool,
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
    let glance = glance(database).map_err(|error| Error::from(error).during(path.display()))?;
    let row = |client: Client| ClientRow {
        is_there: ClientProcess::parse(&client.name).and_then(|process| process.is_there()),
        name: short(&client.name).to_owned(),
        is_alone: client.is_alone,
        beat: client.beat,
        session: hexadecimal(&client.session),
    };
    Ok(glance.clients.into_iter().map(row).collect())
}
