//! Ways from the root of what is shown to directories, gone with the rights of a user.

use super::rights::{SEARCH, grants};
use marram_format::record::{Entry, Inode, InodeKind};
use marram_records::counters::read_counters;
use marram_records::directory::{entry_key, name_of};
use marram_records::failure::{from_record, from_store};
use marram_records::inode::read_inode;
use marram_records::lists::{AccessLists, ListName};
use marram_records::xattr::xattr_value;
use marram_store::View;
use marram_vfs::{Error, Identity, Result};
use std::collections::HashMap;

/// Deepest nesting of directories that is followed upwards: a longer way up is damage.
const ANCESTORS_MAX: usize = 1 << 20;

/// A directory as a user comes to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// Its path; none if no way leads there.
    pub(super) path: Option<Vec<u8>>,
    /// The user may use names in it, and in every directory on the way to it.
    pub(super) is_open: bool,
}

/// One user in one state of a dataset.
pub(super) struct Walk<'a> {
    view: &'a dyn View,
    user: &'a dyn Identity,
    root: u64,
    seed: u64,
    obeys_lists: bool,
    places: HashMap<u64, Place>,
}

impl<'a> Walk<'a> {
    /// Begins at the directory `root`.
    ///
    /// # Errors
    /// A failed read; [`Error::NotSupported`] where lists decide that are not the kernel's.
    pub(super) fn new(view: &'a dyn View, root: u64, user: &'a dyn Identity) -> Result<Walk<'a>> {
        let lists = AccessLists::of(&view.properties());
        if lists == AccessLists::Nfs4 {
            return Err(Error::NotSupported);
        }
        let empty = || Error::InvalidArgument("the dataset holds no file system yet");
        let seed = read_counters(view)?.ok_or_else(empty)?.name_seed;
        let obeys_lists = lists == AccessLists::Posix;
        Ok(Walk { view, user, root, seed, obeys_lists, places: HashMap::new() })
    }

    /// Whether the user gets all of `wanted` of an inode as the state has it.
    ///
    /// # Errors
    /// A failed read.
    pub(super) fn grants(&self, ino: u64, inode: &Inode, wanted: u16) -> Result<bool> {
        let name = ListName::PosixAccess;
        let list = match self.obeys_lists && inode.state & name.bit() != 0 {
            true => xattr_value(self.view, self.seed, ino, name.bytes())?,
            false => None,
        };
        Ok(grants(self.user, inode.into(), list.as_deref(), wanted))
    }

    /// Where a directory is.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub(super) fn directory(&mut self, ino: u64) -> Result<Place> {
        let mut way = Vec::new();
        let mut at = ino;
        let mut place = loop {
            if let Some(known) = self.places.get(&at) {
                break known.clone();
            }
            let inode = read_inode(self.view, at)?;
            let inode = inode.filter(|it| it.kind == InodeKind::Directory && it.links > 0);
            let Some(inode) = inode else { break Place::default() };
            if at == self.root {
                let place =
                    Place { path: Some(b"/".to_vec()), is_open: self.grants(at, &inode, SEARCH)? };
                self.places.insert(at, place.clone());
                break place;
            }
            let above = inode.parent;
            way.push((at, inode));
            if above == at {
                break Place::default();
            }
            at = above;
            if way.len() > ANCESTORS_MAX {
                return Err(Error::Damaged(format!("directory {ino} is not below the root")));
            }
        };
        for (ino, inode) in way.into_iter().rev() {
            let name = self.name(&inode, ino)?;
            let path = place.path.zip(name).map(|(path, name)| join(&path, &name));
            let is_open = place.is_open && path.is_some() && self.grants(ino, &inode, SEARCH)?;
            place = Place { path, is_open };
            self.places.insert(ino, place.clone());
        }
        Ok(place)
    }

    /// Where a file or directory is: its path, and whether the user comes to it.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub(super) fn reach(&mut self, ino: u64, inode: &Inode) -> Result<Place> {
        if ino == self.root {
            return Ok(Place { path: Some(b"/".to_vec()), is_open: true });
        }
        let above = self.directory(inode.parent)?;
        let name = self.name(inode, ino)?;
        let path = above.path.zip(name).map(|(path, name)| join(&path, &name));
        Ok(Place { is_open: above.is_open && path.is_some(), path })
    }

    /// The name of an inode in the directory that its record gives.
    fn name(&self, inode: &Inode, ino: u64) -> Result<Option<Vec<u8>>> {
        let key = entry_key(inode.parent, inode.name_place);
        if let Some(item) = self.view.get(key).map_err(from_store)? {
            let entry = Entry::decode(&item.value);
            let entry = entry.map_err(|error| from_record(inode.parent, &error))?;
            if entry.ino == ino {
                return Ok(Some(entry.name.to_vec()));
            }
        }
        name_of(self.view, inode.parent, ino)
    }
}

/// A path from that of its directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    crate::paths::join(directory, name)
}
