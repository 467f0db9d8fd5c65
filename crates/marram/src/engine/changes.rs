//! What an operation has changed in a volume behind the kernel's back.
//!
//! Changes name no more than has changed, so that a merge of one page of a large file does not cost
//! the cache of all others. They never name less: the kernel would go on with what it remembers.

use marram_vfs::Ino;
use std::ops::Range;

/// Inodes and names of a volume that are not as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Inodes whose attributes, content or entries differ.
    pub(crate) inodes: Vec<ChangedInode>,
    /// Names that lead elsewhere, or nowhere: directory and name.
    pub(crate) names: Vec<(Ino, Vec<u8>)>,
}

/// An inode that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangedInode {
    /// Its number.
    pub(crate) ino: Ino,
    /// Between which bytes its content may differ; empty if only attributes do.
    pub(crate) content: Range<u64>,
}

impl ChangedInode {
    /// The range of an inode of which anything may differ.
    pub(crate) const ALL: Range<u64> = 0..u64::MAX;
    /// The range of an inode of which only attributes differ.
    pub(crate) const ATTRIBUTES: Range<u64> = 0..0;
}

/// The inodes of a volume that the kernel knows.
pub(crate) trait Known {
    /// All of them but the root.
    fn inodes(&self) -> Vec<Ino>;

    /// The root, which the kernel always knows.
    fn root(&self) -> Ino;

    /// How many there are.
    fn count(&self) -> usize;

    /// Whether the kernel knows `ino`.
    fn has(&self, ino: Ino) -> bool;

    /// One of the places of an inode: its directory and its name there, if it can be found.
    fn place_of(&self, ino: Ino) -> Option<(Ino, Vec<u8>)>;

    /// One of the paths of an inode from the root of the volume, if it can be found.
    fn path_of(&self, ino: Ino) -> Option<Vec<u8>>;
}
