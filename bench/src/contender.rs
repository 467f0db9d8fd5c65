//! The ways to have a second tree or to keep a state, here and by the means that people have
//! otherwise.

mod peers;
mod pool;

use marram_lab::failure::Result;
use marram_lab::subject::Making;
pub(super) use pool::Pool;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A way to fork, keep, compare and bring back a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// Our mount.
    Marram,
    /// Subvolumes and `btrfs send`.
    BtrfsSubvolume,
    /// `cp --reflink` and rsync on XFS.
    XfsReflink,
    /// `cp --reflink` and rsync on Btrfs.
    BtrfsReflink,
    /// An overlay over ext4.
    Overlay,
    /// `git worktree` on ext4.
    GitWorktree,
    /// Snapshots and clones of zfs-fuse.
    ZfsFuse,
}

impl Way {
    pub(super) const ALL: [Way; 7] = [
        Way::Marram,
        Way::BtrfsSubvolume,
        Way::XfsReflink,
        Way::BtrfsReflink,
        Way::Overlay,
        Way::GitWorktree,
        Way::ZfsFuse,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Marram => "marram",
            Way::BtrfsSubvolume => "btrfs subvolume",
            Way::XfsReflink => "xfs cp --reflink",
            Way::BtrfsReflink => "btrfs cp --reflink",
            Way::Overlay => "overlayfs",
            Way::GitWorktree => "git worktree",
            Way::ZfsFuse => "zfs-fuse clone",
        }
    }
}

/// What one operation cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measured {
    /// From the start of the command to its end.
    pub(super) command: Duration,
    /// What the engine says of itself.
    pub(super) engine: Option<Duration>,
    /// Bytes that it took, or that it made.
    pub(super) bytes: Option<u64>,
    /// Bytes that reached the device until it was durable.
    pub(super) written_bytes: Option<u64>,
}

impl Measured {
    pub(super) fn command(command: Duration) -> Self {
        Self { command, engine: None, bytes: None, written_bytes: None }
    }
}

/// What every way can be asked. `None` is what it has no means for.
pub(super) trait Contender {
    /// The folder in which the tree is to be made, and where changes are brought back to.
    fn origin(&self) -> &Path;

    /// Everything is ready: the tree is there and durable.
    fn settle(&self) -> Result<()>;

    /// One group commit, or what is nearest to it, without a command where there is a way: a file
    /// has been removed before.
    fn commit(&self) -> Result<()> {
        self.settle()
    }

    /// How many group commits there were, where it reports them.
    fn commits(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// A second tree with this name.
    fn fork(&mut self, name: &str) -> Result<Measured>;

    /// Where the second tree of this name is.
    fn forked(&self, name: &str) -> PathBuf;

    /// Bytes that the file system has in use.
    fn used_bytes(&self) -> Result<u64>;

    /// Bytes that were written to its device so far, where that is known.
    fn written_bytes(&self) -> Result<Option<u64>>;

    /// What differs between the second tree and what it began as, and in how many files if it
    /// reports that.
    fn diff(&mut self, name: &str) -> Result<Option<(Measured, Option<u64>)>>;

    fn merge(&mut self, _name: &str) -> Result<Option<Measured>> {
        Ok(None)
    }

    fn snapshot(&mut self, _name: &str) -> Result<Option<Measured>> {
        Ok(None)
    }

    fn rollback(&mut self, _name: &str) -> Result<Option<Measured>> {
        Ok(None)
    }

    fn rollback_directory(&mut self, _name: &str) -> Result<Option<Measured>> {
        Ok(None)
    }

    /// Takes the second tree away.
    fn drop_fork(&mut self, name: &str) -> Result<()>;

    /// Unmounts all.
    fn end(&mut self) -> Result<()>;
}

/// One of them on a fresh file system of its own.
pub(super) fn make(way: Way, folder: &Path, making: &Making) -> Result<Box<dyn Contender>> {
    match way {
        Way::Marram => Ok(Box::new(Pool::make(folder, making)?)),
        _ => peers::make(way, folder, making),
    }
}
