//! What a command inherits from its caller and what would lead past a view: the working directory
//! and open files. A file that was opened before the view was made is the one outside, whatever the
//! view shows under its name.

use crate::error::{Error, Result};
use crate::mountinfo::{self, MountEntry};
use crate::names::quoted;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Seek;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The mode of output that is made anew, less what the caller's mask takes: as shells have it.
const NEW_FILE_MODE: u32 = 0o666;

/// What is to be entered and opened again in a view.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// The working directory, if it lies in the place of the view.
    pub(crate) workdir: Option<PathBuf>,
    /// Standard files that do.
    pub(super) reopened: Vec<Reopened>,
}

/// A standard file that is opened again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reopened {
    /// Its number: 0, 1 or 2.
    descriptor: u32,
    /// How it was opened.
    flags: OFlags,
    /// Where it stands, in bytes.
    offset: u64,
    /// How long the file outside is, in bytes.
    len: u64,
    /// Where it is.
    path: PathBuf,
}

/// The part of a file system that a view covers.
struct Area {
    /// Number of the file system, as its files show it.
    device: u64,
    /// Where it is seen, and the directory that is seen there, from the root of the file system:
    /// one place, or all that there are of a view of the whole.
    places: Vec<(PathBuf, PathBuf)>,
    /// The view is of the whole file system.
    is_whole: bool,
    mounts: Vec<MountEntry>,
}

/// An open file of this process.
struct Opened {
    descriptor: u32,
    /// As the kernel tells it.
    path: PathBuf,
    offset: u64,
    flags: OFlags,
    /// The number of its mount.
    mount: u64,
}

impl Inherited {
    /// What this process would hand to a command of which `place` is seen otherwise.
    ///
    /// # Errors
    /// Something leads past the view and cannot be opened again.
    pub(crate) fn of_this_process(place: &Path) -> Result<Inherited> {
        let inner = mountinfo::mount_of(place)?.and_then(|entry| entry.inner(place));
        let places = vec![(place.to_owned(), inner.unwrap_or_else(|| place.into()))];
        Inherited::in_area(&Area::of(places, false)?)
    }

    /// The same of a view of a whole file system, in all places where it is seen: each with the
    /// directory that is seen there, from the root of the file system.
    ///
    /// # Errors
    /// As there; something leads to what is seen in no place.
    pub(crate) fn of_whole(places: Vec<(PathBuf, PathBuf)>) -> Result<Inherited> {
        Inherited::in_area(&Area::of(places, true)?)
    }

    fn in_area(area: &Area) -> Result<Inherited> {
        let workdir = area.workdir()?;
        let mut reopened = Vec::new();
        for opened in open_files()? {
            if let Some(again) = area.reopened(&opened)? {
                reopened.push(again);
            }
        }
        reopened.sort_by_key(|again: &Reopened| again.descriptor);
        Ok(Inherited { workdir, reopened })
    }

    /// This, and what lies in the places of another file system that is seen.
    pub(crate) fn and(self, other: Inherited) -> Inherited {
        let workdir = self.workdir.or(other.workdir);
        let mut reopened = self.reopened;
        reopened.extend(other.reopened);
        reopened.sort_by_key(|again| again.descriptor);
        Inherited { workdir, reopened }
    }

    /// Moves standard output and error to the ends of their files, if the command had them opened
    /// again: its words may have come into the same files meanwhile, by a merge, and what is said
    /// next stands behind them.
    pub(crate) fn move_to_ends(&self) {
        for file in self.reopened.iter().filter(|file| file.descriptor > 0) {
            let _is_where_it_was = rustix::fs::seek(same_as(file.descriptor), SeekFrom::End(0));
        }
    }
}

impl Area {
    fn of(places: Vec<(PathBuf, PathBuf)>, is_whole: bool) -> Result<Area> {
        let mounts = mountinfo::mounts()?;
        let (place, _) = places.first().ok_or_else(|| Error::failed("a view has no place"))?;
        let found = fs::metadata(place).map_err(|error| Error::system("look at", place, error))?;
        Ok(Area { device: found.dev(), places, is_whole, mounts })
    }

    /// Where something is seen that lies there from the root of the file system.
    fn seen(&self, inner: &Path) -> Option<PathBuf> {
        let below = |(place, root): &(PathBuf, PathBuf)| {
            inner.strip_prefix(root).ok().map(|below| place.join(below))
        };
        self.places.iter().find_map(below)
    }

    /// The working directory, if it lies in the area.
    fn workdir(&self) -> Result<Option<PathBuf>> {
        let here = std::env::current_dir()
            .map_err(|error| Error::failed(format!("the working directory is gone: {error}")))?;
        if self.places.iter().any(|(place, _)| here.starts_with(place)) {
            return Ok(Some(here));
        }
        let inner = mountinfo::mount_of(&here)?.and_then(|entry| entry.inner(&here));
        let device = fs::metadata(&here).map(|found| found.dev()).ok();
        let is_inside = self.is_whole || inner.is_some_and(|inner| self.seen(&inner).is_some());
        if device != Some(self.device) || !is_inside {
            return Ok(None);
        }
        let (here, place) = (here.display(), self.place().display());
        Err(Error::usage(format!("the working directory {here} is in {place} by another way"))
            .hint("the command would write past its fork: change to the directory itself first"))
    }

