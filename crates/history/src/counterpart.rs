//! Which directory or file of the past one of now goes back to, or is compared with.
//!
//! A directory is known by its inode: it may have another name by now. One that the past does not
//! have was made since, most often in the place of one that was removed; then the one that the past
//! has under the same path is meant, and it comes back under that name.
//!
//! A file is known by its path, and only if the past has nothing there by its inode: what saves a
//! file makes another inode. What is gone is known by its path too, below the nearest directory
//! that is there; the directories between come back with it, without what else they had.

use crate::paths::Paths;
use marram_format::record::{Inode, InodeKind};
use marram_records::state::{Named, State, same_inode};
use marram_vfs::{Error, Result};

/// The number of no directory: below it there is nothing.
pub(crate) const NO_DIRECTORY: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Counterpart {
    /// The directory as it is now, if it is one.
    pub(crate) now: u64,
    /// What it goes back to, if that is a directory.
    pub(crate) past: u64,
    /// A directory that is there before and after, with all that goes back in it.
    pub(crate) within: u64,
    /// The name that leads elsewhere from then on, if it is not the same inode.
    pub(crate) renamed: Option<Renamed>,
    /// The file that goes back as the inode that it is, with the name that it has now.
    pub(crate) file: Option<(u64, Named)>,
}

/// A name in a directory that does not go back itself.
#[derive(Clone, Debug)]
pub(crate) struct Renamed {
    pub(crate) parent: u64,
    pub(crate) now: Option<Named>,
    /// Directories that come back for the last one alone, from the outermost on.
    pub(crate) way: Vec<Named>,
    pub(crate) past: Named,
}

impl Counterpart {
    /// Finds what the directory `now` goes back to; the roots of the states are those of the file
    /// system.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the past has neither the directory nor another one in its place.
    pub(crate) fn find(of: (&State, &State), now: u64) -> Result<Counterpart> {
        let inode = directory_now(of.0, now)?;
        let past = of.1.named_inode(now)?;
        if past.is_some_and(|past| same_inode(&past, &inode)) {
            let (within, renamed, file) = (now, None, None);
            return Ok(Counterpart { now, past: now, within, renamed, file });
        }
        let path = Paths::new(of.0).of(now)?.ok_or(Error::NotFound)?;
        let names: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
        let name = names.last().ok_or(Error::NotFound)?;
        let entry = of.0.entry(inode.parent, name)?.filter(|entry| entry.ino == now);
        let entry = entry.ok_or(Error::NotFound)?;
        let way = way_to(of.1, of.1.root, &names)?;
        let found = way.last().filter(|entry| entry.kind == InodeKind::Directory);
        let found = found.ok_or(Error::NotFound)?.clone();
        let past = Named { name: entry.name.clone(), ..found };
        let (parent, number) = (inode.parent, past.ino);
        let renamed = Some(Renamed { parent, now: Some(entry), way: Vec::new(), past });
        Ok(Counterpart { now, past: number, within: parent, renamed, file: None })
    }

    /// Finds what the path of `names` below a directory goes back to, whether there is anything
    /// now or not.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the past has nothing of it; [`Error::NotDirectory`] if something else
    /// is in the way.
    pub(crate) fn find_below(
        of: (&State, &State),
        directory: u64,
        names: &[Vec<u8>],
    ) -> Result<Counterpart> {
        directory_now(of.0, directory)?;
        let (mut parent, mut names) = (directory, names);
        let now = loop {
            let [name, rest @ ..] = names else { return Counterpart::find(of, parent) };
            match of.0.entry(parent, name)? {
                found if rest.is_empty() => break found,
                Some(found) if found.kind == InodeKind::Directory => parent = found.ino,
                Some(_) => return Err(Error::NotDirectory),
                None => break None,
            }
            names = rest;
        };
        if let Some(found) = now.as_ref().filter(|found| found.kind == InodeKind::Directory) {
            match Counterpart::find(of, found.ino) {
                Err(Error::NotFound) => {}
                done => return done,
            }
        }
        let past_parent = Counterpart::find(of, parent)?.past;
        match way_to(of.1, past_parent, names) {
            Ok(way) => Counterpart::by_path(of, parent, now, way),
            Err(Error::NotFound) => Counterpart::by_inode(of, parent, now),
            Err(error) => Err(error),
        }
    }

    fn by_path(
        of: (&State, &State),
        parent: u64,
        now: Option<Named>,
        mut way: Vec<Named>,
    ) -> Result<Counterpart> {
        let found = way.pop().ok_or(Error::NotFound)?;
        if let Some(entry) = now.as_ref().filter(|now| now.ino == found.ino)
            && is_same(of, entry)?
        {
            return Ok(Counterpart::of_file(parent, entry.clone()));
        }
        let number = |entry: &Named| match entry.kind {
            InodeKind::Directory => entry.ino,
            _ => NO_DIRECTORY,
        };
        let name = now.as_ref().map_or_else(|| found.name.clone(), |now| now.name.clone());
        let past = Named { name, ..found };
        let numbers = (now.as_ref().map_or(NO_DIRECTORY, number), number(&past));
        Ok(Counterpart {
            now: numbers.0,
            past: numbers.1,
            within: parent,
            renamed: Some(Renamed { parent, now, way, past }),
            file: None,
        })
    }

    /// A file that has come to its name since.
    fn by_inode(of: (&State, &State), parent: u64, now: Option<Named>) -> Result<Counterpart> {
        match now.filter(|now| now.kind != InodeKind::Directory) {
            Some(entry) if is_same(of, &entry)? => Ok(Counterpart::of_file(parent, entry)),
            _ => Err(Error::NotFound),
        }
    }

    fn of_file(parent: u64, entry: Named) -> Counterpart {
        Counterpart {
            now: NO_DIRECTORY,
            past: NO_DIRECTORY,
            within: parent,
            renamed: None,
            file: Some((parent, entry)),
        }
    }
}

/// The record of a directory that is there now.
fn directory_now(now: &State, directory: u64) -> Result<Inode> {
    let inode = now.named_inode(directory)?.ok_or(Error::Stale)?;
    match inode.kind {
        InodeKind::Directory => Ok(inode),
        _ => Err(Error::NotDirectory),
    }
}

/// Whether what a name of now leads to is the same inode in the past.
fn is_same(of: (&State, &State), entry: &Named) -> Result<bool> {
    let (now, past) = (of.0.named_inode(entry.ino)?, of.1.named_inode(entry.ino)?);
    Ok(now.zip(past).is_some_and(|(now, past)| same_inode(&now, &past)))
}

/// The number that the directory `now` has in the past; its own if the past has none for it.
pub(crate) fn number_in_past(of: (&State, &State), now: u64) -> Result<u64> {
    match Counterpart::find(of, now) {
        Ok(found) => Ok(found.past),
        Err(Error::NotFound | Error::NotDirectory | Error::Stale) => Ok(now),
        Err(error) => Err(error),
    }
}

/// The entries on the way from a directory to what is at a path below it.
///
/// # Errors
/// [`Error::NotFound`] if there is nothing.
pub(crate) fn way_to(
    state: &State,
    directory: u64,
    names: &[impl AsRef<[u8]>],
) -> Result<Vec<Named>> {
    let mut way: Vec<Named> = Vec::with_capacity(names.len());
    let mut at = directory;
    for name in names {
        if way.last().is_some_and(|above| above.kind != InodeKind::Directory) {
            return Err(Error::NotFound);
        }
        let found = state.entry(at, name.as_ref())?.ok_or(Error::NotFound)?;
        at = found.ino;
        way.push(found);
    }
    Ok(way)
}
