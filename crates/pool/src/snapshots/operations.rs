//! The operation log as it is shown: each entry, and what is in the way of its undo.

use crate::commit::operation_log::entries;
use crate::commit::turn;
use crate::snapshots::session::Session;
use crate::snapshots::undo;
use marram_store::operations::{is_one_step, taken_back_by, undone_by};
use marram_store::{Error, Operation, Result};

/// See `Pool::operations`.
pub(crate) fn operations(session: &Session) -> Result<Vec<Operation>> {
    turn::enter_waiting(&session.state)?;
    let _no_commit = session.state.turns.committing.lock();
    let entries = entries(&session.state)?;
    let undone = undone_by(undo::in_order(&entries));
    let log = undo::Log { entries: &entries, undone: &undone, goes_past: false };
    let judge = |number: u64| match undo::judge(&session.state, log, number) {
        Ok(_) => None,
        Err(Error::Invalid(reason)) => Some(reason),
        Err(error) => Some(error.to_string()),
    };
    let mut operations = Vec::with_capacity(entries.len());
    for step in entries.chunk_by(|(_, one), (_, next)| is_one_step(one, next)) {
        let numbers = step[0].0..=step[step.len() - 1].0;
        // What is left of a step is judged once: there may be as many as the log has entries.
        let mut of_rest: Option<Option<String>> = None;
        for (number, record) in step {
            let undone_by = undone.range((*number, 0)..=(*number, u64::MAX)).next();
            let undone_by = undone_by.map(|(_, by)| *by);
            let obstacle = match (undone_by, undo::refuse_gone(&session.state, record)) {
                (Some(by), _) => Some(taken_back_by(by)),
                (None, Err(Error::Invalid(reason))) => Some(reason),
                (None, _) => of_rest.get_or_insert_with(|| judge(*number)).clone(),
            };
            let (record, step) = (record.clone(), numbers.clone());
            operations.push(Operation { number: *number, record, step, undone_by, obstacle });
        }
    }
    Ok(operations)
}
