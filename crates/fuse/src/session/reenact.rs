//! Showing watchers what was changed behind the kernel's back; see `adapter::reenacting`.
//!
//! The calls are made by a thread that has no descriptor of the connection, nor any other of the
//! process. A process that is killed ends when all its threads have. One that waits for an answer
//! of its own file system does not end before the connection does. Were the connection open in
//! that thread, both would wait for each other, and the mount would hang for good.

use super::SessionHandle;
use crate::adapter::{Step, Turn};
use marram_vfs::{Ino, Kind, Name};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, Timespec, Timestamps, UTIME_OMIT, fstat,
    major, minor, mkdirat, mknodat, openat, statx, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The first descriptor that is none of the standard ones.
const FIRST_CLOSED: libc::c_uint = 3;
/// No inode has this number.
const UNKNOWN: Ino = Ino(0);

/// A change of a name in a directory, or of what the name leads to, that was made already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The name is there and was not, or led elsewhere.
    Made(Kind),
    /// The name is gone. To be shown before the kernel is notified of it otherwise, as it knows
    /// best then what it was.
    Removed,
    /// The content of the inode, which is a file, is another.
    Modified(Ino),
    /// Attributes of the inode are others.
    Attributes(Ino),
}

/// A name that the kernel is to ask for anew.
type Notice = (Ino, Vec<u8>);

/// Shows changes, in a thread of its own.
pub struct Reenactor<'a> {
    handle: &'a SessionHandle,
    notices: Sender<Notice>,
    /// An answer for each of them.
    noticed: Receiver<()>,
}

/// Shows changes in one directory to watchers of it and of what is in it.
pub struct Reenactment<'a> {
    reenactor: &'a Reenactor<'a>,
    turn: Turn<'a>,
    parent: Ino,
    directory: OwnedFd,
}

impl SessionHandle {
    /// Has `work` show changes, and waits for it. It runs in a thread without descriptors other
    /// than the standard ones, and must use none that was opened elsewhere.
    ///
    /// Neither from within an operation of the file system nor with a lock held that one could wait
    /// for: the calls are answered by the threads that serve the mount.
    ///
    /// # Errors
    /// There is no such thread to be had; then `work` has not run.
    pub fn reenact(&self, work: impl FnOnce(&Reenactor<'_>) + Send) -> std::io::Result<()> {
        let (notices, to_send) = channel::<Notice>();
        let (sent, noticed) = channel();
        let reenactor = Reenactor { handle: self, notices, noticed };
        std::thread::scope(|scope| {
            let named = std::thread::Builder::new().name("watchers".to_owned());
            let running = named.spawn_scoped(scope, move || {
                part_from_descriptors()?;
                work(&reenactor);
                Ok(())
            })?;
            // The connection is open here.
            for (parent, name) in to_send {
                if let Ok(name) = Name::new(&name) {
                    self.notify_entry(parent, name);
                }
                let _has_ended = sent.send(());
            }
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Whatever is mounted on the way must not be touched.
    fn refuse_foreign(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let device = fstat(file)?.st_dev;
        match (major(device), minor(device)) == self.attached.device {
            true => Ok(()),
            false => Err(Errno::XDEV),
        }
    }
}

/// Gives the calling thread a table of descriptors of its own, with the standard ones alone.
#[allow(unsafe_code, reason = "no crate in use has this call of the kernel")]
fn part_from_descriptors() -> std::io::Result<()> {
    // SAFETY: the thread has just begun, and neither it nor what it is given owns a descriptor.
    // What is closed is its copy alone: the flag parts it from the table of all other threads.
    let parted = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_CLOSED,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_UNSHARE,
        )
    };
    if parted == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

impl Reenactor<'_> {
    /// Begins with a directory, which lies at `path` below the mount; an error if that is not seen
    /// there from this process.
    ///
    /// # Errors
    /// What the kernel says of the path, [`Errno::XDEV`] if another file system lies there.
    pub fn directory(&self, parent: Ino, path: &Path) -> Result<Reenactment<'_>, Errno> {
        let turn = self.handle.reenacted.begin();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty())?;
        self.handle.refuse_foreign(directory.as_fd())?;
        Ok(Reenactment { reenactor: self, turn, parent, directory })
    }

    /// Has the kernel ask anew for a name; it has been notified when this returns.
    fn notify(&self, parent: Ino, name: Name<'_>) {
        if self.notices.send((parent, name.as_bytes().to_vec())).is_ok() {
            let _has_ended = self.noticed.recv();
        }
    }
}

impl Reenactment<'_> {
    /// Has the kernel report one change.
    ///
    /// # Errors
    /// The kernel refuses: watchers have not seen this change.
    pub fn show(&self, name: Name<'_>, shown: Shown) -> Result<(), Errno> {
        match shown {
            Shown::Made(kind) => self.make(name.as_bytes(), kind),
            Shown::Removed => self.remove(name),
            Shown::Modified(ino) => self.touch(name.as_bytes(), ino, true),
            Shown::Attributes(ino) => self.touch(name.as_bytes(), ino, false),
        }
    }

    fn make(&self, name: &[u8], kind: Kind) -> Result<(), Errno> {
        let (at, mode) = (&self.directory, Mode::empty());
        let step = Step::Make { parent: self.parent, name: name.to_vec() };
        self.turn.act(step, || match kind {
            Kind::Directory => mkdirat(at, name, mode),
            Kind::Symlink => symlinkat(".", at, name),
            _ => mknodat(at, name, FileType::from_raw_mode(kind.mode_bits()), mode, 0),
        })
    }

    fn remove(&self, name: Name<'_>) -> Result<(), Errno> {
        let text = name.as_bytes();
        let step = |was, is_directory| Step::Remove {
            parent: self.parent,
            name: text.to_vec(),
            was,
            is_directory,
        };
        let remembered = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC;
        let asked = StatxFlags::TYPE | StatxFlags::INO;
        let look = || statx(&self.directory, text, remembered, asked);
        let was = self.turn.act(step(UNKNOWN, false), look)?;
        let is_directory = FileType::from_raw_mode(was.stx_mode.into()) == FileType::Directory;
        // It has to ask again what the name leads to: it must not take an inode away that lives on.
        self.reenactor.notify(self.parent, name);
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let unlink = || unlinkat(&self.directory, text, flags);
        self.turn.act(step(Ino(was.stx_ino), is_directory), unlink)
    }

    /// A call that sets the time of the last change alone counts as a change of the content; one
    /// that sets both times does not.
    fn touch(&self, name: &[u8], ino: Ino, is_content: bool) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::empty())?;
        self.reenactor.handle.refuse_foreign(file.as_fd())?;
        let time = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let times = Timestamps {
            last_access: time(if is_content { UTIME_OMIT } else { 0 }),
            last_modification: time(0),
        };
        self.turn.act(Step::Touch(ino), || utimensat(&file, "", &times, AtFlags::EMPTY_PATH))
    }
}
