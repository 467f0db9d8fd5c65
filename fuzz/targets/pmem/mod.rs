//! Images of a pmem home for the fuzz targets, and for a test of the verifier: what they begin
//! with, and how they are judged.

use marram_check::{CheckOptions, check_image};
use marram_device::MemoryDevice;
use marram_pmem::memory::Memory;
use marram_pmem::memory::recorded::Recorded;
use marram_pmem::{NewImage, Pmem, PmemOptions, Which, make};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Timestamp, WriteOptions, XattrMode,
};
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Bytes of an image: the least that it can have.
const BYTES: usize = 1 << 20;
/// The run of the machine of images that were not closed.
const HOST: u64 = 5;
/// Inodes that are looked at in one dataset.
const INODES_MAX: usize = 200;
const ROOT_USER: Caller = Caller { uid: 0, gid: 0 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const KEPT: Which<'_> = Which { dataset: "root", snapshot: Some("kept") };
const CLONE: Which<'_> = Which { dataset: "clone", snapshot: None };

/// Whether an image of this mode lies on an ordinary file, and was not closed.
fn is_ordinary(mode: u8) -> bool {
    mode % 4 >= 2
}

fn medium(image: Vec<u8>, mode: u8) -> Recorded {
    match mode % 4 {
        0 | 1 => Recorded::new(image),
        2 => Recorded::unordered(image, HOST),
        _ => Recorded::unordered(image, HOST + 1),
    }
}

/// The image that the changes of a mode are made to.
pub(crate) fn base(mode: u8) -> &'static Vec<u8> {
    static BASES: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    let is_ordinary = is_ordinary(mode);
    BASES[usize::from(is_ordinary)].get_or_init(|| new_image(is_ordinary))
}

fn name(text: &[u8]) -> Name<'_> {
    Name::new(text).expect("it is a name")
}

/// An image with some of everything, in its first pages.
fn new_image(is_ordinary: bool) -> Vec<u8> {
    let memory = Recorded::new(vec![0xa5; BYTES]);
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    let new = NewImage { id: [7; 16], label: "fuzz".to_owned(), now, root_owner: ROOT_USER };
    make(&mut Memory::new(Box::new(memory.clone())), &new).expect("an image is made");
    let memory = if is_ordinary { medium(memory.image(), 2) } else { memory };
    let options = PmemOptions::default();
    let files = Pmem::open(Memory::new(Box::new(memory.clone())), options).expect("it opens");
    fill(&files).expect("it takes files");
    if !is_ordinary {
        files.close().expect("it is closed");
    }
    drop(files);
    memory.image()
}

fn fill(files: &Pmem) -> marram_vfs::Result<()> {
    let make = |parent, text: &[u8], node| {
        files.create(ROOT_USER, parent, name(text), node).map(|made| made.ino)
    };
    let directory = make(Ino::ROOT, b"d", NewNode::Directory { permissions: 0o755 })?;
    let file = make(directory, b"f", FILE)?;
    files.write(file, 3000, &[5; 9000], WriteOptions::default())?;
    files.set_xattr(file, b"user.x", b"value", XattrMode::Any)?;
    files.link(file, Ino::ROOT, name(b"again"))?;
    make(directory, b"short", NewNode::Symlink { target: b"short" })?;
    make(directory, b"long", NewNode::Symlink { target: &[b'l'; 400] })?;
    files.snapshot("root", "kept")?;
    files.clone_snapshot(KEPT, "clone")?;
    files.write(file, 0, &[6; 100], WriteOptions::default())?;
    files.sync_all()?;
    files.write(file, 1 << 21, &[7; 100], WriteOptions::default())?;
    make(directory, b"later", FILE).map(drop)
}

/// The pages that the image of a mode has been stored to.
pub(crate) fn used_pages(mode: u8) -> &'static Vec<usize> {
    static USED: [OnceLock<Vec<usize>>; 2] = [const { OnceLock::new() }; 2];
    USED[usize::from(is_ordinary(mode))].get_or_init(|| {
        let pages = base(mode).chunks_exact(PAGE).enumerate();
        pages.filter(|(_, page)| **page != [0xa5; PAGE]).map(|(at, _)| at).collect()
    })
}

