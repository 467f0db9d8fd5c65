//! A file system in a pool, by paths; each opening has a clock that begins anew.

use marram_pool::Pool;
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::Store;
use marram_vfs::{Caller, FileSystem, Ino, Name, NewNode, Result, SteppedClock};
use std::sync::Arc;

pub(crate) const ROOT: Caller = Caller { uid: 0, gid: 0 };

pub(crate) fn open(pool: &Pool, source: &str) -> Posix {
    let options = PosixOptions {
        clock: Arc::new(SteppedClock::default()),
        access_times: AccessTimes::Never,
        ..PosixOptions::default()
    };
    Posix::new(pool.open(&source.parse().unwrap()).unwrap(), options).unwrap()
}

pub(crate) fn find(files: &Posix, path: &str) -> Result<Ino> {
    let mut at = Ino::ROOT;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = files.lookup(at, Name::new(part.as_bytes()).unwrap())?.ino;
        files.forget(at, 1);
    }
    Ok(at)
}

/// The directory that a path leads into, and the name there.
pub(crate) fn place<'p>(files: &Posix, path: &'p str) -> Result<(Ino, Name<'p>)> {
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((find(files, directory)?, Name::new(name.as_bytes()).unwrap()))
}

pub(crate) fn make(files: &Posix, path: &str, node: NewNode<'_>) -> Result<Ino> {
    let (directory, name) = place(files, path)?;
    let made = files.create(ROOT, directory, name, node)?;
    files.forget(made.ino, 1);
    Ok(made.ino)
}
