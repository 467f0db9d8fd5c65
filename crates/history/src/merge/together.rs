//! Changes of several forks brought into their parents as one step: all at one moment, or none.
//!
//! It is [`super::merge()`] with each of its steps done for all parents before the next one: what
//! the forks changed is gathered, all parents are held still, all are compared and judged, and the
//! batches are one call of the store. So what was read in one dataset is compared at the moment at
//! which another is changed.

use super::gathered::{ForkSide, Gathered};
use super::{MergeSides, Prepared, Sides, Verdict, conclude, prepare, present, with_space};
use crate::conflict::{MergeOptions, MergeReport};
use crate::parent::{HeldParent, Parent};
use crate::stable_source::StableSource;
use crate::three_way::ThreeWay;
use crate::touched;
use marram_records::failure::from_store;
use marram_store::{MergeInto, MergedFrom, Store};
use marram_vfs::{Error, Result};
use std::collections::BTreeSet;

/// One of several datasets that are merged into.
#[derive(Clone, Copy)]
pub struct MergePart<'a> {
    /// The file system of the dataset.
    pub parent: &'a dyn Parent,
    /// What is merged into it.
    pub sides: MergeSides<'a>,
    /// How.
    pub options: &'a MergeOptions<'a>,
}

impl std::fmt::Debug for MergePart<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("MergePart").field("sides", &self.sides).finish_non_exhaustive()
    }
}

/// Holds all parents still at the same time, each as [`Parent::hold_still`] does, in the order of
/// the parts. No two calls may wait for each other, whatever the orders of their parts.
pub type Hold<'a, 'h> = &'a dyn Fn() -> Result<Vec<Box<dyn HeldParent + 'h>>>;

/// Brings what each fork changed since its base into the file system that it was forked from: all
/// of it at one moment, or nothing, if there is a conflict in any of them. The answers are in the
/// order of the parts, each of which is of another dataset.
///
/// [`MergeOptions::strict`] is asked about all of them if any of the forks has changed anything.
/// Previews, choices of changes and states of earlier reports are not for several.
///
/// # Errors
/// As for [`super::merge()`]: nothing is changed in any of them. A store that cannot apply several
/// batches at one moment refuses more than one.
pub fn merge_together(
    store: &dyn Store,
    parts: &[MergePart<'_>],
    hold: Hold<'_, '_>,
) -> Result<Vec<MergeReport>> {
    let datasets: BTreeSet<_> = parts.iter().map(|part| part.sides.dataset).collect();
    if datasets.len() < parts.len() {
        return Err(Error::InvalidArgument("a dataset is named twice"));
    }
    for part in parts {
        part.parent.check_running()?;
        if !part.parent.view().writable() {
            return Err(Error::ReadOnly);
        }
    }
    let together = Together { store, parts, hold };
    let merged = with_space_of_all(parts, &|| together.once())?;
    let mut reports = Vec::with_capacity(parts.len());
    // Several are durable, and so is one where there is a log of operations. Else it is not begun
    // anew if a sync finds no space: it has been applied.
    let is_durable = parts.len() > 1 || store.capabilities().log.is_some();
    for (part, (report, orphans)) in parts.iter().zip(merged) {
        conclude(part.parent, report.applied && !is_durable, orphans)?;
        reports.push(report);
    }
    Ok(reports)
}

/// Runs an attempt again as long as it finds no space, and more has been freed in any of the
/// datasets since.
fn with_space_of_all<T>(parts: &[MergePart<'_>], attempt: &dyn Fn() -> Result<T>) -> Result<T> {
    match parts {
        [] => attempt(),
        [first, others @ ..] => with_space(first.parent, || with_space_of_all(others, attempt)),
    }
}

/// What a merge into one dataset has come to, and what has become an orphan.
type Merged = (MergeReport, Vec<u64>);

struct Together<'a, 'h> {
    store: &'a dyn Store,
    parts: &'a [MergePart<'a>],
    hold: Hold<'a, 'h>,
}

/// What is known of all parts while they are held.
struct Stage<'s, 'h> {
    sides: &'s [Sides],
    forks: &'s [&'s StableSource<'s>],
    three: &'s [ThreeWay<'s>],
    held: &'s mut [Box<dyn HeldParent + 'h>],
}

