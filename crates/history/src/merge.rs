//! A fork's changes brought into its parent, as one step.
//!
//! What the fork changed is gathered from snapshots, before any operation waits. Then the parent is
//! held still: what it has changed since the base is gathered too, each change of the fork is
//! judged, and either all of them go into one batch, or nothing is changed at all. The batch is
//! durable before the merge returns.

mod another_directory;
mod gathered;
mod together;

pub use together::{Hold, MergePart, merge_together};

use self::gathered::ForkSide;
use crate::branch::{Branch, Direction};
use crate::change_set::ChangeSet;
use crate::conflict::{MergeOptions, MergeReport};
use crate::conflicts::Conflicts;
use crate::diff::{Comparison, Difference, What};
use crate::inode_aliases::InodeAliases;
use crate::merge_batch::MergeBatch;
use crate::merge_files::{self, FileEdit};
use crate::merge_names::{Home, MergeNames};
use crate::parent::{HeldParent, Parent, ParentChange};
use crate::stable_source::StableSource;
use crate::three_way::ThreeWay;
use crate::touched;
use marram_format::record::Inode;
use marram_records::failure::{from_store, from_sync};
use marram_records::usage::UsageChange;
use marram_store::{Admission, Applied, Batch, DatasetName, MergedFrom, Source, Store};
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

/// A directory that a fork's changes are to go into.
#[derive(Clone, Copy, Debug)]
pub struct IntoDirectory<'a> {
    /// The dataset that it is in, which the file system serves.
    pub dataset: &'a DatasetName,
    /// Its inode.
    pub directory: Ino,
}

/// The same, as it is known when the merge begins.
pub(crate) struct Sides {
    pub(crate) dataset: DatasetName,
    pub(crate) base: Source,
    pub(crate) fork: Source,
    pub(crate) root: Ino,
    /// Of a fork and its parent: the state in which both last had the same numbers, if that is not
    /// the base.
    pub(crate) origin: Option<Source>,
    /// The state of the fork that is read is the base of the next merge.
    pub(crate) moves_base: bool,
    /// The directory that the changes go into, if it is another one than the root of the fork.
    pub(crate) into: Option<Ino>,
}

impl Sides {
    fn of(sides: MergeSides<'_>) -> Sides {
        Sides {
            dataset: sides.dataset.clone(),
            base: sides.base.clone(),
            fork: sides.fork.clone(),
            root: sides.root,
            origin: None,
            moves_base: false,
            into: None,
        }
    }

    fn of_branch(branch: Branch, direction: Direction) -> Sides {
        let Branch { fork, parent, origin, base, root } = branch;
        let (into, from) = match direction {
            Direction::Merge => (parent, fork),
            Direction::Update => (fork, parent),
        };
        let origin = (base != origin).then_some(origin);
        let dataset = into.dataset;
        Sides { dataset, base, fork: from, root, origin, moves_base: true, into: None }
    }

    /// All that the fork has changed goes there: what was merged before may be gone with the
    /// directory that it went into.
    fn into_directory(branch: Branch, into: IntoDirectory<'_>) -> Sides {
        let Branch { fork, origin, root, .. } = branch;
        let dataset = into.dataset.clone();
        let into = Some(into.directory);
        Sides { dataset, base: origin, fork, root, origin: None, moves_base: false, into }
    }
}

/// Where the sides of a merge are found.
#[derive(Clone, Copy)]
enum Which<'a> {
    Sides(MergeSides<'a>),
    Branch(&'a DatasetName, Direction),
    Directory(&'a DatasetName, IntoDirectory<'a>),
}

impl Which<'_> {
    fn sides(self, store: &dyn Store) -> Result<Sides> {
        match self {
            Which::Sides(sides) => Ok(Sides::of(sides)),
            Which::Branch(fork, direction) => {
                Ok(Sides::of_branch(branch_of(store, fork)?, direction))
            }
            Which::Directory(fork, into) => {
                Ok(Sides::into_directory(branch_of(store, fork)?, into))
            }
        }
    }
}

fn branch_of(store: &dyn Store, fork: &DatasetName) -> Result<Branch> {
    Branch::of(store, fork)?.ok_or(Error::InvalidArgument("the dataset is no fork"))
}

