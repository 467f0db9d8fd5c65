//! A store with the mounts that show it, for the time of one operation.

use crate::control::credentials::Credentials;
use crate::engine::changes::Changes;
use crate::engine::mounts::{Held, Mounts};
use crate::engine::posix::{open_files, posix};
use crate::error::Result;
use marram_posix::Posix;
use marram_store::{Source, Store};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Commits that are counted.
pub(crate) trait Commits {
    /// A number that grows with each commit.
    fn commits(&self) -> u64;
}

/// A store, and the mounts that show it.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'s> {
    /// The store: a handle of it that acts for the user of the request.
    pub(crate) store: &'s dyn Store,
    /// Its commits.
    pub(crate) commits: &'s dyn Commits,
    /// The mounts.
    pub(crate) mounts: &'s dyn Mounts,
    /// The user whose rights bound what the request changes; none if all may be done.
    pub(crate) user: Option<&'s Credentials>,
}

/// A dataset during an operation on the whole of it.
pub(crate) struct Whole<'w> {
    /// The file system that programs use.
    pub(crate) in_use: Option<Arc<Posix>>,
    _held: Held<'w>,
}

impl Whole<'_> {
    fn of(held: Held<'_>) -> Result<Whole<'_>> {
        let in_use = held.in_use.clone().map(posix).transpose()?;
        Ok(Whole { in_use, _held: held })
    }

    /// The file system that programs use, or one for this operation.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn files(&self, store: &dyn Store, live: &Source) -> Result<Arc<Posix>> {
        match &self.in_use {
            Some(files) => Ok(Arc::clone(files)),
            None => Ok(Arc::new(open_files(store, &live.dataset)?)),
        }
    }
}

impl Shown<'_> {
    /// Runs an operation on the whole of a dataset while it is [held](Mounts::hold).
    ///
    /// What fails after its commit has been done all the same. So when one fails and anything has
    /// been committed meanwhile, the kernel drops all that it remembers: else
    /// old pages and names would stay beside new ones, and a snapshot that keeps the state before
    /// would not be seen.
    ///
    /// # Errors
    /// As for [`Mounts::hold`] and [`Mounts::refuse_held_back`]; those of `work`.
    pub(crate) fn on_whole<T>(
        &self,
        live: &Source,
        work: impl FnOnce(&Whole<'_>) -> Result<T>,
    ) -> Result<T> {
        let whole = Whole::of(self.mounts.hold(live)?)?;
        self.mounts.refuse_held_back(live)?;
        let before = self.commits.commits();
        let done = work(&whole);
        let in_use = whole.in_use.clone();
        drop(whole);
        let has_committed = || self.commits.commits() != before;
        if done.is_err() && has_committed() {
            in_use.iter().for_each(|files| self.mounts.all_changed(live, &**files));
            self.mounts.all_members_changed();
        }
        done
    }

    /// The same on the whole of several datasets, with the file systems that programs use, or that
    /// were opened for this; these are returned too.
    ///
    /// # Errors
    /// As for [`Shown::on_whole`].
    pub(crate) fn on_all<T>(
        &self,
        lives: &[Source],
        work: &dyn Fn(&[Arc<Posix>]) -> Result<T>,
    ) -> Result<(Vec<Arc<Posix>>, T)> {
        let held = self.mounts.hold_all(lives)?;
        lives.iter().try_for_each(|live| self.mounts.refuse_held_back(live))?;
        let (mut files, mut in_use) = (Vec::new(), Vec::new());
        for (live, volume) in lives.iter().zip(&held.in_use) {
            files.push(match volume.clone().map(posix).transpose()? {
                None => Arc::new(open_files(self.store, &live.dataset)?),
                Some(open) => {
                    in_use.push((live, Arc::clone(&open)));
                    open
                }
            });
        }
        let before = self.commits.commits();
        let done = work(&files);
        drop(held);
        if done.is_err() && self.commits.commits() != before {
            in_use.iter().for_each(|(live, files)| self.mounts.all_changed(live, &**files));
            self.mounts.all_members_changed();
        }
        Ok((files, done?))
    }

    /// Runs what only looks at the whole of a dataset while it is [held](Mounts::hold).
    ///
    /// # Errors
    /// As for [`Mounts::hold`]; those of `work`.
    pub(crate) fn look_at_whole<T>(
        &self,
        live: &Source,
        work: impl FnOnce(&Whole<'_>) -> Result<T>,
    ) -> Result<T> {
        work(&Whole::of(self.mounts.hold(live)?)?)
    }

    /// As [`Mounts::changed`], for what was looked up afterwards: if that failed, all that the
    /// kernel knows of the dataset is said to be out of date, which takes longer but is as right.
    pub(crate) fn tell_changes(
        &self,
        source: &Source,
        files: &Posix,
        changes: marram_vfs::Result<Changes>,
    ) {
        match changes {
            Ok(changes) => self.mounts.changed(source, files, &changes),
            Err(error) => {
                self.mounts.log(&format!("all of {source} is read anew: {error}"));
                self.mounts.all_changed(source, files);
            }
        }
    }

    /// Has mounts show what has come and gone while something was done.
    ///
    /// # Errors
    /// That of `work`; the names cannot be read.
    pub(crate) fn with_members<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let names = || -> Result<BTreeSet<Source>> {
            Ok(self.store.list()?.into_iter().map(|report| report.source).collect())
        };
        let before = names()?;
        let done = work()?;
        let after = names()?;
        let gone: Vec<Source> = before.difference(&after).cloned().collect();
        self.mounts.evict(&gone);
        let changed: Vec<Source> = before.symmetric_difference(&after).cloned().collect();
        self.mounts.members_changed(&changed);
        Ok(done)
    }

    /// Refuses to give a dataset another name while it or one of its snapshots is mounted.
    ///
    /// # Errors
    /// It is mounted.
    pub(crate) fn refuse_mounted_dataset(&self, dataset: &Source) -> Result<()> {
        if dataset.snapshot.is_some() {
            return Ok(());
        }
        let mounted = self.mounts.mounted().into_iter();
        let of_it = mounted.filter(|source| source.dataset == dataset.dataset);
        self.mounts.refuse_mounted(&of_it.collect::<Vec<_>>())
    }

    /// Lets mounted volumes know of properties and limits that have been set.
    ///
    /// # Errors
    /// Limits cannot be read.
    pub(crate) fn reload(&self) -> Result<()> {
        for open in self.mounts.volumes() {
            let files = posix(open)?;
            files.reload_properties();
            files.reload_limits()?;
        }
        Ok(())
    }
}
