//! A year of use in a few minutes: files come and go, grow, are overwritten here and there or
//! replaced as a whole, while weekly snapshots are taken and dropped.
//!
//! One seed gives the same year on every file system. Each day ends with a sync, so that no file
//! system can gather a week's writes and lay them out as if they had come together.

use marram_lab::failure::{Context, Result};
use marram_lab::seed::Seed;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What chooses the year.
const SEED: u64 = 2026;
/// Days after which a snapshot is taken.
pub(super) const SNAPSHOT_DAYS: u64 = 7;
/// Snapshots that are kept.
pub(super) const SNAPSHOTS_KEPT: u64 = 2;
/// Bytes of noise that content is taken from.
const NOISE_BYTES: usize = 16 << 20;
/// Largest file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a page that a database writes.
const PAGE_BYTES: u64 = 4096;
/// Files that are written as databases are.
const DATABASES: usize = 4;
/// Pages that each of them writes in a day.
const PAGES_A_DAY: u64 = 24;
/// Files that grow in a day, by up to so many bytes each, in turns.
const GROWING: u64 = 8;
const GROWTH_BYTES: u64 = 48 << 10;
/// Files of which a part is overwritten in a day.
const PATCHED: u64 = 4;
const PATCH_BYTES: u64 = 32 << 10;
/// Files that are replaced as a whole in a day, and files that are new.
const REPLACED: u64 = 2;
const CREATED: u64 = 3;
/// Folders that the files are spread over.
const FOLDERS: u64 = 20;

/// The files of a year, and the chance that moves them.
pub(super) struct Year {
    root: PathBuf,
    seed: Seed,
    noise: Vec<u8>,
    /// Number and size of each file; the databases are the first.
    files: Vec<(u64, u64)>,
    next: u64,
    content_bytes: u64,
    /// Content is kept at this many bytes.
    wanted_bytes: u64,
}

impl Year {
    /// Fills a folder of an empty file system with files, one after the other.
    pub(super) fn begin(root: &Path, wanted_bytes: u64) -> Result<Year> {
        let mut seed = Seed::new(SEED);
        let mut year = Year {
            root: root.to_owned(),
            noise: seed.bytes(NOISE_BYTES),
            seed,
            files: Vec::new(),
            next: 0,
            content_bytes: 0,
            wanted_bytes,
        };
        for folder in 0..FOLDERS {
            std::fs::create_dir(root.join(format!("folder-{folder}")))?;
        }
        for _ in 0..DATABASES {
            year.create(FILE_BYTES_MAX / 2)?;
        }
        while year.content_bytes < wanted_bytes {
            let bytes = year.some_size();
            year.create(bytes)?;
        }
        Ok(year)
    }

    /// All files that there are, in the order in which they were made.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(number, _)| self.path(*number)).collect()
    }

    /// Bytes of all content.
    pub(super) fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Does what one day brings, without its sync.
    pub(super) fn day(&mut self) -> Result<()> {
        for database in 0..DATABASES {
            self.transact(database)?;
        }
        self.grow()?;
        for _ in 0..PATCHED {
            let (path, size) = self.some_file();
            let len = 1 + self.below(PATCH_BYTES.min(size));
            let at = self.below(size - len + 1);
            let content = self.some_noise(len);
            File::options().write(true).open(path)?.write_all_at(&content, at)?;
        }
        for _ in 0..REPLACED {
            self.replace()?;
        }
        for _ in 0..CREATED {
            let bytes = self.some_size();
            self.create(bytes)?;
        }
        while self.content_bytes > self.wanted_bytes {
            self.remove()?;
        }
        Ok(())
    }

    /// Pages of a database at random places, made durable half way and at the end.
    fn transact(&mut self, database: usize) -> Result<()> {
        let (number, size) = self.files[database];
        let file = File::options().write(true).open(self.path(number))?;
        for page in 0..PAGES_A_DAY {
            let at = self.below(size / PAGE_BYTES) * PAGE_BYTES;
            file.write_all_at(&self.some_noise(PAGE_BYTES), at)?;
            if page == PAGES_A_DAY / 2 {
                file.sync_data()?;
            }
        }
        Ok(file.sync_data()?)
    }

    /// Some files grow side by side, as logs do.
    fn grow(&mut self) -> Result<()> {
        let mut grown = Vec::new();
        for _ in 0..GROWING {
            let index = self.some_index();
            if self.files[index].1 + 3 * GROWTH_BYTES < FILE_BYTES_MAX {
                grown.push(index);
            }
        }
        for _turn in 0..3 {
            for index in &grown {
                let bytes = 1 + self.below(GROWTH_BYTES);
                let content = self.some_noise(bytes);
                let path = self.path(self.files[*index].0);
                File::options().append(true).open(path)?.write_all(&content)?;
                self.files[*index].1 += bytes;
                self.content_bytes += bytes;
            }
        }
        Ok(())
    }

    fn replace(&mut self) -> Result<()> {
        let index = self.some_index();
        let (number, size) = self.files[index];
        let (path, new) = (self.path(number), self.root.join("new"));
        self.fill(&new, size)?;
        Ok(std::fs::rename(new, path)?)
    }

    fn create(&mut self, bytes: u64) -> Result<()> {
        let number = self.next;
        self.next += 1;
        self.fill(&self.path(number), bytes)?;
        self.files.push((number, bytes));
        self.content_bytes += bytes;
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let index = self.some_index();
        let (number, size) = self.files.remove(index);
        self.content_bytes -= size;
        let path = self.path(number);
        std::fs::remove_file(&path).context(|| path.display())
    }

    /// Writes a new file, as programs do, in pieces.
    fn fill(&mut self, path: &Path, bytes: u64) -> Result<()> {
        let mut file = File::create_new(path).context(|| path.display())?;
        let mut left = bytes;
        while left > 0 {
            let piece = left.min(64 << 10);
            let content = self.some_noise(piece);
            file.write_all(&content)?;
            left -= piece;
        }
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        self.root.join(format!("folder-{}/file-{number}", number % FOLDERS))
    }

    /// Any file that is no database.
    fn some_index(&mut self) -> usize {
        let others = (self.files.len() - DATABASES) as u64;
        DATABASES + usize::try_from(self.below(others)).expect("an index fits memory")
    }

    fn some_file(&mut self) -> (PathBuf, u64) {
        let index = self.some_index();
        let (number, size) = self.files[index];
        (self.path(number), size)
    }

    /// Six of ten files are small, three are of medium size, one is large.
    fn some_size(&mut self) -> u64 {
        let (least, most) = match self.below(10) {
            0..6 => (1 << 10, 64 << 10),
            6..9 => (64 << 10, 1 << 20),
            _ => (1 << 20, FILE_BYTES_MAX),
        };
        least + self.below(most - least)
    }

    fn some_noise(&mut self, bytes: u64) -> Vec<u8> {
        let len = usize::try_from(bytes).expect("a piece fits memory");
        let at = self.below((NOISE_BYTES - len) as u64);
        let at = usize::try_from(at).expect("a place fits memory");
        self.noise[at..at + len].to_vec()
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.seed.between(0, limit)
    }
}
