//! Taking operations back while mounts show what changes.

use super::shown::Shown;
use crate::control::protocol::{Answer, UndoReport};
use crate::engine::change_sets;
use crate::engine::changes::Changes;
use crate::engine::pool::undo as records;
use crate::error::Result;
use marram_pool::{MergeBack, Reversal};
use marram_store::{DatasetName, Source};

/// Takes an operation back, the last one if no number is given; with `force` past later changes.
///
/// # Errors
/// What stands in the way; then nothing has changed.
pub(super) fn undo(shown: &Shown<'_>, number: Option<u64>, force: bool) -> Result<Answer> {
    let acting = records::acting(shown.pool, force);
    let pool = acting.as_ref().unwrap_or(shown.pool);
    let shown = &Shown::new(shown.open, pool, shown.mounts, shown.user);
    let (number, reversal) = records::reversal(shown.pool, number, force)?;
    let mut overwritten = Vec::new();
    match reversal {
        Reversal::Records { goes, renamed } => {
            renamed.iter().try_for_each(|renamed| shown.refuse_mounted_dataset(renamed))?;
            undo_records(shown, number, &goes)?;
        }
        Reversal::Rollback { dataset, to } => {
            undo_rollback(shown, number, &Source::live(dataset), &to)?;
        }
        Reversal::Merge { dataset, base, back_to, root_object, moved_base, rest } => {
            let goes = rest.as_ref().map_or(&[][..], |rest| &rest.goes);
            shown.mounts.refuse_mounted(goes)?;
            let of = (&dataset, &base, &back_to, root_object);
            overwritten = undo_merge(shown, (number, force), of, moved_base)?;
            if let Some(rest) = &rest {
                records::after_merge(number, undo_records(shown, rest.number, &rest.goes))?;
            }
        }
        Reversal::Merges(back) => {
            overwritten = undo_merges(shown, (number, force), &back)?;
        }
    }
    let report = UndoReport { overwritten, ..records::report(shown.pool, number)? };
    Ok(Answer::Undone(Box::new(report)))
}

fn undo_records(shown: &Shown<'_>, number: u64, goes: &[Source]) -> Result<()> {
    shown.mounts.refuse_mounted(goes)?;
    // A program that lists `.marram` would open again what was just taken away.
    let withheld = shown.mounts.withhold(goes);
    shown.with_members(|| records::by_records(shown.pool, number))?;
    drop(withheld);
    shown.reload()
}

fn undo_merge(
    shown: &Shown<'_>,
    of_entry: (u64, bool),
    of: (&DatasetName, &Source, &Source, u64),
    moved_base: bool,
) -> Result<Vec<String>> {
    let live = Source::live(of.0.clone());
    let (files, merged) = shown.on_whole(&live, |whole| {
        let files = whole.files(shown.pool, &live)?;
        let merged = records::by_merge(shown.pool, of_entry, (&files, shown.user), of, moved_base)?;
        Ok((files, merged))
    })?;
    shown.mounts.changed(&live, &*files, &Changes::from(merged.change_set));
    Ok(merged.overwritten)
}

fn undo_merges(
    shown: &Shown<'_>,
    of_entry: (u64, bool),
    back: &[MergeBack],
) -> Result<Vec<String>> {
    let lives: Vec<Source> = back.iter().map(|back| Source::live(back.dataset.clone())).collect();
    let (files, done) = shown.on_all(&lives, &|files| {
        records::by_merges(shown.pool, of_entry, (files, shown.user), back)
    })?;
    let mut overwritten = Vec::new();
    for ((live, files), done) in lives.iter().zip(&files).zip(done) {
        shown.mounts.changed(live, &**files, &Changes::from(done.change_set));
        overwritten.extend(done.overwritten);
    }
    Ok(overwritten)
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
            Ok(kept) => shown.tell_changes(live, files, change_sets::between(pool, &kept, to)),
            Err(error) => {
                shown.mounts.log(&format!("all of {live} is read anew: {error}"));
                shown.mounts.all_changed(live, &**files);
            }
        }
    }
    done
}
