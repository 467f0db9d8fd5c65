//! Work in the background on file systems that may be closed, and opened anew, meanwhile.
//!
//! **One file system at a time for a dataset.** Two that are open on the same one would not know of
//! each other's locks, and changes of both could be lost in each other. Whoever works in the
//! background keeps hold of file systems while mounts come and go; so he works in steps, asks
//! before each whether what he has is still the one that is open, and each opening waits for the
//! steps that are going on.

use super::Daemon;
use super::mounts::OpenAlone;
use crate::engine;
use crate::error::{Error, Result};
use marram_pool::Pool;
use marram_posix::Posix;
use marram_store::Source;
use parking_lot::{MutexGuard, RwLock, RwLockReadGuard};
use std::sync::Arc;

/// The steps that are going on.
#[derive(Default)]
pub(super) struct Steps(RwLock<()>);

impl Steps {
    /// A step, until it is dropped.
    pub(super) fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read()
    }

    /// Returns when no step is going on that began before: one may have a file system that is no
    /// longer open otherwise.
    pub(super) fn wait(&self) {
        drop(self.0.write());
    }
}

impl Daemon {
    /// Lets a step on `files` begin, if that is still the file system that is open.
    pub(super) fn begin_step(&self, files: &Arc<Posix>) -> Option<RwLockReadGuard<'_, ()>> {
        let step = self.steps.begin();
        let open = self.mounts.file_systems();
        open.iter().any(|open| Arc::ptr_eq(open, files)).then_some(step)
    }
}

/// A dataset during an operation on the whole of it: nobody opens or closes it meanwhile.
///
/// It is let go of before the kernel is told what has changed: a look-up that waits for the steps
/// that are going on may hold what the kernel wants for that.
pub(super) struct Held<'d> {
    in_use: Option<Arc<Posix>>,
    /// Of one that is in use.
    _step: Option<RwLockReadGuard<'d, ()>>,
    /// Of one that nobody has open: no other operation is at such a one.
    _alone: Option<(OpenAlone<'d>, MutexGuard<'d, ()>)>,
}

impl Held<'_> {
    /// The file system that programs use.
    pub(super) fn in_use(&self) -> Option<Arc<Posix>> {
        self.in_use.clone()
    }

    /// The file system that programs use, or one for this operation.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn files(&self, pool: &Pool, live: &Source) -> Result<Arc<Posix>> {
        match self.in_use() {
            Some(files) => Ok(files),
            None => Ok(Arc::new(engine::open_files(pool, &live.dataset)?)),
        }
    }
}

impl Daemon {
    /// Holds a dataset for an operation on the whole of it; waits for others that do so with one
    /// that nobody has open.
    ///
    /// # Errors
    /// It is being mounted or unmounted at the moment.
    fn hold(&self, live: &Source) -> Result<Held<'_>> {
        if let Some(held) = self.hold_open(live)? {
            return Ok(held);
        }
        let turn = self.alone.lock();
        match self.hold_open(live)? {
            Some(held) => Ok(held),
            None => {
                let alone = self.mounts.open_alone(live, self.pool.path())?;
                // One that has just been closed may still be worked on.
                self.steps.wait();
                Ok(Held { in_use: None, _step: None, _alone: Some((alone, turn)) })
            }
        }
    }

    /// Runs an operation on the whole of a dataset while it is [held](Daemon::hold).
    ///
    /// What fails after its commit has been done all the same. So when one fails and anything has
    /// been committed meanwhile, the kernel is told that nothing may be as it remembers it: else
    /// old pages and names would stay beside new ones, and a snapshot that keeps the state before
    /// would not be seen.
    ///
    /// # Errors
    /// As for [`Daemon::hold`] and [`Daemon::refuse_held_back`]; those of `work`.
    pub(super) fn on_whole<T>(
        &self,
        live: &Source,
        work: impl FnOnce(&Held<'_>) -> Result<T>,
    ) -> Result<T> {
        let held = self.hold(live)?;
        self.refuse_held_back(live)?;
        let group = self.pool.pool().status().group;
        let done = work(&held);
        let in_use = held.in_use();
        drop(held);
        let has_committed = || self.pool.pool().status().group != group;
        if done.is_err() && has_committed() {
            in_use.iter().for_each(|files| self.all_changed(live, files));
            self.all_shelves_changed();
        }
        done
    }

    /// Runs what only looks at the whole of a dataset while it is [held](Daemon::hold).
    ///
    /// # Errors
    /// As for [`Daemon::hold`]; those of `work`.
    pub(super) fn look_at_whole<T>(
        &self,
        live: &Source,
        work: impl FnOnce(&Held<'_>) -> Result<T>,
    ) -> Result<T> {
        work(&self.hold(live)?)
    }

    fn hold_open(&self, live: &Source) -> Result<Option<Held<'_>>> {
        let Some(files) = self.files_of(live) else { return Ok(None) };
        let closing = || {
            let error = Error::in_use(format!("{live} is being unmounted"));
            error.hint("try again in a moment")
        };
        let step = self.begin_step(&files).ok_or_else(closing)?;
        Ok(Some(Held { in_use: Some(files), _step: Some(step), _alone: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::Steps;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn an_opening_waits_for_the_step_that_is_going_on() {
        let steps = Steps::default();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let step = steps.begin();
            let opening = scope.spawn(|| {
                steps.wait();
                assert!(is_over.load(Ordering::Acquire), "opened in the middle of a step");
            });
            // Whichever comes first, the opening returns only after this.
            thread::yield_now();
            is_over.store(true, Ordering::Release);
            drop(step);
            opening.join().expect("it waits");
        });
    }
}
