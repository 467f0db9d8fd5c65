//! Processes that outlive the command that began them: what is below this process, which adopts
//! what loses its parent.

use crate::names::printable;
use crate::process::own_pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Most processes that are held at a time: each is an open file. More are held when some have
/// ended.
const HELD_MAX: usize = 256;

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
    pids().into_iter().map(|pid| Survivor { pid, command: command_of(pid) }).collect()
}

/// The same, each held by what cannot come to mean another process.
pub(super) struct Below(Vec<(i32, OwnedFd)>);

impl Below {
    /// As it is now. A number that is looked up, held, and looked up again is of the same process.
    pub(super) fn now() -> Below {
        let hold = |pid: i32| {
            let process = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
            Some((pid, process))
        };
        let mut held: Vec<(i32, OwnedFd)> =
            pids().into_iter().take(HELD_MAX).filter_map(hold).collect();
        let still = pids();
        held.retain(|(pid, _)| still.contains(pid));
        Below(held)
    }

    /// Sends a signal to those that are meant.
    pub(super) fn send(&self, signal: Signal, mut is_meant: impl FnMut(i32) -> bool) {
        for (_, process) in self.0.iter().filter(|(pid, _)| is_meant(*pid)) {
            let _it_has_ended = pidfd_send_signal(process, signal);
        }
    }

    /// Returns when one of them ends, or a signal comes, at the latest after `patience`.
    pub(super) fn wait_for_one(&self, patience: Duration) {
        let mut ends: Vec<PollFd<'_>> =
            self.0.iter().map(|(_, process)| PollFd::new(process, PollFlags::IN)).collect();
        let patience = Timespec::try_from(patience).ok();
        let _whatever_it_was = poll(&mut ends, patience.as_ref());
    }
}

/// The numbers of all living processes below this one.
fn pids() -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: BTreeMap<i32, i32> =
        numbers.filter_map(|pid: i32| Some((pid, living_parent(pid)?))).collect();
    below(own_pid(), &parents)
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

/// The parent of a process that has not ended. One whose first thread has ended goes on with the
/// others.
fn living_parent(pid: i32) -> Option<i32> {
    let (parent, has_ended) = parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    (!has_ended || threads() > 1).then_some(parent)
}

/// The parent in a line of `/proc/PID/stat`, and whether the first thread has ended.
fn parent_in(line: &str) -> Option<(i32, bool)> {
    // The name stands in brackets and may have any character in it.
    let mut fields = line.rsplit_once(')')?.1.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    Some((fields.next()?.parse().ok()?, has_ended))
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
    use super::{Below, below, living, parent_in};
    use std::collections::{BTreeMap, BTreeSet};
    use std::process::Command;

    #[test]
    fn the_parent_stands_behind_a_name_of_any_characters() {
        assert_eq!(parent_in("12 (a) b) S 7 1 1"), Some((7, false)));
        assert_eq!(parent_in("12 (a) Z 7 1 1"), Some((7, true)));
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

    #[test]
    fn what_is_held_gets_signals_and_tells_of_its_end() {
        let mut child = Command::new("sleep").arg("3600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let held = Below::now();
        held.send(super::Signal::KILL, |one| one == pid);
        held.wait_for_one(std::time::Duration::from_secs(60));
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        // Its number may be another's by now, and what was held stays what it was.
        held.send(super::Signal::KILL, |one| one == pid);
    }
}
