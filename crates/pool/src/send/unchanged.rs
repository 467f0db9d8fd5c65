//! Whether a dataset is still what it was but for access times: these move when somebody only looks
//! at it, and a dataset that receives streams may be looked at. A mount also frees what had no name
//! when the snapshot was taken, as a file that was open then and removed.

use crate::commit::draft::Commit;
use crate::commit::leaving;
use crate::commit::turn::Turn;
use crate::io::At;
use crate::snapshots::lineage;
use crate::state::State;
use crate::state::records::root_of;
use crate::tree::{self, Differing};
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_store::{Error, Key, Result, Source, kind};
use marram_stream::accessed::{differ_in_access_time, is_bookkeeping, is_nameless};
use std::sync::Arc;

/// Most inodes with moved access times that are listed one by one.
const ACCESSED_LISTED_MAX: usize = 1 << 20;

/// Inodes that differ in nothing but the access time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Accessed {
    /// There are none.
    #[default]
    None,
    /// These.
    These(Vec<u64>),
    /// More than are listed one by one.
    Many,
}

impl Accessed {
    fn add(&mut self, inode: u64) {
        match self {
            Accessed::None => *self = Accessed::These(vec![inode]),
            Accessed::These(inodes) if inodes.len() < ACCESSED_LISTED_MAX => inodes.push(inode),
            Accessed::These(_) | Accessed::Many => *self = Accessed::Many,
        }
    }

    /// These and those.
    pub(crate) fn and(mut self, others: Accessed) -> Accessed {
        match others {
            Accessed::None => {}
            Accessed::These(inodes) => inodes.into_iter().for_each(|inode| self.add(inode)),
            Accessed::Many => self = Accessed::Many,
        }
        self
    }
}

/// The inode that differs, if in nothing but the access time.
fn inode_accessed(differing: &Differing) -> Option<u64> {
    let (before, after) = (differing.before.as_ref()?, differing.after.as_ref()?);
    let is_plain = before.pointer.is_none() && after.pointer.is_none();
    if after.key.kind != kind::INODE || !is_plain {
        return None;
    }
    differ_in_access_time(&before.value, &after.value).then_some(after.key.object)
}

/// The record of a dataset with all that was applied to it; what is applied from now on is in
/// neither. The caller has the turn to commit.
pub(crate) fn settled(
    pool: &State,
    turn: &Turn<'_>,
    live: &DatasetRecord,
) -> Result<Arc<DatasetRecord>> {
    if pool.running(live.id).is_some_and(|dataset| dataset.has_dirty()) {
        turn.commit(None)?;
    }
    let gone = || Error::NoDataset(live.name.clone());
    pool.records.read().get(live.id).cloned().ok_or_else(gone)
}

/// The inodes whose access times are what two states differ in; `None` if they differ in anything
/// else, or if damage keeps one from being read. Costs what has changed. The caller has the turn to
/// commit.
pub(crate) fn differ_by_access_times(
    pool: &State,
    before: &DatasetRecord,
    after: &DatasetRecord,
) -> Result<Option<Accessed>> {
    let roots = [before, after].map(root_of);
    let (mut accessed, mut is_all) = (Accessed::None, true);
    let at = At { media: &pool.media, epoch: pool.media.epoch() };
    let roots = (roots[0].as_ref(), roots[1].as_ref());
    let (mut nameless, mut failed) = (None, None);
    let walked = tree::changes(&at, roots, Key::MIN, &mut |differing| {
        match inode_accessed(&differing) {
            Some(inode) => accessed.add(inode),
            None if differing.is_same() || is_bookkeeping(differing.key()) => {}
            None => match is_of_nameless(&at, roots.0, differing.key(), &mut nameless) {
                Ok(is_freed) => is_all = is_freed,
                Err(error) => failed = Some(error),
            },
        }
        is_all && failed.is_none()
    });
    let walked = walked.and_then(|()| failed.map_or(Ok(()), Err));
    if let Err(Error::Damaged(damage)) = &walked {
        pool.media.keep_damage(damage);
        return Ok(None);
    }
    walked.map(|()| is_all.then_some(accessed))
}

/// Whether a key is that of an inode which has no name in a state; `known` is what was found last.
fn is_of_nameless(
    at: &At<'_>,
    root: Option<&Bytes>,
    key: Key,
    known: &mut Option<(u64, bool)>,
) -> Result<bool> {
    if let Some((_, is_it)) = known.filter(|(object, _)| *object == key.object) {
        return Ok(is_it);
    }
    let orphan = tree::get(at, root, Key::new(0, kind::ORPHAN, key.object))?;
    let is_it = orphan.is_some_and(|orphan| is_nameless(&orphan.value));
    *known = Some((key.object, is_it));
    Ok(is_it)
}

/// A dataset goes back to a snapshot of its own, and what it was is destroyed at once. The caller
/// knows that nothing needs it.
pub(crate) fn go_back_for_good(commit: &mut Commit<'_>, dataset: u64, to: u64) -> Result<()> {
    // It is not seen under that name: it is being destroyed as soon as it is there.
    let name: Source = format!("{}@before-receive", commit.record(dataset)?.name).parse()?;
    let before = lineage::roll_back(commit, dataset, to, &name)?;
    let before = commit.record(before)?;
    leaving::destroy_last(commit, before)
}
