//! What a file system under test may lack, and what it has to answer instead.

use crate::execute::{Resolve, Value, execute};
use crate::operation::Operation;
use marram_vfs::{Attributes, Error, FileSystem, Ino, Kind, Result, SeekTarget};

/// Whether an operation needs a capability that `real` does not have. It has to be refused with
/// [`Error::NotSupported`].
pub(crate) fn lacks(real: &dyn FileSystem, operation: &Operation) -> bool {
    let has = real.capabilities();
    match operation {
        Operation::Allocate { .. } => has.ranges.is_none(),
        Operation::CopyRange { share: true, .. } => has.sharing.is_none(),
        Operation::CopyRange { share: false, .. } => has.copying.is_none(),
        _ => false,
    }
}

/// Whether `real` shows no holes: then a file is data up to its end.
pub(crate) fn shows_no_holes(real: &dyn FileSystem) -> bool {
    real.capabilities().ranges.is_none()
}

/// What an operation gives on the model, seen as `real` can show it.
///
/// # Errors
/// What the model answers.
pub(crate) fn expected(
    real: &dyn FileSystem,
    model: &dyn FileSystem,
    operation: &Operation,
    resolve: Resolve<'_>,
) -> Result<Value> {
    match *operation {
        Operation::Seek { subject, offset, target } if shows_no_holes(real) => {
            seek_in_whole(model, resolve(subject), offset, target).map(Value::Number)
        }
        _ => execute(model, operation, resolve),
    }
}

/// Data or a hole of a file that is data up to its end.
///
/// # Errors
/// [`Error::NoSuchOffset`] past the end, [`Error::IsDirectory`].
pub(crate) fn seek_in_whole(
    files: &dyn FileSystem,
    ino: Ino,
    offset: u64,
    target: SeekTarget,
) -> Result<u64> {
    let Attributes { size, kind, .. } = files.attributes(ino)?;
    match target {
        _ if kind == Kind::Directory => Err(Error::IsDirectory),
        _ if offset >= size => Err(Error::NoSuchOffset),
        SeekTarget::Data => Ok(offset),
        SeekTarget::Hole => Ok(size),
    }
}
