//! Admission: may this batch be taken?
//!
//! A batch that is taken can be committed: a sync must not fail for want of space. So space is
//! found for a batch before it is applied, and is counted until the batch is among what is dirty.
//!
//! | file | its part of the answer |
//! | --- | --- |
//! | `cost` | what the batch needs, reckoned from the batch alone |
//! | `room` | what there is for it, beside what is reserved and promised |
//! | `losses`, `look` | what a commit of all that waits needs and gives back |
//! | `shortage` | the search for space, with commits, and with the dry run of a large merge |
//! | `reservation` | the entrance of a batch that does not fit at once |
//! | `quota` | what its dataset may refer to |
//!
//! Admission makes no commit and gives nothing back itself: a [`CommitTurn`] and a [`SpaceMaker`]
//! are handed in by the folders above.

pub(crate) mod cost;
mod look;
mod losses;
pub(crate) mod quota;
pub(crate) mod reservation;
pub(crate) mod room;
pub(crate) mod shortage;

use crate::memtable::dataset::Dataset;
use marram_store::{Batch, Result};

/// The turn to commit, as admission uses it: nobody else commits while there is one.
pub(crate) trait CommitTurn {
    /// Commits all that waits.
    fn commit(&self) -> Result<()>;

    /// What a commit needs at most for a batch of a dataset of which nothing waits, in bytes;
    /// `None` if that cannot be found.
    ///
    /// # Errors
    /// What the commit would find wrong, with the batch or with the trees.
    fn dry_run(&self, dataset: &Dataset, batch: &Batch<'_>) -> Result<Option<u64>>;
}

/// What can make space where a commit gives back too little.
pub(crate) trait SpaceMaker {
    /// See [`CommitTurn`].
    type Turn: CommitTurn;

    /// Waits for the turn to commit.
    fn turn(&self) -> Result<Self::Turn>;

    /// Gives back a piece of what is destroyed, or of the trash; false if there is none.
    fn make_space(&self) -> Result<bool>;
}
