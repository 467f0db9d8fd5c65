//! `cargo xtask real`: programs that nobody here wrote, on a real mount of the release binary.
//!
//! Each script makes its own subject in its own folder, checks everything that it can see with
//! plain eyes (bytes, names, modes, times), and leaves nothing behind, whether it passes or fails.
//! `--on ext4` runs the same script on a file system that is known to be good: what fails there is
//! the script's fault.

mod accepted;
mod acl;
mod build;
mod copies;
mod dax;
mod differential;
mod examples;
mod fio;
mod folding;
mod forks;
mod fsx;
mod full;
mod git;
mod inside;
mod isolation;
mod kill;
mod linux_tree;
mod many;
mod mount_tools;
mod mounts;
mod orders;
mod overlay;
mod packages;
mod picture;
mod pjdfstest;
mod pmem;
mod postgres;
mod postgres_home;
mod quota;
mod rsync;
mod runs;
mod same;
mod sizes;
mod sqlite;
mod stress;
mod team;
mod transactions;
mod tree;
mod user;

use clap::{Parser, Subcommand};
use marram_lab::failure::{Result, fail};
use marram_lab::inputs::{LinuxTree, linux_tree};
use marram_lab::project;
use marram_lab::subject::{self, Kind, Making, Subject};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const GIB: u64 = 1 << 30;

#[derive(Parser)]
#[command(name = "suites", bin_name = "cargo xtask")]
struct Request {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run real programs on a real mount of the release binary.
    Real(Arguments),
    /// Record the terminal pictures of the documents.
    Picture {
        /// Only those of these examples, as `all-or-nothing`.
        examples: Vec<String>,
    },
}

/// Which scripts are to run, and how.
#[derive(clap::Args)]
struct Arguments {
    /// Scripts to run; `all` for every one, `list` to see them.
    #[arg(required = true)]
    scripts: Vec<String>,
    /// Scripts to leave out.
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// What to run on.
    #[arg(long, value_enum, default_value = "marram")]
    on: Kind,
    /// A short form of each script, for CI.
    #[arg(long)]
    short: bool,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds of `kill` and `pmem-kill`: 500, or 20 and 10 when short.
    #[arg(long)]
    rounds: Option<u32>,
    /// Transactions of `isolation`: 5,000, or 300 when short.
    #[arg(long)]
    transactions: Option<u64>,
    #[command(flatten)]
    sizes: sizes::Sizes,
    /// The folder for images and mounts (`target/real`).
    #[arg(long)]
    work: Option<PathBuf>,
}

/// What a script is given.
struct Setting {
    kind: Kind,
    is_short: bool,
    seed: u64,
    rounds: u32,
    transactions: u64,
    sizes: sizes::Sizes,
    /// An empty folder of the script's own.
    folder: PathBuf,
}

impl Setting {
    /// A mounted subject of this size.
    fn subject(&self, size_bytes: u64) -> Result<Box<dyn Subject>> {
        subject::make(self.kind, &self.folder.join("subject"), &Making::sized(size_bytes))
    }

    /// The long or the short form of a number.
    fn scaled(&self, long: u64, short: u64) -> u64 {
        if self.is_short { short } else { long }
    }

    /// Fails unless the script runs on Marram, because it needs Marram's own commands.
    fn marram_only(&self) -> Result<()> {
        match self.kind {
            Kind::Marram => Ok(()),
            kind => fail(format!("this script runs on marram only, not on {}", kind.name())),
        }
    }
}

/// A script: its name, what it shows, and how.
struct Script {
    name: &'static str,
    shows: &'static str,
    run: fn(&Setting) -> Result<()>,
}

