//! What the explorer needs of a file system under test.

use crate::clock::HistoryClock;
use crate::home::HomeResult;
use marram_device::Device;
use marram_vfs::{FileSystem, Ino};
use std::sync::Arc;

/// What came of the commit of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// All that it has changed is there, durably.
    Applied,
    /// It has changed nothing, so nothing was done.
    Unchanged,
    /// Others have changed the same, or there is no space: nothing of it is there.
    Refused,
}

/// A kind of file system with datasets and snapshots on a device. An error is a failure of the
/// test, in words.
pub trait Target: Sync {
    /// A device with an empty one on it.
    fn make(&self) -> HomeResult<Arc<[u8]>>;

    /// Mounts what a device holds.
    fn mount(
        &self,
        device: Arc<dyn Device>,
        clock: Arc<HistoryClock>,
    ) -> HomeResult<Box<dyn Mounted>>;

    /// Looks at the device from outside: finds nothing wrong. With `content`, every block of
    /// content is verified too.
    fn verify(&self, device: &dyn Device, content: bool) -> HomeResult<()>;
}

/// A mounted one. Dropping it loses what is not durable, as a crash would.
pub trait Mounted: Send + Sync {
    /// The names of all datasets and snapshots, `root` among them, sorted.
    fn sources(&self) -> HomeResult<Vec<String>>;

    /// The file system in a dataset or snapshot.
    fn open(&self, source: &str) -> HomeResult<Arc<dyn FileSystem>>;

    /// What happens in the background from time to time: freed space is given back, and all is
    /// committed.
    fn commit(&self) -> HomeResult<()>;

    /// Another thread than the one that mounted it is going to use it.
    fn enter_thread(&self) {}

    /// Keeps the present state of a dataset, under a name like `root@s`.
    fn snapshot(&self, source: &str) -> HomeResult<()>;

    /// Makes a dataset that begins as a snapshot of the root dataset.
    fn clone_snapshot(&self, snapshot: &str, clone: &str) -> HomeResult<()>;

    /// Makes a fork of the whole root dataset, whose base is `root@fork:NAME`.
    fn fork(&self, name: &str) -> HomeResult<()>;

    /// Brings what a fork has changed into the root dataset; false if both changed the same, and
    /// nothing was done.
    fn merge(&self, fork: &str) -> HomeResult<bool>;

    /// Lets the root dataset go on from a snapshot of it, and keeps the state before as another.
    fn roll_back(&self, snapshot: &str, keep: &str) -> HomeResult<()>;

    /// Lets a directory of the root dataset go back to what it was in a snapshot of that; false if
    /// there is nothing that it could go back to.
    fn roll_back_directory(&self, directory: Ino, snapshot: &str) -> HomeResult<bool>;

    /// Begins a transaction on the whole of datasets; returns what it sees and changes of each.
    /// None if there is no space for one.
    fn begin_transaction(
        &self,
        id: &str,
        datasets: &[&str],
    ) -> HomeResult<Option<Vec<Arc<dyn FileSystem>>>>;

    /// Commits a transaction on these datasets. It still has to be ended.
    fn commit_transaction(&self, id: &str, datasets: &[&str]) -> HomeResult<Committed>;

    /// Ends a transaction on so many datasets, whose file systems are not open any more.
    fn end_transaction(&self, id: &str, datasets: usize) -> HomeResult<()>;

    /// Destroys a dataset or snapshot, none of whose file systems are open.
    fn destroy(&self, source: &str) -> HomeResult<()>;
}
