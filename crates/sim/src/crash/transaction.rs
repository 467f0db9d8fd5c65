//! A transaction that is open, and what the model has of it.

use super::action::Change;
use super::digest::tree_digest;
use super::target::{Committed, Mounted};
use super::twin::both;
use marram_model::{Decisions, Model};
use marram_vfs::{FileSystem, Ino};
use std::sync::Arc;

/// A transaction on the root dataset, or on that and the clone.
pub(super) struct OpenTransaction {
    id: String,
    /// In the order of the datasets.
    parts: Vec<Part>,
}

/// A transaction in one dataset.
struct Part {
    dataset: &'static str,
    files: Arc<dyn FileSystem>,
    /// What it began as, and what it has now.
    base: Model,
    model: Model,
    /// The inode that it holds open: in the real file system, and in the model.
    held: (Option<Ino>, Option<Ino>),
}

impl OpenTransaction {
    /// Begins one on datasets, each with its model. None if there is no space for one.
    pub(super) fn begin(
        mounted: &dyn Mounted,
        id: String,
        parents: &[(&'static str, &Model)],
    ) -> Result<Option<OpenTransaction>, String> {
        let datasets: Vec<&str> = parents.iter().map(|(dataset, _)| *dataset).collect();
        let Some(files) = mounted.begin_transaction(&id, &datasets)? else { return Ok(None) };
        let part = |(files, (dataset, parent)): (_, &(&'static str, &Model))| Part {
            dataset,
            files,
            base: parent.snapshot(),
            model: parent.snapshot().fork(),
            held: (None, None),
        };
        let parts = files.into_iter().zip(parents).map(part).collect();
        Ok(Some(OpenTransaction { id, parts }))
    }

    /// The datasets that it is on.
    pub(super) fn datasets(&self) -> Vec<&'static str> {
        self.parts.iter().map(|part| part.dataset).collect()
    }

    /// Does a change in it; nothing if it is not on that dataset.
    pub(super) fn change(&mut self, dataset: &str, change: &Change) -> Result<bool, String> {
        match self.parts.iter_mut().find(|part| part.dataset == dataset) {
            None => Ok(false),
            Some(Part { files, model, held, .. }) => {
                both((&**files, &mut held.0), (&*model, &mut held.1), change)
            }
        }
    }

    /// Commits it to the parents, whose models those are, and ends it; returns whether it is there
    /// now. It may be refused only if others have changed a parent since it began.
    pub(super) fn commit(
        self,
        mounted: &dyn Mounted,
        parents: &[(&'static str, &Model)],
    ) -> Result<bool, String> {
        let committed = mounted.commit_transaction(&self.id, &self.datasets())?;
        let mut is_overtaken = false;
        for (part, (_, parent)) in self.parts.iter().zip(parents) {
            is_overtaken |= tree_digest(*parent)? != tree_digest(&part.base)?;
        }
        match committed {
            Committed::Refused if !is_overtaken => {
                return Err("was refused, and nobody has changed anything".to_owned());
            }
            Committed::Applied => {
                for (part, (_, parent)) in self.parts.iter().zip(parents) {
                    let clashes = parent.merge(&part.base, &part.model, &Decisions::new());
                    if !clashes.is_empty() {
                        return Err(format!("was done; the model has the conflicts {clashes:?}"));
                    }
                }
            }
            Committed::Unchanged | Committed::Refused => {}
        }
        self.end(mounted).map(|()| committed == Committed::Applied)
    }

    /// Ends it.
    pub(super) fn end(self, mounted: &dyn Mounted) -> Result<(), String> {
        let count = self.parts.len();
        drop(self.parts);
        mounted.end_transaction(&self.id, count)
    }
}
