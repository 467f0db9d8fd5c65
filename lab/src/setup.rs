//! Installs what is missing from Debian, and says plainly when it cannot.

use crate::failure::{Context, Result, fail};
use crate::process::{command, is_installed, run_shown, text};
use crate::project;

/// What building and running Marram takes.
pub const RUN_PACKAGES: [&str; 5] = ["build-essential", "pkg-config", "fuse3", "tar", "xz-utils"];

/// What the tests and the scripts on real mounts take beside that.
pub const TEST_PACKAGES: [&str; 17] = [
    "acl",
    "attr",
    "bubblewrap",
    "e2fsprogs",
    "fdisk",
    "fio",
    "git",
    "linux-source-6.1",
    "mount",
    "nfs4-acl-tools",
    "postgresql",
    "python3",
    "python3-venv",
    "rsync",
    "sqlite3",
    "stress-ng",
    "util-linux",
];

/// Programs that the scripts on real mounts take, each with its package, which is installed only
/// where the program is missing: it may come from elsewhere than Debian.
pub const TEST_PROGRAMS: [(&str, &str); 2] = [("node", "nodejs"), ("npm", "npm")];

/// The server of the MongoDB protocol that the tests start: a program of Python's registry, which
/// no part of Marram is linked with.
pub const MONGODB_SERVER: &str = "SecantusDB==0.7.0b3";

/// What the peers of the benchmarks take.
pub const BENCH_PACKAGES: [&str; 8] =
    ["bindfs", "btrfs-progs", "fio", "fuse2fs", "git", "rsync", "xfsprogs", "zfs-fuse"];

/// What finds differences of files.
pub const DELTA_PACKAGES: [&str; 2] = ["rdiff", "xdelta3"];

/// What keeps versions of the same inputs, and what makes those.
pub const VERSION_PACKAGES: [&str; 6] =
    ["borgbackup", "e2fsprogs", "linux-source-6.1", "restic", "rsync", "sqlite3"];

/// What the race takes beside that: the programs that others measure file systems with, those that
/// people build with, and databases.
pub const RACE_PACKAGES: [&str; 14] = [
    "bc",
    "bison",
    "bonnie++",
    "dbench",
    "flex",
    "fsmark",
    "git",
    "linux-source-6.1",
    "postgresql",
    "postmark",
    "python3",
    "python3-venv",
    "sqlite3",
    "util-linux",
];

/// Installs those of the packages that are missing.
pub fn install(packages: &[&str]) -> Result<()> {
    if !is_installed("dpkg-query") {
        println!("not a Debian system: please have these installed: {}", packages.join(" "));
        return Ok(());
    }
    let missing: Vec<&str> =
        packages.iter().copied().filter(|package| !is_package_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing from Debian: {}", missing.join(" "));
    let by_hand = format!("install by hand: apt-get install {}", missing.join(" "));
    let root = as_root().context(|| &by_hand)?;
    let apt = |words: &[&str]| {
        let line: Vec<&str> = root.iter().chain(words).copied().collect();
        let mut apt = command(&line);
        run_shown(apt.env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["apt-get", "update", "-qq"]).context(|| &by_hand)?;
    let mut words = vec!["apt-get", "install", "-y", "-qq", "--no-install-recommends"];
    words.extend(missing);
    apt(&words).context(|| &by_hand)
}

/// Installs the server of the MongoDB protocol into an environment of its own, below what is built,
/// unless it is there.
pub fn install_mongodb_server() -> Result<()> {
    let folder = project::target().join("tools/secantusdb");
    if folder.join("bin/secantusd-py").is_file() {
        return Ok(());
    }
    println!("installing {MONGODB_SERVER} into {}", folder.display());
    let by_hand = || format!("install by hand: pip install {MONGODB_SERVER}");
    let mut environment = command(&["python3", "-m", "venv", "--clear"]);
    run_shown(environment.arg(&folder)).context(by_hand)?;
    let mut pip = command(&[&folder.join("bin/pip").to_string_lossy()]);
    pip.args(["install", "--quiet", "--disable-pip-version-check", MONGODB_SERVER]);
    run_shown(&mut pip).context(by_hand)
}

/// Whether the package is installed.
pub fn is_package_installed(package: &str) -> bool {
    let status =
        text(&mut command(&["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]));
    status.is_ok_and(|status| status == "installed")
}

/// The words before a command that make root run it.
fn as_root() -> Result<Vec<&'static str>> {
    if rustix::process::geteuid().is_root() {
        return Ok(Vec::new());
    }
    if is_installed("sudo") {
        return Ok(vec!["sudo", "--preserve-env=DEBIAN_FRONTEND"]);
    }
    fail("not root, and no sudo")
}
