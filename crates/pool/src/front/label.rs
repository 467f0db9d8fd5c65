//! What a pool is called: a word in its superblock, so it changes with a commit.

use crate::commit::Turn;
use crate::front::{Inner, Pool};
use crate::snapshots::{Author, entry};
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::superblock::LABEL_BYTES_MAX;
use marram_store::{Error, Result};
use std::sync::Arc;

/// Says what is wrong with a label.
pub(crate) fn check(label: &str) -> std::result::Result<(), String> {
    if label.len() <= LABEL_BYTES_MAX {
        return Ok(());
    }
    Err(format!("the label {label:?} is longer than {LABEL_BYTES_MAX} bytes: shorten it"))
}

impl Pool {
    /// Gives the pool another label: at most 64 bytes, none to take it away. It is durable when
    /// this returns.
    ///
    /// # Errors
    /// A label that is too long; otherwise as for [`Pool::commit`].
    pub fn set_label(&self, label: &str) -> Result<()> {
        self.inner.set_label(label, self.author.as_ref())
    }
}

impl Inner {
    /// What the pool is called.
    pub(crate) fn label(&self) -> String {
        self.superblock.lock().label.clone()
    }

    /// Gives the pool another label, in a commit with all that was applied before, for somebody.
    pub(crate) fn set_label(&self, label: &str, author: Option<&Arc<Author>>) -> Result<()> {
        check(label).map_err(Error::Invalid)?;
        let turn = self.begin_operation(author)?;
        self.change_label(&turn, label, author, 0)
    }

    /// The same, for whoever has the turn to commit; `undoes` is the entry that it takes back.
    pub(crate) fn change_label(
        &self,
        turn: &Turn<'_>,
        label: &str,
        author: Option<&Arc<Author>>,
        undoes: u64,
    ) -> Result<()> {
        turn.commit(Some(&mut |commit| {
            let entry = entry(OperationKind::Label, 0, &[&commit.label, label]);
            label.clone_into(&mut commit.label);
            commit.enter(author, OperationRecord { undoes, ..entry }).map(|_| ())
        }))
    }
}
