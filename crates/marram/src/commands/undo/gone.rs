//! What is gone, and which snapshot has it: an undo does not bring back what a program has removed,
//! since nothing that a program does to files is an operation of the log.
//!
//! It is a hint. Whatever cannot be looked up is left out.

use crate::commands::diff::place_of;
use crate::control::protocol::{
    Answer, CompareOrder, DatasetRow, DifferenceRow, Operation, SelectionOrder,
};
use crate::error::Error;
use crate::names::shell_word;
use crate::output::instant_text;
use crate::paths::absolute;
use crate::target::Target;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How many snapshots are compared at most, the newest first, and for how long.
const SNAPSHOTS_MAX: usize = 8;
const PATIENCE: Duration = Duration::from_secs(2);
/// The folder that shows snapshots.
const SNAPSHOTS: &str = ".marram/snapshots";

/// What a snapshot has that is gone below the target, and how it comes back.
pub(super) fn below(target: &Target, path: &Path) -> Option<String> {
    let mounted = target.mounted.as_ref().filter(|mounted| mounted.snapshot.is_none())?;
    let (root, began) = (target.ino.filter(|ino| *ino != 0)?, Instant::now());
    let snapshots = snapshots_of(target, mounted.dataset.as_str());
    snapshots.iter().take(SNAPSHOTS_MAX).find_map(|snapshot| {
        let order = CompareOrder {
            bound: None,
            before: snapshot.name.clone(),
            after: mounted.to_string(),
            root,
            patch: false,
            selection: SelectionOrder::default(),
        };
        let gone = removed(target, (path, &order), began)?;
        Some(told(target, path, snapshot, &gone))
    })
}

/// The snapshots that users have of a dataset, the newest first.
fn snapshots_of(target: &Target, dataset: &str) -> Vec<DatasetRow> {
    let Ok(Answer::Datasets(mut rows)) = target.perform(&Operation::List) else {
        return Vec::new();
    };
    rows.retain(|row| {
        let parts = row.name.split_once('@');
        row.kind == "snapshot" && !row.internal && parts.is_some_and(|parts| parts.0 == dataset)
    });
    rows.sort_by_key(|row| std::cmp::Reverse(row.created_seconds));
    rows
}

/// What was removed: how much, and the path of the first of it below what was compared.
struct Gone {
    count: usize,
    first: PathBuf,
}

fn removed(target: &Target, (path, order): (&Path, &CompareOrder), began: Instant) -> Option<Gone> {
    let mut gone: Option<Gone> = None;
    let visit = &mut |row: DifferenceRow| {
        let first = PathBuf::from(OsStr::from_bytes(&row.path_in_bytes()));
        let first = first.strip_prefix("/").unwrap_or(&first).to_owned();
        // Something else may have its name by now.
        if row.change == "removed" && path.join(&first).symlink_metadata().is_err() {
            gone.get_or_insert(Gone { count: 0, first }).count += 1;
        }
        began.elapsed() < PATIENCE
    };
    let client = target.connect().ok()??;
    client.compare_while(order, visit).ok()?;
    gone
}

fn told(target: &Target, path: &Path, snapshot: &DatasetRow, gone: &Gone) -> String {
    let name = snapshot.name.split_once('@').map_or("", |(_, name)| name);
    let below = &gone.first;
    let others = match gone.count {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let when = instant_text(snapshot.created_seconds, false);
    let mut text = format!(
        "{}{others} is gone since the snapshot {name} of {when}",
        shell_word(&path.join(below))
    );
    if let Some(from) = shown_at(target, path, name) {
        let (from, to) = (from.join(below), path.join(below));
        let to = to.parent().unwrap_or(path);
        let (from, to) = (shell_word(&from), shell_word(to));
        text.push_str(&format!("\n`cp -a {from} {to}/` brings it back"));
    }
    let whole = shell_word(&path.with_file_name(format!(
        "{}@{name}",
        path.file_name().unwrap_or_default().to_string_lossy()
    )));
    text.push_str(&format!("\n`marram rollback {whole}` makes all of it what it was then"));
    text
}

/// Where the mount shows what a directory was in a snapshot.
fn shown_at(target: &Target, path: &Path, snapshot: &str) -> Option<PathBuf> {
    let directory = target.directory.as_ref()?;
    let place = place_of(target, path)?;
    let is_itself = path.canonicalize().ok()?.strip_prefix(directory).ok()? == place;
    let from = directory.join(SNAPSHOTS).join(snapshot).join(place);
    Some(from).filter(|from| is_itself && from.is_dir())
}

/// The refusal of a path that is gone, with the snapshots that have it.
pub(super) fn at(path: &Path, refusal: Error) -> Error {
    match found_at(path) {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}

fn found_at(path: &Path) -> Option<String> {
    let path = absolute(path.parent()?).ok()?.join(path.file_name()?);
    let above = path.ancestors().skip(1).find(|above| above.is_dir())?;
    let target = Target::find(above).ok()?;
    let directory = target.directory.as_ref()?;
    let below = path.strip_prefix(directory).ok()?;
    let dataset = target.mounted.as_ref()?.dataset.to_string();
    let has = |row: &DatasetRow| {
        let name = row.name.split_once('@').map_or("", |(_, name)| name);
        let at = directory.join(SNAPSHOTS).join(name).join(below);
        at.symlink_metadata().is_ok().then_some(at)
    };
    let found: Vec<PathBuf> = snapshots_of(&target, &dataset).iter().filter_map(has).collect();
    let newest = found.first()?;
    let (from, to) = (shell_word(newest), shell_word(path.parent()?));
    Some(format!("{} snapshots have it: `cp -a {from} {to}/` brings the newest back", found.len()))
}
