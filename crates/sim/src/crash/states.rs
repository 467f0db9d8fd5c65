//! Which of the states that a trace allows are looked at.

use crate::device::{CrashState, Trace};

/// How many states a trace gives.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most writes between two flushes of which all subsets are taken.
    pub subset_writes_max: usize,
    /// Seeds for each larger group of writes.
    pub seeds: usize,
    /// Most states of one trace; of more, evenly many are left out.
    pub states_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { subset_writes_max: 8, seeds: 64, states_max: 4_000 }
    }
}

/// Each prefix, with and without what no flush has covered; each subset between two flushes, or
/// samples of it; each write torn. The same states for the same trace, bounds and seed.
pub fn states(trace: &Trace, bounds: &Bounds, seed: u64) -> Vec<CrashState> {
    let Bounds { subset_writes_max, seeds, states_max } = *bounds;
    let mut states: Vec<CrashState> = trace
        .prefixes()
        .chain(trace.subsets(subset_writes_max))
        .chain(trace.torn())
        .chain(trace.seeded_groups(seed, 0, seeds / 8))
        .chain(trace.seeded_groups(seed ^ 1, subset_writes_max, seeds))
        .collect();
    let stride = states.len().div_ceil(states_max.max(1)).max(1);
    if stride > 1 {
        let mut index = 0;
        states.retain(|_| {
            index += 1;
            index % stride == 0
        });
    }
    states
}
