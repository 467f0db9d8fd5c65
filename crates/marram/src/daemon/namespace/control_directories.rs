//! The control directories: `.marram` itself, and the two in it. They are in no dataset.
//!
//! Nothing can be made, removed or changed in them; what they list changes by commands. Snapshots
//! are open to the users to whom the dataset was open. A fork may be of a directory that lies
//! below one that is closed to others: so the control directory of forks is open to the daemon's
//! own user alone.

use super::catalogue::Catalogue;
use super::numbers::{CONTROL_SLOT, inner_of, join};
use crate::engine::home::ControlDirectory;
use marram_vfs::{Attributes, Caller, Clock, DirectoryEntry, Error, Ino, Kind, Result};
use marram_vfs::{SystemClock, Timestamp};
use parking_lot::Mutex;

/// The name at the root of a mount that shows what belongs to its dataset.
pub(super) const HIDDEN_NAME: &[u8] = b".marram";

/// The directories below `.marram`, in the order in which they are listed.
const ALL: [ControlDirectory; 2] = [ControlDirectory::Snapshots, ControlDirectory::Forks];

/// The name of one.
pub(super) const fn name_of(directory: ControlDirectory) -> &'static str {
    match directory {
        ControlDirectory::Snapshots => "snapshots",
        ControlDirectory::Forks => "forks",
    }
}

/// A directory that is in no dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directory {
    /// `.marram`.
    Hidden,
    /// One of those in it.
    Listing(ControlDirectory),
}

impl Directory {
    const ALL: [Directory; 3] = [
        Directory::Hidden,
        Directory::Listing(ControlDirectory::Snapshots),
        Directory::Listing(ControlDirectory::Forks),
    ];

    /// Its number.
    pub(super) fn number(self) -> Ino {
        let number = match self {
            Directory::Hidden => 1,
            Directory::Listing(ControlDirectory::Snapshots) => 2,
            Directory::Listing(ControlDirectory::Forks) => 3,
        };
        join(CONTROL_SLOT, Ino(number)).expect("small numbers fit")
    }

    /// The directory of a number in their slot.
    pub(super) fn of(ino: Ino) -> Option<Directory> {
        Directory::ALL.into_iter().find(|one| inner_of(one.number()) == inner_of(ino))
    }

    /// Whether only the daemon's user may look into it.
    pub(super) fn is_private(self) -> bool {
        self == Directory::Listing(ControlDirectory::Forks)
    }
}

/// The directories of a mount.
pub(super) struct ControlDirectories {
    pub(super) catalogue: Box<dyn Catalogue>,
    pub(super) owner: Caller,
    made: Timestamp,
    changed: Mutex<Timestamp>,
}

impl ControlDirectories {
    pub(super) fn new(catalogue: Box<dyn Catalogue>, owner: Caller) -> ControlDirectories {
        let made = SystemClock.now();
        ControlDirectories { catalogue, owner, made, changed: Mutex::new(made) }
    }

    /// Names have come or gone.
    pub(super) fn note_change(&self) {
        *self.changed.lock() = SystemClock.now();
    }

    pub(super) fn attributes(&self, of: Directory) -> Attributes {
        let changed = *self.changed.lock();
        let entries = if of == Directory::Hidden { ALL.len() } else { 0 };
        Attributes {
            ino: of.number(),
            generation: 1,
            kind: Kind::Directory,
            permissions: if of.is_private() { 0o700 } else { 0o555 },
            links: 2 + u32::try_from(entries).expect("a few"),
            uid: self.owner.uid,
            gid: self.owner.gid,
            device: 0,
            size: 0,
            blocks_512: 0,
            accessed: changed,
            modified: changed,
            changed,
            created: self.made,
        }
    }

    /// The directory of that name in `.marram`.
    pub(super) fn find(name: &[u8]) -> Result<Directory> {
        let directory = ALL.into_iter().find(|directory| name_of(*directory).as_bytes() == name);
        directory.map(Directory::Listing).ok_or(Error::NotFound)
    }

    /// Lists a directory. Members come without attributes, and under a number that stands for none:
    /// so a listing opens none.
    pub(super) fn visit(
        &self,
        directory: Directory,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let names = match directory {
            Directory::Hidden => ALL.map(|directory| name_of(directory).to_owned()).to_vec(),
            Directory::Listing(directory) => self.catalogue.names(directory)?,
        };
        let mut entries: Vec<(u64, &String)> =
            names.iter().map(|name| (cookie(name), name)).collect();
        entries.sort();
        for (cookie, name) in entries.into_iter().filter(|(cookie, _)| *cookie > after) {
            let (ino, attributes) = match directory {
                Directory::Hidden => {
                    let found = self.attributes(ControlDirectories::find(name.as_bytes())?);
                    (found.ino, with_attributes.then_some(found))
                }
                Directory::Listing(_) => (directory.number(), None),
            };
            let entry = DirectoryEntry {
                name: name.as_bytes(),
                ino,
                kind: Kind::Directory,
                cookie,
                attributes,
            };
            if !visit(entry) {
                break;
            }
        }
        Ok(())
    }
}

/// Where a name stands in its directory: it stays there whatever comes and goes around it. Two of
/// the same hash would be a listing that skips one; with 63 bits and thousands of names there are
/// none.
fn cookie(name: &str) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    (hash >> 1).clamp(1, marram_vfs::COOKIE_MAX)
}
