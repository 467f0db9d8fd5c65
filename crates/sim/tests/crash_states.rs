//! Every state that a crash leaves of a pool is the state at one commit, and none that was
//! promised is lost.

use crate::homes::{new_pool_home, open_pool_home};
use marram_device::MemoryDevice;
use marram_model::Model;
use marram_sim::device::{CrashState, RecordingDevice, Trace};
use marram_sim::{Generator, HistoryClock, InodeMap, Operation, Outcome, Pair, compare_trees};
use std::sync::Arc;

/// Size of the device: the smallest for a pool.
const DEVICE_BYTES: usize = 32 << 20;
/// Operations between two commits that the test asks for.
const OPERATIONS_PER_COMMIT: usize = 12;
/// Commits in a history.
const COMMITS: usize = 8;

/// What was recorded: the device, and what the file system held when each mark was left.
struct Recorded {
    trace: Trace,
    promised: Vec<Model>,
}

fn record(seed: u64) -> Recorded {
    let clock = Arc::new(HistoryClock::default());
    let device = Arc::new(RecordingDevice::in_memory(vec![0; DEVICE_BYTES]));
    let mut home = new_pool_home(Arc::clone(&device) as _, seed, Arc::clone(&clock)).unwrap();
    let mut pair = Pair::new(home.file_system(), Model::new(Arc::clone(&clock) as _));
    let mut promised = Vec::new();
    let mut promise = |pair: &Pair| {
        device.mark(promised.len() as u64);
        promised.push(pair.model().snapshot());
    };
    home.commit().unwrap();
    promise(&pair);
    let mut generator = Generator::new(seed);
    for step in 1..=COMMITS * OPERATIONS_PER_COMMIT {
        clock.set(step as u64);
        let operation = generator.draw();
        let outcome = pair.apply(&operation).unwrap_or_else(|reason| {
            panic!("seed {seed}, step {step}: {operation:?}: {reason}");
        });
        let syncs = matches!(operation, Operation::Sync { .. } | Operation::SyncAll);
        if step % OPERATIONS_PER_COMMIT == 0 {
            home.commit().unwrap();
        }
        if step % OPERATIONS_PER_COMMIT == 0 || (syncs && outcome == Outcome::Done) {
            promise(&pair);
        }
    }
    Recorded { trace: device.trace(), promised }
}

/// Mounts what a crash left, and compares it with what may be there: what was promised last, or
/// the commit that the crash came into.
fn check(recorded: &Recorded, state: CrashState) -> Result<(), String> {
    let Some(mark) = recorded.trace.last_mark(state.cut) else {
        return Ok(());
    };
    let device = Arc::new(MemoryDevice::from_bytes(recorded.trace.image(state)));
    let home = open_pool_home(device, Arc::new(HistoryClock::default()))?;
    let mut reasons = String::new();
    for model in recorded.promised.iter().skip(mark as usize).take(2) {
        match compare_trees(&mut InodeMap::default(), &*home.file_system(), model) {
            Ok(()) => return Ok(()),
            Err(reason) => reasons = format!("{reasons}\n  {reason}"),
        }
    }
    Err(format!("neither what mark {mark} promised nor the commit after it:{reasons}"))
}

fn check_all(seed: u64, recorded: &Recorded, states: impl Iterator<Item = CrashState>) {
    for state in states {
        check(recorded, state)
            .unwrap_or_else(|reason| panic!("seed {seed}, state {state}: {reason}"));
    }
}

#[test]
fn a_crash_after_any_write_leaves_one_commit_and_keeps_every_promise() {
    let recorded = record(0);
    check_all(0, &recorded, recorded.trace.prefixes());
}

#[test]
fn lost_and_torn_writes_leave_one_commit_and_keep_every_promise() {
    for seed in 1..3 {
        let recorded = record(seed);
        check_all(seed, &recorded, recorded.trace.seeded(seed, 20));
    }
}
