//! `cargo xtask ci`, which `make test` and CI call: every check there is, in the order of its cost.
//!
//! Stages that draw from a space without end (histories, crash states, faults, inputs of decoders,
//! loads on a mount) have two slices. The short ones are chosen by what they find: all stages
//! together take at most half an hour on two slow processors after the build, which is one for
//! all of them. The long ones, `--long`, take hours.
//!
//! Nothing is skipped silently: a stage either runs or fails, except that runs on real mounts are
//! left out, loudly, where the machine has no `/dev/fuse`.

use crate::failure::{Context, Result, fail};
use crate::process::{command, is_installed, run_shown};
use crate::watchdog::Watchdog;
use crate::{project, setup, tests, tidy};
use std::path::Path;
use std::time::{Duration, Instant};

/// The profile with which CI builds all that it runs: one build, optimised and with every check.
const PROFILE: &str = "sim";

/// What leaves out of all builds what only a second one or a debugger would use.
const LEAN: [(&str, &str); 3] = [
    ("CARGO_INCREMENTAL", "0"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_SIM_DEBUG", "0"),
];

/// The version of cargo-deny that is installed where none is.
const DENY_VERSION: &str = "0.20.2";

/// The longest that a stage of the short slice may take. Each takes less than half of it.
const STAGE_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The longest that all stages of the short slice may take.
const LIMIT: Duration = Duration::from_secs(80 * 60);

/// Scripts on real mounts that the short slice leaves out: each takes minutes, most of them for
/// programs and trees that are fetched and unpacked first.
const LONG_SCRIPTS: [&str; 12] = [
    "build",
    "dax",
    "image-copies",
    "image-orders",
    "inside",
    "isolation",
    "linux-tree-parallel",
    "many",
    "packages",
    "postgres",
    "rsync",
    "stress",
];

/// How much of a stage is done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slice {
    Short,
    Long,
}

impl Slice {
    /// What the slice does of something.
    fn of<T>(self, short: T, long: T) -> T {
        match self {
            Slice::Short => short,
            Slice::Long => long,
        }
    }
}

/// What is asked for on the command line.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Stages to run; all if none is named.
    stages: Vec<String>,
    /// The long slices of `sim`, `crash`, `faults`, `fuzz` and `real`: hours, for a quiet night.
    #[arg(long)]
    long: bool,
}

/// A stage: its name and what it does.
type Stage = (&'static str, fn(Slice) -> Result<()>);

const STAGES: [Stage; 14] = [
    ("packages", |_| packages()),
    ("fmt", |_| fmt()),
    ("tidy", |_| tidy::check()),
    ("clippy", |_| clippy()),
    ("deny", |_| deny()),
    ("doc", |_| doc()),
    ("build", |_| build()),
    ("test", |_| test()),
    ("release", release),
    ("sim", sim),
    ("crash", crash),
    ("faults", faults),
    ("fuzz", fuzz_slice),
    ("real", real),
];

/// Runs the stages, and stops at the first that fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let is_known = |name: &String| STAGES.iter().any(|(stage, _)| stage == name);
    if let Some(unknown) = arguments.stages.iter().find(|name| !is_known(name)) {
        let names: Vec<&str> = STAGES.iter().map(|(name, _)| *name).collect();
        return fail(format!("no stage `{unknown}`; there are {}", names.join(", ")));
    }
    let wanted = |name: &str| {
        arguments.stages.is_empty() || arguments.stages.iter().any(|wanted| wanted == name)
    };
    let slice = if arguments.long { Slice::Long } else { Slice::Short };
    let _all = (slice == Slice::Short).then(|| Watchdog::over("ci", LIMIT));
    let mut done = Vec::new();
    for (name, stage) in STAGES.iter().filter(|(name, _)| wanted(name)) {
        println!("ci {name}");
        let _stage =
            (slice == Slice::Short).then(|| Watchdog::over(&format!("ci {name}"), STAGE_LIMIT));
        let start = Instant::now();
        if let Err(failure) = stage(slice) {
            println!("ci {name}: FAILED: {failure}");
            println!("ci: {} passed, 1 failed", done.len());
            return fail(format!("stage {name} failed"));
        }
        done.push((*name, start.elapsed()));
        println!("ci {name}: ok, {:.1} s", start.elapsed().as_secs_f64());
    }
    let times: Vec<String> =
        done.iter().map(|(name, took)| format!("{name} {:.0} s", took.as_secs_f64())).collect();
    println!("ci times: {}", times.join(", "));
    println!("ci: {} passed, 0 failed", done.len());
    Ok(())
}

fn cargo(words: &[&str]) -> Result<()> {
    run_shown(project::cargo(words).envs(LEAN))
}

fn packages() -> Result<()> {
    setup::install(&setup::RUN_PACKAGES)?;
    setup::install(&setup::TEST_PACKAGES)?;
    setup::install_mongodb_server()?;
    setup::install_bucket_server()?;
    let missing = setup::TEST_PROGRAMS.iter().filter(|(program, _)| !is_installed(program));
    setup::install(&missing.map(|(_, package)| *package).collect::<Vec<_>>())
}

