//! The seam for engines: what the daemon and the commands ask of a home.
//!
//! [`Home`] is what every home answers. What only some have is a capability: snapshots and forks
//! that are members of a mount ([`Snapshots`]), transactions ([`Transactions`]), streams
//! ([`Streams`]), passes over files ([`Passes`]), a block device that a mount can claim
//! ([`Claim`]). A home that lacks one refuses the commands that need it by [`lacks`].

use super::mounts::Mounts;
use super::volume::{Opened, VolumeOptions};
use crate::control::protocol::{
    Answer, Author, BackgroundRewriting, CommitSummary, CompareOrder, DamageRow, DedupTotals,
    DifferenceRow, JointCommit, JointId, Operation, PassOrder, ReceiveOrder, Resolution, SendOrder,
    Standing, TwoPoolRow,
};
use crate::error::{Error, Result};
use crate::identity;
use crate::paths;
use marram_store::{DatasetName, Grants, Source};
use marram_tx::ReadSet;
use marram_vfs::{Identity, Ino, Timestamp};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

/// A home that is open, and that this process has for itself.
pub(crate) trait Home: Send + Sync {
    /// What users call a home of its kind.
    fn kind(&self) -> &'static str;

    /// Its number among all homes, in hexadecimal: the control socket is named by it.
    fn id(&self) -> String;

    /// Where it is.
    fn path(&self) -> &Path;

    /// What was there when it was opened.
    fn identity(&self) -> identity::Identity;

    /// Opens a dataset or snapshot as a file system.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    fn open(&self, source: &Source, options: VolumeOptions) -> Result<Opened>;

    /// Performs an operation, on behalf of `author` or else of the user of this process.
    /// Where mounts show the home, the operation is performed under the programs that use them.
    ///
    /// # Errors
    /// Whatever refuses it or fails; then nothing has changed.
    fn perform(
        &self,
        operation: &Operation,
        author: Option<&Author>,
        mounts: Option<&dyn Mounts>,
    ) -> Result<Answer>;

    /// Whether other hosts or processes can have it open at the same time.
    fn is_shareable(&self) -> bool {
        false
    }

    /// Whether it says which names have changed when a whole dataset goes to another state.
    fn names_what_changes(&self) -> bool {
        true
    }

    /// Damage that is known without looking for it.
    fn known_damage(&self) -> Vec<DamageRow> {
        Vec::new()
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// Something could not be made durable.
    fn sync(&self) -> Result<()>;

    /// Whether it was shut down as by a power cut, and writes nothing more.
    fn is_halted(&self) -> bool;

    /// Bytes that the kernel may hold back in all mounts together, where space is kept for them;
    /// else as many as it likes, which a full home may refuse.
    fn held_back_bytes(&self) -> Option<u64>;

    /// Removes what a crash has left, if there is such a thing, before the first mount. Calls `log`
    /// with each line about it.
    fn clear_left(&self, _log: &dyn Fn(&str)) {}

    /// Goes on with what can wait until the first mount answers, if there is such a thing.
    fn settle(&self, _log: &dyn Fn(&str)) {}

    /// The work that it does in the background for as long as mounts show it; none by itself.
    fn tasks(self: Arc<Self>) -> Vec<Task> {
        Vec::new()
    }

    /// What has come of that work.
    fn background(&self) -> BackgroundReport {
        BackgroundReport::default()
    }

    /// Makes everything durable and ends. The lock stays.
    ///
    /// # Errors
    /// Something could not be made durable.
    fn close(&self) -> Result<()>;

    /// As [`Home::close`]; from then on nothing is written where the home lies.
    ///
    /// # Errors
    /// Something could not be made durable.
    fn close_for_good(&self) -> Result<()>;

    /// Gives up the lock of a home that has been closed.
    fn unlock(&self);

    /// Snapshots and forks.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// Streams from and to it.
    fn streams(&self) -> Option<&dyn Streams> {
        None
    }

    /// Passes over the files below directories.
    fn passes(&self) -> Option<&dyn Passes> {
        None
    }

    /// Transactions over its datasets.
    fn transactions(&self) -> Option<&dyn Transactions> {
        None
    }

    /// The block device that it lies on.
    fn claim(&self) -> Option<&dyn Claim> {
        None
    }
}

/// What a task runs.
pub(crate) type Work = Box<dyn FnOnce(&dyn Mounts) + Send>;

/// Work in the background, which has a thread of its own.
pub(crate) struct Task {
    /// The thread's name.
    pub(crate) name: &'static str,
    /// Runs until the daemon ends.
    pub(crate) run: Work,
}

/// What has come of work in the background; nothing where a home has no such work.
#[derive(Default)]
pub(crate) struct BackgroundReport {
    /// Of sharing what was written.
    pub(crate) dedup: Option<DedupTotals>,
    /// Of bringing fragments together.
    pub(crate) rewriting: Option<BackgroundRewriting>,
}

/// A directory below `.marram` of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ControlDirectory {
    /// Snapshots of the dataset, which never change.
    Snapshots,
    /// Forks of it, and of those, that belong to the user of this process.
    Forks,
    /// The same that belong to another user.
    ForksOf(u32),
}

