//! Whether a view is still there when its command has ended.
//!
//! Nobody outside sees the mounts of a command. Its table of mounts is opened when the view has
//! been made and before the command begins: an open table keeps the namespace, and can be read
//! when all of its processes have ended. For that the process that makes the view waits a moment.

use crate::error::{Error, Result};
use crate::mountinfo::{MountEntry, mounts_of};
use crate::process::own_pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How long to wait before looking for signals.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The ends of two pipes: by one the view's process says that the view is made, by the other it
/// is let go on. It opens its ends by their paths, which tell it of the end of this process.
#[derive(Debug)]
pub(super) struct Meeting {
    is_made: PipeReader,
    made: PipeWriter,
    going: PipeReader,
    go_on: PipeWriter,
}

impl Meeting {
    pub(super) fn new() -> io::Result<Meeting> {
        let ((is_made, made), (going, go_on)) = (io::pipe()?, io::pipe()?);
        Ok(Meeting { is_made, made, going, go_on })
    }

    /// Where the view's process says that the view is made, and where it waits.
    pub(super) fn paths(&self) -> [PathBuf; 2] {
        let path = |descriptor| PathBuf::from(format!("/proc/{}/fd/{descriptor}", own_pid()));
        [path(self.made.as_raw_fd()), path(self.going.as_raw_fd())]
    }

    /// Returns when `process` has made the view of `places` or has ended; calls `heed` meanwhile.
    /// Without the view, or where the kernel does not tell of it, there is no sight of it. Its
    /// directories come with it, if they are to be kept; none does if one is not there.
    pub(super) fn wait(
        mut self,
        process: Pid,
        (places, keeps_directories): (&[&Path], bool),
        mut heed: impl FnMut(),
    ) -> Option<(Sight, Vec<OwnedFd>)> {
        let ended = pidfd_open(process, PidfdFlags::empty()).ok()?;
        loop {
            let both = &mut [
                PollFd::new(&self.is_made, PollFlags::IN),
                PollFd::new(&ended, PollFlags::IN),
            ];
            let count = poll(both, Some(&TICK));
            if count.is_ok_and(|count| count > 0) {
                break;
            }
            heed();
        }
        let kept = if keeps_directories { places } else { &[] };
        let sight = Sight::of(process, places).map(|sight| {
            let directories = kept.iter().map(|place| directory_of(process, place));
            (sight, directories.collect::<Option<Vec<_>>>().unwrap_or_default())
        });
        let _has_ended = self.go_on.write_all(b"g");
        sight
    }
}

/// The other side of a meeting, in the process of the view.
#[derive(Debug)]
pub(super) struct Waiting {
    made: File,
    going: File,
}

impl Waiting {
    /// Opens the ends; before the process leaves the namespaces of its starter.
    ///
    /// # Errors
    /// They cannot be opened.
    pub(super) fn at(made: &Path, going: &Path) -> Result<Waiting> {
        let failed = |error| Error::system("open", made, error);
        let made_end = OpenOptions::new().write(true).open(made).map_err(failed)?;
        let going_end = File::open(going).map_err(|error| Error::system("open", going, error))?;
        Ok(Waiting { made: made_end, going: going_end })
    }

    /// Says that the view is made, and returns when the starter has seen it or has ended.
    pub(super) fn meet(mut self) {
        if self.made.write_all(b"m").is_ok() {
            let _or_the_starter_has_ended = self.going.read(&mut [0_u8; 1]);
        }
    }
}

/// The directory that a process sees at a place. The kernel alone is asked for it.
fn directory_of(process: Pid, place: &Path) -> Option<OwnedFd> {
    let root = format!("/proc/{}/root", process.as_raw_nonzero());
    let path = Path::new(&root).join(place.strip_prefix("/").unwrap_or(place));
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// A view as the mounts of its command show it.
#[derive(Debug)]
pub(super) struct Sight {
    table: File,
    /// A mount of each file system that is seen.
    views: Vec<MountEntry>,
}

impl Sight {
    fn of(process: Pid, places: &[&Path]) -> Option<Sight> {
        let path = format!("/proc/{}/mountinfo", process.as_raw_nonzero());
        let mut table = File::open(path).ok()?;
        let entries = mounts_of(&mut table).ok()?;
        let on = |place: &&Path| entries.iter().rev().find(|it| it.directory == **place).cloned();
        let views = places.iter().map(on).collect::<Option<_>>()?;
        Some(Sight { table, views })
    }

    /// Whether all of it is mounted still, be it that its places were moved.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(super) fn is_there(&mut self) -> Result<bool> {
        let entries = mounts_of(&mut self.table)
            .map_err(|error| Error::failed(format!("cannot read the command's mounts: {error}")))?;
        let is_there = |view: &MountEntry| {
            entries.iter().any(|entry| (entry.number, entry.device) == (view.number, view.device))
        };
        Ok(self.views.iter().all(is_there))
    }
}

#[cfg(test)]
mod tests {
    use super::{Meeting, Waiting};
    use std::process::Command;

    #[test]
    fn a_process_that_ends_before_it_has_a_view_is_not_waited_for() {
        let mut child = Command::new("true").spawn().unwrap();
        let process = rustix::process::Pid::from_child(&child);
        let sight = Meeting::new().unwrap().wait(process, (&["/none".as_ref()], false), || ());
        assert!(sight.is_none());
        child.wait().unwrap();
    }

    #[test]
    fn both_sides_meet_and_none_waits_for_one_that_has_gone() {
        let meeting = Meeting::new().unwrap();
        let [made, going] = meeting.paths();
        let waiting = Waiting::at(&made, &going).unwrap();
        let other = std::thread::spawn(move || waiting.meet());
        // This process stands for the other one: its root is a mount.
        let own = rustix::process::getpid();
        let (mut sight, directories) = meeting.wait(own, (&["/".as_ref()], true), || ()).unwrap();
        other.join().unwrap();
        assert_eq!(directories.len(), 1);
        assert!(sight.is_there().unwrap());
        let meeting = Meeting::new().unwrap();
        let [made, going] = meeting.paths();
        let waiting = Waiting::at(&made, &going).unwrap();
        drop(meeting);
        waiting.meet();
    }
}
