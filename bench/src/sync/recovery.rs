//! How long a mount takes after a crash that left much in the log, for a small and a large pool.
//!
//! Group commits are put off as far as they can be, so that the log holds what was synced. The kill
//! comes at a random moment, several times, as the log is emptied whenever it is full; the slowest
//! mount is reported.

use super::super::interruption;
use marram_lab::failure::{Context, Result};
use marram_lab::seed::Seed;
use marram_lab::subject::{Making, Marram, Subject};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A pool's size and how much of it is filled: 10 MB, and 10 GB or in the quick form 1 GB.
const SMALL: (u64, u64) = (32 << 20, 10_000_000);
const LARGE: (u64, u64) = (12_000_000_000, 10_000_000_000);
const LARGE_QUICK: (u64, u64) = (12_000_000_000, 1_000_000_000);

const ROUNDS: u32 = 8;
const THREADS: usize = 4;

/// The kill comes so long after the start.
const DELAY_MS: (u64, u64) = (300, 2_500);

/// What a pool showed.
pub(super) struct Recovery {
    /// Its size.
    pub(super) pool_bytes: u64,
    /// How much was in it.
    pub(super) filled_bytes: u64,
    /// How many syncs were acknowledged before the kill, at most.
    pub(super) syncs: u64,
    /// The time of the mount after each kill.
    pub(super) mounts: Vec<Duration>,
}

impl Recovery {
    /// The slowest of them.
    pub(super) fn slowest(&self) -> Duration {
        self.mounts.iter().copied().max().unwrap_or_default()
    }
}

/// Both pools.
pub(super) fn measure(work: &Path, is_quick: bool) -> Result<Vec<Recovery>> {
    let (large, rounds) = if is_quick { (LARGE_QUICK, 2) } else { (LARGE, ROUNDS) };
    [SMALL, large].map(|(size, filled)| one_pool(work, size, filled, rounds)).into_iter().collect()
}

fn one_pool(work: &Path, size: u64, filled: u64, rounds: u32) -> Result<Recovery> {
    println!("sync: a mount after a crash, with {filled} bytes in a pool of {size}");
    let folder = tempfile::Builder::new().prefix("recovery").tempdir_in(work)?;
    let mount_words = vec!["-o".to_owned(), "commit=300".to_owned()];
    let making = Making { mount_words, ..Making::sized(size) };
    let mut marram = Marram::make(folder.path(), &making)?;
    fill(&marram.root().join("filling"), filled)?;
    let mut seed = Seed::new(size);
    let mut recovery =
        Recovery { pool_bytes: size, filled_bytes: filled, syncs: 0, mounts: Vec::new() };
    for _ in 0..rounds {
        interruption::check()?;
        let delay = Duration::from_millis(seed.between(DELAY_MS.0, DELAY_MS.1));
        let syncs = sync_and_kill(&mut marram, delay)?;
        let start = Instant::now();
        marram.mount().context(|| "after the kill")?;
        let took = start.elapsed();
        println!("  {syncs} syncs, killed, mounted in {} ms", took.as_millis());
        recovery.syncs = recovery.syncs.max(syncs);
        recovery.mounts.push(took);
    }
    marram.unmount()?;
    marram.check()?;
    Ok(recovery)
}

fn fill(path: &Path, bytes: u64) -> Result<()> {
    let chunk = Seed::new(bytes).bytes(1_000_000);
    let mut file = File::create(path)?;
    for _ in 0..bytes / 1_000_000 {
        interruption::check()?;
        file.write_all(&chunk)?;
    }
    Ok(file.sync_all()?)
}

/// How many syncs were acknowledged.
fn sync_and_kill(marram: &mut Marram, delay: Duration) -> Result<u64> {
    let is_over = AtomicBool::new(false);
    let syncs = AtomicU64::new(0);
    let root = marram.root().to_owned();
    std::thread::scope(|threads| {
        for thread in 0..THREADS {
            let (is_over, syncs, path) = (&is_over, &syncs, root.join(format!("log-{thread}")));
            threads.spawn(move || sync_until_over(&path, is_over, syncs));
        }
        std::thread::sleep(delay);
        is_over.store(true, Ordering::SeqCst);
        marram.kill()
    })?;
    Ok(syncs.load(Ordering::SeqCst))
}

/// Rewrites one small file: the pool must not run full. Ends with the mount.
fn sync_until_over(path: &Path, is_over: &AtomicBool, syncs: &AtomicU64) -> std::io::Result<()> {
    const BLOCKS: usize = 16;
    let mut seed = Seed::new(1);
    while !is_over.load(Ordering::SeqCst) {
        let mut file = File::create(path)?;
        for _ in 0..BLOCKS {
            file.write_all(&seed.bytes(4096))?;
            file.sync_data()?;
            syncs.fetch_add(1, Ordering::SeqCst);
        }
    }
    Ok(())
}
