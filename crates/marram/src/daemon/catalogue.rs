//! What the pool has for the shelves of a mount: the snapshots of its dataset, and the forks that
//! began as it or as one of those.

use super::namespace::{Catalogue, Opened, Shelf};
use super::{Daemon, mounts::Borrowed};
use crate::error::Kind;
use crate::options::{AccessTimes, MountOptions};
use marram_store::{DatasetName, DatasetReport, Source, Store};
use marram_vfs::{Error, Ino, Result};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

/// Forks of forks of forks that a name is followed through.
const FORK_DEPTH_MAX: usize = 1 << 20;

/// The members of one mount.
pub(super) struct PoolCatalogue {
    daemon: Weak<Daemon>,
    dataset: DatasetName,
    options: MountOptions,
    access_times: AccessTimes,
}

impl PoolCatalogue {
    /// The members of a mount of `dataset`, whose forks are opened as the mount is.
    pub(super) fn new(
        daemon: &Arc<Daemon>,
        dataset: &DatasetName,
        options: &MountOptions,
        access_times: AccessTimes,
    ) -> PoolCatalogue {
        PoolCatalogue {
            daemon: Arc::downgrade(daemon),
            dataset: dataset.clone(),
            options: options.clone(),
            access_times,
        }
    }

    fn daemon(&self) -> Result<Arc<Daemon>> {
        self.daemon.upgrade().ok_or(Error::Stale)
    }

    /// What stands on a shelf under a name. Looks at nothing but that and what it began as: there
    /// may be thousands beside it.
    fn find(&self, pool: &dyn Store, shelf: Shelf, name: &str) -> Result<DatasetReport> {
        if shelf == Shelf::Snapshots {
            let report = report_of(pool, &format!("{}@{name}", self.dataset))?;
            return Some(report).filter(|report| !report.source.is_own()).ok_or(Error::NotFound);
        }
        let found = report_of(pool, name)?;
        let mut at = found.clone();
        for _ in 0..FORK_DEPTH_MAX {
            let Some(origin) = at.origin.as_ref().filter(|_| is_fork(&at)) else { break };
            if origin.dataset == self.dataset {
                return Ok(found);
            }
            at = report_of(pool, origin.dataset.as_str())?;
        }
        Err(Error::NotFound)
    }

    fn reports(&self, shelf: Shelf) -> Result<Vec<DatasetReport>> {
        let all = self.daemon()?.pool.pool().list().map_err(failure)?;
        Ok(match shelf {
            Shelf::Snapshots => {
                let is_shown = |report: &DatasetReport| {
                    let source = &report.source;
                    source.dataset == self.dataset && source.snapshot.is_some() && !source.is_own()
                };
                all.into_iter().filter(is_shown).collect()
            }
            Shelf::Forks => forks_of(&self.dataset, all),
        })
    }
}

/// The report of one dataset or snapshot.
fn report_of(pool: &dyn Store, name: &str) -> Result<DatasetReport> {
    let source: Source = name.parse().map_err(|_| Error::NotFound)?;
    pool.report(&source).map_err(failure)
}

/// The forks of a dataset, and the forks of those.
fn forks_of(dataset: &DatasetName, all: Vec<DatasetReport>) -> Vec<DatasetReport> {
    let mut parents = BTreeSet::from([dataset.clone()]);
    let mut forks: Vec<DatasetReport> = Vec::new();
    let mut rest: Vec<DatasetReport> = all.into_iter().filter(is_fork).collect();
    loop {
        let began = |report: &DatasetReport| {
            report.origin.as_ref().is_some_and(|origin| parents.contains(&origin.dataset))
        };
        let (found, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(began);
        if found.is_empty() {
            break;
        }
        parents = found.iter().map(|report| report.source.dataset.clone()).collect();
        forks.extend(found);
        rest = others;
    }
    forks
}

/// Whether it is a fork, and not a clone of a snapshot that somebody made.
pub(super) fn is_fork(report: &DatasetReport) -> bool {
    let is_live = report.source.snapshot.is_none();
    is_live && report.origin.as_ref().is_some_and(Source::is_fork_base)
}

/// The name that a member is shown by.
fn name_of(shelf: Shelf, report: &DatasetReport) -> &str {
    match shelf {
        Shelf::Snapshots => report.source.snapshot.as_deref().unwrap_or_default(),
        Shelf::Forks => report.source.dataset.as_str(),
    }
}

impl Catalogue for PoolCatalogue {
    fn names(&self, shelf: Shelf) -> Result<Vec<String>> {
        let reports = self.reports(shelf)?;
        Ok(reports.iter().map(|report| name_of(shelf, report).to_owned()).collect())
    }

    fn open(&self, shelf: Shelf, name: &str) -> Result<Opened> {
        let daemon = self.daemon()?;
        let report = self.find(daemon.pool.pool().as_ref(), shelf, name)?;
        let (source, root) = (report.source.clone(), Ino(report.root_object));
        daemon.mounts.refuse_withheld(&source)?;
        let hold: Option<Borrowed> = match shelf {
            Shelf::Snapshots => None,
            Shelf::Forks => Some(Borrowed::take(&daemon, &source)?),
        };
        let access_times = match shelf {
            Shelf::Snapshots => AccessTimes::Never,
            Shelf::Forks => self.access_times,
        };
        let files = daemon.file_system(&source, root, access_times, &self.options);
        let files = files.map_err(|error| match error.kind {
            // It went since it was found.
            Kind::NotFound => Error::NotFound,
            _ => Error::Io(error.to_string()),
        })?;
        let mark = mark(&report);
        Ok(Opened { source, files: Arc::new(files), root, mark, _hold: Box::new(hold) })
    }
}

/// A number that another dataset or snapshot, or another of the same name, hardly has.
fn mark(report: &DatasetReport) -> u32 {
    const PRIME: u32 = 0x0100_0193;
    let name = report.source.to_string();
    let bytes = name.bytes().chain(report.created_seconds.to_le_bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME))
}

fn failure(error: marram_store::Error) -> Error {
    match error {
        marram_store::Error::NoDataset(_) => Error::NotFound,
        other => Error::Io(other.to_string()),
    }
}
