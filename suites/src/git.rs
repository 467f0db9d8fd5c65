//! git on the mount: its objects are small files, renames and mmap; its fsck misses nothing.

use super::{GIB, Setting, linux_tree, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, run, text};
use std::path::Path;
use std::process::Command;

/// How many commits the generated history has.
const COMMITS: usize = 12;

/// Clones a repository with history, works in it, packs it, and checks it, with a remount between.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    let origin = setting.folder.join("origin");
    make_history(&origin)?;
    let mut subject = setting.subject(4 * GIB)?;
    let clone = subject.root().join("clone");
    run(git_at(&setting.folder, &["clone", "--quiet", "--no-local"]).arg(&origin).arg(&clone))?;
    step("cloned");
    clean_and_whole(&clone)?;
    same_files(&origin, &clone)?;
    work(&clone)?;
    step("branched, merged, packed");
    subject.remount()?;
    clean_and_whole(&clone)?;
    step("clean and whole after a remount");
    subject.unmount()?;
    subject.check()
}

fn git_at(folder: &Path, words: &[&str]) -> Command {
    let mut git = command(&["git", "-c", "user.name=Marram", "-c", "user.email=marram@localhost"]);
    git.args(["-c", "init.defaultBranch=main", "-c", "gc.auto=0", "-c", "safe.directory=*"]);
    git.args(words).current_dir(folder);
    git
}

fn git(folder: &Path, words: &[&str]) -> Result<()> {
    run(&mut git_at(folder, words))
}

/// A repository whose commits add, change, rename and remove files of the Linux tree.
fn make_history(origin: &Path) -> Result<()> {
    let linux = linux_tree(true)?;
    std::fs::create_dir(origin)?;
    git(origin, &["init", "--quiet"])?;
    let mut folders: Vec<_> = std::fs::read_dir(linux.reference.join("fs"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    let share = folders.len().div_ceil(COMMITS);
    for (number, part) in folders.chunks(share).enumerate() {
        run(command(&["cp", "-r"]).args(part).arg(origin))?;
        std::fs::write(origin.join("number"), format!("{number}\n"))?;
        if number > 1 {
            let name = format!("number-{number}");
            std::fs::rename(origin.join("number"), origin.join(&name))?;
        }
        git(origin, &["add", "--all"])?;
        git(origin, &["commit", "--quiet", "-m", &format!("Part {number}")])?;
    }
    Ok(())
}

/// `status` sees no change and `fsck` no damage.
fn clean_and_whole(clone: &Path) -> Result<()> {
    let changes = text(&mut git_at(clone, &["status", "--porcelain"]))?;
    if !changes.is_empty() {
        return fail(format!("git status sees changes:\n{changes}"));
    }
    git(clone, &["fsck", "--full", "--strict"])
}

/// The working trees hold the same bytes.
fn same_files(origin: &Path, clone: &Path) -> Result<()> {
    run(command(&["diff", "-r", "--no-dereference", "--exclude=.git"]).arg(origin).arg(clone))
}

/// A branch from the middle of the history, changes on both sides, a merge, `gc`, and a bisection.
fn work(clone: &Path) -> Result<()> {
    git(clone, &["checkout", "--quiet", "-b", "side", "HEAD~5"])?;
    std::fs::write(clone.join("side-note"), "side\n")?;
    git(clone, &["add", "--all"])?;
    git(clone, &["commit", "--quiet", "-m", "Side"])?;
    git(clone, &["checkout", "--quiet", "main"])?;
    git(clone, &["merge", "--quiet", "--no-edit", "side"])?;
    git(clone, &["gc", "--quiet", "--prune=now"])?;
    git(clone, &["repack", "-adq", "--depth=20"])?;
    let commits = text(&mut git_at(clone, &["rev-list", "--count", "HEAD"]))?;
    if commits.parse::<usize>().unwrap_or(0) < COMMITS {
        return fail(format!("only {commits} commits in the history"));
    }
    clean_and_whole(clone)
}
