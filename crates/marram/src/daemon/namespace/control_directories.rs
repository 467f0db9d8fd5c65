//! The control directories: `.marram` itself, and those in it. They are in no dataset.
//!
//! Nothing can be made, removed or changed in them; what they list changes by commands. Snapshots
//! are open to the users to whom the dataset was open. A fork may be of a directory that lies
//! below one that is closed to others: so the control directory of forks is open to the daemon's
//! own user alone. The forks of another user are in a directory that is open to that user alone,
//! `users/UID`: the kernel itself lets nobody else in, whatever it has in its caches.
//!
//! Each directory below the root has a `.marram` too, for its past: see [`super::past`]. Their
//! numbers are made of that of the directory, so no table says what they are.

use super::catalogue::Catalogue;
use super::numbers::{CONTROL_SLOT, PAST_SLOT, PAST_SNAPSHOTS_SLOT, inner_of, join, slot_of};
use crate::engine::home::ControlDirectory;
use marram_vfs::{Attributes, Caller, Clock, DirectoryEntry, Error, Ino, Kind, Result};
use marram_vfs::{SystemClock, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

/// The name at the root of a mount that shows what belongs to its dataset.
pub(super) const HIDDEN_NAME: &[u8] = b".marram";

/// The directories below `.marram`, in the order in which they are listed.
const ALL: [(&str, Directory); 3] = [
    ("snapshots", Directory::Listing(ControlDirectory::Snapshots)),
    ("forks", Directory::Listing(ControlDirectory::Forks)),
    ("users", Directory::Users),
];
/// The name in `.marram` of a directory below the root.
const PAST_NAME: &str = "snapshots";
/// The number of the directory of the user 0; those of others follow.
const FIRST_USER_NUMBER: u64 = 1 << 32;

/// Where members are listed, below `.marram`.
pub(super) fn path_of(directory: ControlDirectory) -> PathBuf {
    match directory {
        ControlDirectory::Snapshots => PathBuf::from("snapshots"),
        ControlDirectory::Forks => PathBuf::from("forks"),
        ControlDirectory::ForksOf(user) => PathBuf::from("users").join(user.to_string()),
    }
}

/// A directory that is in no dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directory {
    /// `.marram`.
    Hidden,
    /// One of those in it that lists members.
    Listing(ControlDirectory),
    /// The one in it that lists users.
    Users,
    /// `.marram` of another directory of the dataset than its root.
    Past(Ino),
    /// The one in that which lists the snapshots that have the directory.
    PastSnapshots(Ino),
}

impl Directory {
    /// Its number.
    pub(super) fn number(self) -> Ino {
        let number = match self {
            Directory::Past(of) => return joined(PAST_SLOT, of),
            Directory::PastSnapshots(of) => return joined(PAST_SNAPSHOTS_SLOT, of),
            Directory::Hidden => 1,
            Directory::Listing(ControlDirectory::Snapshots) => 2,
            Directory::Listing(ControlDirectory::Forks) => 3,
            Directory::Users => 4,
            Directory::Listing(ControlDirectory::ForksOf(user)) => {
                FIRST_USER_NUMBER + u64::from(user)
            }
        };
        joined(CONTROL_SLOT, Ino(number))
    }

    /// The directory of a number in one of their slots.
    pub(super) fn of(ino: Ino) -> Option<Directory> {
        match slot_of(ino) {
            CONTROL_SLOT => {}
            PAST_SLOT => return Some(Directory::Past(inner_of(ino))),
            PAST_SNAPSHOTS_SLOT => return Some(Directory::PastSnapshots(inner_of(ino))),
            _ => return None,
        }
        match inner_of(ino).0 {
            1 => Some(Directory::Hidden),
            2 => Some(Directory::Listing(ControlDirectory::Snapshots)),
            3 => Some(Directory::Listing(ControlDirectory::Forks)),
            4 => Some(Directory::Users),
            number => {
                let user = u32::try_from(number.checked_sub(FIRST_USER_NUMBER)?).ok()?;
                Some(Directory::Listing(ControlDirectory::ForksOf(user)))
            }
        }
    }

    /// The control directory that it is in.
    pub(super) fn above(self) -> Option<Directory> {
        match self {
            Directory::Hidden | Directory::Past(_) => None,
            Directory::PastSnapshots(of) => Some(Directory::Past(of)),
            Directory::Listing(ControlDirectory::ForksOf(_)) => Some(Directory::Users),
            Directory::Listing(_) | Directory::Users => Some(Directory::Hidden),
        }
    }

    /// Its mode: what is private is its owner's alone, and users are not listed to others.
    pub(super) fn permissions(self) -> u32 {
        match self {
            Directory::Hidden | Directory::Listing(ControlDirectory::Snapshots) => 0o555,
            Directory::Past(_) | Directory::PastSnapshots(_) => 0o555,
            Directory::Listing(_) => 0o700,
            Directory::Users => 0o711,
        }
    }
}

/// A number that fits: a small one, or one that an inode of the dataset is shown under.
fn joined(slot: u32, inner: Ino) -> Ino {
    join(slot, inner).expect("what is shown of a dataset fits below the slot")
}

/// The directories of a mount.
pub(super) struct ControlDirectories {
    pub(super) catalogue: Box<dyn Catalogue>,
    pub(super) owner: Caller,
    made: Timestamp,
    changed: Mutex<Timestamp>,
    /// Users of whose directories the kernel may know names.
    users: Mutex<BTreeSet<u32>>,
    /// Directories whose list of snapshots the kernel knows, and how many of its lookups it has
    /// not forgotten. So there are no more than the kernel has inodes.
    pasts: Mutex<HashMap<Ino, u64>>,
}

