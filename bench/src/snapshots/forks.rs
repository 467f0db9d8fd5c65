//! A thousand forks in use, beside one fork that does all of the same work.
//!
//! Two pools, filled alike, take turns: the same program works in a fork of its own in the one, and
//! in the only fork in the other. Then it works in each once more, when all have been written to.

use super::super::contender::{Contender, Pool};
use super::super::interruption;
use super::Scale;
use super::keeping::{self, median};
use super::spread::Spread;
use marram_lab::failure::{Result, fail};
use marram_lab::seed::Seed;
use marram_lab::subject::{Subject, peak_memory_bytes};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Files that a program writes, files of the tree that it changes, and those that it reads.
const WRITTEN: usize = 8;
const CHANGED: u64 = 4;
const READ: u64 = 16;
/// Bytes of a file that it writes: this, and twice as much, and so on.
const STEP_BYTES: usize = 4096;
/// Forks that are destroyed at the end.
const DESTROYED: u64 = 100;

/// What was measured.
pub(super) struct InUse {
    pub(super) alone: Side,
    pub(super) many: Side,
    /// How many times more the same work took among many, at first and again.
    pub(super) ratios: [Option<Spread>; 2],
}

/// One of the pools.
#[derive(Default)]
pub(super) struct Side {
    pub(super) forks: u64,
    /// Making the last of them, by the command and in the engine.
    pub(super) made: Duration,
    pub(super) made_engine: Duration,
    /// Bytes that each takes until it is written to, and all of the work in the end.
    pub(super) bytes_unwritten: u64,
    pub(super) bytes_of_work: u64,
    /// Milliseconds of the work in one fork, for the first time and again.
    pub(super) work: [Option<Spread>; 2],
    /// The most memory of the daemon, before the work and after it.
    pub(super) peak_bytes: [u64; 2],
    pub(super) destroyed: Duration,
}

/// Measures both.
pub(super) fn measure(folder: &Path, scale: &Scale) -> Result<InUse> {
    let mut pools = [
        Forked::make(&folder.join("alone"), scale, 1)?,
        Forked::make(&folder.join("many"), scale, scale.forks)?,
    ];
    let mut ratios = [None, None];
    for (pass, ratio) in ratios.iter_mut().enumerate() {
        let mut times = [Vec::new(), Vec::new()];
        for number in 0..scale.forks {
            interruption::check()?;
            let job = Job::new(number, format!("work-{pass}-{number}"));
            for which in if number % 2 == 0 { [0, 1] } else { [1, 0] } {
                times[which].push(pools[which].work(number, &job)?.as_secs_f64() * 1e3);
            }
        }
        let pairs = times[0].iter().zip(&times[1]);
        *ratio = Spread::of(pairs.map(|(alone, many)| many / alone).collect());
        for (pool, times) in pools.iter_mut().zip(times) {
            pool.told.work[pass] = Spread::of(times);
        }
    }
    let [alone, many] = pools;
    Ok(InUse { alone: alone.clear()?, many: many.clear()?, ratios })
}

/// A pool with its forks.
struct Forked {
    pool: Pool,
    used_bytes: u64,
    told: Side,
}

fn fork_name(number: u64) -> String {
    format!("fork-{number}")
}

impl Forked {
    fn make(folder: &Path, scale: &Scale, forks: u64) -> Result<Self> {
        let mut pool = Pool::make(folder, &scale.making())?;
        keeping::fill(pool.origin())?;
        let before = pool.used_bytes()?;
        let (mut commands, mut engines) = (Vec::new(), Vec::new());
        for number in 0..forks {
            interruption::check()?;
            let made = pool.fork(&fork_name(number))?;
            commands.push(made.command);
            engines.extend(made.engine);
        }
        let used_bytes = pool.used_bytes()?;
        let told = Side {
            forks,
            made: median(commands).unwrap_or_default(),
            made_engine: median(engines).unwrap_or_default(),
            bytes_unwritten: used_bytes.saturating_sub(before) / forks,
            peak_bytes: [peak(&pool)?; 2],
            ..Side::default()
        };
        println!("  {forks} forks, {} bytes each", told.bytes_unwritten);
        Ok(Self { pool, used_bytes, told })
    }

    /// How long the job of that number takes, in its fork or in the only one.
    fn work(&self, number: u64, job: &Job) -> Result<Duration> {
        let fork = self.pool.forked(&fork_name(number % self.told.forks));
        let began = Instant::now();
        job.run(&fork)?;
        Ok(began.elapsed())
    }

    /// What all of it took, and some forks destroyed. Nothing of the work is seen in the parent.
    fn clear(mut self) -> Result<Side> {
        let mut told = self.told;
        told.bytes_of_work = self.pool.used_bytes()?.saturating_sub(self.used_bytes);
        told.peak_bytes[1] = peak(&self.pool)?;
        if self.pool.origin().join("work-0-0").exists() {
            return fail("what was done in a fork is seen in its parent");
        }
        let mut times = Vec::new();
        for number in 0..told.forks.min(DESTROYED) {
            let began = Instant::now();
            self.pool.drop_fork(&fork_name(number))?;
            times.push(began.elapsed());
        }
        told.destroyed = median(times).unwrap_or_default();
        self.pool.end()?;
        Ok(told)
    }
}

fn peak(pool: &Pool) -> Result<u64> {
    pool.mount().daemon().map_or(Ok(0), peak_memory_bytes)
}

/// What a program is to do in a tree.
struct Job {
    /// The folder for its own files.
    folder: String,
    read: Vec<String>,
    changed: Vec<(String, Vec<u8>)>,
    written: Vec<Vec<u8>>,
}

impl Job {
    fn new(number: u64, folder: String) -> Self {
        let mut seed = Seed::new(number);
        let read = (0..READ).map(|_| keeping::file(seed.draw())).collect();
        let change = |_| (keeping::file(seed.draw()), seed.bytes(STEP_BYTES));
        let changed = (0..CHANGED).map(change).collect();
        let written = (1..=WRITTEN).map(|steps| seed.bytes(steps * STEP_BYTES)).collect();
        Self { folder, read, changed, written }
    }

    /// Reads what is there, changes some of it, writes files of its own, reads them back, and
    /// removes half of them. One file is synced.
    fn run(&self, tree: &Path) -> Result<()> {
        for name in &self.read {
            std::fs::read(tree.join(name))?;
        }
        for (name, content) in &self.changed {
            std::fs::write(tree.join(name), content)?;
        }
        let own = tree.join(&self.folder);
        std::fs::create_dir(&own)?;
        for (index, content) in self.written.iter().enumerate() {
            let (path, new) = (own.join(index.to_string()), own.join("new"));
            let mut file = File::create_new(&new)?;
            file.write_all(content)?;
            if index == 0 {
                file.sync_data()?;
            }
            std::fs::rename(&new, &path)?;
            if std::fs::read(&path)? != *content {
                return fail(format!("{} is not what was written", path.display()));
            }
            if index % 2 == 0 {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_leaves_half_of_what_it_wrote() {
        let folder = tempfile::tempdir().expect("a folder");
        keeping::fill(folder.path()).expect("filled");
        let job = Job::new(3, "own".to_owned());
        job.run(folder.path()).expect("it runs");
        let left = std::fs::read_dir(folder.path().join("own")).expect("listed").count();
        assert_eq!(left, WRITTEN / 2);
        let (name, content) = job.changed.last().expect("something is changed");
        assert_eq!(&std::fs::read(folder.path().join(name)).expect("read"), content);
    }
}
