//! What a handle of the pool acts with: the open pool, its author, and what its merges take back.

use crate::commit::turn::{self, Turn};
use crate::snapshots::ephemeral::Passing;
use crate::snapshots::operation_log::{self, Author};
use crate::snapshots::trash;
use crate::state::State;
use marram_store::Result;
use std::sync::Arc;

/// An open pool as one of its handles acts on it.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) state: Arc<State>,
    /// States that are compared.
    pub(crate) passing: Arc<Passing>,
    /// For whom this handle acts; nobody is entered into the log of operations.
    pub(crate) author: Option<Arc<Author>>,
    /// The operation that a merge through this handle takes back; 0 is none.
    pub(crate) undoes: u64,
}

impl Session {
    /// A handle that acts for nobody.
    pub(crate) fn new(state: State) -> Session {
        let (state, passing) = (Arc::new(state), Arc::default());
        Session { state, passing, author: None, undoes: 0 }
    }
}

/// Waits for the turn to commit an operation that is entered into the log.
pub(crate) fn begin_operation(session: &Session) -> Result<Turn<'_>> {
    operation_log::begin_operation(&session.state, session.author.as_ref())
}

/// The same, of several that are entered by one commit.
pub(crate) fn begin_operations(session: &Session, count: usize) -> Result<Turn<'_>> {
    if session.author.is_some() {
        trash::make_room_in_log(&session.state, count as u64)?;
    }
    turn::take_turn(&session.state)
}
