//! Closes that wait until what was written is durable.

use crate::options::{MountOptions, SyncedCloses};
use marram_vfs::{Error, FileSystem, Ino, SyncScope};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Most files that are remembered as changed; beyond that each counts as changed.
const CHANGED_MAX: usize = 1 << 16;

/// Which closes wait, and which files have changed since a close of them last waited.
pub(super) struct Closes {
    synced: SyncedCloses,
    /// How often each of them has.
    changed: Mutex<HashMap<Ino, u64>>,
}

impl Closes {
    pub(super) fn of(options: &MountOptions) -> Closes {
        let synced = match options.synced_closes {
            SyncedCloses::BesideOthers if !options.shareable => SyncedCloses::None,
            synced => synced,
        };
        Closes { synced, changed: Mutex::default() }
    }

    /// Whether any close may wait.
    pub(super) fn are_of_interest(&self) -> bool {
        self.synced != SyncedCloses::None
    }

    /// The content of a file has changed, or the file is new.
    pub(super) fn note_change(&self, ino: Ino) {
        if self.synced == SyncedCloses::BesideOthers {
            let mut changed = self.changed.lock();
            if changed.len() < CHANGED_MAX || changed.contains_key(&ino) {
                *changed.entry(ino).or_default() += 1;
            }
        }
    }

    /// A file is closed.
    pub(super) fn close(&self, file_system: &dyn FileSystem, ino: Ino) -> Result<(), Error> {
        match self.synced {
            SyncedCloses::None => Ok(()),
            SyncedCloses::All => file_system.sync(ino, SyncScope::All),
            SyncedCloses::BesideOthers => {
                let (times, is_full) = {
                    let changed = self.changed.lock();
                    (changed.get(&ino).copied(), changed.len() >= CHANGED_MAX)
                };
                if !file_system.has_company() || times.is_none() && !is_full {
                    return Ok(());
                }
                file_system.sync(ino, SyncScope::All)?;
                // Another close of the file waits too until then.
                let mut changed = self.changed.lock();
                if changed.get(&ino).copied() == times {
                    changed.remove(&ino);
                }
                Ok(())
            }
        }
    }
}
