//! Rollbacks and merges below programs that use what they change.

use super::shown::{Shown, Whole};
use crate::control::protocol::{Answer, DirectoryOrder, MergeRequest};
use crate::engine::changes::Changes;
use crate::engine::{change_sets, history};
use crate::error::Result;
use marram_store::Source;

/// Lets a dataset go on from a snapshot while programs use it: they see it at once.
///
/// # Errors
/// Whatever refuses it or fails.
pub(crate) fn rollback(shown: &Shown<'_>, to: &Source) -> Result<Answer> {
    let live = Source::live(to.dataset.clone());
    let (files, answer) = shown.on_whole(&live, |whole| {
        let files = whole.in_use.clone();
        let answer = history::rollback(shown.store, to, |go_back| match &files {
            Some(files) => files.roll_back(go_back),
            None => go_back(),
        })?;
        Ok((files, answer))
    })?;
    if let (Some(files), Answer::RolledBack { kept, .. }) = (&files, &answer) {
        let kept: Source = kept.parse()?;
        shown.tell_changes(&live, files, change_sets::between(shown.store, &kept, to));
        shown.mounts.members_changed(&[kept]);
    }
    Ok(answer)
}

/// Lets a directory go back while programs use it and what is around it: they see it at once.
///
/// # Errors
/// Whatever refuses it or fails.
pub(crate) fn rollback_directory(shown: &Shown<'_>, order: &DirectoryOrder) -> Result<Answer> {
    let live = Source::live(order.dataset.parse()?);
    let (files, (answer, change_set)) = shown.on_whole(&live, |whole| {
        let files = whole.files(shown.store, &live)?;
        let done = history::rollback_directory(shown.store, order, (&files, shown.user))?;
        Ok((files, done))
    })?;
    shown.mounts.changed(&live, &*files, &Changes::from(change_set));
    if let Answer::DirectoryRolledBack { kept: Some(kept), .. } = &answer {
        shown.mounts.members_changed(&[kept.parse()?]);
    }
    Ok(answer)
}

/// Brings a fork's changes into what it was forked from, or the changes of that into the fork,
/// while programs use what they go into: they see them at once. `destroy` takes the fork away, if
/// that was asked for.
///
/// # Errors
/// Whatever refuses it or fails.
pub(crate) fn merge(
    shown: &Shown<'_>,
    request: &MergeRequest,
    destroy: &dyn Fn(&Source) -> Result<()>,
) -> Result<Answer> {
    let merge = history::Merge::of(shown.store, request)?;
    let work = |whole: &Whole<'_>| {
        let files = whole.files(shown.store, merge.taker())?;
        let done = merge.run(shown.store, (&files, shown.user))?;
        Ok((files, done))
    };
    if request.preview {
        let (_, (mut summary, _)) = shown.look_at_whole(merge.taker(), work)?;
        let refused = shown.mounts.refuse_held_back(merge.taker()).err();
        let advised = refused.map(|error| format!("{error}; unmount it first"));
        summary.obstacle = summary.obstacle.or(advised);
        return Ok(Answer::Merged(Box::new(summary)));
    }
    let (files, (summary, change_set)) = shown.on_whole(merge.taker(), work)?;
    shown.mounts.changed(merge.taker(), &*files, &Changes::from(change_set));
    merge.conclude(summary, || destroy(merge.fork()))
}
