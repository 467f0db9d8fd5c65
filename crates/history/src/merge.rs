//! A fork's changes brought into its parent, as one step.
//!
//! What the fork changed is gathered from snapshots, before any operation waits. Then the parent is
//! held still: what it has changed since the base is gathered too, each change of the fork is
//! judged, and either all of them go into one batch, or nothing is changed at all. The batch is
//! durable before the merge returns.

use crate::change_set::ChangeSet;
use crate::changes::Changes;
use crate::conflict::{MergeOptions, MergeReport};
use crate::conflicts::Conflicts;
use crate::diff::{Comparison, Difference, What, check_related};
use crate::inode_aliases::InodeAliases;
use crate::merge_batch::MergeBatch;
use crate::merge_files::{self, FileEdit};
use crate::merge_names::{Home, MergeNames};
use crate::parent::{HeldParent, Parent, ParentChange};
use crate::stable_source::StableSource;
use crate::three_way::ThreeWay;
use marram_format::record::Inode;
use marram_records::failure::{from_store, from_sync};
use marram_records::state::State;
use marram_records::usage::UsageChange;
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

/// Where a merge is applied: the store, and what its log says of the merge.
pub(crate) type Into<'a> = (&'a dyn Store, &'a MergedFrom<'a>);
/// What was judged.
type Judged<'a, 's> = (&'a ThreeWay<'s>, &'a MergeNames<'a, 's>, &'a BTreeMap<u64, FileEdit>);

/// What was judged, as a batch.
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
/// changed then. Others wait for as long as it takes to judge and apply the changes.
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
    parent.check_running()?;
    let merge = Merge { parent, store, sides, options };
    if options.preview {
        return merge.preview();
    }
    if !parent.view().writable() {
        return Err(Error::ReadOnly);
    }
    let (report, orphans) = with_space(parent, || merge.once())?;
    // Not begun anew if this finds no space: it has been applied.
    conclude(parent, report.applied, orphans)?;
    Ok(report)
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
    sides: MergeSides<'a>,
    options: &'a MergeOptions<'a>,
}

impl Merge<'_> {
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

    /// What the fork has is read from memory; if it is written to meanwhile, from a snapshot.
    /// Returns what has become an orphan too.
    fn once(&self) -> Result<(MergeReport, Vec<u64>)> {
        let fork = StableSource::of(self.store, self.sides.fork, "merge")?;
        let merged = self.with_fork(&fork);
        if merged.is_ok() || !fork.is_overtaken() {
            return merged;
        }
        drop(fork);
        let fork = StableSource::on_media(self.store, self.sides.fork, "merge")?;
        self.with_fork(&fork)
    }

    fn with_fork(&self, fork: &StableSource<'_>) -> Result<(MergeReport, Vec<u64>)> {
        let (store, sides) = (self.store, self.sides);
        let open = |source: &Source| -> Result<State> {
            State::open(store.open(source).map_err(from_store)?, sides.root.0)
        };
        let (base_state, fork_state) = (open(sides.base)?, open(&fork.source)?);
        check_related(&base_state, &fork_state)?;
        let sources = (sides.base, &fork.source);
        let theirs = Changes::gather(store, sources, &base_state, &fork_state)?;
        let mut held = self.parent.hold_still()?;
        let present = StableSource::take(store, sides.dataset, "merge")?;
        let now = State::open(store.open(&present.source).map_err(from_store)?, sides.root.0)?;
        check_related(&base_state, &now)?;
        let ours = Changes::gather(store, (sides.base, &present.source), &base_state, &now)?;
        let three = ThreeWay::new((&base_state, &fork_state, &now), &theirs, &ours);
        let merged = MergedFrom {
            dataset: sides.dataset,
            fork: sides.fork,
            read: &fork.source,
            keep: None,
            root_object: sides.root.0,
        };
        self.judge(&mut *held, (store, &merged), &three)
    }

    /// Judges and applies. Returns what has become an orphan too.
    fn judge(
        &self,
        held: &mut dyn HeldParent,
        into: Into<'_>,
        sides: &ThreeWay<'_>,
    ) -> Result<(MergeReport, Vec<u64>)> {
        let options = self.options;
        let mut conflicts = Conflicts::new(options);
        sides.prepare_paths(sides.theirs.by_inode.keys().copied())?;
        let mut names = MergeNames::judge(sides, &mut conflicts)?;
        let files = merge_files::judge(sides, &mut names, &mut conflicts)?;
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
        let judged = (sides, &names, &files);
        if can_go && options.preview {
            report.obstacle = dry_run((self.parent, held), judged)?;
        } else if can_go {
            orphans = apply((self.parent, held), into, judged, &mut report)?;
            report.applied = true;
        }
        Ok((report, orphans))
    }
}

/// Why what was judged would be refused, if it would.
fn dry_run(
    (parent, held): (&dyn Parent, &dyn HeldParent),
    judged: Judged<'_, '_>,
) -> Result<Option<Error>> {
    let outcome = prepare((parent, held), judged).and_then(|prepared| {
        let Some(prepared) = prepared else { return Ok(()) };
        let Prepared { batch, inodes, next_number, usage, changed, .. } = prepared;
        held.dry_run(ParentChange { batch, inodes, next_number, usage, changed: &changed })
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

/// Turns what was judged into a batch, and applies it. Returns what has become an orphan.
pub(crate) fn apply(
    (parent, held): (&dyn Parent, &mut dyn HeldParent),
    (store, merged): Into<'_>,
    judged: Judged<'_, '_>,
    report: &mut MergeReport,
) -> Result<Vec<u64>> {
    let Some(prepared) = prepare((parent, held), judged)? else {
        return Ok(Vec::new());
    };
    let Prepared { batch, inodes, next_number, usage, change_set, changed, orphans } = prepared;
    let change = ParentChange { batch, inodes, next_number, usage, changed: &changed };
    held.apply(change, store, merged)?;
    report.change_set = change_set;
    Ok(orphans)
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

/// The fork's differences that go into the parent.
fn taken(
    sides: &ThreeWay<'_>,
    names: &MergeNames<'_, '_>,
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
    let saved = InodeAliases::saved_files(sides.base, sides.fork, sides.theirs)?;
    Comparison::new(sides.base, sides.fork, sides.theirs).with(saved).tell(&mut |difference| {
        let edit = by_fork.get(&difference.ino.0);
        let is_saved = difference.old_ino != difference.ino;
        let goes = match &difference.what {
            _ if is_saved && places.contains(&difference.path) => true,
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
