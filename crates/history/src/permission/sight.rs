//! What a user may know of a state: names in directories that the user can come to and list, and
//! the content of files that the user can read.

use super::rights::READ;
use super::walk::Walk;
use marram_format::record::InodeKind;
use marram_records::state::State;
use marram_store::View;
use marram_vfs::{Identity, Ino, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// What is at a path, as one user finds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// It is there.
    pub exists: bool,
    /// The user can come to it.
    pub is_reached: bool,
    /// The user can come to its directory, and list that.
    pub is_listed: bool,
    /// The user can read it.
    pub is_readable: bool,
}

/// One user's sight of what is below a directory of a state.
pub struct Sight<'a> {
    state: State,
    user: &'a dyn Identity,
    /// Directories by their paths: number, and whether the user can come to it.
    directories: HashMap<Vec<u8>, Option<(u64, bool)>>,
}

impl<'a> Sight<'a> {
    /// From the directory `below`, in a state of which what is below `root` is shown.
    ///
    /// # Errors
    /// A failed read; [`marram_vfs::Error::NotSupported`] where NFSv4 lists decide.
    pub fn new(
        view: Arc<dyn View>,
        (root, below): (Ino, Ino),
        user: &'a dyn Identity,
    ) -> Result<Sight<'a>> {
        let is_open = Walk::new(&*view, root.0, user)?.directory(below.0)?.is_open;
        let state = State::open(view, below.0)?;
        let directories = HashMap::from([(Vec::new(), Some((below.0, is_open)))]);
        Ok(Sight { state, user, directories })
    }

    /// What the user finds at a path from the directory on.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub fn at(&mut self, path: &[u8]) -> Result<Seen> {
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
        let path = &path[start..];
        let (above, name) = parted(path);
        let Some((directory, is_open)) = self.directory(above)? else {
            return Ok(Seen::default());
        };
        let ino = match name {
            b"" => Some(directory),
            name => self.state.entry(directory, name)?.map(|entry| entry.ino),
        };
        let Some(ino) = ino else { return Ok(Seen::default()) };
        Ok(Seen {
            exists: true,
            is_reached: is_open,
            is_listed: is_open && self.may(directory, READ)?,
            is_readable: is_open && self.may(ino, READ)?,
        })
    }

    fn may(&self, ino: u64, wanted: u16) -> Result<bool> {
        let Some(inode) = self.state.inode(ino)? else { return Ok(false) };
        let walk = Walk::new(&*self.state.view, self.state.root, self.user)?;
        walk.grants(ino, &inode, wanted)
    }

    fn directory(&mut self, path: &[u8]) -> Result<Option<(u64, bool)>> {
        if let Some(known) = self.directories.get(path) {
            return Ok(*known);
        }
        let (mut at, mut found) = (0, self.directories.get(&b""[..]).copied().flatten());
        while let Some((directory, is_open)) = found.filter(|_| at < path.len()) {
            let end = path[at..].iter().position(|byte| *byte == b'/');
            let end = end.map_or(path.len(), |end| at + end);
            let entry = self.state.entry(directory, &path[at..end])?;
            let entry = entry.filter(|entry| entry.kind == InodeKind::Directory);
            found = match entry {
                Some(entry) => {
                    let is_open = is_open && self.may(entry.ino, super::rights::SEARCH)?;
                    Some((entry.ino, is_open))
                }
                None => None,
            };
            at = end + 1;
        }
        self.directories.insert(path.to_vec(), found);
        Ok(found)
    }
}

/// A path as its directory and its name.
fn parted(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
