//! What a stream says, put into the dataset that receives it, in batches of bounded size.

use crate::Error;
use crate::reader::{Step, content_of};
use bytes::Bytes;
use marram_format::key::Key;
use marram_format::pointer::codec_id;
use marram_format::stream::{Received, StreamBlock, StreamContent, StreamPut};
use marram_store::{Batch, Block, Item, Moment, StoredForm, View};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most edits in a batch.
const BATCH_EDITS_MAX: usize = 256;
/// A batch is applied when its content has so many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// Whether a block of a dataset is the one of its base.
pub type IsSame = fn(&Block, &Block) -> Result<bool, Error>;

/// See the module.
pub struct Applier {
    view: Arc<dyn View>,
    /// What an incremental stream goes on from; it stays as it is.
    base: Option<Arc<dyn View>>,
    is_same: IsSame,
    /// The batch that is gathered; `None` where an item goes.
    pending: BTreeMap<Key, Option<Item>>,
    pending_bytes: usize,
    /// How far it is with what is gathered.
    received: Received,
    /// Where the dataset says so too, with each batch.
    position: Option<Key>,
    has_recorded_progress: bool,
    /// The history of the dataset at the first batch, in a store that others have open too.
    history: Option<u64>,
}

impl Applier {
    /// Puts what comes into `view`, which began as `base` if there is one.
    pub fn new(view: Arc<dyn View>, base: Option<Arc<dyn View>>, is_same: IsSame) -> Applier {
        let (pending, received) = (BTreeMap::new(), Received::up_to(Key::MIN));
        Applier {
            view,
            base,
            is_same,
            pending,
            pending_bytes: 0,
            received,
            position: None,
            has_recorded_progress: false,
            history: None,
        }
    }

    /// Has the dataset say how far it is, in an item of its own, so that another stream can go on
    /// from there; from `received` on, if there is some of it.
    pub fn record_progress(&mut self, position: Key, received: Option<Received>) {
        self.position = Some(position);
        self.received = received.unwrap_or(self.received);
    }

    /// Whether the dataset has come to say how far it is.
    pub fn has_recorded_progress(&self) -> bool {
        self.has_recorded_progress
    }

    /// Takes in a put or a removal; returns whether a batch has been applied.
    ///
    /// # Errors
    /// [`Error::Stream`] for a block that nothing has, or that cannot be unpacked; whatever the
    /// store refuses or fails with.
    pub fn take(&mut self, step: Step<'_>) -> Result<bool, Error> {
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
    ///
    /// # Errors
    /// Whatever the store refuses or fails with.
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let seen = self.look()?;
        let mut batch = Batch { seen, ..Batch::new() };
        if let Some(position) = self.position {
            batch.put(position, Item::plain(self.received.encode()));
        }
        for (key, item) in std::mem::take(&mut self.pending) {
            match item {
                Some(item) => batch.put(key, item),
                None => batch.remove(key),
            };
        }
        self.pending_bytes = 0;
        self.view.apply(batch)?;
        self.has_recorded_progress |= self.position.is_some();
        Ok(())
    }

    /// Applies what has been gathered, and returns when all is durable.
    ///
    /// # Errors
    /// As for [`Applier::flush`]; batches before have been lost.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.view.sync()?;
        self.look().map(|_| ())
    }

    /// Looks at what others have done. A client that was taken for lost meanwhile, and goes on, has
    /// lost what waited: then the rest of a stream is of no use.
    fn look(&mut self) -> Result<Option<Moment>, Error> {
        let Some(together) = self.view.capabilities().together else { return Ok(None) };
        let seen = together.look()?;
        match *self.history.get_or_insert(seen.history) == seen.history {
            true => Ok(Some(seen)),
            false => {
                let reason = "others have taken this host for lost meanwhile: receive it again";
                Err(Error::Unfit(reason.to_owned()))
            }
        }
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
        if let Some(now) = now
            && (self.is_same)(&now, &of_base)?
        {
            return self.share(key, of);
        }
        Ok(self.view.adopt(&**base, &of_base)?)
    }
}

fn no_block(key: Key, of: Key) -> Error {
    Error::Stream(format!("{of:?} is to have the block of {key:?}, and that has none"))
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
