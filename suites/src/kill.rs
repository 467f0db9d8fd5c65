//! The daemon killed with SIGKILL at random moments, under loads that write down what is durable.
//!
//! A round runs one load, or two at once, chosen by the seed. Each load keeps a journal on the host
//! of what was acknowledged to it. After the kill the pool must be clean as it lies there, and be
//! mounted again at once and without repair over what is left of the dead mount. It must hold
//! everything that the journals say, and beside it nothing but what the load could have left at one
//! moment.
//!
//! A kill loses nothing that the daemon has written to its file, flushed or not: what a power cut
//! does is enumerated by `cargo xtask sim`. This shows the rest: that nothing is acknowledged which
//! is only in the daemon's memory, through the kernel and real programs.

mod append;
mod blocks;
mod database;
mod journal;
mod mail;
mod repository;
mod unpacking;

use super::{GIB, Setting, step};
use journal::Journal;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::seed::Seed;
use marram_lab::subject::{Making, Marram, Subject};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A mount after a crash takes no repair: this is far above what it needs and far below a scan.
const MOUNT_LIMIT: Duration = Duration::from_secs(5);

/// Rounds on one pool before it is made anew.
const ROUNDS_PER_POOL: u32 = 10;

/// The kill comes so long after the start of the loads.
const DELAY_MS: (u64, u64) = (100, 1_500);

/// How long a load may take to notice that its mount is gone.
const LOAD_LIMIT: Duration = Duration::from_secs(60);

/// What runs while the daemon is killed, and judges what is left.
trait Load: Sync {
    /// The name in what is printed, and of its folder.
    fn name(&self) -> &'static str;

    /// Works until the mount is gone, and notes in the journal what was acknowledged. An error
    /// after the kill is expected, one before it is a failure of the mount.
    fn work(&self, place: &Place, is_over: &AtomicBool) -> Result<()>;

    /// Fails unless all that was noted is there, and nothing that no moment could have left.
    fn judge(&self, place: &Place) -> Result<String>;
}

/// Where a load of a round works.
struct Place {
    /// On the mount, empty and durable.
    folder: PathBuf,
    /// On the host.
    journal: Journal,
    /// For what is random in the load.
    seed: u64,
}

/// All rounds.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let loads = loads()?;
    let mut seed = Seed::new(setting.seed);
    let mut slowest = Duration::ZERO;
    let mut number = 0;
    while number < setting.rounds {
        let folder = tempfile::tempdir_in(&setting.folder)?;
        let mut marram = Marram::make(&folder.path().join("subject"), &Making::sized(4 * GIB))?;
        for _ in 0..ROUNDS_PER_POOL.min(setting.rounds - number) {
            let took = Round::draw(&mut seed, number, folder.path(), &loads)
                .run(&mut marram)
                .context(|| format!("seed {} round {number}", setting.seed))?;
            slowest = slowest.max(took);
            number += 1;
        }
        marram.unmount()?;
        marram.check()?;
    }
    step(&format!("{number} rounds; the slowest mount took {} ms", slowest.as_millis()));
    Ok(())
}

/// Every load there is.
fn loads() -> Result<Vec<Box<dyn Load>>> {
    Ok(vec![
        Box::new(unpacking::Unpacking::new()?),
        Box::new(repository::Commits),
        Box::new(database::Inserts::new("delete")?),
        Box::new(database::Inserts::new("wal")?),
        Box::new(blocks::VerifiedFiles::new()?),
        Box::new(append::Appends),
        Box::new(mail::Delivery),
    ])
}

/// One kill.
struct Round<'a> {
    number: u32,
    delay: Duration,
    loads: Vec<&'a dyn Load>,
    seed: u64,
    /// On the host, for journals.
    host: &'a Path,
}

impl<'a> Round<'a> {
    fn draw(seed: &mut Seed, number: u32, host: &'a Path, all: &'a [Box<dyn Load>]) -> Self {
        let first = seed.index(all.len());
        let mut loads = vec![all[first].as_ref()];
        if seed.draw().is_multiple_of(2) {
            let other = (first + 1 + seed.index(all.len() - 1)) % all.len();
            loads.push(all[other].as_ref());
        }
        let delay = Duration::from_millis(seed.between(DELAY_MS.0, DELAY_MS.1));
        Self { number, delay, loads, seed: seed.draw(), host }
    }

    /// How long the mount after the kill took.
    fn run(&self, marram: &mut Marram) -> Result<Duration> {
        let places = self.places(marram.root())?;
        self.work_and_kill(marram, &places)?;
        marram.check().context(|| "after the kill")?;
        let start = Instant::now();
        marram.mount().context(|| "over the dead mount")?;
        let took = start.elapsed();
        let told = self.judge(&places)?;
        step(&format!(
            "round {}: killed after {} ms; {}; mounted in {} ms",
            self.number,
            self.delay.as_millis(),
            told.join("; "),
            took.as_millis()
        ));
        if took > MOUNT_LIMIT {
            return fail(format!("the mount after the kill took {took:?}"));
        }
        // The next round starts from a changed tree, and its kill may fall into these removals.
        if let Some(before) = self.number.checked_sub(1) {
            remove(&marram.root().join(folder_name(before)))?;
        }
        Ok(took)
    }

    /// A folder for each load, durable before the race starts.
    fn places(&self, root: &Path) -> Result<Vec<Place>> {
        let folder = root.join(folder_name(self.number));
        std::fs::create_dir(&folder)?;
        let mut places = Vec::new();
        for load in &self.loads {
            let place = folder.join(load.name());
            std::fs::create_dir(&place)?;
            let journal = format!("{}-{}.journal", self.number, load.name());
            let journal = Journal::make(self.host.join(journal))?;
            places.push(Place { folder: place, journal, seed: self.seed });
        }
        sync_folder(&folder)?;
        sync_folder(root)?;
        Ok(places)
    }

    fn work_and_kill(&self, marram: &mut Marram, places: &[Place]) -> Result<()> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let start = |(load, place): (&'a dyn Load, _)| {
                let is_over = &is_over;
                threads.spawn(move || match load.work(place, is_over) {
                    Err(_) if is_over.load(Ordering::SeqCst) => Ok(()),
                    result => result.context(|| format!("{}, before the kill", load.name())),
                })
            };
            let working: Vec<_> = self.loads.iter().copied().zip(places).map(start).collect();
            std::thread::sleep(self.delay);
            is_over.store(true, Ordering::SeqCst);
            let killed = marram.kill();
            let ended = working.into_iter().map(|load| load.join().expect("no load panics"));
            ended.collect::<Result<()>>().and(killed)
        })
    }

    fn judge(&self, places: &[Place]) -> Result<Vec<String>> {
        let judge = |(load, place): (&&dyn Load, &Place)| {
            let told = load.judge(place).context(|| load.name())?;
            Ok(format!("{}: {told}", load.name()))
        };
        self.loads.iter().zip(places).map(judge).collect()
    }
}

fn folder_name(round: u32) -> String {
    format!("round-{round}")
}

/// What `fsync` of a folder promises.
fn sync_folder(folder: &Path) -> Result<()> {
    Ok(std::fs::File::open(folder)?.sync_all()?)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() { Ok(std::fs::remove_dir_all(folder)?) } else { Ok(()) }
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// What is there for the number `number` of a load: different from every other number's.
fn content(seed: u64, number: u64, length: usize) -> Vec<u8> {
    Seed::new(seed ^ number.rotate_left(32)).bytes(length)
}
