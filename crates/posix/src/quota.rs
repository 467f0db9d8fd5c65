//! Limits of users, groups and projects.
//!
//! The rules are those of XFS. A limit is on what its owner's inodes use, whoever makes them
//! grow: that does not depend on who is known to have written, which for pages of a cache nobody
//! is. The owners of id 0 have no limits. To give a file to another user is root's alone, and goes
//! through also where that user, or its group, is at its limit.
//! What makes nothing grow goes through, however far above a limit an owner is.
//!
//! Pages that a cache has accepted ([`Admission::Accepted`]) were told to be written: they may
//! pass a limit, but not without end, or a shared mapping would be a way around every quota.

use crate::filesystem::Posix;
use bytes::Bytes;
use marram_format::record::{Limit, OwnerId};
use marram_records::failure::{from_record, from_store};
use marram_store::{Admission, Counter, DatasetName, Item, Key, Store, View, kind, limit_batch};
use marram_vfs::{Error, Result};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Accepted pages may pass a limit by an eighth and this many bytes.
const ACCEPTED_BYTES: i64 = 16 << 20;

/// The limits of a file system.
#[derive(Default)]
pub(crate) struct Limits {
    /// Whether there are any: mostly there are none.
    any: AtomicBool,
    by_owner: RwLock<BTreeMap<OwnerId, Limit>>,
    /// Held while they are read anew: what was read before must not come after.
    reading: Mutex<()>,
}

impl Limits {
    /// Reads the limits of a dataset.
    pub(crate) fn open(view: &dyn View) -> Result<Limits> {
        let by_owner = read(view)?;
        let any = AtomicBool::new(!by_owner.is_empty());
        Ok(Limits { any, by_owner: RwLock::new(by_owner), reading: Mutex::default() })
    }

    /// Reads them anew.
    fn reload(&self, view: &dyn View) -> Result<()> {
        let _one_at_a_time = self.reading.lock();
        let by_owner = read(view)?;
        self.any.store(!by_owner.is_empty(), Ordering::Release);
        *self.by_owner.write() = by_owner;
        Ok(())
    }

    /// The limit of an owner.
    pub(crate) fn of(&self, owner: OwnerId) -> Limit {
        self.by_owner.read().get(&owner).copied().unwrap_or(Limit::NONE)
    }

    /// All limits.
    pub(crate) fn all(&self) -> BTreeMap<OwnerId, Limit> {
        self.by_owner.read().clone()
    }

    /// Where the sums of an owner may grow to by a batch of this admission.
    pub(crate) fn at_most(&self, owner: OwnerId, admission: Admission) -> Counter {
        if admission == Admission::Freeing || !self.any.load(Ordering::Acquire) {
            return Counter::UNLIMITED;
        }
        let Limit { mut bytes, inodes } = self.of(owner);
        if admission == Admission::Accepted {
            bytes = bytes.saturating_add(bytes / 8).saturating_add(ACCEPTED_BYTES);
        }
        Counter([bytes, inodes])
    }
}

fn read(view: &dyn View) -> Result<BTreeMap<OwnerId, Limit>> {
    let mut limits = BTreeMap::new();
    let mut failure = None;
    let mut visit = |key: Key, item: &Item| {
        match (OwnerId::from_offset(key.offset), Limit::decode(&item.value)) {
            (Some(owner), Ok(limit)) => {
                limits.insert(owner, limit);
            }
            (None, Ok(_)) => failure = Some(Error::Damaged(format!("limit {key:?}"))),
            (_, Err(error)) => failure = Some(from_record(0, &error)),
        }
        failure.is_none()
    };
    let (first, last) = (Key::new(0, kind::LIMIT, 0), Key::new(0, kind::LIMIT, u64::MAX));
    view.scan(first, last, &mut visit).map_err(from_store)?;
    failure.map_or(Ok(limits), Err)
}

impl Posix {
    /// Sets what an owner may use; [`Limit::NONE`] takes its limit away. It holds from the next
    /// operation on, and may be below what the owner uses.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an owner of id 0; a failed write.
    pub fn set_limit(&self, owner: OwnerId, limit: Limit) -> Result<()> {
        let (offset, limit) = self.limit_item(owner, limit)?;
        self.view.apply(limit_batch(offset, limit)).map_err(from_store)?;
        self.reload_limits()
    }

    /// The same through the store of this file system, in which it is the dataset `name`: it is
    /// durable when this returns, and in the store's log of operations.
    ///
    /// # Errors
    /// As for [`Posix::set_limit`].
    pub fn set_limit_in(
        &self,
        store: &dyn Store,
        name: &DatasetName,
        (owner, limit): (OwnerId, Limit),
    ) -> Result<()> {
        let (offset, limit) = self.limit_item(owner, limit)?;
        store.set_owner_limit(name, offset, limit).map_err(from_store)?;
        self.reload_limits()
    }

    /// The offset and value of the item of a limit; none where there is no limit.
    fn limit_item(&self, owner: OwnerId, limit: Limit) -> Result<(u64, Option<Bytes>)> {
        self.check_writable()?;
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
    pub fn reload_limits(&self) -> Result<()> {
        self.limits.reload(&*self.view)
    }
}
