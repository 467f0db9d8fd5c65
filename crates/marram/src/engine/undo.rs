//! The log of operations, and taking operations back, on any store that has it.

use crate::control::credentials::Credentials;
use crate::control::protocol::{Answer, OperationRow, UndoReport};
use crate::engine::places;
use crate::engine::rights::{refusal_of, within, without_rights};
use crate::error::{Error, Result};
use crate::names::{self, PathText};
use marram_history::{
    Bound, ChangeSet, Choice, Conflict, MergeOptions, MergePart, MergeReport, MergeSides, Parent,
};
use marram_posix::{OwnerClass, OwnerId, Posix, hold_together};
use marram_store::operations::{is_aborted, is_prepared};
use marram_store::{DatasetName, MergeBack, Operation, Reversal, Source, Store, Undo};
use marram_vfs::Ino;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// What to do where a later change is in the way.
const FORCE: &str = "`marram undo TARGET NUMBER --force` does it all the same; an undo of that \
    has again what was there";
/// Most conflicts that are named where a merge cannot be taken back.
const CONFLICTS_TOLD_MAX: usize = 10;

/// Operations that are so many seconds apart at most, of one user and with the same command line,
/// are reported as those of one command. Nothing is taken back for it.
const SAME_COMMAND_SECONDS: u64 = 10;

/// The log, oldest first.
///
/// # Errors
/// A failed read.
pub(crate) fn log(store: &dyn Store) -> Result<Answer> {
    let operations = known(store)?.operations()?.into_iter();
    Ok(Answer::Operations(operations.map(|operation| row(store, operation)).collect()))
}

/// The log of a store.
///
/// # Errors
/// It has none.
fn known(store: &dyn Store) -> Result<&dyn Undo> {
    let undo = store.capabilities().undo;
    Ok(undo.ok_or(marram_store::Error::Unsupported("log of operations"))?)
}

/// The directory that a merge went into, or that went back; none if the dataset has another name
/// now, or the directory is gone.
fn directory_of(store: &dyn Store, operation: &Operation) -> Option<PathText> {
    let record = &operation.record;
    let is_of_directory = record.kind.name() == "merge" && record.detail != 0;
    let dataset = record.text(0).parse().ok().filter(|_| is_of_directory)?;
    let dataset = Source::live(dataset);
    let is_it = store.report(&dataset).ok()?.number == record.subject;
    is_it.then(|| places::directory(store, &dataset, record.detail)).flatten()
}

fn row(store: &dyn Store, operation: Operation) -> OperationRow {
    let directory = directory_of(store, &operation);
    let user = operation.user();
    let Operation { number, record, step, undone_by, obstacle } = operation;
    let together = (step.start() != step.end()).then(|| step.into_inner());
    let some = |value: u64| Some(value).filter(|value| *value != 0);
    let kept = record.kept_until_seconds;
    // What a merge brought in from a snapshot was a directory's way back.
    let name = match record.kind.name() {
        "merge" if record.undoes == 0 && transaction_of(&record.texts).is_some() => {
            match (is_prepared(&record), is_aborted(&record)) {
                (true, _) => "transaction-prepared",
                (_, true) => "transaction-aborted",
                _ => "transaction",
            }
        }
        "merge" if record.undoes == 0 && record.text(1).contains('@') => "rollback-directory",
        "create" | "rollback" if record.undoes == 0 && is_receive(&record.command) => "receive",
        name => name,
    };
    let mut names = record.texts;
    if record.kind.name() == "merge" {
        // Behind what was merged stands how the base has moved.
        names.truncate(2);
    }
    if name == "limit" && !names.is_empty() {
        names.insert(1, owner_text(record.detail));
    }
    if name.starts_with("transaction")
        && let Some(id) = transaction_of(&names)
    {
        names[1] = id;
    }
    if let ("rollback-directory" | "merge", Some(to)) = (name, names.get_mut(1)) {
        *to = called(std::mem::take(to));
    }
    OperationRow {
        number,
        seconds: record.seconds,
        user,
        command: record.command,
        operation: name.to_owned(),
        names,
        directory,
        together,
        undoes: some(record.undoes),
        undone_by,
        kept_until_seconds: Some(kept).filter(|kept| *kept != 0),
        can_undo: obstacle.is_none(),
        obstacle,
    }
}

