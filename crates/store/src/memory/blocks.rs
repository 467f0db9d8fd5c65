//! The blocks that a store in memory has written.

use crate::{Block, Damage, Error, FreshBlock, Result, Token};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

/// Contents by place. Blocks stay until the store goes: tests are short.
#[derive(Debug, Default)]
pub(super) struct BlockTable {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    contents: HashMap<Bytes, Bytes>,
    damaged: HashSet<Bytes>,
    next_place: u64,
}

impl State {
    fn put(&mut self, content: Bytes) -> Token {
        self.next_place += 1;
        let place = Bytes::copy_from_slice(&self.next_place.to_le_bytes());
        let len = u32::try_from(content.len()).expect("a block is at most 1 MiB");
        self.contents.insert(place.clone(), content);
        Token { place, len }
    }
}

impl BlockTable {
    /// Writes a fresh block, if that has not been done, and says where it is.
    pub(super) fn write(&self, fresh: &FreshBlock) -> Token {
        if let Some(token) = fresh.stored() {
            return token.clone();
        }
        let token = self.state.lock().put(Bytes::copy_from_slice(fresh.data()));
        fresh.set_stored(token.clone());
        token
    }

    /// The same content for another view, as a block of its own: stored if this one is.
    pub(super) fn adopt(&self, block: &Block) -> Result<Block> {
        let content = self.read(block)?;
        let is_stored = match block {
            Block::Fresh(fresh) => fresh.stored().is_some(),
            Block::Stored(_) => true,
        };
        Ok(match is_stored {
            true => Block::Stored(self.state.lock().put(content)),
            false => Block::fresh(content.to_vec()),
        })
    }

    pub(super) fn read(&self, block: &Block) -> Result<Bytes> {
        let token = match block {
            Block::Fresh(fresh) => match fresh.stored() {
                None => return Ok(fresh.bytes()),
                Some(token) => token,
            },
            Block::Stored(token) => token,
        };
        let state = self.state.lock();
        let found = state.contents.get(&token.place);
        match found.filter(|_| !state.damaged.contains(&token.place)) {
            Some(content) => Ok(content.clone()),
            None => Err(Error::Damaged(Damage {
                what: "data block",
                place: format!("place {:?}", token.place),
                reason: "checksum mismatch".to_owned(),
            })),
        }
    }

    pub(super) fn damage(&self, token: &Token) {
        self.state.lock().damaged.insert(token.place.clone());
    }
}
