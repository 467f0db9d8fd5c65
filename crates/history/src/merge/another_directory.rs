//! A fork's changes for another directory than the one that it is a fork of.
//!
//! That directory may be a copy of the one that is gone, or of an older state of it, so nothing in
//! it has the number that it has in the fork. What the fork began as has a path there or not: what
//! is there under the same path, and of the same kind, is the same to the merge. What has several
//! names is known if all of them that are there lead to one. All else is of one side alone.
//!
//! **An empty directory** has removed nothing: all that the fork has comes.
//!
//! This costs what is in both.

use super::gathered::Gathered;
use crate::changes::Changes;
use crate::equal::same_file;
use marram_format::record::{Inode, InodeKind};
use marram_records::renumbering::{Counterpart, Renumbering};
use marram_records::state::{Named, State, same_inode};
use marram_vfs::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the fork has, which began as `base`, and the directory that its changes are for.
pub(super) struct Apart {
    pub(super) base: State,
    pub(super) fork: State,
    /// From the base to the fork.
    pub(super) theirs: Changes,
    /// What is below the directory.
    pub(super) now: State,
}

impl Apart {
    /// The three states by the numbers of the directory's dataset.
    ///
    /// # Errors
    /// [`Error::Stale`] if the directory is gone, [`Error::NotDirectory`] if it is none.
    pub(super) fn gather(self) -> Result<Gathered> {
        let directory = self.now.named_inode(self.now.root)?.ok_or(Error::Stale)?;
        if directory.kind != InodeKind::Directory {
            return Err(Error::NotDirectory);
        }
        if directory.size == 0 { self.with_all() } else { self.with_changes() }
    }

    /// All that the fork has is new.
    fn with_all(self) -> Result<Gathered> {
        let Apart { fork, now, .. } = self;
        let pairs = BTreeMap::from([(fork.root, now.root)]);
        let fork = shown(&fork, (&now, &pairs))?;
        let base = now.below(now.root);
        let mut theirs = Changes::between((&base, &fork), all_below(&fork)?)?;
        // The directory keeps its own attributes.
        theirs.by_inode.entry(now.root).or_default().is_on_the_way = true;
        let ours = Changes::default();
        Ok(Gathered { base, fork, now, theirs, ours, is_renumbered: true })
    }

    fn with_changes(self) -> Result<Gathered> {
        let Apart { base, fork, theirs, now } = self;
        let pairs = Search { base: &base, fork: &fork, now: &now }.pairs()?;
        let numbers = Arc::new(numbers(&now, &pairs)?);
        let show = |state: &State| state.renumbered(Arc::clone(&numbers)).below(now.root);
        let (base, fork) = (show(&base), show(&fork));
        let mut all = all_below(&base)?;
        all.extend(all_below(&now)?);
        let ours = Changes::between((&base, &now), all)?;
        let theirs = theirs.renumbered(&numbers);
        Ok(Gathered { base, fork, now, theirs, ours, is_renumbered: true })
    }
}

fn numbers(now: &State, pairs: &BTreeMap<u64, u64>) -> Result<Renumbering> {
    let mut counterparts = BTreeMap::new();
    for (own, number) in pairs {
        let Inode { generation, created, .. } = now.inode(*number)?.ok_or(Error::Stale)?;
        counterparts.insert(*own, Counterpart { number: *number, generation, created });
    }
    Ok(Renumbering::apart(counterparts))
}

/// A state that has nothing in common with `now` but some inodes.
fn shown(state: &State, (now, pairs): (&State, &BTreeMap<u64, u64>)) -> Result<State> {
    Ok(state.renumbered(Arc::new(numbers(now, pairs)?)).below(now.root))
}

/// All inodes below the root of a state, and that.
fn all_below(state: &State) -> Result<BTreeSet<u64>> {
    let mut all = BTreeSet::from([state.root]);
    let mut waiting = vec![state.root];
    while let Some(directory) = waiting.pop() {
        state.visit_entries(directory, 0, u64::MAX, &mut |entry| {
            if all.insert(entry.ino) && entry.kind == InodeKind::Directory {
                waiting.push(entry.ino);
            }
            true
        })?;
    }
    Ok(all)
}

/// Which inodes of the base are which of the directory's.
struct Search<'a> {
    base: &'a State,
    fork: &'a State,
    now: &'a State,
}

impl Search<'_> {
    fn pairs(&self) -> Result<BTreeMap<u64, u64>> {
        let mut pairs = BTreeMap::from([(self.base.root, self.now.root)]);
        let mut taken = BTreeSet::from([self.now.root]);
        let mut several = BTreeSet::new();
        let mut waiting = vec![(self.base.root, self.now.root)];
        while let Some((from, to)) = waiting.pop() {
            for was in self.base.entries(from)? {
                let Some(is) = self.now.entry(to, &was.name)? else { continue };
                match pairs.get(&was.ino) {
                    Some(known) if *known == is.ino => (),
                    Some(_) => _ = several.insert(was.ino),
                    None if self.can_be_one(&was, &is)? && taken.insert(is.ino) => {
                        pairs.insert(was.ino, is.ino);
                        if was.kind == InodeKind::Directory {
                            waiting.push((was.ino, is.ino));
                        }
                    }
                    None => (),
                }
            }
        }
        pairs.retain(|ino, _| !several.contains(ino));
        Ok(pairs)
    }

    fn can_be_one(&self, was: &Named, is: &Named) -> Result<bool> {
        if was.kind != is.kind || self.is_replaced(was.ino)? {
            return Ok(false);
        }
        match was.kind {
            InodeKind::Directory | InodeKind::Regular => Ok(true),
            // What a link leads to, and what a device is, never changes.
            _ => same_file((self.base, was.ino), (self.now, is.ino)),
        }
    }

    /// Whether the fork has given the number to something else.
    fn is_replaced(&self, ino: u64) -> Result<bool> {
        let (was, is) = (self.base.inode(ino)?, self.fork.inode(ino)?);
        Ok(was.zip(is).is_some_and(|(was, is)| !same_inode(&was, &is)))
    }
}
