//! Operations on a store that users have asked for, as its log has them, and how they are taken
//! back.
//!
//! An entry names the user that a handle of the store acts for. What a store does for itself has
//! none. A command that does one thing to many has an entry for each, all of one group: they are a
//! **step**, and are taken back together.

use crate::{DatasetName, Destruction, Result, Source, Store};
use marram_format::operation::{
    ABORTED_TEXT, NO_USER, OperationKind, OperationRecord, PREPARED_TEXT, STATE_TEXT,
};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Longest command line that an entry keeps, in bytes.
const COMMAND_BYTES_MAX: usize = 400;

/// The user and the command that a handle of a store acts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// The user.
    pub user: Option<u32>,
    /// The command line, for people.
    pub command: String,
}

impl Author {
    /// The command line, as far as an entry has it.
    pub fn command_of_entry(&self) -> String {
        let mut command = self.command.clone();
        while command.len() > COMMAND_BYTES_MAX {
            command.pop();
        }
        command
    }
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

/// What was destroyed, and what became of it.
#[derive(Clone, Debug)]
pub struct Hidden {
    /// What is gone from sight, and what comes back when it is let go.
    pub destruction: Destruction,
    /// Until when an undo can bring it back, in seconds since 1970; `None` if it is gone for good.
    pub kept_until_seconds: Option<i64>,
}

/// How an operation is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reversal {
    /// [`Undo::undo`] does it.
    Records {
        /// What is destroyed with it, and kept: nobody may have it open.
        goes: Vec<Source>,
        /// What gets another name.
        renamed: Option<Source>,
    },
    /// [`Undo::undo`] does it: a dataset goes back to a snapshot. All operations on it wait
    /// meanwhile, as for a rollback.
    Rollback {
        /// The dataset.
        dataset: DatasetName,
        /// The snapshot.
        to: Source,
    },
    /// The changes from one snapshot of a dataset to another are merged into it, through
    /// [`Undo::taking_back`].
    Merge {
        /// The dataset.
        dataset: DatasetName,
        /// The state that the merge left.
        base: Source,
        /// The state that it found.
        back_to: Source,
        /// The object that was the root of what was merged.
        root_object: u64,
        /// It has moved the base of later merges, which its undo moves back even if no file is
        /// left to go back: see [`crate::OperationLog::apply_merge`].
        moved_base: bool,
        /// What is one step with the merge, and is taken back by [`Undo::undo`] when the merge has
        /// been.
        rest: Option<Rest>,
    },
    /// The same of merges into several datasets, which were one step: all of them at one moment,
    /// through [`crate::SeveralDatasets::apply_merges`] of [`Undo::taking_back`], or none.
    Merges(Vec<MergeBack>),
}

/// The way back of one of several merges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeBack {
    /// The dataset.
    pub dataset: DatasetName,
    /// The state that the merge left.
    pub base: Source,
    /// The state that it found.
    pub back_to: Source,
    /// The object that was the root of what was merged.
    pub root_object: u64,
}

/// The end of a fork that a merge dropped, or the undo of that end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// Its number.
    pub number: u64,
    /// What is destroyed with its undo, and kept: nobody may have it open.
    pub goes: Vec<Source>,
}

/// Operations that can be read, and taken back. An undo is an operation too, and is taken back
/// as any.
pub trait Undo {
    /// The log of operations, oldest first. It has the newest ones: what is older is forgotten.
    ///
    /// # Errors
    /// A failed read.
    fn operations(&self) -> Result<Vec<Operation>>;

    /// How the operation with this number, or the last one, would be taken back. With `past` what
    /// was changed later is no obstacle: another rollback or merge, another value or label.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] says what is in the way.
    fn reversal(&self, number: Option<u64>, past: bool) -> Result<(u64, Reversal)>;

    /// Takes an operation back that is no merge, with all that is one step with it but a merge.
    /// Returns the number of the new entry, of several the last.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] says what is in the way. Then nothing has changed.
    fn undo(&self, number: u64, past: bool) -> Result<u64>;

    /// The same store for a merge that takes back the merge with this number in the log.
    fn taking_back(&self, number: u64) -> Box<dyn Store + '_>;

    /// Destroys as [`Store::destroy_together`] does, but what goes is kept for an undo as long as
    /// the property `undo` of its dataset says: of several the shortest time holds. If that is off,
    /// or this handle acts for nobody, it goes at once.
    ///
    /// # Errors
    /// As there.
    fn hide_together(&self, sources: &[Source]) -> Result<Hidden>;
}

/// Whether an entry and the next one are of one step. What changes a property is one step of a
/// dataset; an entry of another kind is a step by itself, as is the snapshot that a merge took.
pub fn is_one_step(one: &OperationRecord, next: &OperationRecord) -> bool {
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

/// Whether an entry is that of a transaction over two pools that is not decided: nobody knows yet
/// whether it holds.
pub fn is_prepared(record: &OperationRecord) -> bool {
    record.text(STATE_TEXT) == PREPARED_TEXT
}

/// Whether an entry is that of a transaction over two pools that was prepared, and does not hold.
pub fn is_aborted(record: &OperationRecord) -> bool {
    record.text(STATE_TEXT) == ABORTED_TEXT
}

/// Why what was taken back cannot be taken back.
pub fn taken_back_by(number: u64) -> String {
    format!("it was taken back by operation {number}: take that back to have it again")
}

/// The entries that others have taken back: each with the one that did. The entries are given
/// oldest first.
pub fn undone_by<'e>(
    entries: impl DoubleEndedIterator<Item = (u64, &'e OperationRecord)>,
) -> BTreeSet<(u64, u64)> {
    let mut undone: BTreeSet<(u64, u64)> = BTreeSet::new();
    for (number, record) in entries.rev() {
        // What takes one back is newer than that, so whether it holds itself is known here.
        let holds = !undone.iter().any(|(gone, _)| *gone == number);
        if record.undoes != 0 && holds {
            undone.insert((record.undoes, number));
        }
    }
    undone
}
