//! One directory or file goes back to what it was in a snapshot, while the rest of the file system
//! stays.
//!
//! As a merge does, it holds the parent still, takes the state of now, and brings what differs in
//! by one batch; see `docs/decisions/0021-rollback-of-a-directory.md`.

use crate::change_set::ChangeSet;
use crate::changes::Changes;
use crate::conflict::MergeReport;
use crate::counterpart::Counterpart;
use crate::diff::check_related;
use crate::merge::{apply, conclude, with_space};
use crate::merge_names::MergeNames;
use crate::parent::{HeldParent, Parent};
use crate::restoring::Restoring;
use crate::stable_source::StableSource;
use crate::three_way::ThreeWay;
use marram_records::failure::from_store;
use marram_records::state::State;
use marram_store::{DatasetName, MergedFrom, Source, Store};
use marram_vfs::{Error, Ino, Result};

/// What goes back to what.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryRollback<'a> {
    /// The dataset that the file system serves.
    pub dataset: &'a DatasetName,
    /// A snapshot of it, or of what it began as.
    pub to: &'a Source,
    /// The directory.
    pub directory: Ino,
    /// Name of a snapshot of the dataset that keeps the state before it, if that is wanted.
    pub keep: Option<&'a str>,
}

/// Lets a directory with all that is below it go back to what it was in a snapshot, as one
/// step that is durable when this returns. Outside of it nothing changes. Others wait for as
/// long as that takes.
///
/// Returns what has changed; `None` if it is as it was: then nothing is kept either, and what
/// was done before is made durable as if something had gone back.
///
/// # Errors
/// [`Error::NotFound`] if the snapshot has neither the directory nor another one under its path;
/// states without a common past, a full store, a quota or limit in the way, a failed read or write:
/// nothing is changed. Only if what was applied cannot be made durable is it there all the same,
/// for as long as the pool goes on.
pub fn roll_back_directory(
    parent: &dyn Parent,
    store: &dyn Store,
    rollback: DirectoryRollback<'_>,
) -> Result<Option<ChangeSet>> {
    roll_back_below(parent, store, rollback, &[])
}

/// The same of what a path of `names` below the directory leads to, or led to: a file or
/// directory, also one that is gone. Directories on the way to it that are gone are made, with
/// what they were, and nothing else in them.
///
/// # Errors
/// As for [`roll_back_directory`]; [`Error::NotFound`] if the snapshot has nothing of it;
/// [`Error::NotDirectory`] if a file is now where a directory was on the way.
pub fn roll_back_below(
    parent: &dyn Parent,
    store: &dyn Store,
    rollback: DirectoryRollback<'_>,
    names: &[Vec<u8>],
) -> Result<Option<ChangeSet>> {
    parent.check_running()?;
    if !parent.view().writable() {
        return Err(Error::ReadOnly);
    }
    let roll_back = || roll_back_once(parent, store, rollback, names);
    let (report, orphans) = with_space(parent, roll_back)?;
    // Also where all is as it was: what was done before is durable then. Not
    // begun anew if this finds no space: it has been applied.
    conclude(parent, true, orphans)?;
    Ok(report.applied.then_some(report.change_set))
}

/// Returns what has become an orphan too.
fn roll_back_once(
    parent: &dyn Parent,
    store: &dyn Store,
    rollback: DirectoryRollback<'_>,
    names: &[Vec<u8>],
) -> Result<(MergeReport, Vec<u64>)> {
    let open = |source: &Source| -> Result<State> {
        State::open(store.open(source).map_err(from_store)?, parent.root().0)
    };
    let past = open(rollback.to)?;
    let mut held = parent.hold_still()?;
    let present = StableSource::take(store, rollback.dataset, "merge")?;
    let now = open(&present.source)?;
    check_related(&now, &past)?;
    let goes_back = Counterpart::find_below((&now, &past), rollback.directory.0, names)?;
    let (now, past) = (now.below(goes_back.now), past.below(goes_back.past));
    let changes = Changes::gather(store, (&present.source, rollback.to), &now, &past)?;
    let untouched = Changes::default();
    let sides = ThreeWay::new((&now, &past, &now), &changes, &untouched);
    roll_back_held((parent, &mut *held), store, (&rollback, &goes_back), sides)
}

/// Plans and applies. Returns what has become an orphan too.
fn roll_back_held(
    (parent, held): (&dyn Parent, &mut dyn HeldParent),
    store: &dyn Store,
    (rollback, goes_back): (&DirectoryRollback<'_>, &Counterpart),
    sides: ThreeWay<'_>,
) -> Result<(MergeReport, Vec<u64>)> {
    let plan = Restoring::plan(&sides, held, goes_back)?;
    let mut report = MergeReport::default();
    if plan.names.is_empty() && plan.files.is_empty() {
        return Ok((report, Vec::new()));
    }
    let sides = sides.with_fates(plan.fates);
    let names = MergeNames::decided(&sides, plan.names);
    let merged = MergedFrom {
        dataset: rollback.dataset,
        fork: rollback.to,
        read: rollback.to,
        keep: rollback.keep,
        // An undo looks below a directory that is there before and after.
        root_object: goes_back.within,
        base: None,
        moves_base: false,
        may_wait: false,
    };
    let judged = ((&sides, &names, &plan.files), false);
    let orphans = apply((parent, held), (store, &merged), judged, &mut report)?;
    report.applied = true;
    Ok((report, orphans))
}
