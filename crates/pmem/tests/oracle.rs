//! Random histories: the home does what the model does, and knows of its image what a scan finds.

use crate::images::{Cut, new_image, open};
use marram_model::Model;
use marram_pmem::Pmem;
use marram_sim::{Generator, HistoryClock, Operation, Outcome, Pair, Random};
use marram_vfs::{Clock, FileSystem};
use std::sync::Arc;

/// Steps in a history.
const STEPS: u64 = 500;

/// What became of the steps of a history.
#[derive(Debug, Default)]
struct Sum {
    done: u64,
    refused: u64,
    without_space: u64,
    remounts: u64,
}

/// Runs the history of a seed on an image of so many bytes.
fn history(seed: u64, bytes: usize, sum: &mut Sum) {
    let steps = Arc::new(HistoryClock::default());
    let clock: Arc<dyn Clock> = Arc::new(Cut(Arc::clone(&steps)));
    let medium = new_image(bytes, &*clock);
    let mut files = open(&medium, Arc::clone(&clock));
    let mut pair =
        Pair::new(Arc::clone(&files) as Arc<dyn FileSystem>, Model::new(Arc::clone(&clock)));
    let (mut generator, mut random) = (Generator::new(seed), Random::new(seed ^ 0x5eed));
    for step in 1..=STEPS {
        steps.set(step);
        let operation = generator.draw();
        if matches!(operation, Operation::Seek { .. }) {
            // The home has no say in it: `compare` asks for the ends of each file.
            continue;
        }
        let context = || format!("seed {seed}, step {step}: {operation:?}");
        match pair.apply(&operation).map_err(|said| format!("{}: {said}", context())).unwrap() {
            Outcome::Done => sum.done += 1,
            Outcome::NoSpace => sum.without_space += 1,
            Outcome::Refused | Outcome::Lacking => sum.refused += 1,
        }
        if random.once_in(8) {
            audit(&files, &context);
        }
        if random.once_in(40) {
            sum.remounts += 1;
            pair.release();
            let closes = random.once_in(2);
            if closes {
                files.close().unwrap();
            }
            drop(files);
            files = open(&medium, Arc::clone(&clock));
            pair.forget_all();
            pair.resume(Arc::clone(&files) as Arc<dyn FileSystem>);
            audit(&files, &context);
        }
        if random.once_in(25) {
            pair.compare().map_err(|said| format!("{}: {said}", context())).unwrap();
        }
    }
    pair.compare().unwrap();
}

fn audit(files: &Pmem, context: &dyn Fn() -> String) {
    files.audit().map_err(|error| format!("{}: {error}", context())).unwrap();
}

#[test]
fn the_home_does_what_the_model_does() {
    let mut sum = Sum::default();
    for seed in 0..12 {
        history(seed, 64 << 20, &mut sum);
    }
    assert!(sum.without_space * 100 < sum.done, "{sum:?}");
    assert!(sum.done > 1_500 && sum.refused > 1_000 && sum.remounts > 50, "{sum:?}");
}

#[test]
fn a_full_image_refuses_and_stays_whole() {
    let mut sum = Sum::default();
    for seed in 100..108 {
        history(seed, 1 << 20, &mut sum);
    }
    assert!(sum.without_space > 20 && sum.done > 500, "{sum:?}");
}
