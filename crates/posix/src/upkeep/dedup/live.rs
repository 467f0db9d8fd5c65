//! Deduplication of what has just been written (`dedup=on`).
//!
//! Writers leave a note of the range, and pay no more than that; where the property is off, they
//! look at one flag. A thread of the daemon takes the notes up when a group commit has written the
//! content. Notes and hints are bounded and in memory only: what is lost of them is a chance to
//! save.

use super::share::Sharing;
use super::table::{Hints, Place};
use super::{share, window};
use crate::filesystem::Posix;
use crate::volume::Volume;
use marram_records::failure::from_store;
use marram_store::{Key, kind};
use marram_vfs::{Error, Ino};
use std::fmt;
use std::sync::{Arc, Weak};

/// Most hints. One takes about 60 bytes and stands for up to `recordsize` of content: 32 GiB of it
/// where that is 128 KiB.
const HINTS_MAX: usize = 1 << 18;
/// Items that one step of [`Deduplicator::fill`] passes over in search of content.
const FILL_ITEMS: usize = 4096;

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
    homes: Vec<Home>,
    totals: LiveTotals,
}

/// A file system, and how far its old content has been looked at.
struct Home {
    files: Weak<Posix>,
    /// The item to go on from; none if all has been looked at, or the table is full.
    next: Option<Key>,
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

/// What comes next among the items of a dataset.
enum Found {
    /// The item of a section with content.
    Content(Key),
    /// Nothing as far as here.
    On(Key),
    /// Nothing any more.
    End,
}

/// The next section with content from an item on.
fn content_from(volume: &Volume, from: Key) -> marram_vfs::Result<Found> {
    let (mut found, mut passed) = (Found::End, 0);
    let mut visit = |key: Key, item: &marram_store::Item| {
        passed += 1;
        if key.kind == kind::SECTION && item.block.is_some() {
            found = Found::Content(key);
        } else if passed >= FILL_ITEMS {
            found = key.successor().map_or(Found::End, Found::On);
        }
        matches!(found, Found::End)
    };
    volume.view.scan(from, Key::MAX, &mut visit).map_err(from_store)?;
    Ok(found)
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
        self.totals.missed_ranges += files.volume.recent_writes.take_missed();
        let mut left = windows_max;
        let mut later = Vec::new();
        while left > 0
            && let Some((ino, from, to)) = files.volume.recent_writes.take()
        {
            let window_bytes = files.volume.record_bytes();
            let mut at = from & !(window_bytes - 1);
            while left > 0 && at < to {
                let window =
                    match window::next_window(&files.volume, Ino(ino), at, window_bytes, true) {
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
                files.volume.recent_writes.put(ino, at, to);
            }
        }
        let is_waiting = !later.is_empty();
        for (ino, from, to) in later {
            files.volume.recent_writes.put(ino, from, to);
        }
        left == 0 && !is_waiting
    }

    /// Takes note of where content is that was there before this table: of no more than
    /// `windows_max` windows. Only what is written later is shared with it. Stops for good when
    /// the table is full: what it has is never given up for what is older. Returns whether there is
    /// more.
    pub fn fill(&mut self, files: &Arc<Posix>, windows_max: usize) -> bool {
        let home = self.home_of(files);
        if !files.wants_sharing() {
            return false;
        }
        for _ in 0..windows_max {
            let Some(next) = self.homes[home].next.filter(|_| !self.hints.is_full()) else {
                self.homes[home].next = None;
                return false;
            };
            let found = match next.kind {
                kind::SECTION => Ok(Found::Content(next)),
                _ => content_from(&files.volume, next),
            };
            self.homes[home].next = match found {
                Ok(Found::Content(key)) => self.note_window(files, home, key),
                Ok(Found::On(key)) => {
                    self.homes[home].next = Some(key);
                    return true;
                }
                // A read that needs it will report what is wrong.
                Ok(Found::End) | Err(_) => None,
            };
        }
        self.homes[home].next.is_some()
    }

    /// Takes note of the next window of a file; returns where to go on.
    fn note_window(&mut self, files: &Arc<Posix>, home: usize, from: Key) -> Option<Key> {
        let (ino, window_bytes) = (from.object, files.volume.record_bytes());
        let at = from.offset & !(window_bytes - 1);
        let next_file = Key::new(ino.checked_add(1)?, 0, 0);
        let Ok(Some(window)) = window::next_window(&files.volume, Ino(ino), at, window_bytes, true)
        else {
            return Some(next_file);
        };
        if let Ok(Some(checksum)) = window.checksum
            && self.hints.get(checksum).is_none()
        {
            let place = Place { files: home, ino, offset: window.offset };
            self.hints.put(checksum, place);
        }
        let end = window.offset.checked_add(window_bytes);
        Some(end.map_or(next_file, |end| Key::new(ino, kind::SECTION, end)))
    }

    fn look_up(&mut self, files: &Arc<Posix>, ino: Ino, (offset, len): (u64, u64), checksum: u64) {
        let here = Place { files: self.home_of(files), ino: ino.0, offset };
        let known = self.hints.get(checksum).filter(|place| *place != here);
        let home = known.and_then(|place| Some((place, self.homes[place.files].files.upgrade()?)));
        let Some((place, source)) = home else {
            self.hints.put(checksum, here);
            return;
        };
        let from = (Ino(place.ino), place.offset);
        match share::share_if_equal(files, &source, from, (ino, offset), len, false) {
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
        let home = Home { files: Arc::downgrade(files), next: Some(Key::new(1, 0, 0)) };
        if let Some(found) = self.homes.iter().position(|known| known.files.ptr_eq(&home.files)) {
            return found;
        }
        match self.homes.iter().position(|known| known.files.strong_count() == 0) {
            Some(free) => {
                self.homes[free] = home;
                free
            }
            None => {
                self.homes.push(home);
                self.homes.len() - 1
            }
        }
    }
}
