//! What a stream says, put into the dataset that receives it, in batches of bounded size.

use super::reader::content_of;
use crate::Error;
use crate::base::pointers::decode_pointer;
use crate::send::POSITION_KEY;
use crate::send::reader::Step;
use bytes::Bytes;
use marram_format::key::Key;
use marram_format::pointer::codec_id;
use marram_format::stream::{Received, StreamBlock, StreamContent, StreamPut};
use marram_store::{Batch, Block, Item, StoredForm, View};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most edits in a batch.
const BATCH_EDITS_MAX: usize = 256;
/// A batch is applied when its content has so many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// See the module.
pub(super) struct Applier {
    view: Arc<dyn View>,
    /// What an incremental stream goes on from; it stays as it is.
    base: Option<Arc<dyn View>>,
    /// The batch that is gathered; `None` where an item goes.
    pending: BTreeMap<Key, Option<Item>>,
    pending_bytes: usize,
    /// How far it is with what is gathered.
    received: Received,
    /// The dataset says so too, with each batch.
    records_progress: bool,
    has_recorded_progress: bool,
}

impl Applier {
    pub(super) fn new(view: Arc<dyn View>, base: Option<Arc<dyn View>>) -> Applier {
        let (pending, received) = (BTreeMap::new(), Received::up_to(Key::MIN));
        Applier {
            view,
            base,
            pending,
            pending_bytes: 0,
            received,
            records_progress: false,
            has_recorded_progress: false,
        }
    }

    /// Has the dataset say how far it is, so that another stream can go on from there; from
    /// `received` on, if there is some of it.
    pub(super) fn record_progress(&mut self, received: Option<Received>) {
        self.records_progress = true;
        self.received = received.unwrap_or(self.received);
    }

    /// Whether the dataset has come to say how far it is.
    pub(super) fn has_recorded_progress(&self) -> bool {
        self.has_recorded_progress
    }

    /// Takes in a put or a removal; returns whether a batch has been applied.
    pub(super) fn take(&mut self, step: Step<'_>) -> Result<bool, Error> {
        match step {
            Step::Put(put) => {
                let block = self.block_of(&put)?;
                let value = Bytes::copy_from_slice(put.value);
                self.pending_bytes += block.as_ref().map_or(0, Block::len);
                self.pending.insert(put.key, Some(Item { value, block }));
                self.received.after = put.key;
                self.received.puts += 1;
                if let StreamBlock::Content(content) = &put.block {
                    self.received.blocks += 1;
                    self.received.stored_bytes += content.stored.len() as u64;
                }
            }
            Step::Remove(key) => {
                self.pending.insert(key, None);
                self.received.after = key;
                self.received.removals += 1;
            }
            Step::End => {}
        }
        let is_full = self.pending.len() >= BATCH_EDITS_MAX || self.pending_bytes >= BATCH_BYTES;
        if is_full {
            self.flush()?;
        }
        Ok(is_full)
    }

    /// Applies what has been gathered.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        if self.records_progress {
            batch.put(POSITION_KEY, Item::plain(self.received.encode()));
        }
        for (key, item) in std::mem::take(&mut self.pending) {
            match item {
                Some(item) => batch.put(key, item),
                None => batch.remove(key),
            };
        }
        self.pending_bytes = 0;
        self.view.apply(batch)?;
        self.has_recorded_progress |= self.records_progress;
        Ok(())
    }

    fn block_of(&mut self, put: &StreamPut<'_>) -> Result<Option<Block>, Error> {
        Ok(Some(match &put.block {
            StreamBlock::None => return Ok(None),
            StreamBlock::Content(content) => fresh(put.key, content)?,
            StreamBlock::Kept => self.block_under(put.key, put.key)?,
            StreamBlock::Earlier(key) => self.share(*key, put.key)?,
            StreamBlock::OfBase(key) => self.block_of_base(*key, put.key)?,
        }))
    }

    fn current(&self, key: Key) -> Result<Option<Item>, Error> {
        match self.pending.get(&key) {
            Some(pending) => Ok(pending.clone()),
            None => Ok(self.view.get(key)?),
        }
    }

    fn block_under(&self, key: Key, of: Key) -> Result<Block, Error> {
        let block = self.current(key)?.and_then(|item| item.block);
        block.ok_or_else(|| no_block(key, of))
    }

    /// The block of another item, which is put anew: so that the pool sees both references.
    fn share(&mut self, key: Key, of: Key) -> Result<Block, Error> {
        let block = self.block_under(key, of)?;
        let item = self.current(key)?;
        self.pending.insert(key, item);
        Ok(block)
    }

    /// A block that the base has. If the item that had it there has it still, both share it. Else
    /// the dataset takes it over from the base anew.
    fn block_of_base(&mut self, key: Key, of: Key) -> Result<Block, Error> {
        let Some(base) = &self.base else { return Err(no_block(key, of)) };
        let of_base = base.get(key)?.and_then(|item| item.block);
        let of_base = of_base.ok_or_else(|| no_block(key, of))?;
        let now = self.current(key)?.and_then(|item| item.block);
        let address = address(&of_base)?;
        if let Some(now) = now
            && address.is_some()
            && self::address(&now)? == address
        {
            return self.share(key, of);
        }
        Ok(self.view.adopt(&**base, &of_base)?)
    }
}

fn no_block(key: Key, of: Key) -> Error {
    Error::Stream(format!("{of:?} is to have the block of {key:?}, and that has none"))
}

fn address(block: &Block) -> Result<Option<u64>, Error> {
    let token = match block {
        Block::Stored(token) => Some(token),
        Block::Fresh(fresh) => fresh.stored(),
    };
    let pointer = token.map(|token| decode_pointer(&token.place)).transpose()?;
    Ok(pointer.and_then(|pointer| pointer.address()))
}

/// A block with content that came along, to be stored as it was where it came from.
fn fresh(key: Key, content: &StreamContent<'_>) -> Result<Block, Error> {
    let mut data = Vec::new();
    content_of(key, content, &mut data)?;
    if content.codec == codec_id::OFF {
        let mut block = Block::fresh(data);
        block.keep_as_is();
        return Ok(block);
    }
    let form = StoredForm {
        codec: content.codec,
        checksum_kind: content.checksum.kind,
        checksum: content.checksum.bytes,
        bytes: Arc::new(content.stored.to_vec()),
    };
    Ok(Block::fresh_with_form(data, form))
}
