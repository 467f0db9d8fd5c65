//! Files of several names that a merge would leave without any, where each side removed some.
//!
//! Neither side has removed such a file: each has it still, under a name that the other took away.
//! If neither changed it, it plainly goes. If one did, its change would be lost without a word, so
//! each name that the merge would take is a conflict. A name that is kept keeps the file, with what
//! both sides made of it. Directories have one name, and what moves goes as a whole.
//!
//! Where the fork's side of a conflict is chosen, it can take a name that the parent gave to a
//! file; one that was moved so, and that neither side removed, does not go either.

use crate::conflict::ConflictKind;
use crate::conflicts::{Conflicts, Verdict};
use crate::equal::is_changed;
use crate::merge_names::{DecidedPlace, MergeNames};
use marram_format::record::InodeKind;
use marram_records::state::Named;
use marram_vfs::Result;
use std::collections::BTreeMap;

/// What the names are that are judged.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Those of files that stay as they are have still to be dropped.
    Proposed,
    /// Those that are changed, unless a rule is about them.
    Settled,
}

impl MergeNames<'_, '_> {
    /// Judges what was decided name by name until now. True if a name is kept.
    pub(crate) fn judge_last_names(
        &mut self,
        stage: Stage,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<bool> {
        let before = self.edits.len();
        for (ino, places) in self.left_without_names(stage)? {
            // What only the parent changed, where it is, may go if the fork's side is chosen.
            let is_ours = !self.is_changed_by_them(ino)? && !self.is_moved(ino);
            if is_ours && !self.is_changed_by_us(ino)? {
                continue;
            }
            for place in places {
                self.judge_last_name(ino, &place, is_ours, conflicts)?;
            }
        }
        Ok(self.edits.len() < before)
    }

    /// Whether a side gave the file another name.
    fn is_moved(&self, ino: u64) -> bool {
        let ((theirs, _), (ours, _)) = (self.sides.their_moves(ino), self.sides.our_moves(ino));
        !theirs.is_empty() || !ours.is_empty()
    }

    /// The files that both sides have and that would have no name, with the names that they would
    /// lose.
    fn left_without_names(&self, stage: Stage) -> Result<BTreeMap<u64, Vec<DecidedPlace>>> {
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
                && (stage == Stage::Settled || !self.stays_as_it_is(ino))
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
        is_ours: bool,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<()> {
        let Some(edit) = self.edits.get(place) else { return Ok(()) };
        let (name, new) = (edit.old.as_ref(), edit.new.as_ref().map(|new| new.ino));
        let name = name.map_or(&place.1, |old| &old.name);
        let path = self.path_in_fork(place.0, name)?;
        let detail = match is_ours {
            false => "its last name, removed in the fork, which has the file or changed it",
            true => "removed in the fork; the parent changed it and removed its other names",
        };
        if conflicts.add(ConflictKind::Removed, path, detail, is_ours) == Verdict::Ours {
            self.edits.remove(place);
            [Some(ino), new].into_iter().flatten().for_each(|ino| self.drop_moved(ino));
        }
        Ok(())
    }
}
