//! One directory goes back to what it was in a snapshot, while the rest of the file system stays.
//!
//! As a merge does, it takes all locks, keeps the state of now, and brings what differs in by one
//! batch; see `docs/decisions/0021-rollback-of-a-directory.md`.

use super::changes::Changes;
use super::conflict::MergeReport;
use super::counterpart::Counterpart;
use super::diff::check_related;
use super::kept::Kept;
use super::names::Names;
use super::restoring::Restoring;
use super::sides::Sides;
use super::state::State;
use crate::failure::from_store;
use crate::filesystem::Posix;
use crate::touched::Touched;
use marram_store::{DatasetName, MergedFrom, Source, Store};
use marram_vfs::{Ino, Result};

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

impl Posix {
    /// Lets a directory with all that is below it go back to what it was in a snapshot, as one
    /// step that is durable when this returns. Outside of it nothing changes. Others wait for as
    /// long as that takes.
    ///
    /// Returns what has changed; `None` if it is as it was: then nothing is kept either, and what
    /// was done before is made durable as if something had gone back.
    ///
    /// # Errors
    /// [`marram_vfs::Error::NotFound`] if the snapshot has neither the directory nor another one
    /// under its path; states without a common
    /// past, a full store, a quota or limit in the way, a failed read or write: nothing is
    /// changed. Only if what was applied cannot be made durable is it there all the same, for
    /// as long as the pool goes on.
    pub fn roll_back_directory(
        &self,
        store: &dyn Store,
        rollback: DirectoryRollback<'_>,
    ) -> Result<Option<Touched>> {
        self.check_running()?;
        self.check_writable()?;
        let roll_back = || self.roll_back_once(store, rollback);
        let (report, orphans) = self.with_reclaim(roll_back)?;
        // Also where all is as it was: what was done before is durable then, whoever did it. Not
        // begun anew if this finds no space: it has been applied.
        self.conclude(true, orphans)?;
        Ok(report.applied.then_some(report.touched))
    }

    /// Returns what has become an orphan too.
    fn roll_back_once(
        &self,
        store: &dyn Store,
        rollback: DirectoryRollback<'_>,
    ) -> Result<(MergeReport, Vec<u64>)> {
        let open = |source: &Source| -> Result<State> {
            State::open(store.open(source).map_err(from_store)?, self.root())
        };
        let past = open(rollback.to)?;
        let _held = self.locks.all();
        let kept = Kept::take(store, rollback.dataset, "merge")?;
        let now = open(&kept.source)?;
        check_related(&now, &past)?;
        let goes_back = Counterpart::find((&now, &past), rollback.directory.0)?;
        let (now, past) = (now.below(goes_back.now), past.below(goes_back.past));
        let changes = Changes::gather(store, (&kept.source, rollback.to), &now, &past)?;
        let untouched = Changes::default();
        let sides = Sides::new((&now, &past, &now), &changes, &untouched);
        self.roll_back_held(store, (&rollback, &goes_back), sides)
    }

    /// Plans and applies, under all locks. Returns what has become an orphan too.
    fn roll_back_held(
        &self,
        store: &dyn Store,
        (rollback, goes_back): (&DirectoryRollback<'_>, &Counterpart),
        sides: Sides<'_>,
    ) -> Result<(MergeReport, Vec<u64>)> {
        let plan = Restoring::plan(&sides, &self.pins, goes_back)?;
        let mut report = MergeReport::default();
        if plan.names.is_empty() && plan.files.is_empty() {
            return Ok((report, Vec::new()));
        }
        let sides = sides.with_fates(plan.fates);
        let names = Names::decided(&sides, plan.names);
        // Whoever takes it back looks below a directory that is there before and after.
        let stays = goes_back.renamed.as_ref().map_or(goes_back.now, |renamed| renamed.parent);
        let merged = MergedFrom {
            dataset: rollback.dataset,
            fork: rollback.to,
            read: rollback.to,
            keep: rollback.keep,
            root_object: stays,
        };
        let judged = (&sides, &names, &plan.files);
        let orphans = self.apply_merge((store, &merged), judged, &mut report)?;
        report.applied = true;
        Ok((report, orphans))
    }
}
