//! One dataset, live or as a snapshot kept it.

use crate::{Batch, Block, Error, Item, Key, Properties, Result};
use bytes::Bytes;

/// What a request wants of a block, and where in its answer.
#[derive(Clone, Copy, Debug)]
pub struct Part<'b> {
    /// The block.
    pub block: &'b Block,
    /// Where in its content the part begins.
    pub from: usize,
    /// Bytes of it.
    pub len: usize,
    /// Where in the answer it begins: where the part before ends, or behind that.
    pub at: usize,
    /// Much goes by here that nobody is likely to ask for again: the store need not keep it in
    /// memory.
    pub passes_by: bool,
}

/// A part of a request that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its number among the parts, from 0 on.
    pub number: usize,
    /// Why.
    pub error: Error,
}

impl Part<'_> {
    /// Whether it is all of the content.
    pub fn is_whole(&self) -> bool {
        self.from == 0 && self.len == self.block.len()
    }

    /// Appends it, from the whole content.
    ///
    /// # Panics
    /// When it does not lie within the content.
    pub fn append(&self, content: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&content[self.from..self.from + self.len]);
    }
}

/// How much space a view's store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Size of the store in bytes, without what it keeps for itself.
    pub total_bytes: u64,
    /// Bytes that batches can still take.
    pub free_bytes: u64,
}

/// Where a block is: for people, and for whoever wants a block of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Number of the device and byte on it where the first copy begins; none of a block that has
    /// not been written, or that lies beside its item.
    pub address: Option<(u16, u64)>,
    /// Byte on that device behind the first copy, if it lies in one piece.
    pub end_address: Option<u64>,
    /// Pieces that the first copy lies in; 0 without an address.
    pub pieces: u64,
    /// Bytes that all copies take in the store.
    pub stored_bytes: u64,
    /// More than one item of the dataset refers to it; of a block that has not been written that
    /// may be so.
    pub may_be_shared: bool,
}

impl BlockPlace {
    /// Of a block that has no place on a device, or whose place its store cannot tell.
    pub fn in_memory(stored_bytes: u64) -> BlockPlace {
        let (address, end_address) = (None, None);
        BlockPlace { address, end_address, pieces: 0, stored_bytes, may_be_shared: true }
    }
}

/// What holds a block, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Names the block in the store: no two that are in use have the same.
    pub address: u64,
    /// With the address, names it in its dataset: a block that the dataset has adopted is given
    /// back apart from the same block of old. 0 of one that was not adopted.
    pub adopted: u64,
    /// Bytes that all copies take.
    pub stored_bytes: u64,
    /// Items of the dataset that refer to it under this name.
    pub references: u64,
    /// How many have to give it back before it is free: one for each name in each dataset.
    pub owners: u64,
    /// Whether the dataset gives it back as soon as none of its items refers to it: no snapshot
    /// has it.
    pub comes_back: bool,
}

/// An ordered map of items. All methods may be called from many threads; `apply` is the only
/// change, and what it changed is seen by every call that starts after it returned.
pub trait View: Send + Sync {
    /// The item under `key`.
    fn get(&self, key: Key) -> Result<Option<Item>>;

    /// Visits the items from `from` to `to`, both included, in key order, until the visitor
    /// returns false. Items that are there during the whole scan are visited exactly once. The
    /// visitor must not call the view.
    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()>;

    /// The item with the greatest key from `from` to `to`, both included.
    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>>;

