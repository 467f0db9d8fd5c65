//! git commits, one after another, with a repack in the middle that throws away what it has packed.
//!
//! With `core.fsync=all` git syncs each file; it never syncs a folder, so a commit is promised when
//! we have synced the folder of its branch. With git's own settings loose objects and references
//! are not synced at all: nothing is promised but at some commits, when that folder is synced. That
//! brings everything before it along, and what a crash leaves in between must be a sound repository
//! all the same.

use super::{Program, Stage, outcome, run, said, sync};
use crate::pool::{Result, words};
use crate::tree::Tree;
use marram_sim::pattern;
use std::path::Path;
use std::process::Command;

/// Commits of a run.
const COMMITS: u64 = 7;
/// The repack comes before this commit.
const REPACK_BEFORE: u64 = 5;
/// Without git's syncs, one in so many commits is promised.
const PROMISED_ONE_IN: u64 = 3;
/// Files that the commits take turns to change.
const FILES: u64 = 3;
const FILE_BYTES: u64 = 9_000;

/// Commits in a loop.
pub(super) struct Commits {
    /// Whether git syncs all that it can sync.
    pub(super) fsync: bool,
}

impl Program for Commits {
    fn name(&self) -> &'static str {
        if self.fsync { "git-fsync" } else { "git-default" }
    }

    fn perform(&self, stage: &Stage<'_>) -> Result<()> {
        let folder = &stage.folder;
        run(self.git(folder).args(["init", "--quiet"]))?;
        stage.end_step();
        sync(&folder.join(".git"))?;
        stage.promise();
        for number in 1..=COMMITS {
            if number == REPACK_BEFORE {
                run(self.git(folder).args(["gc", "--quiet", "--prune=now"]))?;
            }
            let len = (stage.seed * 31 + number * 2_017) % FILE_BYTES;
            let text = pattern(stage.seed + number, len as usize);
            let file = folder.join(format!("file-{}", number % FILES));
            std::fs::write(file, text).map_err(words)?;
            run(self.git(folder).args(["add", "--all"]))?;
            let message = format!("Number {number}");
            run(self.git(folder).args(["commit", "--quiet", "--allow-empty", "-m", &message]))?;
            stage.end_step();
            if self.fsync || number.is_multiple_of(PROMISED_ONE_IN) {
                sync(&folder.join(".git/refs/heads"))?;
                stage.promise();
            }
        }
        Ok(())
    }

    fn inspect(&self, tree: &Tree, folder: &Path, _seed: u64) -> Result<u64> {
        tree.write(folder).map_err(words)?;
        let fsck = outcome(self.git(folder).args(["fsck", "--full", "--strict", "--no-dangling"]))?;
        if !fsck.status.success() {
            let said = said(&fsck);
            // What `git init` has not finished is none yet.
            let is_none = said.contains("not a git repository");
            return if is_none { Ok(0) } else { Err(format!("git fsck says: {said}")) };
        }
        let born = outcome(self.git(folder).args(["rev-parse", "--quiet", "--verify", "HEAD"]))?;
        if !born.status.success() {
            return Ok(1);
        }
        history(&run(self.git(folder).args(["log", "--format=%s", "HEAD"]))?).map(|count| 1 + count)
    }
}

impl Commits {
    fn git(&self, folder: &Path) -> Command {
        let mut git = Command::new("git");
        git.current_dir(folder)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            // A folder that is no repository is to be in none.
            .env("GIT_DIR", folder.join(".git"))
            .env("GIT_WORK_TREE", folder)
            .args(["-c", "user.name=Marram", "-c", "user.email=marram@localhost"])
            .args(["-c", "init.defaultBranch=main", "-c", "gc.auto=0", "-c", "gc.autoDetach=false"])
            .args(["-c", "safe.directory=*"]);
        if self.fsync {
            git.args(["-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync"]);
        }
        git
    }
}

/// How many commits there are, if they are the first so many, the latest first.
fn history(subjects: &str) -> Result<u64> {
    let count = subjects.lines().count() as u64;
    let wanted: Vec<String> = (1..=count).rev().map(|number| format!("Number {number}")).collect();
    if subjects.lines().eq(wanted.iter().map(String::as_str)) {
        return Ok(count);
    }
    Err(format!("the history is no beginning of what was committed:\n{subjects}"))
}

#[cfg(test)]
mod tests {
    use super::history;

    #[test]
    fn a_history_is_the_first_so_many_commits() {
        assert_eq!(history("Number 2\nNumber 1"), Ok(2));
        for subjects in ["Number 2", "Number 3\nNumber 1", "Number 1\nNumber 2"] {
            history(subjects).expect_err(subjects);
        }
    }
}
