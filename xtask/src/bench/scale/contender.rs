//! The ways to have a second tree, and what is asked of each.

use super::table::{Measured, Table};
use super::{peers, pool, tree};
use crate::failure::{Result, fail};
use std::path::Path;
use std::time::{Duration, Instant};

/// A way to fork, compare and bring back a tree.
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

    /// The largest tree that it is asked for: what copies each file would take minutes.
    pub(super) fn files_max(self) -> u64 {
        match self {
            Way::Marram | Way::BtrfsSubvolume | Way::Overlay => 2_000_000,
            Way::XfsReflink | Way::BtrfsReflink | Way::ZfsFuse => 200_000,
            Way::GitWorktree => 20_000,
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Fork,
    Snapshot,
    Rollback,
    DirectoryRollback,
    /// Of a fork in which so much is changed.
    Diff(Share),
    Merge(Share),
}

/// How much of a tree is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Share {
    One,
    Hundred,
    Hundredth,
    Tenth,
}

impl Share {
    const ALL: [Share; 4] = [Share::One, Share::Hundred, Share::Hundredth, Share::Tenth];

    fn files(self, of: u64) -> u64 {
        match self {
            Share::One => 1,
            Share::Hundred => 100.min(of),
            Share::Hundredth => of / 100,
            Share::Tenth => of / 10,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Share::One => "1 changed file",
            Share::Hundred => "100 changed files",
            Share::Hundredth => "1 % changed files",
            Share::Tenth => "10 % changed files",
        }
    }
}

impl Operation {
    pub(super) const ALL: [Operation; 12] = [
        Operation::Fork,
        Operation::Snapshot,
        Operation::Rollback,
        Operation::DirectoryRollback,
        Operation::Diff(Share::One),
        Operation::Diff(Share::Hundred),
        Operation::Diff(Share::Hundredth),
        Operation::Diff(Share::Tenth),
        Operation::Merge(Share::One),
        Operation::Merge(Share::Hundred),
        Operation::Merge(Share::Hundredth),
        Operation::Merge(Share::Tenth),
    ];

    pub(super) fn title(self) -> String {
        match self {
            Operation::Fork => "a writable second tree".to_owned(),
            Operation::Snapshot => "a state kept".to_owned(),
            Operation::Rollback => "back to a kept state".to_owned(),
            Operation::DirectoryRollback => "one directory back to a kept state".to_owned(),
            Operation::Diff(share) => format!("what differs, {}", share.words()),
            Operation::Merge(share) => format!("brought back, {}", share.words()),
        }
    }
}

/// What every way can be asked. `None` is what it has no means for.
pub(super) trait Contender {
    /// The folder in which the tree is to be made, and where changes are brought back to.
    fn origin(&self) -> &Path;

    /// Everything is ready: the tree is there and durable.
    fn settle(&mut self) -> Result<()>;

    /// A second tree with this name.
    fn fork(&mut self, name: &str) -> Result<Measured>;

    /// Where the second tree of this name is.
    fn forked(&self, name: &str) -> std::path::PathBuf;

    /// Bytes that the file system has in use.
    fn used_bytes(&mut self) -> Result<u64>;

    /// What differs between the second tree and what it began as, and how many files that are if
    /// that is told.
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

/// Quick operations are repeated, and the median told, until this time is over.
const PATIENCE: Duration = Duration::from_secs(3);
const ROUNDS: u32 = 11;

/// Measures all that the way can do with a tree of that many files.
pub(super) fn measure(way: Way, folder: &Path, files: u64, table: &mut Table) -> Result<()> {
    let mut contender: Box<dyn Contender> = match way {
        Way::Marram => Box::new(pool::Pool::make(folder, files)?),
        _ => peers::make(way, folder, files)?,
    };
    tree::make(contender.origin(), files)?;
    contender.settle()?;
    let mut asking = Asking { contender: contender.as_mut(), way, files, table };
    asking.kept_states()?;
    asking.forks()?;
    for share in Share::ALL {
        let is_told_already = share == Share::Tenth && share.files(files) <= 100
            || share == Share::Hundredth && share.files(files) <= 1;
        if !is_told_already {
            asking.changes(share)?;
        }
    }
    contender.end()
}

struct Asking<'run> {
    contender: &'run mut dyn Contender,
    way: Way,
    files: u64,
    table: &'run mut Table,
}

