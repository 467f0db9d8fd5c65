//! Blocks outside of the database.
//!
//! The database keeps names, items, and a short row for each block; what the block is lies as an
//! **object** elsewhere. An object is written once, and durable before a row names it. Its name is
//! its own for ever ([`ObjectName`]), so no client ever removes what another has put there.
//!
//! An **upload** is a row while it is under way. Its blocks get their rows only while that row is
//! there, so objects of an upload that was given up are free to go.

use crate::bucket::{self, Bucket};
use crate::database::{Database, Range, Table};
use crate::directory::Directory;
use crate::failure::damaged;
use crate::format::{BlocksPlace, Header, ObjectName, Seal, keys};
use marram_store::{BLOCK_BYTES_MAX, Error, Result, Space};
use std::path::Path;
use std::sync::Arc;

/// The name of the marker, which says of which store the place is.
pub(crate) const MARKER: &str = "marram-blocks";
/// The name of what says which database holds the place.
pub(crate) const HOLDER: &str = "marram-blocks-holder";
/// Bytes of these at most.
pub(crate) const MARKER_BYTES_MAX: usize = 4096;
/// Bytes of an object at most: a block that nothing compresses, and what stands before it.
pub(crate) const OBJECT_BYTES_MAX: usize = BLOCK_BYTES_MAX + 16;

/// The text of a marker.
pub fn marker(store: &[u8; 16]) -> String {
    let id: String = store.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("blocks of a Marram cluster home\nversion 1\nhome {id}\n")
}

/// Where in its place an object lies.
pub(crate) fn place_of(name: &ObjectName) -> String {
    format!("{:02x}/{name}", name.block[0])
}

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

    /// Gives the place back, of a store that could not be made.
    fn discard(&self) {}
}

/// The place of a store's blocks outside of its database, and how it is reached if it is a bucket;
/// none if they lie in the database.
///
/// # Errors
/// It is not there, is that of another store, or cannot be read.
pub(crate) fn of_store(
    header: &Header,
    database: &dyn Database,
    access: Option<&bucket::Access>,
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
    Ok(Some(match BlocksPlace::decode(value)? {
        BlocksPlace::Directory(path) => Arc::new(Directory::open(Path::new(&path), &header.id)?),
        BlocksPlace::Bucket(place) => {
            let unreached = || Error::Invalid(format!("nothing says how {place} is reached"));
            let access = access.ok_or_else(unreached)?.clone();
            Arc::new(Bucket::open(place, &header.id, access)?)
        }
    }))
}
