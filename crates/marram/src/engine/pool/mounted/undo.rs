//! Taking operations back while mounts show what changes.

use super::shown::Shown;
use crate::control::protocol::Answer;
use crate::engine::changes::Changes;
use crate::engine::pool::{changes, undo as records};
use crate::error::Result;
use marram_pool::Reversal;
use marram_store::Source;

/// Takes an operation back, the last one if no number is given.
///
/// # Errors
/// What stands in the way; then nothing has changed.
pub(super) fn undo(shown: &Shown<'_>, number: Option<u64>) -> Result<Answer> {
    let pool = shown.pool;
    let (number, reversal) = records::reversal(pool, number)?;
    match reversal {
        Reversal::Records { goes, renamed } => {
            renamed.iter().try_for_each(|renamed| shown.refuse_mounted_dataset(renamed))?;
            shown.mounts.refuse_mounted(&goes)?;
            // A program that lists `.marram` would open again what was just taken away.
            let withheld = shown.mounts.withhold(&goes);
            shown.with_members(|| records::by_records(pool, number))?;
            drop(withheld);
            shown.reload()?;
        }
        Reversal::Rollback { dataset, to } => {
            undo_rollback(shown, number, &Source::live(dataset), &to)?;
        }
        Reversal::Merge { dataset, base, back_to, root_object } => {
            let live = Source::live(dataset.clone());
            let (files, change_set) = shown.on_whole(&live, |whole| {
                let files = whole.files(pool, &live)?;
                let of = (&dataset, &base, &back_to, root_object);
                let change_set = records::by_merge(pool, number, &files, of)?;
                Ok((files, change_set))
            })?;
            shown.mounts.changed(&live, &*files, &Changes::from(change_set));
        }
    }
    Ok(Answer::Undone(Box::new(records::report(pool, number)?)))
}

fn undo_rollback(shown: &Shown<'_>, number: u64, live: &Source, to: &Source) -> Result<()> {
    let pool = shown.pool;
    let (mut entry, mut files) = (None, None);
    let done = shown.with_members(|| {
        shown.on_whole(live, |whole| {
            files = whole.in_use.clone();
            let mut go_back = || -> Result<()> {
                entry = Some(records::by_records(pool, number)?);
                Ok(())
            };
            match &files {
                Some(files) => files.roll_back(go_back),
                None => go_back(),
            }
        })
    });
    // From here on it is done, whatever cannot be looked up.
    if let (Some(files), Some(entry)) = (&files, entry) {
        match records::kept_by(pool, entry) {
            Ok(kept) => shown.tell_changes(live, files, changes::between(pool, &kept, to)),
            Err(error) => {
                shown.mounts.log(&format!("all of {live} is read anew: {error}"));
                shown.mounts.all_changed(live, &**files);
            }
        }
    }
    done
}
