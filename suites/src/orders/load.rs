//! A load of names and content, as fsstress makes one: several threads draw calls on the same few
//! names, so most of them meet what another thread is at.

use marram_lab::failure::{Context, Result};
use marram_lab::seed::Seed;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const THREADS: u64 = 4;
/// Names in each directory, and how deep these are.
const NAMES: u64 = 12;
const DEPTH_MAX: u64 = 3;
/// Bytes of one write, and where it begins.
const WRITE_BYTES_MAX: u64 = 24 << 10;
const OFFSET_MAX: u64 = 96 << 10;
/// Bytes of an extended attribute.
const TAG_BYTES_MAX: u64 = 600;

/// What calls on names that others change at the same time may answer.
const EXPECTED: [Errno; 11] = [
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTEMPTY,
    Errno::ISDIR,
    Errno::NOTDIR,
    Errno::INVAL,
    Errno::LOOP,
    Errno::NODATA,
    Errno::PERM,
    Errno::NOSPC,
    Errno::BUSY,
];

/// Calls below a root.
pub(super) struct Load {
    pub(super) root: PathBuf,
    pub(super) seed: u64,
    /// Of each thread.
    pub(super) calls: u64,
}

impl Load {
    /// Makes all calls, or those until `is_over`.
    ///
    /// # Errors
    /// One has failed as none of them may.
    pub(super) fn run(&self, is_over: &AtomicBool) -> Result<()> {
        std::thread::scope(|threads| {
            let working: Vec<_> = (0..THREADS)
                .map(|which| threads.spawn(move || self.work(self.seed ^ which << 32, is_over)))
                .collect();
            working.into_iter().try_for_each(|thread| thread.join().expect("no call panics"))
        })
    }

    fn work(&self, seed: u64, is_over: &AtomicBool) -> Result<()> {
        let mut seed = Seed::new(seed);
        for _ in 0..self.calls {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            let (what, path) = (seed.between(0, 20), self.path(&mut seed));
            let done = self.call(what, &path, &mut seed);
            let is_expected = |error: &std::io::Error| {
                let known = error.raw_os_error().map(Errno::from_raw_os_error);
                known.is_some_and(|it| EXPECTED.contains(&it))
            };
            match done {
                Err(error) if !is_expected(&error) => {
                    return Err(error).context(|| format!("call {what} on {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn path(&self, seed: &mut Seed) -> PathBuf {
        let mut path = self.root.clone();
        for _ in 0..1 + seed.between(0, DEPTH_MAX) {
            path.push(format!("n{}", seed.between(0, NAMES)));
        }
        path
    }

    fn call(&self, what: u64, path: &Path, seed: &mut Seed) -> std::io::Result<()> {
        match what {
            0..3 => std::fs::create_dir(path),
            3..7 => write(path, seed),
            7 => append(path, seed),
            8 => opened(path)?.set_len(seed.between(0, OFFSET_MAX)),
            9 => std::fs::remove_file(path),
            10 => std::fs::remove_dir(path),
            11..13 => std::fs::rename(path, self.path(seed)),
            13 => std::fs::hard_link(path, self.path(seed)),
            14 => {
                let target = "t/".repeat(seed.between(1, 60) as usize);
                std::os::unix::fs::symlink(target, path)
            }
            15 => {
                let mode = Mode::from_raw_mode(0o640);
                let kind =
                    if seed.draw().is_multiple_of(2) { FileType::Fifo } else { FileType::Socket };
                Ok(rustix::fs::mknodat(CWD, path, kind, mode, 0)?)
            }
            16 => set_attributes(path, seed),
            17 => tag(path, seed),
            18 => opened(path)?.sync_all(),
            _ => std::fs::read_dir(path)?.try_for_each(|entry| entry.map(drop)),
        }
    }
}

/// So many bytes at least, and fewer than so many.
fn drawn(seed: &mut Seed, low: u64, high: u64) -> Vec<u8> {
    let count = seed.between(low, high);
    seed.bytes(count as usize)
}

fn opened(path: &Path) -> std::io::Result<File> {
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(Errno::INVAL.into());
    }
    // What was a file may be a pipe by now, whose end waits for another.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nonblocking);
    match options.read(true).write(true).open(path) {
        // Neither has a socket content.
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            Err(Errno::INVAL.into())
        }
        opened => opened,
    }
}

fn write(path: &Path, seed: &mut Seed) -> std::io::Result<()> {
    if std::fs::symlink_metadata(path).is_err() {
        drop(File::create_new(path)?);
    }
    let file = opened(path)?;
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    let bytes = drawn(seed, 1, WRITE_BYTES_MAX);
    file.write_all_at(&bytes, seed.between(0, OFFSET_MAX))
}

fn append(path: &Path, seed: &mut Seed) -> std::io::Result<()> {
    let file = opened(path)?;
    if !file.metadata()?.is_file() {
        return Ok(());
    }
    let at = file.metadata()?.len();
    file.write_all_at(&drawn(seed, 1, WRITE_BYTES_MAX), at)
}

fn set_attributes(path: &Path, seed: &mut Seed) -> std::io::Result<()> {
    let about = std::fs::symlink_metadata(path)?;
    if !about.is_file() && !about.is_dir() {
        return Err(Errno::INVAL.into());
    }
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o700 | seed.between(0, 64) as u32))?;
    let owner = seed.between(0, 4) as u32;
    std::os::unix::fs::lchown(path, Some(owner), Some(owner))?;
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seed.between(0, 1 << 30));
    let times = std::fs::FileTimes::new().set_modified(time);
    if about.is_file() { opened(path)?.set_times(times) } else { Ok(()) }
}

fn tag(path: &Path, seed: &mut Seed) -> std::io::Result<()> {
    let about = std::fs::symlink_metadata(path)?;
    if !about.is_file() && !about.is_dir() {
        return Err(Errno::INVAL.into());
    }
    let name = format!("user.t{}", seed.between(0, 3));
    if seed.draw().is_multiple_of(4) {
        return Ok(rustix::fs::lremovexattr(path, name.as_str())?);
    }
    let value = drawn(seed, 0, TAG_BYTES_MAX);
    Ok(rustix::fs::lsetxattr(path, name.as_str(), &value, XattrFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The kinds of what stands below a folder, as `find` names them.
    fn kinds(folder: &Path) -> BTreeSet<u8> {
        let mut find = marram_lab::process::command(&["find", ".", "-printf", "%y"]);
        let found = find.current_dir(folder).output().expect("find runs");
        assert!(found.status.success(), "find fails: {found:?}");
        found.stdout.into_iter().collect()
    }

    /// Threads that race may remove the last pipe of one load: what a few of them leave has all.
    #[test]
    fn loads_leave_something_of_every_kind() {
        let left = (1..=8).map(|seed| {
            let folder = tempfile::tempdir().expect("a folder");
            let load = Load { root: folder.path().to_owned(), seed, calls: 300 };
            load.run(&AtomicBool::new(false)).expect("no call fails as none may");
            kinds(folder.path())
        });
        let left: BTreeSet<u8> = left.flatten().collect();
        assert_eq!(left, BTreeSet::from(*b"fdlps"));
    }
}