/// How often a merge begins anew because another one between the same two has moved the base.
const MOVED_BASES_MAX: usize = 16;

/// How often one of what a fork has in memory begins anew because a commit has come between.
const OVERTAKEN_MAX: usize = 4;

impl Prepared {
    /// What it changes, without what is known of it afterwards.
    fn change(&mut self) -> ParentChange<'_> {
        ParentChange {
            batch: std::mem::take(&mut self.batch),
            inodes: self.inodes,
            next_number: self.next_number,
            usage: std::mem::take(&mut self.usage),
            changed: &self.changed,
        }
    }
}

/// Where a merge is applied: the store, and what its log says of the merge.
pub(crate) type Into<'a> = (&'a dyn Store, &'a MergedFrom<'a>);
/// What was judged.
type Judged<'a, 's> = (&'a ThreeWay<'s>, &'a MergeNames<'a, 's>, &'a BTreeMap<u64, FileEdit>);

/// What was judged, as a batch.
#[derive(Default)]
struct Prepared {
    batch: Batch<'static>,
    inodes: i64,
    next_number: Option<u64>,
    usage: UsageChange,
    change_set: ChangeSet,
    changed: Vec<u64>,
    orphans: Vec<u64>,
}

/// Brings what a fork changed since its base into the file system that it was forked from.
///
/// All of it, or nothing: conflicts that `options` do not decide are reported, and nothing is
/// changed then. Others wait for as long as it takes to judge and apply the changes. It is durable
/// when this returns, but for [`MergeOptions::may_wait`].
///
/// # Errors
/// States without a common past, a full store, a quota or limit in the way, a failed read or
/// write: nothing is changed. Only if what was applied cannot be made durable is it there all
/// the same, for as long as the pool goes on.
pub fn merge(
    parent: &dyn Parent,
    store: &dyn Store,
    sides: MergeSides<'_>,
    options: &MergeOptions<'_>,
) -> Result<MergeReport> {
    Merge { parent, store, which: Which::Sides(sides), options }.run()
}

/// Brings what one side of a branch has changed into the other, of which `into` is the file system:
/// a fork's changes into its parent, or the parent's into the fork. The base is the newest state
/// that both have, and the state that is read here is the next one.
///
/// What was decided against stays so: it comes again only if it is changed again.
///
/// # Errors
/// As for [`merge()`]; [`Error::InvalidArgument`] if the dataset is no fork; [`Error::Stale`] if
/// the directory that it is a fork of is gone from its parent.
pub fn bring_across(
    into: &dyn Parent,
    store: &dyn Store,
    (fork, direction): (&DatasetName, Direction),
    options: &MergeOptions<'_>,
) -> Result<MergeReport> {
    Merge { parent: into, store, which: Which::Branch(fork, direction), options }.run()
}

/// Brings all that a fork has changed since it was made into another directory than the one that it
/// is a fork of, by the paths of files: see `another_directory`. No base moves.
///
/// # Errors
/// As for [`merge()`]; [`Error::InvalidArgument`] if the dataset is no fork; [`Error::Stale`] if
/// the directory is gone, [`Error::NotDirectory`] if it is none.
pub fn merge_elsewhere(
    parent: &dyn Parent,
    store: &dyn Store,
    (fork, into): (&DatasetName, IntoDirectory<'_>),
    options: &MergeOptions<'_>,
) -> Result<MergeReport> {
    Merge { parent, store, which: Which::Directory(fork, into), options }.run()
}

/// Runs an attempt as [`Parent::with_space`] does.
pub(crate) fn with_space<T>(parent: &dyn Parent, attempt: impl Fn() -> Result<T>) -> Result<T> {
    let mut done = None;
    parent.with_space(&mut || {
        done = Some(attempt()?);
        Ok(())
    })?;
    done.ok_or_else(|| Error::Io("nothing was attempted".to_owned()))
}

/// Makes what was applied durable, where the store has not done so yet; what has no name any
/// more is given back in its own time.
pub(crate) fn conclude(parent: &dyn Parent, is_applied: bool, orphans: Vec<u64>) -> Result<()> {
    if is_applied {
        parent.view().sync().map_err(from_sync)?;
    }
    orphans.into_iter().for_each(|ino| parent.give_back(ino));
    Ok(())
}

/// One merge.
struct Merge<'a> {
    parent: &'a dyn Parent,
    store: &'a dyn Store,
    which: Which<'a>,
    options: &'a MergeOptions<'a>,
}

