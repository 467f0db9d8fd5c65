//! `marram fork` and `marram forks`: a writable copy of any directory at once, and what copies
//! there are.

use crate::arguments::{ForkArguments, ForksArguments, FormatArguments};
use crate::commands::answers::{timed, unexpected, write_back};
use crate::control::daemons::Daemon;
use crate::control::protocol::{Answer, DatasetRow, Operation};
use crate::error::{Error, Result};
use crate::names::{PathText, quoted, shell_word};
use crate::output::{Align, Output, Table, instant_text, size_text};
use crate::paths;
use crate::target::Target;
use marram_store::{DatasetName, Source};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The inode of the root directory.
const ROOT: u64 = 1;

#[derive(Serialize)]
struct Forked {
    pool: PathBuf,
    name: String,
    origin: String,
    /// Where it can be seen, if the dataset is mounted.
    path: Option<PathBuf>,
    engine_nanoseconds: u64,
}

pub(super) fn run(arguments: &ForkArguments, output: &Output) -> Result<()> {
    let name = fork_name(&arguments.name)?;
    let target = Target::find(&arguments.directory)?;
    let (source, root) = place(&target, arguments)?;
    if let Some(snapshot) = &source.snapshot {
        let path = arguments.directory.display();
        return Err(Error::usage(format!("{path} is in the snapshot {snapshot}"))
            .hint("`marram clone` makes a writable dataset of a snapshot"));
    }
    write_back(&target, &arguments.directory)?;
    let engine_nanoseconds = make(&target, &source.dataset, root, &name)?;
    let made = Forked {
        path: shelf_of(&target).map(|shelf| shelf.join(name.as_str())),
        pool: target.pool,
        name: name.to_string(),
        origin: source.to_string(),
        engine_nanoseconds,
    };
    output.print(&made, || text_of(&made));
    Ok(())
}

/// Forks the directory `root` of a dataset; how long the engine took, in nanoseconds.
///
/// # Errors
/// Whatever refuses it or fails.
pub(super) fn make(
    target: &Target,
    dataset: &DatasetName,
    root: u64,
    name: &DatasetName,
) -> Result<u64> {
    let (dataset, name) = (dataset.to_string(), name.to_string());
    timed(target, &Operation::Fork { dataset, name, root })
}

/// The directory in which the mount of a target shows the forks of this user.
pub(super) fn shelf_of(target: &Target) -> Option<PathBuf> {
    let is_roots = target.daemon.as_ref().is_some_and(Daemon::is_roots);
    Some(own_shelf(target.directory.as_ref()?, is_roots))
}

/// The same of a mount, which root's daemon may have made.
pub(super) fn own_shelf(mount: &Path, is_roots: bool) -> PathBuf {
    let hidden = mount.join(".marram");
    match is_roots && !paths::is_root() {
        true => hidden.join("users").join(paths::own_uid().to_string()),
        false => hidden.join("forks"),
    }
}

/// Where a mount shows a fork: root finds those of all users.
pub(super) fn shown_at(mount: &Path, is_roots: bool, name: &str) -> Option<PathBuf> {
    let users = std::fs::read_dir(mount.join(".marram/users")).into_iter().flatten();
    let of_users = users.filter_map(|user| Some(user.ok()?.path()));
    let shelves = std::iter::once(own_shelf(mount, is_roots));
    let all = shelves.chain(of_users.filter(|_| paths::is_root()));
    all.map(|shelf| shelf.join(name)).find(|shown| shown.is_dir())
}

fn text_of(made: &Forked) -> String {
    let how = match &made.path {
        Some(path) => format!("it is at {}", quoted(path.as_os_str().as_bytes())),
        None => format!(
            "mount it with: marram mount {} DIRECTORY --fork {}",
            shell_word(&made.pool),
            made.name
        ),
    };
    format!("created the fork {}\n{how}\n", made.name)
}

/// A fork's name is a name in a directory too.
pub(super) fn fork_name(text: &str) -> Result<DatasetName> {
    if text.contains('/') {
        return Err(Error::usage(format!("{text:?} is no name of a fork: it has a / in it")));
    }
    Ok(text.parse()?)
}

/// What is to be forked: the dataset, and the directory's inode in it.
fn place(target: &Target, arguments: &ForkArguments) -> Result<(Source, u64)> {
    if let Some(dataset) = &arguments.dataset {
        return Ok((Source::live(dataset.parse()?), ROOT));
    }
    match (&target.mounted, target.ino) {
        (Some(source), Some(0)) => {
            let path = arguments.directory.display();
            Err(Error::usage(format!("{path} is no directory of {source}")))
        }
        (Some(source), Some(ino)) => Ok((source.clone(), ino)),
        _ => Ok((Source::live(DatasetName::root()), ROOT)),
    }
}

