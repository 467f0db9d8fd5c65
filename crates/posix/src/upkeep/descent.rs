//! The way down through directories, a few entries at a time.
//!
//! What is in memory is the path, and of each directory on it the entries that were read and not
//! yet looked at. No lock is held between two calls: directories may change meanwhile, and what is
//! new or gone may or may not be met.

use crate::filesystem::Posix;
use crate::operations::directory;
use marram_vfs::{Error, Ino, Kind, Result};
use std::collections::VecDeque;

/// Entries of a directory that are read at once.
const ENTRIES_MAX: usize = 256;
/// Deepest directory that is looked into.
const DEPTH_MAX: usize = 4096;

/// What was met; [`Descent::path`] says where.
#[derive(Debug)]
pub(crate) enum Met {
    /// A regular file.
    File(Ino),
    /// A directory that cannot be looked into.
    Closed(Error),
    /// Entries were read, or things passed by that have no content.
    Nothing,
}

/// A walk below a directory.
pub(crate) struct Descent {
    path: Vec<u8>,
    levels: Vec<Level>,
}

/// A directory on the way down.
struct Level {
    directory: Ino,
    /// How long its path is.
    path_len: usize,
    /// Where to go on reading.
    after: u64,
    /// What has been read and not yet looked at.
    entries: VecDeque<Listed>,
}

/// An entry of a directory.
struct Listed {
    name: Vec<u8>,
    ino: Ino,
    kind: Kind,
    cookie: u64,
}

impl Descent {
    /// A walk through all that is below a directory.
    pub(crate) fn below(directory: Ino) -> Descent {
        let top = Level { directory, path_len: 0, after: 0, entries: VecDeque::new() };
        Descent { path: Vec::new(), levels: vec![top] }
    }

    /// The path of what was met last, from where the walk began.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Goes on by one thing; nothing if all has been met. Takes some milliseconds at most.
    pub(crate) fn next(&mut self, files: &Posix) -> Option<Met> {
        let level = self.levels.last_mut()?;
        self.path.truncate(level.path_len);
        let Some(entry) = level.entries.pop_front() else {
            return Some(self.fill(files));
        };
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&entry.name);
        match entry.kind {
            Kind::Regular => return Some(Met::File(entry.ino)),
            Kind::Directory if self.levels.len() < DEPTH_MAX => self.levels.push(Level {
                directory: entry.ino,
                path_len: self.path.len(),
                after: 0,
                entries: VecDeque::new(),
            }),
            Kind::Directory => {
                return Some(Met::Closed(Error::InvalidArgument("too deep to look into")));
            }
            _ => (),
        }
        Some(Met::Nothing)
    }

    /// Reads some entries of the directory that is being looked at, or leaves it.
    fn fill(&mut self, files: &Posix) -> Met {
        let Some(level) = self.levels.last_mut() else {
            return Met::Nothing;
        };
        match entries_of(files, level.directory, level.after) {
            Ok(entries) if entries.is_empty() => {
                self.levels.pop();
                Met::Nothing
            }
            Ok(entries) => {
                level.after = entries.back().map_or(level.after, |last| last.cookie);
                level.entries = entries;
                Met::Nothing
            }
            Err(error) => {
                self.levels.pop();
                Met::Closed(error)
            }
        }
    }
}

fn entries_of(files: &Posix, directory: Ino, after: u64) -> Result<VecDeque<Listed>> {
    files.volume.check_running()?;
    let mut entries = VecDeque::new();
    directory::list_entries(&files.volume, directory.0, after, false, &mut |entry| {
        let (name, ino) = (entry.name.to_vec(), entry.ino);
        entries.push_back(Listed { name, ino, kind: entry.kind, cookie: entry.cookie });
        entries.len() < ENTRIES_MAX
    })?;
    Ok(entries)
}
