//! What a handle of the pool acts with: the open pool, its author, and what its merges take back.

use crate::snapshots::ephemeral::EphemeralStates;
use crate::snapshots::two_pools::Part;
use crate::state::State;
use crate::state::waiting_merges::Expected;
use marram_store::Author;
use std::sync::Arc;

/// An open pool as one of its handles acts on it.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) state: Arc<State>,
    /// The ephemeral snapshots that there are.
    pub(crate) ephemeral: Arc<EphemeralStates>,
    /// The user and command of this handle; without one, nothing enters the log of operations.
    pub(crate) author: Option<Arc<Author>>,
    /// The operation that a merge through this handle takes back; 0 is none.
    pub(crate) undoes: u64,
    /// An undo through this handle goes back past what was changed later.
    pub(crate) goes_past: bool,
    /// The transaction over two pools that a merge through this handle is part of.
    pub(crate) part: Option<Part>,
    /// Merges that wait stay for the one through this handle.
    pub(crate) expected: Option<Arc<Expected>>,
}

impl Session {
    /// A handle that acts for nobody.
    pub(crate) fn new(state: State) -> Session {
        let (state, ephemeral) = (Arc::new(state), Arc::default());
        Session {
            state,
            ephemeral,
            author: None,
            undoes: 0,
            goes_past: false,
            part: None,
            expected: None,
        }
    }
}
