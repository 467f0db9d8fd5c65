//! `cargo xtask bench`: our mount and its peers in one run, on preallocated images.
//!
//! Repetitions are interleaved (every subject once, then every subject again), so that a machine
//! that grows slower is slow for all. Each repetition has a fresh image. The report gives medians
//! with their spread, the durability level of each subject, ratios, and losses as losses.

mod plot;
mod report;
mod sample;
mod snapshots;
mod sync;
mod transport;
mod workload;

use crate::failure::{Context, Result, fail};
use crate::process::{command, run, text};
use crate::project;
use crate::setup;
use crate::subject::{self, Kind, Making};
use sample::{Measure, Samples};
use std::path::PathBuf;

const GIB: u64 = 1 << 30;

/// All subjects of a whole comparison.
const ALL: [Kind; 7] = [
    Kind::Marram,
    Kind::Ext4,
    Kind::Xfs,
    Kind::Btrfs,
    Kind::BtrfsZstd,
    Kind::ZfsFuse,
    Kind::Passthrough,
];

/// What is asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A part of the Linux tree, small files for fio, one repetition.
    #[arg(long)]
    quick: bool,
    /// What is done on the subjects.
    #[arg(long, value_enum, default_value = "tree")]
    workloads: Workloads,
    /// The last part of the report's name: `comparison`, or `sync`.
    #[arg(long)]
    name: Option<String>,
    /// What to compare; all if none is named.
    #[arg(long, value_enum, value_delimiter = ',')]
    subjects: Vec<Kind>,
    /// Repetitions: 3, or 1 when quick.
    #[arg(long)]
    repetitions: Option<usize>,
    /// More words for `marram create`, as in `-O compression=zstd:1`.
    #[arg(long, allow_hyphen_values = true, num_args = 1, value_delimiter = ' ')]
    create_words: Vec<String>,
    /// The folder for images and mounts (`target/bench`).
    #[arg(long)]
    work: Option<PathBuf>,
    /// Print the report, and write no files.
    #[arg(long)]
    dry: bool,
}

/// The comparisons that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Workloads {
    /// The Linux tree and one large file.
    Tree,
    /// What is synced: small writes, replaced files, SQLite; and mounts after a crash.
    Sync,
    /// Work beside thousands of snapshots and forks.
    Snapshots,
    /// Requests to a file system that does nothing, over each way that FUSE has.
    Transport,
}

impl Arguments {
    fn name_or(&self, usual: &str) -> String {
        self.name.clone().unwrap_or_else(|| usual.to_owned())
    }
}

/// What is measured and how large it is.
pub(crate) struct Scale {
    is_quick: bool,
    image_bytes: u64,
    fio_bytes: u64,
    repetitions: usize,
}

/// Runs the comparison and writes the report.
pub(crate) fn run_all(arguments: &Arguments) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return fail("the peers are mounted on loop devices: run it as root");
    }
    setup::install(&setup::BENCH_PACKAGES)?;
    match arguments.workloads {
        Workloads::Tree => run_tree(arguments),
        Workloads::Sync => sync::run_all(arguments),
        Workloads::Snapshots => snapshots::run_all(arguments),
        Workloads::Transport => transport::run_all(),
    }
}

fn run_tree(arguments: &Arguments) -> Result<()> {
    let scale = scale(arguments);
    let kinds = if arguments.subjects.is_empty() { &ALL[..] } else { &arguments.subjects };
    let mut samples = Samples::default();
    for repetition in 1..=scale.repetitions {
        for kind in kinds {
            println!("bench {}: repetition {repetition} of {}", kind.name(), scale.repetitions);
            one(*kind, arguments, &scale, &mut samples).context(|| kind.name())?;
        }
    }
    let page = report::page(&header(&scale)?, kinds, &samples);
    println!("{page}");
    if arguments.dry {
        return Ok(());
    }
    let svg = plot::draw(&panels(kinds, &samples));
    write_files(&arguments.name_or("comparison"), &page, &report::json(kinds, &samples)?, &svg)
}

