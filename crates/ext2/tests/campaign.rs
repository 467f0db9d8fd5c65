//! Many distinct crash states under each order of writes, of programs' habits on images of several
//! shapes. `cargo xtask crash --images` asks for more of them than this test takes by itself.

use crate::crashes;
use crate::images::{JOURNALED, SMALL, Shape};
use crate::judge::Judge;
use crate::logged;
use crate::workload::{Run, run_on};
use marram_ext2::{Consistency, Ext2Options};
use marram_sim::device::{CrashState, Trace};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// States of each order, threads and the first seed, if nobody says.
const STATES: u64 = 150;
const THREADS: u64 = 2;
const SEED: u64 = 1000;
/// Most states of one run.
const STATES_OF_RUN: usize = 1500;
/// One of so many states is replayed by `e2fsck` too, and read by another reader.
const E2FSCK_EACH: u64 = 16;

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Tells images apart.
fn digest(image: &[u8]) -> u64 {
    let words = image.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().unwrap()));
    words.fold(0, |sum: u64, word| (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What is known of one order of writes so far.
struct Campaign {
    order: Consistency,
    wanted: u64,
    seen: Mutex<HashSet<u64>>,
    /// The seed of the next run.
    next: AtomicU64,
    /// States in which `e2fsck` finds something that the order permits.
    leaky: AtomicU64,
}

impl Campaign {
    fn shape(&self, seed: u64) -> Shape {
        let base = if self.order == Consistency::SoftUpdates { SMALL } else { JOURNALED };
        let shapes =
            [base, Shape { inode_bytes: 128, ..base }, Shape { block_bytes: 2048, ..base }];
        shapes[(seed % 3) as usize]
    }

    fn is_done(&self) -> bool {
        self.seen.lock().unwrap().len() as u64 >= self.wanted
    }

    /// Judges states of runs until there are enough.
    fn work(&self) -> Result<(), String> {
        let judge = Judge::new();
        while !self.is_done() {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            let is_logged = self.order != Consistency::SoftUpdates;
            let options = Ext2Options { consistency: Some(self.order), ..Ext2Options::default() };
            let acts = 60 + seed % 5 * 40;
            let run = run_on(self.shape(seed), is_logged, seed, acts, options);
            let trace = run.device.trace();
            for state in crashes::states_of(&trace, seed, STATES_OF_RUN) {
                if self.is_done() {
                    break;
                }
                self.judge_one(&judge, (&run, &trace), state).map_err(|said| {
                    format!("{}, run {seed}, {state}: {said}", self.order.name())
                })?;
            }
        }
        Ok(())
    }

    fn judge_one(
        &self,
        judge: &Judge,
        (run, trace): (&Run, &Trace),
        state: CrashState,
    ) -> Result<(), String> {
        let image = trace.image(state);
        let digest = digest(&image);
        if !self.seen.lock().unwrap().insert(digest) {
            return Ok(());
        }
        if self.order == Consistency::SoftUpdates {
            let leaks = crashes::judged(judge, run, trace, state)?;
            self.leaky.fetch_add(u64::from(leaks), Ordering::Relaxed);
            return Ok(());
        }
        let with_e2fsck = digest.is_multiple_of(E2FSCK_EACH);
        logged::judged(judge, (run, self.order), trace, (state, with_e2fsck))
    }
}

#[test]
fn distinct_crash_states_of_each_order_are_as_promised() {
    let wanted = asked("MARRAM_EXT2_STATES", STATES);
    let only = std::env::var("MARRAM_EXT2_ORDER").ok();
    let orders = [
        Consistency::SoftUpdates,
        Consistency::Journal,
        Consistency::JournalFull,
        Consistency::JournalWriteback,
    ];
    let is_asked = |order: &Consistency| only.as_ref().is_none_or(|only| only == order.name());
    let orders: Vec<Consistency> = orders.into_iter().filter(is_asked).collect();
    assert!(!orders.is_empty(), "{only:?} is none of the orders");
    for order in orders {
        let seed = asked("MARRAM_EXT2_SEED", SEED);
        let (seen, leaky) = (Mutex::default(), AtomicU64::new(0));
        let campaign = Campaign { order, wanted, seen, next: AtomicU64::new(seed), leaky };
        let began = std::time::Instant::now();
        std::thread::scope(|threads| {
            let working: Vec<_> = (0..asked("MARRAM_EXT2_THREADS", THREADS))
                .map(|_| threads.spawn(|| campaign.work()))
                .collect();
            working.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        println!(
            "{}: {} distinct states of runs {seed} to {}, {} of them with leaks, {:?}",
            order.name(),
            campaign.seen.lock().unwrap().len(),
            campaign.next.load(Ordering::Relaxed) - 1,
            campaign.leaky.load(Ordering::Relaxed),
            began.elapsed(),
        );
    }
}
