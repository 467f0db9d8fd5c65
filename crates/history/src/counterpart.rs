//! Which directory of the past one of now goes back to, or is compared with.
//!
//! A directory is known by its inode: it may have another name by now. One that the past does not
//! have was made since, most often in the place of one that was removed; then the one that the past
//! has under the same path is meant, and it comes back under that name.

use crate::paths::Paths;
use marram_format::record::InodeKind;
use marram_records::state::{Named, State, same_inode};
use marram_vfs::{Error, Result};

/// See the module.
#[derive(Debug)]
pub(crate) struct Counterpart {
    /// The directory as it is now.
    pub(crate) now: u64,
    /// What it goes back to.
    pub(crate) past: u64,
    /// The name that leads to another directory from then on, if that is not the same inode.
    pub(crate) renamed: Option<Renamed>,
}

/// A name in a directory that does not go back itself.
#[derive(Clone, Debug)]
pub(crate) struct Renamed {
    pub(crate) parent: u64,
    pub(crate) now: Named,
    pub(crate) past: Named,
}

impl Counterpart {
    /// Finds what the directory `now` goes back to; the roots of the states are those of the file
    /// system.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the past has neither the directory nor another one in its place.
    pub(crate) fn find(of: (&State, &State), now: u64) -> Result<Counterpart> {
        let inode = of.0.named_inode(now)?.ok_or(Error::Stale)?;
        if inode.kind != InodeKind::Directory {
            return Err(Error::NotDirectory);
        }
        let past = of.1.named_inode(now)?;
        if past.is_some_and(|past| same_inode(&past, &inode)) {
            return Ok(Counterpart { now, past: now, renamed: None });
        }
        let path = Paths::new(of.0).of(now)?.ok_or(Error::NotFound)?;
        let names: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let name = names.last().ok_or(Error::NotFound)?;
        let entry = of.0.entry(inode.parent, name)?.filter(|entry| entry.ino == now);
        let entry = entry.ok_or(Error::NotFound)?;
        let past = Named { name: entry.name.clone(), ..directory_at(of.1, &names)? };
        let renamed = Some(Renamed { parent: inode.parent, past: past.clone(), now: entry });
        Ok(Counterpart { now, past: past.ino, renamed })
    }
}

/// The number that the directory `now` has in the past; its own if the past has none for it.
pub(crate) fn number_in_past(of: (&State, &State), now: u64) -> Result<u64> {
    match Counterpart::find(of, now) {
        Ok(found) => Ok(found.past),
        Err(Error::NotFound | Error::NotDirectory | Error::Stale) => Ok(now),
        Err(error) => Err(error),
    }
}

/// The directory at a path below the root.
fn directory_at(state: &State, names: &[&[u8]]) -> Result<Named> {
    let mut at = None;
    let mut directory = state.root;
    for name in names {
        let found = state.entry(directory, name)?;
        let found = found.filter(|entry| entry.kind == InodeKind::Directory);
        let found = found.ok_or(Error::NotFound)?;
        directory = found.ino;
        at = Some(found);
    }
    at.ok_or(Error::NotFound)
}
