//! Destruction of what no mount of its own shows.

use super::shown::Shown;
use crate::control::protocol::{Answer, Operation};
use crate::engine::pool::operations;
use crate::error::{Error, Kind, Result};
use marram_store::{Source, Store};
use std::time::{Duration, Instant};

/// How long what looks at something may take to let go of it before it is destroyed.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts.
const LOOK_TICK: Duration = Duration::from_millis(5);

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
    let answer = when_let_go(|| operations::perform(shown.open, shown.pool, operation));
    drop(withheld);
    shown.mounts.members_changed(&goes);
    answer
}

/// Destroys when nothing looks at it any more: nothing of it is mounted, and a comparison or a
/// merge that somebody has asked for is soon over.
fn when_let_go(mut destroy: impl FnMut() -> Result<Answer>) -> Result<Answer> {
    let began = Instant::now();
    loop {
        match destroy() {
            Err(error) if error.kind == Kind::InUse && began.elapsed() < LOOK_PATIENCE => {
                std::thread::sleep(LOOK_TICK);
            }
            done => return done,
        }
    }
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
