//! What users, groups and projects use: kept with every change, exact after every crash.
//!
//! Each inode counts for its user, its group and its project, with the bytes that `stat` tells. A
//! change knows each inode's record from before and after, so it knows by how much the sums move,
//! and its batch adds just that to them: whoever reads a sum reads one item, however many files
//! and snapshots there are. The sums are items of the dataset like any others, so a snapshot keeps
//! those of its moment, a clone goes on from them, and a rollback takes them back.
//!
//! A dataset of format 1.1 has no sums: they are made when it is first opened for writing.

use crate::change::Change;
use crate::failure::{from_record, from_store};
use crate::filesystem::Posix;
use crate::inode::used_bytes;
use crate::quota::Limits;
use marram_format::record::{INODE_USAGE_BYTES_MAX, Inode, Limit, OwnerClass, OwnerId, Usage};
use marram_store::{Batch, Counter, Item, Key, View, kind};
use marram_vfs::{Error, OwnerUsage, Result, UsageOwner};
use std::collections::BTreeMap;

/// Who uses how much, and may use how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerReport {
    /// The user, group or project.
    pub owner: OwnerId,
    /// What it uses.
    pub usage: Usage,
    /// What it may use.
    pub limit: Limit,
}

/// What one inode counts for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    user: u32,
    group: u32,
    project: u32,
    bytes: i64,
    reserved: u64,
}

/// By how much the sums of owners move.
#[derive(Default)]
pub(crate) struct UsageChange {
    by_owner: Vec<(OwnerId, Usage)>,
}

pub(crate) fn usage_key(owner: OwnerId) -> Key {
    Key::new(0, kind::USAGE, owner.to_offset())
}

impl Share {
    pub(crate) fn of(inode: &Inode) -> Share {
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
    pub(crate) fn reserved_bytes(&self) -> u64 {
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
    pub(crate) fn note(&mut self, before: Option<Share>, after: Option<Share>) {
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

    /// Puts the additions into a batch. Its admission says how strict limits are.
    pub(crate) fn put(&self, limits: &Limits, lifted: bool, batch: &mut Batch<'_>) {
        for (owner, by) in &self.by_owner {
            if *by != Usage::default() {
                let at_most = match lifted {
                    true => Counter::UNLIMITED,
                    false => limits.at_most(*owner, batch.admission),
                };
                batch.add(usage_key(*owner), Counter([by.bytes, by.inodes]), at_most);
            }
        }
    }
}

/// Counts the inodes of a dataset of format 1.1, and puts the sums into it.
pub(crate) fn make_sums(view: &dyn View) -> Result<()> {
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

impl Change<'_, '_> {
    /// By how much the change moves the sums.
    pub(crate) fn usage_change(&self) -> UsageChange {
        let mut usage = UsageChange::default();
        for (_, before, after) in self.shares() {
            usage.note(before, after);
        }
        usage
    }
}

impl Posix {
    /// What one owner uses and may use.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn owner(&self, owner: OwnerId) -> Result<OwnerReport> {
        let item = self.view.get(usage_key(owner)).map_err(from_store)?;
        let usage = item.map_or(Ok(Usage::default()), |item| decode(&item))?;
        Ok(OwnerReport { owner, usage, limit: self.limits.of(owner) })
    }

    /// The same in the words of the contract.
    pub(crate) fn usage_of(&self, owner: UsageOwner) -> Result<OwnerUsage> {
        let (class, id) = match owner {
            UsageOwner::User(id) => (OwnerClass::User, id),
            UsageOwner::Group(id) => (OwnerClass::Group, id),
            UsageOwner::Project(id) => (OwnerClass::Project, id),
        };
        let report = self.owner(OwnerId { class, id })?;
        let used = |used: i64| u64::try_from(used).unwrap_or(0);
        let limit = |most: i64| u64::try_from(most).ok().filter(|_| most != i64::MAX);
        Ok(OwnerUsage {
            bytes: used(report.usage.bytes),
            bytes_limit: limit(report.limit.bytes),
            inodes: used(report.usage.inodes),
            inodes_limit: limit(report.limit.inodes),
        })
    }

    /// All owners that use something or have a limit: users first, then groups, then projects,
    /// each in the order of their numbers.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn owners(&self) -> Result<Vec<OwnerReport>> {
        let limited = self.limits.all().into_iter();
        let report =
            |(owner, limit)| (owner, OwnerReport { owner, usage: Usage::default(), limit });
        let mut reports: BTreeMap<OwnerId, OwnerReport> = limited.map(report).collect();
        let mut failure = None;
        let mut visit = |key: Key, item: &Item| {
            match (OwnerId::from_offset(key.offset), decode(item)) {
                (Some(owner), Ok(usage)) => {
                    let none = OwnerReport { owner, usage, limit: Limit::NONE };
                    reports.entry(owner).or_insert(none).usage = usage;
                }
                (None, Ok(_)) => failure = Some(Error::Damaged(format!("usage {key:?}"))),
                (_, Err(error)) => failure = Some(error),
            }
            failure.is_none()
        };
        let (first, last) = (Key::new(0, kind::USAGE, 0), Key::new(0, kind::USAGE, u64::MAX));
        self.view.scan(first, last, &mut visit).map_err(from_store)?;
        failure.map_or(Ok(reports.into_values().collect()), Err)
    }
}

fn decode(item: &Item) -> Result<Usage> {
    Usage::decode(&item.value).map_err(|error| from_record(0, &error))
}
