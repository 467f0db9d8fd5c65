//! Conflicts in what git keeps of a checkout: one line, with the way that git has for it.
//!
//! A fork of a checkout is a clone of its repository. If both have committed, or only looked at
//! their files, the same files below `.git` differ, and no rule for files puts them together: git
//! does, by a pull from the fork. What is no part of the repository is merged without `.git`.

use crate::control::protocol::ConflictRow;
use crate::names::{PathText, quoted, shell_word};
use crate::target::Target;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What git keeps for itself in a checkout.
const GIT: &[u8] = b".git";
/// Files there that git writes when it only looks at the files of a checkout.
const INDEX: &[u8] = b"index";

/// A checkout in which both have used git.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Checkout {
    /// Where it is, from the root of the fork.
    pub(super) directory: PathText,
    /// How many conflicts there are in what git keeps of it.
    pub(super) conflicts: usize,
    /// Whether that is only what git remembers of the files, and no commit.
    pub(super) is_index_only: bool,
    /// What brings both together, to be run one after the other.
    pub(super) commands: Vec<String>,
}

/// Where the fork and the directory that it goes into are.
pub(super) struct Places<'a> {
    pub(super) target: &'a Target,
    /// Name of the fork, and its root where a mount shows it.
    pub(super) fork: (&'a str, Option<PathBuf>),
    /// The directory that it is a fork of, where a mount shows it.
    pub(super) parent: Option<PathBuf>,
    /// The changes go into the fork.
    pub(super) is_update: bool,
}

/// The checkouts whose own files are in conflict.
pub(super) fn checkouts(conflicts: &[ConflictRow], places: &Places<'_>) -> Vec<Checkout> {
    let mut found: BTreeMap<Vec<u8>, (usize, bool)> = BTreeMap::new();
    for row in conflicts {
        let path = row.path_in_bytes();
        if let Some((directory, inner)) = in_git(&path) {
            let (count, is_index_only) = found.entry(directory.to_vec()).or_insert((0, true));
            *count += 1;
            *is_index_only &= inner == INDEX;
        }
    }
    let checkout = |(directory, (conflicts, is_index_only)): (Vec<u8>, (usize, bool))| Checkout {
        commands: commands(&directory, is_index_only, places),
        directory: PathText::of(if directory.is_empty() { b"/" } else { &directory }),
        conflicts,
        is_index_only,
    };
    found.into_iter().map(checkout).collect()
}

/// The directory of the checkout that has a path below its `.git`, and the path in there.
fn in_git(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let starts = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    starts.map(|(at, _)| (&path[..at], &path[at + 1..])).find_map(|(directory, rest)| {
        let inner = rest.strip_prefix(GIT)?.strip_prefix(b"/")?;
        Some((directory, inner))
    })
}

fn commands(directory: &[u8], is_index_only: bool, places: &Places<'_>) -> Vec<String> {
    let below = OsStr::from_bytes(directory.strip_prefix(b"/").unwrap_or(directory));
    let at = |root: &PathBuf| match below.is_empty() {
        true => root.clone(),
        false => root.join(below),
    };
    let (name, fork) = &places.fork;
    let pool: &Path = places.target.directory.as_deref().unwrap_or(&places.target.pool);
    let verb = if places.is_update { "update" } else { "merge" };
    let rest = format!("marram {verb} {} --fork {name} --exclude .git", shell_word(pool));
    let mut both = [fork, &places.parent].map(|root| root.as_ref().map(at));
    if places.is_update {
        both.reverse();
    }
    match both {
        [Some(from), Some(into)] if !is_index_only => {
            let (from, into) = (shell_word(&from), shell_word(&into));
            vec![format!("git -C {into} pull --no-rebase {from} HEAD"), rest]
        }
        _ => vec![rest],
    }
}

/// Whether a conflict is in what git keeps: it has no line of its own.
pub(super) fn is_gits(row: &ConflictRow) -> bool {
    in_git(&row.path_in_bytes()).is_some()
}

/// A checkout for people.
pub(super) fn text(checkout: &Checkout) -> String {
    let place = quoted(&checkout.directory.bytes());
    let Checkout { conflicts, is_index_only, commands, .. } = checkout;
    let (what, first) = match is_index_only {
        true => ("git remembers other files on both sides", String::new()),
        false => ("both have used git", "  commit on both sides, and then:\n".to_owned()),
    };
    let files = if *conflicts == 1 { "file" } else { "files" };
    let commands: String = commands.iter().map(|command| format!("  {command}\n")).collect();
    format!("conflict: git {place}: {what}, {conflicts} {files} in .git\n{first}{commands}")
}

#[cfg(test)]
mod tests {
    use super::in_git;

    #[test]
    fn what_git_keeps_is_known_by_its_directory() {
        let cases = [
            ("/.git/index", Some(("", "index"))),
            ("/a/b/.git/refs/heads/x", Some(("/a/b", "refs/heads/x"))),
            ("/a/.git", None),
            ("/a/.gitignore", None),
            ("/x.git/index", None),
            ("/a/.git/modules/b/.git/index", Some(("/a", "modules/b/.git/index"))),
        ];
        for (path, found) in cases {
            let found = found.map(|(directory, inner)| (directory.as_bytes(), inner.as_bytes()));
            assert_eq!(in_git(path.as_bytes()), found);
        }
    }
}
