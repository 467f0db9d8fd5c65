//! The same seeded work on file systems that differ in one thing alone, in short rounds.
//!
//! In each round each way has one turn. Another way begins each round, and every other time around
//! the order is turned, so that none always comes behind the same. A turn ends with a commit that
//! is not timed: what it leaves to do is no part of the next one's turn.

use super::super::contender::Contender;
use super::super::interruption;
use super::keeping::{HELD, HELD_BYTES};
use super::spread::Spread;
use marram_lab::failure::{Result, fail};
use marram_lab::seed::Seed;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Small writes in a turn, commits, and the bytes of a large file.
const SYNCED_EACH: u32 = 100;
const COMMITS_EACH: u32 = 10;
const LARGE_BYTES: usize = 16 << 20;
const SMALL_BYTES: usize = 4096;

/// What is timed in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// 4 KiB somewhere in a file that all snapshots hold, `fdatasync`.
    Synced,
    /// Of 4 KiB there, and of a file that was made and removed.
    Commit,
    /// A new file.
    Large,
}

impl Work {
    pub(super) const ALL: [Work; 3] = [Work::Synced, Work::Commit, Work::Large];

    pub(super) fn title(self) -> &'static str {
        match self {
            Work::Synced => "4 KiB written and synced",
            Work::Commit => "a group commit",
            Work::Large => "16 MiB written and synced",
        }
    }
}

/// A place at the table: one folder on one file system.
pub(super) struct Seat<'run> {
    contender: &'run dyn Contender,
    folder: PathBuf,
    count: u64,
    held: File,
}

impl<'run> Seat<'run> {
    /// In a folder that has been filled; beside so many snapshots.
    pub(super) fn take(
        contender: &'run dyn Contender,
        folder: &Path,
        count: u64,
    ) -> Result<Seat<'run>> {
        let held = File::options().write(true).open(folder.join(HELD))?;
        Ok(Self { contender, folder: folder.to_owned(), count, held })
    }

    /// One turn: milliseconds of each work, each time that it was done.
    fn turn(&self, round: usize, large: &[u8]) -> Result<[(Work, f64); 3]> {
        let mut seed = Seed::new(round as u64);
        let content = seed.bytes(SMALL_BYTES);
        let write = |seed: &mut Seed| {
            let place = seed.between(0, HELD_BYTES / SMALL_BYTES as u64) * SMALL_BYTES as u64;
            self.held.write_all_at(&content, place)
        };
        let began = Instant::now();
        for _ in 0..SYNCED_EACH {
            write(&mut seed)?;
            self.held.sync_data()?;
        }
        let synced = began.elapsed() / SYNCED_EACH;
        let mut committing = Duration::ZERO;
        for _ in 0..COMMITS_EACH {
            write(&mut seed)?;
            let gone = self.folder.join("gone");
            File::create_new(&gone)?;
            std::fs::remove_file(&gone)?;
            let began = Instant::now();
            self.contender.commit()?;
            committing += began.elapsed();
        }
        let large = self.large(large)?;
        let times = [synced, committing / COMMITS_EACH, large].map(|time| time.as_secs_f64() * 1e3);
        Ok([(Work::Synced, times[0]), (Work::Commit, times[1]), (Work::Large, times[2])])
    }

    fn large(&self, content: &[u8]) -> Result<Duration> {
        let path = self.folder.join("large");
        let began = Instant::now();
        let mut large = File::create_new(&path)?;
        large.write_all(content)?;
        large.sync_all()?;
        let took = began.elapsed();
        drop(large);
        std::fs::remove_file(path)?;
        self.contender.commit()?;
        Ok(took)
    }
}

/// What was measured, round by round.
pub(super) struct Rounds {
    /// Beside so many snapshots, seat by seat; beside none at the first.
    counts: Vec<u64>,
    /// Milliseconds of each round.
    times: BTreeMap<(Work, usize), Vec<f64>>,
}

impl Rounds {
    pub(super) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// How many rounds there were.
    pub(super) fn len(&self) -> usize {
        self.times.values().map(Vec::len).min().unwrap_or(0)
    }

