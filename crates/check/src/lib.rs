//! The offline verifier of a pool.
//!
//! It shares the format with the engine, and nothing else: no tree, no allocation, no commit. So
//! what the engine does wrong cannot hide here by being done wrong twice. It writes nothing.
//!
//! [`check`] looks at everything that can be reached: superblocks, the intent log, the pool's own
//! tree, the tree of every dataset and snapshot, each file system in them, and compares what is
//! reached with what is recorded. What is wrong comes out as a [`Finding`]; `docs/check.md` lists
//! the kinds. [`FileSystemItems`] looks at one file system, wherever its items are stored. An image
//! of a pmem home is looked at by a module of its own, `pmem`.
//!
//! **Any image gets an answer.** Every walk is bounded by levels and keys, every length by the
//! format, and memory by one bit for a grain that is in use, some tens of bytes for an inode of one
//! dataset at a time or for an item in the intent log, and the datasets' records.

mod block_set;
mod blocks;
mod checker;
mod dataset;
mod error;
mod finding;
mod grains;
mod graph;
mod log;
mod operations;
mod owners;
mod pmem;
mod pool;
mod reporter;
mod space;
mod summary;
mod superblocks;
mod tree;

use crate::blocks::Blocks;
use crate::checker::Checker;
use crate::finding::Place;
use crate::owners::Owners;
use crate::reporter::Reporter;
use crate::space::Space;
use marram_device::Device;
use marram_format::pointer::{DEVICE_GRAINS_MAX, GRAIN_BYTES};
use marram_format::version::feature;

pub use dataset::{FileFault, FileItem, FileSystemItems, InodeCounts};
pub use error::Error;
pub use finding::{Finding, FindingKind, Place as FindingPlace, Severity};
pub use reporter::FINDINGS_PER_KIND_MAX;
pub use summary::Summary;

/// How thorough a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckOptions {
    /// Verify every copy of every block of content, too. Metadata is always verified.
    pub read_data: bool,
    /// Look at the file system in every snapshot, not only in datasets. Space is checked for all.
    pub snapshots: bool,
}

impl Default for CheckOptions {
    fn default() -> Self {
        CheckOptions { read_data: false, snapshots: true }
    }
}

/// Checks the pool, or the image of a pmem home, on a device, which nobody else may write to
/// meanwhile. Each finding is handed to `report` as soon as it is known; further ones of a kind are
/// only counted after [`FINDINGS_PER_KIND_MAX`].
///
/// # Errors
/// There is no pool, or one that this program does not know. Damage is no error but a finding.
pub fn check(
    device: &dyn Device,
    options: &CheckOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<Summary, Error> {
    if pmem::is_image(device) {
        return check_image(device, options, None, report);
    }
    let mut report = Reporter::new(report);
    let Some(superblock) = superblocks::newest(device, &mut report)? else {
        return Ok(finished(Summary::default(), &report));
    };
    let size_bytes = superblock.devices.first().map_or(0, |device| device.size_bytes);
    let total_grains = size_bytes.min(device.size()?) / GRAIN_BYTES;
    let mut checker = Checker {
        options: *options,
        blocks: Blocks::new(device),
        report,
        space: Space::new(total_grains),
        summary: Summary {
            pool_id: superblock.pool_id,
            label: superblock.label.clone(),
            group: superblock.group.0,
            ..Summary::default()
        },
        complete: true,
        owners: Owners::default(),
        foreign_below: if superblock.features_read_compatible & feature::OWNERS == 0 {
            0
        } else {
            superblock.next_dataset
        },
        may_be_scattered: superblock.features_incompatible & feature::SCATTERED != 0,
        may_be_owned: superblock.features_read_compatible & feature::OWNERS != 0,
        lookup_nodes_left: tree::ALL_LOOKUP_NODES_MAX,
    };
    let log = log::read_head(&mut checker, &superblock);
    let pool = pool::read(&mut checker, &superblock);
    if let Some(log) = &log {
        log::check(&mut checker, device, &superblock, log, &pool);
    }
    graph::check(&mut checker, &pool, superblock.next_dataset);
    operations::check(&mut checker, &pool, &superblock);
    dataset::check_all(&mut checker, &pool);
    check_owners(&mut checker);
    check_leaks(&mut checker);
    let Checker { space, mut summary, report, .. } = checker;
    summary.used_bytes = space.reached_grains() * GRAIN_BYTES;
    Ok(finished(summary, &report))
}

/// Checks the image of a pmem home. One that was not closed is looked at as it is if the live state
/// is right for `host`, the run of the machine, and else as it was at its last checkpoint.
///
/// # Errors
/// As [`check`].
pub fn check_image(
    device: &dyn Device,
    options: &CheckOptions,
    host: Option<u64>,
    report: &mut dyn FnMut(Finding),
) -> Result<Summary, Error> {
    pmem::check(device, options, host, report)
}

/// Every owner has been met that can be met.
fn check_owners(checker: &mut Checker<'_>) {
    if !checker.complete {
        return;
    }
    for (address, recorded, met) in checker.owners.wrong() {
        // The device's number is in the bits above.
        let place = Place::device((address & (DEVICE_GRAINS_MAX - 1)) * GRAIN_BYTES);
        let detail = format!("{recorded} owners recorded, {met} found");
        checker.report.report(FindingKind::OwnersCount, place, detail);
    }
}

/// Everything has been met that can be met.
fn check_leaks(checker: &mut Checker<'_>) {
    let leaks = checker.space.leaks();
    if checker.complete {
        for run in leaks {
            let place = Place::device(run.start * GRAIN_BYTES);
            let detail = format!("{} grains, {} bytes", run.grains, run.grains * GRAIN_BYTES);
            checker.report.report(FindingKind::SpaceLeak, place, detail);
        }
    } else {
        let grains: u64 = leaks.iter().map(|run| run.grains).sum();
        let detail = format!("whether {grains} grains are in use rightly");
        checker.report.report(FindingKind::Unchecked, Place::pool(), detail);
    }
}

fn finished(mut summary: Summary, report: &Reporter<'_>) -> Summary {
    summary.codes = report.codes();
    summary.warnings = report.count(Severity::Warning);
    summary.errors = report.count(Severity::Error);
    summary.fatal = report.count(Severity::Fatal);
    summary
}
