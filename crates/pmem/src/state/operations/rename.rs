//! Renames. All words that one changes go through the redo record together.

use crate::layout::field;
use crate::state::commit::Plan;
use crate::state::operations::names::{Led, check_links};
use crate::state::{Basics, Node, State};
use marram_vfs::{Caller, Error, Ino, Name, RenameMode, Result, Timestamp};

/// From where to where a name moves.
#[derive(Clone, Copy)]
pub(crate) struct Move<'a> {
    /// The directory of the name.
    pub(crate) parent: Ino,
    /// The name.
    pub(crate) name: Name<'a>,
    /// The directory of the new name.
    pub(crate) new_parent: Ino,
    /// The new name.
    pub(crate) new_name: Name<'a>,
}

/// The two directories of a rename.
#[derive(Clone, Copy)]
struct Sides {
    from: Node,
    from_basics: Basics,
    to: Node,
    to_basics: Basics,
}

impl Sides {
    fn is_one(&self) -> bool {
        self.from == self.to
    }

    /// Plans the link counts of both, changed by so many.
    fn plan_links(&self, (from, to): (i64, i64), plan: &mut Plan) {
        let new = |basics: &Basics, by: i64| (i64::from(basics.links) + by) as u64;
        if self.is_one() {
            if from + to != 0 {
                plan.narrow(self.from.field(field::LINKS), 4, new(&self.from_basics, from + to));
            }
            return;
        }
        for (node, basics, by) in
            [(self.from, &self.from_basics, from), (self.to, &self.to_basics, to)]
        {
            if by != 0 {
                plan.narrow(node.field(field::LINKS), 4, new(basics, by));
            }
        }
    }
}

/// Refuses to exchange a directory into one that has all the links that it can have.
fn check_exchange(sides: &Sides, source: &Led, target: &Led) -> Result<()> {
    match (source.is_directory(), target.is_directory()) {
        _ if sides.is_one() => Ok(()),
        (true, false) => check_links(&sides.to_basics),
        (false, true) => check_links(&sides.from_basics),
        _ => Ok(()),
    }
}

impl State {
    /// Moves a name.
    pub(crate) fn rename(
        &mut self,
        caller: Caller,
        way: Move<'_>,
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        let (from, from_basics) = self.directory(way.parent)?;
        let source = self.entry(from, way.name)?;
        let (to, _) = self.directory(way.new_parent)?;
        let target = self.find(to, way.new_name)?;
        let (_, to_basics) = self.living_directory(way.new_parent)?;
        match (mode, target) {
            (mode, Some(_)) if mode.refuses_to_replace() => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => (),
        }
        if target.is_some_and(|target| target.ino == source.ino) {
            return Ok(());
        }
        let inside = Error::InvalidArgument("a directory cannot go into itself");
        if self.is_within(to.ino, source.ino)? {
            return Err(inside);
        }
        let holds_source = match target {
            Some(target) => self.is_within(from.ino, target.ino)?,
            None => false,
        };
        let sides = Sides { from, from_basics, to, to_basics };
        let source = self.led(source.place, source.ino)?;
        let target = match target {
            Some(target) => Some(self.led(target.place, target.ino)?),
            None => None,
        };
        match (mode, target) {
            (RenameMode::Exchange, Some(_)) if holds_source => Err(inside),
            (RenameMode::Exchange, Some(target)) => {
                check_exchange(&sides, &source, &target)?;
                let (sides, source, target) = self.own_all(sides, source, Some(target))?;
                target.map_or(Ok(()), |target| self.exchange(sides, source, target, now))
            }
            (_, Some(_)) if holds_source => Err(Error::NotEmpty),
            _ => {
                self.check_replaced(&sides, &source, target.as_ref())?;
                let (sides, source, target) = self.own_all(sides, source, target)?;
                let whiteout = mode.leaves_whiteout().then_some(caller);
                self.replace(way, sides, (source, target), whiteout, now)
            }
        }
    }

    /// Makes the pages of all inodes that a rename changes the dataset's own.
    fn own_all(
        &mut self,
        sides: Sides,
        source: Led,
        target: Option<Led>,
    ) -> Result<(Sides, Led, Option<Led>)> {
        let mut own = |node: Node| self.own(Ino(node.ino));
        let sides = Sides { from: own(sides.from)?, to: own(sides.to)?, ..sides };
        let source = Led { node: own(source.node)?, ..source };
        let target = match target {
            Some(target) => Some(Led { node: own(target.node)?, ..target }),
            None => None,
        };
        Ok((sides, source, target))
    }