    /// Applies a batch.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], [`crate::Error::ReadOnly`], [`crate::Error::NotFresh`],
    /// [`crate::Error::LimitExceeded`], or a failed read; then nothing of the batch has been
    /// applied.
    fn apply(&self, batch: Batch<'_>) -> Result<()>;

    /// How many bytes whoever has this view has promised to those who will write them. So many, and
    /// what items for them need, are kept back from batches of this and of all other views, but
    /// for those that use them up ([`Batch::promised_bytes`]) or free space; and they are not told
    /// as free. It is a number in memory: the next one takes its place, and it goes with the view.
    /// A store that has no bounds need not listen.
    fn promise(&self, _bytes: u64) {}

    /// Whether a batch would be refused now, as a merge, for want of space or over a limit; applies
    /// nothing. What is kept only until somebody needs the space counts as free. A store that
    /// cannot tell says that it would not.
    ///
    /// # Errors
    /// Those that the merge would give.
    fn foresee(&self, _batch: Batch<'_>) -> Result<()> {
        Ok(())
    }

    /// The whole content of a block, verified.
    fn read_block(&self, block: &Block) -> Result<Bytes>;

    /// Appends the parts of one request to its answer, in their order and verified; what lies
    /// between them is zeros. A store may read them in fewer steps than one by one. All contents
    /// may be in memory at once beside the answer, so the caller bounds their sum.
    ///
    /// # Errors
    /// The first part that cannot be read. Then whatever was appended means nothing, and the caller
    /// takes it away: there may be bytes that did not stand the test.
    fn read_parts(&self, parts: &[Part<'_>], out: &mut Vec<u8>) -> std::result::Result<(), Unread> {
        for (number, part) in parts.iter().enumerate() {
            let content = self.read_block(part.block).map_err(|error| Unread { number, error })?;
            out.resize(part.at, 0);
            part.append(&content, out);
        }
        Ok(())
    }

    /// As [`View::read_block`], from the device even if the content is in memory: for whoever is
    /// going to let go of another copy of it.
    ///
    /// # Errors
    /// A failed read.
    fn read_block_anew(&self, block: &Block) -> Result<Bytes> {
        self.read_block(block)
    }

    /// A block of another view of the same store, made fit to be put into a batch of this one:
    /// the store shares what it can. What `from` holds must stay until the batch has been applied:
    /// it is a snapshot that stays open, or nobody changes meanwhile the items that refer to the
    /// block. Within the dataset the block is a new one, not the same as any that it has.
    ///
    /// # Errors
    /// A failed read.
    fn adopt(&self, from: &dyn View, block: &Block) -> Result<Block> {
        Ok(Block::fresh(from.read_block(block)?.to_vec()))
    }

    /// Bytes that a stored block takes in the store (a fresh one: its length).
    fn stored_bytes(&self, block: &Block) -> u64;

    /// Where a block is. A store that cannot tell says that it may be shared.
    fn place_of(&self, block: &Block) -> BlockPlace {
        BlockPlace::in_memory(self.stored_bytes(block))
    }

    /// Whether nothing but the items under these keys holds a block, so that its space comes back
    /// when they let go of it: no other item, no snapshot, no other dataset. It is told of the
    /// last commit: while one of the items has changed since, the answer is no, and so it is
    /// always of a store that cannot tell.
    ///
    /// # Errors
    /// A failed read.
    fn is_held_only_by(&self, _block: &Block, _keys: &[Key]) -> Result<bool> {
        Ok(false)
    }

    /// What holds a block of a view of [`crate::Store::frozen`]; `None` of a block that takes no
    /// place of its own, and from a view that cannot tell.
    ///
    /// # Errors
    /// A failed read.
    fn holding(&self, _block: &Block) -> Result<Option<Holding>> {
        Ok(None)
    }

    /// Returns when all batches that were applied before are durable.
    fn sync(&self) -> Result<()>;

    /// As [`View::sync`]; and the space that those batches freed can be used, and is told as free.
    ///
    /// # Errors
    /// As for [`View::sync`].
    fn commit(&self) -> Result<()> {
        self.sync()
    }

    /// Tells the devices below which bytes hold nothing any more: those between the bytes `from`
    /// and `to` of a device, in runs of at least `min_bytes`. How many they were; `None` if the
    /// store does not do that.
    ///
    /// # Errors
    /// As for [`View::commit`], or a device failed.
    fn trim(&self, _from: u64, _to: u64, _min_bytes: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    /// What the store as a whole is called; `None` of one that has no label, not even an empty one.
    fn label(&self) -> Option<String> {
        None
    }

    /// Gives the store a label for a user, which is durable when this returns. A store that keeps a
    /// log of operations enters it in the same step.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is too long, or the store has none; otherwise as for
    /// [`View::commit`].
    fn set_label(&self, label: &str, _user: u32) -> Result<()> {
        Err(crate::Error::Invalid(format!("this store takes no label, so not {label:?}")))
    }

    /// The store of this view takes no more changes and writes nothing more, as if the power were
    /// cut now: what is not durable yet will be gone when it is opened again. Reads go on working;
    /// a sync fails with [`crate::Error::Io`].
    fn halt(&self);

    /// How much space the store has.
    fn space(&self) -> Space;

    /// Whether `apply` can work at all.
    fn writable(&self) -> bool;

    /// The properties in force.
    fn properties(&self) -> Properties;
}
