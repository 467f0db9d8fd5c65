//! `cargo xtask bench`: our mount and its peers in one run, on preallocated images.
//!
//! Repetitions are interleaved (every subject once, then every subject again), so that a machine
//! that grows slower is slow for all. Each repetition has a fresh image. The report gives medians
//! with their spread, the durability level of each subject, ratios, and losses as losses.

mod cluster_local;
mod contender;
mod curves;
mod growth;
mod hosts;
mod interruption;
mod kabi;
mod layout;
mod library;
mod patches;
mod plot;
mod pmem;
mod race;
mod rates;
mod requests;
mod scale;
mod sheet;
mod snapshots;
mod stages;
mod sync;
mod transactions;
mod transactions_in_library;
mod transport;
mod versions;

use clap::Parser;
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, text};
use marram_lab::project;
use marram_lab::setup;
use marram_lab::subject::Kind;
use race::Group;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

const GIB: u64 = 1 << 30;

/// What is asked for on the command line.
#[derive(Parser)]
#[command(
    name = "bench",
    bin_name = "cargo xtask bench",
    about = "Compare with other file systems"
)]
struct Arguments {
    /// Less of everything, one repetition: to see that it works, not to judge by.
    #[arg(long)]
    quick: bool,
    /// What is done on the subjects; several groups of the race are one race.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "race")]
    workloads: Vec<Workloads>,
    /// The last part of the report's name: `race`, or `sync`.
    #[arg(long)]
    name: Option<String>,
    /// What to compare; all if none is named.
    #[arg(long, value_enum, value_delimiter = ',')]
    subjects: Vec<Kind>,
    /// Repetitions: 5 of the race and cluster-local, 1 of hosts and 3 of the others, or 1 when
    /// quick; rounds of kabi.
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
    /// All groups from `tree` to `slow`.
    Race,
    /// The Linux tree: unpack, read, grep, copy, git status, remove.
    Tree,
    /// 10,000 small files with content: create, read, remove.
    Small,
    /// 10,000 to 1,000,000 empty files: create, stat, unlink.
    Files,
    /// PostMark in three configurations.
    Postmark,
    /// dbench, fs_mark, Bonnie++.
    Tools,
    /// fio: 4 KiB, 64 KiB, 1 MiB, in order and at random, 1 to 8 jobs.
    Blocks,
    /// 20,000 synced appends of 80 bytes, read back.
    Log,
    /// SQLite and pgbench.
    Databases,
    /// cargo, make, npm, pip.
    Builds,
    /// Records of 256 KiB to 2 MiB by files by writers.
    Records,
    /// A device that is held to 100 MB/s.
    Slow,
    /// What is synced: small writes, replaced files, SQLite; and mounts after a crash.
    Sync,
    /// Work beside up to 10,000 snapshots and in 1,000 forks, and what each of these costs.
    Snapshots,
    /// Work on some files beside 10,000 to 10,000,000 others.
    Growth,
    /// Fork, snapshot, rollback, diff and merge of trees of 1,000 to 2,000,000 files.
    Scale,
    /// How files lie after a year of use, and once they have been brought together.
    Layout,
    /// Requests to a file system that does nothing, over each way that FUSE has.
    Transport,
    /// What each use of the kernel's caches saves, in requests.
    Requests,
    /// Small files in the library, without FUSE, beside ext4 through system calls.
    Library,
    /// Transactions of programs and of commands, beside what programs do for their want.
    Transactions,
    /// The pmem home in the library: figure 3.8 of the thesis, snapshots, operations beside tmpfs.
    Pmem,
    /// Patches of an image in the library: table 2.10 of the thesis.
    Patches,
    /// Ext2 and ext3 images under each order of writes, beside fuse2fs and the kernel.
    Images,
    /// Transactions in the library, beside files that are replaced one by one.
    TransactionsInLibrary,
    /// What a snapshot takes after inserts: tables 5.2 to 5.4 of the thesis Kabi.
    Kabi,
    /// A home between hosts behind delay links, beside sshfs and JuiceFS.
    Hosts,
    /// PostMark on a home of this machine: the local rows of table 5.1 of the thesis Kabi.
    ClusterLocal,
    /// 50 versions of a tree, a mailbox, a database, an image: bytes stored and sent.
    Versions,
}