/// The transaction that was committed, if what was merged was the fork of one.
fn transaction_of(texts: &[String]) -> Option<String> {
    let fork: DatasetName = texts.get(1)?.parse().ok()?;
    fork.transaction().map(str::to_owned)
}

/// Whose limit it is.
fn owner_text(number: u64) -> String {
    let Some(OwnerId { class, id }) = OwnerId::from_offset(number) else { return String::new() };
    let class = match class {
        OwnerClass::User => "user",
        OwnerClass::Group => "group",
        OwnerClass::Project => "project",
    };
    format!("{class} {id}")
}

/// What users call a state: of one that is kept for an undo, the operation; of one that was kept
/// for a moment, the clone or fork that it is of.
fn called(text: String) -> String {
    match text.parse::<Source>() {
        Ok(state) if state.is_in_trash() => kept_state(&state).unwrap_or(text),
        Ok(state) if state.is_own() && !state.is_fork_base() => state.dataset.to_string(),
        _ => text,
    }
}

/// The state before or after an operation, by the name under which that is kept.
fn kept_state(state: &Source) -> Option<String> {
    let number = state.kept_for_operation()?;
    let is_after = state.snapshot.as_ref().is_some_and(|name| name.ends_with(":after"));
    let which = if is_after { "after" } else { "before" };
    Some(format!("the state {which} operation {number}"))
}

/// Whether a command line is that of a receive: the dataset that it makes, or takes on to a later
/// state, is entered as any other that is made or taken to another state.
fn is_receive(command: &str) -> bool {
    let mut words = command.split(' ').skip(1);
    words.find(|word| !word.starts_with('-')) == Some("receive")
}

/// How an operation is taken back.
///
/// # Errors
/// What stands in the way; snapshots of a dataset that goes are, unless `force` says that they go
/// with it.
pub(crate) fn reversal(
    store: &dyn Store,
    number: Option<u64>,
    force: bool,
) -> Result<(u64, Reversal)> {
    let reversal = known(store)?.reversal(number, force);
    let (number, reversal) = reversal.map_err(|error| refusal(number, &error))?;
    if let (false, Reversal::Records { goes, .. }) = (force, &reversal) {
        refuse_taken_along(store, number, goes)?;
    }
    Ok((number, reversal))
}

/// Refuses to destroy the snapshots that somebody has made of a dataset since it was made.
fn refuse_taken_along(store: &dyn Store, number: u64, goes: &[Source]) -> Result<()> {
    let is_along = |gone: &&Source| {
        gone.snapshot.is_some() && goes.contains(&Source::live(gone.dataset.clone()))
    };
    let mut along: Vec<String> = goes.iter().filter(is_along).map(ToString::to_string).collect();
    if along.is_empty() {
        return Ok(());
    }
    // What came in with a stream is no snapshot of the log.
    let log = known(store)?.operations()?;
    let is_made = |name: &String| {
        let of_name = |known: &&Operation| known.record.text(0) == name;
        log.iter().filter(of_name).any(|known| known.record.kind.name() == "snapshot")
    };
    along.retain(is_made);
    if along.is_empty() {
        return Ok(());
    }
    Err(Error::failed(format!(
        "operation {number} cannot be taken back: with it would go {}, made since",
        along.join(", ")
    ))
    .hint(FORCE))
}

/// Has the store take an operation back.
///
/// # Errors
/// What stands in the way; then nothing has changed.
pub(crate) fn by_records(store: &dyn Store, number: u64, force: bool) -> Result<u64> {
    known(store)?.undo(number, force).map_err(|error| refusal(Some(number), &error))
}

