//! Passes over the files below directories that are in sight, because somebody asks for them. They
//! work in [steps](super::steps).

use super::Daemon;
use crate::control::protocol::{Answer, PassDirectory, PassOrder};
use crate::engine::{self, pass};
use crate::error::{Error, Result};
use marram_posix::PassPlace;
use marram_store::Source;
use parking_lot::RwLockReadGuard;
use std::sync::Arc;

/// What lets a step begin, and goes on with it.
type Admit<'a, 'd> = &'a mut dyn FnMut() -> Option<RwLockReadGuard<'d, ()>>;

impl Daemon {
    /// Finds and shares equal content below directories that are in sight, for as long as it
    /// `is_wanted`.
    ///
    /// # Errors
    /// A directory is of nothing that is mounted; a commit failed.
    pub(super) fn deduplicate(
        &self,
        order: &PassOrder,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Answer> {
        self.pass("dedup", order, is_wanted, &|places, admit| {
            engine::dedup::run(self.pool.pool(), places, order.dry_run, admit)
        })
    }

    /// Rewrites what is worth it below directories that are in sight, for as long as it
    /// `is_wanted`.
    ///
    /// # Errors
    /// A directory is of nothing that is mounted; a commit failed.
    pub(super) fn defragment(
        &self,
        order: &PassOrder,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Answer> {
        self.pass("defragment", order, is_wanted, &|places, admit| {
            engine::defragment::run(self.pool.pool(), places, order.dry_run, admit)
        })
    }

    fn pass<'d>(
        &'d self,
        name: &str,
        order: &PassOrder,
        is_wanted: &mut dyn FnMut() -> bool,
        run: &dyn Fn(&[PassPlace], Admit<'_, 'd>) -> Result<Answer>,
    ) -> Result<Answer> {
        let _held = self.hold_stream()?;
        let (names, places) = self.places_in_sight(&order.places, order.dry_run)?;
        let only_places: Vec<PassPlace> = places.iter().map(|(_, place)| place.clone()).collect();
        let answer = run(&only_places, &mut || self.admit(&places, is_wanted));
        self.log.write(&format!("{name} {names}: {}", outcome(&answer)));
        answer
    }

    /// Directories of what is mounted, and the names of what they are in.
    fn places_in_sight(
        &self,
        directories: &[PassDirectory],
        dry_run: bool,
    ) -> Result<(String, Vec<(Source, PassPlace)>)> {
        let pool = self.pool.pool();
        let mut places = Vec::new();
        for place in directories {
            let source = pass::source_of(place, dry_run)?;
            let files = self.files_of(&source).ok_or_else(|| {
                Error::in_use(format!("the pool is mounted, but {source} is not"))
                    .hint("name a directory below a mount, or unmount the pool first")
            })?;
            places.push((source.clone(), pass::place_in(pool, place, &source, files)?));
        }
        let names: Vec<String> = places.iter().map(|(source, _)| source.to_string()).collect();
        Ok((names.join(" "), places))
    }

    /// Lets a step begin if all file systems are still the ones that are open.
    fn admit(
        &self,
        places: &[(Source, PassPlace)],
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Option<RwLockReadGuard<'_, ()>> {
        if self.mounts.is_shut() || !is_wanted() {
            return None;
        }
        let step = self.steps.begin();
        let is_open = |(source, place): &(Source, PassPlace)| {
            self.files_of(source).is_some_and(|files| Arc::ptr_eq(&files, &place.files))
        };
        places.iter().all(is_open).then_some(step)
    }
}

/// What has come of a pass, for the log.
fn outcome(answer: &Result<Answer>) -> String {
    match answer {
        Ok(Answer::Deduplicated(summary)) => format!("{} bytes shared", summary.shared_bytes),
        Ok(Answer::Defragmented(summary)) => {
            format!("{} bytes rewritten", summary.rewriting.rewritten_bytes)
        }
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    }
}
