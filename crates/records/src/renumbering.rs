//! Inodes of one dataset under the numbers of another one that it has parted from.
//!
//! Both give out the same numbers after they parted, and what a merge brings from one into the
//! other gets a number that is free there. So an inode that both have is known by two numbers. A
//! [`crate::state::State`] with a renumbering is read by those of the other dataset: what both have
//! has its number there, and what only the own dataset has a number that no dataset gives out.

use marram_format::record::{Inode, Time};
use std::collections::{BTreeMap, HashMap};

/// With this bit a number begins that only the own dataset has an inode for. Numbers are given out
/// from 1 on, so no dataset comes to it.
const ALONE: u64 = 1 << 63;

/// An inode that both datasets have, as the other one has it.
#[derive(Clone, Copy, Debug)]
pub struct Counterpart {
    /// Its number there.
    pub number: u64,
    /// Its generation there.
    pub generation: u64,
    /// When it was born there.
    pub created: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Renumbering {
    /// The datasets have nothing in common but counterparts.
    is_apart: bool,
    counterparts: BTreeMap<u64, Counterpart>,
    shown: HashMap<u64, u64>,
    own: HashMap<u64, Option<u64>>,
}

impl Renumbering {
    /// The renumbering by which these of the own inodes are those of the other dataset. `own` and
    /// `other` are the numbers that each has given out since they parted.
    pub fn new(
        counterparts: BTreeMap<u64, Counterpart>,
        own: impl Iterator<Item = u64>,
        other: impl Iterator<Item = u64>,
    ) -> Renumbering {
        let mut numbers = Renumbering { counterparts, ..Renumbering::default() };
        let own: Vec<u64> = own.collect();
        numbers.own.extend(own.iter().copied().chain(other).map(|number| (number, None)));
        for number in own {
            let counterpart = numbers.counterparts.get(&number);
            let shown = counterpart.map_or(number | ALONE, |counterpart| counterpart.number);
            numbers.shown.insert(number, shown);
            numbers.own.insert(shown, Some(number));
        }
        numbers
    }

    /// The renumbering of a dataset that has nothing in common with the other one but these.
    pub fn apart(counterparts: BTreeMap<u64, Counterpart>) -> Renumbering {
        let own: Vec<u64> = counterparts.keys().copied().collect();
        let numbers = Renumbering::new(counterparts, own.into_iter(), std::iter::empty());
        Renumbering { is_apart: true, ..numbers }
    }

    /// The number under which an own inode is shown: also of one that is not among those that are
    /// known, as what has no name, never a number of the other dataset.
    pub fn shown(&self, own: u64) -> u64 {
        match self.shown.get(&own) {
            Some(shown) => *shown,
            None if self.is_apart || self.own.contains_key(&own) => own | ALONE,
            None => own,
        }
    }

    /// The own number of what is shown under a number; none if only the other dataset has it.
    pub fn own(&self, shown: u64) -> Option<u64> {
        let is_known = !self.is_apart || shown & ALONE != 0;
        self.own.get(&shown).copied().unwrap_or_else(|| is_known.then_some(shown & !ALONE))
    }

    /// The record of an own inode as it is shown: what both have is one inode, so it has the birth
    /// of its counterpart.
    pub fn show(&self, own: u64, inode: Inode) -> Inode {
        let parent = self.shown(inode.parent);
        match self.counterparts.get(&own) {
            Some(Counterpart { generation, created, .. }) => {
                Inode { parent, generation: *generation, created: *created, ..inode }
            }
            None => Inode { parent, ..inode },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counterpart, Renumbering};
    use marram_format::record::Time;
    use std::collections::BTreeMap;

    #[test]
    fn every_number_leads_back_to_the_inode_that_it_is_shown_for() {
        let created = Time { seconds: 5, nanoseconds: 0 };
        let counterpart = |number| Counterpart { number, generation: 1, created };
        // 10 is 12 there, 12 is 20 there; 11 is only here, and there are another 10 and 11.
        let counterparts = BTreeMap::from([(10, counterpart(12)), (12, counterpart(20))]);
        let own = [10, 11, 12];
        let numbers = Renumbering::new(counterparts, own.into_iter(), [10, 11, 12, 20].into_iter());
        assert_eq!((numbers.shown(10), numbers.shown(12), numbers.shown(5)), (12, 20, 5));
        for number in own.into_iter().chain([1, 5, 400]) {
            assert_eq!(numbers.own(numbers.shown(number)), Some(number));
        }
        assert_eq!((numbers.own(10), numbers.own(11)), (None, None));
        let alone = Renumbering::new(BTreeMap::new(), [30].into_iter(), [].into_iter());
        assert_eq!((alone.own(30), alone.own(alone.shown(30))), (None, Some(30)));
        assert!(numbers.shown(11) > u64::MAX / 2);
        // 20 has no name here, and is not what stands under 20 there.
        assert!(numbers.shown(20) > u64::MAX / 2);
        assert_eq!(numbers.own(numbers.shown(20)), Some(20));
    }

    #[test]
    fn what_has_no_counterpart_is_never_what_the_other_dataset_has() {
        let created = Time { seconds: 5, nanoseconds: 0 };
        let counterpart = Counterpart { number: 12, generation: 1, created };
        let numbers = Renumbering::apart(BTreeMap::from([(10, counterpart)]));
        assert_eq!((numbers.shown(10), numbers.own(12)), (12, Some(10)));
        for number in [1, 10, 11, 12] {
            assert_eq!(numbers.own(numbers.shown(number)), Some(number));
        }
        assert_eq!((numbers.own(1), numbers.own(11)), (None, None));
    }
}
