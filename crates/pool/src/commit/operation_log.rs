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
use marram_format::group::Group;
use marram_format::operation::{
    NO_USER, OPERATIONS_KEPT_MAX, OperationKind, OperationRecord, trash_entry,
};
use marram_format::pointer::Pointer;
use marram_format::space::operation_key;
use marram_store::{Author, Damage, Error, Result, Source};
use std::sync::Arc;

/// An entry about a dataset or snapshot, or with 0 the pool. [`enter`] adds the user and the
/// time.
pub(crate) fn entry(kind: OperationKind, subject: u64, texts: &[&str]) -> OperationRecord {
    OperationRecord::of(kind, subject, texts)
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

/// The entries of the log, oldest first, as the last commit has them. Of a pool that takes no
/// changes those of durable merges follow that wait: they are in no commit before the next mount.
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
    if pool.merges.count() > 0 && pool.check_writable().is_err() {
        let next = entries.last().map_or(1, |(number, _)| number + 1);
        let group = pool.superblock.lock().group.0 + 1;
        let waiting = pool.merges.durable_entries().into_iter().zip(group..);
        let waiting =
            waiting.map(|(entry, group)| OperationRecord { group: Group(group), ..entry });
        entries.extend((next..).zip(waiting));
    }
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
    let command = author.command_of_entry();
    commit.set_feature(record.kind.feature());
    let record = OperationRecord {
        user: author.user.unwrap_or(NO_USER),
        // A merge that has waited was made before.
        seconds: if record.seconds == 0 { commit.now_seconds } else { record.seconds },
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
    let Some(mut entry) = changed_entry(commit, number)? else { return Ok(()) };
    if entry.before == gone {
        entry.before = 0;
    }
    if entry.after == gone {
        entry.after = 0;
    }
    if entry.kind != OperationKind::Merge || (entry.before, entry.after) == (0, 0) {
        entry.kept_until_seconds = 0;
    }
    put(commit, number, &entry);
    Ok(())
}

/// The entry with this number, as this commit has it.
pub(crate) fn changed_entry(commit: &Commit<'_>, number: u64) -> Result<Option<OperationRecord>> {
    match commit.items.get(&operation_key(number)) {
        Some(Some(bytes)) => decode(number, bytes).map(Some),
        Some(None) => Ok(None),
        None => operation(commit.pool, number),
    }
}

/// Puts a changed entry into its place.
pub(crate) fn put(commit: &mut Commit<'_>, number: u64, entry: &OperationRecord) {
    commit.items.insert(operation_key(number), Some(entry.encode()));
}
