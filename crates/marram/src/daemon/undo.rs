//! Taking operations back, and other names for things, while mounts show what changes.

use super::Daemon;
use crate::control::protocol::Answer;
use crate::engine::undo;
use crate::error::{Error, Result};
use marram_pool::{Pool, Reversal};
use marram_store::{Source, Store};
use std::collections::BTreeSet;

impl Daemon {
    /// Takes an operation back, the last one if no number is given.
    ///
    /// # Errors
    /// What stands in the way; then nothing has changed.
    pub(super) fn undo(&self, pool: &Pool, number: Option<u64>) -> Result<Answer> {
        let (number, reversal) = undo::reversal(pool, number)?;
        match reversal {
            Reversal::Records { goes, renamed } => {
                renamed.iter().try_for_each(|renamed| self.refuse_mounted_dataset(renamed))?;
                self.refuse_mounted(&goes)?;
                // Whoever lists `.marram` meanwhile would open again what was just taken away.
                let withheld = self.mounts.withhold(&goes);
                self.evict(&goes);
                self.with_shelves(pool, || undo::by_records(pool, number))?;
                drop(withheld);
                self.reload()?;
            }
            Reversal::Rollback { dataset, to } => {
                self.undo_rollback(pool, number, &Source::live(dataset), &to)?;
            }
            Reversal::Merge { dataset, base, back_to, root_object } => {
                let live = Source::live(dataset.clone());
                let (files, touched) = self.on_whole(&live, |held| {
                    let files = held.files(pool, &live)?;
                    let of = (&dataset, &base, &back_to, root_object);
                    let touched = undo::by_merge(pool, number, &files, of)?;
                    Ok((files, touched))
                })?;
                self.dataset_changed(&live, &files, &touched);
            }
        }
        Ok(Answer::Undone(Box::new(undo::report(pool, number)?)))
    }

    fn undo_rollback(&self, pool: &Pool, number: u64, live: &Source, to: &Source) -> Result<()> {
        let (mut entry, mut files) = (None, None);
        let shown = self.with_shelves(pool, || {
            self.on_whole(live, |held| {
                files = held.in_use();
                let mut go_back = || -> Result<()> {
                    entry = Some(undo::by_records(pool, number)?);
                    Ok(())
                };
                match &files {
                    Some(files) => files.roll_back(go_back),
                    None => go_back(),
                }
            })
        });
        // From here on it is done, whatever cannot be looked up.
        if let (Some(files), Some(entry)) = (&files, entry) {
            match undo::kept_by(pool, entry) {
                Ok(kept) => {
                    self.tell_changes(live, files, marram_posix::touched(pool, &kept, to));
                }
                Err(error) => {
                    self.log.write(&format!("all of {live} is read anew: {error}"));
                    self.all_changed(live, files);
                }
            }
        }
        shown
    }

    /// Gives a dataset or snapshot another name.
    ///
    /// # Errors
    /// A dataset that is mounted; whatever else refuses it.
    pub(super) fn rename(&self, pool: &Pool, from: &Source, to: &Source) -> Result<Answer> {
        self.refuse_mounted_dataset(from)?;
        self.refuse_mounted(std::slice::from_ref(from))?;
        self.with_shelves(pool, || Ok(pool.rename(from, to)?))?;
        Ok(Answer::Done)
    }

    /// Lets a clone take over the snapshots that it began as.
    ///
    /// # Errors
    /// One of these is mounted; whatever else refuses it.
    pub(super) fn promote(&self, pool: &Pool, clone: &Source) -> Result<Answer> {
        if let Some(origin) = pool.report(clone)?.origin {
            let all = pool.list()?.into_iter().map(|report| report.source);
            let of_it =
                |source: &Source| source.dataset == origin.dataset && source.snapshot.is_some();
            self.refuse_mounted(&all.filter(of_it).collect::<Vec<_>>())?;
        }
        self.with_shelves(pool, || Ok(pool.promote(&clone.dataset)?))?;
        Ok(Answer::Done)
    }

    /// Has mounts show what has come and gone while something was done.
    fn with_shelves<T>(&self, pool: &Pool, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let names = || -> Result<BTreeSet<Source>> {
            Ok(pool.list()?.into_iter().map(|report| report.source).collect())
        };
        let before = names()?;
        let done = work()?;
        let after = names()?;
        let gone: Vec<Source> = before.difference(&after).cloned().collect();
        self.evict(&gone);
        self.shelves_changed(&before.symmetric_difference(&after).cloned().collect::<Vec<_>>());
        Ok(done)
    }

    /// Refuses what a mount of its own shows.
    pub(super) fn refuse_mounted(&self, sources: &[Source]) -> Result<()> {
        let mounted = self.mounts.reports();
        for source in sources {
            let name = source.to_string();
            if let Some(mount) = mounted.iter().find(|mount| mount.source == name) {
                let place = mount.directory.display();
                return Err(
                    Error::in_use(format!("{name} is mounted at {place}")).hint("unmount it first")
                );
            }
        }
        Ok(())
    }

    /// Refuses to give a dataset another name while it or one of its snapshots is mounted.
    fn refuse_mounted_dataset(&self, dataset: &Source) -> Result<()> {
        if dataset.snapshot.is_some() {
            return Ok(());
        }
        let mounted = self.mounts.reports().into_iter();
        let of_it = |source: &Source| source.dataset == dataset.dataset;
        let sources = mounted.filter_map(|mount| mount.source.parse::<Source>().ok());
        self.refuse_mounted(&sources.filter(of_it).collect::<Vec<_>>())
    }
}
