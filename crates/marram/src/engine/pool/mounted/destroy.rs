//! Destruction of what no mount of its own shows.

use super::shown::Shown;
use crate::control::protocol::{Answer, Operation};
use crate::engine::pool::operations;
use crate::error::{Error, Result};
use marram_store::{Source, Store};

/// Destroys what is not mounted. What is only looked at below `.marram` goes from there first.
///
/// # Errors
/// Whatever refuses it or fails.
pub(super) fn destroy(
    shown: &Shown<'_>,
    sources: &[Source],
    operation: &Operation,
) -> Result<Answer> {
    shown.mounts.refuse_mounted(sources)?;
    let goes = shown.pool.destroy_together(sources, true)?.sources;
    refuse_what_stays(shown, &goes)?;
    // A program that lists `.marram` meanwhile would open again what was just taken away there.
    let withheld = shown.mounts.withhold(&goes);
    let answer = operations::perform(shown.open, shown.pool, operation);
    drop(withheld);
    shown.mounts.members_changed(&goes);
    answer
}

/// Refuses a destruction that the pool would refuse, before anything is taken from sight.
fn refuse_what_stays(shown: &Shown<'_>, goes: &[Source]) -> Result<()> {
    shown.mounts.refuse_mounted(goes)?;
    for gone in goes {
        let report = shown.open.pool().report(gone)?;
        if !report.holds.is_empty() {
            let (name, tags) = (report.source, report.holds.join(", "));
            return Err(Error::in_use(format!("{name} is held: {tags}"))
                .hint(format!("let go of it with `marram release TARGET {tags}`")));
        }
    }
    Ok(())
}
