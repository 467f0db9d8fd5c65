//! What is done, the same in both places, and how fast it was.
//!
//! Every step counts what it did and how long that took, and ends early rather than late. Writes
//! end with a sync inside the measured time. Before reads of a large file its pages are given back
//! to the kernel, as far as anybody without privileges can: the disk's and the host's caches stay.

use crate::error::{Error, Result};
use rustix::fs::{Advice, fadvise, syncfs};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The longest that a step does something.
pub(super) const STEP_SECONDS_MAX: u64 = 5;
/// The most that a place holds at once.
pub(super) const WRITTEN_BYTES_MAX: u64 = LARGE_BYTES + 2 * FILES * FILE_BYTES as u64;

const FILES: u64 = 2_000;
const FILES_EACH: u64 = 100;
const FILE_BYTES: usize = 4_096;
const LARGE_BYTES: u64 = 128 << 20;
const CHUNK_BYTES: usize = 1 << 20;
const BLOCK_BYTES: usize = 4_096;
const BLOCKS: u64 = 4_000;
const LINES: u64 = 1_000;
const LINE: [u8; 80] = [b'x'; 80];

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    CreateSmall,
    Stat,
    ReadSmall,
    Remove,
    WriteLarge,
    ReadLarge,
    WriteRandom,
    ReadRandom,
    AppendSynced,
}

/// All of them, in their order.
pub(super) const ALL: [Step; 9] = [
    Step::CreateSmall,
    Step::Stat,
    Step::ReadSmall,
    Step::Remove,
    Step::WriteLarge,
    Step::ReadLarge,
    Step::WriteRandom,
    Step::ReadRandom,
    Step::AppendSynced,
];

impl Step {
    /// In words.
    pub(super) fn title(self) -> &'static str {
        match self {
            Step::CreateSmall => "make files of 4 KiB, sync",
            Step::Stat => "ask for their attributes",
            Step::ReadSmall => "read them",
            Step::Remove => "remove them, sync",
            Step::WriteLarge => "write 1 MiB after 1 MiB, fsync",
            Step::ReadLarge => "read 1 MiB after 1 MiB",
            Step::WriteRandom => "write 4 KiB at random, fsync",
            Step::ReadRandom => "read 4 KiB at random",
            Step::AppendSynced => "append 80 bytes, each synced",
        }
    }

    /// What its rate counts.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Step::WriteLarge | Step::ReadLarge => "MiB/s",
            _ => "a second",
        }
    }

    /// How often it does something, at most.
    fn count(self) -> u64 {
        match self {
            Step::CreateSmall | Step::Stat | Step::ReadSmall | Step::Remove => FILES,
            Step::WriteLarge | Step::ReadLarge => LARGE_BYTES / CHUNK_BYTES as u64,
            Step::WriteRandom | Step::ReadRandom => BLOCKS,
            Step::AppendSynced => LINES,
        }
    }
}

/// Does all steps in `folder`, which is empty before and after; returns the rates, in their order.
pub(super) fn run(folder: &Path, interrupted: &AtomicBool) -> Result<Vec<f64>> {
    let failed = |error| Error::system("race in", folder, error);
    let place = Place { folder, interrupted, made: std::cell::Cell::new(0) };
    for number in 0..FILES / FILES_EACH {
        std::fs::create_dir(folder.join(number.to_string())).map_err(failed)?;
    }
    let mut rates = Vec::new();
    for step in ALL {
        rates.push(place.measure(step).map_err(failed)?);
    }
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let gone = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        gone.map_err(failed)?;
    }
    Ok(rates)
}

/// Where a step is done.
struct Place<'race> {
    folder: &'race Path,
    interrupted: &'race AtomicBool,
    /// Small files that are there: fewer where the time was up before all were made.
    made: std::cell::Cell<u64>,
}

