//! Telling where damage is, in terms that a user knows.

use crate::options::DamagedRange;
use crate::volume::Volume;
use marram_records::directory::name_of;
use marram_vfs::Ino;

/// Most directories on the way from the root to a damaged file that is reported.
const DEPTH_MAX: usize = 1000;

/// Reports a damaged range of a file. No lock is held.
pub(crate) fn report_damage(volume: &Volume, ino: u64, offset: u64, len: u64, reason: String) {
    let path = path_of(volume, ino);
    (volume.options.on_damage)(DamagedRange { ino: Ino(ino), path, offset, len, reason });
}

/// One of the paths of an inode, if it can still be found: the parent in the record of what
/// is no directory is only a hint, and anything may be renamed meanwhile.
fn path_of(volume: &Volume, ino: u64) -> Option<Vec<u8>> {
    let mut names = Vec::new();
    let mut at = ino;
    while at != volume.root() {
        let parent = volume.find_inode(at).ok()??.parent;
        names.push(name_of(&*volume.view, parent, at).ok()??);
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
