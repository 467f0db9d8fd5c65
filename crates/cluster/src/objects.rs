//! Blocks outside of the database.
//!
//! The database keeps names, items, and a short row for each block; what the block is lies as an
//! **object** elsewhere. An object is written once, and durable before a row names it. Its name is
//! its own for ever ([`ObjectName`]), so no client ever removes what another has put there.
//!
//! An **upload** is a row while it is under way. Its blocks get their rows only while that row is
//! there, so objects of an upload that was given up are free to go.

use crate::database::{Database, Range, Table};
use crate::directory::Directory;
use crate::failure::damaged;
use crate::format::{BlocksPlace, Header, ObjectName, Seal, keys};
use marram_store::{Result, Space};
use std::path::Path;
use std::sync::Arc;

/// A place for objects.
///
/// # Errors
/// All of them: [`marram_store::Error::NoSpace`] if it is full, or [`marram_store::Error::Io`].
pub trait Objects: Send + Sync {
    /// Writes objects of which none is there; all of them are durable when it returns. After an
    /// error some may be there.
    fn write(&self, objects: &[(ObjectName, Vec<u8>)]) -> Result<()>;

    /// The bytes of an object; none if the place is what it was, and the object is not there.
    fn read(&self, name: &ObjectName) -> Result<Option<Vec<u8>>>;

    /// Removes an object, and what an interrupted write has left of it, if it is there.
    fn remove(&self, name: &ObjectName) -> Result<()>;

    /// The objects whose block's id begins with a byte, also those that are half written.
    fn list(&self, first: u8) -> Result<Vec<ObjectName>>;

    /// Whether the place is what it was, once something in it could not be read: an error if not.
    fn probe(&self) -> Result<()> {
        Ok(())
    }

    /// What the place says of the database that holds it; none if nothing was said.
    fn holder(&self) -> Result<Option<Vec<u8>>>;

    /// Says another thing of it, durable when this returns.
    fn set_holder(&self, said: &[u8]) -> Result<()>;

    /// Where that stands, for people.
    fn holder_place(&self) -> String;

    /// Which place it is.
    fn place(&self) -> BlocksPlace;

    /// Where an object lies, for people.
    fn locate(&self, name: &ObjectName) -> String;

    /// How much space there is, if that is known.
    fn space(&self) -> Option<Space>;
}

/// The place of a store's blocks outside of its database; none if they lie in it.
///
/// # Errors
/// It is not there, is that of another store, or cannot be read.
pub(crate) fn of_store(
    header: &Header,
    database: &dyn Database,
) -> Result<Option<Arc<dyn Objects>>> {
    if !header.has_blocks_outside {
        return Ok(None);
    }
    let found = database.read(&[Range::one(Table::Header, keys::BLOCKS)])?.concat();
    let missing = || {
        let place = "row blocks of header".to_owned();
        damaged("the header", place, "where the blocks lie is missing")
    };
    let (key, sealed) = found.first().ok_or_else(missing)?;
    let value = Seal::of(header).open(Table::Header, key, sealed)?;
    let BlocksPlace::Directory(path) = BlocksPlace::decode(value)?;
    Ok(Some(Arc::new(Directory::open(Path::new(&path), &header.id)?)))
}
