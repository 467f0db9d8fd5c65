//! The names that there are: of pools, mounts, datasets, snapshots, forks, properties and holds.

use crate::control::daemons;
use crate::control::protocol::{Answer, DatasetRow, Operation};
use crate::target::{Place, Target};
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Between the first and the last snapshot of a range.
const RANGE: &str = "..";

/// What an argument stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    /// A path, a pool or mount, or one of these with a snapshot at its end.
    Target,
    /// A dataset or clone.
    Dataset,
    /// A fork.
    Fork,
    /// A clone or fork.
    Clone,
    /// A snapshot of the target, or a range of them.
    Snapshot,
    /// A property.
    Property,
    /// A property that gets a value.
    Setting,
    /// What holds the snapshot that the target names.
    Hold,
}

/// What begins as `word` does.
pub(super) fn candidates(sought: Sought, word: &OsStr) -> Vec<CompletionCandidate> {
    let found = match (sought, word.to_str()) {
        (Sought::Target, Some(text)) => match text.rsplit_once('@') {
            Some((path, _)) => snapshots_at(path),
            None => mounts(),
        },
        (Sought::Target, None) | (_, None) => BTreeSet::new(),
        (Sought::Snapshot, Some(text)) => match text.rsplit_once(RANGE) {
            Some((first, _)) => {
                names_of(sought).iter().map(|last| format!("{first}{RANGE}{last}")).collect()
            }
            None => names_of(sought),
        },
        (_, Some(_)) => names_of(sought),
    };
    let fits = |name: &String| name.as_bytes().starts_with(word.as_bytes());
    let mut all: Vec<CompletionCandidate> =
        found.into_iter().filter(fits).map(CompletionCandidate::new).collect();
    if sought == Sought::Target {
        all.extend(PathCompleter::any().complete(word));
    }
    all
}

/// The pools that are mounted, and where.
fn mounts() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for daemon in daemons::all() {
        let pool = daemon.greeting.pool.clone();
        let directories = daemon.directories_in_sight().unwrap_or_default();
        let paths = directories.iter().chain([&pool]);
        found.extend(paths.filter_map(|path| path.to_str().map(str::to_owned)));
    }
    found.remove("");
    found
}

/// The snapshots of a target, each as it is named at the end of it.
fn snapshots_at(path: &str) -> BTreeSet<String> {
    let Ok(Place { target, .. }) = Place::find(Path::new(path)) else { return BTreeSet::new() };
    let names = snapshots(&target, &rows(&target));
    names.iter().map(|name| format!("{path}@{name}")).collect()
}

/// The names in the target that the words before name, or else in all mounted pools.
fn names_of(sought: Sought) -> BTreeSet<String> {
    let named = words().iter().find_map(|word| named_target(word));
    let targets = match named {
        Some(target) => vec![target],
        None => daemons::all().into_iter().map(Target::of_daemon).collect(),
    };
    targets.iter().flat_map(|target| names_in(sought, target)).collect()
}

fn names_in(sought: Sought, target: &Target) -> BTreeSet<String> {
    let of_kinds = |kinds: &[&str]| {
        let rows = rows(target).into_iter();
        rows.filter(|row| kinds.contains(&row.kind.as_str())).map(|row| row.name).collect()
    };
    match sought {
        Sought::Target => mounts(),
        Sought::Dataset => of_kinds(&["dataset", "clone"]),
        Sought::Fork => of_kinds(&["fork"]),
        Sought::Clone => of_kinds(&["clone", "fork"]),
        Sought::Snapshot => snapshots(target, &rows(target)),
        Sought::Property => properties(target),
        Sought::Setting => properties(target).iter().map(|name| format!("{name}=")).collect(),
        Sought::Hold => rows(target).into_iter().flat_map(|row| row.holds).collect(),
    }
}

fn rows(target: &Target) -> Vec<DatasetRow> {
    match target.perform(&Operation::List) {
        Ok(Answer::Datasets(rows)) => rows.into_iter().filter(|row| !row.internal).collect(),
        _ => Vec::new(),
    }
}

/// The snapshots of the dataset that is meant, without its name.
fn snapshots(target: &Target, rows: &[DatasetRow]) -> BTreeSet<String> {
    let words = words();
    let option = words.iter().position(|word| word == "--dataset" || word == "-d");
    let named = option.and_then(|at| words.get(at + 1)?.to_str());
    let Ok(dataset) = target.dataset(named) else { return BTreeSet::new() };
    let names = rows.iter().filter(|row| row.kind == "snapshot");
    let names = names.filter_map(|row| row.name.split_once('@'));
    names.filter(|(of, _)| *of == dataset.as_str()).map(|(_, name)| name.to_owned()).collect()
}

fn properties(target: &Target) -> BTreeSet<String> {
    let Ok(dataset) = target.dataset(None) else { return BTreeSet::new() };
    match target.perform(&Operation::Get { dataset: dataset.to_string() }) {
        Ok(Answer::Properties(rows)) => rows.into_iter().map(|row| row.property).collect(),
        _ => BTreeSet::new(),
    }
}

/// The target that a word names, if it does.
fn named_target(word: &OsStr) -> Option<Target> {
    let path = Path::new(word);
    let before = || {
        let at = word.as_bytes().iter().rposition(|byte| *byte == b'@')?;
        Some(Path::new(OsStr::from_bytes(&word.as_bytes()[..at])))
    };
    let path = if path.exists() { path } else { before()? };
    Target::find(path).ok()
}

/// The words of the command line that is being typed, without the program.
fn words() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(2).collect()
}
