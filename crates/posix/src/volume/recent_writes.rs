//! Ranges that have just been written, for deduplication (`dedup=on`).
//!
//! A write leaves a note of its range, and pays no more than that; where the property is off, it
//! looks at one flag. Notes are bounded and in memory only: a lost note is a chance to save.

use marram_store::Properties;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Most ranges that are noted; further ones are not looked at.
const NOTES_MAX: usize = 1 << 16;

/// Ranges of files that were written and have not been looked at yet.
#[derive(Default)]
pub(crate) struct RecentWrites {
    is_wanted: AtomicBool,
    /// Where a range ends, by inode and where it begins.
    notes: Mutex<BTreeMap<(u64, u64), u64>>,
    missed: AtomicU64,
}

impl RecentWrites {
    pub(crate) fn of(properties: &Properties) -> RecentWrites {
        let recent = RecentWrites::default();
        recent.set(properties);
        recent
    }

    /// The property may have been set.
    pub(crate) fn set(&self, properties: &Properties) {
        let is_wanted = properties.0.get("dedup").is_some_and(|value| value == "on");
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
        if !is_wanted {
            self.notes.lock().clear();
        }
    }

    /// A range has been written.
    pub(crate) fn note(&self, ino: u64, offset: u64, len: u64) {
        if self.is_wanted.load(Ordering::Relaxed) && len > 0 {
            self.put(ino, offset, offset.saturating_add(len));
        }
    }

    pub(crate) fn put(&self, ino: u64, from: u64, to: u64) {
        let mut notes = self.notes.lock();
        if let Some((&(before, _), end)) = notes.range_mut(..=(ino, from)).next_back()
            && before == ino
            && *end >= from
        {
            *end = to.max(*end);
            return;
        }
        if notes.len() < NOTES_MAX {
            notes.insert((ino, from), to);
        } else {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn take(&self) -> Option<(u64, u64, u64)> {
        let ((ino, from), to) = self.notes.lock().pop_first()?;
        Some((ino, from, to))
    }

    /// Whether writes are noted at all.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// Whether a range is noted.
    pub(crate) fn has_any(&self) -> bool {
        self.is_wanted() && !self.notes.lock().is_empty()
    }

    /// How many ranges found no room since the last call.
    pub(crate) fn take_missed(&self) -> u64 {
        self.missed.swap(0, Ordering::Relaxed)
    }
}
