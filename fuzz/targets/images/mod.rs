//! Small ext2 and ext3 images that `mke2fs` makes, changed by an input. An image lies inside a
//! larger device, and a write outside of it is a crash.

use marram_device::{Device, checked_range};
use marram_ext2::{Ext2, Ext2Options};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, SyncScope,
    WriteOptions, XattrMode,
};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

pub(crate) const BLOCK_BYTES: usize = 1024;
/// Bytes of the device before the image, and behind it.
pub(crate) const BESIDE_BYTES: usize = 4096;
/// Changes that one input can make.
const CHANGES_MAX: usize = 16;
/// Names that are looked at: a hostile directory may claim any number.
const NAMES_MAX: usize = 24;
/// Steps of a search for leaks.
const STEPS_MAX: usize = 2000;

pub(crate) const USER: Caller = Caller { uid: 7, gid: 8 };
pub(crate) const FILE: NewNode<'_> =
    NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

/// An image that `mke2fs` makes, with these words to it: the same each time.
pub(crate) fn make(kind: &str, kib: u32, words: &[&str]) -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("marram-fuzz-{}", std::process::id()));
    let made = Command::new("/usr/sbin/mke2fs")
        .env("E2FSPROGS_FAKE_TIME", "1700000000")
        .args(["-q", "-F", "-t", kind, "-m", "0", "-b", "1024", "-I", "256", "-N", "64"])
        .args(["-U", "01234567-89ab-cdef-0123-456789abcdef", "-J", "size=1"])
        .args(["-E", "hash_seed=01234567-89ab-cdef-0123-456789abcdef"])
        .args(words)
        .arg(&path)
        .arg(format!("{kib}k"))
        .status();
    assert!(made.expect("e2fsprogs are installed").success(), "mke2fs makes an image");
    let bytes = std::fs::read(&path).expect("it is there");
    std::fs::remove_file(path).expect("it is there");
    bytes
}

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("it is a name")
}

/// A base image with some blocks changed: an input costs what it touches.
pub(crate) struct Changed {
    base: &'static [u8],
    blocks: Mutex<BTreeMap<usize, Vec<u8>>>,
}

impl Changed {
    /// The base with the changes of an input: each says which of some blocks, where in it, how,
    /// and four bytes.
    pub(crate) fn new(base: &'static [u8], places: &[usize], input: &[u8]) -> Changed {
        let mut blocks: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for change in input.chunks_exact(8).take(CHANGES_MAX) {
            let block = places[usize::from(change[0]) % places.len()];
            let place = (usize::from(change[1]) | usize::from(change[2]) << 8) % (BLOCK_BYTES - 3);
            let bytes = blocks.entry(block).or_insert_with(|| block_of(base, block).to_vec());
            match change[3] % 4 {
                0 => bytes[place..place + 4].copy_from_slice(&change[4..8]),
                1 => bytes[place] ^= change[4],
                2 => bytes[place..].fill(change[4]),
                _ => bytes.fill(0),
            }
        }
        Changed { base, blocks: Mutex::new(blocks) }
    }

    /// The part of a block at a place, up to `len` bytes: block, where in it, how many.
    fn part(at: usize, len: usize) -> (usize, usize, usize) {
        (at / BLOCK_BYTES, at % BLOCK_BYTES, len.min(BLOCK_BYTES - at % BLOCK_BYTES))
    }
}

/// A block of an image.
pub(crate) fn block_of(image: &[u8], block: usize) -> &[u8] {
    &image[block * BLOCK_BYTES..][..BLOCK_BYTES]
}

impl Device for Changed {
    fn name(&self) -> String {
        "image".to_owned()
    }

    fn size(&self) -> marram_device::Result<u64> {
        Ok((self.base.len() + 2 * BESIDE_BYTES) as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> marram_device::Result<()> {
        checked_range("image", offset, buffer.len() as u64, self.size()?)?;
        let blocks = self.blocks.lock().expect("nobody panics with the lock");
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = (offset as usize + done).checked_sub(BESIDE_BYTES) else {
                buffer[done] = 0;
                done += 1;
                continue;
            };
            let (block, within, len) = Changed::part(at, buffer.len() - done);
            if at >= self.base.len() {
                buffer[done..done + len].fill(0);
            } else {
                let bytes = blocks.get(&block).map_or(block_of(self.base, block), Vec::as_slice);
                buffer[done..done + len].copy_from_slice(&bytes[within..within + len]);
            }
            done += len;
        }
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> marram_device::Result<()> {
        let from = (offset as usize).checked_sub(BESIDE_BYTES).expect("a write before the image");
        assert!(from + buffer.len() <= self.base.len(), "a write behind the image");
        let mut blocks = self.blocks.lock().expect("nobody panics with the lock");
        let mut done = 0;
        while done < buffer.len() {
            let (block, within, len) = Changed::part(from + done, buffer.len() - done);
            let bytes = blocks.entry(block).or_insert_with(|| block_of(self.base, block).to_vec());
            bytes[within..within + len].copy_from_slice(&buffer[done..done + len]);
            done += len;
        }
        Ok(())
    }

    fn flush(&self) -> marram_device::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> marram_device::Result<()> {
        Ok(())
    }
}

/// Opens an image and uses all that is found; errors are as good as answers.
pub(crate) fn open_and_use(image: Changed, options: Ext2Options) {
    let options = Ext2Options { offset_bytes: BESIDE_BYTES as u64, ..options };
    let Ok(files) = Ext2::open(Arc::new(image), options) else { return };
    for _ in 0..STEPS_MAX {
        if !matches!(files.reclaim(64), Ok(true)) {
            break;
        }
    }
    use_all(&files);
    let _ = files.sync_all();
    let _ = files.close();
}

fn use_all(files: &Ext2) {
    let (mut left, mut count) = (vec![Ino::ROOT], 0);
    while let Some(directory) = left.pop() {
        let mut found = Vec::new();
        let _ = files.read_directory(directory, 0, false, &mut |entry| {
            found.push((entry.ino, entry.kind, entry.name.to_vec()));
            found.len() < NAMES_MAX
        });
        for (ino, kind, text) in found {
            count += 1;
            if count > NAMES_MAX {
                return;
            }
            use_one(files, (directory, ino), &text, count);
            if kind == Kind::Directory {
                left.push(ino);
            }
        }
    }
}

fn use_one(files: &Ext2, (directory, ino): (Ino, Ino), text: &[u8], count: usize) {
    let mut out = Vec::new();
    let _ = files.read(ino, 299_000, 50_000, &mut out);
    let _ = files.read_link(ino);
    for tag in files.list_xattrs(ino).unwrap_or_default() {
        let _ = files.xattr(ino, &tag);
    }
    let _ = files.set_xattr(ino, b"user.new", &[3; 200], XattrMode::Any);
    let _ = files.write(ino, 1_000, &[1; 3000], WriteOptions::default());
    let _ = files.create(USER, ino, name("new"), FILE);
    if count % 8 == 0 {
        let _ = files.sync(ino, SyncScope::All);
    }
    let set = SetAttributes { size: Some(10), ..SetAttributes::default() };
    let _ = files.set_attributes(USER, ino, &set);
    let Ok(text) = Name::new(text) else { return };
    match count % 3 {
        0 => {
            let mode = RenameMode::Replace;
            let _ = files.rename(USER, directory, text, Ino::ROOT, name("moved"), mode);
        }
        1 => {
            let _ = files.unlink(directory, text);
        }
        _ => {
            let _ = files.remove_directory(directory, text);
        }
    }
}
