//! Ordinary users on a pool that root has mounted: what each may do, see and merge.
//!
//! The tests run as root, and play users that the system need not know.

mod allowed;
mod forks;
mod hostile;
mod past;

use crate::workbench::{Outcome, Workbench, mounted, outcome};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;

/// A user, and another one.
pub(crate) const ANN: u32 = 4001;
pub(crate) const BOB: u32 = 4002;
/// A group that both are in.
pub(crate) const STAFF: u32 = 4100;

/// A pool that root has mounted on `mnt`, where all may look, with a directory of each user.
pub(crate) fn shared() -> Option<Workbench> {
    let bench = mounted()?;
    bench.command_for_others();
    for path in ["mnt", "."] {
        fs::set_permissions(bench.path(path), PermissionsExt::from_mode(0o755)).unwrap();
    }
    for (user, name) in [(ANN, "ann"), (BOB, "bob")] {
        owned(&bench, &format!("mnt/{name}"), user, 0o755, None);
    }
    Some(bench)
}

/// Makes a directory, or a file with that content, of a user.
pub(crate) fn owned(
    bench: &Workbench,
    name: &str,
    user: u32,
    mode: u32,
    content: Option<&str>,
) -> PathBuf {
    let path = bench.path(name);
    match content {
        None => fs::create_dir(&path).unwrap(),
        Some(content) => fs::write(&path, content).unwrap(),
    }
    chown(&path, Some(user), Some(user)).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    path
}

/// A program that a user runs in the folder of the bench, in that group and also in `STAFF`.
pub(crate) fn program_of(bench: &Workbench, user: u32, program: &str) -> Command {
    let mut command = bench.command_as("setpriv".as_ref());
    let ids = [format!("--reuid={user}"), format!("--regid={user}")];
    command.args(ids).arg(format!("--groups={STAFF}")).arg(program);
    command
}

/// The program with the words of `line`, as a user runs it.
pub(crate) fn marram(bench: &Workbench, user: u32, line: &str) -> Outcome {
    outcome(program_of(bench, user, "./marram-of-all").args(line.split_whitespace()))
}

/// A line of the shell, as a user runs it.
pub(crate) fn shell(bench: &Workbench, user: u32, line: &str) -> Outcome {
    outcome(program_of(bench, user, "sh").args(["-c", line]))
}

/// Where a fork of a user is seen.
pub(crate) fn fork_of(user: u32, name: &str) -> String {
    format!("mnt/.marram/users/{user}/{name}")
}
