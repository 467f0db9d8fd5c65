//! Where inodes are, in terms that a user knows: to report damage, and changes.

use crate::options::DamagedRange;
use crate::volume::Volume;
use marram_format::record::Entry;
use marram_records::directory::{entry_key, name_of};
use marram_records::failure::from_store;
use marram_vfs::{Ino, Result};

/// Most directories on the way from the root to a damaged file that is reported.
const DEPTH_MAX: usize = 1000;

/// Reports a damaged range of a file. No lock is held.
pub(crate) fn report_damage(volume: &Volume, ino: u64, offset: u64, len: u64, reason: String) {
    let path = path_of(volume, ino);
    (volume.options.on_damage)(DamagedRange { ino: Ino(ino), path, offset, len, reason });
}

/// One of the places of an inode, its directory and its name there, if it can still be found. The
/// record has a hint of where in the directory the name is; else the directory is searched.
pub(crate) fn place_of(volume: &Volume, ino: u64) -> Result<Option<(u64, Vec<u8>)>> {
    let Some(inode) = volume.find_inode(ino)? else { return Ok(None) };
    let hinted = volume.view.get(entry_key(inode.parent, inode.name_place)).map_err(from_store)?;
    let entry = hinted.as_ref().and_then(|item| Entry::decode(&item.value).ok());
    let name = match entry.filter(|entry| entry.ino == ino) {
        Some(entry) => Some(entry.name.to_vec()),
        None => name_of(&*volume.view, inode.parent, ino)?,
    };
    Ok(name.map(|name| (inode.parent, name)))
}

/// One of the paths of an inode, if it can still be found: the parent in the record of what
/// is no directory is only a hint, and anything may be renamed meanwhile.
pub(crate) fn path_of(volume: &Volume, ino: u64) -> Option<Vec<u8>> {
    let mut names = Vec::new();
    let mut at = ino;
    while at != volume.root() {
        let (parent, name) = place_of(volume, at).ok()??;
        names.push(name);
        at = parent;
        if names.len() > DEPTH_MAX {
            return None;
        }
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Some(path)
}
