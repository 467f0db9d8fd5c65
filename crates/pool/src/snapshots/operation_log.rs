//! The log of operations: which user's command did what to the pool and which dataset of it.
//!
//! The commit that does an operation puts its entry into the pool's own tree, so that a crash
//! leaves both or neither. An entry names the user that a handle of the pool acts for
//! ([`crate::Pool::acting_for`]). What the engine does for itself has none, such as the snapshots
//! that a comparison needs for a while.
//!
//! A command that does one thing to many has an entry for each. They are a **step**: entries of one
//! kind with the same group. A commit does one command's work and has a group of its own, so two
//! commands are never one step, however alike they are. A merge and the end of the fork that it
//! dropped are a step too, though they are two commits: the ids say that they belong together.

use crate::commit::draft::Commit;
use crate::io::At;
use crate::state::State;
use crate::tree;
use bytes::Bytes;
use marram_format::operation::{
    NO_USER, OPERATIONS_KEPT_MAX, OperationKind, OperationRecord, trash_entry,
};
use marram_format::pointer::Pointer;
use marram_format::space::operation_key;
use marram_store::{Damage, Error, Result, Source};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Longest command line that an entry keeps, in bytes.
const COMMAND_BYTES_MAX: usize = 400;

/// The user and the command that a handle of a pool acts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The user.
    pub user: Option<u32>,
    /// The command line, for people.
    pub command: String,
}

/// An entry of the log, and what can be done about it.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its number; greater than that of every earlier one.
    pub number: u64,
    /// What was done.
    pub record: OperationRecord,
    /// The numbers of the entries that are one step with it, and are taken back with it; its own
    /// is one of them.
    pub step: RangeInclusive<u64>,
    /// The entry that took it back, if one has and was not taken back itself.
    pub undone_by: Option<u64>,
    /// Why it cannot be taken back now, if so.
    pub obstacle: Option<String>,
}

impl Operation {
    /// The user of the command, if one did it.
    pub fn user(&self) -> Option<u32> {
        Some(self.record.user).filter(|user| *user != NO_USER)
    }
}

/// Whether an entry and the next one are of one step. What changes a property is one step of a
/// dataset; an entry of another kind is a step by itself, as is the snapshot that a merge took.
pub(crate) fn is_one_step(one: &OperationRecord, next: &OperationRecord) -> bool {
    is_merge_and_end(one, next)
        || one.group == next.group
            && one.kind == next.kind
            && match one.kind {
                OperationKind::Snapshot
                | OperationKind::Destroy
                | OperationKind::Restore
                | OperationKind::Merge => true,
                OperationKind::Set => one.subject == next.subject,
                _ => false,
            }
}

/// Whether the first is a merge and the next the end of what was merged, by the same command line:
/// nothing came between them. The same holds for the entries of an undo of both, and of its undo.
fn is_merge_and_end(one: &OperationRecord, next: &OperationRecord) -> bool {
    let is_of_one_fork = match (one.undoes, next.undoes) {
        (0, 0) => next.kind == OperationKind::Destroy && one.other == next.subject,
        (0, _) | (_, 0) => false,
        (merge, end) => {
            let is_end = matches!(next.kind, OperationKind::Restore | OperationKind::Destroy);
            is_end && merge.checked_add(1) == Some(end)
        }
    };
    one.kind == OperationKind::Merge
        && is_of_one_fork
        && !one.command.is_empty()
        && (one.user, &one.command) == (next.user, &next.command)
}

/// Why what was taken back cannot be taken back.
pub(crate) fn taken_back_by(number: u64) -> String {
    format!("it was taken back by operation {number}: take that back to have it again")
}

/// The entries that others have taken back: each with the one that did.
pub(crate) fn undone_by(entries: &[(u64, OperationRecord)]) -> BTreeSet<(u64, u64)> {
    let mut undone: BTreeSet<(u64, u64)> = BTreeSet::new();
    for (number, record) in entries.iter().rev() {
        // What takes one back is newer than that, so whether it holds itself is known here.
        let holds = !undone.iter().any(|(gone, _)| gone == number);
        if record.undoes != 0 && holds {
            undone.insert((record.undoes, *number));
        }
    }
    undone
}

/// An entry about a dataset or snapshot, or with 0 the pool. [`enter`] adds the user and the
/// time.
pub(crate) fn entry(kind: OperationKind, subject: u64, texts: &[&str]) -> OperationRecord {
    OperationRecord {
        kind,
        user: NO_USER,
        seconds: 0,
        group: marram_format::group::Group(0),
        undoes: 0,
        subject,
        other: 0,
        before: 0,
        after: 0,
        detail: 0,
        kept_until_seconds: 0,
        command: String::new(),
        texts: texts.iter().map(|text| (*text).to_owned()).collect(),
    }
}