impl Asking<'_> {
    fn note(&mut self, operation: Operation, measured: Measured) {
        println!("  {}: {:.2} ms", operation.title(), measured.command.as_secs_f64() * 1e3);
        self.table.add(self.way, self.files, operation, measured);
    }

    /// Snapshots, and back to the last of them after a change that is durable.
    fn kept_states(&mut self) -> Result<()> {
        let mut snapshots = 0;
        let taken = median(|| {
            snapshots += 1;
            self.contender.snapshot(&format!("kept-{snapshots}"))
        })?;
        let Some(taken) = taken else { return Ok(()) };
        self.note(Operation::Snapshot, taken);
        let last = format!("kept-{snapshots}");
        let (files, changed) = (self.files, Share::Hundred.files(self.files));
        tree::change(self.contender.origin(), files, changed)?;
        self.contender.settle()?;
        if let Some(measured) = self.contender.rollback_directory(&last)? {
            self.note(Operation::DirectoryRollback, measured);
            self.expect_changed(0, changed)?;
            tree::change(self.contender.origin(), files, changed)?;
            self.contender.settle()?;
        }
        if let Some(measured) = self.contender.rollback(&last)? {
            self.note(Operation::Rollback, measured);
            self.expect_changed(0, changed)?;
        }
        Ok(())
    }

    fn expect_changed(&self, wanted: u64, changed: u64) -> Result<()> {
        match tree::count_changed(self.contender.origin(), self.files, changed)? {
            found if found == wanted => Ok(()),
            found => fail(format!("{found} files are as changed, and not {wanted}")),
        }
    }

    fn forks(&mut self) -> Result<()> {
        let before = self.contender.used_bytes()?;
        let mut forks = 0_u32;
        let forked = median(|| {
            forks += 1;
            self.contender.fork(&format!("fork-{forks}")).map(Some)
        })?;
        let taken = self.contender.used_bytes()?.saturating_sub(before);
        if let Some(forked) = forked {
            let bytes = Some(taken / u64::from(forks));
            self.note(Operation::Fork, Measured { bytes, ..forked });
        }
        (1..=forks).try_for_each(|number| self.contender.drop_fork(&format!("fork-{number}")))
    }

    fn changes(&mut self, share: Share) -> Result<()> {
        let changed = share.files(self.files);
        let name = format!("changed-{changed}");
        self.contender.fork(&name)?;
        tree::change(&self.contender.forked(&name), self.files, changed)?;
        self.contender.settle()?;
        let mut seen = None;
        let told = median(|| {
            let told = self.contender.diff(&name)?;
            seen = told.and_then(|(_, count)| count);
            Ok(told.map(|(measured, _)| measured))
        })?;
        if let Some(told) = told {
            if let Some(seen) = seen.filter(|seen| *seen != changed) {
                return fail(format!("{changed} files were changed, and {seen} are told"));
            }
            self.note(Operation::Diff(share), told);
        }
        if let Some(merged) = self.contender.merge(&name)? {
            self.note(Operation::Merge(share), merged);
            self.expect_changed(changed, changed)?;
        }
        self.contender.drop_fork(&name)
    }
}

/// The median of several rounds, as far as patience goes.
fn median(mut round: impl FnMut() -> Result<Option<Measured>>) -> Result<Option<Measured>> {
    let began = Instant::now();
    let mut all = Vec::new();
    while all.len() < ROUNDS as usize && (all.is_empty() || began.elapsed() < PATIENCE) {
        match round()? {
            Some(measured) => all.push(measured),
            None => return Ok(None),
        }
    }
    all.sort_by_key(|measured| measured.command);
    let command = all[all.len() / 2];
    all.sort_by_key(|measured| measured.engine);
    Ok(Some(Measured { engine: all[all.len() / 2].engine, ..command }))
}
