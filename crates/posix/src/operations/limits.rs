//! Setting what users, groups and projects may use.

use crate::frame::together;
use crate::volume::Volume;
use crate::volume::seen::apply;
use bytes::Bytes;
use marram_format::record::{Limit, OwnerId};
use marram_records::failure::from_store;
use marram_store::{DatasetName, Store, limit_batch};
use marram_vfs::{Error, Result};

/// Sets what an owner may use; [`Limit::NONE`] takes its limit away. It holds from the next
/// operation on, and may be below what the owner uses.
///
/// # Errors
/// [`Error::InvalidArgument`] for an owner of id 0; a failed write.
pub(crate) fn set_limit(volume: &Volume, owner: OwnerId, limit: Limit) -> Result<()> {
    let (offset, limit) = limit_item(volume, owner, limit)?;
    together::changing(volume, || {
        let batch = limit_batch(offset, limit.clone());
        apply(&*volume.view, batch).map_err(from_store)
    })?;
    reload_limits(volume)
}

/// The same through the store of this file system, in which it is the dataset `name`: it is
/// durable when this returns, and in the store's log of operations.
///
/// # Errors
/// As for [`set_limit`].
pub(crate) fn set_limit_in(
    volume: &Volume,
    store: &dyn Store,
    name: &DatasetName,
    (owner, limit): (OwnerId, Limit),
) -> Result<()> {
    let (offset, limit) = limit_item(volume, owner, limit)?;
    store.set_owner_limit(name, offset, limit).map_err(from_store)?;
    reload_limits(volume)
}

/// The offset and value of the item of a limit; none where there is no limit.
fn limit_item(volume: &Volume, owner: OwnerId, limit: Limit) -> Result<(u64, Option<Bytes>)> {
    volume.check_writable()?;
    if owner.id == 0 {
        return Err(Error::InvalidArgument("owners of id 0 have no limits"));
    }
    let value = || Bytes::copy_from_slice(&limit.encode());
    Ok((owner.to_offset(), (limit != Limit::NONE).then(value)))
}

/// Takes note of limits that have been set through another view of the dataset.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub(crate) fn reload_limits(volume: &Volume) -> Result<()> {
    volume.limits.reload(&*volume.view)
}
