//! The Linux tree on a pmem home: the daemon killed while `tar` unpacks it, and then a snapshot, a
//! clone and a rollback of the whole tree.

pub(super) mod kills;

use super::linux_tree::unpack;
use super::tree::compare;
use super::{GIB, LinuxTree, Setting, linux_tree, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{OwnedChild, command, run};
use marram_lab::project;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where a pmem home can lie.
const MEMORY: &str = "/dev/shm";
/// How many members `tar` has named when the daemon is killed.
const MEMBERS_BEFORE_KILL: usize = 2000;
/// A killed daemon is gone, and a mount answers, within this.
const LIMIT: Duration = Duration::from_secs(30);

/// An image and the directories on which it is mounted, gone when it is dropped.
struct Trees {
    binary: PathBuf,
    memory: tempfile::TempDir,
    root: PathBuf,
    clone: PathBuf,
}

impl Drop for Trees {
    fn drop(&mut self) {
        for directory in [&self.clone, &self.root] {
            let quiet = |words: &[&str]| {
                let mut unmount = command(words);
                unmount.arg(directory).stdout(Stdio::null()).stderr(Stdio::null()).status()
            };
            let _is_not_mounted = quiet(&["umount", "-l"]);
        }
    }
}

impl Trees {
    /// A home whose image lies at `place`, mounted in `folder`.
    fn make_at(folder: &Path, place: &Path, size_bytes: u64) -> Result<Trees> {
        let [root, clone] = ["root", "clone"].map(|name| folder.join(name));
        fs::create_dir(&root)?;
        fs::create_dir(&clone)?;
        let memory = tempfile::tempdir_in(place)?;
        let trees = Trees { binary: project::release_binary()?, memory, root, clone };
        let size = size_bytes.to_string();
        run(trees.marram(&["create", "--home", "pmem", "--size", &size]).arg(trees.image()))?;
        trees.mount()?;
        Ok(trees)
    }

    fn image(&self) -> PathBuf {
        self.memory.path().join("image")
    }

    fn marram(&self, words: &[&str]) -> Command {
        let mut marram = Command::new(&self.binary);
        marram.args(words).stdin(Stdio::null());
        marram
    }

    fn mount(&self) -> Result<()> {
        run(self.marram(&["mount"]).arg(self.image()).arg(&self.root))
    }

    fn unmount(&self, directory: &Path) -> Result<()> {
        run(self.marram(&["unmount"]).arg(directory))
    }

    /// The root as a target, with a snapshot's name.
    fn at(&self, snapshot: &str) -> PathBuf {
        let mut target = self.root.clone().into_os_string();
        target.push(format!("@{snapshot}"));
        target.into()
    }

    /// The daemon's number.
    fn daemon(&self) -> Result<u64> {
        let status = self.marram(&["status", "--json"]).arg(&self.root).output()?;
        let status: serde_json::Value = serde_json::from_slice(&status.stdout)?;
        let pid = status["result"][0]["daemon"]["pid"].as_u64().unwrap_or_default();
        if pid < 2 {
            return fail(format!("the status names no daemon: {status}"));
        }
        Ok(pid)
    }

    /// Kills the daemon, and waits until it is gone.
    fn kill(&self, daemon: u64) -> Result<()> {
        run(&mut command(&["kill", "-KILL", &daemon.to_string()]))?;
        let began = Instant::now();
        let image = fs::File::open(self.image())?;
        while image.try_lock().is_err() {
            if began.elapsed() > LIMIT {
                return fail("the killed daemon has not gone");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Takes away the mount of a daemon that is gone.
    fn unmount_dead(&self) -> Result<()> {
        run(command(&["umount", "-l"]).arg(&self.root))
    }

    /// Kills the daemon, and mounts what it has left.
    fn kill_and_mount(&self) -> Result<()> {
        self.kill(self.daemon()?)?;
        self.unmount_dead()?;
        let began = Instant::now();
        self.mount().context(|| "after the kill")?;
        step(&format!("mounted {} ms after the kill", began.elapsed().as_millis()));
        Ok(())
    }
}

/// All of it.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let linux = linux_tree(setting.is_short)?;
    let size = setting.scaled(6 * GIB, GIB);
    let trees = Trees::make_at(&setting.folder, Path::new(MEMORY), size)?;
    killed_in_the_middle(&trees, &linux)?;
    let top = trees.root.join(linux.top);
    fs::remove_dir_all(&top)?;
    run(&mut unpack(&linux, &trees.root))?;
    same(&linux, &trees.root, "unpacked")?;

    run(trees.marram(&["snapshot"]).arg(trees.at("whole")))?;
    fs::remove_dir_all(top.join("fs"))?;
    fs::write(top.join("lib/Makefile"), "another\n")?;
    run(trees.marram(&["clone"]).arg(trees.at("whole")).arg("other"))?;
    let mut mount = trees.marram(&["mount", "--dataset", "other"]);
    run(mount.arg(trees.image()).arg(&trees.clone))?;
    same(&linux, &trees.clone, "a clone")?;
    fs::remove_dir_all(trees.clone.join(linux.top).join("kernel"))?;
    same(&linux, &trees.root.join(".marram/snapshots/whole"), "the snapshot")?;
    run(trees.marram(&["rollback"]).arg(trees.at("whole")))?;
    same(&linux, &trees.root, "after the rollback")?;

    trees.unmount(&trees.clone)?;
    trees.unmount(&trees.root)?;
    trees.mount()?;
    same(&linux, &trees.root, "mounted again")?;
    trees.unmount(&trees.root)
}

fn same(linux: &LinuxTree, folder: &Path, what: &str) -> Result<()> {
    let compared = compare(&linux.reference, &folder.join(linux.top)).context(|| what)?;
    step(&format!("{what}: {} entries, {} bytes the same", compared.entries, compared.bytes));
    Ok(())
}

/// Kills the daemon while `tar` works. It names a member before it makes it: so all but the last
/// that it has named are there, wholly, and the last is there or not.
fn killed_in_the_middle(trees: &Trees, linux: &LinuxTree) -> Result<()> {
    let mut tar = command(&["tar", "-xvPf"]);
    tar.arg(&linux.archive).arg("-C").arg(&trees.root).stdout(Stdio::piped());
    // Its complaints about the dead mount are expected.
    tar.stderr(Stdio::null()).process_group(0);
    let mut tar = OwnedChild::start(&mut tar)?;
    let Some(output) = tar.take_output() else { return fail("tar has no output") };
    let mut said = BufReader::new(output);
    let mut named = String::new();
    for _ in 0..MEMBERS_BEFORE_KILL {
        if said.read_line(&mut named)? == 0 {
            return fail("tar ended before it was to be stopped");
        }
    }
    trees.kill_and_mount()?;
    said.read_to_string(&mut named)?;
    let _it_has_failed = tar.wait(LIMIT)?;
    judge(trees, linux, &named)
}

/// Compares what `tar` has named with what is there.
fn judge(trees: &Trees, linux: &LinuxTree, named: &str) -> Result<()> {
    // What it named after the kill it could not make.
    let members: Vec<&str> = named.lines().collect();
    let is_there = |member: &&str| fs::symlink_metadata(trees.root.join(member)).is_ok();
    let made = members.iter().take_while(|member| is_there(member)).count();
    if made + 1 < MEMBERS_BEFORE_KILL {
        return fail(format!("{} was made and is not there", members[made]));
    }
    let reference = linux.reference.parent().unwrap_or(Path::new("/"));
    let mut torn = BTreeSet::new();
    for member in &members[..made] {
        let (expected, actual) = (reference.join(member), trees.root.join(member));
        if expected.is_file() && fs::read(&expected)? != fs::read(&actual)? {
            torn.insert(*member);
        }
    }
    // The one that it was at when the daemon died.
    let last = members[made - 1];
    if torn.iter().any(|member| *member != last) {
        return fail(format!("not as they were when their calls returned: {torn:?}"));
    }
    step(&format!("killed after {made} members: all are there"));
    Ok(())
}
