//! The past of a dataset as users speak of it: what differs between two states, a fork's changes
//! brought into its parent, one directory or file taken back, and the versions of one.
//!
//! All begin with the items in which two snapshots differ (`Store::changes`), so their cost follows
//! what has changed, not what is there. `changes` gathers these by inode, `paths` names them, and
//! `ranges` says which bytes of a file differ. [`diff()`] reports all that in words of files,
//! [`merge()`] applies it, and [`roll_back_directory`] takes one directory back. See
//! `docs/decisions/0017-diff-and-merge.md` and `0021-rollback-of-a-directory.md`.
//!
//! **No mounted file system.** States are read through [`marram_records`]. The file system that is
//! changed is a [`Parent`]: it holds still, says which numbers are free, takes one batch, and frees
//! what has lost its last name.
//!
//! **The rights of a user.** [`Bound`] stands before a parent, and takes only what a user could
//! have done to it by system calls; see `permission`.
//!
//! **The same inode.** Inode numbers are not used again, except after a rollback, which goes
//! back to what had been handed out then. So an inode of two states is the same if its number,
//! generation and birth are. To users, a copy that a rollback made is the same too: see
//! `inode_aliases`.

#![deny(clippy::cast_possible_truncation)]

mod branch;
mod change_set;
mod changes;
mod conflict;
mod conflicts;
mod counterpart;
mod diff;
mod directory_rollback;
mod equal;
mod has_changed;
mod inode_aliases;
mod line_merge;
mod merge;
mod merge_batch;
mod merge_files;
mod merge_names;
mod parent;
mod parted;
mod paths;
mod permission;
mod ranges;
mod restoring;
mod selection;
mod stable_source;
mod subtree;
mod text;
mod three_way;
mod touched;
mod versions;

pub use branch::{Branch, Direction};
pub use change_set::{ChangeSet, ChangedInode, change_set};
pub use conflict::{Choice, Conflict, ConflictKind, ConflictTexts, MergeOptions, MergeReport};
pub use diff::{AttributeChange, Difference, What, XattrChange, diff};
pub use directory_rollback::{DirectoryRollback, roll_back_below, roll_back_directory};
pub use has_changed::has_changed;
pub use line_merge::{TextPiece, merge_lines};
pub use merge::{
    Hold, IntoDirectory, MergePart, MergeSides, bring_across, merge, merge_elsewhere,
    merge_together,
};
pub use parent::{HeldParent, Parent, ParentChange};
pub use paths::path_of;
pub use permission::{
    Bound, Modes, READ, Refusal, Refusals, SEARCH, Seen, Sight, WRITE, grants, may_change_names,
};
pub use selection::Select;
pub use stable_source::{StableSource, destroy_leftovers};
pub use touched::{Overlap, Overlaps, Touched};
pub use versions::{Aspect, Counts, Found, Version, VersionChange, VersionsOf, versions};
