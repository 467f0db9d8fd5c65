//! `cargo xtask bench`: our mount and its peers in one run, on preallocated images.
//!
//! Repetitions are interleaved (every subject once, then every subject again), so that a machine
//! that grows slower is slow for all. Each repetition has a fresh image. The report gives medians
//! with their spread, the durability level of each subject, ratios, and losses as losses.

mod plot;
mod report;
mod sample;
mod workload;

use crate::failure::{Context, Result, fail};
use crate::process::{command, run, text};
use crate::project;
use crate::setup;
use crate::subject::{self, Kind, Making};
use sample::Samples;
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
    /// The last part of the report's name.
    #[arg(long, default_value = "comparison")]
    name: String,
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
    if arguments.dry { Ok(()) } else { write(arguments, kinds, &samples, &page) }
}

fn scale(arguments: &Arguments) -> Scale {
    let repetitions = arguments.repetitions.unwrap_or(if arguments.quick { 1 } else { 3 });
    let (image_bytes, fio_bytes) =
        if arguments.quick { (2 * GIB, 64 << 20) } else { (6 * GIB, GIB) };
    Scale { is_quick: arguments.quick, image_bytes, fio_bytes, repetitions }
}

/// One subject, made, measured, and taken away.
fn one(kind: Kind, arguments: &Arguments, scale: &Scale, samples: &mut Samples) -> Result<()> {
    let work = arguments.work.clone().unwrap_or_else(|| project::target().join("bench"));
    std::fs::create_dir_all(&work)?;
    let folder = tempfile::Builder::new().prefix("bench").tempdir_in(&work)?;
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
    let said = |words: &[&str]| text(command(words).current_dir(project::root()));
    let processors = std::thread::available_parallelism()?.to_string();
    let commit = said(&["git", "rev-parse", "--short", "HEAD"]).unwrap_or_else(|_| "none".into());
    let tree = if scale.is_quick { "a part of it, 10,000 files" } else { "whole, 80,000 files" };
    let rows = [
        ("date", said(&["date", "-u", "+%Y-%m-%d %H:%M UTC"])?),
        ("commit", commit),
        ("kernel", said(&["uname", "-r"])?),
        ("processors", processors),
        ("tree", format!("Debian's linux-source-6.1, {tree}, from an uncompressed archive")),
        ("image", format!("{} GiB, preallocated, fresh each time", scale.image_bytes / GIB)),
        ("fio file", format!("{} MiB", scale.fio_bytes >> 20)),
        ("repetitions", format!("{}, interleaved", scale.repetitions)),
    ];
    Ok(rows.map(|(name, value)| (name.to_owned(), value)).into())
}

fn write(arguments: &Arguments, kinds: &[Kind], samples: &Samples, page: &str) -> Result<()> {
    let day = text(&mut command(&["date", "-u", "+%Y-%m-%d"]))?;
    let folder = project::root().join("bench/results");
    std::fs::create_dir_all(&folder)?;
    let base = folder.join(format!("{day}-{}", arguments.name));
    let plot = plot::draw(kinds, samples);
    let plot_link = format!("\n![Medians of each measure]({day}-{}.svg)\n", arguments.name);
    std::fs::write(base.with_extension("md"), format!("{page}{plot_link}"))?;
    std::fs::write(base.with_extension("json"), report::json(kinds, samples)?)?;
    std::fs::write(base.with_extension("svg"), plot)?;
    println!("written: {}.md, .json, .svg", base.display());
    Ok(())
}
