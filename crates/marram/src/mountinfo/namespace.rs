//! Mount namespaces: which one this process is in, and where a file system is seen from others.
//!
//! Without root only the processes of one's own user can be looked at, so what is found need not be
//! all that there is.

use super::{DeviceNumber, MountEntry, mounts_in};
use crate::names::printable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most namespaces that are looked into.
const NAMESPACES_MAX: usize = 4096;

/// A place where a file system is mounted, in this mount namespace or in another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sight {
    /// Where.
    pub(crate) directory: PathBuf,
    /// A process of the other namespace: that with the least number.
    pub(crate) pid: Option<i32>,
    /// The name of its program.
    pub(crate) program: Option<String>,
}

impl Sight {
    /// In the namespace of this process.
    pub(crate) fn here(directory: &Path) -> Sight {
        Sight { directory: directory.to_owned(), pid: None, program: None }
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "at {}", self.directory.display())?;
        match (self.pid, &self.program) {
            (Some(pid), Some(program)) => {
                write!(out, " in the mount namespace of process {pid} ({program})")
            }
            _ => Ok(()),
        }
    }
}

/// The number of the mount namespace that this process is in: no other namespace has it as long as
/// this one lives. None if `/proc` does not tell.
pub(crate) fn own_namespace() -> Option<u64> {
    namespace_of(Path::new("/proc/self"))
}

/// Whether this process is in a user namespace, which may undo nothing that it began with.
pub(crate) fn is_in_user_namespace() -> bool {
    let all = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !all(map))
}

fn namespace_of(process: &Path) -> Option<u64> {
    fs::metadata(process.join("ns/mnt")).ok().map(|found| found.ino())
}

/// Where the Marram mount of `device` is seen from other mount namespaces: the first place of each.
pub(crate) fn sights_elsewhere(device: DeviceNumber) -> Vec<Sight> {
    let known = own_namespace().into_iter().collect();
    let processes = one_process_of_each(known).into_iter();
    processes.filter_map(|(pid, process)| sight_of(pid, &process, device)).collect()
}

/// Whether a directory of the Marram mount of `device`, given by its path there, is seen in another
/// place, or has something mounted in it, in any mount namespace: as the view of a command has.
pub(crate) fn is_shown_elsewhere(device: DeviceNumber, directory: &Path) -> bool {
    let shows = |entries: &[MountEntry]| {
        let of_it = || entries.iter().filter(|entry| entry.device == device);
        let is_whole = |entry: &&MountEntry| entry.root == Path::new("/");
        let places: Vec<PathBuf> =
            of_it().filter(is_whole).map(|entry| entry.directory.join(directory)).collect();
        let is_in = |entry: &MountEntry| places.iter().any(|at| entry.directory.starts_with(at));
        let is_of = |entry: &MountEntry| entry.root.starts_with(Path::new("/").join(directory));
        of_it().any(is_of) || entries.iter().any(is_in)
    };
    one_process_of_each(BTreeSet::new()).into_iter().any(|(_, process)| {
        mounts_in(&process.join("mountinfo")).is_ok_and(|entries| shows(&entries))
    })
}

/// A process of each mount namespace that is not known yet: that with the least number.
fn one_process_of_each(mut known: BTreeSet<u64>) -> Vec<(i32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut processes: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    processes.sort_unstable();
    let mut found = Vec::new();
    for pid in processes {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let is_new = namespace_of(&process).is_some_and(|namespace| known.insert(namespace));
        if is_new && known.len() <= NAMESPACES_MAX {
            found.push((pid, process));
        }
    }
    found
}

fn sight_of(pid: i32, process: &Path, device: DeviceNumber) -> Option<Sight> {
    let shows = |entry: &MountEntry| entry.is_marram() && entry.device == device;
    let entry = mounts_in(&process.join("mountinfo")).ok()?.into_iter().find(shows)?;
    let program = fs::read_to_string(process.join("comm")).unwrap_or_default();
    let program = Some(printable(program.trim_end().to_owned()));
    Some(Sight { directory: entry.directory, pid: Some(pid), program })
}

#[cfg(test)]
mod tests {
    use super::{own_namespace, sights_elsewhere};

    #[test]
    fn a_process_is_in_a_namespace_and_nobody_sees_a_device_that_is_not_there() {
        assert_eq!(own_namespace(), own_namespace());
        assert!(own_namespace().is_some());
        assert!(sights_elsewhere((u32::MAX, u32::MAX).into()).is_empty());
    }
}