/// The folder for images and mounts.
fn work_folder(arguments: &Arguments) -> Result<PathBuf> {
    let work = arguments.work.clone().unwrap_or_else(|| project::target().join("bench"));
    std::fs::create_dir_all(&work)?;
    Ok(work)
}

/// A panel a measure, a bar a subject.
fn panels(kinds: &[Kind], samples: &Samples) -> Vec<plot::Panel> {
    let panel = |measure: Measure| {
        let better = if measure.more_is_better() { "more is better" } else { "less is better" };
        let bar = |kind: &Kind| {
            let median = samples.spread(*kind, measure).map(|spread| spread.median);
            let value = median.map(|median| (median, measure.shown(median)));
            plot::Bar { name: kind.name(), is_ours: *kind == Kind::Marram, value }
        };
        let title = format!("{} ({better})", measure.title());
        plot::Panel { title, bars: kinds.iter().map(bar).collect() }
    };
    Measure::ALL.into_iter().map(panel).collect()
}

fn scale(arguments: &Arguments) -> Scale {
    let repetitions = arguments.repetitions.unwrap_or(if arguments.quick { 1 } else { 3 });
    let (image_bytes, fio_bytes) =
        if arguments.quick { (2 * GIB, 64 << 20) } else { (6 * GIB, GIB) };
    Scale { is_quick: arguments.quick, image_bytes, fio_bytes, repetitions }
}

/// One subject, made, measured, and taken away.
fn one(kind: Kind, arguments: &Arguments, scale: &Scale, samples: &mut Samples) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("bench").tempdir_in(work_folder(arguments)?)?;
    let making = Making {
        preallocate: true,
        create_words: arguments.create_words.clone(),
        ..Making::sized(scale.image_bytes)
    };
    let mut subject = subject::make(kind, folder.path(), &making)?;
    let measured = workload::measure(subject.as_mut(), scale)?;
    for (measure, value) in measured {
        println!("  {}: {}", measure.title(), measure.shown(value));
        samples.add(kind, measure, value);
    }
    drop(subject);
    drop(folder);
    // The host writes the last image back now, and not while the next subject is measured.
    run(&mut command(&["sync"]))
}

/// What the run was: machine, kernel, commit, sizes.
fn header(scale: &Scale) -> Result<Vec<(String, String)>> {
    let tree = if scale.is_quick { "a part of it, 10,000 files" } else { "whole, 80,000 files" };
    let mut rows = machine()?;
    let more = [
        ("tree", format!("Debian's linux-source-6.1, {tree}, from an uncompressed archive")),
        ("image", format!("{} GiB, preallocated, fresh each time", scale.image_bytes / GIB)),
        ("fio file", format!("{} MiB", scale.fio_bytes >> 20)),
        ("repetitions", format!("{}, interleaved", scale.repetitions)),
    ];
    rows.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Ok(rows)
}

/// Date, commit, kernel, processors.
fn machine() -> Result<Vec<(String, String)>> {
    let said = |words: &[&str]| text(command(words).current_dir(project::root()));
    let rows = [
        ("date", said(&["date", "-u", "+%Y-%m-%d %H:%M UTC"])?),
        ("commit", said(&["git", "rev-parse", "--short", "HEAD"]).unwrap_or("none".into())),
        ("kernel", said(&["uname", "-r"])?),
        ("processors", std::thread::available_parallelism()?.to_string()),
    ];
    Ok(rows.map(|(name, value)| (name.to_owned(), value)).into())
}

fn write_files(name: &str, page: &str, json: &str, svg: &str) -> Result<()> {
    let day = text(&mut command(&["date", "-u", "+%Y-%m-%d"]))?;
    let folder = project::root().join("bench/results");
    std::fs::create_dir_all(&folder)?;
    let base = folder.join(format!("{day}-{name}"));
    let plot_link = format!("\n![Each case]({day}-{name}.svg)\n");
    std::fs::write(base.with_extension("md"), format!("{page}{plot_link}"))?;
    std::fs::write(base.with_extension("json"), json)?;
    std::fs::write(base.with_extension("svg"), svg)?;
    println!("written: {}.md, .json, .svg", base.display());
    Ok(())
}