const SCRIPTS: &[Script] = &[
    script(
        "linux-tree",
        "tar unpacks the Linux tree; compared, remounted, compared",
        linux_tree::run_once,
    ),
    script(
        "linux-tree-parallel",
        "the same with two writers and two readers",
        linux_tree::parallel,
    ),
    script("git", "clone, status, gc, fsck, history", git::run_all),
    script("build", "a Rust project of over 50,000 lines built on the mount", build::run_all),
    script("sqlite", "WAL and rollback mode, integrity_check, remount", sqlite::run_all),
    script("copies", "rsync -a, cp -a, find, rm -rf", copies::run_all),
    script("fio", "sequential and random writes verified by crc32c", fio::run_all),
    script("fsx", "200,000 random file operations", fsx::run_all),
    script(
        "image-orders",
        "each order of writes of an image: fsx, names, kills; e2fsck and the kernel's mount",
        orders::run_all,
    ),
    script(
        "image-copies",
        "images copied under the kernel at work, read as the kernel reads them",
        orders::copied::run_all,
    ),
    script("pjdfstest", "the POSIX suite against its list of known failures", pjdfstest::run_all),
    script("differential", "the same calls on Marram and on ext4, compared", differential::run_all),
    script("flags", "chattr and lsattr as on ext4, over a remount", same::flags),
    script("privileges", "setuid, setgid, capabilities after changes as on ext4", same::privileges),
    script("limits", "names, links, directories and times at their limits", same::limits),
    script("folding", "a dataset without regard to case, through the kernel", folding::run_all),
    script("stress", "stress-ng's stressors of files and names, verified", stress::run_all),
    script("postgres", "pgbench, SIGKILL, recovery, pg_amcheck", postgres::run_all),
    script(
        "postgres-home",
        "a tree on a home in PostgreSQL: the server killed, fork, merge, check",
        postgres_home::run_all,
    ),
    script("overlay", "OverlayFS with its layers on the mount", overlay::run_all),
    script("rsync", "rsync -aHAX --checksum of /usr, there and back", rsync::run_all),
    script("packages", "pip, npm, debootstrap and apt on the mount", packages::run_all),
    script("kill", "SIGKILL under loads that were told what is durable", kill::run_all),
    script("pmem", "a tree on a pmem home: SIGKILL, snapshot, clone, rollback", pmem::run_all),
    script(
        "pmem-kill",
        "SIGKILL of a pmem home under calls that nobody syncs: none that returned is lost",
        pmem::kills::run_all,
    ),
    script("dax", "pmem homes on emulated memory with DAX: power cut at work, twice", dax::run_all),
    script("full", "a full pool: ENOSPC, delete, go on", full::fill),
    script("accepted", "what mmap and writeback had accepted fits a full pool", accepted::run_all),
    script(
        "mount-tools",
        "mount(8), umount(8), fstab, background, second mount",
        mount_tools::run_all,
    ),
    script("quota", "two users, a project and a dataset at their limits", quota::run_all),
    script(
        "mounts",
        "options, remounts, handles, containers, bound mounts, many open files",
        mounts::run_all,
    ),
    script("hang", "a device that hangs, kills and signals", mounts::hang),
    script("user", "a pool of an ordinary user, through fusermount3", user::run_all),
    script("acl", "access control lists of both kinds, and strangers who try", acl::run_all),
    script("many", "a directory with a million entries", many::run_all),
    script("grow", "a pool that grows while it is mounted", full::grow),
    script("snapshots", "snapshots and clones of a busy tree", copies::snapshots),
    script("forks", "forks of a git checkout: edited, compared, merged, dropped", forks::run_all),
    script(
        "runs",
        "git, make, cargo, pip, npm, python and bwrap in forks, by marram run",
        runs::run_all,
    ),
    script(
        "team",
        "two users on a pool from fstab: one works in forks, the other meddles",
        team::run_all,
    ),
    script(
        "transactions",
        "dpkg, useradd, make, pip and git as transactions: ended well, failed, killed, full",
        transactions::run_all,
    ),
    script(
        "inside",
        "SQLite, PostgreSQL and npm inside of transactions: ended well, failed, killed, full",
        inside::run_all,
    ),
    script(
        "isolation",
        "many transactions and plain appends at once, judged by adya",
        isolation::run_all,
    ),
    script("day", "the example of a day with forks, as the README has it", examples::run_all),
    script(
        "loose",
        "the example of a program let loose, as the README has it",
        examples::let_loose,
    ),
    script(
        "nothing",
        "the example of an upgrade that fails in the middle, as the README has it",
        examples::all_or_nothing,
    ),
    script(
        "clones",
        "the example of twenty clones in memory and a killed daemon, as the README has it",
        examples::twenty_clones,
    ),
];