impl Together<'_, '_> {
    /// What the forks have is read from memory; if something comes between, from snapshots.
    fn once(&self) -> Result<Vec<Merged>> {
        if let Some(forks) = self.in_memory()?
            && let Ok(Some(merged)) = self.with_forks(&forks)
        {
            return Ok(merged);
        }
        let forks = self.forks(&StableSource::of)?;
        let merged = self.with_forks(&forks);
        if merged.is_ok() || !forks.iter().any(StableSource::is_overtaken) {
            return merged?.ok_or(Error::Busy);
        }
        drop(forks);
        self.with_forks(&self.forks(&StableSource::on_media)?)?.ok_or(Error::Busy)
    }

    /// The forks of a transaction as they wait for a commit, where the store has them so.
    fn in_memory(&self) -> Result<Option<Vec<StableSource<'_>>>> {
        let can_wait = |part: &MergePart<'_>| {
            part.options.strict.is_some() && part.sides.fork.snapshot.is_none()
        };
        if !self.parts.iter().all(can_wait) {
            return Ok(None);
        }
        let fork = |part: &MergePart<'_>| {
            StableSource::in_memory(self.store, &part.sides.fork.dataset, "merge")
        };
        self.parts.iter().map(fork).collect()
    }

    fn forks<'s>(&'s self, take: Take<'s>) -> Result<Vec<StableSource<'s>>> {
        let fork = |part: &MergePart<'_>| take(self.store, part.sides.fork, "merge");
        self.parts.iter().map(fork).collect()
    }

    /// Nothing if a refusal was based on what is no state of one moment.
    fn with_forks(&self, forks: &[StableSource<'_>]) -> Result<Option<Vec<Merged>>> {
        let store = self.store;
        let sides: Vec<Sides> = self.parts.iter().map(|part| Sides::of(part.sides)).collect();
        let gather = |(sides, fork): (&Sides, &StableSource<'_>)| {
            ForkSide::gather(store, sides, fork.source())
        };
        let mut fork_sides: Vec<ForkSide> =
            sides.iter().zip(forks).map(gather).collect::<Result<_>>()?;
        let mut held = (self.hold)()?;
        // Commits of others have come before. Now that all are held, there is none.
        let mut again = Vec::with_capacity(forks.len());
        for (fork, side) in forks.iter().zip(&sides) {
            again.push(match fork.is_in_memory() && fork.is_overtaken() {
                true => StableSource::in_memory(store, &side.fork.dataset, "merge")?,
                false => None,
            });
        }
        for ((again, sides), fork_side) in again.iter().zip(&sides).zip(&mut fork_sides) {
            if let Some(again) = again {
                *fork_side = gather((sides, again))?;
            }
        }
        let forks = forks.iter().zip(&again).map(|(fork, again)| again.as_ref().unwrap_or(fork));
        let forks: Vec<&StableSource<'_>> = forks.collect();
        let mut presents = Vec::with_capacity(forks.len());
        for (sides, fork) in sides.iter().zip(&forks) {
            presents.push(present(store, &sides.dataset, fork)?);
        }
        let mut gathered: Vec<Gathered> = Vec::with_capacity(forks.len());
        for (place, fork_side) in fork_sides.into_iter().enumerate() {
            let sources = (&sides[place], forks[place].source());
            gathered.push(fork_side.with(store, sources, presents[place].source())?);
        }
        let three: Vec<ThreeWay<'_>> = gathered.iter().map(Gathered::three_way).collect();
        let stage = Stage { sides: &sides, forks: &forks, three: &three, held: &mut held };
        let merged = self.judge(stage)?;
        let is_applied = merged.iter().all(|(report, _)| report.applied);
        let is_old = |fork: &&StableSource<'_>| fork.is_in_memory() && fork.is_overtaken();
        let holds = is_applied || !forks.iter().any(is_old);
        // In the reverse order, as guards of locks go.
        while held.pop().is_some() {}
        Ok(holds.then_some(merged))
    }

    /// Judges all, and applies all if nothing is in the way of any.
    fn judge(&self, stage: Stage<'_, '_>) -> Result<Vec<Merged>> {
        if let Some(refused) = self.overtaken(stage.three)? {
            return Ok(refused);
        }
        let mut verdicts = Vec::with_capacity(self.parts.len());
        for (part, three) in self.parts.iter().zip(stage.three) {
            verdicts.push(Verdict::of(three, part.options)?);
        }
        if verdicts.iter().any(|verdict| !verdict.report.conflicts.is_empty()) {
            return Ok(verdicts.into_iter().map(|it| (it.report, Vec::new())).collect());
        }
        let mut all = Vec::with_capacity(self.parts.len());
        for (place, part) in self.parts.iter().enumerate() {
            let (verdict, held) = (&verdicts[place], &*stage.held[place]);
            let judged = (&stage.three[place], &verdict.names, &verdict.files);
            let nothing = || part.options.always.then(Prepared::default);
            all.push(prepare((part.parent, held), judged)?.or_else(nothing));
        }
        self.apply(stage, &mut all)?;
        let merged = verdicts.into_iter().zip(all).map(|(verdict, prepared)| {
            let Prepared { change_set, orphans, .. } = prepared.unwrap_or_default();
            (MergeReport { applied: true, change_set, ..verdict.report }, orphans)
        });
        Ok(merged.collect())
    }

    /// What others have changed that was read or written, if there is such a thing. Transactions
    /// that have changed nothing at all are where their bases are in the order of all changes,
    /// unless they are entered all the same: then they are a part of more.
    fn overtaken(&self, three: &[ThreeWay<'_>]) -> Result<Option<Vec<Merged>>> {
        let is_part_of_more = self.parts.iter().any(|part| part.options.always);
        if !is_part_of_more && three.iter().all(|three| three.theirs.by_inode.is_empty()) {
            return Ok(None);
        }
        let mut refused = Vec::with_capacity(three.len());
        for (part, three) in self.parts.iter().zip(three) {
            let overlaps = part.options.strict;
            let found = overlaps.map(|overlaps| touched::overtaken(three, overlaps)).transpose()?;
            let conflicts = found.unwrap_or_default();
            refused.push((MergeReport { conflicts, ..MergeReport::default() }, Vec::new()));
        }
        let is_refused = refused.iter().any(|(report, _)| !report.conflicts.is_empty());
        Ok(is_refused.then_some(refused))
    }

    /// Applies what was prepared, in one step.
    fn apply(&self, stage: Stage<'_, '_>, all: &mut [Option<Prepared>]) -> Result<()> {
        let merged: Vec<MergedFrom<'_>> = stage
            .sides
            .iter()
            .zip(stage.forks)
            .map(|(sides, fork)| MergedFrom {
                dataset: &sides.dataset,
                fork: &sides.fork,
                read: fork.source(),
                keep: None,
                root_object: sides.root.0,
                base: None,
                moves_base: false,
                may_wait: false,
            })
            .collect();
        let (mut merges, mut changes) = (Vec::new(), Vec::new());
        for (place, prepared) in all.iter_mut().enumerate() {
            let Some(prepared) = prepared else { continue };
            let mut change = prepared.change();
            let batch = stage.held[place].complete_batch(&mut change)?;
            let view = self.parts[place].parent.view();
            merges.push(MergeInto { view, batch, merged: &merged[place] });
            changes.push((place, change));
        }
        if !merges.is_empty() {
            self.store.apply_merges(merges).map_err(from_store)?;
        }
        for (place, change) in &changes {
            stage.held[*place].applied(change);
        }
        Ok(())
    }
}

/// How the state of a fork is kept.
type Take<'s> = &'s dyn Fn(&'s dyn Store, &marram_store::Source, &str) -> Result<StableSource<'s>>;
