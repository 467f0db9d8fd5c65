//! One mount: what it shows, where it is seen, and the way to the kernel.

use crate::control::protocol::MountReport;
use crate::daemon::loop_device::LoopDevice;
use crate::daemon::namespace::Namespace;
use crate::options::AccessTimes;
use marram_fuse::SessionHandle;
use marram_store::Source;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A mount that is being served.
pub(super) struct Mounted {
    /// Its row in reports.
    pub(super) report: MountReport,
    /// The dataset or snapshot.
    pub(super) source: Source,
    /// What it shows.
    pub(super) namespace: Arc<Namespace>,
    /// The way to the kernel.
    pub(super) session: SessionHandle,
    /// Nobody has it any more, as the kernel says of mounts of block devices.
    pub(super) destroyed: Arc<AtomicBool>,
    /// When reading a file moves its access time.
    pub(super) access_times: AccessTimes,
    /// Where else it has been mounted.
    pub(super) elsewhere: Mutex<Vec<MountReport>>,
    pub(super) _loop_device: Option<LoopDevice>,
}

/// A mount: what it shows, and the way to the kernel.
pub(in crate::daemon) struct Served {
    /// The dataset or snapshot.
    pub(in crate::daemon) source: Source,
    /// With what belongs to it.
    pub(in crate::daemon) namespace: Arc<Namespace>,
    /// The way to the kernel.
    pub(in crate::daemon) session: SessionHandle,
    /// Where it is.
    pub(in crate::daemon) directory: PathBuf,
    /// The kernel gathers what is written, and has lengths and times of its own.
    pub(in crate::daemon) writeback: bool,
}

impl Mounted {
    /// The places that it was mounted in and is still seen in; if none is, the first.
    pub(super) fn reports(&self) -> Vec<MountReport> {
        if !self.session.is_served() {
            let report = self.report.clone();
            return vec![MountReport { device: None, has_ended: true, ..report }];
        }
        let mut elsewhere = self.elsewhere.lock();
        if elsewhere.is_empty() {
            return vec![self.report.clone()];
        }
        elsewhere.retain(|report| self.session.is_on(&report.directory));
        let mut reports = elsewhere.clone();
        let first = &self.report.directory;
        // It may have been mounted there anew.
        let is_told = reports.iter().any(|report| report.directory == *first);
        if !is_told && (reports.is_empty() || self.session.is_on(first)) {
            reports.insert(0, self.report.clone());
        }
        reports
    }

    /// Whether it was mounted on `directory`.
    pub(super) fn is_at(&self, directory: &Path) -> bool {
        let elsewhere = || self.elsewhere.lock().iter().any(|one| one.directory == directory);
        self.report.directory == directory || elsewhere()
    }

    /// Whether it can be seen in a place that it was mounted in, besides `directory`.
    pub(super) fn is_seen_beside(&self, directory: &Path) -> bool {
        let elsewhere = self.elsewhere.lock();
        let mut places = elsewhere.iter().chain([&self.report]);
        places.any(|report| report.directory != directory && self.session.is_on(&report.directory))
    }
}