#[derive(Serialize)]
struct ForkRow {
    name: String,
    /// The dataset or fork that it began as.
    parent: String,
    /// The snapshot of that which it began as.
    base: String,
    /// The directory that it is a fork of, from the root of the parent.
    directory: Option<PathText>,
    #[serde(flatten)]
    row: Sizes,
}

#[derive(Serialize)]
struct Sizes {
    created_seconds: i64,
    referenced_bytes: u64,
    unique_bytes: u64,
}

pub(super) fn list(arguments: &ForksArguments, output: &Output) -> Result<()> {
    let target = Target::find(&arguments.target)?;
    let rows = match target.perform(&Operation::List)? {
        Answer::Datasets(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    let forks: Vec<ForkRow> = rows.into_iter().filter_map(fork_row).collect();
    output.print(&forks, || match arguments.graph {
        true => graph(&forks, arguments.format.exact),
        false => table(&target, &forks, arguments.format, output),
    });
    Ok(())
}

fn fork_row(row: DatasetRow) -> Option<ForkRow> {
    let base = row.origin.filter(|_| row.kind == "fork")?;
    let parent = base.split('@').next().unwrap_or_default().to_owned();
    let (created_seconds, unique_bytes) = (row.created_seconds, row.unique_bytes);
    let sizes = Sizes { created_seconds, referenced_bytes: row.referenced_bytes, unique_bytes };
    Some(ForkRow { name: row.name, parent, base, directory: row.directory, row: sizes })
}

fn table(target: &Target, forks: &[ForkRow], format: FormatArguments, output: &Output) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("PARENT", Align::Left),
        ("REFERENCED", Align::Right),
        ("UNIQUE", Align::Right),
        ("CREATED", Align::Left),
        ("DIRECTORY", Align::Left),
    ]);
    for fork in forks {
        let directory = fork.directory.as_ref();
        table.row(vec![
            fork.name.clone(),
            fork.parent.clone(),
            size_text(fork.row.referenced_bytes, format.exact),
            size_text(fork.row.unique_bytes, format.exact),
            instant_text(fork.row.created_seconds, format.exact),
            directory.map_or("-".to_owned(), |at| target.place_of(&fork.parent, &at.bytes())),
        ]);
    }
    if format.no_header { table.tab_separated() } else { table.columns(output.colour) }
}

/// Which fork began as which, from the datasets that are none.
fn graph(forks: &[ForkRow], exact: bool) -> String {
    let mut children: BTreeMap<&str, Vec<&ForkRow>> = BTreeMap::new();
    for fork in forks {
        children.entry(&fork.parent).or_default().push(fork);
    }
    let is_fork = |name: &str| forks.iter().any(|fork| fork.name == name);
    let mut text = String::new();
    let mut waiting: Vec<(String, &ForkRow, bool)> = Vec::new();
    for root in children.keys().filter(|name| !is_fork(name)) {
        text.push_str(&format!("{root}\n"));
        push_children(&mut waiting, &children, root, "");
        while let Some((indent, fork, is_last)) = waiting.pop() {
            let branch = if is_last { "`-- " } else { "|-- " };
            let size = size_text(fork.row.unique_bytes, exact);
            text.push_str(&format!("{indent}{branch}{} ({size})\n", fork.name));
            let below = format!("{indent}{}", if is_last { "    " } else { "|   " });
            push_children(&mut waiting, &children, &fork.name, &below);
        }
    }
    text
}

/// Puts the forks of `parent` on the stack, so that the first comes off it first.
fn push_children<'a>(
    waiting: &mut Vec<(String, &'a ForkRow, bool)>,
    children: &BTreeMap<&str, Vec<&'a ForkRow>>,
    parent: &str,
    indent: &str,
) {
    let found = children.get(parent).map_or(&[][..], Vec::as_slice);
    for (from_last, fork) in found.iter().rev().enumerate() {
        waiting.push((indent.to_owned(), fork, from_last == 0));
    }
}

#[cfg(test)]
mod tests {
    use super::{ForkRow, Sizes, graph};

    #[test]
    fn a_graph_shows_which_fork_began_as_which() {
        let fork = |name: &str, parent: &str| ForkRow {
            name: name.to_owned(),
            parent: parent.to_owned(),
            base: format!("{parent}@fork:{name}"),
            directory: None,
            row: Sizes { created_seconds: 0, referenced_bytes: 0, unique_bytes: 7 },
        };
        let forks = [fork("a", "root"), fork("b", "a"), fork("c", "root"), fork("d", "other")];
        let expected = "other\n`-- d (7)\nroot\n|-- a (7)\n|   `-- b (7)\n`-- c (7)\n";
        assert_eq!(graph(&forks, true), expected);
        assert_eq!(graph(&[], true), "");
    }
}
