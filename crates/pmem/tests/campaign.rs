//! Many distinct states that a crash could leave, of random histories in each mode. `cargo xtask
//! crash --pmem` asks for more of them than this test takes by itself.
//!
//! A state is an image; recoveries that are cut off leave states too. A history is named by its
//! mode and its seed, and runs again in the same way by that name.

use crate::checkpoints::{Cuts, Disk, history, judge_cuts};
use crate::crashes::{recorded, recorded_on};
use crate::judge::{Draw, Recording};
use marram_pmem::memory::recorded::Recorded;
use marram_sim::Random;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// States of each mode, threads and the first seed, if nothing else is asked for.
const STATES: u64 = 150;
const THREADS: u64 = 2;
const SEED: u64 = 1000;
/// Steps of a history, and most states between two of its fences.
const STEPS: u64 = 60;
const STATES_MAX: u64 = 40;
/// Checkpoints of a history, moments between two at which the power is cut, and cuts at each.
const PARTS: u64 = 8;
const MOMENTS: u64 = 8;
const CUTS: u64 = 3;

/// When what has returned is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Each,
    Epoch,
    Checkpoint,
}

impl Mode {
    const ALL: [Mode; 3] = [Mode::Each, Mode::Epoch, Mode::Checkpoint];

    fn name(self) -> &'static str {
        match self {
            Mode::Each => "each",
            Mode::Epoch => "epoch",
            Mode::Checkpoint => "checkpoint",
        }
    }

    /// Judges states of the history of a seed.
    fn run(self, seed: u64, visit: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        match self {
            Mode::Each => run_each(seed, visit),
            Mode::Epoch => run_epochs(seed, visit),
            Mode::Checkpoint => run_checkpoints(seed, visit),
        }
    }
}

fn run_each(seed: u64, visit: &mut dyn FnMut(&[u8])) -> Result<(), String> {
    let mut draw = Draw::new(seed, STATES_MAX, visit);
    let mut found = Ok(());
    recorded(seed, (STEPS, seed % 2 == 1), &mut |recording, what| {
        if found.is_ok() {
            let judged = recording.every_crash(&mut draw);
            found = judged.map(drop).map_err(|said| format!("{what}: {said}"));
        }
    });
    found
}

/// Each operation with the one that follows it.
fn run_epochs(seed: u64, visit: &mut dyn FnMut(&[u8])) -> Result<(), String> {
    let mut draw = Draw::new(seed, STATES_MAX, visit);
    let (mut found, mut last) = (Ok(()), None::<Recording>);
    let epoch = |medium: Recorded| Recorded::epoch(medium.image());
    recorded_on(&epoch, seed, (STEPS, seed % 2 == 1), &mut |recording, what| {
        if let (Ok(()), Some(last)) = (&found, &last) {
            let judged = last.every_crash_of_epochs(recording, &mut draw);
            found = judged.map(drop).map_err(|said| format!("{what}: {said}"));
        }
        let (before, events) = (recording.before.clone(), recording.events.clone());
        last = Some(Recording { before, events });
    });
    found
}

fn run_checkpoints(seed: u64, visit: &mut dyn FnMut(&[u8])) -> Result<(), String> {
    let (before, parts) = history(seed, PARTS);
    let (mut disk, mut random) = (Disk::new(before), Random::new(seed));
    let mut cuts = Cuts { moments: MOMENTS, states: CUTS, visit };
    let mut last = &parts[0].state;
    for (which, part) in parts.iter().enumerate() {
        let said = |said: String| format!("part {which}: {said}");
        for (events, allowed) in [
            (&part.operations[..], &[last][..]),
            (&part.checkpoint, &[last, &part.state]),
            (&[], &[&part.state]),
        ] {
            judge_cuts(&mut disk, events, allowed, &mut random, &mut cuts).map_err(said)?;
        }
        last = &part.state;
    }
    Ok(())
}

fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// What is known of one mode so far.
struct Campaign {
    mode: Mode,
    wanted: u64,
    seen: Mutex<HashSet<u64>>,
    /// The seed of the next history.
    next: AtomicU64,
    has_failed: AtomicBool,
}

impl Campaign {
    fn new(mode: Mode, wanted: u64, seed: u64) -> Campaign {
        let (seen, has_failed) = (Mutex::default(), AtomicBool::new(false));
        Campaign { mode, wanted, seen, next: AtomicU64::new(seed), has_failed }
    }

    fn seen(&self) -> u64 {
        self.seen.lock().unwrap().len() as u64
    }

    fn run(&self, seed: u64) -> Result<(), String> {
        let judged = self.mode.run(seed, &mut |image| {
            self.seen.lock().unwrap().insert(xxh3_64(image));
        });
        judged.map_err(|said| {
            self.has_failed.store(true, Ordering::Relaxed);
            format!("{}:{seed}: {said}", self.mode.name())
        })
    }

    /// Judges states of histories until there are enough.
    fn work(&self) -> Result<(), String> {
        while self.seen() < self.wanted && !self.has_failed.load(Ordering::Relaxed) {
            self.run(self.next.fetch_add(1, Ordering::Relaxed))?;
        }
        Ok(())
    }
}

/// The history that is to be run again, if one is.
fn replayed() -> Option<(Mode, u64)> {
    let id = std::env::var("MARRAM_PMEM_REPLAY").ok()?;
    let (mode, seed) = id.split_once(':').unwrap();
    let mode = Mode::ALL.into_iter().find(|known| known.name() == mode).unwrap();
    Some((mode, seed.parse().unwrap()))
}

#[test]
fn distinct_crash_states_of_each_mode_are_as_promised() {
    if let Some((mode, seed)) = replayed() {
        let campaign = Campaign::new(mode, 0, seed);
        campaign.run(seed).unwrap();
        println!("{}:{seed}: {} distinct states, no violation", mode.name(), campaign.seen());
        return;
    }
    let (wanted, seed) = (asked("MARRAM_PMEM_STATES", STATES), asked("MARRAM_PMEM_SEED", SEED));
    for mode in Mode::ALL {
        let (campaign, began) = (Campaign::new(mode, wanted, seed), Instant::now());
        std::thread::scope(|threads| {
            let working: Vec<_> = (0..asked("MARRAM_PMEM_THREADS", THREADS))
                .map(|_| threads.spawn(|| campaign.work()))
                .collect();
            working.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
        println!(
            "{}: {} distinct states of histories {seed} to {}, no violation, {:.1} s",
            mode.name(),
            campaign.seen(),
            campaign.next.load(Ordering::Relaxed) - 1,
            began.elapsed().as_secs_f64(),
        );
    }
}
