//! What lies beside the directory that a fork is of.
//!
//! A fork has all of its dataset, and shows one directory. An update keeps the rest what it is in
//! the parent, so that a later one can bring in what the parent moves into the directory. No way
//! leads to it, before or after, so it takes no rights to change it.

use super::plan::{Change, Plan, is_directory};
use super::walk::Walk;
use marram_format::record::Inode;
use marram_records::inode::read_inode;
use marram_store::View;
use marram_vfs::{Error, Result};
use std::collections::HashMap;

/// Deepest nesting of directories that is followed upwards: a longer way up is damage.
const ANCESTORS_MAX: usize = 1 << 20;

/// See the module; of one plan.
pub(super) struct Hidden<'a> {
    view: &'a dyn View,
    plan: &'a Plan,
    /// Whether a way leads to a directory when the plan has been carried out.
    ways: HashMap<u64, bool>,
}

impl<'a> Hidden<'a> {
    /// What is beside the directory `root` of a view, when a plan is carried out there.
    pub(super) fn new(view: &'a dyn View, root: u64, plan: &'a Plan) -> Hidden<'a> {
        Hidden { view, plan, ways: HashMap::from([(root, true)]) }
    }

    /// Whether no way leads to a directory, neither now nor afterwards.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub(super) fn has_directory(&mut self, walk: &mut Walk<'_>, ino: u64) -> Result<bool> {
        Ok(walk.directory(ino)?.path.is_none() && !self.will_be_reached(ino)?)
    }

    /// Whether no way leads to what a change is of. A file with several names counts as one that a
    /// way leads to: its record tells one of them.
    ///
    /// # Errors
    /// A failed read, or a record that makes no sense.
    pub(super) fn has(&mut self, walk: &mut Walk<'_>, ino: u64, change: &Change) -> Result<bool> {
        for inode in [&change.before, &change.after].into_iter().flatten() {
            let is_hidden = match is_directory(inode) {
                true => self.has_directory(walk, ino)?,
                false => inode.links <= 1 && self.has_directory(walk, inode.parent)?,
            };
            if !is_hidden {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn will_be_reached(&mut self, directory: u64) -> Result<bool> {
        let mut way = Vec::new();
        let mut at = directory;
        let is_reached = loop {
            if let Some(known) = self.ways.get(&at) {
                break *known;
            }
            way.push(at);
            match self.record(at)?.filter(|inode| is_directory(inode) && inode.links > 0) {
                Some(inode) if inode.parent != at => at = inode.parent,
                _ => break false,
            }
            if way.len() > ANCESTORS_MAX {
                return Err(Error::Damaged(format!("directory {directory} is below itself")));
            }
        };
        self.ways.extend(way.into_iter().map(|ino| (ino, is_reached)));
        Ok(is_reached)
    }

    /// The record that an inode will have.
    fn record(&self, ino: u64) -> Result<Option<Inode>> {
        match self.plan.0.get(&ino) {
            Some(change) => Ok(change.after.clone()),
            None => read_inode(self.view, ino),
        }
    }
}
