//! From the layers of the pool to a frame.

use super::unlogged::{Extent, Unlogged};
use crate::memtable::overlay::{Entry, Layer};
use marram_format::log::{FrameWriter, LogBlock};
use marram_store::{Block, FreshBlock, Item, Key};
use std::collections::HashMap;
use std::sync::Arc;

/// A frame would be longer than it may.
pub(super) struct TooMuch;

/// Adds what a layer has unlogged as one part of a frame.
pub(super) fn add_part(
    frame: &mut FrameWriter,
    (freeze, dataset): (u64, u64),
    layer: &Layer,
    unlogged: &Unlogged,
    len_max: usize,
) -> Result<(), TooMuch> {
    let mut contents = Contents::default();
    frame.begin_part(freeze, dataset);
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
