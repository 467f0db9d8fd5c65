//! Blocks as files of a directory, on this host or of a file system between hosts.
//!
//! A file is written under another name, synced and renamed, and then its folder is synced. There
//! are 256 folders, by the first byte of a block's id, and all are made with the store: a directory
//! whose file system is not mounted has none, so nothing is ever written below a mount point. The
//! directory stays open, so that what is mounted over it later changes nothing. Where the marker
//! is, a folder that is missing is made again at the next opening: copies leave empty ones out.
//!
//! A file of its own, the **marker**, says of which store the directory is. Another one says which
//! database of that store **holds** it: a database can be copied.

use crate::format::{BlocksPlace, ObjectName};
use crate::objects::{
    HOLDER, MARKER, MARKER_BYTES_MAX, OBJECT_BYTES_MAX, Objects, marker, place_of,
};
use crate::writers;
use marram_store::{Error, Result, Space};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, fstatvfs, fsync, mkdirat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What a file is called until it is whole.
const HALF: &str = ".part";
/// What a file system makes in its own top.
const NO_CONTENT: [&str; 3] = [".", "..", "lost+found"];
/// Files that are open at once for one upload.
const WRITTEN_AT_ONCE: usize = 64;

/// A directory with the blocks of a store.
pub struct Directory {
    path: PathBuf,
    root: OwnedFd,
    /// It was made with the store.
    is_new: bool,
}

fn failed(what: &str, path: &Path, error: Errno) -> Error {
    match error {
        Errno::NOSPC | Errno::DQUOT => Error::NoSpace,
        Errno::ROFS => Error::ReadOnly(format!("cannot {what} {}: {error}", path.display())),
        _ => Error::Io(format!("cannot {what} {}: {error}", path.display())),
    }
}

fn folder(first: u8) -> String {
    format!("{first:02x}")
}

fn open_directory(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    openat(CWD, path, flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => Error::Io(format!(
            "{} is no directory, and the blocks of this home lie there: mount its file system, or \
             bring it back",
            path.display()
        )),
        error => failed("open", path, error),
    })
}

