//! stress-ng: its stressors of files and names, each told to verify what it does.
//!
//! Every stressor runs alone with two workers in a folder of its own, for an equal share of the
//! time.

use super::{GIB, Setting, step};
use crate::failure::{Context, Result, fail};
use crate::process::{command, require};
use crate::subject::{Making, make};
use std::path::Path;

/// The stressors that use the folder under test. Left out are those that want what FUSE cannot
/// carry, or that exhaust the machine rather than the file system.
const STRESSORS: [&str; 40] = [
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
    "io",
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

/// An hour in all, or 45 seconds when short.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    require(&[("stress-ng", "stress-ng")])?;
    let seconds = setting.sizes.seconds.unwrap_or(setting.scaled(3600, 45));
    let each = (seconds / STRESSORS.len() as u64).max(1);
    let mut making = Making::sized(4 * GIB);
    if setting.kind.is_marram() {
        making.mount_words =
            ["-o", "suid,dev,allow_other,default_permissions"].map(String::from).into();
    }
    let mut subject = make(setting.kind, &setting.folder.join("subject"), &making)?;
    let mut failed = Vec::new();
    for stressor in STRESSORS {
        let folder = subject.root().join(stressor);
        std::fs::create_dir(&folder)?;
        if let Err(failure) = one(stressor, &folder, each) {
            println!("  {stressor}: {failure}");
            failed.push(stressor);
        }
        std::fs::remove_dir_all(&folder).context(|| format!("{stressor} left something"))?;
    }
    if !failed.is_empty() {
        return fail(format!("stressors that failed: {}", failed.join(", ")));
    }
    step(&format!("{} stressors, {each} s each, all verified", STRESSORS.len()));
    subject.remount()?;
    subject.unmount()?;
    subject.check()
}

fn one(stressor: &str, folder: &Path, seconds: u64) -> Result<()> {
    let mut stress = command(&["stress-ng", "--verify", "--metrics-brief", "--no-rand-seed"]);
    stress.arg(format!("--{stressor}")).arg(WORKERS);
    stress.args(["--timeout", &format!("{seconds}s"), "--temp-path"]).arg(folder);
    // Some stressors use the working folder whatever they are told.
    crate::process::run(stress.current_dir(folder))
}
