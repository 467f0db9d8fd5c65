//! git commits, one after another, with everything synced that git can sync. It never syncs a
//! folder, so the renaming that moves a branch is durable only after we have synced the branch's.

use super::{Load, Place, content, sync_folder};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, run, text};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files that the commits take turns to change.
const FILES: u64 = 8;

/// Commits in a loop.
pub(super) struct Commits;

impl Load for Commits {
    fn name(&self) -> &'static str {
        "git"
    }

    fn work(&self, place: &Place, is_over: &AtomicBool) -> Result<()> {
        let folder = repository(place);
        run(git(&place.folder, &["init", "--quiet"]).arg(&folder))?;
        for number in 1_u64.. {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let file = folder.join(format!("file-{}", number % FILES));
            std::fs::write(file, content(place.seed, number, 3_000))?;
            run(&mut git(&folder, &["add", "--all"]))?;
            run(&mut git(&folder, &["commit", "--quiet", "-m", &format!("Number {number}")]))?;
            sync_folder(&folder.join(".git/refs/heads"))?;
            let commit = text(&mut git(&folder, &["rev-parse", "HEAD"]))?;
            place.journal.note(&commit)?;
        }
        Ok(())
    }

    fn judge(&self, place: &Place) -> Result<String> {
        let folder = repository(place);
        let acknowledged = place.journal.lines()?;
        let Some(last) = acknowledged.last() else { return Ok("no commit".into()) };
        run(&mut git(&folder, &["fsck", "--full", "--strict"]))?;
        let survived = expect_history(&folder, place.seed)?;
        run(&mut git(&folder, &["merge-base", "--is-ancestor", last, "HEAD"])).context(|| {
            let count = acknowledged.len();
            format!("of {count} acknowledged commits {survived} survived, {last} did not")
        })?;
        Ok(format!("{survived} commits, {} acknowledged", acknowledged.len()))
    }
}

fn repository(place: &Place) -> PathBuf {
    place.folder.join("repository")
}

fn git(folder: &Path, words: &[&str]) -> Command {
    let mut git = command(&["git", "-c", "user.name=Marram", "-c", "user.email=marram@localhost"]);
    git.args(["-c", "init.defaultBranch=main", "-c", "gc.auto=0", "-c", "safe.directory=*"]);
    git.args(["-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync"]);
    git.args(words).current_dir(folder);
    git
}

/// How many commits there are; each file of the last one is as the last commit that wrote it.
fn expect_history(folder: &Path, seed: u64) -> Result<u64> {
    let count = text(&mut git(folder, &["rev-list", "--count", "HEAD"]))?;
    let count: u64 = count.parse().context(|| "the number of commits")?;
    for number in (1..=count).rev().take(usize::try_from(FILES).expect("few files")) {
        let name = format!("HEAD:file-{}", number % FILES);
        let shown = marram_lab::process::output(&mut git(folder, &["cat-file", "blob", &name]))?;
        if shown.stdout != content(seed, number, 3_000) {
            return fail(format!("{name} is not what commit {number} wrote"));
        }
    }
    Ok(count)
}
