//! Deduplication while file systems are in use: on demand, and of what has just been written.
//! It works in [steps](super::steps).

use super::Daemon;
use crate::control::protocol::{Answer, DedupDirectory, DedupOrder, DedupTotals};
use crate::engine;
use crate::error::{Error, Result};
use marram_posix::{DedupPlace, Deduplicator, Posix};
use marram_store::Source;
use parking_lot::{Mutex, RwLockReadGuard};
use std::sync::Arc;
use std::time::Duration;

/// Windows of content that one step looks at: a fraction of a second's work.
const STEP_WINDOWS: usize = 64;
/// Windows of older content that are looked at for each dataset in between rests: 4 MiB/s where
/// `recordsize` is 128 KiB.
const FILL_WINDOWS: usize = 32;
/// How long to rest when nothing new waits.
const REST: Duration = Duration::from_secs(1);

/// What deduplication keeps for as long as the daemon runs.
#[derive(Default)]
pub(super) struct Deduplication {
    /// Where content is that was written since the pool was mounted.
    recent: Mutex<Deduplicator>,
}

impl Daemon {
    /// Finds and shares equal content below directories that are in sight, for as long as it
    /// `is_wanted`.
    ///
    /// # Errors
    /// A directory is of nothing that is mounted; a commit failed.
    pub(super) fn deduplicate(
        &self,
        order: &DedupOrder,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Answer> {
        let _held = self.hold_stream()?;
        let pool = self.pool.pool();
        let (names, places) = self.places_in_sight(&order.places, order.dry_run)?;
        let mut admit = || self.admit(&places, is_wanted);
        let only_places: Vec<DedupPlace> = places.iter().map(|(_, place)| place.clone()).collect();
        let answer = engine::dedup::run(pool, &only_places, order.dry_run, &mut admit);
        let outcome = match &answer {
            Ok(Answer::Deduplicated(summary)) => format!("{} bytes shared", summary.shared_bytes),
            Ok(_) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        self.log.write(&format!("dedup {names}: {outcome}"));
        answer
    }

    /// Directories of what is mounted, and the names of what they are in.
    pub(super) fn places_in_sight(
        &self,
        directories: &[DedupDirectory],
        dry_run: bool,
    ) -> Result<(String, Vec<(Source, DedupPlace)>)> {
        let pool = self.pool.pool();
        let mut places = Vec::new();
        for place in directories {
            let source = engine::dedup::source_of(place, dry_run)?;
            let files = self.files_of(&source).ok_or_else(|| {
                Error::in_use(format!("the pool is mounted, but {source} is not"))
                    .hint("name a directory below a mount, or unmount the pool first")
            })?;
            places.push((source.clone(), engine::dedup::place_in(pool, place, &source, files)?));
        }
        let names: Vec<String> = places.iter().map(|(source, _)| source.to_string()).collect();
        Ok((names.join(" "), places))
    }

    /// Lets a step begin if all file systems are still the ones that are open.
    pub(super) fn admit(
        &self,
        places: &[(Source, DedupPlace)],
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Option<RwLockReadGuard<'_, ()>> {
        if self.mounts.is_shut() || !is_wanted() {
            return None;
        }
        let step = self.steps.begin();
        let is_open = |(source, place): &(Source, DedupPlace)| {
            self.files_of(source).is_some_and(|files| Arc::ptr_eq(&files, &place.files))
        };
        places.iter().all(is_open).then_some(step)
    }

    /// Looks at what has just been written in datasets that want it. Runs until the daemon ends.
    pub(super) fn deduplicate_recent(&self) {
        while !self.mounts.is_shut() && !self.pool.pool().is_halted() {
            let mut more = false;
            for files in self.mounts.file_systems() {
                more |= self.recent_step(&files);
            }
            if !more {
                self.fill_hints();
                std::thread::sleep(REST);
            }
        }
    }

    fn recent_step(&self, files: &Arc<Posix>) -> bool {
        if !files.has_recent() {
            return false;
        }
        let Some(_step) = self.begin_step(files) else { return false };
        self.dedup.recent.lock().step(files, STEP_WINDOWS)
    }

    /// While nothing new waits: a little of what was there before the mount is taken note of, so
    /// that what is written can be shared with it.
    fn fill_hints(&self) {
        for files in self.mounts.file_systems() {
            if files.wants_sharing()
                && let Some(_step) = self.begin_step(&files)
            {
                self.dedup.recent.lock().fill(&files, FILL_WINDOWS);
            }
        }
    }

    /// What has come of looking at what was written; nothing where no dataset ever wanted it.
    pub(super) fn dedup_totals(&self) -> Option<DedupTotals> {
        let totals = engine::dedup::totals(self.dedup.recent.lock().totals());
        (totals.content_bytes + totals.missed_ranges + totals.hints > 0).then_some(totals)
    }
}
