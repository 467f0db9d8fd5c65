//! Limits of owners: what users, groups and projects use of a dataset, and may use.

use crate::control::protocol::{Answer, Owner, OwnerClass, OwnerRow};
use crate::error::Result;
use marram_posix::{self as posix, Limit, OwnerId, OwnerReport, Posix, PosixOptions};
use marram_store::{DatasetName, Source, Store};

/// Tells of all owners of a dataset or snapshot.
pub(crate) fn report(store: &dyn Store, source: &str) -> Result<Answer> {
    let owners = file_system(store, &source.parse()?)?.owners()?;
    Ok(Answer::Owners(owners.iter().map(row).collect()))
}

/// Sets what an owner may use: bytes and inodes.
pub(crate) fn set_limit(
    store: &dyn Store,
    dataset: &str,
    owner: Owner,
    (bytes, inodes): (Option<u64>, Option<u64>),
) -> Result<()> {
    let most = |limit: Option<u64>| limit.and_then(|limit| i64::try_from(limit).ok());
    let limit = Limit {
        bytes: most(bytes).unwrap_or(Limit::NONE.bytes),
        inodes: most(inodes).unwrap_or(Limit::NONE.inodes),
    };
    let class = match owner.class {
        OwnerClass::User => posix::OwnerClass::User,
        OwnerClass::Group => posix::OwnerClass::Group,
        OwnerClass::Project => posix::OwnerClass::Project,
    };
    let name: DatasetName = dataset.parse()?;
    let files = file_system(store, &Source::live(name.clone()))?;
    let owner = OwnerId { class, id: owner.id };
    Ok(files.set_limit_in(store, &name, (owner, limit))?)
}

fn file_system(store: &dyn Store, source: &Source) -> Result<Posix> {
    Ok(Posix::new(store.open(source)?, PosixOptions::default())?)
}

fn row(report: &OwnerReport) -> OwnerRow {
    let class = match report.owner.class {
        posix::OwnerClass::User => OwnerClass::User,
        posix::OwnerClass::Group => OwnerClass::Group,
        posix::OwnerClass::Project => OwnerClass::Project,
    };
    let limit = |most: i64| u64::try_from(most).ok().filter(|_| most != i64::MAX);
    OwnerRow {
        owner: Owner { class, id: report.owner.id },
        name: None,
        bytes: u64::try_from(report.usage.bytes).unwrap_or(0),
        bytes_limit: limit(report.limit.bytes),
        inodes: u64::try_from(report.usage.inodes).unwrap_or(0),
        inodes_limit: limit(report.limit.inodes),
    }
}
