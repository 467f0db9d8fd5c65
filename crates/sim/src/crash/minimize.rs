//! Makes a workload that leads to a violation smaller.

use super::explorer::{Explorer, Violation};
use super::states::Bounds;
use super::workload::Workload;

/// Most workloads that are tried.
const TRIES_MAX: usize = 40;

impl Explorer<'_> {
    /// Leaves out parts of a workload for as long as some state of it is a violation; returns the
    /// smallest with its first violation, if there is any.
    pub fn minimize(&self, workload: &Workload, seed: u64) -> Option<(Workload, Violation)> {
        let violation = |workload: &Workload| {
            let found = self.anew().explore(workload, &Bounds::default(), seed);
            found.into_iter().next()
        };
        let mut smallest = (workload.clone(), violation(workload)?);
        let mut tries_left = TRIES_MAX;
        loop {
            let mut smaller = candidates(&smallest.0).into_iter().take(tries_left);
            let found = smaller.find_map(|candidate| {
                tries_left = tries_left.saturating_sub(1);
                violation(&candidate).map(|violation| (candidate, violation))
            });
            match found {
                Some(found) => smallest = found,
                None => return Some(smallest),
            }
        }
    }
}

/// What is a little smaller.
fn candidates(workload: &Workload) -> Vec<Workload> {
    match workload {
        Workload::Small(parts) => {
            let without = |index: usize| {
                let mut fewer = parts.clone();
                fewer.remove(index);
                Workload::Small(fewer)
            };
            let indices = 0..if parts.len() > 1 { parts.len() } else { 0 };
            indices.map(without).collect()
        }
        Workload::Random { seed, steps } => {
            shorter(*steps).map(|steps| Workload::Random { seed: *seed, steps }).collect()
        }
        Workload::Idiom { name, seed, rounds } => {
            shorter(*rounds).map(|rounds| Workload::Idiom { name, seed: *seed, rounds }).collect()
        }
    }
}

/// Half, three quarters, and so on up to one less.
fn shorter(len: usize) -> impl Iterator<Item = usize> {
    let cuts = std::iter::successors(Some(len / 2), |cut| Some(cut / 2));
    cuts.take_while(|cut| *cut > 0).map(move |cut| len - cut)
}