fn fmt() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["fmt", "--check", "--manifest-path", "fuzz/Cargo.toml"])
}

fn clippy() -> Result<()> {
    let warnings = ["--", "--deny", "warnings"];
    let words = ["clippy", "--quiet", "--locked", "--workspace", "--all-targets"];
    cargo(&[&words[..], &warnings[..]].concat())
}

/// Licences, bans and sources; the database of advisories cannot be reached from everywhere.
fn deny() -> Result<()> {
    if !is_installed("cargo-deny") {
        let package = format!("cargo-deny@{DENY_VERSION}");
        println!("installing {package}: this takes some minutes, once");
        // It runs for a second, and takes three times as long to be optimised as to be built.
        cargo(&["install", "--quiet", "--locked", "--debug", &package])
            .context(|| "cargo-deny is missing and cannot be installed")?;
    }
    let quiet = ["deny", "--log-level", "error"];
    let checks = ["check", "licenses", "bans", "sources"];
    cargo(&[&quiet[..], &checks[..]].concat())
}

fn doc() -> Result<()> {
    let mut cargo = project::cargo(&["doc", "--quiet", "--locked", "--workspace", "--no-deps"]);
    run_shown(cargo.envs(LEAN).env("RUSTDOCFLAGS", "--deny warnings"))
}

/// The one build of all programs, examples and tests.
fn build() -> Result<()> {
    let all = ["--workspace", "--tests", "--bins", "--examples"];
    cargo(&[&["build", "--quiet", "--locked", "--profile", PROFILE][..], &all].concat())
}

/// All tests; root also runs those that need root.
fn test() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return tests::run(PROFILE, &["--quiet", "--include-ignored"], &LEAN);
    }
    println!("SKIPPED, NOT TESTED: the tests that need root (`#[ignore = \"needs root\"]`)");
    tests::run(PROFILE, &["--quiet"], &LEAN)
}

/// What `make install` builds. The short slice leaves it out: it differs from the one build in
/// optimisation alone.
fn release(slice: Slice) -> Result<()> {
    match slice {
        Slice::Short => Ok(()),
        Slice::Long => cargo(&["build", "--quiet", "--locked", "--release", "--package", "marram"]),
    }
}

/// Random histories against the model: 100,000 steps, or 1,000,000; and of forks that are merged
/// and updated again and again 20,000, or 100,000.
fn sim(slice: Slice) -> Result<()> {
    chore(slice, &["sim", "--steps", "2000", "--histories", slice.of("50", "500")])?;
    chore(slice, &["sim", "--branches", "--steps", "400", "--histories", slice.of("50", "250")])
}

/// One in ten runs of the campaign of faults, or every one.
fn faults(slice: Slice) -> Result<()> {
    chore(slice, &["faults", "--every", slice.of("10", "1")])
}

/// 50,000 states that a power cut could leave, 500 of images under each order of writes, 2,000 of
/// the pmem home in each mode, and 400 of real programs; or 1,000,000, 100,000, 340,000 and 20,000.
fn crash(slice: Slice) -> Result<()> {
    chore(slice, &["crash", "--states", slice.of("50000", "1000000"), "--seed", "1"])?;
    chore(slice, &["crash", "--images", "--states", slice.of("500", "100000"), "--seed", "1"])?;
    chore(slice, &["crash", "--pmem", "--states", slice.of("17000", "340000"), "--seed", "1"])?;
    if !can_mount() {
        println!("SKIPPED, NOT TESTED: no /dev/fuse, so no program was cut off on a mount");
        return Ok(());
    }
    chore(slice, &["crash", "--programs", "--states", slice.of("400", "20000"), "--seed", "1"])
}

/// Every kept input of each target once, and then as many new ones as the seconds allow.
fn fuzz_slice(slice: Slice) -> Result<()> {
    chore(slice, &["fuzz", "--seconds", slice.of("2", "600"), "--jobs", "2"])
}

/// The short form of scripts on a real mount: all but the longest, or all.
fn real(slice: Slice) -> Result<()> {
    if !can_mount() {
        println!("SKIPPED, NOT TESTED: no /dev/fuse on this machine, so nothing ran on a mount");
        return Ok(());
    }
    match slice {
        Slice::Long => chore(slice, &["real", "--short", "all"]),
        Slice::Short => {
            let without = LONG_SCRIPTS.join(",");
            chore(slice, &["real", "--short", "all", "--without", &without])
        }
    }
}

fn can_mount() -> bool {
    Path::new("/dev/fuse").exists()
}

/// Another chore of this program, as a user would type it; the short slice on the one build.
fn chore(slice: Slice, words: &[&str]) -> Result<()> {
    let program = std::env::current_exe()?;
    let mut chore = command(&[&program.to_string_lossy()]);
    if slice == Slice::Short {
        build()?;
        chore.envs(LEAN).env("MARRAM_BUILT", project::target().join(PROFILE));
    }
    run_shown(chore.args(words))
}
