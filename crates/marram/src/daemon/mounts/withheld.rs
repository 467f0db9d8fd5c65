//! What is being destroyed: nobody opens it meanwhile.
//!
//! What is only looked at below `.marram` is taken from there before it is destroyed. Whoever goes
//! on listing it would have it open again at once, and the destruction be refused for that. So it
//! stays closed until the destruction has ended or failed; a look-up is told that it is busy,
//! which no kernel remembers.

use super::MountTable;
use crate::error::{Error, Result};
use marram_store::Source;
use std::path::Path;

/// Sources that stay closed as long as this lives.
pub(in crate::daemon) struct Withheld<'m> {
    mounts: &'m MountTable,
    sources: Vec<Source>,
}

impl MountTable {
    /// Keeps `sources` from being opened. What is open already stays so.
    pub(in crate::daemon) fn withhold(&self, sources: &[Source]) -> Withheld<'_> {
        self.state.lock().withheld.extend_from_slice(sources);
        Withheld { mounts: self, sources: sources.to_vec() }
    }

    /// Refuses to open below `.marram` what is being destroyed.
    pub(in crate::daemon) fn refuse_withheld(&self, source: &Source) -> marram_vfs::Result<()> {
        match self.state.lock().withheld.contains(source) {
            true => Err(marram_vfs::Error::Busy),
            false => Ok(()),
        }
    }
}

impl super::State {
    /// Refuses to mount what is being destroyed.
    pub(super) fn refuse_to_mount_withheld(&self, source: &Source, pool: &Path) -> Result<()> {
        match self.withheld.contains(source) {
            true => {
                let pool = pool.display();
                Err(Error::in_use(format!("{source} of {pool} is just being destroyed")))
            }
            false => Ok(()),
        }
    }
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        let mut state = self.mounts.state.lock();
        for source in &self.sources {
            // Another destruction may keep the same from being opened.
            if let Some(at) = state.withheld.iter().position(|held| held == source) {
                state.withheld.swap_remove(at);
            }
        }
    }
}
