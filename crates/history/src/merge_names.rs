//! Names in a merge: which of the fork's changes of names go into the parent.
//!
//! Each name that the fork has changed is judged on its own, from what it led to in the base, in
//! the fork and in the parent. What comes is judged before what goes, from the directories of the
//! base down into those that the fork made, so that it is known which of these become one with a
//! directory of the parent. Then the rules that are about more than one name: a file that was
//! changed does not lose its last one (`last_names`), what was moved goes as a whole or not at all,
//! a directory goes only if nothing is left in it, and no directory comes to be in itself.

mod last_names;

use self::last_names::Stage;
use crate::changes::Place;
use crate::conflict::ConflictKind;
use crate::conflicts::{Conflicts, Verdict};
use crate::equal::{is_changed, same_file};
use crate::three_way::{Slot, ThreeWay};
use marram_format::record::InodeKind;
use marram_records::state::Named;
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where a directory of the fork is in the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Home {
    /// It is this directory of the parent.
    In(u64),
    /// It is made by the merge: the fork's number.
    New(u64),
    /// It is gone from the parent.
    Gone,
}

/// A directory, and the key of a name in it.
pub(crate) type DecidedPlace = (Home, Vec<u8>);

/// Names by directory and key: what is there now, and what comes there.
pub(crate) type DecidedNames = BTreeMap<DecidedPlace, (Option<Named>, Option<Named>)>;

/// A change of one name of the parent.
#[derive(Clone, Debug)]
pub(crate) struct NameEdit {
    /// What the parent has there now.
    pub(crate) old: Option<Named>,
    /// What the fork has there, by the fork's number.
    pub(crate) new: Option<Named>,
    /// What the base had there, which the fork took away.
    lost: Option<u64>,
}

/// A file of the fork that is to be brought into a file of the parent.
#[derive(Clone, Debug)]
pub(crate) struct FilePair {
    /// In the base; none of what is new on both sides.
    pub(crate) base: Option<u64>,
    /// In the fork.
    pub(crate) fork: u64,
    /// In the parent.
    pub(crate) now: u64,
    /// Its path, for conflicts.
    pub(crate) path: Vec<u8>,
}

/// What has been found out about names.
pub(crate) struct MergeNames<'a, 's> {
    pub(crate) sides: &'a ThreeWay<'s>,
    /// By directory and key of the name.
    pub(crate) edits: BTreeMap<DecidedPlace, NameEdit>,
    /// Inodes that the fork made and that are one with an inode of the parent.
    pub(crate) aliases: BTreeMap<u64, u64>,
    /// Files that have to be merged beyond those that both sides know by one number.
    pub(crate) pairs: Vec<FilePair>,
    /// Moved inodes that stay where they are.
    dropped: BTreeSet<u64>,
    /// Directories that the fork made, to go into.
    waiting: VecDeque<u64>,
}

