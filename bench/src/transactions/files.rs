//! Files that are replaced: all as one, or each by a temporary file, `fsync` and `rename`.

use super::row::{Row, Rows};
use super::{Scale, fresh_folder, measure_again};
use marram_client::Transaction;
use marram_lab::failure::{Context, Failure, Result};
use marram_lab::seed::Seed;
use marram_lab::subject::{Kind, Marram, Subject};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How many files are replaced together.
pub(super) const COUNTS: [usize; 5] = [1, 2, 10, 100, 1000];

/// How many transactions of small files are open at once.
pub(super) const AT_ONCE: [usize; 3] = [1, 8, 32];

/// Files of a small transaction.
const SMALL_FILES: usize = 10;

const FILE_BYTES: usize = 4096;

/// The case in which so many files are replaced.
pub(super) fn replaced(count: usize) -> String {
    format!("{count} files of 4 KiB replaced")
}

/// The case in which so many transactions of ten files are open at once.
pub(super) fn together(at_once: usize) -> String {
    format!("transactions of 10 small files, {at_once} at once")
}

/// Replaces files in transactions.
pub(super) fn as_one(marram: &Marram, scale: &Scale, rows: &mut Rows) -> Result<()> {
    let folder = fresh_folder(marram.root(), "as-one")?;
    let mut seed = Seed::new(1);
    for count in COUNTS {
        let row = Row::of(replaced(count), "marram, one transaction");
        let row = measure_again(marram, row, scale.duration, || {
            let content = seed.bytes(FILE_BYTES);
            let began = Instant::now();
            replace_as_one(&folder, count, &content)?;
            Ok(began.elapsed())
        })?;
        rows.add(row);
    }
    Ok(())
}

fn replace_as_one(folder: &Path, count: usize, content: &[u8]) -> Result<()> {
    let tx = Transaction::begin(folder).map_err(told)?;
    write_files(tx.directory(), count, content)?;
    tx.commit().map_err(told).map(|_| ())
}

/// Writes files that are there or not, anew.
fn write_files(directory: impl AsFd, count: usize, content: &[u8]) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    for number in 0..count {
        let name = format!("file-{number}");
        let file = openat(directory.as_fd(), name, flags, Mode::from(0o644))?;
        File::from(file).write_all(content)?;
    }
    Ok(())
}

fn told(error: marram_client::Error) -> Failure {
    Failure::new(error.to_string())
}

/// Replaces them each by a temporary file; names are made durable once, at the end.
pub(super) fn one_by_one(
    kind: Kind,
    subject: &dyn Subject,
    scale: &Scale,
    rows: &mut Rows,
) -> Result<()> {
    let folder = fresh_folder(subject.root(), "one-by-one")?;
    let mut seed = Seed::new(1);
    for count in COUNTS {
        let row = Row::of(replaced(count), format!("{}, fsync and rename each", kind.name()));
        let row = measure_again(subject, row, scale.duration, || {
            let content = seed.bytes(FILE_BYTES);
            let began = Instant::now();
            replace_each(&folder, count, &content)?;
            Ok(began.elapsed())
        })?;
        rows.add(row);
    }
    Ok(())
}

fn replace_each(folder: &Path, count: usize, content: &[u8]) -> Result<()> {
    for number in 0..count {
        let name = folder.join(format!("file-{number}"));
        let temporary = name.with_extension("new");
        let mut file = File::create(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, &name)?;
    }
    Ok(File::open(folder)?.sync_all()?)
}

/// Small transactions, several at once, and an append with `fdatasync` beside them.
pub(super) fn small(marram: &Marram, scale: &Scale, rows: &mut Rows) -> Result<()> {
    rows.add(append(marram, scale)?);
    for at_once in AT_ONCE {
        let folder = fresh_folder(marram.root(), &format!("small-{at_once}"))?;
        for number in 0..at_once {
            fresh_folder(&folder, &number.to_string())?;
        }
        marram.sync()?;
        let before = marram.traffic()?;
        let times = race(&folder, at_once, scale.duration)?;
        let row = Row::of(together(at_once), "marram, one transaction");
        rows.add(row.measured(times, before, marram.traffic()?)?);
    }
    Ok(())
}

fn append(marram: &Marram, scale: &Scale) -> Result<Row> {
    let mut seed = Seed::new(2);
    let mut file = File::create_new(marram.root().join("appended"))?;
    let row = Row::of(together(1), "marram, one append of 4 KiB, fdatasync");
    measure_again(marram, row, scale.duration, || {
        let content = seed.bytes(FILE_BYTES);
        let began = Instant::now();
        file.write_all(&content)?;
        file.sync_data()?;
        Ok(began.elapsed())
    })
}

/// Each thread has a folder and transactions of its own; how long each transaction took.
fn race(folder: &Path, at_once: usize, duration: Duration) -> Result<Vec<Duration>> {
    let barrier = Barrier::new(at_once);
    let one = |number: usize| -> Result<Vec<Duration>> {
        let folder = folder.join(number.to_string());
        let mut seed = Seed::new(number as u64);
        barrier.wait();
        let (end, mut times) = (Instant::now() + duration, Vec::new());
        while Instant::now() < end {
            let content = seed.bytes(FILE_BYTES);
            let began = Instant::now();
            replace_as_one(&folder, SMALL_FILES, &content)?;
            times.push(began.elapsed());
        }
        Ok(times)
    };
    let one = &one;
    let mut times = Vec::new();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..at_once).map(|number| scope.spawn(move || one(number))).collect();
        for thread in running {
            times.extend(thread.join().expect("no thread panics").context(|| "a transaction")?);
        }
        Ok(times)
    })
}

/// Changes so many files in a transaction, which is ready to commit.
pub(super) fn prepared(folder: &Path, count: usize, seed: &mut Seed) -> Result<Transaction> {
    let tx = Transaction::begin(folder).map_err(told)?;
    write_files(tx.directory(), count, &seed.bytes(FILE_BYTES))?;
    Ok(tx)
}

/// Commits it.
pub(super) fn commit(tx: Transaction) -> Result<()> {
    tx.commit().map_err(told).map(|_| ())
}