fn decode(number: u64, bytes: &Bytes) -> Result<OperationRecord> {
    OperationRecord::decode(bytes).map_err(|error| {
        Error::Damaged(Damage {
            what: "the log of operations",
            place: format!("entry {number}"),
            reason: error.to_string(),
        })
    })
}

/// Whether a snapshot exists only while the engine compares states: no entry of the log takes or
/// destroys it.
pub(crate) fn is_ephemeral(source: &Source) -> bool {
    source.is_own() && !source.is_fork_base()
}

/// The entries of the log, oldest first, as the last commit has them.
pub(crate) fn entries(pool: &State) -> Result<Vec<(u64, OperationRecord)>> {
    let (mut entries, mut wrong) = (Vec::new(), None);
    let (root, at) = pool_tree(pool);
    let (first, last) = (operation_key(0), operation_key(u64::MAX));
    tree::scan(&at, root.as_ref(), first, last, &mut |found| {
        match decode(found.key.offset, &found.value) {
            Ok(record) => entries.push((found.key.offset, record)),
            Err(error) => wrong = Some(error),
        }
        wrong.is_none()
    })?;
    wrong.map_or(Ok(entries), Err)
}

/// The entry with this number.
pub(crate) fn operation(pool: &State, number: u64) -> Result<Option<OperationRecord>> {
    let (root, at) = pool_tree(pool);
    let found = tree::get(&at, root.as_ref(), operation_key(number))?;
    found.map(|found| decode(number, &found.value)).transpose()
}

pub(crate) fn next_operation(pool: &State) -> Result<u64> {
    let (root, at) = pool_tree(pool);
    let (first, last) = (operation_key(0), operation_key(u64::MAX));
    let found = tree::last(&at, root.as_ref(), first, last)?;
    Ok(found.map_or(1, |found: tree::Found| found.key.offset.saturating_add(1)))
}

fn pool_tree(pool: &State) -> (Option<Bytes>, At<'_>) {
    let root = pool.superblock.lock().pool_tree.as_ref().map(Pointer::encode);
    (root, At { media: &pool.media, epoch: pool.media.epoch() })
}

/// The number of the next entry. This commit may also have changed older entries, when it let
/// go of what they kept.
pub(crate) fn next_entry(commit: &Commit<'_>) -> Result<u64> {
    let (first, last) = (operation_key(0), operation_key(u64::MAX));
    let entered = commit.items.range(first..=last).rev().find(|(_, value)| value.is_some());
    let behind_those = entered.map_or(0, |(key, _)| key.offset + 1);
    Ok(behind_those.max(next_operation(commit.pool)?))
}

/// Enters what this commit does into the log, if it does so for anybody. Returns the number.
pub(crate) fn enter(
    commit: &mut Commit<'_>,
    author: Option<&Arc<Author>>,
    record: OperationRecord,
) -> Result<u64> {
    let Some(author) = author else { return Ok(0) };
    let number = next_entry(commit)?;
    let mut command = author.command.clone();
    while command.len() > COMMAND_BYTES_MAX {
        command.pop();
    }
    commit.set_feature(record.kind.feature());
    let record = OperationRecord {
        user: author.user.unwrap_or(NO_USER),
        seconds: commit.now_seconds,
        group: commit.group,
        command,
        ..record
    };
    commit.items.insert(operation_key(number), Some(record.encode()));
    if let Some(oldest) = number.checked_sub(OPERATIONS_KEPT_MAX) {
        commit.items.insert(operation_key(oldest), None);
    }
    Ok(number)
}

/// Something that was kept for an undo goes: its entry says so.
pub(crate) fn forget_in_trash(commit: &mut Commit<'_>, gone: u64, name: &str) -> Result<()> {
    let Some(number) = trash_entry(name) else { return Ok(()) };
    let key = operation_key(number);
    let mut entry = match commit.items.get(&key) {
        Some(Some(bytes)) => decode(number, bytes)?,
        Some(None) => return Ok(()),
        None => match operation(commit.pool, number)? {
            Some(entry) => entry,
            None => return Ok(()),
        },
    };
    if entry.before == gone {
        entry.before = 0;
    }
    if entry.after == gone {
        entry.after = 0;
    }
    if entry.kind != OperationKind::Merge || (entry.before, entry.after) == (0, 0) {
        entry.kept_until_seconds = 0;
    }
    commit.items.insert(key, Some(entry.encode()));
    Ok(())
}
