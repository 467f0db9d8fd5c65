//! `cargo xtask crash`: the states that a power cut could leave, each mounted and compared.
//!
//! The explorer lives in crate `sim` (`crash`); this chore builds it with the profile `sim`
//! (optimised, every assertion and overflow check on). It ends with failure if there is any
//! violation, and each is printed with the command that replays it.
//!
//! With `--images` it is ext2 and ext3 images under each order of writes, and `e2fsck` that judges.
//!
//! With `--pmem` it is the pmem home in each of its modes: lines of a processor's cache, and pages
//! of the kernel's.
//!
//! With `--two-pools` it is transactions over two pools, with one order of all that is written.
//!
//! With `--programs` it is SQLite, git and mail scripts on a real mount that are cut off, and their
//! own checks that judge: `suites/examples/crash_programs`. Most of that time is theirs, so it is
//! built as tests are.

use crate::failure::Result;
use crate::process::{require, run_shown};
use crate::project;

/// How many distinct states if nobody says: of short workloads, of real programs, of images under
/// each order of writes, and of the pmem home in each mode.
const STATES: u64 = 50_000;
const PROGRAM_STATES: u64 = 600;
const IMAGE_STATES: u64 = 5000;
const PMEM_STATES: u64 = 10_000;
/// The same of two pools.
const TWO_POOLS_STATES: u64 = 10_000;

/// What is asked for on the command line. As it stands it does what CI does.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many distinct states; the long form is 1000000, of programs 20000.
    #[arg(long)]
    states: Option<u64>,
    /// Decides the order of workloads and all samples.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Real programs on a real mount: sqlite-rollback, sqlite-wal, git-fsync, git-default, mail.
    #[arg(long)]
    programs: bool,
    /// Ext2 and ext3 images under each order of writes, judged by e2fsck; the long form is 100000.
    #[arg(long, conflicts_with_all = ["programs", "interleaved", "workload", "replay", "bug"])]
    images: bool,
    /// With --images: only this order of writes: soft-updates, journal, journal-full,
    /// journal-writeback.
    #[arg(long, requires = "images")]
    order: Option<String>,
    /// The pmem home: so many states in each of its modes; the long form is 340000.
    #[arg(long, conflicts_with_all = ["programs", "images", "interleaved", "workload", "bug"])]
    pmem: bool,
    /// Transactions over two pools: so many states of both; the long form is 100000.
    #[arg(long, conflicts_with_all = ["programs", "images", "pmem", "interleaved", "workload"])]
    two_pools: bool,
    /// Only workloads in which commits, syncs and administrative operations are under way at once.
    #[arg(long, conflicts_with = "programs")]
    interleaved: bool,
    /// Only the states of this workload: small:rename-over+fsync+append, random:7:60,
    /// idiom:replace:7:10; with --programs, of this program.
    #[arg(long)]
    workload: Option<String>,
    /// Only this state, in full, as a violation printed it; with --pmem, a history: MODE:SEED.
    #[arg(long)]
    replay: Option<String>,
    /// Plant a bug in the engine: the explorer has to find it, and ends with failure.
    #[arg(long)]
    bug: Option<String>,
    /// With --programs: leave the offline verifier out, so that only their own checks judge.
    #[arg(long, requires = "programs")]
    no_verifier: bool,
}

/// Runs the campaign of images: a test of its crate, which takes fewer states by itself.
fn run_images(arguments: &Arguments) -> Result<()> {
    require(&[("mke2fs", "e2fsprogs"), ("e2fsck", "e2fsprogs")])?;
    let mut cargo = project::tests(&["--profile", "sim", "--package", "marram-ext2"]);
    cargo.args(["--test", "suite", "--", "campaign::distinct_crash_states_of_each_order"]);
    cargo.arg("--nocapture");
    for (name, value) in [
        ("MARRAM_EXT2_STATES", arguments.states.unwrap_or(IMAGE_STATES)),
        ("MARRAM_EXT2_SEED", arguments.seed),
        ("MARRAM_EXT2_THREADS", arguments.threads),
    ] {
        cargo.env(name, value.to_string());
    }
    if let Some(order) = &arguments.order {
        cargo.env("MARRAM_EXT2_ORDER", order);
    }
    run_shown(&mut cargo)
}

/// Runs the campaign of the pmem home, a test of its crate too.
fn run_pmem(arguments: &Arguments) -> Result<()> {
    let mut cargo = project::tests(&["--profile", "sim", "--package", "marram-pmem"]);
    cargo.args(["--test", "suite", "--", "campaign::distinct_crash_states_of_each_mode"]);
    cargo.arg("--nocapture");
    for (name, value) in [
        ("MARRAM_PMEM_STATES", arguments.states.unwrap_or(PMEM_STATES)),
        ("MARRAM_PMEM_SEED", arguments.seed),
        ("MARRAM_PMEM_THREADS", arguments.threads),
    ] {
        cargo.env(name, value.to_string());
    }
    if let Some(id) = &arguments.replay {
        cargo.env("MARRAM_PMEM_REPLAY", id);
    }
    run_shown(&mut cargo)
}

/// Runs the campaign of two pools, a test too.
fn run_two_pools(arguments: &Arguments) -> Result<()> {
    let mut cargo = project::tests(&["--profile", "sim", "--package", "marram-sim"]);
    cargo.args(["--test", "suite", "--", "two_pools::distinct_crash_states_of_two_pools"]);
    cargo.arg("--nocapture");
    for (name, value) in [
        ("MARRAM_TWO_POOLS_STATES", arguments.states.unwrap_or(TWO_POOLS_STATES)),
        ("MARRAM_TWO_POOLS_SEED", arguments.seed),
    ] {
        cargo.env(name, value.to_string());
    }
    run_shown(&mut cargo)
}

/// Runs the explorer.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.images {
        return run_images(arguments);
    }
    if arguments.pmem {
        return run_pmem(arguments);
    }
    if arguments.two_pools {
        return run_two_pools(arguments);
    }
    let mut program = if arguments.programs {
        require(&[("sqlite3", "sqlite3"), ("git", "git")])?;
        let mut program = project::example("marram-suites", "crash_programs", "dev");
        program.arg("--keep").arg(project::target().join("crash-programs"));
        if arguments.no_verifier {
            program.arg("--no-verifier");
        }
        program
    } else {
        project::example("marram-sim", "crash", "sim")
    };
    let states = if arguments.programs { PROGRAM_STATES } else { STATES };
    for (name, value) in [
        ("--states", arguments.states.unwrap_or(states)),
        ("--seed", arguments.seed),
        ("--threads", arguments.threads),
    ] {
        program.arg(name).arg(value.to_string());
    }
    if arguments.interleaved {
        program.args(["--interleaved", "true"]);
    }
    for (name, value) in [
        ("--workload", &arguments.workload),
        ("--replay", &arguments.replay),
        ("--bug", &arguments.bug),
    ] {
        if let Some(value) = value {
            program.args([name, value.as_str()]);
        }
    }
    run_shown(&mut program)
}
