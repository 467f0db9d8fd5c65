//! Limits of users, groups and projects.
//!
//! The rules are those of XFS. A limit is on what its owner's inodes use, whichever user makes them
//! grow: the writer is not always known, as for pages of a cache. Owners of id 0 have no limits.
//! To give a file to another user is root's alone, and goes through also where that user, or its
//! group, is at its limit. What makes nothing grow goes through, however far above a limit an owner
//! is.
//!
//! Pages that a cache has accepted ([`Admission::Accepted`]) were acknowledged as written: they may
//! pass a limit, but not without end, or a shared mapping would be a way around every quota.

use marram_format::record::{Limit, OwnerId};
use marram_records::failure::{from_record, from_store};
use marram_store::{Admission, Counter, Item, Key, View, kind};
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
    pub(crate) fn reload(&self, view: &dyn View) -> Result<()> {
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
