//! `marram diff`: what differs between two states, in time that follows the change.

use crate::arguments::DiffArguments;
use crate::commands::answers::{unexpected, write_back};
use crate::commands::differences::{Detail, Directories, Totals, patches, summary};
use crate::commands::{fork, selection, versions};
use crate::control::daemons::Daemon;
use crate::control::protocol::{Answer, CompareOrder, DifferenceRow, Operation, SelectionOrder};
use crate::engine::OpenMode;
use crate::engine::home::lacks;
use crate::error::{Error, Result};
use crate::names::{PathText, quoted};
use crate::output::Output;
use crate::target::{Place, Target, with_optional_snapshot};
use marram_store::Source;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The inode of a root directory.
const ROOT: u64 = 1;
/// The directories that show snapshots and forks, and those of users; and how many parts of a path
/// lead to the root of what they show.
const HIDDEN: &str = ".marram";
const MEMBER_PARTS: usize = 3;
const USERS: &str = ".marram/users";
const USERS_MEMBER_PARTS: usize = 4;

#[derive(Serialize)]
struct Told<'a> {
    before: String,
    after: String,
    differences: &'a [DifferenceRow],
    totals: Totals,
}

impl<'a> Told<'a> {
    fn of(differences: &'a [DifferenceRow], before: &Source, after: &Source) -> Told<'a> {
        let (before, after) = (before.to_string(), after.to_string());
        Told { before, after, differences, totals: Totals::of(differences) }
    }
}

/// Exit status of `diff --quiet` where the two differ.
const DIFFER: u8 = 4;

/// One side of a comparison.
struct Side {
    target: Target,
    source: Source,
    root: u64,
    /// The path below that directory, if not all of it is meant.
    names: Vec<Vec<u8>>,
    /// Where that directory is below the root of what `source` shows, if the path tells.
    place: Option<PathBuf>,
}

pub(super) fn run(arguments: &DiffArguments, output: &Output) -> Result<u8> {
    let (before, after, roots) = sides(arguments)?;
    let root = common_root(&before, &after)?;
    let mut selection = selection::order(&arguments.selection, &roots)?;
    let below = before.names.iter().flat_map(|name| [b"/", name.as_slice()].concat());
    if !before.names.is_empty() {
        selection.paths = vec![PathText::of(&below.collect::<Vec<u8>>())];
    }
    let order = CompareOrder {
        bound: None,
        before: before.source.to_string(),
        after: after.source.to_string(),
        root,
        patch: arguments.patch,
        selection,
    };
    let rows = compare(&before.target, &order)?;
    if rows.is_empty() && !before.names.is_empty() {
        refuse_what_never_was(&arguments.before)?;
    }
    print(&rows, (&before.source, &after.source), arguments, output);
    Ok(if output.quiet && !rows.is_empty() { DIFFER } else { 0 })
}

/// The two states that are compared, and the directories that paths may lie in.
fn sides(arguments: &DiffArguments) -> Result<(Side, Side, Vec<PathBuf>)> {
    let path = &arguments.before;
    if let Some(name) = &arguments.fork {
        let fork = shown_fork(path, name)?;
        let (before, after) = alone(side(&fork)?, &fork)?;
        return Ok((before, after, vec![fork]));
    }
    let (first, roots) = (side(path)?, roots(arguments));
    let Some(second) = &arguments.after else {
        let (before, after) = alone(first, path)?;
        return Ok((before, after, roots));
    };
    let second = side(second)?;
    if second.target.pool != first.target.pool {
        return Err(Error::usage("the two are in different pools"));
    }
    Ok((first, second, roots))
}

/// Where the mount that `path` is in shows this fork.
fn shown_fork(path: &Path, name: &str) -> Result<PathBuf> {
    let name = fork::fork_name(name)?;
    let target = Target::find(path)?;
    let Some(mount) = &target.directory else {
        return Err(Error::usage(format!("{} is not mounted", path.display()))
            .hint("forks are compared where they can be seen: mount it, and name that directory"));
    };
    let is_roots = target.daemon.as_ref().is_some_and(Daemon::is_roots);
    fork::shown_at(mount, is_roots, name.as_str()).ok_or_else(|| {
        Error::not_found(format!("{} shows no fork {name}", mount.display()))
            .hint("`marram forks` lists those that there are")
    })
}

/// Prints what differs, in the form that is asked for.
fn print(
    rows: &[DifferenceRow],
    (before, after): (&Source, &Source),
    arguments: &DiffArguments,
    output: &Output,
) {
    let told = Told::of(rows, before, after);
    let directories = if arguments.all { Directories::Each } else { Directories::Whole };
    output.print(&told, || match () {
        () if arguments.patch => patches(rows),
        () if arguments.stat => summary(rows, Detail::Bytes, directories),
        () => summary(rows, Detail::Lines, directories),
    });
}

/// A fork that no list shows.
pub(super) struct OpenFork<'a> {
    /// The pool that it is in.
    pub(super) target: &'a Target,
    /// What it began as.
    pub(super) base: Source,
    /// Its name.
    pub(super) fork: Source,
    /// The inode of the root of both.
    pub(super) root: u64,
    /// Where its dataset is mounted, if that is to stand before its paths.
    pub(super) seen_in: Option<PathBuf>,
}

