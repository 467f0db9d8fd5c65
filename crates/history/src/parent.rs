//! The file system that a merge or a way back changes, as far as history has to know it.
//!
//! History reads states and plans one batch. What else a live file system knows (locks, inode
//! numbers that were given away, access times that wait in memory, inodes in use, limits) stays
//! behind [`Parent`] and [`HeldParent`], so a dataset without a mount is as good a parent
//! as one that is served.
//!
//! **The order of one merge.** [`Parent::hold_still`], a state of the dataset that is read item by
//! item, one batch planned from it, [`HeldParent::complete_batch`], the merge in the store,
//! [`HeldParent::applied`], the end of the hold, a sync of [`Parent::view`], and
//! [`Parent::give_back`] for each inode that lost its last name. Of several datasets all parents
//! are held before the first of their states is read, and until all batches have been applied.

use marram_format::record::{Inode, Time};
use marram_records::usage::UsageChange;
use marram_store::{Batch, View};
use marram_vfs::{Ino, Result};

/// A file system that takes a merge or a way back.
///
/// Rules for an implementation:
///
/// 1. [`Parent::view`] is the live dataset, and the only view through which it is changed.
/// 2. While a [`HeldParent`] lives, no other operation reads or changes the dataset through this
///    file system, nor takes a number for a new inode. What an operation acknowledged before is
///    in the view.
/// 3. The whole change is one batch of the store: all of it is applied, or none.
/// 4. An error of [`Parent::hold_still`] or [`HeldParent::complete_batch`] leaves everything as it
///    was.
/// 5. No method but [`Parent::with_space`] and [`Parent::free_removed`] waits for space.
pub trait Parent {
    /// The live dataset.
    fn view(&self) -> &dyn View;

    /// The directory that is the root of what is shown.
    fn root(&self) -> Ino;

    /// Refuses a file system that has been shut down.
    ///
    /// # Errors
    /// That it serves no more.
    fn check_running(&self) -> Result<()>;

    /// Waits until no operation reads or changes anything, and keeps it so until the result goes.
    ///
    /// # Errors
    /// That it cannot be held still: nothing is held then.
    fn hold_still(&self) -> Result<Box<dyn HeldParent + '_>>;

    /// Runs an attempt, and runs it again as long as it finds no space, or a limit in its way, and
    /// more has been freed since. Nothing is held still meanwhile.
    ///
    /// # Errors
    /// Those of the last attempt.
    fn with_space(&self, attempt: &mut dyn FnMut() -> Result<()>) -> Result<()>;

    /// Frees all that was removed before and waits to be freed.
    ///
    /// # Errors
    /// A failed read or write; a full store.
    fn free_removed(&self) -> Result<()>;

    /// An inode has lost its last name by a batch that was applied, and has an orphan item: it is
    /// to be freed as soon as it is not in use.
    fn give_back(&self, ino: u64);
}

/// A file system that is held still.
pub trait HeldParent {
    /// The time that changed inodes get.
    fn now(&self) -> Time;

    /// Numbers of inodes from this on have never been used.
    fn first_number(&self) -> u64;

    /// Whether an inode is to stay though it has no name, or its number is not to be used.
    fn is_in_use(&self, ino: u64) -> bool;

    /// Brings the record of an inode up to date with what is not in the view yet.
    fn complete(&self, ino: u64, inode: &mut Inode);

    /// Whether the store and the limits of owners would take a change.
    ///
    /// # Errors
    /// Those that the merge would have, as far as a dry run finds them.
    fn dry_run(&self, change: ParentChange<'_>) -> Result<()>;

    /// The whole batch of a change: with the counters and sums that it moves. It is applied through
    /// [`Parent::view`] by [`marram_store::OperationLog::apply_merge`], or beside those of other
    /// parents by [`marram_store::SeveralDatasets::apply_merges`].
    ///
    /// # Errors
    /// The change is refused: nothing is changed.
    fn complete_batch(&mut self, change: &mut ParentChange<'_>) -> Result<Batch<'static>>;

    /// That batch has been applied: forgets what was remembered of the changed inodes.
    fn applied(&mut self, change: &ParentChange<'_>);
}

/// What is to be done to a parent, as one batch.
pub struct ParentChange<'a> {
    /// All edits but those of counters and of what owners use.
    pub batch: Batch<'static>,
    /// By how much the number of inodes changes.
    pub inodes: i64,
    /// The first number that is free afterwards, if the change makes inodes.
    pub next_number: Option<u64>,
    /// By how much the sums of owners move.
    pub usage: UsageChange,
    /// The inodes that it changes or removes.
    pub changed: &'a [u64],
}

impl std::fmt::Debug for ParentChange<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ParentChange")
            .field("inodes", &self.inodes)
            .field("next_number", &self.next_number)
            .field("changed", &self.changed)
            .finish_non_exhaustive()
    }
}
