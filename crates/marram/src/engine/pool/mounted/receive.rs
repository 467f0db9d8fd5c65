//! A stream that is received into a dataset that programs may use.

use super::shown::Shown;
use crate::control::protocol::{Answer, ReceiveOrder};
use crate::engine::change_sets;
use crate::engine::changes::{ChangedInode, Changes};
use crate::engine::pool::streams;
use crate::error::{Error, Result};
use marram_pool::{Accessed, Received};
use marram_posix::Posix;
use marram_store::{DatasetName, Source};
use marram_vfs::Ino;
use std::io::Read;

/// Reads a stream, and has the mounts show what has been received, all at once.
///
/// # Errors
/// Whatever refuses it or fails; then nothing has changed that anybody sees.
pub(in crate::engine::pool) fn receive(
    shown: &Shown<'_>,
    order: &ReceiveOrder,
    input: &mut dyn Read,
) -> Result<Answer> {
    let live = Source::live(order.dataset.parse::<DatasetName>()?);
    shown.mounts.refuse_held_back(&live)?;
    let incoming = streams::take_in(shown.pool, order, input)?;
    let (files, received) = shown.on_whole(&live, |whole| {
        let files = whole.in_use.clone();
        let mut published = None;
        let publish = || -> Result<()> {
            published = Some(streams::publish(shown.pool, incoming)?);
            Ok(())
        };
        match &files {
            Some(files) => files.roll_back(publish)?,
            None => publish()?,
        }
        let received = published.ok_or_else(|| Error::failed("the stream was not shown"))?;
        Ok((files, received))
    })?;
    if let Some(files) = &files {
        tell(shown, &live, files, &received);
    }
    shown.mounts.members_changed(std::slice::from_ref(&received.snapshot));
    shown.mounts.members_changed(received.kept.as_slice());
    Ok(streams::received(&received))
}

/// Has the kernel ask anew for what a stream has changed in a file system that is in use.
fn tell(shown: &Shown<'_>, live: &Source, files: &Posix, received: &Received) {
    let Some(before) = received.kept.as_ref().or(received.base.as_ref()) else { return };
    let changes = change_sets::between(shown.pool, before, &received.snapshot);
    let changes = changes.map(|found| with_accessed(found, accessed(received, files)));
    shown.tell_changes(live, files, changes);
}

/// Inodes that the kernel may know an old access time of. If there are too many for a list, that is
/// all that it knows. Names stay as they are: a view that is mounted on one stays too.
fn accessed(received: &Received, files: &Posix) -> Vec<Ino> {
    match &received.accessed {
        Accessed::None => Vec::new(),
        Accessed::These(inodes) => inodes.iter().copied().map(Ino).collect(),
        Accessed::Many => files.known(),
    }
}

/// What has changed, and inodes whose access times are as they were.
fn with_accessed(mut changes: Changes, inodes: Vec<Ino>) -> Changes {
    let accessed = |ino| ChangedInode { ino, content: ChangedInode::ATTRIBUTES };
    changes.inodes.extend(inodes.into_iter().map(accessed));
    changes
}
