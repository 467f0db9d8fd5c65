//! Items and the blocks that they refer to.

use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// One item: a value of at most [`crate::VALUE_BYTES_MAX`] bytes and perhaps a block.
#[derive(Clone, Debug)]
pub struct Item {
    /// The value; its meaning is the caller's.
    pub value: Bytes,
    /// The block that the item refers to.
    pub block: Option<Block>,
}

impl Item {
    /// An item without a block.
    pub fn plain(value: impl Into<Bytes>) -> Item {
        Item { value: value.into(), block: None }
    }

    /// An item that refers to a block.
    pub fn with_block(value: impl Into<Bytes>, block: Block) -> Item {
        Item { value: value.into(), block: Some(block) }
    }
}

/// A reference to a block. Cloning the reference does not share the block: putting it into a
/// second item does.
#[derive(Clone, Debug)]
pub enum Block {
    /// Content in memory that no group commit has written yet.
    Fresh(Arc<FreshBlock>),
    /// Content that the store has written.
    Stored(Token),
}

/// How a store names a block that it has written: opaque to everyone else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The store's own encoding of where the block is.
    pub place: Bytes,
    /// Bytes of content.
    pub len: u32,
}

/// Content that waits to be written.
#[derive(Debug, Default)]
pub struct FreshBlock {
    data: Vec<u8>,
    /// Set once by the store when the content has been written, so that items that still hold the
    /// fresh block refer to the written one from then on.
    stored: OnceLock<Token>,
    /// It is not worth the time to compress it.
    as_is: bool,
    /// As another store had it stored.
    form: Option<StoredForm>,
}

/// Content as another store had it stored: whoever made it has verified that it is the content.
#[derive(Clone, Debug)]
pub struct StoredForm {
    /// What compressed it: an id that all versions of the store know.
    pub codec: u8,
    /// What made the checksum of the bytes: such an id too.
    pub checksum_kind: u8,
    /// Checksum of the bytes; what its kind does not use is zero.
    pub checksum: [u8; 32],
    /// The compressed bytes.
    pub bytes: Arc<Vec<u8>>,
}

impl Block {
    /// A block with this content: 1 to [`crate::BLOCK_BYTES_MAX`] bytes.
    pub fn fresh(data: Vec<u8>) -> Block {
        Block::Fresh(Arc::new(FreshBlock { data, ..FreshBlock::default() }))
    }

    /// The same for content that another store had compressed: it is stored as it was there.
    pub fn fresh_with_form(data: Vec<u8>, form: StoredForm) -> Block {
        let form = Some(form);
        Block::Fresh(Arc::new(FreshBlock { data, form, ..FreshBlock::default() }))
    }

    /// Bytes of content.
    pub fn len(&self) -> usize {
        match self {
            Block::Fresh(fresh) => fresh.data.len(),
            Block::Stored(token) => token.len as usize,
        }
    }

    /// Whether the block has no content; no block in a store is so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets the store write the content as it is, if nobody else holds the block yet.
    pub fn keep_as_is(&mut self) {
        if let Block::Fresh(fresh) = self
            && let Some(fresh) = Arc::get_mut(fresh)
        {
            fresh.as_is = true;
        }
    }

    /// Whether both refer to the same block.
    pub fn same(&self, other: &Block) -> bool {
        match (self, other) {
            (Block::Fresh(a), Block::Fresh(b)) => Arc::ptr_eq(a, b),
            (Block::Stored(a), Block::Stored(b)) => a.place == b.place,
            _ => false,
        }
    }
}

impl FreshBlock {
    /// The content.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Whether it is to be written as it is, without a try to compress it.
    pub fn is_as_is(&self) -> bool {
        self.as_is
    }

    /// How another store had it stored, if that is known.
    pub fn form(&self) -> Option<&StoredForm> {
        self.form.as_ref()
    }

    /// Where the store has written it, if it has.
    pub fn stored(&self) -> Option<&Token> {
        self.stored.get()
    }

    /// The store has written it. Later calls change nothing.
    pub fn set_stored(&self, token: Token) {
        let _first_wins = self.stored.set(token);
    }

    /// Writes `data` at `at` in the content, extending it (with zeros before `at`) when needed.
    /// For stores, on a block that nobody else holds and that has not been written.
    pub fn patch(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        assert!(end <= crate::BLOCK_BYTES_MAX, "a patch ends inside the largest block");
        self.form = None;
        if self.data.len() < at {
            self.data.resize(at, 0);
        }
        let inside = self.data.len().min(end) - at;
        self.data[at..at + inside].copy_from_slice(&data[..inside]);
        self.data.extend_from_slice(&data[inside..]);
    }

    /// A copy with the same content that has not been written.
    pub fn duplicate(&self) -> FreshBlock {
        FreshBlock { data: self.data.clone(), as_is: self.as_is, ..FreshBlock::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::FreshBlock;

    #[test]
    fn a_patch_overwrites_extends_and_fills_gaps() {
        let mut block = FreshBlock::default();
        block.patch(2, b"cd");
        block.patch(3, b"DEF");
        block.patch(0, b"ab");
        assert_eq!(block.data(), b"abcDEF");
    }
}
