//! Files of several names that a merge would leave without any, where each side removed some.
//!
//! Neither side has removed such a file: each has it still, under a name that the other took away.
//! If neither changed it, it plainly goes. If one did, its change would be lost without a word, so
//! each name that the merge would take is a conflict. A name that is kept keeps the file, with what
//! both sides made of it. Directories have one name, and what moves goes as a whole.

use super::conflict::ConflictKind;
use super::conflicts::{Conflicts, Verdict};
use super::equal::is_changed;
use super::names::{DecidedPlace, Names};
use super::state::Named;
use marram_format::record::InodeKind;
use marram_vfs::Result;
use std::collections::BTreeMap;

impl Names<'_, '_> {
    /// Judges what was decided name by name until now.
    pub(super) fn judge_last_names(&mut self, conflicts: &mut Conflicts<'_>) -> Result<()> {
        for (ino, places) in self.left_without_names()? {
            let by_fork = self.is_changed_by_them(ino)?;
            if !by_fork && !self.is_changed_by_us(ino)? {
                continue;
            }
            for place in places {
                self.judge_last_name(ino, &place, by_fork, conflicts)?;
            }
        }
        Ok(())
    }

    /// The files that both sides have and that would have no name, with the names that they would
    /// lose.
    fn left_without_names(&self) -> Result<BTreeMap<u64, Vec<DecidedPlace>>> {
        let mut lost: BTreeMap<u64, Vec<DecidedPlace>> = BTreeMap::new();
        let mut came: BTreeMap<u64, usize> = BTreeMap::new();
        for (place, edit) in &self.edits {
            let file = |old: &&Named| old.kind != InodeKind::Directory;
            if let Some(old) = edit.old.as_ref().filter(file) {
                lost.entry(old.ino).or_default().push(place.clone());
            }
            if let Some(new) = edit.new.as_ref().filter(|new| !self.sides.is_new(new.ino)) {
                *came.entry(new.ino).or_default() += 1;
            }
        }
        let mut without = BTreeMap::new();
        for (ino, places) in lost {
            let came = came.get(&ino).copied().unwrap_or(0);
            if came < places.len()
                && !self.sides.is_gone(ino)
                && !self.stays_as_it_is(ino)
                && let Some(now) = self.sides.still(ino)?
                && now.links as usize + came <= places.len()
            {
                without.insert(ino, places);
            }
        }
        Ok(without)
    }

    fn is_changed_by_them(&self, ino: u64) -> Result<bool> {
        match self.sides.theirs.by_inode.get(&ino) {
            Some(change) => is_changed((self.sides.base, self.sides.fork), ino, change),
            None => Ok(false),
        }
    }

    /// One of the names. What the fork changed cannot be taken without the file.
    fn judge_last_name(
        &mut self,
        ino: u64,
        place: &DecidedPlace,
        by_fork: bool,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<()> {
        let Some(edit) = self.edits.get(place) else { return Ok(()) };
        let (name, new) = (edit.old.as_ref(), edit.new.as_ref().map(|new| new.ino));
        let name = name.map_or(&place.1, |old| &old.name);
        let path = self.path_in_fork(place.0, name)?;
        let detail = match by_fork {
            true => "removed in the fork, which changed it; the parent removed its other names",
            false => "removed in the fork; the parent changed it and removed its other names",
        };
        if conflicts.add(ConflictKind::Removed, path, detail, !by_fork) == Verdict::Ours {
            self.edits.remove(place);
            [Some(ino), new].into_iter().flatten().for_each(|ino| self.drop_moved(ino));
        }
        Ok(())
    }
}
