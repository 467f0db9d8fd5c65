//! An ordinary user, with `fusermount3` and nothing else: a pool of the user's own, mounted, used,
//! kept.

use super::{Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, run, text};
use marram_lab::project;
use marram_lab::subject::MountPoint;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A user and group of every Debian system without rights to anything.
const USER: (&str, &str) = ("nobody", "nogroup");

/// Create, mount in the background, write, snapshot, unmount, mount again, read, check.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("setpriv", "util-linux"), ("fusermount3", "fuse3")])?;
    if !rustix::process::geteuid().is_root() {
        return fail("run it as root: it becomes another user");
    }
    let _open = OpenToAll::make(Path::new("/dev/fuse"))?;
    // The project's folder may be one that other users cannot reach.
    let reachable = Permissions::from_mode(0o755);
    let folder = tempfile::Builder::new().prefix("user").permissions(reachable).tempdir()?;
    let user = User::make(folder.path())?;
    let point = MountPoint::make(user.home.join("mnt"))?;
    run(command(&["chown", &format!("{}:{}", USER.0, USER.1)]).arg(point.path()))?;
    user.marram(&["create", "own.pool", "--size", "128M"])?;
    user.marram(&["mount", "own.pool", "mnt"])?;
    let write = "printf kept > mnt/file && chmod 600 mnt/file && ln mnt/file mnt/link";
    user.words(&["sh", "-c", write])?;
    if std::fs::read(point.path().join("file")).is_ok() {
        return fail("others may enter what a user has mounted for himself");
    }
    user.marram(&["snapshot", "mnt@before"])?;
    user.words(&["sh", "-c", "printf changed > mnt/file"])?;
    user.marram(&["unmount", "mnt"])?;
    user.marram(&["mount", "own.pool@before", "mnt"])?;
    let kept = user.words(&["cat", "mnt/link"])?;
    user.marram(&["unmount", "mnt"])?;
    user.marram(&["check", "own.pool"])?;
    if kept != "kept" {
        return fail(format!("the snapshot holds {kept:?}"));
    }
    step("created, mounted, kept and checked as an ordinary user");
    Ok(())
}

/// The user, with a home and a copy of the program that can be reached.
struct User {
    home: PathBuf,
    binary: PathBuf,
}

impl User {
    fn make(folder: &Path) -> Result<Self> {
        let (home, binary) = (folder.join("home"), folder.join("marram"));
        std::fs::copy(project::release_binary()?, &binary)?;
        std::fs::create_dir(&home)?;
        run(command(&["chown", &format!("{}:{}", USER.0, USER.1)]).arg(&home))?;
        Ok(Self { home, binary })
    }

    /// What `marram` with these words says to the user.
    fn marram(&self, words: &[&str]) -> Result<String> {
        text(self.become_user().arg(&self.binary).args(words))
    }

    /// What another program says to the user.
    fn words(&self, words: &[&str]) -> Result<String> {
        text(self.become_user().args(words))
    }

    fn become_user(&self) -> Command {
        let mut setpriv = command(&["setpriv", "--clear-groups", "--reuid", USER.0]);
        setpriv.args(["--regid", USER.1, "--reset-env"]).current_dir(&self.home);
        setpriv.args(["env", &format!("HOME={}", self.home.display())]);
        setpriv
    }
}

/// Opens a device node to everyone, as Debian's own rules do for `/dev/fuse`, where the machine
/// has not; what was before comes back.
struct OpenToAll {
    node: PathBuf,
    before: Permissions,
}

impl OpenToAll {
    fn make(node: &Path) -> Result<Self> {
        let before = std::fs::metadata(node).context(|| node.display())?.permissions();
        std::fs::set_permissions(node, Permissions::from_mode(before.mode() | 0o666))?;
        Ok(Self { node: node.to_owned(), before })
    }
}

impl Drop for OpenToAll {
    fn drop(&mut self) {
        if let Err(error) = std::fs::set_permissions(&self.node, self.before.clone()) {
            eprintln!("warning: {}: {error}", self.node.display());
        }
    }
}
