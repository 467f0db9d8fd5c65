//! `cargo xtask bench --workloads transactions`: what transactions cost, beside what programs do
//! for want of them, and how long others wait for a commit.
//!
//! Everything that is measured is durable when its time ends. `marram` lies on a loop device here,
//! as the peers do, so that bytes and flushes are the kernel's count for all of them.

mod commands;
mod files;
mod inserts;
mod report;
mod row;
mod waiting;

use super::{Arguments, GIB, interruption, plot};
use marram_lab::failure::{Context, Result};
use marram_lab::subject::{self, Kind, Making, Marram, Subject};
use row::{Row, Rows};
use std::path::Path;
use std::time::Duration;

/// The file systems beside which ours stands.
const PEERS: [Kind; 3] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs];

/// How much is done.
struct Scale {
    image_bytes: u64,
    /// Of each case that is done again and again.
    duration: Duration,
    repetitions: usize,
    /// Files of a large commit.
    large_files: usize,
    is_quick: bool,
}

/// Runs the comparison and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let quick = arguments.quick;
    let scale = Scale {
        image_bytes: if quick { 2 * GIB } else { 4 * GIB },
        duration: Duration::from_secs(if quick { 1 } else { 3 }),
        repetitions: arguments.repetitions.unwrap_or(if quick { 1 } else { 5 }),
        large_files: if quick { 200 } else { 1000 },
        is_quick: quick,
    };
    let mut rows = Rows::default();
    for repetition in 1..=scale.repetitions {
        println!("transactions: repetition {repetition} of {}", scale.repetitions);
        ours(arguments, &scale, &mut rows)?;
        for kind in PEERS {
            peer(kind, arguments, &scale, &mut rows).context(|| kind.name())?;
        }
        commands::unpack(arguments, &scale, &mut rows)?;
    }
    let header = header(&scale)?;
    let page = report::page(&header, &rows);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    let json = report::json(&header, &rows)?;
    let svg = plot::draw(&report::panels(&rows));
    super::write_files(&arguments.name_or("transactions"), &page, &json, &svg)
}

/// Our mount: with transactions, and by the means of the peers.
fn ours(arguments: &Arguments, scale: &Scale, rows: &mut Rows) -> Result<()> {
    with_marram(arguments, scale, |marram| {
        files::as_one(marram, scale, rows)?;
        files::one_by_one(Kind::Marram, marram, scale, rows)?;
        files::small(marram, scale, rows)?;
        waiting::measure(marram, scale, rows)?;
        inserts::ours(marram, rows)?;
        inserts::peer(Kind::Marram, marram, rows)?;
        commands::nothing(marram, scale, rows)
    })
}

fn peer(kind: Kind, arguments: &Arguments, scale: &Scale, rows: &mut Rows) -> Result<()> {
    let folder = folder(arguments)?;
    let subject = subject::make(kind, folder.path(), &making(scale))?;
    files::one_by_one(kind, subject.as_ref(), scale, rows)?;
    inserts::peer(kind, subject.as_ref(), rows)
}

/// Does it on a fresh pool, which is checked afterwards.
fn with_marram(
    arguments: &Arguments,
    scale: &Scale,
    measure: impl FnOnce(&Marram) -> Result<()>,
) -> Result<()> {
    let folder = folder(arguments)?;
    let mut marram = Marram::make_on_loop_device(folder.path(), &making(scale))?;
    measure(&marram)?;
    marram.unmount()?;
    marram.check()
}

fn folder(arguments: &Arguments) -> Result<tempfile::TempDir> {
    interruption::check()?;
    let work = super::work_folder(arguments)?;
    Ok(tempfile::Builder::new().prefix("transactions").tempdir_in(work)?)
}

fn making(scale: &Scale) -> Making {
    Making { preallocate: true, on_direct_loop: true, ..Making::sized(scale.image_bytes) }
}

/// Does `work` again and again for as long as it is said, at least three times, and says what that
/// cost. What is before the first is durable.
fn measure_again(
    subject: &dyn Subject,
    row: Row,
    duration: Duration,
    mut work: impl FnMut() -> Result<Duration>,
) -> Result<Row> {
    const TIMES_MIN: usize = 3;
    subject.sync()?;
    let before = subject.traffic()?;
    let mut times = Vec::new();
    let mut spent = Duration::ZERO;
    while times.len() < TIMES_MIN || spent < duration {
        interruption::check()?;
        let took = work()?;
        spent += took;
        times.push(took);
    }
    row.measured(times, before, subject.traffic()?)
}

/// An empty folder below the root of the mount.
fn fresh_folder(root: &Path, name: &str) -> Result<std::path::PathBuf> {
    let folder = root.join(name);
    std::fs::create_dir(&folder).context(|| folder.display())?;
    Ok(folder)
}

/// What the run was.
fn header(scale: &Scale) -> Result<Vec<(String, String)>> {
    let mut header = super::machine()?;
    let more = [
        ("image", format!("{} GiB, preallocated, on a loop device", scale.image_bytes / GIB)),
        ("each case", format!("{} s, at least three times", scale.duration.as_secs())),
        ("repetitions", format!("{}, interleaved", scale.repetitions)),
    ];
    header.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Ok(header)
}
