//! From the layers of the pool to a frame.

use super::LoggedMerge;
use crate::base::planted::{PlantedBug, is_planted};
use crate::memtable::dataset::Dataset;
use crate::memtable::overlay::{Entry, Layer};
use crate::memtable::unlogged::{Extent, Unlogged};
use marram_format::log::{FrameWriter, LogBlock};
use marram_store::{Block, FreshBlock, Item, Key};
use std::collections::HashMap;
use std::sync::Arc;

/// A frame would be longer than it may.
pub(super) struct TooMuch;

/// Adds what a layer has unlogged to the part of a frame that has begun.
fn add_layer(
    frame: &mut FrameWriter,
    (layer, unlogged): (&Layer, &Unlogged),
    len_max: usize,
) -> Result<(), TooMuch> {
    let mut contents = Contents::default();
    for (key, changed) in unlogged.sorted() {
        if crate::base::planted::is_left_out(key.kind) {
            continue;
        }
        match layer.get(key).expect("what was noted is in the layer") {
            Entry::Removed => frame.remove(key),
            Entry::Item(item) => add_item(frame, key, item, changed, &mut contents),
        }
        if frame.len_bytes() > len_max {
            return Err(TooMuch);
        }
    }
    Ok(())
}

fn add_item(
    frame: &mut FrameWriter,
    key: Key,
    item: &Item,
    changed: Extent,
    contents: &mut Contents,
) {
    match (&item.block, changed) {
        (Some(Block::Fresh(fresh)), Extent::Range { from, to }) if fresh.stored().is_none() => {
            let at = u32::try_from(from).expect("a block is shorter than 4 GiB");
            frame.patch(key, &item.value, at, &fresh.data()[from..to]);
        }
        (Some(Block::Fresh(fresh)), _) => {
            // Asked once: the commit that is under way may say at any moment that it has written
            // the block, and a content that is written into the frame must have its number.
            let block = match fresh.stored() {
                Some(token) => LogBlock::Stored(&token.place),
                None => contents.refer(fresh),
            };
            frame.put(key, &item.value, block);
        }
        (Some(Block::Stored(token)), _) => {
            frame.put(key, &item.value, LogBlock::Stored(&token.place));
        }
        (None, _) => frame.put(key, &item.value, LogBlock::None),
    }
}

/// The contents that a part has so far: one that several items share is written once, and shared
/// after a replay too.
#[derive(Default)]
struct Contents(HashMap<*const FreshBlock, u32>);

impl Contents {
    fn refer<'f>(&mut self, fresh: &'f Arc<FreshBlock>) -> LogBlock<'f> {
        let next = u32::try_from(self.0.len()).expect("a frame holds few blocks");
        match *self.0.entry(Arc::as_ptr(fresh)).or_insert(next) {
            number if number == next => LogBlock::Content(fresh.data()),
            number => LogBlock::Earlier(number),
        }
    }
}

/// Bytes of content that no frame has, each time that they were written counted, and how many
/// notes of changed keys there are.
pub(super) fn unlogged_size(dataset: &Dataset) -> (u64, usize) {
    dataset.collect(|overlay| {
        let frozen = overlay.frozen.iter().map(|frozen| &frozen.unlogged);
        let all = frozen.chain(&overlay.unlogged);
        all.fold((0, 0), |sum, unlogged| (sum.0 + unlogged.bytes(), sum.1 + unlogged.len()))
    })
}

/// Adds what a dataset has unlogged. A layer that is the batch of a merge is a part with its entry.
pub(super) fn add_unlogged(
    dataset: &Dataset,
    frame: &mut FrameWriter,
    merges: &[LoggedMerge],
    open_freeze: u64,
    len_max: usize,
) -> std::result::Result<(), TooMuch> {
    let merge_of = |freeze: u64| {
        let is_it = |merge: &&LoggedMerge| (merge.dataset, merge.freeze) == (dataset.id, freeze);
        merges.iter().find(is_it).filter(|_| !is_planted(PlantedBug::MergeInFrame))
    };
    dataset.collect(|overlay| {
        for frozen in overlay.frozen.iter().filter(|frozen| !frozen.unlogged.is_empty()) {
            match merge_of(frozen.freeze) {
                None => frame.begin_part(frozen.freeze, dataset.id),
                Some(merge) => frame.begin_merge(frozen.freeze, &merge.entry),
            }
            add_layer(frame, (&frozen.layer, &frozen.unlogged), len_max)?;
        }
        match &overlay.unlogged {
            Some(unlogged) if !unlogged.is_empty() => {
                frame.begin_part(open_freeze, dataset.id);
                add_layer(frame, (&overlay.open, unlogged), len_max)
            }
            _ => Ok(()),
        }
    })
}

pub(super) fn forget_unlogged(dataset: &Dataset) {
    dataset.collect(|overlay| {
        let frozen = overlay.frozen.iter_mut().map(|frozen| &mut frozen.unlogged);
        frozen.chain(&mut overlay.unlogged).for_each(Unlogged::clear);
    });
}
