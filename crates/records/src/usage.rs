//! What users, groups and projects use: kept with every change, exact after every crash.
//!
//! Each inode counts for its user, its group and its project, with the bytes that `stat` shows. A
//! change knows each inode's record from before and after, so it knows by how much the sums move,
//! and its batch adds just that to them: a sum is read from one item, however many files and
//! snapshots there are. The sums are items of the dataset like any others, so a snapshot keeps
//! those of its moment, a clone goes on from them, and a rollback takes them back.
//!
//! A dataset of format 1.1 has no sums: they are made when it is first opened for writing.

use crate::failure::{from_record, from_store};
use crate::inode::used_bytes;
use marram_format::record::{INODE_USAGE_BYTES_MAX, Inode, OwnerClass, OwnerId, Usage};
use marram_store::{Admission, Batch, Counter, Item, Key, View, kind};
use marram_vfs::{Error, Result};
use std::collections::BTreeMap;

/// What one inode counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    user: u32,
    group: u32,
    project: u32,
    bytes: i64,
    reserved: u64,
}

/// By how much the sums of owners move.
#[derive(Debug, Default)]
pub struct UsageChange {
    by_owner: Vec<(OwnerId, Usage)>,
}

/// The key of the sum of an owner.
pub fn usage_key(owner: OwnerId) -> Key {
    Key::new(0, kind::USAGE, owner.to_offset())
}

impl Share {
    /// What an inode counts for.
    pub fn of(inode: &Inode) -> Share {
        let bytes = used_bytes(inode).min(INODE_USAGE_BYTES_MAX).cast_signed();
        Share {
            user: inode.uid,
            group: inode.gid,
            project: inode.project,
            bytes,
            reserved: inode.reserved_bytes,
        }
    }

    /// Bytes that are reserved and not written.
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    fn owners(&self) -> impl Iterator<Item = OwnerId> {
        let owner = |class, id| OwnerId { class, id };
        let project = owner(OwnerClass::Project, self.project);
        [owner(OwnerClass::User, self.user), owner(OwnerClass::Group, self.group)]
            .into_iter()
            .chain((self.project != 0).then_some(project))
    }
}

impl UsageChange {
    /// An inode has changed from one share to another; `None` is no inode.
    pub fn note(&mut self, before: Option<Share>, after: Option<Share>) {
        if before == after {
            return;
        }
        if let Some(share) = before {
            self.add(share, Usage { bytes: -share.bytes, inodes: -1 });
        }
        if let Some(share) = after {
            self.add(share, Usage { bytes: share.bytes, inodes: 1 });
        }
    }

    fn add(&mut self, share: Share, by: Usage) {
        for owner in share.owners() {
            let known = self.by_owner.iter_mut().find(|(known, _)| *known == owner);
            match known {
                Some((_, usage)) => {
                    usage.bytes = usage.bytes.saturating_add(by.bytes);
                    usage.inodes += by.inodes;
                }
                None => self.by_owner.push((owner, by)),
            }
        }
    }

    /// Puts the additions into a batch. `at_most` says how far the sums of an owner may grow by a
    /// batch of its admission.
    pub fn put(&self, batch: &mut Batch<'_>, at_most: impl Fn(OwnerId, Admission) -> Counter) {
        for (owner, by) in &self.by_owner {
            if *by != Usage::default() {
                let at_most = at_most(*owner, batch.admission);
                batch.add(usage_key(*owner), Counter([by.bytes, by.inodes]), at_most);
            }
        }
    }
}

/// Counts the inodes of a dataset of format 1.1, and puts the sums into it.
///
/// # Errors
/// A failed read or write, or a record that makes no sense.
pub fn make_sums(view: &dyn View) -> Result<()> {
    let mut any = false;
    let (first, last) = (Key::new(0, kind::USAGE, 0), Key::new(0, kind::USAGE, u64::MAX));
    let mut visit = |_: Key, _: &Item| {
        any = true;
        false
    };
    view.scan(first, last, &mut visit).map_err(from_store)?;
    if any || !view.writable() {
        return Ok(());
    }
    let mut batch = Batch::new();
    for (owner, usage) in count(view)? {
        batch.put(usage_key(owner), Item::plain(usage.encode().to_vec()));
    }
    view.apply(batch).map_err(from_store)
}

/// Counts what each owner uses from the inodes that there are.
fn count(view: &dyn View) -> Result<BTreeMap<OwnerId, Usage>> {
    let mut sums: BTreeMap<OwnerId, Usage> = BTreeMap::new();
    let mut failure = None;
    let mut visit = |key: Key, item: &Item| {
        if key.kind != kind::INODE {
            return true;
        }
        match Inode::decode(&item.value) {
            Ok(inode) => {
                let share = Share::of(&inode);
                for owner in share.owners() {
                    let sum = sums.entry(owner).or_default();
                    sum.bytes = sum.bytes.saturating_add(share.bytes);
                    sum.inodes += 1;
                }
            }
            Err(error) => failure = Some(from_record(key.object, &error)),
        }
        failure.is_none()
    };
    view.scan(Key::MIN, Key::MAX, &mut visit).map_err(from_store)?;
    failure.map_or(Ok(sums), Err)
}

/// What an owner uses.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn read_usage(view: &dyn View, owner: OwnerId) -> Result<Usage> {
    let item = view.get(usage_key(owner)).map_err(from_store)?;
    item.map_or(Ok(Usage::default()), |item| decode(&item))
}

/// Visits what each owner uses: users first, then groups, then projects, each in the order of
/// their numbers.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn visit_usage(view: &dyn View, visit: &mut dyn FnMut(OwnerId, Usage)) -> Result<()> {
    let mut failure = None;
    let mut step = |key: Key, item: &Item| {
        match (OwnerId::from_offset(key.offset), decode(item)) {
            (Some(owner), Ok(usage)) => visit(owner, usage),
            (None, Ok(_)) => failure = Some(Error::Damaged(format!("usage {key:?}"))),
            (_, Err(error)) => failure = Some(error),
        }
        failure.is_none()
    };
    let (first, last) = (Key::new(0, kind::USAGE, 0), Key::new(0, kind::USAGE, u64::MAX));
    view.scan(first, last, &mut step).map_err(from_store)?;
    failure.map_or(Ok(()), Err)
}

fn decode(item: &Item) -> Result<Usage> {
    Usage::decode(&item.value).map_err(|error| from_record(0, &error))
}
