//! What a dataset may use and has used: its quota, its reservation, what it refers to.

use marram_format::pointer::GRAIN_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a dataset may use and has used, readable without its lock. In bytes.
pub(crate) struct Allowance {
    quota: AtomicU64,
    reservation: AtomicU64,
    /// What it refers to since the last commit.
    referenced: AtomicU64,
}

impl Allowance {
    pub(crate) fn new(referenced_grains: u64) -> Allowance {
        Allowance {
            quota: AtomicU64::new(u64::MAX),
            reservation: AtomicU64::new(0),
            referenced: AtomicU64::new(referenced_grains * GRAIN_BYTES),
        }
    }

    /// The properties have been set.
    pub(crate) fn set(&self, quota: Option<u64>, reservation: Option<u64>) {
        self.quota.store(quota.unwrap_or(u64::MAX), Ordering::Release);
        self.reservation.store(reservation.unwrap_or(0), Ordering::Release);
    }

    /// A commit has been made.
    pub(crate) fn set_referenced(&self, grains: u64) {
        self.referenced.store(grains * GRAIN_BYTES, Ordering::Release);
    }

    /// Whether space is kept free for it.
    pub(crate) fn is_reserving(&self) -> bool {
        self.reservation.load(Ordering::Acquire) > 0
    }

    /// What of the reservation is not in use.
    pub(crate) fn kept_free(&self) -> u64 {
        let referenced = self.referenced.load(Ordering::Acquire);
        self.reservation.load(Ordering::Acquire).saturating_sub(referenced)
    }

    /// The most that it may refer to; the greatest number is no quota.
    pub(crate) fn quota(&self) -> u64 {
        self.quota.load(Ordering::Acquire)
    }

    /// What it refers to since the last commit.
    pub(crate) fn referenced(&self) -> u64 {
        self.referenced.load(Ordering::Acquire)
    }
}
