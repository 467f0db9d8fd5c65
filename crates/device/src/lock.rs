//! The lock of a device: one process at a time may use it.
//!
//! The lock is a `flock` of the kernel, so it ends with the process that holds it, however that
//! ends: after a crash there is nothing stale to clean up. It belongs to the open file behind it,
//! so a child made by fork would keep it too. A daemon takes it after its last fork, so the process
//! id that a refused caller gets is true.
//!
//! The lock of a block device includes the files behind it: a pool in such a file may be in use
//! under the file's own name. A device that shows a part of a file shares that file's lock with
//! devices that show other parts.

use std::fs::{File, Metadata, TryLockError};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, major, minor, open};
use rustix::io::Errno;

use crate::behind::{Behind, file_of_loop_device, files_behind};
use crate::{Error, Result};

/// A device held for one process; dropping it lets go.
#[derive(Debug)]
pub struct Lock {
    /// The open file that holds the `flock`.
    holder: File,
    /// The open files behind a block device, which hold a `flock` each.
    _behind: Vec<File>,
    /// On a block device: the claim that also keeps mounts and other volumes away.
    claim: Mutex<Option<OwnedFd>>,
}

impl Lock {
    /// Locks the open file `target`, which `path` names in messages.
    pub(crate) fn take(target: &File, path: &Path, is_block_device: bool) -> Result<Lock> {
        let refused =
            |reason: String| Error::Unusable { device: path.display().to_string(), reason };
        let again = format!("/proc/self/fd/{}", target.as_raw_fd());
        let holder =
            File::open(&again).map_err(|error| refused(format!("cannot be locked: {error}")))?;
        match holder.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(refused(in_use(holder.metadata().ok().as_ref().map(place_of))));
            }
            Err(TryLockError::Error(error)) => {
                return Err(refused(format!("cannot be locked: {error}")));
            }
        }
        let (mut behind, mut claimed) = (Vec::new(), None);
        if is_block_device {
            claimed = Some(claim(&again).map_err(refused)?);
            let number = holder.metadata().map_err(|error| refused(error.to_string()))?.rdev();
            for file in files_behind(number) {
                behind.extend(lock_behind(&file).map_err(refused)?);
            }
        }
        Ok(Lock { holder, _behind: behind, claim: Mutex::new(claimed) })
    }

    /// Gives up the claim on a block device and keeps the lock, just before the kernel takes the
    /// claim itself for a mount of type `fuseblk`.
    pub fn release_claim(&self) {
        *self.claim.lock() = None;
    }

    /// Claims a block device again after such a mount. False as long as somebody else has it, which
    /// may be the kernel, a moment longer than the mount.
    pub fn claim_again(&self) -> bool {
        let mut held = self.claim.lock();
        if held.is_none() {
            *held = claim(&format!("/proc/self/fd/{}", self.holder.as_raw_fd())).ok();
        }
        held.is_some()
    }
}

/// Opens a block device exclusively: refused while it is mounted or part of another volume.
fn claim(path: &str) -> std::result::Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::BUSY => "is mounted or part of another volume (see lsblk): release it first".into(),
        _ => format!("cannot be claimed: {}", std::io::Error::from(errno)),
    })
}

/// Locks a file behind a block device. One that cannot be opened, also since another has come to
/// its path, is looked up in the kernel's list of locks instead.
fn lock_behind(behind: &Behind) -> std::result::Result<Option<File>, String> {
    let in_use = |found| format!("shows {}, which {}", behind.path.display(), in_use(found));
    // A pipe that has come to the place of the file does not hold the opening up.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let shown = file_of_loop_device(behind.device);
    let is_shown = |found: &Metadata| shown.is_none_or(|shown| shown == place_of(found));
    let file = open(&behind.path, flags, Mode::empty()).map(File::from);
    let file = file.ok().filter(|file| file.metadata().is_ok_and(|found| is_shown(&found)));
    let Some(file) = file else {
        let place = shown.or_else(|| behind.path.metadata().ok().as_ref().map(place_of));
        let is_held = place.is_some_and(|place| holder_of(place).is_some());
        return if is_held { Err(in_use(place)) } else { Ok(None) };
    };
    let locked = if behind.is_whole { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(in_use(file.metadata().ok().as_ref().map(place_of))),
        // A file that cannot be locked (on NFS, what is open for reading) no pool holds a lock of.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// The numbers of a file's device and inode.
fn place_of(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

fn in_use(target: Option<(u64, u64)>) -> String {
    match target.and_then(holder_of) {
        Some(pid) => {
            let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let command = match command.trim() {
                "" => String::new(),
                name => format!(" ({name})"),
            };
            format!("is in use by process {pid}{command}: unmount it or end that process first")
        }
        None => "is in use by another process: unmount it first".to_string(),
    }
}

/// The process that holds a `flock` on the file, where the kernel's list of locks shows it.
fn holder_of((device, inode): (u64, u64)) -> Option<u32> {
    let (major, minor) = (major(device), minor(device));
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    find_holder(&std::fs::read_to_string("/proc/locks").ok()?, &place)
}

/// Looks through lines like `1: FLOCK  ADVISORY  WRITE 708 fe:00:5349716 0 EOF`; those with an
/// arrow after the number only wait, and a process id of 0 is one that we may not see.
fn find_holder(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, pid, found, ..] if found == place => {
                pid.parse().ok().filter(|&pid| pid > 0)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::find_holder;

    #[test]
    fn the_holder_is_found_among_other_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:5 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fe:01:5 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 13 fe:00:5 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 fe:00:5 0 EOF\n\
                     5: FLOCK  ADVISORY  WRITE 14 fe:00:5 0 EOF\n\
                     nonsense\n";
        assert_eq!(find_holder(locks, "fe:00:5"), Some(14));
        assert_eq!(find_holder(locks, "fe:00:6"), None);
    }
}
