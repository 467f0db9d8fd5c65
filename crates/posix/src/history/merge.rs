//! A fork's changes brought into its parent, as one step.
//!
//! What the fork changed is gathered from snapshots, before anybody waits. Then all locks of the
//! parent are taken: what it has changed since the base is gathered too, each change of the fork is
//! judged, and either all of them go into one batch, or nothing is changed at all. The batch is
//! durable before the merge is told to be done.

use super::changes::Changes;
use super::conflict::{MergeOptions, MergeReport};
use super::conflicts::Conflicts;
use super::diff::{Comparison, Difference, What, check_related};
use super::files::{self, FileEdit};
use super::kept::Kept;
use super::names::{Home, Names};
use super::sides::Sides;
use super::state::State;
use super::writing::Writing;
use crate::counters::{CountChange, HeldNumbers};
use crate::failure::{from_store, from_sync};
use crate::filesystem::Posix;
use crate::inode::time;
use marram_format::record::Inode;
use marram_store::{Admission, Batch, DatasetName, MergedFrom, Source, Store};
use marram_vfs::{Error, Ino, Result};
use std::collections::{BTreeMap, BTreeSet};

/// What is merged into what.
#[derive(Clone, Copy, Debug)]
pub struct MergeSides<'a> {
    /// The dataset of the parent, which the file system serves.
    pub dataset: &'a DatasetName,
    /// The snapshot that the fork began as.
    pub base: &'a Source,
    /// The fork, live or as a snapshot kept it.
    pub fork: &'a Source,
    /// The directory that is the root of the fork.
    pub root: Ino,
}

/// Where a merge is applied: the store, and what it is told of the merge.
pub(super) type Into<'a> = (&'a dyn Store, &'a MergedFrom<'a>);
/// What was judged.
type Judged<'a, 's> = (&'a Sides<'s>, &'a Names<'a, 's>, &'a BTreeMap<u64, FileEdit>);

/// Items of orphans that a preview frees at a time.
const RECLAIM_ITEMS: usize = 1024;

/// What was judged, as a batch.
struct Prepared<'a, 's> {
    writing: Writing<'a, 's>,
    batch: Batch<'static>,
    count: CountChange,
    numbers: HeldNumbers<'a>,
    makes_inodes: bool,
}

impl Posix {
    /// Brings what a fork changed since its base into this file system, which it was forked from.
    ///
    /// All of it, or nothing: conflicts that `options` do not decide are reported, and nothing is
    /// changed then. Others wait for as long as it takes to judge and apply the changes.
    ///
    /// # Errors
    /// States without a common past, a full store, a quota or limit in the way, a failed read or
    /// write: nothing is changed. Only if what was applied cannot be made durable is it there all
    /// the same, for as long as the pool goes on.
    pub fn merge(
        &self,
        store: &dyn Store,
        sides: MergeSides<'_>,
        options: &MergeOptions<'_>,
    ) -> Result<MergeReport> {
        self.check_running()?;
        if options.preview {
            return self.preview(store, sides, options);
        }
        self.check_writable()?;
        let merge = || self.merge_once(store, sides, options);
        let (report, orphans) = self.with_reclaim(merge)?;
        // Not begun anew if this finds no space: it has been applied.
        self.conclude(report.applied, orphans)?;
        Ok(report)
    }

    /// Judges, and foresees whether there would be space. What has been removed, and waits to be
    /// freed, is freed before it is said that there is none.
    fn preview(
        &self,
        store: &dyn Store,
        sides: MergeSides<'_>,
        options: &MergeOptions<'_>,
    ) -> Result<MergeReport> {
        let (report, _) = self.merge_once(store, sides, options)?;
        if report.obstacle.is_none() || !self.view.writable() {
            return Ok(report);
        }
        while self.reclaim_step(RECLAIM_ITEMS)? {}
        self.view.commit().map_err(from_store)?;
        self.merge_once(store, sides, options).map(|(report, _)| report)
    }