/// The snapshot that a rollback, or the undo of one, has kept, by its entry.
///
/// # Errors
/// A failed read; there is no such entry.
pub(crate) fn kept_by(store: &dyn Store, entry: u64) -> Result<Source> {
    let entries = known(store)?.operations()?;
    let found = entries.iter().find(|known| known.number == entry);
    let found = found.ok_or_else(|| Error::failed("the log has no entry of it"))?;
    Ok(found.record.text(1).parse()?)
}

fn refusal(number: Option<u64>, error: &marram_store::Error) -> Error {
    let which = number.map_or("the last operation".to_owned(), |it| format!("operation {it}"));
    let reason = match error {
        marram_store::Error::Invalid(reason) => reason.clone(),
        other => other.to_string(),
    };
    Error::failed(format!("{which} cannot be taken back: {reason}"))
        .hint("`marram log TARGET` shows which operations can be; `marram undo TARGET NUMBER`")
}

/// What has come of a merge that was taken back.
pub(crate) struct MergedBack {
    /// What is not as it was.
    pub(crate) change_set: ChangeSet,
    /// Paths that were changed since, and are as before the merge all the same.
    pub(crate) overwritten: Vec<String>,
}

/// Takes a merge back in the file system of its dataset. Where something was changed since, that
/// is in the way, or with `force` goes back too.
///
/// # Errors
/// Files that were changed since the merge, or whatever else refuses it: nothing has changed.
pub(crate) fn by_merge(
    store: &dyn Store,
    (number, force): (u64, bool),
    (files, user): (&Posix, Option<&Credentials>),
    (dataset, base, back_to, root): (&DatasetName, &Source, &Source, u64),
    moved_base: bool,
) -> Result<MergedBack> {
    let sides = MergeSides { dataset, base, fork: back_to, root: Ino(root) };
    let choice = if force { Choice::Theirs } else { Choice::Refuse };
    let options =
        MergeOptions { choose: &|_| choice, always: moved_base, ..MergeOptions::default() };
    let taking_back = known(store)?.taking_back(number);
    let report = within(files, user, |files| {
        Ok(marram_history::merge(files, &*taking_back, sides, &options)?)
    })?;
    if report.applied {
        let overwritten = overwritten(&report, "");
        return Ok(MergedBack { change_set: report.change_set, overwritten });
    }
    Err(in_the_way((number, force), report.conflicts.iter().map(|it| ("", it))))
}

/// Takes merges into several datasets back, which were one step: all at one moment, or none.
///
/// # Errors
/// As for [`by_merge`]; a user other than root and the daemon's own.
pub(super) fn by_merges(
    store: &dyn Store,
    (number, force): (u64, bool),
    (files, user): (&[Arc<Posix>], Option<&Credentials>),
    back: &[MergeBack],
) -> Result<Vec<MergedBack>> {
    let choice = if force { Choice::Theirs } else { Choice::Refuse };
    let options = MergeOptions { choose: &|_| choice, always: true, ..MergeOptions::default() };
    for (user, files) in user.iter().flat_map(|user| files.iter().map(move |it| (user, it))) {
        let (view, root) = (Parent::view(&**files), Parent::root(&**files));
        marram_history::may_change_names(view, root, root, *user).map_err(without_rights)?;
    }
    let bounds: Vec<Bound<'_>> =
        user.iter().flat_map(|user| files.iter().map(|it| Bound::new(&**it, *user))).collect();
    let mut parts = Vec::with_capacity(back.len());
    for (place, (files, back)) in files.iter().zip(back).enumerate() {
        let MergeBack { dataset, base, back_to, root_object } = back;
        let sides = MergeSides { dataset, base, fork: back_to, root: Ino(*root_object) };
        let files: &Posix = files;
        let parent = bounds.get(place).map_or(files as &dyn Parent, |bound| bound);
        parts.push(MergePart { parent, sides, options: &options });
    }
    let all: Vec<&Posix> = files.iter().map(|files| &**files).collect();
    let hold = || {
        let held = hold_together(&all).into_iter().enumerate();
        Ok(held
            .map(|(place, held)| match bounds.get(place) {
                Some(bound) => bound.bind(held),
                None => held,
            })
            .collect())
    };
    let taking_back = known(store)?.taking_back(number);
    let merged = marram_history::merge_together(&*taking_back, &parts, &hold);
    let reports = merged.map_err(|error| {
        let refused = bounds.iter().map(Bound::refusals).find(|refusals| refusals.count > 0);
        match user.zip(refused) {
            Some((user, refusals)) => refusal_of(&refusals, user),
            None => error.into(),
        }
    })?;
    let all = || reports.iter().zip(back);
    if all().any(|(report, _)| !report.applied) {
        let conflicts = all().flat_map(|(report, back)| {
            report.conflicts.iter().map(move |conflict| (back.dataset.as_str(), conflict))
        });
        return Err(in_the_way((number, force), conflicts));
    }
    let done = all().map(|(report, back)| MergedBack {
        change_set: report.change_set.clone(),
        overwritten: overwritten(report, back.dataset.as_str()),
    });
    Ok(done.collect())
}

