//! Transactions that clients have left when they were lost, or have closed the store.

use super::{Cluster, State};
use crate::draft::{identity_text, is_of, left_of};
use marram_store::{DatasetName, Result, Source};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl State {
    /// The clients that are there, this one with them.
    fn sessions(&self, own: &[u8; 16]) -> BTreeSet<String> {
        self.company.clients.keys().chain([own]).map(identity_text).collect()
    }
}

impl Cluster {
    /// Whether a fork is that of a transaction which this client has begun, and was not taken for
    /// lost since. No other one can be merged.
    ///
    /// # Errors
    /// There is no such fork; the database fails.
    pub fn has_begun(&self, fork: &DatasetName) -> Result<bool> {
        is_of(&*self.catalogue()?, fork, &self.session())
    }

    /// Whether a merge was made through this handle: whatever has failed since, it is there. The
    /// database is not asked, so it answers also when the store takes no more changes.
    pub fn has_merged(&self) -> bool {
        self.has_merged.load(Ordering::Acquire)
    }

    /// Whether the store takes no more changes for another reason than that others have taken this
    /// client for lost: what it published last may be in the log.
    pub fn is_in_doubt(&self) -> bool {
        let state = self.shared.state.read();
        state.stopped.is_some() && !state.is_expelled
    }

    /// Destroys the forks of transactions whose clients are not there any more. Returns what is
    /// gone.
    ///
    /// # Errors
    /// The database fails.
    pub fn end_lost_transactions(&self) -> Result<Vec<Source>> {
        self.shared.look()?;
        let own = self.session();
        let is_none_left = {
            let state = self.shared.state.read();
            let there = state.sessions(&own);
            left_of(&state.catalogue, &|session| there.contains(session)).is_empty()
        };
        if is_none_left {
            return Ok(Vec::new());
        }
        self.shared.publish(&mut |draft| {
            let mut state = self.shared.state.write();
            let before = Arc::clone(&state.catalogue);
            let there = state.sessions(&own);
            let is_there = |session: &str| there.contains(session);
            let gone = draft.end_transactions(&is_there, &|number| state.is_open(number))?;
            let numbers = gone.iter().filter_map(|source| before.find(source).ok());
            state.going.extend(numbers);
            Ok(gone)
        })
    }
}
