//! From the frames of the log to the layers of a pool that is being opened.

use super::LoggedMerge;
use super::ring::{Ring, Stamp, parts};
use crate::base::pointers::token_of;
use crate::io::Media;
use crate::memtable::dataset::Dataset;
use crate::memtable::dirty::Dirty;
use bytes::Bytes;
use marram_format::log::{LogBlock, LogEdit, LogHead, LogPart};
use marram_store::{Block, Damage, Edit, Error, Item, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a replay has found.
#[derive(Default)]
pub(crate) struct Replayed {
    /// The position behind the last frame.
    pub(super) end: u64,
    /// The greatest freeze that any part names.
    pub(super) freeze_max: u64,
    /// Frames that had anything to say.
    pub(crate) frames: u64,
    /// What is now in the layers.
    pub(crate) dirty: Dirty,
    /// The merges of which a layer is the batch, in the order in which they were made.
    pub(crate) merges: Vec<LoggedMerge>,
}

/// Puts everything that the log has beyond the superblock into the layers of the datasets.
///
/// # Errors
/// A frame that cannot be read in any copy, or makes no sense though its checksum is right.
pub(super) fn replay(
    media: &Media,
    ring: &Ring,
    stamp: Stamp,
    head: &LogHead,
    datasets: &BTreeMap<u64, Arc<Dataset>>,
) -> Result<Replayed> {
    let mut replayed =
        Replayed { end: head.start, freeze_max: head.included, ..Replayed::default() };
    // A ring holds at most as many frames as grains.
    while replayed.end - head.start < u64::from(ring.grains)
        && let Some(found) = ring.frame(media, stamp, replayed.end)?
    {
        let parts =
            parts(&found, stamp, replayed.end).map_err(|reason| damaged(replayed.end, reason))?;
        for part in parts {
            replayed.freeze_max = replayed.freeze_max.max(part.freeze);
            if part.freeze > head.included {
                let grown = put_part(part, replayed.end, datasets, &mut replayed.merges)?;
                replayed.dirty = replayed.dirty.plus(grown);
            }
        }
        replayed.frames += 1;
        replayed.end += found.grains;
    }
    replayed.merges.sort_by_key(|merge| merge.freeze);
    if ring.goes_on_behind(media, stamp, replayed.end) {
        let reason = "later frames are whole: what was made durable since is lost".to_owned();
        if let Error::Damaged(damage) = damaged(replayed.end, reason) {
            media.keep_damage(&damage);
        }
    }
    Ok(replayed)
}

/// The batch of a merge becomes a layer of its own, as when it was made.
fn put_part(
    part: LogPart<'_>,
    position: u64,
    datasets: &BTreeMap<u64, Arc<Dataset>>,
    merges: &mut Vec<LoggedMerge>,
) -> Result<Dirty> {
    let Some(dataset) = datasets.get(&part.dataset) else {
        return Err(damaged(position, format!("it names dataset {}, not there", part.dataset)));
    };
    let mut contents: Vec<Block> = Vec::new();
    let mut edits = Vec::with_capacity(part.edits.len());
    for edit in &part.edits {
        edits.push(match *edit {
            LogEdit::Remove { key } => Edit::Remove { key },
            LogEdit::Put { key, value, block } => {
                let block = block_of(block, &mut contents)
                    .ok_or_else(|| damaged(position, "it names a block of its own too early"))?;
                Edit::Put {
                    key,
                    item: Item { value: Bytes::copy_from_slice(value), block: block? },
                }
            }
            LogEdit::Patch { key, value, at, data } => {
                Edit::Patch { key, value: Bytes::copy_from_slice(value), at: at as usize, data }
            }
        });
    }
    let apply = |edits| dataset.apply(edits).map_err(|error| damaged(position, error.to_string()));
    let Some(entry) = part.merge else { return apply(edits) };
    dataset.freeze(part.freeze.saturating_sub(1));
    let grown = apply(edits)?;
    dataset.freeze(part.freeze);
    let layer = dataset.frozen_layers() - 1;
    merges.push(LoggedMerge { dataset: part.dataset, layer, freeze: part.freeze, entry });
    Ok(grown)
}

/// The block of a logged item; the outer `None` if it names one that the part does not have.
fn block_of(block: LogBlock<'_>, contents: &mut Vec<Block>) -> Option<Result<Option<Block>>> {
    Some(match block {
        LogBlock::None => Ok(None),
        LogBlock::Stored(place) => crate::base::pointers::decode_pointer(place)
            .and_then(|_| token_of(&Bytes::copy_from_slice(place)))
            .map(|token| Some(Block::Stored(token))),
        LogBlock::Content(content) => {
            let block = Block::fresh(content.to_vec());
            contents.push(block.clone());
            Ok(Some(block))
        }
        LogBlock::Earlier(number) => Ok(Some(contents.get(number as usize)?.clone())),
    })
}

fn damaged(position: u64, reason: impl Into<String>) -> Error {
    Error::Damaged(Damage {
        what: "the intent log",
        place: format!("position {position}"),
        reason: reason.into(),
    })
}
