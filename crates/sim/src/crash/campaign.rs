//! Many workloads, on several threads, until enough states have been looked at.

use super::action::Action;
use super::explorer::{Explorer, Violation};
use super::idiom::IDIOMS;
use super::states::Bounds;
use super::table::{BEGUN, CHANGES, PERSISTENCE};
use super::workload::{Part, Workload};
use crate::random::Random;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A campaign ends early after this many violations.
const VIOLATIONS_MAX: usize = 12;
/// Most states of one random history or idiom.
const LONG_STATES_MAX: usize = 600;
/// Of so many workloads in a row one is a random history, one is an idiom, and
/// [`INTERLEAVED`] are bounded ones in which commits, frames and administrative operations are
/// under way while something else is done.
const ROUND: u64 = 24;
/// See [`ROUND`].
const INTERLEAVED: u64 = 4;

/// How often every pair comes with something between that it interrupts.
const BUSY_ROUNDS: u64 = 6;
/// Of the other persistence points one in so many is interrupted.
const BUSY_ONE_IN: u64 = 4;
/// Writes and flushes before which something may be interrupted.
const BUSY_PLACES: u64 = 12;
/// The persistence points that lead to a first commit: without one, a sync makes no frame.
const FIRST_COMMITS: &[&str] = &["sync", "commit", "snapshot", "clone", "sync-in-clone", "fork"];

/// Which workloads a campaign runs, in which order.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides the order and all samples.
    pub seed: u64,
    /// Ends when so many distinct images have been looked at.
    pub states: u64,
    /// How many threads.
    pub threads: usize,
    /// Only workloads in which several things are under way at once.
    pub interleaved: bool,
}

/// What a campaign has found.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Distinct images that were mounted.
    pub distinct: u64,
    /// States that were compared, equal images included.
    pub compared: u64,
    /// Recoveries that were crashed in turn.
    pub continued: u64,
    /// Commits, frames and administrative operations that stood still while others went on.
    pub held: u64,
    /// Workloads.
    pub workloads: u64,
    /// What must not be.
    pub violations: Vec<Violation>,
}

/// A campaign under way.
pub struct Campaign<'e, 't> {
    explorer: &'e Explorer<'t>,
    plan: Plan,
    next: AtomicU64,
    violations: Mutex<Vec<Violation>>,
}

impl Plan {
    /// How many bounded workloads there are: all pairs with each persistence point between, and
    /// all triples.
    pub fn small_count() -> u64 {
        pair_count() + (CHANGES.len() as u64).pow(3)
    }

    /// The workload with this number. Every bounded workload comes up once before any comes again.
    pub fn workload(&self, number: u64) -> Workload {
        let (round, place) = (number / ROUND, number % ROUND);
        let mut random = Random::new(self.seed ^ number.rotate_left(32));
        if self.interleaved {
            return interleaved(&mut random);
        }
        match place {
            0 => Workload::Random {
                seed: random.number() >> 32,
                steps: random.pick(&[20, 40, 80, 160]),
            },
            1 => Workload::Idiom {
                name: IDIOMS[(round % IDIOMS.len() as u64) as usize].0,
                seed: random.number() >> 32,
                rounds: random.pick(&[2, 5, 10]),
            },
            _ if place < 2 + INTERLEAVED => interleaved(&mut random),
            _ => {
                let first = 2 + INTERLEAVED;
                let turn = round * (ROUND - first) + place - first;
                small(scattered(self.seed, turn % Plan::small_count()))
            }
        }
    }
}

fn pair_count() -> u64 {
    (CHANGES.len() as u64).pow(2) * (PERSISTENCE.len() as u64 + BUSY_ROUNDS)
}

