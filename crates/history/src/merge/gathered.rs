//! The three states of a merge and what differs between them, by one set of numbers: those of the
//! dataset that it goes into.

use super::Sides;
use super::another_directory::Apart;
use crate::changes::Changes;
use crate::diff::check_related;
use crate::parted::{NewInodes, Parted};
use crate::selection::{Select, keep_selected};
use crate::three_way::ThreeWay;
use marram_records::failure::from_store;
use marram_records::state::{State, same_inode};
use marram_store::{Source, Store};
use marram_vfs::{Error, Result};

/// What is known before the parent is held still.
pub(super) struct ForkSide {
    base: State,
    fork: State,
    /// From the base to the fork, where both have the same numbers.
    theirs: Option<Changes>,
    /// Of datasets that parted: what the fork's side has made, in the fork and in the base.
    made: Option<NewInodes>,
}

/// See the module.
pub(super) struct Gathered {
    pub(super) base: State,
    pub(super) fork: State,
    pub(super) now: State,
    pub(super) theirs: Changes,
    pub(super) ours: Changes,
    pub(super) is_renumbered: bool,
}

fn open(store: &dyn Store, source: &Source, sides: &Sides) -> Result<State> {
    State::open(store.open(source).map_err(from_store)?, sides.root.0)
}

impl ForkSide {
    /// Gathers what the fork's side has: `fork` is its state.
    pub(super) fn gather(store: &dyn Store, sides: &Sides, fork: &Source) -> Result<ForkSide> {
        let (base_state, fork_state) =
            (open(store, &sides.base, sides)?, open(store, fork, sides)?);
        check_related(&base_state, &fork_state)?;
        let is_of_fork = sides.base.dataset == fork.dataset;
        let made = match &sides.origin {
            None => None,
            Some(origin) => {
                let made = NewInodes::of(store, origin, fork)?;
                Some(match is_of_fork {
                    true => made.and(NewInodes::of(store, origin, &sides.base)?),
                    false => made,
                })
            }
        };
        let theirs = match made.is_none() || is_of_fork {
            true => {
                let sources = (&sides.base, fork);
                Some(Changes::gather(store, sources, &base_state, &fork_state)?)
            }
            false => None,
        };
        Ok(ForkSide { base: base_state, fork: fork_state, theirs, made })
    }

    /// Adds what the dataset has that it goes into: `present` is its state.
    pub(super) fn with(
        self,
        store: &dyn Store,
        (sides, fork_source): (&Sides, &Source),
        present: &Source,
    ) -> Result<Gathered> {
        let now = open(store, present, sides)?;
        check_related(&self.base, &now)?;
        let ForkSide { base, fork: fork_state, theirs, made } = self;
        if let Some(directory) = sides.into {
            let (theirs, now) = (theirs.unwrap_or_default(), now.below(directory.0));
            return Apart { base, fork: fork_state, theirs, now }.gather();
        }
        if sides.moves_base {
            refuse_gone(&base, [&fork_state, &now])?;
        }
        let Some((made, origin)) = made.zip(sides.origin.as_ref()) else {
            let ours = Changes::gather(store, (&sides.base, present), &base, &now)?;
            let (fork, theirs) = (fork_state, theirs.unwrap_or_default());
            let Some(parted) = Parted::of_reused(&theirs) else {
                return Ok(Gathered { base, fork, now, theirs, ours, is_renumbered: false });
            };
            let (shown, sources) = (parted.show(&fork), (&sides.base, fork_source));
            let theirs = Changes::gather_across(store, sources, (&base, &shown), (&parted, &fork))?;
            return Ok(Gathered { base, fork: shown, now, theirs, ours, is_renumbered: true });
        };
        let others = NewInodes::of(store, origin, present)?;
        let sources = (&sides.base, fork_source, present);
        match theirs {
            Some(theirs) => {
                with_own_base(store, sources, (base, fork_state, now), theirs, (&made, &others))
            }
            None => {
                let others = others.and(NewInodes::of(store, origin, &sides.base)?);
                with_their_base(store, sources, (base, fork_state, now), (&made, &others))
            }
        }
    }
}

/// Refuses a fork whose directory is gone from one of the states, or another one has its number.
fn refuse_gone(base: &State, others: [&State; 2]) -> Result<()> {
    let root = base.named_inode(base.root)?.ok_or(Error::Stale)?;
    for state in others {
        let found = state.named_inode(state.root)?;
        if found.is_none_or(|found| !same_inode(&root, &found)) {
            return Err(Error::Stale);
        }
    }
    Ok(())
}

/// The base is a state of the fork.
fn with_own_base(
    store: &dyn Store,
    (base_source, _, present): (&Source, &Source, &Source),
    (base, fork, now): (State, State, State),
    theirs: Changes,
    (made, others): (&NewInodes, &NewInodes),
) -> Result<Gathered> {
    let parted = Parted::find((made, &base), (others, &now))?;
    let shown = parted.show(&base);
    let states = (&shown, &now);
    let ours = Changes::gather_across(store, (base_source, present), states, (&parted, &base))?;
    Ok(Gathered {
        base: shown,
        fork: parted.show(&fork),
        now,
        theirs: theirs.renumbered(&parted.numbers),
        ours,
        is_renumbered: true,
    })
}

/// The base is a state of what it goes into.
fn with_their_base(
    store: &dyn Store,
    (base_source, fork_source, present): (&Source, &Source, &Source),
    (base, fork, now): (State, State, State),
    (made, others): (&NewInodes, &NewInodes),
) -> Result<Gathered> {
    let parted = Parted::find((made, &fork), (others, &base))?;
    let shown = parted.show(&fork);
    let states = (&base, &shown);
    let theirs =
        Changes::gather_across(store, (base_source, fork_source), states, (&parted, &fork))?;
    let ours = Changes::gather(store, (base_source, present), &base, &now)?;
    Ok(Gathered { base, fork: shown, now, theirs, ours, is_renumbered: true })
}

impl Gathered {
    /// Leaves of the fork's changes what is chosen. Returns how many inodes the others are of.
    pub(super) fn keep_selected(&mut self, select: Select<'_>) -> Result<usize> {
        keep_selected(&mut self.theirs, (&self.base, &self.fork), select)
    }

    pub(super) fn three_way(&self) -> ThreeWay<'_> {
        let states = (&self.base, &self.fork, &self.now);
        let three = ThreeWay::new(states, &self.theirs, &self.ours);
        if self.is_renumbered { three.renumbered() } else { three }
    }
}
