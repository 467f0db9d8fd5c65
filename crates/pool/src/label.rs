//! What a pool is called: a word in its superblock, so it changes with a commit.

use crate::pool::{Inner, Pool};
use marram_format::superblock::LABEL_BYTES_MAX;
use marram_store::{Error, Result};

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
        self.inner.set_label(label)
    }
}

impl Inner {
    /// What the pool is called.
    pub(crate) fn label(&self) -> String {
        self.superblock.lock().label.clone()
    }

    /// Gives the pool another label, in a commit with all that was applied before.
    pub(crate) fn set_label(&self, label: &str) -> Result<()> {
        check(label).map_err(Error::Invalid)?;
        self.commit_with(Some(&mut |commit| {
            label.clone_into(&mut commit.label);
            Ok(())
        }))
    }
}