    /// How to open a file again in the view, if it lies in the area.
    fn reopened(&self, opened: &Opened) -> Result<Option<Reopened>> {
        let link = PathBuf::from(format!("/proc/self/fd/{}", opened.descriptor));
        // It has been closed meanwhile, or its file system is gone.
        let Ok(found) = fs::metadata(&link) else { return Ok(None) };
        if found.dev() != self.device {
            return Ok(None);
        }
        let mount = self.mounts.iter().find(|entry| entry.number == opened.mount);
        let Some(inner) = mount.and_then(|entry| entry.inner(&opened.path)) else {
            return Err(self.refusal(opened, "which comes from another mount namespace"));
        };
        let path = match self.seen(&inner) {
            Some(path) => path,
            None if self.is_whole => return Err(self.refusal(opened, "where it is not seen")),
            None => return Ok(None),
        };
        let is_there = fs::metadata(&path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (found.dev(), found.ino()));
        match () {
            () if opened.descriptor > 2 => Err(self.refusal(opened, "and only 0, 1 and 2 can be")),
            () if !found.is_file() => Err(self.refusal(opened, "which is no regular file")),
            () if !is_there => Err(self.refusal(opened, "which was removed or moved")),
            () => Ok(Some(Reopened {
                descriptor: opened.descriptor,
                flags: opened.flags,
                offset: opened.offset,
                len: found.len(),
                path,
            })),
        }
    }

    fn place(&self) -> &Path {
        self.places.first().map_or(Path::new("/"), |(place, _)| place)
    }

    fn refusal(&self, opened: &Opened, why: &str) -> Error {
        let (number, path) = (opened.descriptor, quoted(opened.path.as_os_str().as_bytes()));
        Error::usage(format!(
            "descriptor {number} is {path} in {}, and cannot be opened again in the fork, {why}",
            self.place().display()
        ))
        .hint(format!(
            "the command would write past its fork: close it first ({number}>&- in a shell), or \
             lead it elsewhere"
        ))
    }
}

impl Reopened {
    /// As a word of a command line.
    pub(super) fn word(&self) -> OsString {
        let (flags, offset, len) = (self.flags.bits(), self.offset, self.len);
        let mut word = OsString::from(format!("{}:{flags:o}:{offset}:{len}:", self.descriptor));
        word.push(&self.path);
        word
    }

    /// What [`Reopened::word`] has made.
    pub(super) fn parse(word: &OsStr) -> Option<Reopened> {
        let mut parts = word.as_bytes().splitn(5, |byte| *byte == b':');
        let mut text = || std::str::from_utf8(parts.next()?).ok();
        let descriptor = text()?.parse().ok()?;
        let flags = OFlags::from_bits_retain(u32::from_str_radix(text()?, 8).ok()?);
        let offset = text()?.parse().ok()?;
        let len = text()?.parse().ok()?;
        let path = PathBuf::from(OsString::from_vec(parts.next()?.to_vec()));
        Some(Reopened { descriptor, flags, offset, len, path })
    }

    /// Whether it is standard output or error, and written to.
    fn is_output(&self) -> bool {
        let is_read_only = self.flags.intersection(OFlags::RWMODE) == OFlags::RDONLY;
        self.descriptor > 0 && !is_read_only
    }

    /// Whether nothing stands behind its offset outside, as after `> FILE`. The kernel does not
    /// tell of a file that it was cut when it was opened. In the view it may be another one, and
    /// longer.
    fn is_at_end(&self) -> bool {
        self.is_output() && !self.flags.contains(OFlags::APPEND) && self.offset >= self.len
    }

    /// Opens it again, by its name as this process sees it. Output that the caller has made since
    /// the view's directory became its own is made there too.
    fn open(&self) -> std::io::Result<fs::File> {
        let flags = self.flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let opened = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Err(Errno::NOENT) if self.is_output() => {
                rustix::fs::open(&self.path, flags | OFlags::CREATE, Mode::from(NEW_FILE_MODE))
            }
            opened => opened,
        };
        let mut opened = fs::File::from(opened?);
        if self.is_at_end() && opened.metadata()?.len() > self.offset {
            opened.set_len(self.offset)?;
        }
        opened.seek(std::io::SeekFrom::Start(self.offset))?;
        Ok(opened)
    }

    /// Whether both may be one opening, whose offset moves with either.
    fn is_shared_with(&self, other: &Reopened) -> bool {
        (&self.path, self.flags) == (&other.path, other.flags)
    }
}

