//! Moving names.
//!
//! The new name is there before the old one is away, and leads to all that was written to the file
//! before.

use crate::inode::{Inode, Time};
use crate::state::directory::Found;
use crate::state::operations::names::check_links;
use crate::state::rules::Rule;
use crate::state::syncs::MOVED_DIRECTORIES;
use crate::state::{Work, check_changeable};
use marram_patch::{After, Discipline};
use marram_vfs::{Caller, Error, Ino, Kind, Name, RenameMode, Result};

/// From where to where.
#[derive(Clone, Copy)]
pub(crate) struct Move<'n> {
    pub(crate) parent: Ino,
    pub(crate) name: Name<'n>,
    pub(crate) new_parent: Ino,
    pub(crate) new_name: Name<'n>,
}

/// An entry that was found, with what it leads to.
#[derive(Clone)]
struct Led {
    found: Found,
    inode: Inode,
    kind: Kind,
}

impl Led {
    fn number(&self) -> u64 {
        self.found.number
    }

    fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}

impl Work<'_> {
    fn led(&mut self, found: Found) -> Result<Led> {
        let inode = self.inode(found.number)?;
        let kind = self.kind_of(found.number)?;
        check_changeable(&inode)?;
        Ok(Led { found, inode, kind })
    }

    /// Moves a name; returns an inode that has none left.
    pub(crate) fn rename(
        &mut self,
        caller: Caller,
        way: Move<'_>,
        mode: RenameMode,
    ) -> Result<Option<u64>> {
        let (from, from_inode) = self.directory(way.parent)?;
        let source = match from_inode.links() {
            0 => return Err(Error::NotFound),
            _ => self.entry((from, &from_inode), way.name)?,
        };
        let (to, to_inode) = self.living_directory(way.new_parent)?;
        check_changeable(&from_inode)?;
        let target = self.find((to, &to_inode), way.new_name)?;
        match (mode, &target) {
            (mode, Some(_)) if mode.refuses_to_replace() => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => (),
        }
        if target.is_some_and(|target| target.number == source.number) {
            return Ok(None);
        }
        let inside = Error::InvalidArgument("a directory cannot go into itself");
        if self.is_within(to, source.number)? {
            return Err(inside);
        }
        let holds_source = match target {
            Some(target) => self.is_within(from, target.number)?,
            None => false,
        };
        let source = self.led(source)?;
        let target = target.map(|target| self.led(target)).transpose()?;
        match (mode, target) {
            (RenameMode::Exchange, Some(_)) if holds_source => Err(inside),
            (RenameMode::Exchange, Some(target)) => {
                self.exchange((from, to), source, target)?;
                Ok(None)
            }
            (_, Some(_)) if holds_source => Err(Error::NotEmpty),
            (mode, target) => {
                self.check_replaced((from != to, &to_inode), &source, target.as_ref())?;
                let whiteout = mode.leaves_whiteout().then_some(caller);
                self.replace(way, (from, to), (source, target), whiteout)
            }
        }
    }

    /// Refuses what may not be replaced.
    fn check_replaced(
        &mut self,
        (moves, to): (bool, &Inode),
        source: &Led,
        target: Option<&Led>,
    ) -> Result<()> {
        if let Some(target) = target {
            match (source.is_directory(), target.is_directory()) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if !self.is_empty(target.number(), &target.inode)? => {
                    return Err(Error::NotEmpty);
                }
                (true, true) => self.refuse_two_names(&target.inode)?,
                _ => (),
            }
        }
        let gains = source.is_directory() && !target.is_some_and(Led::is_directory);
        if gains && moves { check_links(to) } else { Ok(()) }
    }

    fn replace(
        &mut self,
        way: Move<'_>,
        (from, to): (u64, u64),
        (source, target): (Led, Option<Led>),
        whiteout: Option<Caller>,
    ) -> Result<Option<u64>> {
        let moved = (source.number(), source.kind);
        self.for_inode(moved.0);
        let moves = from != to && source.is_directory();
        let mut after = self.before_move(&source)?;
        if moves {
            after.extend(self.change_links(to, 1, &[])?);
        }
        let mut to_inode = self.inode(to)?;
        let named = match &target {
            Some(target) => {
                after.extend(self.before_loss((target.number(), &target.inode))?);
                self.replace_entry(&target.found, moved, &after)?
            }
            None => self.add_entry((to, &mut to_inode), way.new_name, moved, &after)?,
        };
        to_inode.touch_content(self.now);
        self.store(to, &to_inode, &[])?;
        let mut settled = named.clone();
        settled.extend(self.recent_of(to));
        if moves {
            let inode = self.inode(moved.0)?;
            settled.extend(self.set_parent(moved.0, &inode, to, &named)?);
        }
        let settled = self.by(Rule::OldAfterNew, settled);
        let gone = self.leave((from, way.name), &source.found, whiteout, settled)?;
        self.change_links(source.number(), -1, &gone)?;
        let moves_name = [&named[..], &gone, &self.recent_of(to)].concat();
        let of_all = source.is_directory().then_some(MOVED_DIRECTORIES);
        let noted = [moved.0, from, to].into_iter().chain(of_all);
        noted.for_each(|it| self.note_leads(it, &moves_name));
        if moves {
            self.change_links(from, -1, &gone)?;
        }
        match target {
            None => Ok(None),
            Some(target) => {
                let inode = self.inode(target.number())?;
                let named = self.by(Rule::ReplacedAfterEntry, named);
                if !target.is_directory() {
                    return self.lose_name(target.number(), inode, &named);
                }
                let cleared = self.lose_directory(target.number(), inode, &named)?;
                self.change_links(to, -1, &cleared)?;
                Ok(Some(target.number()))
            }
        }
    }

    /// Takes the old name away, or lets it lead to a whiteout.
    fn leave(
        &mut self,
        (from, name): (u64, Name<'_>),
        found: &Found,
        whiteout: Option<Caller>,
        after: Vec<After>,
    ) -> Result<Vec<After>> {
        let mut after = after;
        let mut inode = self.inode(from)?;
        let gone = match whiteout {
            None => self.remove_entry((from, name), found, &after)?,
            Some(caller) => {
                let (made, steps) = self.new_whiteout(caller, (from, &inode))?;
                self.for_inode(found.number);
                after.extend(steps);
                self.replace_entry(found, (made, Kind::CharDevice), &after)?
            }
        };
        inode.touch_content(self.now);
        self.store(from, &inode, &[])?;
        Ok(gone)
    }

    /// What a new name of an inode waits for: that it counts one more, and what was written to it.
    /// A directory counts one more as well: so it is not removed before its old name is away.
    fn before_move(&mut self, source: &Led) -> Result<Vec<After>> {
        let mut after = self.by(Rule::MoveAfterContent, self.recent_of(source.number()));
        let mut inode = source.inode.clone();
        // Only an image that makes no sense has so many.
        if inode.links() == u32::from(u16::MAX) {
            return Err(Error::TooManyLinks);
        }
        inode.change_links(1);
        inode.set_time(Time::Changed, self.now);
        let counted = self.store(source.number(), &inode, &[])?;
        after.extend(self.by(Rule::MoveAfterCount, counted));
        Ok(after)
    }

    fn change_links(&mut self, number: u64, by: i32, after: &[After]) -> Result<Vec<After>> {
        let mut inode = self.inode(number)?;
        inode.change_links(by);
        self.store(number, &inode, after)
    }

    /// Lets two names change places. Without a journal there is a moment at which one of them
    /// would be on the medium nowhere, so it is refused.
    fn exchange(&mut self, (from, to): (u64, u64), source: Led, target: Led) -> Result<()> {
        if self.state.discipline == Discipline::SoftUpdates {
            return Err(Error::NotSupported);
        }
        if from != to {
            match (source.is_directory(), target.is_directory()) {
                (true, false) => check_links(&self.inode(to)?)?,
                (false, true) => check_links(&self.inode(from)?)?,
                _ => (),
            }
        }
        self.replace_entry(&source.found, (target.number(), target.kind), &[])?;
        self.replace_entry(&target.found, (source.number(), source.kind), &[])?;
        let gains = i32::from(target.is_directory()) - i32::from(source.is_directory());
        if from != to {
            self.change_links(from, gains, &[])?;
            self.change_links(to, -gains, &[])?;
        }
        for (moved, into) in [(&source, to), (&target, from)] {
            let mut inode = self.inode(moved.number())?;
            if moved.is_directory() && from != to {
                self.set_parent(moved.number(), &inode, into, &[])?;
            }
            inode.set_time(Time::Changed, self.now);
            self.store(moved.number(), &inode, &[])?;
        }
        for directory in [from, to] {
            let mut inode = self.inode(directory)?;
            inode.touch_content(self.now);
            self.store(directory, &inode, &[])?;
        }
        Ok(())
    }
}
