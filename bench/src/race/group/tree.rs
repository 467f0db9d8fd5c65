//! The Linux tree: unpacked, read, searched, copied, looked at by git, removed.

use super::super::line::{Ending, Line, Unit};
use super::super::stage::Stage;
use marram_lab::failure::{Result, fail};
use marram_lab::inputs::{LinuxTree, linux_tree};
use marram_lab::process::{command, output, run};
use std::path::{Path, PathBuf};

const MIB: f64 = 1_048_576.0;

/// A word that is in many files of the tree, so that grep has something to print.
const SEARCHED: &str = "kmalloc";

pub(super) fn run_all(stage: &mut Stage<'_>) -> Result<()> {
    let linux = linux_tree(stage.is_quick())?;
    let place = stage.folder("tree")?;
    unpack(stage, &linux, &place)?;
    read(stage, &place)?;
    copy(stage, &linux, &place)?;
    git(stage, &linux, &place.join(linux.top))?;
    let title = "rm -rf of the tree";
    stage.time(Line::seconds("remove", title, Ending::Syncfs), || {
        run(command(&["rm", "-rf"]).arg(&place))
    })
}

/// The archive is read before, so that the host's disk has no part in the time.
fn unpack(stage: &mut Stage<'_>, linux: &LinuxTree, place: &Path) -> Result<()> {
    std::io::copy(&mut std::fs::File::open(&linux.archive)?, &mut std::io::sink())?;
    stage.settle()?;
    let empty_bytes = stage.used_bytes()?;
    let line = Line::seconds("unpack", "tar unpacks the tree", Ending::Syncfs);
    stage.time(line, || run(command(&["tar", "-xPf"]).arg(&linux.archive).arg("-C").arg(place)))?;
    let used_bytes = stage.used_bytes()?.saturating_sub(empty_bytes);
    let line = Line::new("space", "space used by the tree", Unit::Mebibytes, Ending::Syncfs);
    stage.note(line, used_bytes as f64 / MIB);
    Ok(())
}

/// Warm is the second time. By then content is in memory; but a mount of FUSE asks once more for
/// the attributes of what it has read, so the third time is measured too.
fn read(stage: &mut Stage<'_>, place: &Path) -> Result<()> {
    let reading = |key, title| Line::seconds(key, title, Ending::Reading);
    read_all(place)?;
    let title = "find -type f | xargs cat, warm";
    stage.time(reading("read_warm", title), || read_all(place))?;
    let title = "find -type f | xargs cat, warm, once more";
    stage.time(reading("read_warm_again", title), || read_all(place))?;
    stage.time(reading("grep_warm", "grep -r, warm"), || grep(place))?;
    stage.time(reading("find_warm", "find -size, warm"), || find(place))?;
    stage.chill()?;
    let title = "find -type f | xargs cat, cold";
    stage.time(reading("read_cold", title), || read_all(place))?;
    stage.chill()?;
    stage.time(reading("grep_cold", "grep -r, cold"), || grep(place))?;
    stage.chill()?;
    stage.time(reading("find_cold", "find -size, cold"), || find(place))
}

fn read_all(place: &Path) -> Result<()> {
    let script = "find . -type f -print0 | xargs -0 cat > /dev/null";
    run(command(&["bash", "-o", "pipefail", "-c", script]).current_dir(place))
}

fn grep(place: &Path) -> Result<()> {
    let found = output(command(&["grep", "-r", SEARCHED, "."]).current_dir(place))?;
    if found.stdout.is_empty() { fail("grep finds nothing") } else { Ok(()) }
}

/// Asks for the attributes of each file, and prints none.
fn find(place: &Path) -> Result<()> {
    run(command(&["find", ".", "-size", "+1000000k"]).current_dir(place))
}

fn copy(stage: &mut Stage<'_>, linux: &LinuxTree, place: &Path) -> Result<()> {
    let (from, to) = (place.join(linux.top), stage.place("copy"));
    let line = Line::seconds("copy", "cp -r of the tree", Ending::Syncfs);
    stage.time(line, || run(command(&["cp", "-r", "--reflink=never"]).arg(&from).arg(&to)))?;
    run(command(&["rm", "-rf"]).arg(&to))?;
    stage.settle()
}

fn git(stage: &mut Stage<'_>, linux: &LinuxTree, top: &Path) -> Result<()> {
    let repository = repository(linux)?;
    run(command(&["cp", "-r"]).arg(repository).arg(top.join(".git")))?;
    git_status(top)?;
    stage.settle()?;
    let reading = |key, title| Line::seconds(key, title, Ending::Reading);
    stage.time(reading("git_status", "git status, warm"), || git_status(top))?;
    stage.chill()?;
    stage.time(reading("git_status_cold", "git status, cold"), || git_status(top))
}

/// A repository with one commit of the whole reference tree, kept beside it.
fn repository(linux: &LinuxTree) -> Result<PathBuf> {
    let kept = linux.archive.with_file_name("repository.git");
    if kept.is_dir() {
        return Ok(kept);
    }
    let making = linux.archive.with_file_name("making.git");
    run(command(&["rm", "-rf"]).arg(&making))?;
    run(git_at(&linux.reference).env("GIT_DIR", &making).args(["init", "--quiet"]))?;
    let tree = |words: &[&str]| {
        let mut git = git_at(&linux.reference);
        run(git.env("GIT_DIR", &making).env("GIT_WORK_TREE", &linux.reference).args(words))
    };
    tree(&["add", "--all", "--force"])?;
    tree(&["commit", "--quiet", "-m", "Tree"])?;
    // It was made away from its tree, and will be used inside one.
    run(command(&["git", "config", "--file"])
        .arg(making.join("config"))
        .args(["core.bare", "false"]))?;
    std::fs::rename(&making, &kept)?;
    Ok(kept)
}

fn git_at(folder: &Path) -> std::process::Command {
    let mut git = command(&["git", "-c", "user.name=Marram", "-c", "user.email=marram@localhost"]);
    git.args(["-c", "gc.auto=0", "-c", "safe.directory=*"]);
    git.current_dir(folder);
    git
}

fn git_status(top: &Path) -> Result<()> {
    let said = output(git_at(top).args(["status", "--porcelain"]))?;
    if said.stdout.is_empty() { Ok(()) } else { fail("git status sees changes") }
}
