//! Which database holds the place of the blocks.
//!
//! A database that was copied is two homes with one place for blocks. Each would take away the
//! files that it does not know, which the other one has put there since. So one **holds** the
//! place: a token stands there, and in a row of the database, and a new one is put at each opening
//! for writing, at the end if something was uploaded, and every few seconds behind uploads, also
//! while several clients have the store open. A database
//! that does not know the token is a copy, or an older state. The place also says which database
//! it is, as far as the engine can tell it from a copy made a moment ago.
//!
//! The row is durable before the token stands in the place, and keeps the tokens before it: a crash
//! leaves a place whose token the database knows. It is looked at again after that, since a row has
//! room for a few, and others may have put theirs meanwhile. Whatever does not hold the place puts
//! no row for what it uploads, and removes nothing there.

use crate::database::{Change, Table};
use crate::format::{Holder, HolderRow, Token, keys};
use crate::objects::Objects;
use crate::rows::Rows;
use marram_store::{Error, Result};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// How often a token is put anew while other clients put theirs.
const TRIES_MAX: usize = 100;
/// Of a database that nothing tells from a copy.
const UNKNOWN: [u8; 16] = [0; 16];

/// How a client holds the place of its blocks.
pub(crate) struct Hold {
    rows: Rows,
    /// The place, if blocks lie outside of the database.
    objects: Option<Arc<dyn Objects>>,
    /// The tokens of the row, when it was last read.
    tokens: Mutex<Vec<Token>>,
    /// Tokens that this client has put.
    count: AtomicU64,
    /// Something was uploaded since.
    has_uploaded: AtomicBool,
    database: OnceLock<[u8; 16]>,
}

impl Hold {
    pub(crate) fn new(rows: Rows, objects: Option<Arc<dyn Objects>>) -> Hold {
        Hold {
            rows,
            objects,
            tokens: Mutex::default(),
            count: AtomicU64::new(0),
            has_uploaded: AtomicBool::new(false),
            database: OnceLock::new(),
        }
    }

    /// Takes note of an upload.
    pub(crate) fn note_upload(&self) {
        self.has_uploaded.store(true, Ordering::Relaxed);
    }

    /// Refuses a place that another database holds. A place that says nothing is free.
    ///
    /// # Errors
    /// Another one holds it; the place or the database fails.
    pub(crate) fn refuse_held(&self) -> Result<()> {
        match &self.objects {
            None => Ok(()),
            Some(objects) => self.token_there(&**objects).map(|_| ()),
        }
    }

    /// The token that stands in the place, which is one of this database.
    fn token_there(&self, objects: &dyn Objects) -> Result<Option<Token>> {
        let held = |why: &str| {
            let (place, file) = (objects.place(), objects.holder_place());
            Error::Io(format!(
                "another database holds the blocks in {place}: {why}; mount that one, or bring \
                 back the blocks as they were with this one; if nothing else uses them any more, \
                 remove {file} and mount it again: blocks that this database does not know go then"
            ))
        };
        let Some(bytes) = objects.holder()? else {
            // A place that was emptied says nothing either.
            objects.probe()?;
            return Ok(None);
        };
        let there = Holder::decode(&bytes).ok_or_else(|| held("what it says is not understood"))?;
        let own = self.database_id()?;
        if ![own, UNKNOWN].contains(&there.database) && own != UNKNOWN {
            return Err(held("this one is a copy of it, or was moved"));
        }
        if self.tokens.lock().contains(&there.token) {
            return Ok(Some(there.token));
        }
        // Another client of this home may have put it.
        let HolderRow(tokens) = self.holder_row()?.1;
        let is_own = tokens.contains(&there.token);
        *self.tokens.lock() = tokens;
        match is_own {
            true => Ok(Some(there.token)),
            false => Err(held("this one is a copy or an older state of it")),
        }
    }

    fn database_id(&self) -> Result<[u8; 16]> {
        if let Some(id) = self.database.get() {
            return Ok(*id);
        }
        let said = self.rows.database().identity()?;
        let mut id = UNKNOWN;
        if !said.is_empty() {
            id.copy_from_slice(&self.rows.hash(&said)[..16]);
        }
        Ok(*self.database.get_or_init(|| id))
    }

    /// The row, and a change that sets it as it is.
    fn holder_row(&self) -> Result<(Change, HolderRow)> {
        let (rows, key) = (&self.rows, keys::HOLDER.to_vec());
        match rows.get(Table::Header, key.clone())? {
            None => Ok((Change::remove(Table::Header, key), HolderRow::default())),
            Some(value) => {
                let row = HolderRow::decode(&value)?;
                Ok((rows.put(Table::Header, key, value.to_vec()), row))
            }
        }
    }

    /// Holds the place, by a new token.
    ///
    /// # Errors
    /// Another database holds it; the place or the database fails.
    pub(crate) fn take(&self, session: [u8; 16]) -> Result<()> {
        let Some(objects) = &self.objects else { return Ok(()) };
        let mut there = self.token_there(&**objects)?;
        for _ in 0..TRIES_MAX {
            let (old, row) = self.holder_row()?;
            let token = self.new_token(session);
            let row = row.with(token, there);
            let new = self.rows.put(Table::Header, keys::HOLDER.to_vec(), row.encode());
            if !self.rows.replace(old, new)? {
                continue;
            }
            self.rows.database().settle()?;
            *self.tokens.lock() = row.0;
            let holder = Holder { token, database: self.database_id()? };
            match objects.set_holder(holder.encode().as_bytes()) {
                // What is full has to be emptied. The token that is there is one of the row.
                Err(Error::NoSpace) => return Ok(()),
                set => set?,
            }
            // Others may have put so many meanwhile that the row has let go of it.
            if self.holder_row()?.1.0.contains(&token) {
                return Ok(());
            }
            there = Some(token);
        }
        Err(Error::Overtaken)
    }

    /// The same if something was uploaded since.
    ///
    /// # Errors
    /// Those of [`Hold::take`].
    pub(crate) fn take_after_uploads(&self, session: [u8; 16]) -> Result<()> {
        match self.has_uploaded.swap(false, Ordering::Relaxed) {
            true => self.take(session).inspect_err(|_| self.note_upload()),
            false => Ok(()),
        }
    }

    /// The same, before something is removed from the place.
    ///
    /// # Errors
    /// Those of [`Hold::take`].
    pub(crate) fn take_to_remove(&self, session: [u8; 16]) -> Result<()> {
        self.take_after_uploads(session)?;
        self.refuse_held()
    }

    fn new_token(&self, session: [u8; 16]) -> Token {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let mut token = Token::default();
        let number = [&b"holder"[..], &session, &count.to_le_bytes()].concat();
        token.copy_from_slice(&self.rows.hash(&number)[..16]);
        token
    }
}