impl ControlDirectory {
    /// Where a fork of the user `owner` is shown. Another user than root has the pool for itself,
    /// so all forks are its own.
    pub(crate) fn of_fork(owner: u32) -> ControlDirectory {
        match owner {
            0 => ControlDirectory::Forks,
            _ if !paths::is_root() => ControlDirectory::Forks,
            other => ControlDirectory::ForksOf(other),
        }
    }
}

/// A snapshot or fork that is seen below a mount of its dataset.
pub(crate) struct Member {
    /// What it is.
    pub(crate) source: Source,
    /// The directory that is shown as its root.
    pub(crate) root: Ino,
    /// A number that another member, or another one of the same name, hardly has.
    pub(crate) mark: u32,
}

/// The capability to keep states of datasets, to fork them and to compare them.
pub(crate) trait Snapshots {
    /// The names in a control directory of a mount of `dataset`, sorted.
    ///
    /// # Errors
    /// They cannot be read.
    fn names(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
    ) -> marram_vfs::Result<Vec<String>>;

    /// The users, other than that of this process, that have forks of `dataset`.
    ///
    /// # Errors
    /// They cannot be read.
    fn users(&self, _dataset: &DatasetName) -> marram_vfs::Result<BTreeSet<u32>> {
        Ok(BTreeSet::new())
    }

    /// The owner of a fork, or of the fork that something is a snapshot of; none if it is
    /// of no fork.
    ///
    /// # Errors
    /// It is not there.
    fn owner_of_fork(&self, _source: &Source) -> Result<Option<u32>> {
        Ok(None)
    }

    /// Whether a user may change names in a directory of a dataset, and comes to it.
    ///
    /// # Errors
    /// It cannot be read; rights are decided in another way there.
    fn may_change_names(
        &self,
        _dataset: &DatasetName,
        _directory: u64,
        _user: &dyn Identity,
    ) -> Result<bool> {
        Ok(false)
    }

    /// What root hands out of a dataset.
    ///
    /// # Errors
    /// It is not there.
    fn grants(&self, _dataset: &DatasetName) -> Result<Grants> {
        Ok(Grants::default())
    }

    /// Most forks that one user may have at a time, to fork a dataset.
    ///
    /// # Errors
    /// It is not there.
    fn forks_of_user_max(&self, _dataset: &DatasetName) -> Result<usize> {
        Ok(0)
    }

    /// Whether a snapshot has a directory of this number that was made then. A home that has no
    /// quick answer says yes: a lookup finds out.
    ///
    /// # Errors
    /// [`marram_vfs::Error::NotFound`], or a failed read.
    fn has_directory(
        &self,
        _snapshot: &Source,
        _ino: Ino,
        _created: Timestamp,
    ) -> marram_vfs::Result<bool> {
        Ok(true)
    }

    /// The member of that name.
    ///
    /// # Errors
    /// [`marram_vfs::Error::NotFound`], or a failed read.
    fn find(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
        name: &str,
    ) -> marram_vfs::Result<Member>;

    /// Calls `visit` with each difference between two states below a directory.
    ///
    /// # Errors
    /// Whatever refuses it or fails; what `visit` fails with.
    fn compare(
        &self,
        order: &CompareOrder,
        visit: &mut dyn FnMut(DifferenceRow) -> Result<()>,
    ) -> Result<()>;
}

/// The capability to move history between homes.
pub(crate) trait Streams {
    /// Writes a stream.
    ///
    /// # Errors
    /// Whatever refuses it or fails; the stream has no end then.
    fn send(&self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer>;

    /// Reads a stream, and shows all of it at once.
    ///
    /// # Errors
    /// Whatever refuses it or fails; then nothing has changed that anybody sees.
    fn receive(
        &self,
        order: &ReceiveOrder,
        input: &mut dyn Read,
        mounts: Option<&dyn Mounts>,
    ) -> Result<Answer>;
}

/// A transaction to commit.
pub(crate) struct CommitOrder<'o> {
    /// The fork that it worked in, to which nobody writes any more.
    pub(crate) fork: &'o Source,
    /// What it has read.
    pub(crate) reads: &'o ReadSet,
    /// On whose behalf.
    pub(crate) author: &'o Author,
}

/// The capability to run transactions over datasets.
pub(crate) trait Transactions {
    /// Makes the fork that the transaction `id` works in. A crash takes it away.
    ///
    /// # Errors
    /// Whatever refuses it or fails; then there is none.
    fn begin(&self, dataset: &DatasetName, id: &str) -> Result<Source>;