const fn script(
    name: &'static str,
    shows: &'static str,
    run: fn(&Setting) -> Result<()>,
) -> Script {
    Script { name, shows, run }
}

fn main() -> ExitCode {
    let done = match Request::parse().task {
        Task::Real(arguments) => run(&arguments),
        Task::Picture { examples } => picture::record(&examples),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the scripts that were asked for, all of them even if one fails. What failed is said
/// again at the end, where it is still to be seen when little of the output is kept.
fn run(arguments: &Arguments) -> Result<()> {
    let mut failures = Vec::new();
    let left_out = named(&arguments.without)?;
    let mut chosen = chosen(&arguments.scripts)?;
    chosen.retain(|script| !left_out.iter().any(|without| without.name == script.name));
    for script in &chosen {
        let start = Instant::now();
        println!("real {}: {} (on {})", script.name, script.shows, arguments.on.name());
        match run_one(script, arguments) {
            Ok(()) => println!("real {}: ok, {:.1} s", script.name, start.elapsed().as_secs_f64()),
            Err(failure) => {
                println!("real {}: FAILED: {failure}", script.name);
                failures.push(format!("{}: {failure}", script.name));
            }
        }
    }
    println!("real: {} passed, {} failed", chosen.len() - failures.len(), failures.len());
    if failures.is_empty() { Ok(()) } else { fail(format!("failed: {}", failures.join("\n"))) }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Script>> {
    if names.iter().any(|name| name == "all") {
        return Ok(SCRIPTS.iter().collect());
    }
    if names.iter().any(|name| name == "list") {
        SCRIPTS.iter().for_each(|script| println!("{:20} {}", script.name, script.shows));
        return Ok(Vec::new());
    }
    named(names)
}

/// The scripts of these names.
fn named(names: &[String]) -> Result<Vec<&'static Script>> {
    let find = |name: &String| SCRIPTS.iter().find(|script| script.name == name);
    let missing = names.iter().find(|name| find(name).is_none());
    match missing {
        Some(name) => fail(format!("no script `{name}`; `cargo xtask real list` shows them")),
        None => Ok(names.iter().filter_map(find).collect()),
    }
}

fn run_one(script: &Script, arguments: &Arguments) -> Result<()> {
    let work = arguments.work.clone().unwrap_or_else(|| project::target().join("real"));
    std::fs::create_dir_all(&work)?;
    // Other users must get through: pjdfstest changes its credentials.
    let reachable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let mut builder = tempfile::Builder::new();
    let folder = builder.prefix(script.name).permissions(reachable).tempdir_in(&work)?;
    let setting = Setting {
        kind: arguments.on,
        is_short: arguments.short,
        seed: arguments.seed,
        rounds: arguments.rounds.unwrap_or(if arguments.short { 20 } else { 500 }),
        transactions: arguments.transactions.unwrap_or(if arguments.short { 300 } else { 5_000 }),
        sizes: arguments.sizes.clone(),
        folder: folder.path().canonicalize()?,
    };
    let result = (script.run)(&setting);
    if result.is_err() {
        show_log(&setting.folder.join("subject").join(subject::LOG));
    }
    result
}

/// The end of what the daemon said.
fn show_log(log: &Path) {
    const LINES_MAX: usize = 30;
    let said = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    for line in &lines[lines.len().saturating_sub(LINES_MAX)..] {
        println!("  daemon: {line}");
    }
}

/// Prints one step of a script.
fn step(said: &str) {
    println!("  {said}");
}
