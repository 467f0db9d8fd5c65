//! What is asked of each way to have a second tree.

use super::super::contender::{self, Contender, Measured, Way};
use super::super::interruption;
use super::table::Table;
use super::tree;
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, run};
use marram_lab::subject::Making;
use std::path::Path;
use std::time::{Duration, Instant};

/// The largest tree that a way is asked for: what copies each file would take minutes.
pub(super) fn files_max(way: Way) -> u64 {
    match way {
        Way::Marram | Way::BtrfsSubvolume | Way::Overlay => 2_000_000,
        Way::XfsReflink | Way::BtrfsReflink | Way::ZfsFuse => 200_000,
        Way::GitWorktree => 20_000,
    }
}

/// Room for a tree of that many files, and for all that is done to it. Peers have twice as much;
/// ext4 makes an inode for each 16 KiB, and no more later.
pub(super) fn making(way: Way, files: u64) -> Making {
    const MIB: u64 = 1 << 20;
    const BYTES_EACH: u64 = 6 << 10;
    const BYTES_FOR_INODE: u64 = 16 << 10;
    let bytes = 512 * MIB + (files * BYTES_EACH).next_multiple_of(MIB);
    let size_bytes = match way {
        Way::Marram => bytes,
        Way::Overlay => 2 * bytes + 2 * files * BYTES_FOR_INODE,
        Way::GitWorktree => 2 * bytes + 16 * files * BYTES_FOR_INODE,
        _ => 2 * bytes,
    };
    Making { on_direct_loop: true, ..Making::sized(size_bytes) }
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

/// Quick operations are repeated until this time is over, and their median is reported.
const PATIENCE: Duration = Duration::from_secs(3);
const ROUNDS: usize = 11;

/// Measures all that the way can do with a tree of that many files.
pub(super) fn measure(way: Way, folder: &Path, files: u64, table: &mut Table) -> Result<()> {
    let mut contender = contender::make(way, folder, &making(way, files))?;
    tree::make(contender.origin(), files)?;
    contender.settle()?;
    // The host writes what the tree took back now, and not while it is measured.
    run(&mut command(&["sync"]))?;
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
    /// Tells the median of some rounds of what the way can do, and of each what reached the device
    /// until it was durable. Returns whether it has means for it.
    fn ask(
        &mut self,
        operation: Operation,
        rounds_max: usize,
        mut round: impl FnMut(&mut dyn Contender) -> Result<Option<Measured>>,
    ) -> Result<bool> {
        interruption::check()?;
        self.contender.settle()?;
        let before = self.contender.written_bytes()?;
        let began = Instant::now();
        let mut all = Vec::new();
        while all.len() < rounds_max && (all.is_empty() || began.elapsed() < PATIENCE) {
            match round(self.contender)? {
                Some(measured) => all.push(measured),
                None => return Ok(false),
            }
        }
        self.contender.settle()?;
        let after = self.contender.written_bytes()?;
        let each = |(before, after): (u64, u64)| after.saturating_sub(before) / all.len() as u64;
        let written_bytes = before.zip(after).map(each);
        self.note(operation, Measured { written_bytes, ..median(all) });
        Ok(true)
    }

    fn note(&mut self, operation: Operation, measured: Measured) {
        println!("  {}: {:.2} ms", operation.title(), measured.command.as_secs_f64() * 1e3);
        self.table.add(self.way, self.files, operation, measured);
    }

    /// Snapshots, and back to the last of them after a change that is durable.
    fn kept_states(&mut self) -> Result<()> {
        let mut snapshots = 0;
        let takes = self.ask(Operation::Snapshot, ROUNDS, |contender| {
            snapshots += 1;
            contender.snapshot(&format!("kept-{snapshots}"))
        })?;
        if !takes {
            return Ok(());
        }
        let last = format!("kept-{snapshots}");
        let (files, changed) = (self.files, Share::Hundred.files(self.files));
        tree::change(self.contender.origin(), files, changed)?;
        let back = |contender: &mut dyn Contender| contender.rollback_directory(&last);
        if self.ask(Operation::DirectoryRollback, 1, back)? {
            self.expect_changed(0, changed)?;
            tree::change(self.contender.origin(), files, changed)?;
        }
        if self.ask(Operation::Rollback, 1, |contender| contender.rollback(&last))? {
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
        let mut forks = 0;
        self.ask(Operation::Fork, ROUNDS, |contender| {
            forks += 1;
            contender.fork(&format!("fork-{forks}")).map(Some)
        })?;
        let taken = self.contender.used_bytes()?.saturating_sub(before);
        self.table.add_taken(self.way, self.files, taken / forks);
        (1..=forks).try_for_each(|number| self.contender.drop_fork(&format!("fork-{number}")))
    }

    fn changes(&mut self, share: Share) -> Result<()> {
        let changed = share.files(self.files);
        let name = format!("changed-{changed}");
        self.contender.fork(&name)?;
        tree::change(&self.contender.forked(&name), self.files, changed)?;
        let mut seen = None;
        self.ask(Operation::Diff(share), ROUNDS, |contender| {
            let told = contender.diff(&name)?;
            seen = told.and_then(|(_, count)| count);
            Ok(told.map(|(measured, _)| measured))
        })?;
        if let Some(seen) = seen.filter(|seen| *seen != changed) {
            return fail(format!("{changed} files were changed, and {seen} are reported"));
        }
        if self.ask(Operation::Merge(share), 1, |contender| contender.merge(&name))? {
            self.expect_changed(changed, changed)?;
        }
        self.contender.drop_fork(&name)
    }
}

/// The median of the times of commands, and that of the engine.
fn median(mut all: Vec<Measured>) -> Measured {
    let middle = all.len() / 2;
    all.sort_by_key(|measured| measured.command);
    let command = all[middle];
    all.sort_by_key(|measured| measured.engine);
    Measured { engine: all[middle].engine, ..command }
}