/// What was changed since, and is as before all the same; in a dataset that is named.
fn overwritten(report: &MergeReport, dataset: &str) -> Vec<String> {
    let decided = report.decided.iter();
    decided.map(|(conflict, _)| format!("{dataset}{}", names::quoted(&conflict.path))).collect()
}

/// The refusal of an undo by conflicts, each in a dataset that is named.
fn in_the_way<'c>(
    (number, force): (u64, bool),
    conflicts: impl Iterator<Item = (&'c str, &'c Conflict)>,
) -> Error {
    let mut told = conflicts.map(|(dataset, conflict)| {
        format!("{dataset}{}: {}", names::quoted(&conflict.path), since(&conflict.detail))
    });
    let named: Vec<String> = told.by_ref().take(CONFLICTS_TOLD_MAX).collect();
    let count = named.len() + told.count();
    let places = if count == 1 { "place conflicts" } else { "places conflict" };
    let refused = Error::failed(format!(
        "operation {number} cannot be taken back: {count} {places} with what was changed since"
    ));
    let hint = if force { "put in order by hand what is named, and try again" } else { FORCE };
    refused.details(named.into_iter()).hint(hint)
}

/// What a merge tells of a conflict, in the words of an undo: its fork is what was before, and its
/// parent what is there now.
fn since(detail: &str) -> String {
    const WORDS: [(&str, &str); 12] = [
        ("the directory is gone from the parent", "the directory is gone since"),
        ("gone from the parent", "gone since"),
        ("the parent gave the name to something else", "the name is of something else since"),
        ("the parent changed it and removed its other names", "changed and its other names gone"),
        ("new in the parent", "new since"),
        ("that the fork removed", "that the undo removes"),
        ("with what the parent moved", "with what was moved since"),
        ("in the parent", "since"),
        ("in the fork", "by the undo"),
        ("changed by both", "changed since"),
        ("spelt differently by both", "spelt anew since"),
        ("moved by both, or moved by one and removed by the other", "moved or removed since"),
    ];
    WORDS
        .iter()
        .fold(detail.to_owned(), |told, (of_merge, of_undo)| told.replace(of_merge, of_undo))
}