/// Goes through all numbers below their count in an order that the seed decides.
fn scattered(seed: u64, turn: u64) -> u64 {
    let count = Plan::small_count();
    let mut stride = count * 5 / 8 + seed % 1_000;
    while gcd(stride, count) != 1 {
        stride += 1;
    }
    (u128::from(turn) * u128::from(stride) % u128::from(count)) as u64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The bounded workload with this number.
fn small(number: u64) -> Workload {
    let changes = CHANGES.len() as u64;
    let change = |index: u64| Part::of(CHANGES[(index % changes) as usize].0);
    // The persistence points that the number does not say follow from it all the same.
    let mut random = Random::new(number);
    let parts = match number.checked_sub(pair_count()) {
        None => {
            let between = (number / changes / changes) as usize;
            let between = match PERSISTENCE.get(between) {
                Some((row, _)) => Part::of(row),
                None => busy(&mut random),
            };
            vec![change(number), between, change(number / changes), persistence(&mut random)]
        }
        Some(triple) => vec![
            change(triple),
            persistence(&mut random),
            change(triple / changes),
            persistence(&mut random),
            change(triple / changes / changes),
            persistence(&mut random),
        ],
    };
    // What nothing makes durable is not worth a last action.
    let last = if parts.last().is_some_and(|last| last.row != NONE) { NONE } else { "sync" };
    let parts = parts.into_iter().chain([Part::of(last)]);
    Workload::Small(parts.filter(|part| part.row != NONE).collect())
}

/// The persistence point that is none.
const NONE: &str = PERSISTENCE[0].0;
/// What makes a frame.
const SYNC: &str = "sync";

fn persistence(random: &mut Random) -> Part {
    if random.once_in(BUSY_ONE_IN) {
        return busy(random);
    }
    Part::of(PERSISTENCE[random.below(PERSISTENCE.len() as u64) as usize].0)
}

/// Something done while one or two others are under way.
fn busy(random: &mut Random) -> Part {
    loop {
        let (row, actions) = CHANGES[random.below(CHANGES.len() as u64) as usize];
        if !actions.iter().any(|action| matches!(action, Action::Administer(_))) {
            let (beside, _) = BEGUN[random.below(BEGUN.len() as u64) as usize];
            let begun = match random.below(8) {
                0 if beside != SYNC => vec![SYNC, beside],
                1 | 2 if beside != SYNC => vec![beside, SYNC],
                _ => vec![beside],
            };
            let begun = begun.into_iter().map(|row| (row, random.below(BUSY_PLACES))).collect();
            return Part { row, begun };
        }
    }
}

/// A bounded workload about what is under way at once. Something is there to be written, and
/// frames have room.
fn interleaved(random: &mut Random) -> Workload {
    let mut change = || Part::of(CHANGES[random.below(CHANGES.len() as u64) as usize].0);
    let (first, second) = (change(), change());
    let mut parts = vec![first, Part::of(random.pick(FIRST_COMMITS)), second, busy(random)];
    if random.once_in(2) {
        parts.push(busy(random));
    }
    parts.push(persistence(random));
    parts.push(Part::of("sync"));
    Workload::Small(parts.into_iter().filter(|part| part.row != NONE).collect())
}

impl<'e, 't> Campaign<'e, 't> {
    /// A campaign that has not begun.
    pub fn new(explorer: &'e Explorer<'t>, plan: Plan) -> Campaign<'e, 't> {
        Campaign { explorer, plan, next: AtomicU64::new(0), violations: Mutex::default() }
    }

    /// Runs it to its end; tells how far it is now and then.
    pub fn run(&self, tell: &(dyn Fn(&Outcome) + Sync)) -> Outcome {
        std::thread::scope(|scope| {
            for _ in 0..self.plan.threads.max(1) {
                scope.spawn(|| self.work(tell));
            }
        });
        self.outcome()
    }

    fn work(&self, tell: &(dyn Fn(&Outcome) + Sync)) {
        while self.explorer.distinct() < self.plan.states {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let workload = self.plan.workload(number);
            let long = !matches!(workload, Workload::Small(_));
            let states_max = if long { LONG_STATES_MAX } else { Bounds::default().states_max };
            let bounds = Bounds { states_max, ..Bounds::default() };
            let found = self.explorer.explore(&workload, &bounds, self.plan.seed ^ number);
            let mut violations = self.violations.lock();
            violations.extend(found);
            if violations.len() >= VIOLATIONS_MAX {
                return;
            }
            drop(violations);
            if number % 256 == 255 {
                tell(&self.outcome());
            }
        }
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            distinct: self.explorer.distinct(),
            compared: self.explorer.compared(),
            continued: self.explorer.continued(),
            held: self.explorer.held(),
            workloads: self.next.load(Ordering::Relaxed),
            violations: self.violations.lock().clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Plan, ROUND, scattered, small};
    use crate::crash::Workload;
    use std::collections::BTreeSet;

    #[test]
    fn every_bounded_workload_comes_up_once() {
        let count = Plan::small_count();
        for seed in [1, 2, 77] {
            let seen: BTreeSet<u64> = (0..count).map(|turn| scattered(seed, turn)).collect();
            assert_eq!(seen.len() as u64, count);
        }
        let Workload::Small(rows) = small(count - 1) else { panic!("a bounded workload") };
        assert!(rows.len() > 2 && rows.iter().all(|part| part.row != "none"), "{rows:?}");
    }

    #[test]
    fn a_seed_decides_the_plan() {
        let plan = Plan { seed: 4, states: 1, threads: 1, interleaved: false };
        let other = Plan { seed: 5, ..plan };
        for number in 0..3 * ROUND {
            assert_eq!(plan.workload(number), plan.workload(number));
            assert_eq!(plan.workload(number).to_string().parse(), Ok(plan.workload(number)));
        }
        assert!((0..9).any(|number| plan.workload(number) != other.workload(number)));
    }
}
