//! Taking a pool for this process alone, also from a process that is just letting go of it.
//!
//! `umount(2)` returns when the kernel has let go of a file system; its daemon ends a moment later.
//! Our own commands wait for that. But the last place of a mount also goes with a container, with
//! the last file of a mount that was taken out of sight, or by `umount -i`; and a pool that is made
//! anew right after that must not be refused: the next mount would show the old. Programs that look
//! at devices (`blkid`, called by udev) also take one for a moment when it has changed.
//!
//! Nobody is waited for whose mounts are in sight.

use super::open::probe;
use crate::control::daemons;
use crate::error::{Error, Result};
use crate::mountinfo::{self, DeviceNumber};
use crate::paths;
use marram_device::{FileDevice, Lock, file_of_loop_device};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a daemon that has nothing mounted in sight: it is ending, most likely.
const ENDING_PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for anybody else.
const LOOKING_PATIENCE: Duration = Duration::from_secs(1);
/// How often to try.
const TICK: Duration = Duration::from_millis(20);

/// Takes the device of a pool until the lock is dropped.
///
/// # Errors
/// Somebody has it; the message names the process where the system tells.
pub(crate) fn take(device: &FileDevice) -> Result<Lock> {
    let began = Instant::now();
    let mut patience = None;
    loop {
        let refusal = match device.lock_exclusive() {
            Ok(lock) => return Ok(lock),
            Err(error) => Error::in_use(error.to_string()),
        };
        let limit = *patience.get_or_insert_with(|| patience_for(device.path()));
        if is_in_sight(device.path()) || began.elapsed() >= limit {
            return Err(refusal);
        }
        std::thread::sleep(TICK);
    }
}

/// How long to wait for the process that has the pool at `path`, if nothing of it is in sight.
fn patience_for(path: &Path) -> Duration {
    let found = probe(path).ok().flatten();
    let daemon = found.map(|probe| daemons::of_pool(path, &probe.id));
    if matches!(daemon, Some(Ok(Some(_)))) { ENDING_PATIENCE } else { LOOKING_PATIENCE }
}

/// Whether the pool at `path` is mounted where this process can see it.
fn is_in_sight(path: &Path) -> bool {
    let (Ok(path), Ok(mounts)) = (paths::absolute(path), mountinfo::mounts()) else {
        return false;
    };
    mounts.iter().any(|entry| mountinfo::shows(entry, &path))
}

/// Refuses a file that a loop device uses: what is on that device would be overwritten under it.
/// One that goes with its last user is waited for.
///
/// # Errors
/// Which loop device it is.
pub(crate) fn check_not_looped(path: &Path) -> Result<()> {
    let Ok(file) = path.canonicalize() else { return Ok(()) };
    let began = Instant::now();
    while let Some(device) = loop_device_of(&file) {
        if !goes_by_itself(&device) || began.elapsed() >= LOOKING_PATIENCE {
            let (path, name) = (path.display(), device.file_name().unwrap_or_default().display());
            return Err(Error::in_use(format!("{path} is in use by the loop device /dev/{name}"))
                .hint(format!("use that device, or release it with `losetup -d /dev/{name}`")));
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// What the kernel tells of the loop device that uses `file`, as a folder.
fn loop_device_of(file: &Path) -> Option<PathBuf> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let found = file.metadata().ok().map(|found| (found.dev(), found.ino()));
    let uses = |device: &PathBuf| {
        let Ok(backing) = std::fs::read(device.join("loop/backing_file")) else { return false };
        let number = std::fs::read_to_string(device.join("dev")).ok();
        let number = number.and_then(|told| told.trim().parse::<DeviceNumber>().ok());
        match number.and_then(|number| file_of_loop_device(number.encoded())) {
            Some(shown) => Some(shown) == found,
            None => backing.strip_suffix(b"\n") == Some(file.as_os_str().as_bytes()),
        }
    };
    devices.map(|device| device.path()).find(uses)
}

fn goes_by_itself(device: &Path) -> bool {
    let told = std::fs::read_to_string(device.join("loop/autoclear"));
    told.is_ok_and(|told| told.trim() == "1")
}
