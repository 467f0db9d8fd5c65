//! Random histories: the home does what the model does, and knows of its image what a scan finds.

use crate::images::{Cut, GRAIN, new_image, open};
use marram_model::Model;
use marram_pmem::memory::recorded::Recorded;
use marram_pmem::{Pmem, Which};
use marram_sim::{
    Answer, Generator, HistoryClock, Home, HomeCapabilities, HomeResult, Options, Outcome, Pair,
    Random, Report, run_history,
};
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

/// An image as a home of histories. It is looked through after each change of its datasets.
struct PmemHome {
    medium: Recorded,
    clock: Arc<dyn Clock>,
    /// None in the middle of a remount alone.
    files: Option<Arc<Pmem>>,
    remounts: u32,
}

fn said<T>(done: marram_vfs::Result<T>) -> HomeResult<T> {
    done.map_err(|error| error.to_string())
}

fn kept(snapshot: &str) -> Which<'_> {
    Which { dataset: "root", snapshot: Some(snapshot) }
}

impl PmemHome {
    fn new(bytes: usize, clock: Arc<HistoryClock>) -> PmemHome {
        clock.set_grain(GRAIN);
        let medium = new_image(bytes, &*clock);
        let files = Some(open(&medium, clock.clone()));
        PmemHome { medium, clock, files, remounts: 0 }
    }

    fn files(&self) -> &Arc<Pmem> {
        self.files.as_ref().unwrap()
    }

    fn audited<T>(&self, done: marram_vfs::Result<T>) -> HomeResult<T> {
        let done = said(done)?;
        said(self.files().audit())?;
        Ok(done)
    }
}

impl Home for PmemHome {
    fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(self.files()) as Arc<dyn FileSystem>
    }

    fn capabilities(&self) -> HomeCapabilities {
        HomeCapabilities { rollback: true, ..HomeCapabilities::default() }
    }

    /// Every other time the process is killed: everything is durable when its call returns.
    fn remount(&mut self) -> HomeResult<()> {
        self.remounts += 1;
        if self.remounts.is_multiple_of(2) {
            said(self.files().close())?;
        }
        self.files = None;
        self.files = Some(open(&self.medium, Arc::clone(&self.clock)));
        said(self.files().audit())
    }

    fn commit(&mut self) -> HomeResult<()> {
        self.audited(Ok(()))
    }

    fn snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.audited(self.files().snapshot("root", name))
    }

    fn open_snapshot(&self, name: &str) -> HomeResult<Arc<dyn FileSystem>> {
        Ok(Arc::new(said(self.files().open_other(kept(name)))?))
    }

    fn destroy_snapshot(&mut self, name: &str) -> HomeResult<()> {
        let free = || self.files().space().unwrap().free_bytes;
        let before = free();
        let gone = self.audited(self.files().destroy(&[kept(name)], false))?;
        if free() - before != gone.freed_bytes {
            return Err(format!("{gone:?}: {} bytes came back", free() - before));
        }
        Ok(())
    }

    fn roll_back(&mut self, snapshot: &str, keep: &str) -> Answer<()> {
        self.audited(self.files().roll_back("root", snapshot, keep)).map(Ok)
    }

    fn clone_snapshot(&mut self, snapshot: &str, clone: &str) -> HomeResult<Arc<dyn FileSystem>> {
        self.audited(self.files().clone_snapshot(kept(snapshot), clone))?;
        let clone = Which { dataset: clone, snapshot: None };
        Ok(Arc::new(said(self.files().open_other(clone))?))
    }

    fn destroy_clone(&mut self, clone: &str) -> HomeResult<()> {
        let clone = Which { dataset: clone, snapshot: None };
        self.audited(self.files().destroy(&[clone], false)).map(drop)
    }

    fn check(&mut self) -> HomeResult<()> {
        said(self.files().audit())
    }
}

fn histories(seeds: std::ops::Range<u64>, steps: usize, bytes: usize) -> Report {
    let mut sum = Report::default();
    for seed in seeds {
        let done = run_history(&Options::new(seed, steps), &|clock| {
            Ok(Box::new(PmemHome::new(bytes, clock)) as Box<dyn Home>)
        });
        sum.add(&done.unwrap_or_else(|failure| panic!("{failure}")));
    }
    println!("{sum:?}");
    sum
}

#[test]
fn snapshots_clones_and_rollbacks_are_what_the_model_says() {
    let sum = histories(0..12, 900, 16 << 20);
    let places = [sum.snapshots, sum.clones, sum.rollbacks, sum.remounts];
    assert!(places.iter().all(|count| *count >= 4), "{sum:?}");
}

#[test]
fn a_full_image_with_snapshots_refuses_and_stays_whole() {
    let sum = histories(100..108, 800, 1 << 20);
    assert!(sum.without_space > 20 && sum.snapshots > 5 && sum.done > 500, "{sum:?}");
}
