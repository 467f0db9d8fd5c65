//! Whether two merges say the same.
//!
//! What was renamed has several names; a conflict about it is reported here by one of them, by git
//! by others. So all names of one file, on all sides, count as one.

use crate::git::{Files, Merged};
use marram_history::MergeReport;
use std::collections::{BTreeMap, BTreeSet};

/// Names that mean the same file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aliases(BTreeMap<Vec<u8>, Vec<u8>>);

/// What one merge came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Neither has a conflict, and both have the same tree.
    Clean,
    /// Both have the same conflicts, and the same at all other paths.
    Conflicted,
    /// They differ.
    Differs(Difference),
}

/// In what two merges differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// In conflict only here.
    pub(crate) only_here: BTreeSet<String>,
    /// In conflict only for git.
    pub(crate) only_git: BTreeSet<String>,
    /// In no conflict, and not the same.
    pub(crate) content: BTreeSet<String>,
}

impl Aliases {
    fn first(&self, path: &[u8]) -> Vec<u8> {
        let mut at = path;
        while let Some(next) = self.0.get(at) {
            at = next;
        }
        at.to_vec()
    }

    /// Notes that two names mean one file.
    pub(crate) fn join(&mut self, a: &[u8], b: &[u8]) {
        let (a, b) = (self.first(a), self.first(b));
        if a != b {
            self.0.insert(b, a);
        }
    }
}

/// Compares what a merge here said and left with what git says.
pub(crate) fn judge(
    report: &MergeReport,
    files: &Files,
    git: (&Merged, &Files),
    aliases: &Aliases,
) -> Verdict {
    let (git, git_files) = git;
    let relative = |path: &[u8]| path.strip_prefix(b"/").unwrap_or(path).to_vec();
    let open = report.conflicts.iter().chain(report.decided.iter().map(|(conflict, _)| conflict));
    let here: BTreeSet<Vec<u8>> =
        open.map(|conflict| aliases.first(&relative(&conflict.path))).collect();
    let there: BTreeSet<Vec<u8>> =
        git.conflicts.iter().map(|path| aliases.first(&plain(path))).collect();
    let told = |paths: BTreeSet<&Vec<u8>>| -> BTreeSet<String> {
        paths.into_iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    };
    let settled = |path: &&Vec<u8>| {
        let first = aliases.first(&plain(path));
        !here.contains(&first) && !there.contains(&first)
    };
    let all: BTreeSet<&Vec<u8>> = files.keys().chain(git_files.keys()).collect();
    let differs = |path: &&Vec<u8>| files.get(*path) != git_files.get(*path);
    let content = all.into_iter().filter(differs).filter(settled).collect();
    let difference = Difference {
        only_here: told(here.difference(&there).collect()),
        only_git: told(there.difference(&here).collect()),
        content: told(content),
    };
    match () {
        () if difference != Difference::default() => Verdict::Differs(difference),
        () if here.is_empty() => Verdict::Clean,
        () => Verdict::Conflicted,
    }
}

/// A path without what git puts behind it where a directory is in the way.
fn plain(path: &[u8]) -> Vec<u8> {
    let cut = path.iter().rposition(|byte| *byte == b'~');
    path[..cut.unwrap_or(path.len())].to_vec()
}
