//! A home in PostgreSQL, end to end: a tree is unpacked while the server is killed and started
//! again, then a snapshot, a fork, a merge, and the verifier.

use super::linux_tree::unpack;
use super::tree::compare;
use super::{LinuxTree, Setting, linux_tree, step};
use crate::postgres::kill;
use marram_lab::failure::{Result, fail};
use marram_lab::postgres::Database;
use marram_lab::process::{OwnedChild, command, require, run, text};
use marram_lab::project;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long `tar` works before the server is killed.
const BEFORE_KILL: Duration = Duration::from_millis(500);
/// How long it may take in all.
const UNPACK_LIMIT: Duration = Duration::from_secs(600);

/// What of the tree is unpacked. The first is compared once more after a new mount, in a snapshot.
const UNPACKED: [&str; 3] = ["lib", "kernel", "scripts"];

/// A home and the directory on which it is mounted, which is free when this is dropped.
struct Home {
    binary: PathBuf,
    url: String,
    root: PathBuf,
}

impl Drop for Home {
    fn drop(&mut self) {
        let mut unmount = command(&["umount", "-l"]);
        unmount.arg(&self.root).stdout(Stdio::null()).stderr(Stdio::null());
        let _is_not_mounted = unmount.status();
    }
}

impl Home {
    fn marram(&self, words: &[&str]) -> Command {
        let mut marram = Command::new(&self.binary);
        marram.args(words).stdin(Stdio::null()).current_dir(&self.root);
        marram
    }

    /// Runs a command; `URL` among its words is the home.
    fn run(&self, words: &[&str]) -> Result<String> {
        let word = |word: &&str| word.replace("URL", &self.url);
        let words: Vec<String> = words.iter().map(word).collect();
        text(&mut self.marram(&words.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    fn mount(&self) -> Result<()> {
        run(self.marram(&["mount", &self.url]).arg(&self.root).current_dir("/"))
    }

    fn unmount(&self) -> Result<()> {
        run(self.marram(&["unmount"]).arg(&self.root).current_dir("/"))
    }
}

/// All of it.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("pg_ctlcluster", "postgresql"), ("setpriv", "util-linux")])?;
    let linux = linux_tree(setting.is_short)?;
    let host = setting.folder.join("host");
    let database = Database::make(&setting.folder, &host, setting.seed, 1)?;
    let server = database.start()?;
    let root = setting.folder.join("root");
    fs::create_dir(&root)?;
    let url = format!("postgres://postgres@/postgres?host={}", host.display());
    let home = Home { binary: project::release_binary()?, url, root };
    home.run(&["create", "URL"])?;
    home.mount()?;
    let server = unpack_while_killed(&home, &linux, (&database, server))?;
    for folder in UNPACKED {
        same(&linux, &home.root, folder)?;
    }
    fork_and_merge(&home, &linux)?;
    home.unmount()?;
    check(&home)?;
    home.mount()?;
    same(&linux, &home.root.join(".marram/snapshots/whole"), UNPACKED[0])?;
    home.unmount()?;
    drop(home);
    database.stop(server)
}

/// Returns the server that was started again.
fn unpack_while_killed(
    home: &Home,
    linux: &LinuxTree,
    (database, server): (&Database, OwnedChild),
) -> Result<OwnedChild> {
    let members = UNPACKED.map(|folder| format!("{}/{folder}", linux.top));
    let mut tar = OwnedChild::start(unpack(linux, &home.root).args(members))?;
    std::thread::sleep(BEFORE_KILL);
    kill(server)?;
    let server = database.start()?;
    let status = tar.wait(UNPACK_LIMIT)?;
    if !status.success() {
        return fail(format!("tar failed ({status}) where the server was killed"));
    }
    run(command(&["sync", "-f"]).arg(&home.root))?;
    step("a tree unpacked while the server was killed and started again");
    Ok(server)
}

fn fork_and_merge(home: &Home, linux: &LinuxTree) -> Result<()> {
    home.run(&["snapshot", ".@whole"])?;
    home.run(&["fork", ".", "try"])?;
    let fork = home.root.join(".marram/forks/try").join(linux.top);
    fs::write(fork.join("in the fork"), "another\n")?;
    fs::write(home.root.join(linux.top).join("beside"), "meanwhile\n")?;
    let differs = home.run(&["diff", ".marram/forks/try"])?;
    if !differs.contains("in the fork") {
        return fail(format!("the diff does not name what differs: {differs}"));
    }
    home.run(&["merge", ".marram/forks/try"])?;
    let merged = fs::read_to_string(home.root.join(linux.top).join("in the fork"))?;
    if merged != "another\n" {
        return fail("the merge has not brought the change");
    }
    step("forked, compared and merged");
    Ok(())
}

fn check(home: &Home) -> Result<()> {
    let told = text(home.marram(&["check", &home.url]).current_dir("/"))?;
    step(&format!("checked: {}", told.lines().next().unwrap_or_default()));
    Ok(())
}

fn same(linux: &LinuxTree, root: &Path, folder: &str) -> Result<()> {
    let compared = compare(&linux.reference.join(folder), &root.join(linux.top).join(folder))?;
    step(&format!("{folder}: {} entries, {} bytes the same", compared.entries, compared.bytes));
    Ok(())
}