/// Opens standard files again, by their names as this process sees them.
///
/// # Errors
/// One cannot be opened.
pub(super) fn reopen(files: &[Reopened]) -> Result<()> {
    for (at, file) in files.iter().enumerate() {
        let failed = |error: std::io::Error| Error::system("open again", &file.path, error);
        if let Some(same) = files[..at].iter().find(|other| other.is_shared_with(file)) {
            put(same_as(same.descriptor), file.descriptor).map_err(|error| failed(error.into()))?;
            continue;
        }
        let opened = file.open().map_err(failed)?;
        put(&opened, file.descriptor).map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

/// A standard file of this process.
fn same_as(descriptor: u32) -> std::os::fd::BorrowedFd<'static> {
    match descriptor {
        0 => rustix::stdio::stdin(),
        1 => rustix::stdio::stdout(),
        _ => rustix::stdio::stderr(),
    }
}

/// Puts an open file in the place of a standard one.
fn put(file: impl std::os::fd::AsFd, descriptor: u32) -> rustix::io::Result<()> {
    match descriptor {
        0 => rustix::stdio::dup2_stdin(file),
        1 => rustix::stdio::dup2_stdout(file),
        _ => rustix::stdio::dup2_stderr(file),
    }
}

/// The open files of this process that a command inherits.
fn open_files() -> Result<Vec<Opened>> {
    let folder = Path::new("/proc/self/fd");
    let entries = fs::read_dir(folder).map_err(|error| Error::system("list", folder, error))?;
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let numbers: Vec<u32> = numbers.collect();
    let mut found = Vec::new();
    for descriptor in numbers {
        found.extend(open_file(descriptor, &folder.join(descriptor.to_string()))?);
    }
    Ok(found)
}

/// What a descriptor is, if a command inherits it and it is a file.
fn open_file(descriptor: u32, link: &Path) -> Result<Option<Opened>> {
    // It has been closed meanwhile: the one by which the folder was read.
    let Ok(path) = fs::read_link(link) else { return Ok(None) };
    if !path.is_absolute() {
        return Ok(None);
    }
    let told = fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"));
    let opened = told.ok().and_then(|told| opened_from(descriptor, path.clone(), &told));
    let Some(opened) = opened else {
        if fs::symlink_metadata(link).is_err() {
            return Ok(None);
        }
        let path = quoted(path.as_os_str().as_bytes());
        return Err(Error::usage(format!(
            "descriptor {descriptor} is {path}, and the system does not tell how it was opened"
        ))
        .hint(format!("it may lead past the fork: close it first ({descriptor}>&- in a shell)")));
    };
    let is_closed = opened.flags.contains(OFlags::CLOEXEC) && descriptor > 2;
    Ok(Some(opened).filter(|_| !is_closed))
}

/// An open file, from what `/proc/self/fdinfo` tells of it.
fn opened_from(descriptor: u32, path: PathBuf, told: &str) -> Option<Opened> {
    let value = |key: &str| told.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    let flags = u32::from_str_radix(value("flags:")?, 8).ok()?;
    Some(Opened {
        descriptor,
        path,
        offset: value("pos:")?.parse().ok()?,
        flags: OFlags::from_bits_retain(flags),
        mount: value("mnt_id:")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Inherited, OFlags, Reopened, opened_from};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    #[test]
    fn a_word_brings_any_path_back() {
        let path = PathBuf::from(OsStr::from_bytes(b"/a:b/\xff\n"));
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let file = Reopened { descriptor: 1, flags, offset: 7, len: 8, path };
        assert_eq!(Reopened::parse(&file.word()), Some(file.clone()));
        for word in ["", "1", "1:2:3:4", "x:2:3:4:/a", "1:9:3:4:/a", "1:2:3:/a"] {
            assert_eq!(Reopened::parse(OsStr::new(word)), None, "{word}");
        }
        let other = Reopened { descriptor: 2, offset: 9, ..file.clone() };
        assert!(file.is_shared_with(&other), "of `> log 2>&1`");
        let other = Reopened { flags: OFlags::RDONLY, ..other };
        assert!(!file.is_shared_with(&other));
    }

    #[test]
    fn the_kernel_tells_how_a_file_was_opened() {
        let told = "pos:\t12\nflags:\t02102001\nmnt_id:\t29\nino:\t5\n";
        let opened = opened_from(3, "/x".into(), told).unwrap();
        assert_eq!((opened.offset, opened.mount), (12, 29));
        assert!(opened.flags.contains(OFlags::APPEND | OFlags::WRONLY | OFlags::CLOEXEC));
        assert!(opened_from(3, "/x".into(), "pos: 1\n").is_none());
    }

    #[test]
    fn what_lies_elsewhere_is_inherited_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let inherited = Inherited::of_this_process(folder.path()).unwrap();
        assert!(inherited.workdir.is_none() && inherited.reopened.is_empty());
    }
}
