//! Deduplication of what has just been written (`dedup=on`).
//!
//! Writers leave a note of the range, and pay no more than that; where the property is off, they
//! look at one flag. A thread of the daemon takes the notes up when a group commit has written the
//! content. Notes and hints are bounded and in memory only: what is lost of them is a chance to
//! save.

use super::share::Sharing;
use super::table::{Hints, Place};
use crate::filesystem::Posix;
use marram_store::Properties;
use marram_vfs::{Error, Ino};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Most ranges that are noted; further ones are not looked at.
const NOTES_MAX: usize = 1 << 16;
/// Most hints. One takes about 60 bytes and stands for up to `recordsize` of content: 32 GiB of it
/// where that is 128 KiB.
const HINTS_MAX: usize = 1 << 18;

/// Ranges of files that were written and that nobody has looked at yet.
#[derive(Default)]
pub(crate) struct Recent {
    is_wanted: AtomicBool,
    /// Where a range ends, by inode and where it begins.
    notes: Mutex<BTreeMap<(u64, u64), u64>>,
    missed: AtomicU64,
}

impl Recent {
    pub(crate) fn of(properties: &Properties) -> Recent {
        let recent = Recent::default();
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

    fn put(&self, ino: u64, from: u64, to: u64) {
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

    fn take(&self) -> Option<(u64, u64, u64)> {
        let ((ino, from), to) = self.notes.lock().pop_first()?;
        Some((ino, from, to))
    }
}

/// What has come of looking at what was written, since the table was empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveTotals {
    /// Bytes of content that were looked at.
    pub content_bytes: u64,
    /// Bytes that are shared now.
    pub shared_bytes: u64,
    /// Ranges that were not looked at since too many waited.
    pub missed_ranges: u64,
    /// Ranges that could not be read or shared.
    pub failed_ranges: u64,
    /// Places that are remembered.
    pub hints: u64,
}

/// A table of where content was, for all file systems of a store that want it.
pub struct Deduplicator {
    hints: Hints,
    homes: Vec<Weak<Posix>>,
    totals: LiveTotals,
}

impl fmt::Debug for Deduplicator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Deduplicator").field("totals", &self.totals()).finish_non_exhaustive()
    }
}

impl Default for Deduplicator {
    fn default() -> Deduplicator {
        Deduplicator::new(HINTS_MAX)
    }
}

impl Posix {
    /// Whether something was written that [`Deduplicator::step`] has not looked at.
    pub fn has_recent(&self) -> bool {
        self.recent.is_wanted.load(Ordering::Relaxed) && !self.recent.notes.lock().is_empty()
    }
}

impl Deduplicator {
    /// An empty table of at most so many places.
    pub fn new(hints_max: usize) -> Deduplicator {
        let (hints, totals) = (Hints::new(hints_max), LiveTotals::default());
        Deduplicator { hints, homes: Vec::new(), totals }
    }

    /// What has come of it so far.
    pub fn totals(&self) -> LiveTotals {
        LiveTotals { hints: self.hints.len() as u64, ..self.totals }
    }

    /// Looks at no more than `windows_max` windows (of `recordsize` bytes) of what was written to
    /// `files`. What no commit has written yet waits. Returns whether there is more to look at at
    /// once.
    pub fn step(&mut self, files: &Arc<Posix>, windows_max: usize) -> bool {
        self.totals.missed_ranges += files.recent.missed.swap(0, Ordering::Relaxed);
        let mut left = windows_max;
        let mut later = Vec::new();
        while left > 0
            && let Some((ino, from, to)) = files.recent.take()
        {
            let window_bytes = files.record_bytes();
            let mut at = from & !(window_bytes - 1);
            while left > 0 && at < to {
                let window = match files.next_window(Ino(ino), at, window_bytes, true) {
                    Ok(Some(window)) if window.offset < to => window,
                    // Nothing, or no such file any more.
                    _ => {
                        at = to;
                        break;
                    }
                };
                at = window.offset + window_bytes;
                left -= 1;
                if !window.is_settled {
                    later.push((ino, window.offset, window.offset + window.len));
                    continue;
                }
                self.totals.content_bytes += window.len;
                match window.checksum {
                    Ok(Some(checksum)) => {
                        self.look_up(files, Ino(ino), (window.offset, window.len), checksum);
                    }
                    Ok(None) => (),
                    Err(_told) => self.totals.failed_ranges += 1,
                }
            }
            if at < to {
                files.recent.put(ino, at, to);
            }
        }
        let is_waiting = !later.is_empty();
        for (ino, from, to) in later {
            files.recent.put(ino, from, to);
        }
        left == 0 && !is_waiting
    }

    fn look_up(&mut self, files: &Arc<Posix>, ino: Ino, (offset, len): (u64, u64), checksum: u64) {
        let here = Place { files: self.home_of(files), ino: ino.0, offset };
        let known = self.hints.get(checksum).filter(|place| *place != here);
        let home = known.and_then(|place| Some((place, self.homes[place.files].upgrade()?)));
        let Some((place, source)) = home else {
            self.hints.put(checksum, here);
            return;
        };
        let from = (Ino(place.ino), place.offset);
        match files.share_if_equal(&source, from, (ino, offset), len, false) {
            Ok(Sharing { equal_bytes: 0, already_bytes: 0, .. }) => self.hints.put(checksum, here),
            Ok(sharing) => {
                self.totals.shared_bytes += sharing.shared_bytes;
                self.totals.failed_ranges += sharing.unreadable;
            }
            Err(Error::Stale) => self.hints.put(checksum, here),
            Err(_full_or_gone) => self.totals.failed_ranges += 1,
        }
    }

    /// The place of a file system in the list. One that is gone makes room; hints that it has left
    /// are compared with whatever is there now, as all are.
    fn home_of(&mut self, files: &Arc<Posix>) -> usize {
        let files = Arc::downgrade(files);
        if let Some(found) = self.homes.iter().position(|home| home.ptr_eq(&files)) {
            return found;
        }
        match self.homes.iter().position(|home| home.strong_count() == 0) {
            Some(free) => {
                self.homes[free] = files;
                free
            }
            None => {
                self.homes.push(files);
                self.homes.len() - 1
            }
        }
    }
}