    /// What the fork has is read from memory; if somebody writes to it meanwhile, from a snapshot.
    /// Returns what has become an orphan too.
    fn merge_once(
        &self,
        store: &dyn Store,
        sides: MergeSides<'_>,
        options: &MergeOptions<'_>,
    ) -> Result<(MergeReport, Vec<u64>)> {
        let fork = Kept::of(store, sides.fork, "merge")?;
        let merged = self.merge_kept((store, &fork), sides, options);
        if merged.is_ok() || !fork.is_overtaken() {
            return merged;
        }
        drop(fork);
        let fork = Kept::on_media(store, sides.fork, "merge")?;
        self.merge_kept((store, &fork), sides, options)
    }

    fn merge_kept(
        &self,
        (store, fork): (&dyn Store, &Kept<'_>),
        sides: MergeSides<'_>,
        options: &MergeOptions<'_>,
    ) -> Result<(MergeReport, Vec<u64>)> {
        let open = |source: &Source| -> Result<State> {
            State::open(store.open(source).map_err(from_store)?, sides.root.0)
        };
        let (base_state, fork_state) = (open(sides.base)?, open(&fork.source)?);
        check_related(&base_state, &fork_state)?;
        let sources = (sides.base, &fork.source);
        let theirs = Changes::gather(store, sources, &base_state, &fork_state)?;
        let _held = self.locks.all();
        let kept = Kept::take(store, sides.dataset, "merge")?;
        let now = State::open(store.open(&kept.source).map_err(from_store)?, sides.root.0)?;
        check_related(&base_state, &now)?;
        let ours = Changes::gather(store, (sides.base, &kept.source), &base_state, &now)?;
        let three = Sides::new((&base_state, &fork_state, &now), &theirs, &ours);
        let merged = MergedFrom {
            dataset: sides.dataset,
            fork: sides.fork,
            read: &fork.source,
            keep: None,
            root_object: sides.root.0,
        };
        self.merge_held((store, &merged), &three, options)
    }

    /// Makes what was applied durable, where the store has not done so yet; what has no name any
    /// more is given back in its own time.
    pub(super) fn conclude(&self, is_applied: bool, orphans: Vec<u64>) -> Result<()> {
        if is_applied {
            self.view.sync().map_err(from_sync)?;
        }
        for ino in orphans {
            self.settle(Some(ino));
        }
        Ok(())
    }

    /// Judges and applies, under all locks. Returns what has become an orphan too.
    fn merge_held<'s>(
        &self,
        into: Into<'_>,
        sides: &Sides<'s>,
        options: &MergeOptions<'_>,
    ) -> Result<(MergeReport, Vec<u64>)> {
        let mut conflicts = Conflicts::new(options);
        sides.prepare_paths(sides.theirs.by_inode.keys().copied())?;
        let mut names = Names::judge(sides, &mut conflicts)?;
        let files = files::judge(sides, &mut names, &mut conflicts)?;
        let mut report = MergeReport {
            differences: taken(sides, &names, &files)?,
            conflicts: conflicts.open.into_iter().collect(),
            decided: conflicts.decided.into_iter().collect(),
            marked: conflicts.marked.into_iter().collect(),
            state: state_of(sides),
            ..MergeReport::default()
        };
        report.is_outdated = options.state.is_some_and(|state| state != report.state);
        let mut orphans = Vec::new();
        let can_go = report.conflicts.is_empty() && !report.is_outdated;
        if can_go && options.preview {
            report.obstacle = self.foresee_merge((sides, &names, &files))?;
        } else if can_go {
            orphans = self.apply_merge(into, (sides, &names, &files), &mut report)?;
            report.applied = true;
        }
        Ok((report, orphans))
    }

    /// Why what was judged would be refused, if it would.
    fn foresee_merge(&self, judged: Judged<'_, '_>) -> Result<Option<Error>> {
        let foreseen = self.prepare_merge(judged).and_then(|prepared| {
            prepared.map_or(Ok(()), |it| self.view.dry_run(it.batch).map_err(from_store))
        });
        match foreseen {
            Ok(()) => Ok(None),
            Err(
                obstacle @ (Error::NoSpace
                | Error::QuotaExceeded
                | Error::TooManyLinks
                | Error::ReadOnly),
            ) => Ok(Some(obstacle)),
            Err(error) => Err(error),
        }
    }

