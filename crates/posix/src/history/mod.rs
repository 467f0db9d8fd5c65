//! The past of a dataset as users speak of it: what differs between two states, and a fork's
//! changes brought into its parent.
//!
//! Both begin with the items in which two snapshots differ (`Store::changes`), so their cost
//! follows what has changed, not what is there. `changes` gathers these by inode, `state` reads
//! what is around them, `paths` names them, `ranges` says which bytes of a file differ. `diff`
//! tells all that in words of files; `merge` applies it, and `directory` takes one directory back.
//! See `docs/decisions/0017-diff-and-merge.md` and `0021-rollback-of-a-directory.md`.
//!
//! **Who is who.** Inode numbers are not used again, except after a rollback, which goes back to
//! what had been handed out then. So an inode of two states is the same if its number, generation
//! and birth are. To users, a copy that a rollback made is the same too: see `twins`.

mod changes;
mod conflict;
mod conflicts;
mod counterpart;
mod diff;
mod directory;
mod equal;
mod files;
mod kept;
mod last_names;
mod lines;
mod merge;
mod names;
mod paths;
mod ranges;
mod restoring;
mod sides;
mod state;
mod subtree;
mod text;
mod twins;
mod writing;

pub use conflict::{Choice, Conflict, ConflictKind, MergeOptions, MergeReport};
pub use diff::{AttributeChange, Difference, What, XattrChange, diff};
pub use directory::DirectoryRollback;
pub use kept::{Kept, let_go_of_left};
pub use lines::{TextPiece, merge_lines};
pub use merge::MergeSides;
pub(crate) use state::{Named, State};