    /// Refuses what may not be replaced.
    fn check_replaced(&mut self, sides: &Sides, source: &Led, target: Option<&Led>) -> Result<()> {
        if let Some(target) = target {
            match (source.is_directory(), target.is_directory()) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if self.entry_count(target.node)? != 0 => {
                    return Err(Error::NotEmpty);
                }
                _ => (),
            }
        }
        let gains = source.is_directory() && !target.is_some_and(Led::is_directory);
        if gains && !sides.is_one() { check_links(&sides.to_basics) } else { Ok(()) }
    }

    fn replace(
        &mut self,
        way: Move<'_>,
        sides: Sides,
        (source, target): (Led, Option<Led>),
        whiteout: Option<Caller>,
        now: Timestamp,
    ) -> Result<()> {
        let mut plan = Plan::default();
        let moved = (source.node.ino, source.kind);
        let left = match whiteout {
            Some(caller) => {
                Some(self.new_whiteout(caller, (sides.from, &sides.from_basics), now)?)
            }
            None => None,
        };
        let place = match target {
            Some(target) => {
                self.plan_target((sides.to, target.place), moved, &mut plan)?;
                None
            }
            None => Some(self.plan_entry(sides.to, way.new_name, moved, &mut plan)?),
        };
        match left {
            Some((node, kind)) => {
                let whiteout = (node.ino, kind);
                self.plan_target((sides.from, source.place), whiteout, &mut plan)?;
            }
            None => self.plan_removal(sides.from, source.place, &mut plan)?,
        }
        let brings = i64::from(source.is_directory());
        let replaces = i64::from(target.is_some_and(|target| target.is_directory()));
        sides.plan_links((-brings, brings - replaces), &mut plan);
        if source.is_directory() && !sides.is_one() {
            plan.edit(source.node.field(field::SIZE), sides.to.ino);
        }
        if let Some(target) = target.filter(|it| !it.is_directory() && it.basics.links > 1) {
            let links = u64::from(target.basics.links - 1);
            plan.narrow(target.node.field(field::LINKS), 4, links);
        }
        match target {
            Some(_) => self.commit(&plan)?,
            None => self.commit_with_times(&plan)?,
        }
        match left {
            Some(_) => self.note_inode(),
            None => self.note_removal(sides.from, way.name)?,
        }
        if let Some(place) = place {
            self.note_entry(sides.to, way.new_name, place)?;
        }
        self.stamp_sides(&sides, now)?;
        self.stamp_change(source.node, now)?;
        match target {
            Some(target) => self.let_go(&target, now),
            None => Ok(()),
        }
    }

    /// What follows for an inode whose name another one has taken.
    fn let_go(&mut self, target: &Led, now: Timestamp) -> Result<()> {
        if target.is_directory() {
            return self.lose_directory(target.node, &target.basics, now);
        }
        if target.basics.links > 1 {
            return self.stamp_change(target.node, now);
        }
        self.lose_name(target.node, &target.basics, now)
    }

    fn exchange(&mut self, sides: Sides, source: Led, target: Led, now: Timestamp) -> Result<()> {
        let mut plan = Plan::default();
        let (at, led) = ((sides.from, source.place), (target.node.ino, target.kind));
        self.plan_target(at, led, &mut plan)?;
        let (at, led) = ((sides.to, target.place), (source.node.ino, source.kind));
        self.plan_target(at, led, &mut plan)?;
        if !sides.is_one() {
            let gains = i64::from(target.is_directory()) - i64::from(source.is_directory());
            sides.plan_links((gains, -gains), &mut plan);
            for (moved, into) in [(&source, sides.to), (&target, sides.from)] {
                if moved.is_directory() {
                    plan.edit(moved.node.field(field::SIZE), into.ino);
                }
            }
        }
        self.commit_with_times(&plan)?;
        self.stamp_sides(&sides, now)?;
        self.stamp_change(source.node, now)?;
        self.stamp_change(target.node, now)
    }

    fn stamp_sides(&mut self, sides: &Sides, now: Timestamp) -> Result<()> {
        self.stamp_content(sides.from, now)?;
        if sides.is_one() { Ok(()) } else { self.stamp_content(sides.to, now) }
    }
}