/// Prints what differs of forks that no list shows from what they began as.
///
/// # Errors
/// One of all is gone; a failed read; there is none.
pub(super) fn of_forks(forks: &[OpenFork<'_>], patch: bool, output: &Output) -> Result<()> {
    let (mut all, mut told) = (Vec::new(), String::new());
    for OpenFork { target, base, fork, root, seen_in } in forks {
        let selection = SelectionOrder::default();
        let (before, after) = (base.to_string(), fork.to_string());
        let order = CompareOrder { bound: None, before, after, root: *root, patch, selection };
        let rows = compare(target, &order)?;
        if let Some(directory) = seen_in.as_ref().filter(|_| patch) {
            told.push_str(&format!("# in {}\n", quoted(directory.as_os_str().as_bytes())));
        }
        if patch {
            told.push_str(&patches(&rows));
        }
        all.extend(rows.into_iter().map(|row| match seen_in {
            Some(directory) => row.below(directory),
            None => row,
        }));
    }
    let first = forks.first().ok_or_else(|| Error::failed("nothing is compared"))?;
    output.print(&Told::of(&all, &first.base, &first.fork), || match patch {
        true => told,
        false => summary(&all, Detail::Lines, Directories::Whole),
    });
    Ok(())
}

/// Nothing differs: so there is nothing, or it is as it was.
fn refuse_what_never_was(path: &Path) -> Result<()> {
    let (path, _) = with_optional_snapshot(path)?;
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let place = Place::find(&path)?;
    let dataset = place.target.dataset(None)?.to_string();
    versions::of(&place, dataset, false).map(|_| ())
}

/// The directories of the command line, which paths may lie in.
fn roots(arguments: &DiffArguments) -> Vec<PathBuf> {
    let named = std::iter::once(&arguments.before).chain(&arguments.after);
    let directory = |path: &PathBuf| std::path::absolute(with_optional_snapshot(path).ok()?.0).ok();
    named.filter_map(directory).collect()
}

/// The directory that is compared. One that was removed and made again is another one at the same
/// place: what is there now is asked for, and found in a snapshot by its path.
fn common_root(before: &Side, after: &Side) -> Result<u64> {
    // What a fork has made may have the number of something else that its parent has made.
    if before.names != after.names {
        return Err(Error::usage("the two are different files")
            .hint("a file is compared with what it was: FILE@NAME, or FILE@NAME and FILE@OTHER"));
    }
    let is_same_place = before.place.is_some()
        && before.place == after.place
        && before.source.dataset == after.source.dataset;
    match (before.root, after.root) {
        (one, other) if one == other => Ok(one),
        (ROOT, other) => Ok(other),
        (one, ROOT) => Ok(one),
        (now, _) if is_same_place && before.source.snapshot.is_none() => Ok(now),
        (_, now) if is_same_place => Ok(now),
        _ => Err(Error::usage("the two are different directories")),
    }
}

/// Where a path leads below the root of the dataset, snapshot or fork that it is in.
pub(super) fn place_of(target: &Target, path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().ok()?;
    let below = path.strip_prefix(target.directory.as_ref()?).ok()?;
    let of_member = match () {
        () if below.starts_with(USERS) => USERS_MEMBER_PARTS,
        () if below.starts_with(HIDDEN) => MEMBER_PARTS,
        () => 0,
    };
    Some(below.components().skip(of_member).collect())
}

/// Asks the daemon that has the pool, or the pool itself.
fn compare(target: &Target, order: &CompareOrder) -> Result<Vec<DifferenceRow>> {
    if let Some(client) = target.connect()? {
        return client.compare(order);
    }
    let mut rows = Vec::new();
    let home = target.open(&OpenMode::for_command(false))?;
    let snapshots = home.snapshots().ok_or_else(|| lacks(&*home, "snapshots"))?;
    let compared = snapshots.compare(order, &mut |row| {
        rows.push(row);
        Ok(())
    });
    home.close()?;
    compared.map(|()| rows)
}

/// What a fork, seen at `path`, has changed since it was made.
///
/// # Errors
/// Whatever refuses the comparison or fails.
pub(super) fn changes_of_fork(path: &Path) -> Result<Vec<DifferenceRow>> {
    let (before, after) = alone(side(path)?, path)?;
    let order = CompareOrder {
        bound: None,
        before: before.source.to_string(),
        after: after.source.to_string(),
        root: common_root(&before, &after)?,
        patch: false,
        selection: SelectionOrder::default(),
    };
    compare(&before.target, &order)
}

fn side(path: &Path) -> Result<Side> {
    let (path, snapshot) = with_optional_snapshot(path)?;
    let Place { target, path: directory, names } = Place::find(&path)?;
    write_back(&target, &directory)?;
    let root = match target.ino {
        Some(0) => return Err(not_a_directory(&path)),
        Some(ino) => ino,
        None => ROOT,
    };
    let mut source = match &target.mounted {
        Some(mounted) => mounted.clone(),
        None => Source::live(target.dataset(None)?),
    };
    match (&source.snapshot, snapshot) {
        (Some(_), Some(_)) => {
            let path = path.display();
            return Err(Error::usage(format!("{path} is in a snapshot, which has none")));
        }
        (None, Some(name)) => source.snapshot = Some(name),
        _ => (),
    }
    if !names.is_empty() && source.snapshot.is_none() && !path.exists() {
        return Err(Error::not_found(format!("{} does not exist", path.display()))
            .hint("`marram versions PATH` lists the snapshots that have what was removed"));
    }
    let place = place_of(&target, &directory);
    Ok(Side { target, source, root, names, place })
}

fn not_a_directory(path: &Path) -> Error {
    Error::usage(format!("{} is no directory of a dataset", path.display()))
        .hint("directories are compared with all that is in them: name that one")
}

/// The two sides where only one was named.
fn alone(one: Side, path: &Path) -> Result<(Side, Side)> {
    if one.source.snapshot.is_some() {
        let live = Source::live(one.source.dataset.clone());
        let target = Target::unmounted(one.target.pool.clone());
        let names = one.names.clone();
        let now = Side { target, source: live, root: one.root, names, place: None };
        return Ok((one, now));
    }
    let rows = match one.target.perform(&Operation::List)? {
        Answer::Datasets(rows) => rows,
        other => return Err(unexpected(&other)),
    };
    let found = rows.iter().find(|row| row.name == one.source.to_string() && row.kind == "fork");
    let base = found.and_then(|row| row.base.clone()).ok_or_else(|| {
        Error::usage(format!("{} is no fork: compared with what?", path.display()))
            .hint("name a snapshot as DIRECTORY@NAME, or two states")
    })?;
    let Place { target, .. } = Place::find(path)?;
    let names = one.names.clone();
    Ok((Side { target, source: base.parse()?, root: one.root, names, place: None }, one))
}
