//! `cargo xtask bench --workloads snapshots`: what work costs beside none, a thousand and ten
//! thousand snapshots, here, by Btrfs and by zfs-fuse; what a thousand forks in use cost beside
//! one; and what each snapshot and each fork costs.
//!
//! A run that measures beside none, and then beside more and more, compares a young file system
//! with an old one on a machine that has changed meanwhile. So there is a file system for each
//! number of snapshots; all are filled alike and take turns. zfs-fuse can live but once on a
//! machine: there a dataset with snapshots takes turns with a clone of it that has none.

mod commands;
mod forks;
mod keeping;
mod report;
mod spread;
mod turns;

use super::contender::{self, Contender, Pool, Way};
use super::{Arguments, curves, interruption, machine, work_folder, write_files};
use keeping::Kept;
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, run};
use marram_lab::subject::Making;
use report::{Contest, Report};
use std::path::Path;
use std::time::Duration;
use turns::Seat;

/// The subjects that can keep states by themselves.
const WAYS: [Way; 3] = [Way::Marram, Way::BtrfsSubvolume, Way::ZfsFuse];

/// How much of everything there is.
struct Scale {
    /// Work is measured beside so many snapshots; none comes first, and twice, to see what chance
    /// does.
    counts: &'static [u64],
    /// How many zfs-fuse is to take: each takes it longer than the others.
    zfs_count: u64,
    forks: u64,
    rounds: usize,
    /// Snapshots are taken, and turns, for at most so long each.
    patience: Duration,
    image_bytes: u64,
}

const WHOLE: Scale = Scale {
    counts: &[0, 0, 1_000, 10_000],
    zfs_count: 1_000,
    forks: 1_000,
    rounds: 100,
    patience: Duration::from_secs(75),
    image_bytes: 2 << 30,
};

const QUICK: Scale = Scale {
    counts: &[0, 0, 20, 60],
    zfs_count: 20,
    forks: 20,
    rounds: 3,
    patience: Duration::from_secs(5),
    image_bytes: 1 << 30,
};

impl Scale {
    /// Written once before: a sparse image would measure the host's allocator too.
    fn making(&self) -> Making {
        Making { preallocate: true, on_direct_loop: true, ..Making::sized(self.image_bytes) }
    }
}

/// Measures all ways, one after the other, and then the forks; the report is written after each.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let scale = if arguments.quick { QUICK } else { WHOLE };
    let mut header = machine()?;
    let word = if arguments.quick { "quick: too small to judge by" } else { "whole" };
    header.push(("scale".to_owned(), word.to_owned()));
    let mut report = Report::new(header, scale.patience);
    for way in WAYS {
        part(arguments, &mut report, way.name(), |folder, report| match way {
            Way::Marram => ours(folder, &scale, report),
            Way::ZfsFuse => with_a_clone(folder, &scale, report),
            _ => peers(way, folder, &scale, report),
        })?;
    }
    part(arguments, &mut report, "forks in use", |folder, report| {
        report.forks = Some(forks::measure(folder, &scale)?);
        Ok(())
    })?;
    println!("\n{}", report.page());
    match report.failures.len() {
        0 => Ok(()),
        count => fail(format!("{count} failures, listed at the head of the report")),
    }
}

/// A part of it in a folder of its own. One that fails is reported, and the others go on.
fn part(
    arguments: &Arguments,
    report: &mut Report,
    name: &str,
    measure: impl FnOnce(&Path, &mut Report) -> Result<()>,
) -> Result<()> {
    println!("{name}");
    let work = work_folder(arguments)?;
    let folder = tempfile::Builder::new().prefix("snapshots").tempdir_in(work)?;
    if let Err(failure) = measure(folder.path(), report) {
        println!("  FAILED: {failure}");
        report.failures.push(format!("{name}: {failure}"));
    }
    drop(folder);
    // The host writes the last images back now, and not while the next ones are measured.
    run(&mut command(&["sync"]))?;
    interruption::check()?;
    if arguments.dry {
        return Ok(());
    }
    let plots = curves::draw(&report.plots());
    write_files(&arguments.name_or("snapshots"), &report.page(), &report.json()?, &plots)
}

/// A pool for each number of snapshots; and what commands on them cost.
fn ours(folder: &Path, scale: &Scale, report: &mut Report) -> Result<()> {
    let make = |seat: usize| Pool::make(&folder.join(seat.to_string()), &scale.making());
    let mut pools: Vec<Pool> = (0..scale.counts.len()).map(make).collect::<Result<_>>()?;
    let contenders = pools.iter_mut().map(|pool| pool as &mut dyn Contender).collect();
    let contest = contest(Way::Marram, contenders, scale)?;
    let counts = contest.rounds.counts().to_owned();
    report.contests.push(contest);
    report.commands = commands::measure(&pools, &counts)?;
    pools.iter_mut().try_for_each(Pool::end)
}

/// A file system for each number of snapshots.
fn peers(way: Way, folder: &Path, scale: &Scale, report: &mut Report) -> Result<()> {
    let make = |seat: usize| contender::make(way, &folder.join(seat.to_string()), &scale.making());
    let mut all: Vec<_> = (0..scale.counts.len()).map(make).collect::<Result<_>>()?;
    let contenders = all.iter_mut().map(|peer| peer.as_mut() as &mut dyn Contender).collect();
    report.contests.push(contest(way, contenders, scale)?);
    all.iter_mut().try_for_each(|peer| peer.end())
}

/// Each is filled, and keeps as many snapshots as it is to have; then they take turns.
fn contest(way: Way, contenders: Vec<&mut dyn Contender>, scale: &Scale) -> Result<Contest> {
    let (mut filled, mut bytes_each, mut kept) = (Vec::new(), Vec::new(), Kept::default());
    for (contender, wanted) in contenders.into_iter().zip(scale.counts) {
        keeping::fill(contender.origin())?;
        contender.settle()?;
        kept = keeping::keep(contender, *wanted, scale.patience)?;
        bytes_each.extend(kept.bytes_of_each());
        filled.push((kept.count(), &*contender));
    }
    let mut seats = Vec::new();
    for (count, contender) in filled {
        seats.push(Seat::take(contender, contender.origin(), count)?);
    }
    let rounds = turns::take_all(&seats, scale.rounds, scale.patience)?;
    Ok(Contest { way, kept, bytes_each, rounds })
}

/// zfs-fuse: a dataset with snapshots, and a clone of it that has none.
fn with_a_clone(folder: &Path, scale: &Scale, report: &mut Report) -> Result<()> {
    const CLONE: &str = "none";
    let way = Way::ZfsFuse;
    let mut peer = contender::make(way, folder, &scale.making())?;
    keeping::fill(peer.origin())?;
    peer.settle()?;
    peer.fork(CLONE)?;
    let kept = keeping::keep(peer.as_mut(), scale.zfs_count, scale.patience)?;
    let clone = peer.forked(CLONE);
    let seats = [
        Seat::take(peer.as_ref(), &clone, 0)?,
        Seat::take(peer.as_ref(), peer.origin(), kept.count())?,
    ];
    let rounds = turns::take_all(&seats, scale.rounds, scale.patience)?;
    drop(seats);
    let bytes_each = kept.bytes_of_each().into_iter().collect();
    report.contests.push(Contest { way, kept, bytes_each, rounds });
    peer.drop_fork(CLONE)?;
    peer.end()
}