impl Place<'_> {
    fn small(&self, number: u64) -> PathBuf {
        self.folder.join(format!("{}/file-{number}", number / FILES_EACH))
    }

    fn large(&self) -> PathBuf {
        self.folder.join("large")
    }

    /// Does a step, and tells how many of its things it did in a second.
    fn measure(&self, step: Step) -> std::io::Result<f64> {
        let mut worker = self.worker(step)?;
        let (start, mut done) = (Instant::now(), 0);
        let limit = Duration::from_secs(STEP_SECONDS_MAX);
        let needs_files = matches!(step, Step::Stat | Step::ReadSmall | Step::Remove);
        let count = if needs_files { self.made.get() } else { step.count() };
        while done < count && start.elapsed() < limit {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(std::io::Error::other("interrupted"));
            }
            worker(done)?;
            done += 1;
        }
        match step {
            Step::CreateSmall => {
                self.made.set(done);
                syncfs(File::open(self.folder)?)?;
            }
            Step::Remove => syncfs(File::open(self.folder)?)?,
            Step::WriteLarge | Step::WriteRandom => File::open(self.large())?.sync_all()?,
            _ => {}
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }

    /// What a step does again and again.
    fn worker(
        &self,
        step: Step,
    ) -> std::io::Result<Box<dyn FnMut(u64) -> std::io::Result<()> + '_>> {
        Ok(match step {
            Step::CreateSmall => {
                let content = content(FILE_BYTES);
                Box::new(move |number| File::create_new(self.small(number))?.write_all(&content))
            }
            Step::Stat => Box::new(|number| std::fs::metadata(self.small(number)).map(drop)),
            Step::ReadSmall => Box::new(|number| std::fs::read(self.small(number)).map(drop)),
            Step::Remove => Box::new(|number| std::fs::remove_file(self.small(number))),
            Step::WriteLarge => {
                let mut file = File::create(self.large())?;
                let content = content(CHUNK_BYTES);
                Box::new(move |_| file.write_all(&content))
            }
            Step::ReadLarge => {
                let mut file = self.cold()?;
                let mut buffer = vec![0; CHUNK_BYTES];
                Box::new(move |_| file.read(&mut buffer).map(drop))
            }
            Step::WriteRandom => {
                let file = File::options().write(true).open(self.large())?;
                let (content, blocks) = (content(BLOCK_BYTES), self.blocks()?);
                Box::new(move |number| file.write_all_at(&content, offset(number, blocks)))
            }
            Step::ReadRandom => {
                let (file, blocks) = (self.cold()?, self.blocks()?);
                let mut buffer = [0; BLOCK_BYTES];
                Box::new(move |number| file.read_exact_at(&mut buffer, offset(number, blocks)))
            }
            Step::AppendSynced => {
                let path = self.folder.join("log");
                let mut log = File::options().create(true).append(true).open(path)?;
                Box::new(move |_| {
                    log.write_all(&LINE)?;
                    log.sync_data()
                })
            }
        })
    }

    /// The large file, with none of it in the kernel's cache.
    fn cold(&self) -> std::io::Result<File> {
        let file = File::open(self.large())?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
        Ok(file)
    }

    /// Blocks of the large file: fewer where the time was up before all were written.
    fn blocks(&self) -> std::io::Result<u64> {
        Ok((std::fs::metadata(self.large())?.len() / BLOCK_BYTES as u64).max(1))
    }
}

/// Where the block of this number goes: anywhere, and the same in both places.
fn offset(number: u64, blocks: u64) -> u64 {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    (number + 1).wrapping_mul(SPREAD) % blocks * BLOCK_BYTES as u64
}

/// Bytes of which a compressor takes away about half, as of most files.
fn content(len_bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut byte = |index: usize| {
        if (index / 64).is_multiple_of(2) {
            return b'-';
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len_bytes).map(&mut byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_rate_and_nothing_is_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let rates = run(folder.path(), &AtomicBool::new(false)).expect("a race");
        assert_eq!(rates.len(), ALL.len());
        assert!(rates.iter().all(|rate| *rate > 0.0), "{rates:?}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0);
    }

    #[test]
    fn an_interrupted_race_ends_with_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = run(folder.path(), &AtomicBool::new(true)).expect_err("it was interrupted");
        assert!(error.to_string().contains("interrupted"), "{error}");
    }

    #[test]
    fn random_offsets_stay_inside_the_file() {
        assert!((0..BLOCKS).all(|number| offset(number, 7) < 7 * BLOCK_BYTES as u64));
    }
}
