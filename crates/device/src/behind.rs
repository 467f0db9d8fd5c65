//! The files behind a block device, as the kernel tells of them in `/sys`.
//!
//! A loop device shows a file. A partition, or a volume of the device mapper, may stand on a loop
//! device. What is written to such a device changes a file that a pool may have under another name:
//! its own lock is in the way of nobody there.
//!
//! Invariant: looking changes nothing. A file that has no name in this mount namespace is left out.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, fstat, major, minor, open};

/// Most devices on top of each other that are looked through.
const DEPTH_MAX: usize = 8;
/// Most files that are returned.
const FILES_MAX: usize = 64;

/// A file, or another block device, that a loop device shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Where it is, or was when something else came to that place.
    pub(crate) path: PathBuf,
    /// The number of the device that shows it.
    pub(crate) device: u64,
    /// Whether all of it is shown. Of an image with partitions each device shows a part.
    pub(crate) is_whole: bool,
}

/// What is behind the block device of this number, the nearest first.
pub(crate) fn files_behind(number: u64) -> Vec<Behind> {
    let mut found = Vec::new();
    look(Path::new("/sys"), (number, true), DEPTH_MAX, &mut found);
    found.truncate(FILES_MAX);
    found
}

fn look(system: &Path, (number, is_whole): (u64, bool), depth: usize, found: &mut Vec<Behind>) {
    if depth == 0 || found.len() >= FILES_MAX {
        return;
    }
    let device = system.join(format!("dev/block/{}:{}", major(number), minor(number)));
    if let Some(shown) = shown_by(&device, (number, is_whole)) {
        let below = fs::metadata(&shown.path).ok().filter(|it| it.file_type().is_block_device());
        let below = below.map(|it| (it.rdev(), shown.is_whole));
        found.push(shown);
        below.into_iter().for_each(|below| look(system, below, depth - 1, found));
    }
    for number in stands_on(&device) {
        look(system, (number, false), depth - 1, found);
    }
}

/// What a loop device shows.
fn shown_by(device: &Path, (number, is_whole): (u64, bool)) -> Option<Behind> {
    let mut path = fs::read(device.join("loop/backing_file")).ok()?;
    path.truncate(path.strip_suffix(b"\n").unwrap_or(&path).len());
    let is_zero = |name: &str| {
        let told = fs::read_to_string(device.join("loop").join(name)).unwrap_or_default();
        told.trim() == "0"
    };
    let is_whole = is_whole && is_zero("offset") && is_zero("sizelimit");
    let path = PathBuf::from(std::ffi::OsString::from_vec(path));
    Some(Behind { path, device: number, is_whole })
}