impl Workloads {
    /// The groups of the race that it stands for.
    fn groups(self) -> &'static [Group] {
        match self {
            Workloads::Race => &Group::ALL,
            Workloads::Tree => &[Group::Tree],
            Workloads::Small => &[Group::Small],
            Workloads::Files => &[Group::Files],
            Workloads::Postmark => &[Group::Postmark],
            Workloads::Tools => &[Group::Tools],
            Workloads::Blocks => &[Group::Blocks],
            Workloads::Log => &[Group::Log],
            Workloads::Databases => &[Group::Databases],
            Workloads::Builds => &[Group::Builds],
            Workloads::Records => &[Group::Records],
            Workloads::Slow => &[Group::Slow],
            Workloads::Images => &[Group::Images],
            Workloads::Sync
            | Workloads::Snapshots
            | Workloads::Growth
            | Workloads::Layout
            | Workloads::Scale
            | Workloads::Transport
            | Workloads::Requests
            | Workloads::Library
            | Workloads::Transactions
            | Workloads::TransactionsInLibrary
            | Workloads::Patches
            | Workloads::Kabi
            | Workloads::Hosts
            | Workloads::ClusterLocal
            | Workloads::Versions
            | Workloads::Pmem => &[],
        }
    }
}

impl Arguments {
    fn name_or(&self, usual: &str) -> String {
        self.name.clone().unwrap_or_else(|| usual.to_owned())
    }
}

fn main() -> ExitCode {
    match run_all(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the comparisons and writes the reports.
fn run_all(arguments: &Arguments) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return fail("the peers are mounted on loop devices: run it as root");
    }
    day()?;
    setup::install(&setup::BENCH_PACKAGES)?;
    interruption::listen()?;
    let mut groups: Vec<Group> = Vec::new();
    for group in arguments.workloads.iter().flat_map(|workloads| workloads.groups()) {
        if !groups.contains(group) {
            groups.push(*group);
        }
    }
    if !groups.is_empty() {
        race::run_all(arguments, &groups)?;
    }
    for workloads in &arguments.workloads {
        match workloads {
            Workloads::Sync => sync::run_all(arguments)?,
            Workloads::Snapshots => snapshots::run_all(arguments)?,
            Workloads::Growth => growth::run_all(arguments)?,
            Workloads::Scale => scale::run_all(arguments)?,
            Workloads::Layout => layout::run_all(arguments)?,
            Workloads::Transport => transport::run_all()?,
            Workloads::Requests => requests::run_all(arguments)?,
            Workloads::Library => library::run_all(arguments)?,
            Workloads::Transactions => transactions::run_all(arguments)?,
            Workloads::TransactionsInLibrary => transactions_in_library::run_all(arguments)?,
            Workloads::Pmem => pmem::run_all(arguments)?,
            Workloads::Patches => patches::run_all(arguments)?,
            Workloads::Kabi => kabi::run_all(arguments)?,
            Workloads::Hosts => hosts::run_all(arguments)?,
            Workloads::ClusterLocal => cluster_local::run_all(arguments)?,
            Workloads::Versions => versions::run_all(arguments)?,
            _ => {}
        }
    }
    Ok(())
}

/// More words for the mount of a subject: where io_uring has a line of its own, the other line of
/// ours is what every kernel has.
fn transport_words(kind: Kind) -> Vec<String> {
    match kind {
        Kind::Marram
        | Kind::MarramLoop
        | Kind::MarramWriteback
        | Kind::Pmem
        | Kind::Sqlite
        | Kind::ImageSoft
        | Kind::ImageJournal
        | Kind::ImageJournalFull
        | Kind::ImageJournalWriteback
        | Kind::ImageAsync => ["-o", "transport=classic"].map(String::from).into(),
        _ => Vec::new(),
    }
}

/// The folder for images and mounts.
fn work_folder(arguments: &Arguments) -> Result<PathBuf> {
    let work = arguments.work.clone().unwrap_or_else(|| project::target().join("bench"));
    std::fs::create_dir_all(&work)?;
    Ok(work)
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

/// The day on which this run began: what is written again after midnight keeps its name.
fn day() -> Result<&'static str> {
    static DAY: OnceLock<String> = OnceLock::new();
    if let Some(day) = DAY.get() {
        return Ok(day);
    }
    let today = text(&mut command(&["date", "-u", "+%Y-%m-%d"]))?;
    Ok(DAY.get_or_init(|| today))
}

fn write_files(name: &str, page: &str, json: &str, svg: &str) -> Result<()> {
    let day = day()?;
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
