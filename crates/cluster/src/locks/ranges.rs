//! The ranges that the users of one client hold of an object.

use marram_store::{HeldLock, LockMode, LockRequest};

/// A range that an owner holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) owner: u64,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) mode: LockMode,
    pub(crate) process: u32,
}

/// All ranges of one family that are held of an object. Those of one owner do not overlap, and
/// where two of the same mode meet they are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges(Vec<Held>);

impl Ranges {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.iter()
    }

    /// A range of another owner that is in the way of a lock.
    pub(crate) fn in_the_way(&self, lock: &LockRequest) -> Option<HeldLock> {
        let others = self.0.iter().filter(|held| held.owner != lock.owner);
        let held = others.map(|held| HeldLock {
            first: held.first,
            last: held.last,
            mode: held.mode,
            process: held.process,
        });
        held.filter(|held| conflicts(held, lock)).min_by_key(|held| held.first)
    }

    /// Whether an owner holds anything in another way than a lock wants it.
    pub(crate) fn has_otherwise(&self, lock: &LockRequest) -> bool {
        let own = self.0.iter().filter(|held| held.owner == lock.owner);
        lock.mode.is_some_and(|mode| own.into_iter().any(|held| held.mode != mode))
    }

    /// Whether an owner holds anything of a range.
    pub(crate) fn has(&self, lock: &LockRequest) -> bool {
        self.0.iter().any(|held| held.owner == lock.owner && meets(held, lock))
    }

    /// Sets a lock that nothing is in the way of, or lets go of a range.
    pub(crate) fn set(&mut self, lock: &LockRequest) {
        let mut kept = Vec::with_capacity(self.0.len() + 2);
        let mut new = lock.mode.map(|mode| Held {
            owner: lock.owner,
            first: lock.first,
            last: lock.last,
            mode,
            process: lock.process,
        });
        for held in std::mem::take(&mut self.0) {
            if held.owner != lock.owner {
                kept.push(held);
                continue;
            }
            match &mut new {
                Some(new) if held.mode == new.mode && touches(&held, new) => {
                    new.first = new.first.min(held.first);
                    new.last = new.last.max(held.last);
                }
                _ => kept.extend(around(held, lock)),
            }
        }
        kept.extend(new);
        self.0 = kept;
    }
}

/// Whether a lock of somebody else is in the way.
pub(crate) fn conflicts(held: &HeldLock, lock: &LockRequest) -> bool {
    let excludes = held.mode == LockMode::Exclusive || lock.mode == Some(LockMode::Exclusive);
    excludes && lock.mode.is_some() && held.first <= lock.last && lock.first <= held.last
}

fn meets(held: &Held, lock: &LockRequest) -> bool {
    held.first <= lock.last && lock.first <= held.last
}

/// Whether two ranges overlap or follow each other.
fn touches(one: &Held, other: &Held) -> bool {
    one.first <= other.last.saturating_add(1) && other.first <= one.last.saturating_add(1)
}

/// What is left of a range before and behind another.
fn around(held: Held, lock: &LockRequest) -> impl Iterator<Item = Held> {
    let all = (!meets(&held, lock)).then_some(held);
    let before =
        (all.is_none() && held.first < lock.first).then(|| Held { last: lock.first - 1, ..held });
    let behind =
        (all.is_none() && lock.last < held.last).then(|| Held { first: lock.last + 1, ..held });
    [all, before, behind].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::Ranges;
    use marram_store::{LockFamily, LockMode, LockRequest};
    use std::array::from_fn;

    const BYTES: u64 = 12;
    const OWNERS: u64 = 3;

    /// What each owner holds of each byte.
    type Naive = [[Option<LockMode>; BYTES as usize]; OWNERS as usize];

    fn set(naive: &mut Naive, lock: &LockRequest) {
        for byte in lock.first..=lock.last {
            naive[lock.owner as usize][byte as usize] = lock.mode;
        }
    }

    fn is_free(naive: &Naive, lock: &LockRequest) -> bool {
        let excludes = |held: Option<LockMode>| match (held, lock.mode) {
            (Some(held), Some(mode)) => held == LockMode::Exclusive || mode == LockMode::Exclusive,
            _ => false,
        };
        let others = (0..OWNERS).filter(|owner| *owner != lock.owner);
        let bytes = others.flat_map(|owner| {
            (lock.first..=lock.last).map(move |byte| naive[owner as usize][byte as usize])
        });
        !bytes.into_iter().any(excludes)
    }

    fn as_naive(ranges: &Ranges) -> Naive {
        let mut naive = Naive::default();
        for held in ranges.iter() {
            for byte in held.first..=held.last {
                let at = &mut naive[held.owner as usize][byte as usize];
                assert_eq!(*at, None, "ranges of one owner overlap: {ranges:?}");
                *at = Some(held.mode);
            }
        }
        naive
    }

    /// Ranges of one owner and mode that meet are one: so there are as few as can be.
    fn fewest(naive: &Naive) -> usize {
        let of = |bytes: &[Option<LockMode>; BYTES as usize]| {
            (0..BYTES as usize)
                .filter(|at| bytes[*at].is_some() && (*at == 0 || bytes[at - 1] != bytes[*at]))
                .count()
        };
        naive.iter().map(of).sum()
    }

    #[test]
    fn ranges_are_what_a_naive_table_of_bytes_says() {
        for seed in 1..40_u64 {
            let (mut ranges, mut naive) = (Ranges::default(), Naive::default());
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for step in 0..400 {
                let [owner, one, other, mode] = from_fn(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                });
                let (one, other) = (one % BYTES, other % BYTES);
                let lock = LockRequest {
                    family: LockFamily::Ranges,
                    owner: owner % OWNERS,
                    first: one.min(other),
                    last: one.max(other),
                    mode: [None, Some(LockMode::Shared), Some(LockMode::Exclusive)]
                        [(mode % 3) as usize],
                    process: 7,
                };
                let free = is_free(&naive, &lock);
                assert_eq!(ranges.in_the_way(&lock).is_none(), free, "{seed} {step} {lock:?}");
                if free {
                    set(&mut naive, &lock);
                    ranges.set(&lock);
                }
                assert_eq!(as_naive(&ranges), naive, "{seed} {step} {lock:?}");
                assert_eq!(ranges.count(), fewest(&naive), "{seed} {step} {ranges:?}");
            }
        }
    }

    #[test]
    fn the_last_byte_of_all_can_be_locked_and_let_go_of() {
        let lock = LockRequest {
            family: LockFamily::Ranges,
            owner: 1,
            first: 5,
            last: u64::MAX,
            mode: Some(LockMode::Exclusive),
            process: 1,
        };
        let mut ranges = Ranges::default();
        ranges.set(&lock);
        ranges.set(&LockRequest { first: 0, last: 4, ..lock });
        assert_eq!(ranges.count(), 1);
        ranges.set(&LockRequest { first: 7, mode: None, ..lock });
        let left: Vec<_> = ranges.iter().map(|held| (held.first, held.last)).collect();
        assert_eq!(left, [(0, 6)]);
    }
}