    /// What a fork that has begun is compared with: its base, and the inode of the root of both.
    ///
    /// # Errors
    /// There is no such fork.
    fn base(&self, fork: &Source) -> Result<(Source, u64)>;

    /// Brings all that a transaction has changed into its dataset, as one step that is durable
    /// when this returns; or nothing, if others have changed since what it has read or written.
    ///
    /// # Errors
    /// Whatever else refuses it or fails; then nothing has changed. Where it is not known whether
    /// it has been done, that is an answer, which says so.
    fn commit(&self, order: &CommitOrder<'_>, mounts: &dyn Mounts) -> Result<CommitSummary>;

    /// Takes the fork of a transaction away, which nobody has open.
    ///
    /// # Errors
    /// Somebody has it open; a failed commit.
    fn discard(&self, fork: &Source) -> Result<()>;

    /// Transactions over several datasets at a time.
    fn several(&self) -> Option<&dyn SeveralDatasets> {
        None
    }

    /// Transactions over this home and another one.
    fn two_pools(&self) -> Option<&dyn TwoPools> {
        None
    }
}

/// Has the other pool decide: whether it has committed; nothing if that cannot be known.
pub(crate) type Decide = Arc<dyn Fn() -> Option<bool> + Send + Sync>;

/// The capability to run a transaction over this home and another one.
pub(crate) trait TwoPools {
    /// As [`SeveralDatasets::commit_all`], if the other pool decides so when all is prepared.
    ///
    /// # Errors
    /// As there; it is not committed in the other pool, or that is not known.
    fn prepare(
        &self,
        orders: &[CommitOrder<'_>],
        mounts: &dyn Mounts,
        joint: &JointCommit,
        decide: Decide,
    ) -> Result<Vec<CommitSummary>>;

    /// As [`SeveralDatasets::commit_all`]: the decision for both pools.
    ///
    /// # Errors
    /// As there.
    fn decide(
        &self,
        orders: &[CommitOrder<'_>],
        mounts: &dyn Mounts,
        joint: &JointCommit,
    ) -> Result<Vec<CommitSummary>>;

    /// How a transaction stands, but for whether it is open.
    fn standing(&self, of: &JointId) -> Standing;

    /// Whether one of this id is not over, or may be found again after a crash.
    fn knows(&self, id: &str) -> bool;

    /// Those that are not over.
    fn unfinished(&self) -> Vec<TwoPoolRow>;

    /// Ends or forgets one of those. Mounts that have lived through the doubt go on.
    ///
    /// # Errors
    /// There is none of this id with this other pool; it is at another stage; a failed commit.
    fn resolve(&self, of: &JointId, resolution: Resolution, mounts: &dyn Mounts) -> Result<()>;
}

/// The capability to run a transaction over several datasets.
pub(crate) trait SeveralDatasets {
    /// Makes the forks that the transaction `id` works in, one of each dataset, all of them at one
    /// moment. A crash takes them away.
    ///
    /// # Errors
    /// Whatever refuses it or fails; then there is none.
    fn begin_in(&self, datasets: &[DatasetName], id: &str) -> Result<Vec<Source>>;

    /// As [`Transactions::commit`], of what a transaction has changed in all of its datasets: all
    /// of it at one moment, or nothing. The answers are in the order of the orders.
    ///
    /// # Errors
    /// As there.
    fn commit_all(
        &self,
        orders: &[CommitOrder<'_>],
        mounts: &dyn Mounts,
    ) -> Result<Vec<CommitSummary>>;
}

/// What a pass does to the files below directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Finds and shares equal content.
    Dedup,
    /// Brings fragments together.
    Defragment,
}

/// Mounts whose directories a pass goes over, and whether it is still wanted.
pub(crate) struct Watched<'w> {
    /// The mounts.
    pub(crate) mounts: &'w dyn Mounts,
    /// Asked before each step.
    pub(crate) is_wanted: &'w mut dyn FnMut() -> bool,
}

/// The capability to go over the files below directories.
pub(crate) trait Passes {
    /// Makes a pass.
    ///
    /// # Errors
    /// A directory that is not there or, where mounts show the home, not in sight; a commit failed.
    fn pass(&self, pass: Pass, order: &PassOrder, watched: Option<Watched<'_>>) -> Result<Answer>;
}

/// The capability of a block device to be the source of a mount.
pub(crate) trait Claim {
    /// Lets the kernel take the block device for a mount; the lock stays.
    fn release(&self);

    /// Takes the block device back from the kernel after that mount; whether it could be had.
    fn take_again(&self) -> bool;
}

/// The refusal of a command that needs a capability which a home does not have.
pub(crate) fn lacks(home: &dyn Home, capability: &str) -> Error {
    Error::usage(format!(
        "{} is a {}, which has no {capability}",
        home.path().display(),
        home.kind()
    ))
}