impl Directory {
    /// Makes a directory for the blocks of a new store, or takes an empty one.
    ///
    /// # Errors
    /// Something is in it, or it cannot be made; then all is as it was.
    pub fn create(path: &Path, store: &[u8; 16]) -> Result<Directory> {
        let is_new = match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(failed("make", path, error)),
        };
        let made = open_directory(path)
            .map(|root| Directory { path: path.to_owned(), root, is_new })
            .and_then(|directory| {
                directory.refuse_content()?;
                directory.sync_name()?;
                directory.fill(store)?;
                Ok(directory)
            });
        if made.is_err() && is_new {
            let _left_if_it_cannot_be_removed = unlinkat(CWD, path, AtFlags::REMOVEDIR);
        }
        made
    }

    fn refuse_content(&self) -> Result<()> {
        for name in self.names("")? {
            if !NO_CONTENT.contains(&name.as_str()) {
                let text = format!("{} is not empty: it has {name}", self.path.display());
                return Err(Error::Io(text));
            }
        }
        Ok(())
    }

    /// Syncs the name of a directory that was made, which is in the one above it.
    fn sync_name(&self) -> Result<()> {
        if !self.is_new {
            return Ok(());
        }
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        openat(&self.root, "..", flags, Mode::empty())
            .and_then(fsync)
            .map_err(|error| failed("sync the directory above", &self.path, error))
    }

    /// Makes the folders, and the marker last. Of two that do so at once, one makes the first
    /// folder.
    fn fill(&self, store: &[u8; 16]) -> Result<()> {
        let mut made = Vec::new();
        let filled = self.make_folders(&mut made).and_then(|()| {
            let bytes = marker(store);
            self.write_new(MARKER, bytes.as_bytes())
                .and_then(fsync)
                .and_then(|()| fsync(&self.root))
                .map_err(|error| failed("write the marker into", &self.path, error))
        });
        if filled.is_err() && !made.is_empty() {
            let _left = unlinkat(&self.root, MARKER, AtFlags::empty());
            made.iter().for_each(|name| {
                let _left = unlinkat(&self.root, name.as_str(), AtFlags::REMOVEDIR);
            });
        }
        filled
    }

    fn make_folders(&self, made: &mut Vec<String>) -> Result<()> {
        for name in (0..=u8::MAX).map(folder) {
            mkdirat(&self.root, name.as_str(), Mode::RWXU)
                .map_err(|error| failed("make a folder in", &self.path, error))?;
            made.push(name);
        }
        Ok(())
    }

    /// Makes the folders that are missing. One that cannot be made is missed when something is
    /// written into it.
    fn restore_folders(&self) -> Result<()> {
        let there: BTreeSet<String> = self.names("")?.into_iter().collect();
        let mut is_one_made = false;
        for name in (0..=u8::MAX).map(folder).filter(|name| !there.contains(name)) {
            // Another one that makes it at this moment may not have synced it yet.
            is_one_made |= matches!(
                mkdirat(&self.root, name.as_str(), Mode::RWXU),
                Ok(()) | Err(Errno::EXIST)
            );
        }
        match is_one_made {
            true => fsync(&self.root).map_err(|error| failed("sync", &self.path, error)),
            false => Ok(()),
        }
    }

    /// Opens the directory of a store, and makes folders that are missing in it.
    ///
    /// # Errors
    /// It is not there, or is not that of the store.
    pub fn open(path: &Path, store: &[u8; 16]) -> Result<Directory> {
        let directory =
            Directory { path: path.to_owned(), root: open_directory(path)?, is_new: false };
        let found = directory.read_file(MARKER, MARKER_BYTES_MAX);
        let found = found.map_err(|error| failed("read the marker in", path, error))?;
        match found {
            Some(bytes) if bytes == marker(store).as_bytes() => {
                directory.restore_folders()?;
                Ok(directory)
            }
            Some(_) => Err(Error::Io(format!(
                "{} has the blocks of another home: bring back the directory of this one",
                path.display()
            ))),
            None => Err(directory.not_there()),
        }
    }

    /// The error for a directory without a marker.
    fn not_there(&self) -> Error {
        Error::Io(format!(
            "{} has no file {MARKER}, so it is not where the blocks of this home lie: mount its \
             file system, or bring it back",
            self.path.display()
        ))
    }

    fn write_new(&self, place: &str, bytes: &[u8]) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(&self.root, place, flags, Mode::RUSR | Mode::WUSR)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::io::write(&file, rest) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => rest = &rest[count..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(file)
    }

    /// The bytes of a file; none if there is none.
    fn read_file(&self, place: &str, most: usize) -> rustix::io::Result<Option<Vec<u8>>> {
        // What is no file may wait for ever.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match openat(&self.root, place, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = fstat(&file)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let len = usize::try_from(found.st_size).unwrap_or(usize::MAX).min(most);
        let (mut bytes, mut filled) = (vec![0; len], 0);
        while filled < len {
            match rustix::io::read(&file, &mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(Some(bytes))
    }

    /// Writes some files, and syncs each under the name that it keeps.
    fn write_some(&self, objects: &[(ObjectName, Vec<u8>)]) -> Result<()> {
        let wrong = |name: &ObjectName| {
            let path = self.path.join(place_of(name));
            move |error| failed("write", &path, error)
        };
        let half = |name: &ObjectName| format!("{}{HALF}", place_of(name));
        // All are written before the first is synced: one commit of a journal has many.
        let written = |(name, bytes): &(ObjectName, Vec<u8>)| {
            self.write_new(&half(name), bytes).map_err(wrong(name))
        };
        let files = objects.iter().map(written).collect::<Result<Vec<OwnedFd>>>()?;
        for ((name, _), file) in objects.iter().zip(files) {
            fsync(&file).map_err(wrong(name))?;
            renameat(&self.root, half(name), &self.root, place_of(name)).map_err(wrong(name))?;
        }
        Ok(())
    }

    fn write_all(&self, objects: &[(ObjectName, Vec<u8>)]) -> Result<()> {
        for some in objects.chunks(WRITTEN_AT_ONCE) {
            writers::at_once(some, |part| self.write_some(part))?;
        }
        let folders: BTreeSet<u8> = objects.iter().map(|(name, _)| name.block[0]).collect();
        for name in folders.into_iter().map(folder) {
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
            openat(&self.root, name.as_str(), flags, Mode::empty())
                .and_then(fsync)
                .map_err(|error| failed("sync", &self.path.join(&name), error))?;
        }
        Ok(())
    }

    /// The names in a folder, or in the directory itself.
    fn names(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.path.join(folder);
        let wrong = |error| failed("list", &path, error);
        let place = if folder.is_empty() { "." } else { folder };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let opened = openat(&self.root, place, flags, Mode::empty()).map_err(wrong)?;
        let mut names = Vec::new();
        for entry in Dir::new(opened).map_err(wrong)? {
            names.push(entry.map_err(wrong)?.file_name().to_string_lossy().into_owned());
        }
        Ok(names)
    }
}

impl Objects for Directory {
    fn write(&self, objects: &[(ObjectName, Vec<u8>)]) -> Result<()> {
        let written = self.write_all(objects);
        if written.is_err() {
            // A directory that is full has its space back at once.
            objects.iter().for_each(|(name, _)| {
                let _left_for_a_sweep = self.remove(name);
            });
        }
        written
    }

    fn read(&self, name: &ObjectName) -> Result<Option<Vec<u8>>> {
        let found = self.read_file(&place_of(name), OBJECT_BYTES_MAX);
        let found =
            found.map_err(|error| failed("read", &self.path.join(place_of(name)), error))?;
        // A file system that has gone away has lost nothing.
        if found.is_none() && statat(&self.root, MARKER, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            return Err(self.not_there());
        }
        Ok(found)
    }

    fn remove(&self, name: &ObjectName) -> Result<()> {
        let place = place_of(name);
        for place in [format!("{place}{HALF}"), place] {
            match unlinkat(&self.root, place.as_str(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(failed("remove", &self.path.join(place), error)),
            }
        }
        Ok(())
    }

    fn list(&self, first: u8) -> Result<Vec<ObjectName>> {
        let names = self.names(&folder(first))?;
        let object = |name: &String| name.strip_suffix(HALF).unwrap_or(name).parse().ok();
        Ok(names.iter().filter_map(object).collect())
    }

    fn probe(&self) -> Result<()> {
        match self.read_file(MARKER, MARKER_BYTES_MAX) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(self.not_there()),
            Err(error) => Err(failed("read the marker in", &self.path, error)),
        }
    }

    fn holder(&self) -> Result<Option<Vec<u8>>> {
        let found = self.read_file(HOLDER, MARKER_BYTES_MAX);
        found.map_err(|error| failed("read", &self.path.join(HOLDER), error))
    }

    fn set_holder(&self, said: &[u8]) -> Result<()> {
        // Of each writer its own: several may come at once.
        let half = format!("{HOLDER}.{}{HALF}", blake3::hash(said).to_hex());
        let set = self
            .write_new(&half, said)
            .and_then(fsync)
            .and_then(|()| renameat(&self.root, half.as_str(), &self.root, HOLDER))
            .and_then(|()| fsync(&self.root));
        set.map_err(|error| {
            let _left_if_it_cannot_be_removed =
                unlinkat(&self.root, half.as_str(), AtFlags::empty());
            failed("write", &self.path.join(HOLDER), error)
        })
    }

    fn holder_place(&self) -> String {
        self.path.join(HOLDER).display().to_string()
    }

    fn place(&self) -> BlocksPlace {
        BlocksPlace::Directory(self.path.to_string_lossy().into_owned())
    }

    fn locate(&self, name: &ObjectName) -> String {
        self.path.join(place_of(name)).display().to_string()
    }

    fn space(&self) -> Option<Space> {
        let found = fstatvfs(&self.root).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Space { total_bytes: bytes(found.f_blocks), free_bytes: bytes(found.f_bavail) })
    }

    fn discard(&self) {
        for name in [MARKER, HOLDER] {
            let _left_if_it_cannot_be_removed = unlinkat(&self.root, name, AtFlags::empty());
        }
        for first in 0..=u8::MAX {
            for name in self.list(first).unwrap_or_default() {
                let _left = self.remove(&name);
            }
            let _left = unlinkat(&self.root, folder(first), AtFlags::REMOVEDIR);
        }
        if self.is_new {
            let _left = unlinkat(CWD, &self.path, AtFlags::REMOVEDIR);
        }
    }
}
