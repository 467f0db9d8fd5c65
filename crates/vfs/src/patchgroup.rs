//! Order between changes without a sync: groups of operations, one after the other.
//!
//! A group gets all that it waits for first, then operations, and once another group waits for it
//! no more of them (Frost, "Improving the Performance and Reliability of Storage Systems", 2010,
//! section 2.3.1 and figure 2.5). So no group ever comes to wait for itself, and none waits for
//! what is yet to be done.

use crate::{Error, Result};
use std::collections::BTreeMap;

/// Most groups that there can be at once.
pub const PATCHGROUPS_MAX: usize = 65_536;

/// A group of operations. Its number is never given to another one of the same file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Patchgroup(pub u64);

/// How far a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// It may come to wait for others.
    Made,
    /// Operations may belong to it.
    Engaged,
    /// Others wait for it.
    Sealed,
}

/// The lives of all groups of a file system: which step may be the next one of each.
#[derive(Clone, Debug, Default)]
pub struct PatchgroupLives {
    last: u64,
    lives: BTreeMap<Patchgroup, Life>,
}

const UNKNOWN: Error = Error::InvalidArgument("there is no such patchgroup; it may be closed");
const SEALED: Error =
    Error::InvalidArgument("another patchgroup waits for this one: it takes no more changes");

impl PatchgroupLives {
    fn life(&self, group: Patchgroup) -> Result<Life> {
        self.lives.get(&group).copied().ok_or(UNKNOWN)
    }

    /// A new group.
    ///
    /// # Errors
    /// [`Error::TooManyGroups`].
    pub fn make(&mut self) -> Result<Patchgroup> {
        if self.lives.len() >= PATCHGROUPS_MAX {
            return Err(Error::TooManyGroups);
        }
        self.last += 1;
        self.lives.insert(Patchgroup(self.last), Life::Made);
        Ok(Patchgroup(self.last))
    }

    /// Lets a group wait for another one, which takes no more changes from now on.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: one of them is not there, they are the same, or the one that is
    /// to wait has been engaged or is waited for itself.
    pub fn depend(&mut self, later: Patchgroup, earlier: Patchgroup) -> Result<()> {
        self.life(earlier)?;
        if later == earlier {
            return Err(Error::InvalidArgument("a patchgroup cannot wait for itself"));
        }
        if self.life(later)? != Life::Made {
            return Err(Error::InvalidArgument(
                "a patchgroup gets what it waits for before it is engaged or waited for",
            ));
        }
        self.lives.insert(earlier, Life::Sealed);
        Ok(())
    }

    /// Lets operations belong to these groups.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: one is not there, or another one waits for it; then none has
    /// been engaged.
    pub fn engage(&mut self, groups: &[Patchgroup]) -> Result<()> {
        self.check(groups)?;
        self.lives.extend(groups.iter().map(|group| (*group, Life::Engaged)));
        Ok(())
    }

    /// Whether these groups take changes still.
    ///
    /// # Errors
    /// As for [`PatchgroupLives::engage`].
    pub fn check(&self, groups: &[Patchgroup]) -> Result<()> {
        groups.iter().try_for_each(|group| match self.life(*group)? {
            Life::Made | Life::Engaged => Ok(()),
            Life::Sealed => Err(SEALED),
        })
    }

    /// Whether there is such a group.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: there is not.
    pub fn find(&self, group: Patchgroup) -> Result<()> {
        self.life(group).map(drop)
    }

    /// Forgets a group. What waits for it goes on doing so.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: there is no such group.
    pub fn close(&mut self, group: Patchgroup) -> Result<()> {
        self.lives.remove(&group).map(drop).ok_or(UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::{PATCHGROUPS_MAX, Patchgroup, PatchgroupLives};
    use crate::Error;
    use std::collections::BTreeSet;

    fn refused<T: std::fmt::Debug>(outcome: crate::Result<T>) -> bool {
        matches!(outcome, Err(Error::InvalidArgument(_)))
    }

    #[test]
    fn a_group_that_is_waited_for_is_sealed() {
        let mut lives = PatchgroupLives::default();
        let [first, second] = [(); 2].map(|()| lives.make().unwrap());
        lives.engage(&[first]).unwrap();
        lives.check(&[first]).unwrap();
        lives.depend(second, first).unwrap();
        assert!(refused(lives.check(&[first])), "changes after others wait for it");
        assert!(refused(lives.engage(&[second, first])));
        let third = lives.make().unwrap();
        lives.depend(second, third).unwrap();
        lives.engage(&[second]).unwrap();
        lives.engage(&[second]).unwrap();
        let fourth = lives.make().unwrap();
        assert!(refused(lives.depend(second, fourth)), "it has been engaged");
        assert!(refused(lives.depend(first, fourth)), "it is waited for");
    }

    #[test]
    fn a_closed_group_is_not_there_and_its_number_is_not_used_again() {
        let mut lives = PatchgroupLives::default();
        let group = lives.make().unwrap();
        lives.close(group).unwrap();
        assert!(refused(lives.close(group)) && refused(lives.engage(&[group])));
        assert!(refused(lives.find(group)));
        assert_ne!(lives.make().unwrap(), group);
    }

    #[test]
    fn there_are_not_more_groups_than_the_limit() {
        let mut lives = PatchgroupLives::default();
        let made: Vec<Patchgroup> = (0..PATCHGROUPS_MAX).map(|_| lives.make().unwrap()).collect();
        assert_eq!(lives.make(), Err(Error::TooManyGroups));
        lives.close(made[7]).unwrap();
        lives.make().unwrap();
    }

    /// Every sequence of so many dependencies between three groups.
    #[test]
    fn no_sequence_of_dependencies_makes_a_circle() {
        let pairs: Vec<(u64, u64)> =
            (1..=3).flat_map(|later| (1..=3).map(move |earlier| (later, earlier))).collect();
        for sequence in 0..pairs.len().pow(4) {
            let mut lives = PatchgroupLives::default();
            for _ in 0..3 {
                lives.make().unwrap();
            }
            let (mut rest, mut waits) = (sequence, BTreeSet::new());
            for _ in 0..4 {
                let (later, earlier) = pairs[rest % pairs.len()];
                rest /= pairs.len();
                if lives.depend(Patchgroup(later), Patchgroup(earlier)).is_ok() {
                    waits.insert((later, earlier));
                }
            }
            for _ in 0..3 {
                let more: Vec<(u64, u64)> = waits
                    .iter()
                    .flat_map(|(a, b)| {
                        waits.iter().filter(move |it| it.0 == *b).map(|it| (*a, it.1))
                    })
                    .collect();
                waits.extend(more);
            }
            assert!(waits.iter().all(|(later, earlier)| later != earlier), "{waits:?}");
        }
    }
}
