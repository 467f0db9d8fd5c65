//! Processes that outlive the command that began them: what is below this process, which adopts
//! what loses its parent.

use crate::names::printable;
use crate::process::own_pid;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Longest command line of a report, in characters.
const COMMAND_MAX: usize = 80;

/// A process that goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Survivor {
    /// Its number.
    pub(crate) pid: i32,
    /// Its command line, cut where it is long.
    pub(crate) command: String,
}

/// All living processes below this one.
pub(super) fn living() -> Vec<Survivor> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: BTreeMap<i32, i32> =
        numbers.filter_map(|pid: i32| Some((pid, living_parent(pid)?))).collect();
    below(own_pid(), &parents)
        .into_iter()
        .map(|pid| Survivor { pid, command: command_of(pid) })
        .collect()
}

/// What descends from `root`, by the parent of each process.
fn below(root: i32, parents: &BTreeMap<i32, i32>) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut last = BTreeSet::from([root]);
    while !last.is_empty() {
        let is_child =
            |(pid, parent): &(&i32, &i32)| last.contains(parent) && !found.contains(*pid);
        let children: BTreeSet<i32> =
            parents.iter().filter(is_child).map(|(pid, _)| *pid).collect();
        found.extend(&children);
        last = children;
    }
    found
}

/// The parent of a process that has not ended.
fn living_parent(pid: i32) -> Option<i32> {
    parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The parent in a line of `/proc/PID/stat`; none of a process that has ended.
fn parent_in(line: &str) -> Option<i32> {
    // The name stands in brackets and may have any character in it.
    let mut fields = line.rsplit_once(')')?.1.split_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.next()?.parse().ok(),
    }
}

fn command_of(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    let told: String = words.join(" ").chars().take(COMMAND_MAX).collect();
    match told.is_empty() {
        true => fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().into(),
        false => printable(told),
    }
}

#[cfg(test)]
mod tests {
    use super::{below, living, parent_in};
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::Command;

    #[test]
    fn the_parent_stands_behind_a_name_of_any_characters() {
        assert_eq!(parent_in("12 (a) b) S 7 1 1"), Some(7));
        assert_eq!(parent_in("12 (a) Z 7 1 1"), None, "it has ended");
        assert_eq!(parent_in("12 (a"), None);
    }

    #[test]
    fn what_children_have_begun_is_found() {
        let parents = BTreeMap::from([(2, 1), (3, 2), (4, 3), (5, 9), (9, 9)]);
        assert_eq!(below(2, &parents), BTreeSet::from([3, 4]));
        assert_eq!(below(9, &parents), BTreeSet::from([5, 9]));
    }

    #[test]
    fn a_child_is_told_with_its_command_line() {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        let found = living();
        child.kill().unwrap();
        child.wait().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let told = found.iter().find(|survivor| survivor.pid == pid).unwrap();
        // Before it is `sleep` it is a copy of this process.
        assert!(!told.command.is_empty(), "{told:?}");
    }
}
