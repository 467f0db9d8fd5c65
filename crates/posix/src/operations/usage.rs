//! What users, groups and projects use and may use, as an administrator asks for it.

use crate::volume::Volume;
use marram_format::record::{Limit, OwnerClass, OwnerId, Usage};
use marram_records::usage::{read_usage, visit_usage};
use marram_vfs::{OwnerUsage, Result, UsageOwner};
use std::collections::BTreeMap;

/// The usage of an owner, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerReport {
    /// The user, group or project.
    pub owner: OwnerId,
    /// What it uses.
    pub usage: Usage,
    /// What it may use.
    pub limit: Limit,
}

/// What one owner uses and may use.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub(crate) fn report_of(volume: &Volume, owner: OwnerId) -> Result<OwnerReport> {
    let usage = read_usage(&*volume.view, owner)?;
    Ok(OwnerReport { owner, usage, limit: volume.limits.of(owner) })
}

/// The same in the words of the contract.
pub(crate) fn usage_of(volume: &Volume, owner: UsageOwner) -> Result<OwnerUsage> {
    let (class, id) = match owner {
        UsageOwner::User(id) => (OwnerClass::User, id),
        UsageOwner::Group(id) => (OwnerClass::Group, id),
        UsageOwner::Project(id) => (OwnerClass::Project, id),
    };
    let report = report_of(volume, OwnerId { class, id })?;
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
pub(crate) fn owners(volume: &Volume) -> Result<Vec<OwnerReport>> {
    let limited = volume.limits.all().into_iter();
    let report = |(owner, limit)| (owner, OwnerReport { owner, usage: Usage::default(), limit });
    let mut reports: BTreeMap<OwnerId, OwnerReport> = limited.map(report).collect();
    visit_usage(&*volume.view, &mut |owner, usage| {
        let none = OwnerReport { owner, usage, limit: Limit::NONE };
        reports.entry(owner).or_insert(none).usage = usage;
    })?;
    Ok(reports.into_values().collect())
}
