//! Images that `mke2fs` makes, opened on devices in memory.

use marram_device::{Device, MemoryDevice};
use marram_ext2::{AccessTimes, Ext2, Ext2Options};
use marram_vfs::{Clock, FileSystem, Ino, Name};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// A program of e2fsprogs, which a user's search path may not lead to.
pub(crate) fn program(name: &str) -> PathBuf {
    let places = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"];
    let found = places.iter().map(|place| Path::new(place).join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed; these tests need e2fsprogs"))
}

/// What an image is made like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) kind: &'static str,
    pub(crate) block_bytes: u32,
    pub(crate) inode_bytes: u32,
    pub(crate) kib: u32,
}

/// 4 MiB of small blocks: a crash of it is judged fast.
pub(crate) const SMALL: Shape =
    Shape { kind: "ext2", block_bytes: 1024, inode_bytes: 256, kib: 4096 };

/// The same with a journal of 1 MiB.
pub(crate) const JOURNALED: Shape = Shape { kind: "ext3", kib: 5120, ..SMALL };

/// Makes an image.
pub(crate) fn make(shape: Shape) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let made = Command::new(program("mke2fs"))
        // The moment at which the clock of a history begins.
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .args(["-q", "-F", "-t", shape.kind, "-m", "0"])
        .args(["-b", &shape.block_bytes.to_string(), "-I", &shape.inode_bytes.to_string()])
        .arg(&path)
        .arg(format!("{}k", shape.kib))
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::read(path).unwrap()
}

/// Opens an image without access times.
pub(crate) fn open(device: Arc<dyn Device>, clock: Arc<dyn Clock>) -> Arc<Ext2> {
    let access_times = AccessTimes::Never;
    let options = Ext2Options { clock, access_times, ..Ext2Options::default() };
    Arc::new(Ext2::open(device, options).unwrap())
}

/// Opens bytes as they are.
pub(crate) fn open_bytes(bytes: Vec<u8>) -> Result<Ext2, marram_ext2::ImageError> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    Ext2::open(device, Ext2Options { access_times: AccessTimes::Never, ..Ext2Options::default() })
}

/// Opens bytes with the order of writes that is their own, on a device that can be looked at.
pub(crate) fn in_memory(bytes: Vec<u8>) -> (Ext2, Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let options = Ext2Options { access_times: AccessTimes::Never, ..Ext2Options::default() };
    (Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap(), device)
}

/// A name.
pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// Removes what `mke2fs` puts into each image, which a model does not have.
pub(crate) fn empty(files: &Ext2) {
    files.remove_directory(Ino::ROOT, name("lost+found")).unwrap();
    files.sync_all().unwrap();
}