impl Merge<'_> {
    fn run(&self) -> Result<MergeReport> {
        let parent = self.parent;
        parent.check_running()?;
        if self.options.preview {
            return self.preview();
        }
        if !parent.view().writable() {
            return Err(Error::ReadOnly);
        }
        let (report, orphans) = with_space(parent, || self.once())?;
        // Where there is a log of operations, a merge is durable by now, or the caller sees to
        // that: what others have written since is no reason to call it failed. Else it is not begun
        // anew if this finds no space.
        let is_durable = self.store.capabilities().log.is_some() || self.options.may_wait;
        conclude(parent, report.applied && !is_durable, orphans)?;
        Ok(report)
    }

    /// Judges, and makes a dry run of the batch. What has been removed, and waits to be
    /// freed, is freed before it is said that there is none.
    fn preview(&self) -> Result<MergeReport> {
        let (report, _) = self.once()?;
        if report.obstacle.is_none() || !self.parent.view().writable() {
            return Ok(report);
        }
        self.parent.free_removed()?;
        self.parent.view().commit().map_err(from_store)?;
        self.once().map(|(report, _)| report)
    }

    /// Begins anew if the base has moved before the parent was held still. Returns what has become
    /// an orphan too.
    fn once(&self) -> Result<(MergeReport, Vec<u64>)> {
        for _ in 0..MOVED_BASES_MAX {
            if let Some(merged) = self.from(&self.which.sides(self.store)?)? {
                return Ok(merged);
            }
        }
        Err(Error::Busy)
    }

    /// What the fork has is read from memory; if it is written to meanwhile, from a snapshot.
    fn from(&self, sides: &Sides) -> Result<Option<(MergeReport, Vec<u64>)>> {
        if let Some(merged) = self.as_it_waits(sides)? {
            return Ok(Some(merged));
        }
        let fork = StableSource::of(self.store, &sides.fork, "merge")?;
        let merged = self.unless_moved(sides, &fork);
        if merged.is_ok() || !fork.is_overtaken() {
            return merged;
        }
        drop(fork);
        let fork = StableSource::on_media(self.store, &sides.fork, "merge")?;
        self.unless_moved(sides, &fork)
    }

    /// A transaction's fork as it waits for a commit, so that one commit has all of it. Nothing
    /// where the store cannot do that, or something has come between: then it is committed before.
    fn as_it_waits(&self, sides: &Sides) -> Result<Option<(MergeReport, Vec<u64>)>> {
        if self.options.strict.is_none() || sides.fork.snapshot.is_some() {
            return Ok(None);
        }
        for _ in 0..OVERTAKEN_MAX {
            let fork = StableSource::in_memory(self.store, &sides.fork.dataset, "merge")?;
            let Some(fork) = fork else { return Ok(None) };
            let merged = self.with_fork(sides, &fork).unwrap_or(None);
            if merged.is_some() || !fork.is_overtaken() {
                return Ok(merged);
            }
        }
        Ok(None)
    }

    /// Nothing if the base has moved: then the store has refused the batch, or it is gone while it
    /// was read.
    fn unless_moved(
        &self,
        sides: &Sides,
        fork: &StableSource<'_>,
    ) -> Result<Option<(MergeReport, Vec<u64>)>> {
        let merged = self.with_fork(sides, fork);
        let has_moved = || self.which.sides(self.store).is_ok_and(|now| now.base != sides.base);
        if merged.is_err() && has_moved() { Ok(None) } else { merged }
    }

    /// Nothing if the base has moved, or a refusal was based on what is no state of one moment.
    fn with_fork(
        &self,
        sides: &Sides,
        fork: &StableSource<'_>,
    ) -> Result<Option<(MergeReport, Vec<u64>)>> {
        let store = self.store;
        let mut fork_side = ForkSide::gather(store, sides, &fork.source)?;
        let mut held = self.parent.hold_still()?;
        // Transactions that were before this one at the parent have made commits meanwhile. Now
        // that it is held, none of them can.
        let again = match fork.is_in_memory() && fork.is_overtaken() {
            true => StableSource::in_memory(store, &sides.fork.dataset, "merge")?,
            false => None,
        };
        if let Some(again) = &again {
            fork_side = ForkSide::gather(store, sides, &again.source)?;
        }
        let fork = again.as_ref().unwrap_or(fork);
        if sides.moves_base && self.which.sides(store)?.base != sides.base {
            return Ok(None);
        }
        let present = present(store, &sides.dataset, fork)?;
        let mut gathered = fork_side.with(store, (sides, &fork.source), &present.source)?;
        let not_selected = match self.options.select {
            Some(select) => gathered.keep_selected(select)?,
            None => 0,
        };
        let merged = MergedFrom {
            dataset: &sides.dataset,
            fork: &sides.fork,
            read: &fork.source,
            keep: None,
            root_object: sides.into.unwrap_or(sides.root).0,
            base: sides.moves_base.then_some(&sides.base),
            // What was left out comes with a later merge: the base stays.
            moves_base: sides.moves_base && self.options.select.is_none(),
            may_wait: self.options.may_wait,
        };
        let (report, orphans) = self.judge(&mut *held, (store, &merged), &gathered.three_way())?;
        let holds = report.applied || !fork.is_in_memory() || !fork.is_overtaken();
        Ok(holds.then_some((MergeReport { not_selected, ..report }, orphans)))
    }

    /// Judges and applies. Returns what has become an orphan too.
    fn judge(
        &self,
        held: &mut dyn HeldParent,
        into: Into<'_>,
        sides: &ThreeWay<'_>,
    ) -> Result<(MergeReport, Vec<u64>)> {
        let options = self.options;
        // A fork that has changed nothing is where its base is in the order of all changes.
        let has_changes = !sides.theirs.by_inode.is_empty();
        if let Some(overlaps) = options.strict.filter(|_| has_changes) {
            let conflicts = touched::overtaken(sides, overlaps)?;
            if !conflicts.is_empty() {
                return Ok((MergeReport { conflicts, ..MergeReport::default() }, Vec::new()));
            }
        }
        let Verdict { names, files, mut report, has_changes } = Verdict::of(sides, options)?;
        let mut orphans = Vec::new();
        let can_go = report.conflicts.is_empty() && !report.is_outdated;
        let judged = (sides, &names, &files);
        if can_go && options.preview {
            report.obstacle = dry_run((self.parent, held), judged)?;
        } else if can_go {
            // Changes that the parent has already, or that were decided against, move the base.
            let is_entered = options.always || into.1.moves_base && has_changes;
            orphans = apply((self.parent, held), into, (judged, is_entered), &mut report)?;
            report.applied = true;
        }
        Ok((report, orphans))
    }
}