impl ControlDirectories {
    pub(super) fn new(catalogue: Box<dyn Catalogue>, owner: Caller) -> ControlDirectories {
        let made = SystemClock.now();
        let (users, pasts) = (Mutex::default(), Mutex::default());
        ControlDirectories { catalogue, owner, made, changed: Mutex::new(made), users, pasts }
    }

    /// The kernel gets to know a control directory once more.
    pub(super) fn count_lookup(&self, directory: Directory) {
        if let Directory::PastSnapshots(of) = directory {
            *self.pasts.lock().entry(of).or_default() += 1;
        }
    }

    /// The kernel forgets so many lookups of a control directory.
    pub(super) fn forget(&self, ino: Ino, count: u64) {
        let Some(Directory::PastSnapshots(of)) = Directory::of(ino) else { return };
        let mut pasts = self.pasts.lock();
        let left = pasts.get(&of).map_or(0, |known| known.saturating_sub(count));
        match left {
            0 => pasts.remove(&of),
            left => pasts.insert(of, left),
        };
    }

    /// The kernel has forgotten all.
    pub(super) fn forget_all(&self) {
        self.pasts.lock().clear();
    }

    /// The directories whose list of snapshots the kernel knows.
    pub(super) fn known_pasts(&self) -> Vec<Ino> {
        self.pasts.lock().keys().copied().collect()
    }

    /// The owner of a directory.
    pub(super) fn owner_of(&self, directory: Directory) -> u32 {
        match directory {
            Directory::Listing(ControlDirectory::ForksOf(user)) => user,
            _ => self.owner.uid,
        }
    }

    /// The kernel gets to know names in a directory: those of a user only for that user and root,
    /// so there are as many as users came.
    pub(super) fn note_use(&self, directory: Directory) {
        if let Directory::Listing(ControlDirectory::ForksOf(user)) = directory {
            self.users.lock().insert(user);
        }
    }

    /// The directories of forks of which the kernel may know names.
    pub(super) fn of_forks(&self) -> Vec<ControlDirectory> {
        let users: Vec<u32> = self.users.lock().iter().copied().collect();
        let of_users = users.into_iter().map(ControlDirectory::ForksOf);
        std::iter::once(ControlDirectory::Forks).chain(of_users).collect()
    }

    /// Names have come or gone.
    pub(super) fn note_change(&self) {
        *self.changed.lock() = SystemClock.now();
    }

    pub(super) fn attributes(&self, of: Directory) -> Attributes {
        let changed = *self.changed.lock();
        let entries = match of {
            Directory::Hidden => ALL.len(),
            Directory::Past(_) => 1,
            _ => 0,
        };
        Attributes {
            ino: of.number(),
            generation: 1,
            kind: Kind::Directory,
            permissions: of.permissions(),
            links: 2 + u32::try_from(entries).expect("a few"),
            uid: self.owner_of(of),
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
        let found = ALL.into_iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, directory)| directory).ok_or(Error::NotFound)
    }

    /// The directory of that name in `.marram` of the directory `of`.
    pub(super) fn find_past(of: Ino, name: &[u8]) -> Result<Directory> {
        let snapshots = Directory::PastSnapshots(of);
        if name == PAST_NAME.as_bytes() { Ok(snapshots) } else { Err(Error::NotFound) }
    }

    /// The directory of a user whose number is that name. It is there though nothing is in it: its
    /// user alone may know what is.
    pub(super) fn find_user(name: &[u8]) -> Result<Directory> {
        let text = str::from_utf8(name).map_err(|_| Error::NotFound)?;
        let user: u32 = text.parse().map_err(|_| Error::NotFound)?;
        let is_plain = user.to_string() == text && user != u32::MAX;
        let found = Directory::Listing(ControlDirectory::ForksOf(user));
        if is_plain { Ok(found) } else { Err(Error::NotFound) }
    }

    /// The names in a control directory; of a list of snapshots all that there are.
    pub(super) fn names(&self, directory: Directory) -> Result<Vec<String>> {
        match directory {
            Directory::Hidden => Ok(ALL.map(|(name, _)| name.to_owned()).to_vec()),
            Directory::Listing(directory) => self.catalogue.names(directory),
            Directory::Users => {
                Ok(self.catalogue.users()?.iter().map(ToString::to_string).collect())
            }
            Directory::Past(_) => Ok(vec![PAST_NAME.to_owned()]),
            Directory::PastSnapshots(_) => self.catalogue.names(ControlDirectory::Snapshots),
        }
    }

    /// The control directory of a name in another; `None` for a member.
    fn child(directory: Directory, name: &[u8]) -> Result<Option<Directory>> {
        match directory {
            Directory::Hidden => ControlDirectories::find(name).map(Some),
            Directory::Users => ControlDirectories::find_user(name).map(Some),
            Directory::Past(of) => ControlDirectories::find_past(of, name).map(Some),
            Directory::Listing(_) | Directory::PastSnapshots(_) => Ok(None),
        }
    }

    /// Lists these names in a directory. Members come without attributes, and under a number that
    /// stands for none: so a listing opens none.
    pub(super) fn visit(
        &self,
        directory: Directory,
        names: &[String],
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.note_use(directory);
        let mut entries: Vec<(u64, &String)> =
            names.iter().map(|name| (cookie(name), name)).collect();
        entries.sort();
        for (cookie, name) in entries.into_iter().filter(|(cookie, _)| *cookie > after) {
            let child = ControlDirectories::child(directory, name.as_bytes())?;
            let found = child.filter(|_| with_attributes);
            let ino = child.unwrap_or(directory).number();
            let attributes = found.map(|found| self.attributes(found));
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
            found.into_iter().for_each(|found| self.count_lookup(found));
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
