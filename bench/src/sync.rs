//! `cargo xtask bench --workloads sync`: how fast what is synced is durable, and what it costs.
//!
//! Every subject runs every case for the same time, one after another, on a fresh preallocated
//! image; repetitions are interleaved. Beside the speed stands what reached the device for each
//! acknowledged operation: a subject that is fast by not flushing would show there.
//!
//! `marram` writes its file directly, as it is used; `marram-loop` goes through a loop device, as
//! the peers do. Both are held against the targets.

pub(super) mod case;
pub(super) mod inserts;
mod race;
mod recovery;
mod report;

use super::{Arguments, GIB, interruption, plot};
use case::{Case, Outcome, Outcomes};
use marram_lab::failure::{Context, Result};
use marram_lab::process::{command, run};
use marram_lab::project;
use marram_lab::subject::{self, Kind, Making, Subject};
use std::time::Duration;

/// All subjects of a whole comparison. Ours are the first two, and the last is no peer: it shows
/// what FUSE costs alone.
const ALL: [Kind; 7] = [
    Kind::Marram,
    Kind::MarramLoop,
    Kind::Ext4,
    Kind::Xfs,
    Kind::Btrfs,
    Kind::ZfsFuse,
    Kind::Passthrough,
];

/// Where each run takes place and for how long.
struct Scale {
    image_bytes: u64,
    duration: Duration,
    repetitions: usize,
}

/// Runs the comparison and writes the report.
pub(super) fn run_all(arguments: &Arguments) -> Result<()> {
    let quick = arguments.quick;
    let scale = Scale {
        image_bytes: if quick { GIB } else { 4 * GIB },
        duration: Duration::from_secs(if quick { 1 } else { 3 }),
        repetitions: arguments.repetitions.unwrap_or(if quick { 1 } else { 3 }),
    };
    let kinds = if arguments.subjects.is_empty() { &ALL[..] } else { &arguments.subjects };
    let mut outcomes = Outcomes::default();
    for repetition in 1..=scale.repetitions {
        for kind in kinds {
            println!("sync {}: repetition {repetition} of {}", kind.name(), scale.repetitions);
            one(*kind, arguments, &scale, &mut outcomes).context(|| kind.name())?;
        }
    }
    let recoveries = recovery::measure(&super::work_folder(arguments)?, quick)?;
    let header = header(&scale)?;
    let page = report::page(&header, kinds, &outcomes, &recoveries);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    let svg = plot::draw(&report::panels(kinds, &outcomes));
    let json = report::json(&header, kinds, &outcomes, &recoveries)?;
    super::write_files(&arguments.name_or("sync"), &page, &json, &svg)
}

/// One subject, made, measured, and taken away.
fn one(kind: Kind, arguments: &Arguments, scale: &Scale, outcomes: &mut Outcomes) -> Result<()> {
    let work = super::work_folder(arguments)?;
    let folder = tempfile::Builder::new().prefix("sync").tempdir_in(&work)?;
    let making = Making {
        preallocate: true,
        create_words: arguments.create_words.clone(),
        mount_words: super::transport_words(kind),
        ..Making::sized(scale.image_bytes)
    };
    let subject = subject::make(kind, folder.path(), &making)?;
    for case in Case::all() {
        let outcome = measure(subject.as_ref(), case, scale.duration).context(|| case.title())?;
        println!("  {}: {}", case.title(), outcome.shown());
        outcomes.add(kind, case, outcome);
    }
    drop(subject);
    drop(folder);
    // The host writes the last image back now, and not while the next subject is measured.
    run(&mut command(&["sync"]))
}

/// One case in a folder of its own; what was there before is durable, and is not counted.
fn measure(subject: &dyn Subject, case: Case, duration: Duration) -> Result<Outcome> {
    interruption::check()?;
    let folder = subject.root().join("case");
    std::fs::create_dir(&folder)?;
    let prepared = race::prepare(&folder, case)?;
    subject.sync()?;
    let before = subject.traffic()?;
    let (times, lasted) = match case {
        Case::Insert(mode) => {
            let times = inserts::run(&folder, mode, duration)?;
            let lasted = times.iter().sum();
            (times, lasted)
        }
        Case::Race(pattern, threads) => {
            (race::run(&prepared, pattern, threads, duration)?, duration)
        }
    };
    let after = subject.traffic()?;
    std::fs::remove_dir_all(&folder)?;
    Outcome::new(times, lasted, before, after)
}

/// What the run was.
fn header(scale: &Scale) -> Result<Vec<(String, String)>> {
    let seconds = scale.duration.as_secs();
    let mut rows = super::machine()?;
    let more = [
        ("image", format!("{} GiB, preallocated, fresh each time", scale.image_bytes / GIB)),
        ("each case", format!("{seconds} s")),
        ("repetitions", format!("{}, interleaved", scale.repetitions)),
        ("host of the images", host()?),
    ];
    rows.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Ok(rows)
}

/// The file system below the images.
pub(super) fn host() -> Result<String> {
    let mut find = command(&["findmnt", "--noheadings", "--output", "FSTYPE", "--target"]);
    marram_lab::process::text(find.arg(project::root()))
}
