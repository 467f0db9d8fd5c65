//! What a pool is called: a word in its superblock, so it changes with a commit.

use crate::commit::operation_log::{self, entry};
use crate::commit::turn::Turn;
use crate::snapshots::begin;
use crate::state::State;
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::superblock::LABEL_BYTES_MAX;
use marram_store::{Author, Error, Result};
use std::sync::Arc;

/// Says what is wrong with a label.
pub(crate) fn check(label: &str) -> std::result::Result<(), String> {
    if label.len() <= LABEL_BYTES_MAX {
        return Ok(());
    }
    Err(format!("the label {label:?} is longer than {LABEL_BYTES_MAX} bytes: shorten it"))
}

/// Gives the pool another label, in a commit with all that was applied before, for somebody.
pub(crate) fn set_label(pool: &State, label: &str, author: Option<&Arc<Author>>) -> Result<()> {
    check(label).map_err(Error::Invalid)?;
    let turn = begin::begin_for(pool, author)?;
    change_label(pool, &turn, label, author, 0)
}

/// The same under a turn to commit; `undoes` is the entry that it takes back.
pub(crate) fn change_label(
    _pool: &State,
    turn: &Turn<'_>,
    label: &str,
    author: Option<&Arc<Author>>,
    undoes: u64,
) -> Result<()> {
    turn.commit(Some(&mut |commit| {
        let entry = entry(OperationKind::Label, 0, &[&commit.label, label]);
        label.clone_into(&mut commit.label);
        operation_log::enter(commit, author, OperationRecord { undoes, ..entry }).map(|_| ())
    }))
}