    /// Turns what was judged into a batch; nothing if there is nothing to do.
    fn prepare_merge<'a, 's>(
        &'a self,
        (sides, names, files): Judged<'a, 's>,
    ) -> Result<Option<Prepared<'a, 's>>> {
        if names.edits.is_empty() && files.is_empty() {
            return Ok(None);
        }
        let numbers = self.counters.hold_numbers();
        let now = time(self.options.clock.now());
        let mut writing = Writing::prepare(self, sides, names, files, (now, numbers.first()))?;
        let mut batch = Batch::new();
        if files.is_empty() && names.edits.values().all(|edit| edit.new.is_none()) {
            batch.admission = Admission::Freeing;
        }
        let count = CountChange::new(self.root(), writing.fill(&mut batch));
        self.counters.put(&mut batch, count);
        let makes_inodes = writing.next_number() != numbers.first();
        if makes_inodes {
            numbers.put(&mut batch, writing.next_number());
        }
        Ok(Some(Prepared { writing, batch, count, numbers, makes_inodes }))
    }

    /// Turns what was judged into a batch, and applies it. Returns what has become an orphan.
    pub(super) fn apply_merge<'a, 's>(
        &'a self,
        (store, merged): Into<'_>,
        judged: Judged<'a, 's>,
        report: &mut MergeReport,
    ) -> Result<Vec<u64>> {
        let Some(prepared) = self.prepare_merge(judged)? else {
            return Ok(Vec::new());
        };
        let Prepared { mut writing, batch, count, numbers, makes_inodes } = prepared;
        store.apply_merge(&*self.view, batch, merged).map_err(from_store)?;
        self.counters.applied(count);
        if makes_inodes {
            numbers.applied(writing.next_number());
        }
        report.touched = writing.touched();
        let changed = || report.touched.inodes.iter().map(|inode| inode.ino.0);
        changed().for_each(|ino| self.lazy_times.forget(ino));
        self.promises.forget(changed(), &*self.view);
        Ok(writing.orphans)
    }
}

/// A number for all that both sides have changed: every change of an inode that a user sees
/// moves the time of its last change, or takes the inode away.
fn state_of(sides: &Sides<'_>) -> u64 {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for changes in [sides.theirs, sides.ours] {
        for (ino, change) in &changes.by_inode {
            let changed = |inode: &Option<Inode>| inode.as_ref().map(|inode| inode.changed);
            let (before, after) = (changed(&change.before), changed(&change.after));
            if before == after {
                continue;
            }
            hash.update(&ino.to_le_bytes());
            let (seconds, nanoseconds) =
                after.map_or((i64::MIN, 0), |time| (time.seconds, time.nanoseconds));
            hash.update(&seconds.to_le_bytes());
            hash.update(&nanoseconds.to_le_bytes());
        }
        hash.update(&u64::MAX.to_le_bytes());
    }
    hash.digest()
}

/// The fork's differences that go into the parent.
fn taken(
    sides: &Sides<'_>,
    names: &Names<'_, '_>,
    files: &BTreeMap<u64, FileEdit>,
) -> Result<Vec<Difference>> {
    let mut places = BTreeSet::new();
    for ((home, _), edit) in &names.edits {
        for entry in [edit.new.as_ref(), edit.old.as_ref()].into_iter().flatten() {
            let directory = match home {
                Home::In(directory) => names.fork_of(*directory),
                Home::New(directory) => *directory,
                Home::Gone => continue,
            };
            places.insert(sides.path_of_name(directory, &entry.name)?);
        }
    }
    let by_fork: BTreeMap<u64, &FileEdit> = files.values().map(|edit| (edit.fork, edit)).collect();
    let mut taken = Vec::new();
    Comparison::new(sides.base, sides.fork, sides.theirs).tell(&mut |difference| {
        let edit = by_fork.get(&difference.ino.0);
        let goes = match &difference.what {
            What::Content { .. } => edit.is_some_and(|edit| edit.content.is_some()),
            What::Attributes(_) => edit.is_some_and(|edit| edit.has_attributes()),
            What::Xattrs(_) => edit.is_some_and(|edit| !edit.xattrs.is_empty()),
            _ => places.contains(&difference.path),
        };
        if goes {
            taken.push(difference);
        }
        true
    })?;
    Ok(taken)
}
