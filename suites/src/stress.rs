//! stress-ng: its stressors of files and names, each with `--verify`.
//!
//! Every stressor runs alone with two workers in a folder of its own, for an equal share of the
//! time.

use super::{GIB, Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, ended, require, shown, tail};
use marram_lab::subject::{Making, make};
use std::path::Path;

/// The stressors that use the folder under test. Left out are those that want what FUSE cannot
/// carry, that exhaust the machine rather than the file system, or that (as `io`, which calls
/// `syncfs` on each of them) judge every mount of the machine.
const STRESSORS: [&str; 39] = [
    "access",
    "aio",
    "aiol",
    "chattr",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "fallocate",
    "fcntl",
    "fiemap",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fstat",
    "getdent",
    "hdd",
    "inode-flags",
    "inotify",
    "iomix",
    "lease",
    "link",
    "lockf",
    "lockofd",
    "mknod",
    "open",
    "rename",
    "seek",
    "sendfile",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "xattr",
];

/// How many workers each stressor has.
const WORKERS: &str = "2";

/// How stress-ng ends where its stressors passed but could not count what they did, as a signal
/// came between two counts. A stressor that failed ends with another status, whatever it counted.
const UNCOUNTED_STATUS: i32 = 7;

/// An hour in all, or 45 seconds when short.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    let seconds = setting.sizes.seconds.unwrap_or(setting.scaled(3600, 45));
    let each = (seconds / STRESSORS.len() as u64).max(1);
    let mut making = Making::sized(4 * GIB);
    if setting.kind.is_marram() {
        making.mount_words =
            ["-o", "suid,dev,allow_other,default_permissions"].map(String::from).into();
    }
    let mut subject = make(setting.kind, &setting.folder.join("subject"), &making)?;
    all_in(subject.root(), each)?;
    step(&format!("{} stressors, {each} s each, all verified", STRESSORS.len()));
    subject.remount()?;
    subject.unmount()?;
    subject.check()
}

/// Each stressor for so many seconds in a folder of its own.
pub(super) fn all_in(root: &Path, seconds: u64) -> Result<()> {
    require(&[("stress-ng", "stress-ng"), ("chattr", "e2fsprogs")])?;
    let mut failures = Vec::new();
    for stressor in STRESSORS {
        let folder = root.join(stressor);
        std::fs::create_dir(&folder)?;
        if let Err(failure) = one(stressor, &folder, seconds) {
            failures.push(format!("{stressor}: {failure}"));
        }
        remove(&folder).context(|| format!("{stressor} left something"))?;
    }
    if failures.is_empty() {
        return Ok(());
    }
    fail(format!("{} stressors failed\n{}", failures.len(), failures.join("\n")))
}

/// Removes `folder` and what a stressor left in it. Where its time ends between setting a flag and
/// taking it away again, `chattr` leaves a file that nobody may remove, on any file system.
fn remove(folder: &Path) -> Result<()> {
    // It fails for what has no flags, as links, and goes on with the others.
    ended(command(&["chattr", "-R", "-f", "-i", "-a"]).arg(folder))?;
    Ok(std::fs::remove_dir_all(folder)?)
}

fn one(stressor: &str, folder: &Path, seconds: u64) -> Result<()> {
    let mut stress = command(&["stress-ng", "--verify", "--metrics-brief", "--no-rand-seed"]);
    stress.arg(format!("--{stressor}")).arg(WORKERS);
    stress.args(["--timeout", &format!("{seconds}s"), "--temp-path"]).arg(folder);
    // Some stressors use the working folder whatever their options say.
    let output = ended(stress.current_dir(folder))?;
    match output.status.code() {
        Some(0 | UNCOUNTED_STATUS) => Ok(()),
        _ => fail(format!("`{}` failed ({}):\n{}", shown(&stress), output.status, tail(&output))),
    }
}
