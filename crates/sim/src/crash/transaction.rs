//! A transaction that is open, and what the model has of it.

use super::action::Change;
use super::digest::tree_digest;
use super::target::{Committed, Mounted};
use super::twin::both;
use marram_model::{Decisions, Model};
use marram_vfs::{FileSystem, Ino};
use std::sync::Arc;

/// A transaction on the root dataset.
pub(super) struct OpenTransaction {
    id: String,
    files: Arc<dyn FileSystem>,
    /// What it began as, and what it has now.
    base: Model,
    model: Model,
    /// The inode that it holds open: in the real file system, and in the model.
    held: (Option<Ino>, Option<Ino>),
}

impl OpenTransaction {
    /// None if there is no space for one.
    pub(super) fn begin(
        mounted: &dyn Mounted,
        id: String,
        parent: &Model,
    ) -> Result<Option<OpenTransaction>, String> {
        let Some(files) = mounted.begin_transaction(&id)? else { return Ok(None) };
        let model = parent.snapshot().fork();
        Ok(Some(OpenTransaction { id, files, base: parent.snapshot(), model, held: (None, None) }))
    }

    /// Does a change in it.
    pub(super) fn change(&mut self, change: &Change) -> Result<bool, String> {
        both((&*self.files, &mut self.held.0), (&self.model, &mut self.held.1), change)
    }

    /// Commits it to the parent, whose model that is, and ends it; returns whether it is there now.
    /// It may be refused only if others have changed the parent since it began.
    pub(super) fn commit(self, mounted: &dyn Mounted, parent: &Model) -> Result<bool, String> {
        let committed = mounted.commit_transaction(&self.id)?;
        let is_overtaken = tree_digest(parent)? != tree_digest(&self.base)?;
        match committed {
            Committed::Refused if !is_overtaken => {
                return Err("was refused, and nobody has changed anything".to_owned());
            }
            Committed::Applied => {
                let clashes = parent.merge(&self.base, &self.model, &Decisions::new());
                if !clashes.is_empty() {
                    return Err(format!("was done; the model has the conflicts {clashes:?}"));
                }
            }
            Committed::Unchanged | Committed::Refused => {}
        }
        self.end(mounted).map(|()| committed == Committed::Applied)
    }

    /// Ends it.
    pub(super) fn end(self, mounted: &dyn Mounted) -> Result<(), String> {
        let OpenTransaction { id, files, .. } = self;
        drop(files);
        mounted.end_transaction(&id)
    }
}