/// The present state of a dataset that is held still: as it waits, if that of the fork is.
fn present<'s>(
    store: &'s dyn Store,
    dataset: &DatasetName,
    fork: &StableSource<'_>,
) -> Result<StableSource<'s>> {
    if fork.is_in_memory()
        && let Some(present) = StableSource::in_memory(store, dataset, "merge")?
    {
        return Ok(present);
    }
    StableSource::take(store, dataset, "merge")
}

/// What becomes of each change of a fork.
struct Verdict<'a, 's> {
    names: MergeNames<'a, 's>,
    files: BTreeMap<u64, FileEdit>,
    report: MergeReport,
    /// Whether the fork has changed anything.
    has_changes: bool,
}

impl<'a, 's> Verdict<'a, 's> {
    fn of(sides: &'a ThreeWay<'s>, options: &MergeOptions<'_>) -> Result<Verdict<'a, 's>> {
        let mut conflicts = Conflicts::new(options);
        sides.prepare_paths(sides.theirs.by_inode.keys().copied())?;
        let mut names = MergeNames::judge(sides, &mut conflicts)?;
        let files = merge_files::judge(sides, &mut names, &mut conflicts)?;
        let (differences, has_changes) = taken(sides, &names, &files)?;
        let mut report = MergeReport {
            differences,
            conflicts: conflicts.open.into_iter().collect(),
            decided: conflicts.decided.into_iter().collect(),
            texts: conflicts.texts.into_iter().collect(),
            state: state_of(sides),
            ..MergeReport::default()
        };
        report.is_outdated = options.state.is_some_and(|state| state != report.state);
        Ok(Verdict { names, files, report, has_changes })
    }
}