    #[cfg(test)]
    pub(super) fn of(counts: &[u64], times: impl Fn(Work, usize) -> Vec<f64>) -> Self {
        let seats = |work| (0..counts.len()).map(move |seat| (work, seat));
        let cells = Work::ALL.into_iter().flat_map(seats);
        let times = cells.map(|(work, seat)| ((work, seat), times(work, seat))).collect();
        Self { counts: counts.to_owned(), times }
    }

    /// Milliseconds at a seat.
    pub(super) fn times(&self, work: Work, seat: usize) -> Option<Spread> {
        Spread::of(self.times.get(&(work, seat))?.clone())
    }

    /// How many times more it took than beside none in the same round.
    pub(super) fn ratios(&self, work: Work, seat: usize) -> Option<Spread> {
        let (none, beside) = (self.times.get(&(work, 0))?, self.times.get(&(work, seat))?);
        Spread::of(none.iter().zip(beside).map(|(none, beside)| beside / none).collect())
    }
}

/// Every seat once in each round, as long as patience lasts.
pub(super) fn take_all(seats: &[Seat<'_>], rounds: usize, patience: Duration) -> Result<Rounds> {
    let commits = |seat: &Seat<'_>| seat.contender.commits();
    let before: Vec<Option<u64>> = seats.iter().map(commits).collect::<Result<_>>()?;
    let mut told =
        Rounds { counts: seats.iter().map(|seat| seat.count).collect(), times: BTreeMap::new() };
    let large = Seed::new(rounds as u64).bytes(LARGE_BYTES);
    let began = Instant::now();
    for round in 0..rounds {
        for seat in order(round, seats.len()) {
            interruption::check()?;
            for (work, milliseconds) in seats[seat].turn(round, &large)? {
                told.times.entry((work, seat)).or_default().push(milliseconds);
            }
        }
        if began.elapsed() > patience {
            break;
        }
    }
    println!("  {} rounds in {:.1} s", told.len(), began.elapsed().as_secs_f64());
    let wanted = told.len() as u64 * u64::from(COMMITS_EACH);
    for (seat, before) in seats.iter().zip(before) {
        expect_commits(before, commits(seat)?, wanted)?;
    }
    Ok(told)
}

/// What was timed as commits must have been some.
fn expect_commits(before: Option<u64>, after: Option<u64>, wanted: u64) -> Result<()> {
    match before.zip(after).map(|(before, after)| after - before) {
        Some(found) if found < wanted => {
            fail(format!("{found} group commits, and not {wanted}: something else was timed"))
        }
        _ => Ok(()),
    }
}

/// The order of the seats in a round.
fn order(round: usize, seats: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..seats).map(|seat| (seat + round) % seats).collect();
    if (round / seats) % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_comes_behind_everybody_equally_often() {
        let mut pairs = BTreeMap::new();
        for round in 0..6 {
            let order = order(round, 3);
            order.windows(2).for_each(|pair| {
                *pairs.entry((pair[0], pair[1])).or_insert(0) += 1;
            });
        }
        assert_eq!(pairs.len(), 6, "{pairs:?}");
        assert!(pairs.values().all(|times| *times == 2), "{pairs:?}");
    }

    #[test]
    fn a_machine_that_grows_slower_is_slow_for_all() {
        let none: Vec<f64> = (1..=9).map(f64::from).collect();
        let beside = none.iter().map(|time| time * 1.02).collect();
        let times = BTreeMap::from([((Work::Synced, 0), none), ((Work::Synced, 1), beside)]);
        let rounds = Rounds { counts: vec![0, 1000], times };
        let ratio = rounds.ratios(Work::Synced, 1).expect("rounds");
        assert!((ratio.high - 1.02).abs() < 1e-9 && (ratio.low - 1.02).abs() < 1e-9, "{ratio:?}");
    }

    #[test]
    fn what_was_no_commit_is_not_told_as_one() {
        assert!(expect_commits(Some(10), Some(20), 10).is_ok());
        assert!(expect_commits(Some(10), Some(19), 10).is_err());
        assert!(expect_commits(None, None, 10).is_ok());
    }
}
