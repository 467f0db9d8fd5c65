//! Threads that each write and sync, again and again, for a fixed time.

use super::case::{Case, Pattern};
use marram_lab::failure::Result;
use marram_lab::seed::Seed;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const BLOCK_BYTES: u64 = 4096;

/// The file that is overwritten, shared or by one thread alone.
const FILE_BYTES: u64 = 64 << 20;

/// The file of each of many threads.
const SMALL_FILE_BYTES: u64 = 8 << 20;

/// A folder with what the case needs.
pub(super) struct Prepared {
    folder: PathBuf,
}

/// Makes what the case needs before it starts.
pub(super) fn prepare(folder: &Path, case: Case) -> Result<Prepared> {
    let prepared = Prepared { folder: folder.to_owned() };
    let Case::Race(pattern, threads) = case else { return Ok(prepared) };
    for number in 0..threads {
        match pattern {
            Pattern::Overwrite if threads == 1 => write(&prepared.file(number), FILE_BYTES)?,
            Pattern::Overwrite => write(&prepared.file(number), SMALL_FILE_BYTES)?,
            Pattern::OverwriteShared if number == 0 => write(&prepared.file(0), FILE_BYTES)?,
            Pattern::Replace => std::fs::create_dir(prepared.own_folder(number))?,
            Pattern::Append | Pattern::OverwriteShared | Pattern::ReplaceShared => {}
        }
    }
    Ok(prepared)
}

fn write(path: &Path, size_bytes: u64) -> Result<()> {
    let mut file = File::create_new(path)?;
    let mut seed = Seed::new(0);
    for _ in 0..size_bytes >> 20 {
        file.write_all(&seed.bytes(1 << 20))?;
    }
    Ok(file.sync_all()?)
}

impl Prepared {
    fn file(&self, number: usize) -> PathBuf {
        self.folder.join(format!("file-{number}"))
    }

    fn own_folder(&self, number: usize) -> PathBuf {
        self.folder.join(format!("folder-{number}"))
    }
}

/// How long each acknowledged operation took.
pub(super) fn run(
    prepared: &Prepared,
    pattern: Pattern,
    threads: usize,
    duration: Duration,
) -> Result<Vec<Duration>> {
    let barrier = Barrier::new(threads);
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let start = |number| {
            let barrier = &barrier;
            scope.spawn(move || one_thread(prepared, pattern, number, barrier, duration))
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        for thread in running {
            times.extend(thread.join().expect("no thread panics")?);
        }
        Ok(times)
    })
}

fn one_thread(
    prepared: &Prepared,
    pattern: Pattern,
    number: usize,
    barrier: &Barrier,
    duration: Duration,
) -> Result<Vec<Duration>> {
    let worker = Worker::new(prepared, pattern, number);
    // A worker that failed must come here too, or the others would wait for ever.
    barrier.wait();
    let mut worker = worker?;
    let mut times = Vec::new();
    let end = Instant::now() + duration;
    loop {
        let start = Instant::now();
        if start >= end {
            return Ok(times);
        }
        worker.perform()?;
        times.push(start.elapsed());
    }
}

/// What a thread does again and again, and to which files.
enum Worker {
    Append { file: File, seed: Seed },
    Overwrite { file: File, size_bytes: u64, seed: Seed },
    Replace { folder: File, path: PathBuf, seed: Seed },
}

impl Worker {
    fn new(prepared: &Prepared, pattern: Pattern, number: usize) -> Result<Self> {
        let seed = Seed::new(number as u64 + 1);
        let (own, shared) = (prepared.file(number), prepared.file(0));
        Ok(match pattern {
            Pattern::Append => {
                let file = File::options().create_new(true).append(true).open(own)?;
                Self::Append { file, seed }
            }
            Pattern::Overwrite => Self::overwrite(&own, seed)?,
            Pattern::OverwriteShared => Self::overwrite(&shared, seed)?,
            Pattern::Replace => Self::replace(&prepared.own_folder(number), number, seed)?,
            Pattern::ReplaceShared => Self::replace(&prepared.folder, number, seed)?,
        })
    }

    fn overwrite(path: &Path, seed: Seed) -> Result<Self> {
        let file = File::options().write(true).open(path)?;
        let size_bytes = file.metadata()?.len();
        Ok(Self::Overwrite { file, size_bytes, seed })
    }

    fn replace(folder: &Path, number: usize, seed: Seed) -> Result<Self> {
        let path = folder.join(format!("name-{number}"));
        Ok(Self::Replace { folder: File::open(folder)?, path, seed })
    }

    /// Random bytes: nothing is won by compressing them.
    fn perform(&mut self) -> Result<()> {
        match self {
            Worker::Append { file, seed } => {
                file.write_all(&block(seed))?;
                file.sync_data()?;
            }
            Worker::Overwrite { file, size_bytes, seed } => {
                let at = seed.between(0, *size_bytes / BLOCK_BYTES) * BLOCK_BYTES;
                file.write_all_at(&block(seed), at)?;
                file.sync_data()?;
            }
            Worker::Replace { folder, path, seed } => {
                let temporary = path.with_extension("new");
                let mut file = File::create(&temporary)?;
                file.write_all(&block(seed))?;
                file.sync_all()?;
                std::fs::rename(&temporary, path)?;
                folder.sync_all()?;
            }
        }
        Ok(())
    }
}

fn block(seed: &mut Seed) -> Vec<u8> {
    seed.bytes(4096)
}
