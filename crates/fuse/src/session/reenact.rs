//! Showing watchers what was changed behind the kernel's back; see `adapter::reenacting`.

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

/// Shows changes in one directory to watchers of it and of what is in it.
///
/// Neither from within an operation of the file system nor with a lock held that one could wait
/// for: the calls are answered by the threads that serve the mount.
pub struct Reenactment<'a> {
    handle: &'a SessionHandle,
    turn: Turn<'a>,
    parent: Ino,
    directory: OwnedFd,
}

impl SessionHandle {
    /// Begins with a directory, which lies at `path` below the mount; an error if that is not seen
    /// there from this process.
    ///
    /// # Errors
    /// What the kernel says of the path, [`Errno::XDEV`] if another file system lies there.
    pub fn reenact(&self, parent: Ino, path: &Path) -> Result<Reenactment<'_>, Errno> {
        let turn = self.reenacted.begin();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty())?;
        self.refuse_foreign(directory.as_fd())?;
        Ok(Reenactment { handle: self, turn, parent, directory })
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
        self.handle.notify_entry(self.parent, name);
        let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let unlink = || unlinkat(&self.directory, text, flags);
        self.turn.act(step(Ino(was.stx_ino), is_directory), unlink)
    }

    /// A call that sets the time of the last change alone counts as a change of the content; one
    /// that sets both times does not.
    fn touch(&self, name: &[u8], ino: Ino, is_content: bool) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::empty())?;
        self.handle.refuse_foreign(file.as_fd())?;
        let time = |nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds };
        let times = Timestamps {
            last_access: time(if is_content { UTIME_OMIT } else { 0 }),
            last_modification: time(0),
        };
        self.turn.act(Step::Touch(ino), || utimensat(&file, "", &times, AtFlags::EMPTY_PATH))
    }
}