/// Why what was judged would be refused, if it would.
fn dry_run(
    (parent, held): (&dyn Parent, &dyn HeldParent),
    judged: Judged<'_, '_>,
) -> Result<Option<Error>> {
    let outcome = prepare((parent, held), judged).and_then(|prepared| {
        let Some(mut prepared) = prepared else { return Ok(()) };
        held.dry_run(prepared.change())
    });
    match outcome {
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
fn prepare(
    (parent, held): (&dyn Parent, &dyn HeldParent),
    (sides, names, files): Judged<'_, '_>,
) -> Result<Option<Prepared>> {
    if names.edits.is_empty() && files.is_empty() {
        return Ok(None);
    }
    let mut merge = MergeBatch::prepare((parent.view(), held), sides, names, files)?;
    let mut batch = Batch::new();
    if files.is_empty() && names.edits.values().all(|edit| edit.new.is_none()) {
        batch.admission = Admission::Freeing;
    }
    let (inodes, usage) = merge.fill(&mut batch);
    let next = merge.next_number();
    let change_set = merge.change_set();
    Ok(Some(Prepared {
        batch,
        inodes,
        next_number: (next != held.first_number()).then_some(next),
        usage,
        changed: change_set.inodes.iter().map(|inode| inode.ino.0).collect(),
        change_set,
        orphans: merge.orphans,
    }))
}

/// Turns what was judged into a batch, and applies it: an empty one only if the merge is entered
/// all the same. Returns what has become an orphan.
pub(crate) fn apply(
    (parent, held): (&dyn Parent, &mut dyn HeldParent),
    (store, merged): Into<'_>,
    (judged, is_entered): (Judged<'_, '_>, bool),
    report: &mut MergeReport,
) -> Result<Vec<u64>> {
    let nothing = || is_entered.then(Prepared::default);
    let Some(mut prepared) = prepare((parent, held), judged)?.or_else(nothing) else {
        return Ok(Vec::new());
    };
    let mut change = prepared.change();
    let batch = held.complete_batch(&mut change)?;
    let applied = store.apply_merge(parent.view(), batch, merged).map_err(from_store)?;
    held.applied(&change);
    report.waits = applied == Applied::Waits;
    report.change_set = prepared.change_set;
    Ok(prepared.orphans)
}

/// A number for all that both sides have changed: every change of an inode that a user sees
/// moves the time of its last change, or takes the inode away.
fn state_of(sides: &ThreeWay<'_>) -> u64 {
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

/// The fork's differences that go into the parent, and whether it has any at all.
fn taken(
    sides: &ThreeWay<'_>,
    names: &MergeNames<'_, '_>,
    files: &BTreeMap<u64, FileEdit>,
) -> Result<(Vec<Difference>, bool)> {
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
    let (mut taken, mut has_changes) = (Vec::new(), false);
    let saved = InodeAliases::saved_files(sides.base, sides.fork, sides.theirs)?;
    Comparison::new(sides.base, sides.fork, sides.theirs).with(saved).tell(&mut |difference| {
        has_changes = true;
        let edit = by_fork.get(&difference.ino.0);
        let is_saved = difference.old_ino != difference.ino;
        let goes = match &difference.what {
            _ if is_saved && places.contains(&difference.path) => true,
            What::Content { .. } => edit.is_some_and(|edit| edit.content.is_some()),
            What::Attributes(_) => edit.is_some_and(|edit| edit.has_attributes()),
            What::Xattrs(_) => edit.is_some_and(|edit| !edit.xattrs.is_empty()),
            _ => places.contains(&difference.path),
        };
        if goes && !(sides.is_renumbered && difference.is_time_of_names()) {
            taken.push(difference);
        }
        true
    })?;
    Ok((taken, has_changes))
}