impl<'a, 's> MergeNames<'a, 's> {
    /// Judges all names.
    pub(crate) fn judge(
        sides: &'a ThreeWay<'s>,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<MergeNames<'a, 's>> {
        let mut names = MergeNames {
            sides,
            edits: BTreeMap::new(),
            aliases: BTreeMap::new(),
            pairs: Vec::new(),
            dropped: BTreeSet::new(),
            waiting: VecDeque::new(),
        };
        let mut slots = Vec::new();
        for (directory, change) in &sides.theirs.by_inode {
            let was_there = change.before.as_ref().is_some_and(|inode| inode.links > 0);
            if was_there {
                slots.extend(sides.slots(*directory, change));
            }
        }
        for slot in &slots {
            names.judge_arrival(slot, conflicts)?;
        }
        while let Some(directory) = names.waiting.pop_front() {
            let Some(change) = sides.theirs.by_inode.get(&directory) else { continue };
            for slot in sides.slots(directory, change) {
                names.judge_arrival(&slot, conflicts)?;
            }
        }
        for slot in &slots {
            names.judge_departure(slot, conflicts)?;
        }
        names.judge_last_names(Stage::Proposed, conflicts)?;
        names.settle(conflicts)?;
        while names.judge_last_names(Stage::Settled, conflicts)? {
            names.settle(conflicts)?;
        }
        Ok(names)
    }

    /// Names that were decided: what is there now, and what comes there.
    pub(crate) fn decided(sides: &'a ThreeWay<'s>, edits: DecidedNames) -> MergeNames<'a, 's> {
        let edit = |(old, new)| NameEdit { old, new, lost: None };
        MergeNames {
            sides,
            edits: edits.into_iter().map(|(place, names)| (place, edit(names))).collect(),
            aliases: BTreeMap::new(),
            pairs: Vec::new(),
            dropped: BTreeSet::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Where a directory of the fork is in the parent.
    pub(crate) fn home(&self, directory: u64) -> Result<Home> {
        if let Some(alias) = self.aliases.get(&directory) {
            return Ok(Home::In(*alias));
        }
        if self.sides.is_new(directory) {
            return Ok(Home::New(directory));
        }
        let still = self.sides.still(directory)?;
        Ok(still.map_or(Home::Gone, |_| Home::In(directory)))
    }

    /// The fork's number of a directory of the parent.
    pub(crate) fn fork_of(&self, directory: u64) -> u64 {
        let alias = self.aliases.iter().find(|(_, now)| **now == directory);
        alias.map_or(directory, |(fork, _)| *fork)
    }

    /// The path of a name in a directory of the parent or one that is made, as the fork has it.
    pub(crate) fn path_in_fork(&self, home: Home, name: &[u8]) -> Result<Vec<u8>> {
        let directory = match home {
            Home::In(directory) => self.fork_of(directory),
            Home::New(directory) => directory,
            Home::Gone => return Ok(name.to_vec()),
        };
        self.sides.path_of_name(directory, name)
    }

    /// What the parent has under a name.
    fn found(&self, home: Home, name: &[u8]) -> Result<Option<Named>> {
        match home {
            Home::In(directory) => self.sides.now.entry(directory, name),
            Home::New(_) | Home::Gone => Ok(None),
        }
    }

    /// Whether what the parent has is an inode that base and fork know by this number.
    fn is_same(&self, found: &Named, ino: u64) -> Result<bool> {
        Ok(found.ino == ino && !self.sides.is_new(ino) && self.sides.still(ino)?.is_some())
    }

    fn edit(&mut self, home: Home, name: &[u8], edit: NameEdit) {
        self.edits.insert((home, self.sides.key(name)), edit);
    }

    fn judge_arrival(&mut self, slot: &Slot, conflicts: &mut Conflicts<'_>) -> Result<()> {
        let Some(after) = &slot.after else {
            return Ok(());
        };
        let home = self.home(slot.directory)?;
        let found = self.found(home, &after.name)?;
        let lost = slot.before.as_ref().filter(|before| before.ino != after.ino);
        let took = match self.judge_place(slot, after, home, found.as_ref(), conflicts)? {
            Arrival::Already => return Ok(()),
            Arrival::Refused => {
                self.drop_moved(after.ino);
                lost.into_iter().for_each(|lost| self.drop_moved(lost.ino));
                return Ok(());
            }
            Arrival::Takes => found,
        };
        if after.kind == InodeKind::Directory && self.sides.is_new(after.ino) {
            self.waiting.push_back(after.ino);
        }
        let lost = lost.map(|lost| lost.ino);
        self.edit(home, &after.name, NameEdit { old: took, new: Some(after.clone()), lost });
        Ok(())
    }

    fn judge_place(
        &mut self,
        slot: &Slot,
        after: &Named,
        home: Home,
        found: Option<&Named>,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<Arrival> {
        let is_new = self.sides.is_new(after.ino);
        let path = || self.sides.path_of_name(slot.directory, &after.name);
        if home == Home::Gone {
            let detail = "the directory is gone from the parent";
            conflicts.add(ConflictKind::Removed, path()?, detail, false);
            return Ok(Arrival::Refused);
        }
        if !is_new && self.sides.still(after.ino)?.is_none() {
            let detail = "moved or linked in the fork, gone from the parent";
            conflicts.add(ConflictKind::Removed, path()?, detail, false);
            return Ok(Arrival::Refused);
        }
        let before = slot.before.as_ref();
        if let Some(before) = before.filter(|before| before.ino == after.ino) {
            return self.judge_spelling(before, after, found, path()?, conflicts);
        }
        let Some(found) = found else {
            return self.judge_free(before, after, path()?, conflicts);
        };
        if self.is_same(found, after.ino)? {
            return Ok(Arrival::Already);
        }
        match before {
            Some(before) if self.is_same(found, before.ino)? => {
                self.judge_replaced(before, after, found, path()?, conflicts)
            }
            _ => self.judge_taken(before, after, found, path()?, conflicts),
        }
    }

    /// The fork only spelt a name anew.
    fn judge_spelling(
        &self,
        before: &Named,
        after: &Named,
        found: Option<&Named>,
        path: Vec<u8>,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<Arrival> {
        match found {
            Some(found) if self.is_same(found, after.ino)? => {
                if found.name == after.name {
                    return Ok(Arrival::Already);
                }
                if found.name == before.name {
                    return Ok(Arrival::Takes);
                }
                let detail = "spelt differently by both";
                let verdict = conflicts.add(ConflictKind::Name, path, detail, true);
                Ok(Arrival::of(verdict))
            }
            _ => {
                let detail = "spelt anew in the fork, moved or removed in the parent";
                conflicts.add(ConflictKind::Name, path, detail, false);
                Ok(Arrival::Refused)
            }
        }
    }

    /// The parent has nothing there.
    fn judge_free(
        &self,
        before: Option<&Named>,
        after: &Named,
        path: Vec<u8>,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<Arrival> {
        let regular = |entry: &Named| entry.kind == InodeKind::Regular;
        let replaced = before
            .filter(|before| regular(before) && regular(after) && self.sides.is_gone(before.ino));
        if replaced.is_none() {
            return Ok(Arrival::Takes);
        }
        let detail = "replaced in the fork, removed or moved in the parent";
        Ok(Arrival::of(conflicts.add(ConflictKind::Removed, path, detail, true)))
    }

    /// The parent has still there what the fork replaced.
    fn judge_replaced(
        &mut self,
        before: &Named,
        after: &Named,
        found: &Named,
        path: Vec<u8>,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<Arrival> {
        if !self.sides.is_gone(before.ino) || !self.is_changed_by_us(before.ino)? {
            return Ok(Arrival::Takes);
        }
        let regular = before.kind == InodeKind::Regular && after.kind == InodeKind::Regular;
        if regular && self.sides.is_new(after.ino) {
            self.pair(Some(before.ino), after.ino, found.ino, path);
            return Ok(Arrival::Already);
        }
        let detail = "replaced in the fork, changed in the parent";
        Ok(Arrival::of(conflicts.add(ConflictKind::Removed, path, detail, true)))
    }

    /// The parent has something else there.
    fn judge_taken(
        &mut self,
        before: Option<&Named>,
        after: &Named,
        found: &Named,
        path: Vec<u8>,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<Arrival> {
        let directory = |entry: &Named| entry.kind == InodeKind::Directory;
        if self.sides.is_new(after.ino) {
            if directory(after) && directory(found) {
                self.pair(None, after.ino, found.ino, path);
                self.waiting.push_back(after.ino);
                return Ok(Arrival::Already);
            }
            let files = !directory(after) && !directory(found);
            if files && same_file((self.sides.fork, after.ino), (self.sides.now, found.ino))? {
                self.aliases.insert(after.ino, found.ino);
                return Ok(Arrival::Already);
            }
            let regular = |entry: &Named| entry.kind == InodeKind::Regular;
            let is_new_here = self.sides.base.named_inode(found.ino)?.is_none();
            if let Some(before) = before
                && [before, after, found].into_iter().all(regular)
                && is_new_here
                && self.sides.is_gone(before.ino)
            {
                self.pair(Some(before.ino), after.ino, found.ino, path);
                return Ok(Arrival::Already);
            }
        }
        let detail = "the parent gave the name to something else";
        let takes = !directory(found);
        Ok(Arrival::of(conflicts.add(ConflictKind::Name, path, detail, takes)))
    }

    fn pair(&mut self, base: Option<u64>, fork: u64, now: u64, path: Vec<u8>) {
        self.aliases.insert(fork, now);
        self.pairs.push(FilePair { base, fork, now, path });
    }

    /// Whether the parent changed an inode of the base in anything but names and times.
    pub(crate) fn is_changed_by_us(&self, ino: u64) -> Result<bool> {
        let sides = self.sides;
        match sides.ours.by_inode.get(&ino) {
            Some(change) => is_changed((sides.base, sides.now), ino, change),
            None => Ok(false),
        }
    }

    fn judge_departure(&mut self, slot: &Slot, conflicts: &mut Conflicts<'_>) -> Result<()> {
        let Some(before) = &slot.before else {
            return Ok(());
        };
        if slot.after.as_ref().is_some_and(|after| after.ino == before.ino) {
            return Ok(());
        }
        let home = self.home(slot.directory)?;
        let found = self.found(home, &before.name)?;
        match found {
            Some(found) if self.is_same(&found, before.ino)? => {
                if slot.after.is_none() {
                    self.judge_removal(slot, before, home, found, conflicts)?;
                }
                Ok(())
            }
            found => self.judge_lost_by_both(slot, before, home, found, conflicts),
        }
    }

    /// The fork removed a name that the parent still has.
    fn judge_removal(
        &mut self,
        slot: &Slot,
        before: &Named,
        home: Home,
        found: Named,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<()> {
        if self.sides.is_gone(before.ino) && self.is_changed_by_us(before.ino)? {
            let path = self.sides.path_of_name(slot.directory, &before.name)?;
            let detail = "removed in the fork, changed in the parent";
            if conflicts.add(ConflictKind::Removed, path, detail, true) == Verdict::Ours {
                return Ok(());
            }
        }
        let edit = NameEdit { old: Some(found), new: None, lost: Some(before.ino) };
        self.edit(home, &before.name, edit);
        Ok(())
    }

    /// The parent does not have there any more what the fork took away too.
    fn judge_lost_by_both(
        &mut self,
        slot: &Slot,
        before: &Named,
        home: Home,
        found: Option<Named>,
        conflicts: &mut Conflicts<'_>,
    ) -> Result<()> {
        let sides = self.sides;
        let path = || sides.path_of_name(slot.directory, &before.name);
        let still = sides.still(before.ino)?.is_some();
        let (came, _) = sides.their_moves(before.ino);
        let (our_came, _) = sides.our_moves(before.ino);
        if let Some(found) = found.filter(|_| slot.after.is_none() && came.is_empty()) {
            let detail = "removed in the fork, leads elsewhere in the parent";
            let takes = found.kind != InodeKind::Directory;
            let verdict = conflicts.add(ConflictKind::Removed, path()?, detail, takes);
            if verdict == Verdict::Theirs {
                let edit = NameEdit { old: Some(found), new: None, lost: None };
                self.edit(home, &before.name, edit);
            }
            return Ok(());
        }
        if !still || self.are_same_places(&came, &our_came)? {
            return Ok(());
        }
        let detail = "moved by both, or moved by one and removed by the other";
        if conflicts.add(ConflictKind::Name, path()?, detail, true) == Verdict::Ours {
            self.drop_moved(before.ino);
            return Ok(());
        }
        for Place { directory, entry } in sides.our_new_places(before.ino) {
            let key = (Home::In(directory), sides.key(&entry.name));
            let removal = NameEdit { old: Some(entry), new: None, lost: None };
            self.edits.entry(key).or_insert(removal);
        }
        Ok(())
    }

    /// Whether the fork's places, as the parent has their directories, are the parent's.
    fn are_same_places(
        &self,
        theirs: &BTreeSet<(u64, Vec<u8>)>,
        ours: &BTreeSet<(u64, Vec<u8>)>,
    ) -> Result<bool> {
        if theirs.len() != ours.len() {
            return Ok(false);
        }
        for (directory, key) in theirs {
            let same = match self.home(*directory)? {
                Home::In(directory) => ours.contains(&(directory, key.clone())),
                Home::New(_) | Home::Gone => false,
            };
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an inode keeps all of its names, for a conflict about one of them.
    pub(crate) fn stays_as_it_is(&self, ino: u64) -> bool {
        self.dropped.contains(&ino)
    }

    /// An inode that the fork moved stays where it is.
    pub(crate) fn drop_moved(&mut self, ino: u64) {
        self.dropped.insert(ino);
    }

    /// Applies the rules that are about more than one name, until all hold. Loops are conflicts
    /// only if what moves makes them: one that is there because something else stays where it is
    /// follows from the conflict about that.
    fn settle(&mut self, conflicts: &mut Conflicts<'_>) -> Result<()> {
        self.drop_loops(Some(conflicts))?;
        loop {
            self.drop_halves();
            let full = self.drop_full_directories(conflicts)?;
            let loops = self.drop_loops(None)?;
            if !full && !loops {
                return Ok(());
            }
        }
    }

    /// What was moved goes as a whole or not at all, and nothing goes into a directory that is not
    /// made.
    fn drop_halves(&mut self) {
        loop {
            let made: BTreeSet<u64> =
                self.edits.values().filter_map(|edit| Some(edit.new.as_ref()?.ino)).collect();
            let mut dropped = std::mem::take(&mut self.dropped);
            let sides = self.sides;
            let moved = |ino: u64| !sides.is_new(ino);
            let before = self.edits.len();
            self.edits.retain(|(home, _), edit| {
                let (new, lost) = (edit.new.as_ref().map(|new| new.ino), edit.lost);
                let homeless = matches!(home, Home::New(directory) if !made.contains(directory));
                let mut inodes = [new, lost].into_iter().flatten();
                let refused = inodes.any(|ino| moved(ino) && dropped.contains(&ino));
                if homeless || refused {
                    let inodes = [new, lost].into_iter().flatten();
                    dropped.extend(inodes.filter(|ino| moved(*ino)));
                }
                !homeless && !refused
            });
            self.dropped = dropped;
            if self.edits.len() == before {
                return;
            }
        }
    }

    /// A directory goes only if nothing is left in it. True if one stays.
    fn drop_full_directories(&mut self, conflicts: &mut Conflicts<'_>) -> Result<bool> {
        let mut left: BTreeMap<u64, i64> = BTreeMap::new();
        for ((home, _), edit) in &self.edits {
            if let Home::In(directory) = home {
                let by = i64::from(edit.new.is_some()) - i64::from(edit.old.is_some());
                *left.entry(*directory).or_default() += by;
            }
        }
        let mut stays = Vec::new();
        for (place, edit) in &self.edits {
            let old = edit.old.as_ref().filter(|old| old.kind == InodeKind::Directory);
            let Some(directory) = old.map(|old| old.ino).filter(|ino| self.goes(*ino)) else {
                continue;
            };
            let now = self.sides.now.inode(directory)?.map_or(0, |inode| inode.size);
            let change = left.get(&directory).copied().unwrap_or(0);
            if now.cast_signed() + change > 0 {
                self.report_left(directory, conflicts)?;
                stays.push(place.clone());
            }
        }
        for place in &stays {
            if let Some(edit) = self.edits.remove(place) {
                let inodes = [edit.new.map(|new| new.ino), edit.lost].into_iter().flatten();
                self.dropped.extend(inodes);
            }
        }
        Ok(!stays.is_empty())
    }

    /// Whether the merge takes a directory of the parent away for good.
    fn goes(&self, ino: u64) -> bool {
        self.sides.is_gone(ino)
    }

    /// Names that the parent made in a directory that the fork removed.
    fn report_left(&self, directory: u64, conflicts: &mut Conflicts<'_>) -> Result<()> {
        let Some(change) = self.sides.ours.by_inode.get(&directory) else {
            return Ok(());
        };
        for entry in change.entries.iter().filter_map(|pair| pair.after.as_ref()) {
            let path = self.sides.path_of_name(directory, &entry.name)?;
            let detail = "new in the parent, in a directory that the fork removed";
            conflicts.add(ConflictKind::Removed, path, detail, false);
        }
        Ok(())
    }

    /// No directory comes to be in itself. True if one stays where it is because of that.
    fn drop_loops(&mut self, mut conflicts: Option<&mut Conflicts<'_>>) -> Result<bool> {
        let mut parents: BTreeMap<Home, Home> = BTreeMap::new();
        for ((home, _), edit) in &self.edits {
            if let Some(new) = edit.new.as_ref().filter(|new| new.kind == InodeKind::Directory) {
                parents.insert(self.home(new.ino)?, *home);
            }
        }
        let mut found = false;
        for moved in parents.keys() {
            let Home::In(directory) = *moved else { continue };
            if self.is_in_itself(*moved, &parents)? {
                if let Some(conflicts) = conflicts.as_deref_mut() {
                    let path = self.sides.path_of(directory)?;
                    let detail = "would be in itself, with what the parent moved";
                    conflicts.add(ConflictKind::Loop, path, detail, false);
                }
                found |= self.dropped.insert(directory);
            }
        }
        Ok(found)
    }

    fn is_in_itself(&self, start: Home, parents: &BTreeMap<Home, Home>) -> Result<bool> {
        let mut seen = BTreeSet::new();
        let mut at = start;
        while seen.insert(at) {
            at = match (parents.get(&at), at) {
                (Some(above), _) => *above,
                (None, Home::In(directory)) => match self.sides.now.inode(directory)? {
                    Some(inode) if inode.parent != directory => Home::In(inode.parent),
                    _ => return Ok(false),
                },
                (None, Home::New(_) | Home::Gone) => return Ok(false),
            };
        }
        Ok(at == start)
    }
}

/// What becomes of a name that comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// The parent has it already, or what it leads to is brought into what the parent has.
    Already,
    /// It is not taken.
    Refused,
    /// It is taken, in place of what is there.
    Takes,
}

impl Arrival {
    fn of(verdict: Verdict) -> Arrival {
        match verdict {
            Verdict::Ours | Verdict::Marked | Verdict::Given => Arrival::Refused,
            Verdict::Theirs => Arrival::Takes,
        }
    }
}
