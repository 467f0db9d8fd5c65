//! The path of an inode, for messages.

use crate::checker::Checker;
use crate::tree::Lookup;
use marram_format::key::{Key, kind};
use marram_format::pointer::Pointer;
use marram_format::record::{Entry, Inode};

const ROOT: u64 = 1;
/// Directories that are followed upwards.
const DEPTH_MAX: usize = 128;

/// One of the paths of an inode, if it can be found by the parents that inodes name.
pub(super) fn path_of(checker: &mut Checker<'_>, root: &Pointer, ino: u64) -> Option<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut at = ino;
    while at != ROOT {
        if names.len() == DEPTH_MAX {
            return None;
        }
        let parent = parent_of(checker, root, at)?;
        names.push(name_in(checker, root, parent, at)?);
        at = parent;
    }
    if names.is_empty() {
        return Some(b"/".to_vec());
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    Some(path)
}

fn parent_of(checker: &mut Checker<'_>, root: &Pointer, ino: u64) -> Option<u64> {
    let key = Key::new(ino, kind::INODE, 0);
    let mut parent = None;
    let mut visit = |_: Key, value: &bytes::Bytes| {
        parent = Inode::decode(value).ok().map(|inode| inode.parent);
        false
    };
    Lookup::new(key, key, &mut visit).run(checker, root);
    parent
}

fn name_in(checker: &mut Checker<'_>, root: &Pointer, directory: u64, ino: u64) -> Option<Vec<u8>> {
    let from = Key::new(directory, kind::ENTRY, 0);
    let to = Key::new(directory, kind::ENTRY, u64::MAX);
    let mut name = None;
    let mut visit = |_: Key, value: &bytes::Bytes| {
        if let Ok(entry) = Entry::decode(value)
            && entry.ino == ino
        {
            name = Some(entry.name.to_vec());
        }
        name.is_none()
    };
    Lookup::new(from, to, &mut visit).run(checker, root);
    name
}
