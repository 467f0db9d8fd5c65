//! A merge, update or way back does for a user only what the user could have done by system calls.
//!
//! [`Bound`] stands before the file system that is changed and lets a change through only if each
//! file of it could have been changed so by its user. It reads the batch itself, and the state that
//! the batch is applied to, while that is held still: whatever planned it, nothing is changed that
//! was not judged, and no rename comes in between. One change that is refused refuses all.
//!
//! `rights` has what mode bits and lists grant, `walk` the ways to directories, `plan` the batch as
//! changes of files, `hidden` which of them nobody sees, `rules` what each of the others needs, and
//! `sight` what a user may know. See `docs/decisions/0051-what-a-user-may-merge.md`.

mod hidden;
mod plan;
mod rights;
mod rules;
mod sight;
mod walk;

use crate::parent::{HeldParent, Parent, ParentChange};
use marram_format::record::{Inode, Time};
use marram_records::inode::read_inode;
use marram_store::{Batch, View};
use marram_vfs::{Error, Identity, Ino, Result};
pub use rights::{Modes, READ, SEARCH, WRITE, grants};
use rules::Judge;
pub use sight::{Seen, Sight};
use std::cell::RefCell;
use walk::Walk;

/// Most changes that are named where they are refused.
const REFUSALS_TOLD_MAX: usize = 10;

/// A change that a user may not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where, from the root of what is changed; empty if no way leads there.
    pub path: Vec<u8>,
    /// What the user lacks.
    pub lacks: String,
}

/// The changes that were refused: the first of them, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// The first.
    pub first: Vec<Refusal>,
    /// All together.
    pub count: usize,
}

impl Refusals {
    fn add(&mut self, path: Vec<u8>, lacks: impl Into<String>) {
        self.count += 1;
        let refusal = Refusal { path, lacks: lacks.into() };
        if self.first.len() < REFUSALS_TOLD_MAX && !self.first.contains(&refusal) {
            self.first.push(refusal);
        }
    }
}

/// A file system that takes only what a user could have done to it.
pub struct Bound<'a> {
    parent: &'a dyn Parent,
    user: &'a dyn Identity,
    refusals: RefCell<Refusals>,
}

impl<'a> Bound<'a> {
    /// Binds changes of `parent` to the rights of `user`.
    pub fn new(parent: &'a dyn Parent, user: &'a dyn Identity) -> Bound<'a> {
        Bound { parent, user, refusals: RefCell::default() }
    }

    /// What the last change was refused for, which failed with [`Error::NotPermitted`].
    pub fn refusals(&self) -> Refusals {
        self.refusals.borrow().clone()
    }

    /// Binds what changes the parent while that is held still in another way.
    pub fn bind<'h>(&'h self, held: Box<dyn HeldParent + 'h>) -> Box<dyn HeldParent + 'h> {
        Box::new(HeldBound { held, bound: self })
    }

    fn check(&self, change: &ParentChange<'_>, now: Time) -> Result<()> {
        let mut refusals = Refusals::default();
        let (view, root) = (self.parent.view(), self.parent.root().0);
        Judge::new(view, root, self.user, now, &mut refusals)?.judge(&change.batch)?;
        let is_refused = refusals.count > 0;
        self.refusals.replace(refusals);
        if is_refused { Err(Error::NotPermitted) } else { Ok(()) }
    }
}

impl Parent for Bound<'_> {
    fn view(&self) -> &dyn View {
        self.parent.view()
    }

    fn root(&self) -> Ino {
        self.parent.root()
    }

    fn check_running(&self) -> Result<()> {
        self.parent.check_running()
    }

    fn hold_still(&self) -> Result<Box<dyn HeldParent + '_>> {
        Ok(self.bind(self.parent.hold_still()?))
    }

    fn with_space(&self, attempt: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        self.parent.with_space(attempt)
    }

    fn free_removed(&self) -> Result<()> {
        self.parent.free_removed()
    }

    fn give_back(&self, ino: u64) {
        self.parent.give_back(ino);
    }
}

/// The same while it is held still.
struct HeldBound<'a> {
    held: Box<dyn HeldParent + 'a>,
    bound: &'a Bound<'a>,
}

impl HeldParent for HeldBound<'_> {
    fn now(&self) -> Time {
        self.held.now()
    }

    fn first_number(&self) -> u64 {
        self.held.first_number()
    }

    fn is_in_use(&self, ino: u64) -> bool {
        self.held.is_in_use(ino)
    }

    fn complete(&self, ino: u64, inode: &mut Inode) {
        self.held.complete(ino, inode);
    }

    fn dry_run(&self, change: ParentChange<'_>) -> Result<()> {
        self.bound.check(&change, self.held.now())?;
        self.held.dry_run(change)
    }

    fn complete_batch(&mut self, change: &mut ParentChange<'_>) -> Result<Batch<'static>> {
        self.bound.check(change, self.held.now())?;
        self.held.complete_batch(change)
    }

    fn applied(&mut self, change: &ParentChange<'_>) {
        self.held.applied(change);
    }
}

/// Whether a user may change names in a directory, and comes to it from the directory `root`.
///
/// # Errors
/// A failed read; [`Error::NotSupported`] where NFSv4 lists decide.
pub fn may_change_names(
    view: &dyn View,
    root: Ino,
    directory: Ino,
    user: &dyn Identity,
) -> Result<bool> {
    let mut walk = Walk::new(view, root.0, user)?;
    let Some(inode) = read_inode(view, directory.0)? else { return Ok(false) };
    let is_open = walk.directory(directory.0)?.is_open;
    Ok(is_open && walk.grants(directory.0, &inode, WRITE | SEARCH)?)
}
