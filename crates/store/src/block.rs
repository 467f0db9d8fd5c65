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
    data: Content,
    /// Set once by the store when the content has been written, so that items that still hold the
    /// fresh block refer to the written one from then on.
    stored: OnceLock<Token>,
    /// It is not worth the time to compress it.
    as_is: bool,
    /// As another store had it stored.
    form: Option<StoredForm>,
}

/// Where content lies.
#[derive(Debug)]
enum Content {
    /// In memory of its own.
    Own(Vec<u8>),
    /// In a part of memory that others use too, and that nobody changes any more.
    Shared(SharedContent),
}

/// Content that lies in memory which other blocks lie in too.
#[derive(Clone, Debug)]
pub struct SharedContent {
    /// The content. As long as it is there, all of the memory is.
    pub bytes: Bytes,
    /// The content's share of the memory: with those of the other blocks it makes up the whole.
    pub held_bytes: usize,
    /// Bytes of the whole.
    pub memory_bytes: usize,
}

impl Default for Content {
    fn default() -> Content {
        Content::Own(Vec::new())
    }
}

/// Content as another store had it stored: its maker has verified that it is the content.
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
        let data = Content::Own(data);
        Block::Fresh(Arc::new(FreshBlock { data, ..FreshBlock::default() }))
    }

    /// The same for content that lies in memory which other blocks lie in too.
    pub fn fresh_in(content: SharedContent) -> Block {
        let data = Content::Shared(content);
        Block::Fresh(Arc::new(FreshBlock { data, ..FreshBlock::default() }))
    }

    /// The same for content that another store had compressed: it is stored as it was there.
    pub fn fresh_with_form(data: Vec<u8>, form: StoredForm) -> Block {
        let (data, form) = (Content::Own(data), Some(form));
        Block::Fresh(Arc::new(FreshBlock { data, form, ..FreshBlock::default() }))
    }

    /// Bytes of content.
    pub fn len(&self) -> usize {
        match self {
            Block::Fresh(fresh) => fresh.data().len(),
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
        match &self.data {
            Content::Own(data) => data,
            Content::Shared(shared) => &shared.bytes,
        }
    }

    /// The content, copied only if the block alone has the memory that it lies in.
    pub fn bytes(&self) -> Bytes {
        match &self.data {
            Content::Own(data) => Bytes::copy_from_slice(data),
            Content::Shared(shared) => shared.bytes.clone(),
        }
    }

    /// Bytes of memory that are in use for the content.
    pub fn held_bytes(&self) -> usize {
        match &self.data {
            Content::Own(data) => data.len(),
            Content::Shared(shared) => shared.held_bytes,
        }
    }

    /// How the content lies in memory that others use too, if it does: then the first patch copies
    /// it.
    pub fn shared(&self) -> Option<&SharedContent> {
        match &self.data {
            Content::Own(_) => None,
            Content::Shared(shared) => Some(shared),
        }
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
        let own = self.own_data();
        if own.len() < at {
            own.resize(at, 0);
        }
        let inside = own.len().min(end) - at;
        own[at..at + inside].copy_from_slice(&data[..inside]);
        own.extend_from_slice(&data[inside..]);
    }

    /// The content in memory of its own.
    fn own_data(&mut self) -> &mut Vec<u8> {
        if let Content::Shared(shared) = &self.data {
            self.data = Content::Own(shared.bytes.to_vec());
        }
        match &mut self.data {
            Content::Own(data) => data,
            Content::Shared(_) => unreachable!("it was copied"),
        }
    }

    /// A copy with the same content that has not been written.
    pub fn duplicate(&self) -> FreshBlock {
        let data = Content::Own(self.data().to_vec());
        FreshBlock { data, as_is: self.as_is, ..FreshBlock::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Content, FreshBlock, SharedContent};
    use bytes::Bytes;

    fn part_of(memory: &Bytes) -> SharedContent {
        SharedContent { bytes: memory.slice(..3), held_bytes: 4, memory_bytes: memory.len() }
    }

    #[test]
    fn a_patch_leaves_memory_alone_that_others_use() {
        let memory = Bytes::from(b"abcdef".to_vec());
        let data = Content::Shared(part_of(&memory));
        let mut block = FreshBlock { data, ..FreshBlock::default() };
        assert_eq!((block.data(), block.held_bytes()), (&b"abc"[..], 4));
        block.patch(1, b"WXYZ");
        assert_eq!((block.data(), block.held_bytes()), (&b"aWXYZ"[..], 5));
        assert!(block.shared().is_none());
        assert_eq!(&memory[..], b"abcdef");
    }

    #[test]
    fn content_in_shared_memory_is_read_without_a_copy() {
        let memory = Bytes::from(b"abcdef".to_vec());
        let Block::Fresh(block) = Block::fresh_in(part_of(&memory)) else { panic!("it is fresh") };
        assert_eq!(block.bytes().as_ptr(), memory.as_ptr());
        assert_eq!((block.duplicate().data(), block.duplicate().held_bytes()), (&b"abc"[..], 3));
    }

    #[test]
    fn a_patch_overwrites_extends_and_fills_gaps() {
        let mut block = FreshBlock::default();
        block.patch(2, b"cd");
        block.patch(3, b"DEF");
        block.patch(0, b"ab");
        assert_eq!(block.data(), b"abcDEF");
    }
}
