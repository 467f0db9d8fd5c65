//! Merges of a real repository, made again.
//!
//! For each merge of two parents with one base: the base is put into a dataset, which is forked;
//! the first parent's changes are made to it, the second one's to the fork, and the fork is merged.
//! What was renamed is what git guesses to be; all else is done under the names that git knows.
//! No directory is removed when it becomes empty, as git knows of none. The dataset goes on from
//! merge to merge. Files that are the same on all sides are left out, unless whole trees are asked
//! for.

use crate::Result;
use crate::family::{Change, Family, Tree};
use crate::git::{Delta, Files, Git, Listing};
use crate::judge::{Aliases, Verdict, judge};
use std::collections::BTreeSet;
use std::path::Path;

/// Progress is printed after so many merges.
const TOLD_EVERY: usize = 50;
/// Where files wait that are on their way to another name.
const WAITING: &str = ".marram-waits";

/// What the merges came to.
#[derive(Default)]
struct Report {
    clean: u64,
    conflicted: u64,
    differing: u64,
    passed_over: u64,
}

/// Replays merges; true if all are the same.
///
/// # Errors
/// No such repository, or what git cannot read.
pub(crate) fn run(
    repository: &Path,
    (count, whole): (usize, bool),
    commit: Option<&str>,
) -> Result<bool> {
    let git = Git::new(Some(repository))?;
    let merges = merges(repository, commit)?;
    if let Some([newest, ..]) = merges.first() {
        git.index_commits(newest)?;
    }
    let mut report = Report::default();
    let mut replay = Replay { git, family: Family::new()?, files: Files::new(), count: 0, whole };
    for [merge, ours, theirs] in &merges {
        if report.clean + report.conflicted + report.differing >= count as u64 {
            break;
        }
        let bases = replay.git.ask(&["merge-base", "--all", ours, theirs]);
        let bases = String::from_utf8_lossy(&bases.unwrap_or_default()).into_owned();
        let [base] = bases.lines().collect::<Vec<_>>()[..] else {
            report.passed_over += 1;
            continue;
        };
        match replay.merge(base, [ours, theirs])? {
            Verdict::Clean => report.clean += 1,
            Verdict::Conflicted => report.conflicted += 1,
            Verdict::Differs(difference) => {
                report.differing += 1;
                println!("{merge}: {difference:#?}");
            }
        }
        if replay.count.is_multiple_of(TOLD_EVERY) {
            eprintln!("{} merges, {} differ", replay.count, report.differing);
        }
    }
    let Report { clean, conflicted, differing, passed_over } = report;
    println!(
        "{} merges: {clean} clean and the same, {conflicted} with the same conflicts, \
         {differing} differ; {passed_over} passed over, which have not one base",
        clean + conflicted + differing
    );
    Ok(differing == 0)
}

/// Merges with two parents, the newest first: the commit and its parents.
fn merges(repository: &Path, commit: Option<&str>) -> Result<Vec<[String; 3]>> {
    let mut command = std::process::Command::new("git");
    command.arg("-C").arg(repository).args(["rev-list", "--parents"]);
    match commit {
        Some(commit) => command.args(["--no-walk", commit]),
        None => command.args(["--merges", "HEAD"]),
    };
    let listed = command.output().map_err(crate::words)?;
    if !listed.status.success() {
        return Err(String::from_utf8_lossy(&listed.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let line = |line: &str| {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        words.try_into().ok()
    };
    Ok(text.lines().filter_map(line).collect())
}

/// The paths at which not all have the same.
fn differing<'l>(listings: &'l [Listing; 3], merged: &'l Listing) -> BTreeSet<&'l Vec<u8>> {
    let all = || listings.iter().chain([merged]);
    let paths = all().flat_map(Listing::keys);
    let differs = |path: &&Vec<u8>| all().any(|one| one.get(*path) != merged.get(*path));
    paths.filter(differs).collect()
}

/// A dataset that goes from merge to merge.
struct Replay {
    git: Git,
    family: Family,
    /// What the dataset holds.
    files: Files,
    count: usize,
    /// Files that all have alike are there too.
    whole: bool,
}

impl Replay {
    fn merge(&mut self, base: &str, sides: [&String; 2]) -> Result<Verdict> {
        let git = &mut self.git;
        let merged = git.merge(sides[0], sides[1])?;
        let listings = [git.listing(base)?, git.listing(sides[0])?, git.listing(sides[1])?];
        let paths = match self.whole {
            true => listings.iter().chain([&merged.listing]).flat_map(Listing::keys).collect(),
            false => differing(&listings, &merged.listing),
        };
        let paths = paths.into_iter().cloned().collect();
        let [base_files, ours, theirs] = &listings;
        let files = git.files(base_files, &paths)?;
        let trees = [git.files(ours, &paths)?, git.files(theirs, &paths)?];
        let git_files = git.files(&merged.listing, &paths)?;
        self.put(&files)?;
        let fork = self.family.fork()?;
        let mut aliases = Aliases::default();
        let datasets = [&self.family.parent, &fork];
        for ((tree, after), commit) in datasets.into_iter().zip(&trees).zip(sides) {
            let deltas = self.git.deltas(base, commit)?;
            apply(tree, &deltas, after, &mut aliases)?;
            if tree.files(false)? != *after {
                return Err(format!("{commit} was not put there as it is"));
            }
        }
        let report = self.family.merge()?;
        self.count += 1;
        self.files = self.family.parent.files(true)?;
        let verdict = judge(&report, &self.files, (&merged, &git_files), &aliases);
        self.git.forget();
        drop(fork);
        self.family.drop_fork()?;
        Ok(verdict)
    }

    /// Makes the dataset hold a tree.
    fn put(&self, files: &Files) -> Result<()> {
        let tree = &self.family.parent;
        for path in self.files.keys().filter(|path| !files.contains_key(*path)) {
            tree.apply(&Change::Remove(path.clone()))?;
        }
        for (path, file) in files.iter().filter(|(path, file)| self.files.get(*path) != Some(file))
        {
            tree.apply(&Change::Put(path.clone(), file.0, file.1.clone()))?;
        }
        Ok(())
    }
}

/// Changes a tree from one commit to another. What is renamed waits elsewhere until all names that
/// go have gone.
fn apply(tree: &Tree, deltas: &[Delta], after: &Files, aliases: &mut Aliases) -> Result<()> {
    let waiting = |number: usize| format!("{WAITING}{number}").into_bytes();
    for (number, delta) in deltas.iter().enumerate() {
        match delta.status {
            b'R' => tree.apply(&Change::Rename(delta.path.clone(), waiting(number)))?,
            b'D' => tree.apply(&Change::Remove(delta.path.clone()))?,
            _ => (),
        }
    }
    for (number, delta) in deltas.iter().enumerate() {
        let path = delta.new_path.as_ref().unwrap_or(&delta.path);
        if delta.status == b'R' {
            aliases.join(&delta.path, path);
            tree.apply(&Change::Rename(waiting(number), path.clone()))?;
        }
        if let Some((mode, content)) = after.get(path).filter(|_| delta.status != b'D') {
            tree.apply(&Change::Put(path.clone(), *mode, content.clone()))?;
        }
    }
    Ok(())
}
