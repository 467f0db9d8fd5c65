//! Operations on a pool that mounts show. Programs go on while one is performed, and see what it
//! has changed at once.

mod destroy;
pub(super) mod passes;
mod receive;
mod shown;

pub(super) use receive::receive;
pub(super) use shown::Shown;

use super::{operations, unfinished};
use crate::control::protocol::{Answer, Operation};
use crate::engine::history::versions;
use crate::engine::mounted;
use crate::engine::store_operations::named;
use crate::error::Result;
use marram_store::Source;

/// Performs an operation, and has the mounts show it.
///
/// # Errors
/// Whatever refuses it or fails.
pub(super) fn perform(shown: &Shown<'_>, operation: &Operation) -> Result<Answer> {
    match operation {
        Operation::Hide { sources } | Operation::Destroy { sources, dry_run: false } => {
            destroy::destroy(shown, &named(shown.pool, sources)?, operation)
        }
        Operation::Rename { from, to } => mounted::rename(shown, &from.parse()?, &to.parse()?),
        Operation::Promote { name } => mounted::promote(shown, &Source::live(name.parse()?)),
        Operation::Undo { number, force } => mounted::undo(shown, *number, *force),
        Operation::SnapshotBelow { dataset, snapshot } => {
            mounted::snapshot_below(shown, &dataset.parse()?, snapshot)
        }
        Operation::Thin(request) => mounted::thin_by(shown, request),
        Operation::Merge(request) => mounted::merge(shown, request, &|fork| {
            let operation = Operation::Hide { sources: vec![fork.to_string()] };
            destroy::destroy(shown, std::slice::from_ref(fork), &operation).map(|_| ())
        }),
        Operation::Rollback { to } => mounted::rollback(shown, &to.parse()?),
        Operation::RollbackDirectory(order) => mounted::rollback_directory(shown, order),
        Operation::Resolve { transaction, resolution } => {
            unfinished::resolve_below(shown.pool, shown.mounts, (transaction, *resolution))?;
            // What somebody has asked for is durable when it is answered.
            shown.pool.commit()?;
            Ok(Answer::Done)
        }
        Operation::Versions(order) => versions(shown.pool, order, shown.user),
        _ => with_new_member(shown, operation),
    }
}

/// Performs an operation that changes nothing that is open, and has the mounts show what it made.
fn with_new_member(shown: &Shown<'_>, operation: &Operation) -> Result<Answer> {
    let answer = operations::perform(shown.open, shown.pool, operation);
    match operation {
        Operation::Snapshot { dataset, snapshot } if answer.is_ok() => {
            let dataset = dataset.parse()?;
            let made = Source { dataset, snapshot: Some(snapshot.clone()) };
            shown.mounts.members_changed(&[made]);
        }
        Operation::Fork { name, .. } if answer.is_ok() => {
            shown.mounts.members_changed(&[Source::live(name.parse()?)]);
        }
        Operation::Set { .. } | Operation::SetLimit { .. } => shown.reload()?,
        _ => (),
    }
    answer
}