/// The file that a loop device shows, by the numbers of its device and inode. What lies at the path
/// that `/sys` tells may be another: in another mount namespace, or below a mount that has come
/// there since. None if the device is no loop device, or may not be asked.
#[must_use]
pub fn file_of_loop_device(number: u64) -> Option<(u64, u64)> {
    let told = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let told = fs::canonicalize(told).ok().filter(|told| told.join("loop").is_dir())?;
    // What has come to the place of the device node meanwhile is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let node = open(Path::new("/dev").join(told.file_name()?), flags, Mode::empty()).ok()?;
    let is_it = fstat(&node).is_ok_and(|found| found.st_rdev == number);
    let status = if is_it { status_of(&node).ok()? } else { return None };
    let number = |at: usize| status[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
    Some((number(0)?, number(8)?))
}

/// `struct loop_info64` of the kernel, which begins with the device and the inode of the file.
const LOOP_STATUS_BYTES: usize = 232;
/// The code of the call for it, `LOOP_GET_STATUS64`.
const LOOP_GET_STATUS: rustix::ioctl::Opcode = 0x4c05;

#[allow(unsafe_code, reason = "rustix has no safe wrapper for a driver's own ioctl")]
fn status_of(device: &OwnedFd) -> rustix::io::Result<[u8; LOOP_STATUS_BYTES]> {
    // SAFETY: the device is a loop device, whose driver writes one `struct loop_info64` for this
    // code; that is as long as the array.
    unsafe {
        rustix::ioctl::ioctl(
            device,
            rustix::ioctl::Getter::<LOOP_GET_STATUS, [u8; LOOP_STATUS_BYTES]>::new(),
        )
    }
}

/// The numbers of the devices that a partition is a part of, or that a volume is made of.
fn stands_on(device: &Path) -> Vec<u64> {
    let whole = device.join("partition").exists().then(|| device.canonicalize().ok());
    let whole = whole.flatten().and_then(|part| part.parent().map(Path::to_owned));
    let parts = fs::read_dir(device.join("slaves")).into_iter().flatten().flatten();
    let below = whole.into_iter().chain(parts.map(|part| part.path()));
    below.filter_map(|device| number_of(&fs::read_to_string(device.join("dev")).ok()?)).collect()
}

fn number_of(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Behind, DEPTH_MAX, FILES_MAX, look};
    use std::fs;
    use std::path::Path;

    /// A folder that tells of devices as the kernel does.
    fn tell(system: &Path, files: &[(&str, &str)]) {
        for (name, content) in files {
            let path = system.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    fn loop_device(system: &Path, place: &str, offset: &str) {
        let at = |name: &str| format!("{place}/{name}");
        tell(
            system,
            &[
                (&at("loop/backing_file"), "/srv/a b.pool\n"),
                (&at("loop/offset"), offset),
                (&at("loop/sizelimit"), "0\n"),
                (&at("dev"), "7:3\n"),
            ],
        );
    }

    fn seen(system: &Path, number: u64) -> Vec<Behind> {
        let mut found = Vec::new();
        look(system, (number, true), DEPTH_MAX, &mut found);
        found
    }

    fn file(is_whole: bool) -> Behind {
        Behind { path: "/srv/a b.pool".into(), device: rustix::fs::makedev(7, 3), is_whole }
    }

    #[test]
    fn a_loop_device_shows_a_file_or_a_part_of_it() {
        let system = tempfile::tempdir().unwrap();
        loop_device(system.path(), "dev/block/7:3", "0\n");
        assert_eq!(seen(system.path(), rustix::fs::makedev(7, 3)), [file(true)]);
        assert_eq!(seen(system.path(), rustix::fs::makedev(7, 4)), []);
        loop_device(system.path(), "dev/block/7:3", "1048576\n");
        assert_eq!(seen(system.path(), rustix::fs::makedev(7, 3)), [file(false)]);
    }

    #[test]
    fn partitions_and_volumes_stand_on_what_shows_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let system = folder.path();
        loop_device(system, "devices/loop3", "0\n");
        tell(system, &[("devices/loop3/loop3p1/partition", "1\n")]);
        fs::create_dir_all(system.join("dev/block")).unwrap();
        let link = |to: &str, number: &str| {
            let at = system.join("dev/block").join(number);
            std::os::unix::fs::symlink(system.join(to), at).unwrap();
        };
        link("devices/loop3", "7:3");
        link("devices/loop3/loop3p1", "259:0");
        assert_eq!(seen(system, rustix::fs::makedev(259, 0)), [file(false)]);
        tell(system, &[("dev/block/252:0/slaves/loop3p1/dev", "259:0\n")]);
        assert_eq!(seen(system, rustix::fs::makedev(252, 0)), [file(false)]);
    }

    #[test]
    fn what_stands_on_itself_ends() {
        let system = tempfile::tempdir().unwrap();
        let around = [("dev/block/252:0/slaves/a/dev", "252:0\n"), ("dev/block/252:0/dev", "x\n")];
        tell(system.path(), &around);
        loop_device(system.path(), "dev/block/252:0", "0\n");
        let found = seen(system.path(), rustix::fs::makedev(252, 0));
        assert!((1..=FILES_MAX).contains(&found.len()), "{found:?}");
    }
}
