//! Operations on the pool whose effects mounts show.

use super::Daemon;
use super::steps::Held;
use crate::control::protocol::{Answer, DirectoryOrder, MergeRequest, Operation};
use crate::engine;
use crate::error::{Error, Result};
use marram_pool::Pool;
use marram_store::{Source, Store};
use marram_vfs::{FileSystem, Ino, Kind};
use std::path::Path;

impl Daemon {
    /// Does what is asked, and has the mounts show it.
    ///
    /// # Errors
    /// Whatever refuses it or fails.
    pub(super) fn perform_seen(&self, pool: &Pool, operation: &Operation) -> Result<Answer> {
        match operation {
            Operation::Hide { sources } => {
                let sources: std::result::Result<Vec<Source>, _> =
                    sources.iter().map(|source| source.parse()).collect();
                self.destroy(pool, &sources?, operation)
            }
            Operation::Rename { from, to } => self.rename(pool, &from.parse()?, &to.parse()?),
            Operation::Promote { name } => self.promote(pool, &Source::live(name.parse()?)),
            Operation::Undo { number } => self.undo(pool, *number),
            Operation::Destroy { source, dry_run: false } => {
                self.destroy(pool, &[source.parse()?], operation)
            }
            Operation::Snapshot { dataset, snapshot } => {
                let answer = self.pool.perform_through(pool, operation)?;
                let dataset = dataset.parse()?;
                self.shelves_changed(&[Source { dataset, snapshot: Some(snapshot.clone()) }]);
                Ok(answer)
            }
            Operation::SnapshotBelow { dataset, snapshot } => {
                self.snapshot_below(pool, &dataset.parse()?, snapshot)
            }
            Operation::Thin(request) => self.thin(pool, request),
            Operation::Fork { name, .. } => {
                let answer = self.pool.perform_through(pool, operation)?;
                self.shelves_changed(&[Source::live(name.parse()?)]);
                Ok(answer)
            }
            Operation::Merge(request) => self.merge(pool, request),
            Operation::Rollback { to } => self.rollback(pool, &to.parse()?),
            Operation::RollbackDirectory(order) => self.rollback_directory(pool, order),
            _ => self.pool.perform_through(pool, operation),
        }
    }

    /// What an inode of the mount on `directory` belongs to.
    ///
    /// # Errors
    /// Nothing is mounted there, or the inode is gone.
    pub(super) fn locate(&self, directory: &Path, ino: u64) -> Result<Answer> {
        let place = directory.display();
        let found = self.mounts.namespace_at(directory);
        let (mounted, namespace) =
            found.ok_or_else(|| Error::not_found(format!("nothing is mounted at {place}")))?;
        if namespace.is_shelf(Ino(ino)) {
            let root = namespace.root().0;
            return Ok(Answer::Located { source: mounted.to_string(), ino: 0, root });
        }
        let gone = |error: marram_vfs::Error| Error::not_found(format!("{place}: {error}"));
        let (member, root, files, inner) = namespace.resolve(Ino(ino)).map_err(gone)?;
        let kind = files.attributes(inner).map_err(gone)?.kind;
        let source = member.unwrap_or(mounted).to_string();
        let ino = if kind == Kind::Directory { inner.0 } else { 0 };
        Ok(Answer::Located { source, ino, root: root.0 })
    }

    /// Destroys what nobody has mounted. What is only looked at below `.marram` goes from there
    /// first.
    fn destroy(&self, pool: &Pool, sources: &[Source], operation: &Operation) -> Result<Answer> {
        self.refuse_mounted(sources)?;
        let goes = pool.destroy_together(sources, true)?.sources;
        self.refuse_what_stays(&goes)?;
        // Whoever lists `.marram` meanwhile would open again what was just taken away there.
        let withheld = self.mounts.withhold(&goes);
        self.evict(&goes);
        let answer = self.pool.perform_through(pool, operation);
        drop(withheld);
        self.shelves_changed(&goes);
        answer
    }

    /// Lets a dataset go on from a snapshot while programs use it: they see it at once.
    fn rollback(&self, pool: &Pool, to: &Source) -> Result<Answer> {
        let live = Source::live(to.dataset.clone());
        let (files, answer) = self.on_whole(&live, |held| {
            let files = held.in_use();
            let answer = engine::history::rollback(pool, to, |go_back| match &files {
                Some(files) => files.roll_back(go_back),
                None => go_back(),
            })?;
            Ok((files, answer))
        })?;
        if let (Some(files), Answer::RolledBack { kept, .. }) = (&files, &answer) {
            let kept: Source = kept.parse()?;
            self.tell_changes(&live, files, marram_posix::touched(pool, &kept, to));
            self.shelves_changed(&[kept]);
        }
        Ok(answer)
    }

    /// Lets a directory go back while programs use it and what is around it: they see it at once.
    fn rollback_directory(&self, pool: &Pool, order: &DirectoryOrder) -> Result<Answer> {
        let live = Source::live(order.dataset.parse()?);
        let (files, (answer, touched)) = self.on_whole(&live, |held| {
            let files = held.files(pool, &live)?;
            let done = engine::history::rollback_directory(pool, order, &files)?;
            Ok((files, done))
        })?;
        self.dataset_changed(&live, &files, &touched);
        if let Answer::DirectoryRolledBack { kept: Some(kept), .. } = &answer {
            self.shelves_changed(&[kept.parse()?]);
        }
        Ok(answer)
    }

    /// Brings a fork's changes into what it was forked from while programs use that: they see them
    /// at once.
    fn merge(&self, pool: &Pool, request: &MergeRequest) -> Result<Answer> {
        let merge = engine::history::Merge::of(pool, request)?;
        let work = |held: &Held<'_>| {
            let files = held.files(pool, merge.parent())?;
            let done = merge.run(pool, &files)?;
            Ok((files, done))
        };
        if request.preview {
            let (_, (mut summary, _)) = self.look_at_whole(merge.parent(), work)?;
            let refused = self.refuse_held_back(merge.parent()).err();
            let advised = refused.map(|error| format!("{error}; unmount it first"));
            summary.obstacle = summary.obstacle.or(advised);
            return Ok(Answer::Merged(Box::new(summary)));
        }
        let (files, (summary, touched)) = self.on_whole(merge.parent(), work)?;
        self.dataset_changed(merge.parent(), &files, &touched);
        let fork = merge.fork();
        merge.conclude(summary, || {
            let operation = Operation::Hide { sources: vec![fork.to_string()] };
            self.destroy(pool, std::slice::from_ref(fork), &operation).map(|_| ())
        })
    }

    /// Refuses a destruction that the pool would refuse, before anything is taken from sight.
    fn refuse_what_stays(&self, goes: &[Source]) -> Result<()> {
        self.refuse_mounted(goes)?;
        for gone in goes {
            let report = self.pool.pool().report(gone)?;
            if !report.holds.is_empty() {
                let (name, tags) = (report.source, report.holds.join(", "));
                return Err(Error::in_use(format!("{name} is held: {tags}"))
                    .hint(format!("let go of it with `marram release TARGET {tags}`")));
            }
        }
        Ok(())
    }
}