/// What an undo of the step of `number` has done: the newest entries, if they are those of one.
///
/// # Errors
/// A failed read.
pub(crate) fn report(store: &dyn Store, number: u64) -> Result<UndoReport> {
    let log = known(store)?.operations()?;
    let step = log.iter().find(|entry| entry.number == number).map(|entry| entry.step.clone());
    let step = step.unwrap_or(number..=number);
    let of_it = |entry: &&Operation| step.contains(&entry.record.undoes);
    let own = log.iter().rfind(of_it).map(|entry| entry.step.clone());
    let is_own = |entry: &&Operation| own.as_ref().is_some_and(|own| own.contains(&entry.number));
    let undid =
        |entry: &&Operation| log.iter().filter(is_own).any(|own| own.record.undoes == entry.number);
    let rows = |of: &dyn Fn(&&Operation) -> bool| -> Vec<OperationRow> {
        log.iter().filter(of).cloned().map(|operation| row(store, operation)).collect()
    };
    let undone = rows(&|entry| match own {
        Some(_) => undid(entry),
        None => entry.number == number,
    });
    let left = |entry: &&Operation| step.contains(&entry.number) && entry.undone_by.is_none();
    let left = if own.is_some() { rows(&left) } else { Vec::new() };
    let others = others(store, &log, &step);
    Ok(UndoReport { undone, entries: rows(&is_own), left, others, overwritten: Vec::new() })
}

/// Operations beside a step that the same command line did at about the same time, and that were
/// not taken back: what it did in several steps is taken back one by one.
fn others(store: &dyn Store, log: &[Operation], step: &RangeInclusive<u64>) -> Vec<OperationRow> {
    let Some(place) = log.iter().position(|entry| step.contains(&entry.number)) else {
        return Vec::new();
    };
    let of = &log[place].record;
    let is_same = |entry: &&Operation| {
        let record = &entry.record;
        let is_near = record.seconds.abs_diff(of.seconds) <= SAME_COMMAND_SECONDS;
        is_near && record.undoes == 0 && (record.user, &record.command) == (of.user, &of.command)
    };
    if of.undoes != 0 || of.command.is_empty() {
        return Vec::new();
    }
    let before = log[..place].iter().rev().take_while(is_same);
    let after = log[place..].iter().skip_while(|entry| step.contains(&entry.number));
    let others = before.chain(after.take_while(is_same));
    let left = others.filter(|entry| entry.undone_by.is_none()).cloned();
    let mut rows: Vec<OperationRow> = left.map(|operation| row(store, operation)).collect();
    rows.sort_by_key(|row| row.number);
    rows
}

/// Takes an operation back in a store that nobody has mounted.
///
/// # Errors
/// What stands in the way; then nothing has changed.
pub(crate) fn undo(store: &dyn Store, number: Option<u64>, force: bool) -> Result<Answer> {
    let (number, reversal) = reversal(store, number, force)?;
    let mut overwritten = Vec::new();
    match reversal {
        Reversal::Merge { dataset, base, back_to, root_object, moved_base, rest } => {
            let files = crate::engine::posix::open_files(store, &dataset)?;
            let of = (&dataset, &base, &back_to, root_object);
            overwritten =
                by_merge(store, (number, force), (&files, None), of, moved_base)?.overwritten;
            if let Some(rest) = rest {
                after_merge(number, known(store)?.undo(rest.number, force))?;
            }
        }
        Reversal::Merges(back) => {
            let files: Vec<Arc<Posix>> = back
                .iter()
                .map(|back| crate::engine::posix::open_files(store, &back.dataset).map(Arc::new))
                .collect::<Result<_>>()?;
            let done = by_merges(store, (number, force), (&files, None), &back)?;
            overwritten = done.into_iter().flat_map(|back| back.overwritten).collect();
        }
        Reversal::Records { .. } | Reversal::Rollback { .. } => {
            by_records(store, number, force)?;
        }
    }
    let report = UndoReport { overwritten, ..report(store, number)? };
    Ok(Answer::Undone(Box::new(report)))
}

/// What is one step with a merge that was taken back.
///
/// # Errors
/// It cannot be taken back, though the merge was.
pub(crate) fn after_merge<T, E: std::fmt::Display>(
    number: u64,
    done: std::result::Result<T, E>,
) -> Result<T> {
    done.map_err(|error| {
        Error::partial(format!(
            "operation {number} was taken back, but not what was one step with it: {error}"
        ))
        .hint("`marram undo TARGET NUMBER` tries again when that is out of the way")
    })
}
