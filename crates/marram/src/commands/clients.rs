//! `marram clients`: which clients have a home in a database open, as the database says.

use crate::arguments::TargetArguments;
use crate::engine::{self, ClientRow};
use crate::error::{Error, Result};
use crate::output::{Align, Output, Table};
use crate::target::Target;
use serde::Serialize;
use std::path::PathBuf;

#[derive(Serialize)]
struct Clients {
    home: PathBuf,
    clients: Vec<ClientRow>,
}

pub(super) fn run(arguments: &TargetArguments, output: &Output) -> Result<()> {
    let home = match engine::server_url(&arguments.target)? {
        Some(url) => url,
        None => Target::find(&arguments.target)?.pool,
    };
    if engine::server_url(&home)?.is_none() && !engine::is_cluster(&home) {
        let text = format!("{} is no home in a database", home.display());
        return Err(Error::usage(text).hint("`marram status` shows who has it"));
    }
    let clients = engine::clients(&home)?;
    let listed = Clients { home, clients };
    output.print(&listed, || text(&listed.clients, output));
    Ok(())
}

fn text(clients: &[ClientRow], output: &Output) -> String {
    let mut table = Table::new(&[
        ("CLIENT", Align::Left),
        ("HERE", Align::Left),
        ("STATE", Align::Left),
        ("SESSION", Align::Left),
    ]);
    for client in clients {
        let here = match client.is_there {
            Some(true) => "yes",
            Some(false) => "gone",
            None => "other host",
        };
        let state = if client.is_alone { "alone" } else { "shared" };
        table.row(vec![client.name.clone(), here.into(), state.into(), client.session.clone()]);
    }
    table.columns(output.colour)
}
