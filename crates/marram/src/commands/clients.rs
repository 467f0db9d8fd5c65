//! `marram clients`: which clients have a home in a database open, as the database says; and
//! `marram expel`.

use crate::arguments::{ExpelArguments, TargetArguments};
use crate::engine::{self, ClientRow};
use crate::error::{Error, Result};
use crate::output::{Align, Output, Table, instant_text};
use crate::target::Target;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Clients {
    home: PathBuf,
    clients: Vec<ClientRow>,
}

pub(super) fn run(arguments: &TargetArguments, output: &Output) -> Result<()> {
    let home = home_of(&arguments.target)?;
    let clients = engine::clients(&home)?;
    let listed = Clients { home, clients };
    output.print(&listed, || text(&listed.clients, output));
    Ok(())
}

#[derive(Serialize)]
struct Expelled {
    home: PathBuf,
    /// Its process and host.
    expelled: String,
}

pub(super) fn expel(arguments: &ExpelArguments, output: &Output) -> Result<()> {
    let home = home_of(&arguments.target)?;
    let session = arguments.session.to_ascii_lowercase();
    let expelled = Expelled { expelled: engine::expel(&home, &session)?, home };
    output.print(&expelled, || {
        format!(
            "expelled {}: its locks are free, and what it had not published is a fork if it comes \
             back",
            expelled.expelled
        )
    });
    Ok(())
}

/// The home in a database that a user names.
fn home_of(target: &Path) -> Result<PathBuf> {
    let home = match engine::server_url(target)? {
        Some(url) => url,
        None => Target::find(target)?.pool,
    };
    if engine::server_url(&home)?.is_none() && !engine::is_cluster(&home) {
        let text = format!("{} is no home in a database", home.display());
        return Err(Error::usage(text).hint("`marram status` shows who has it"));
    }
    Ok(home)
}

fn text(clients: &[ClientRow], output: &Output) -> String {
    let mut table = Table::new(&[
        ("CLIENT", Align::Left),
        ("HERE", Align::Left),
        ("SINCE", Align::Left),
        ("STATE", Align::Left),
        ("LOCKS", Align::Right),
        ("SESSION", Align::Left),
    ]);
    for client in clients {
        let here = match client.is_there {
            Some(true) => "yes",
            Some(false) => "gone",
            None => "other host",
        };
        let state = match (client.is_alone, client.rests) {
            (true, _) => "alone",
            (false, true) => "resting",
            (false, false) => "shared",
        };
        table.row(vec![
            client.name.clone(),
            here.into(),
            instant_text(client.since, false),
            state.into(),
            client.locks.map_or_else(|| "-".to_owned(), |locks| locks.to_string()),
            client.session.clone(),
        ]);
    }
    table.columns(output.colour)
}