/// Gives the header the checksum that it should have.
pub(crate) fn mend_header(image: &mut [u8]) {
    let checksum = xxh3_64(&image[..120]);
    image[120..128].copy_from_slice(&checksum.to_le_bytes());
}

/// The same of checkpoints.
pub(crate) fn mend_checkpoints(image: &mut [u8]) {
    for place in [1024, 1536] {
        let checksum = xxh3_64(&image[place + 8..place + 32]);
        image[place..place + 8].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn open(memory: &Recorded, writable: bool) -> Option<Pmem> {
    let options = PmemOptions { writable, ..PmemOptions::default() };
    Pmem::open(Memory::new(Box::new(memory.clone())), options).ok()
}

/// Checks an image, opens it to be read, and opens it to be changed.
pub(crate) fn judge(image: Vec<u8>, mode: u8) {
    check(&image, mode);
    let read = medium(image.clone(), mode);
    if let Some(files) = open(&read, false) {
        let _ = files.datasets();
        walk(&files);
    }
    assert!(read.image() == image, "an image that is only read was changed");
    let changed = medium(image, mode);
    let Some(files) = open(&changed, true) else { return };
    files.audit().expect("what is known of an image that opens is what a scan finds");
    use_all(&files);
    drop(files);
    // What a killed process has left is checked and opened again.
    check(&changed.image(), mode);
    let _ = open(&changed, true);
}

fn check(image: &[u8], mode: u8) {
    let device = MemoryDevice::from_bytes(image.to_vec());
    let options = CheckOptions { read_data: true, snapshots: true };
    let host = is_ordinary(mode).then_some(HOST);
    let _ = check_image(&device, &options, host, &mut |_| {});
}

fn use_all(files: &Pmem) {
    let _ = files.datasets();
    for which in [KEPT, CLONE] {
        if let Ok(other) = files.open_other(which) {
            change(&other);
        }
    }
    change(files);
    let _ = files.snapshot("root", "new");
    let _ = files.roll_back("root", "kept", "before");
    change(files);
    let _ = files.destroy(&[KEPT, CLONE], false);
    let _ = files.checkpoint();
    let _ = files.space();
}

/// Changes each file that is found, and the names.
fn change(files: &Pmem) {
    for (parent, text, ino) in walk(files) {
        let _ = files.write(ino, 4000, &[1; 300], WriteOptions::default());
        let _ = files.set_xattr(ino, b"user.y", b"other", XattrMode::Any);
        let Ok(old) = Name::new(&text) else { continue };
        let mode = RenameMode::Replace;
        let _ = files.rename(ROOT_USER, parent, old, Ino::ROOT, name(b"moved"), mode);
        let _ = files.unlink(parent, old);
        let _ = files.remove_directory(parent, old);
    }
    let _ = files.create(ROOT_USER, Ino::ROOT, name(b"new"), FILE);
    files.forget_all();
}

/// Reads all that is found: parents, names, inodes.
fn walk(files: &Pmem) -> Vec<(Ino, Vec<u8>, Ino)> {
    let (mut left, mut found) = (vec![Ino::ROOT], Vec::new());
    while let Some(parent) = left.pop() {
        let mut below = Vec::new();
        let _ = files.read_directory(parent, 0, false, &mut |entry| {
            below.push((entry.name.to_vec(), entry.ino, entry.kind));
            found.len() + below.len() < INODES_MAX
        });
        for (text, ino, kind) in below {
            let _ = (files.attributes(ino), files.read_link(ino), files.list_xattrs(ino));
            let _ = files.read(ino, 0, 20_000, &mut Vec::new());
            if kind == Kind::Directory && found.len() < INODES_MAX {
                left.push(ino);
            }
            found.push((parent, text, ino));
        }
    }
    found
}
