//! A directory of a mount, and the same directory in the view of a transaction.
//!
//! Nothing here asks for attributes in the view: a transaction that has asked for those of a
//! directory depends on every name in it.

use crate::error::{Error, Result};
use crate::mount_table::{MountEntry, mounts};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags, openat2, readlinkat, statx};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A directory in a mount of a Marram file system.
#[derive(Debug)]
pub(crate) struct Place {
    /// The mount that it lies in.
    pub(crate) mount: MountEntry,
    /// Where it lies in the dataset.
    pub(crate) inner: Inner,
}

/// A directory of a dataset.
#[derive(Clone, Debug)]
pub(crate) struct Inner {
    /// As the kernel names it.
    path: PathBuf,
    /// From the root of the dataset.
    inner: PathBuf,
    /// Its number there.
    ino: u64,
}

impl Place {
    /// Where a descriptor of a directory leads.
    ///
    /// # Errors
    /// Into no Marram file system that is mounted in the namespace of this process.
    pub(crate) fn of(directory: BorrowedFd<'_>) -> Result<Place> {
        let path = path_of(directory)?;
        let unsuitable =
            |reason: &str| Error::Unsuitable { directory: path.clone(), reason: reason.to_owned() };
        let number = mount_number(directory)?;
        let entry = mounts()?.into_iter().find(|entry| Some(entry.number) == number);
        let entry = entry.ok_or_else(|| {
            unsuitable("it is in no mount that this process sees, or in another transaction")
        })?;
        if !entry.is_marram() {
            return Err(unsuitable("it is not inside a mounted Marram file system"));
        }
        let inner = entry.inner(&path).ok_or_else(|| unsuitable("its path has just changed"))?;
        let inner = inner.strip_prefix("/").unwrap_or(&inner).to_owned();
        Ok(Place { mount: entry, inner: Inner { inner, ino: number_of(directory)?, path } })
    }
}

impl Inner {
    /// Opens the same directory in the view of a transaction, whose root is given.
    ///
    /// # Errors
    /// It is not there, or another directory is.
    pub(crate) fn open_in(&self, root: &OwnedFd) -> Result<OwnedFd> {
        let inner = if self.inner == Path::new("") { Path::new(".") } else { &self.inner };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let opened = openat2(root, inner, flags, Mode::empty(), inside);
        let opened = opened.map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => self.missing(),
            error => error.into(),
        })?;
        if number_of(opened.as_fd())? != self.ino {
            return Err(self.missing());
        }
        Ok(opened)
    }

    /// That it is not suitable, for a reason.
    pub(crate) fn unsuitable(&self, reason: &str) -> Error {
        Error::Unsuitable { directory: self.path.clone(), reason: reason.to_owned() }
    }

    fn missing(&self) -> Error {
        let reason = "it is no directory of the dataset that is mounted there: it was removed or \
                      renamed, or lies below .marram";
        Error::Unsuitable { directory: self.path.clone(), reason: reason.to_owned() }
    }
}

/// The number of an open directory, for which the kernel asks no file system.
fn number_of(directory: BorrowedFd<'_>) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(statx(directory, "", flags, StatxFlags::INO)?.stx_ino)
}

fn path_of(directory: BorrowedFd<'_>) -> Result<PathBuf> {
    let link = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let path = readlinkat(rustix::fs::CWD, link, Vec::new())?;
    Ok(OsString::from_vec(path.into_bytes()).into())
}

/// The number of the mount that a descriptor was opened in.
fn mount_number(directory: BorrowedFd<'_>) -> Result<Option<u64>> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", directory.as_raw_fd()))?;
    let value = |line: &str| line.strip_prefix("mnt_id:")?.trim().parse().ok();
    Ok(text.lines().find_map(value))
}

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::error::Error;
    use std::os::fd::AsFd;

    #[test]
    fn a_directory_of_another_file_system_is_unsuitable() {
        let proc = std::fs::File::open("/proc/self").unwrap();
        let error = Place::of(proc.as_fd()).unwrap_err();
        assert!(matches!(error, Error::Unsuitable { .. }), "{error}");
        assert!(error.to_string().contains("/proc/"), "{error}");
    }
}
