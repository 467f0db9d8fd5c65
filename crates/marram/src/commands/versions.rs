//! `marram versions`: the different versions of a file or directory, also of what was removed.

use crate::arguments::VersionsArguments;
use crate::commands::answers::{unexpected, write_back};
use crate::control::protocol::{Answer, Operation, VersionRow, VersionsOrder};
use crate::error::{Error, Result};
use crate::names::{PathText, quoted, shell_word};
use crate::output::{Align, Output, Table, size_text};
use crate::target::Place;
use crate::timestamps::local_instant;
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Serialize)]
struct Told {
    pool: PathBuf,
    dataset: String,
    #[serde(serialize_with = "crate::names::serialize")]
    path: PathBuf,
    versions: Vec<VersionRow>,
}

pub(super) fn run(arguments: &VersionsArguments, output: &Output) -> Result<()> {
    let path = &arguments.path;
    let place = Place::find(path)?;
    let dataset = place.target.dataset(arguments.dataset.as_deref())?.to_string();
    write_back(&place.target, &place.path)?;
    let versions = of(&place, dataset.clone(), arguments.dataset.is_some())?;
    let told = Told { pool: place.target.pool.clone(), dataset, path: path.clone(), versions };
    output.print(&told, || text(&told, arguments, output));
    Ok(())
}

/// The versions of what is or was at a place; with `is_whole` those of all of the dataset.
///
/// # Errors
/// The place is in a snapshot; whatever else refuses it or fails.
pub(super) fn of(place: &Place, dataset: String, is_whole: bool) -> Result<Vec<VersionRow>> {
    let mounted = place.target.mounted.as_ref();
    if let Some(source) = mounted.filter(|source| source.snapshot.is_some() && !is_whole) {
        return Err(Error::usage(format!("{} is in the snapshot {source}", place.path.display()))
            .hint("name the file or directory of the dataset"));
    }
    let (directory, names) = match is_whole {
        true => (None, Vec::new()),
        false => (place.target.ino, place.names.iter().map(|name| PathText::of(name)).collect()),
    };
    if directory == Some(0) {
        let place = place.path.display();
        return Err(Error::usage(format!("{place} is no directory of a dataset")));
    }
    let order = VersionsOrder { dataset, directory, names };
    match place.target.perform(&Operation::Versions(order))? {
        Answer::Versions(versions) => Ok(versions),
        other => Err(unexpected(&other)),
    }
}

fn text(told: &Told, arguments: &VersionsArguments, output: &Output) -> String {
    let format = arguments.format;
    let mut table = Table::new(&[
        ("SNAPSHOT", Align::Left),
        ("MORE", Align::Right),
        ("MODIFIED", Align::Left),
        ("SIZE", Align::Right),
        ("WHAT", Align::Left),
    ]);
    for (at, row) in told.versions.iter().enumerate() {
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let modified = row.modified.as_ref();
        table.row(vec![
            if row.now { "now".to_owned() } else { or_dash(row.snapshots.first().cloned()) },
            more(row),
            or_dash(modified.map(|at| if format.exact { at.clone() } else { local_instant(at) })),
            or_dash(row.size.map(|bytes| size(row, bytes, format.exact))),
            what(row, told.versions.get(at + 1)),
        ]);
    }
    if format.no_header {
        return table.tab_separated();
    }
    format!("{}{}", table.columns(output.colour), advice(&told.path, &told.versions))
}

/// How many other snapshots have it.
fn more(row: &VersionRow) -> String {
    let others = if row.now { row.snapshots.len() } else { row.snapshots.len().saturating_sub(1) };
    if others == 0 { "-".to_owned() } else { format!("+{others}") }
}

fn size(row: &VersionRow, size: u64, is_exact: bool) -> String {
    match row.kind.as_deref() {
        Some("directory") if is_exact => size.to_string(),
        Some("directory") if size == 1 => "1 entry".to_owned(),
        Some("directory") => format!("{size} entries"),
        _ => size_text(size, is_exact),
    }
}

fn what(row: &VersionRow, before: Option<&VersionRow>) -> String {
    if let Some((created, removed, changed)) = row.below {
        let counts = [(created, "created"), (removed, "removed"), (changed, "changed")];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
        return counts.join(", ");
    }
    if row.aspects.is_empty() {
        return if row.change == "oldest" { "-".to_owned() } else { row.change.clone() };
    }
    let word = |aspect: &String| match before.and_then(VersionRow::path_in_bytes) {
        Some(path) if aspect == "path" => format!("renamed from {}", quoted(&path)),
        _ => aspect.clone(),
    };
    row.aspects.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// How the newest version that is not there now comes back.
fn advice(path: &Path, versions: &[VersionRow]) -> String {
    let older = versions.iter().find(|row| !row.now && row.kind.is_some());
    let Some(snapshot) = older.and_then(|row| row.snapshots.first()) else {
        return String::new();
    };
    let path = shell_word(path);
    format!(
        "to see what differs: marram diff {path}@{snapshot}\n\
         to have it back: marram rollback {path}@{snapshot}\n"
    )
}
