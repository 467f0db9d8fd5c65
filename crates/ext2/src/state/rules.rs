//! The rules of soft updates by name: tests of tests leave one of them out.
//!
//! `docs/ext2.md` has them in one table, operation by operation.

use crate::state::Work;
use marram_patch::{After, Owner};

/// What freed bits belong to: no sync needs them, so they become one patch of their sector.
pub(crate) const FREED: Owner = Owner(u64::MAX);
/// What blocks of the log belong to.
pub(crate) const LOG: Owner = Owner(u64::MAX - 1);

/// What a change waits for, and why. That a new entry waits until the index of its directory is
/// cleared is not among them: the mark of an index lies in the sector of the directory's size, for
/// which each entry waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An entry waits for its inode: else a name leads to an unused inode.
    EntryAfterInode,
    /// An inode waits for its bit: else it is in use and marked as free.
    InodeAfterBit,
    /// A pointer waits for its block and the block's bit: else a file has other bytes.
    PointerAfterBlock,
    /// A block of pointers waits for all that it points to.
    PointersAfterBelow,
    /// A directory waits for its first block: else it has no entry `..`.
    DirectoryAfterBlock,
    /// A new block of a directory waits for the inode that its entry names.
    GrowthAfterInode,
    /// A removed entry waits for what made it seen: else it comes back.
    RemovalAfterSeen,
    /// An entry waits for the one before it: else it is not seen, and the old name is away.
    EntryAfterSeen,
    /// A name waits until the same name at another place is away: else there are two.
    NameAfterAway,
    /// A count of names waits for the name to be away: else it is too low.
    CountAfterAway,
    /// What frees an inode waits for the inode: else a name leads to a free one.
    FreeAfterInode,
    /// What frees a block waits for the pointer: else it is in use and marked as free.
    FreeAfterPointer,
    /// A link waits for the count of names.
    LinkAfterCount,
    /// A moved name waits for the count of names.
    MoveAfterCount,
    /// A moved name waits for what was written to the file: else a file is replaced by an empty
    /// one.
    MoveAfterContent,
    /// The old name waits for the new one: else there is none.
    OldAfterNew,
    /// A replaced inode loses its name after the entry leads elsewhere.
    ReplacedAfterEntry,
    /// The count of a parent waits for the directory that is gone.
    ParentAfterDirectory,
    /// A name of a new directory waits for the count of its parent.
    DirectoryAfterParent,
    /// One of several names waits for the others.
    LossAfterNames,
    /// A directory waits until it is empty before its name goes.
    LossAfterEmptied,
    /// An inode waits for its block of extended attributes.
    InodeAfterAttributes,
    /// A size that grows waits until nothing is left behind the old one: else a file has bytes
    /// again that were cut off.
    SizeAfterCleared,
}

impl Rule {
    /// All of them.
    pub const ALL: [Rule; 23] = [
        Rule::EntryAfterInode,
        Rule::InodeAfterBit,
        Rule::PointerAfterBlock,
        Rule::PointersAfterBelow,
        Rule::DirectoryAfterBlock,
        Rule::GrowthAfterInode,
        Rule::RemovalAfterSeen,
        Rule::EntryAfterSeen,
        Rule::NameAfterAway,
        Rule::CountAfterAway,
        Rule::FreeAfterInode,
        Rule::FreeAfterPointer,
        Rule::LinkAfterCount,
        Rule::MoveAfterCount,
        Rule::MoveAfterContent,
        Rule::OldAfterNew,
        Rule::ReplacedAfterEntry,
        Rule::ParentAfterDirectory,
        Rule::DirectoryAfterParent,
        Rule::LossAfterNames,
        Rule::LossAfterEmptied,
        Rule::InodeAfterAttributes,
        Rule::SizeAfterCleared,
    ];
}

impl Work<'_> {
    /// Lets the changes that follow belong to an inode: a sync of it needs them, or it needs them
    /// to be found.
    pub(crate) fn for_inode(&mut self, number: u64) {
        self.plan.set_owner(Owner(number));
    }

    /// What a change waits for by a rule, unless a test has left that rule out.
    pub(crate) fn by(&self, rule: Rule, after: Vec<After>) -> Vec<After> {
        if self.state.left_out == Some(rule) { Vec::new() } else { after }
    }
}
