//! The beginning of an operation: room in the operation log, then the turn to commit.

use crate::commit::turn::{self, Turn};
use crate::snapshots::operation_log::Author;
use crate::snapshots::session::Session;
use crate::snapshots::trash;
use crate::state::State;
use marram_store::Result;
use std::sync::Arc;

/// Waits for the turn to commit an operation that is entered into the log.
pub(crate) fn begin_operation(session: &Session) -> Result<Turn<'_>> {
    begin_for(&session.state, session.author.as_ref())
}

/// The same, of several that leave forks in memory where they are: they make, rename and destroy
/// nothing that could be the base of one.
pub(crate) fn begin_beside_forks(session: &Session, count: usize) -> Result<Turn<'_>> {
    if session.author.is_some() {
        trash::make_room_in_log(&session.state, count as u64)?;
    }
    turn::turn(&session.state, Some(session.state.turns.administering.lock()))
}

/// The same, of several that are entered by one commit.
pub(crate) fn begin_operations(session: &Session, count: usize) -> Result<Turn<'_>> {
    if session.author.is_some() {
        trash::make_room_in_log(&session.state, count as u64)?;
    }
    turn::take_turn(&session.state)
}

/// The same, of a pool for an author.
pub(crate) fn begin_for<'p>(pool: &'p State, author: Option<&Arc<Author>>) -> Result<Turn<'p>> {
    if author.is_some() {
        trash::make_room_in_log(pool, 1)?;
    }
    turn::take_turn(pool)
}
