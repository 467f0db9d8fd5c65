//! Another reader of images beside our own: `ext4-view`, which shares nothing with this crate.

use crate::images::{JOURNALED, make, name};
use crate::judge::Judge;
use crate::logged::mounted_bytes;
use ext4_view::{Ext4, FileType, Path};
use marram_ext2::Ext2;
use marram_vfs::{Attributes, Caller, FileSystem, Ino, Kind, NewNode, WriteOptions};
use std::collections::BTreeSet;

/// Where an image says how many bytes an inode has, and how few that reader takes.
const INODE_BYTES_AT: usize = 1024 + 88;
const INODE_BYTES_MIN: u16 = 160;

/// What that reader says of a hole in a file without extents, which it does not read.
const HOLE: &str = "from block 0 (originally 0)";

/// Whether that reader takes an image: not with small inodes, which have no creation time.
pub(crate) fn is_taken(image: &[u8]) -> bool {
    u16::from_le_bytes([image[INODE_BYTES_AT], image[INODE_BYTES_AT + 1]]) >= INODE_BYTES_MIN
}

/// Compares all that we read of an image with what that reader finds in its bytes; how many things
/// there are.
///
/// # Errors
/// What differs, or what one of both cannot read.
pub(crate) fn compared(image: &[u8], files: &Ext2) -> Result<usize, String> {
    let view = Ext4::load(Box::new(image.to_vec())).map_err(|error| error.to_string())?;
    let (mut left, mut count) = (vec![(Ino::ROOT, b"/".to_vec())], 0);
    while let Some((directory, above)) = left.pop() {
        let theirs = listed(&view, &above)?;
        let mut ours = BTreeSet::new();
        let entries = marram_sim::read_directory(files, directory, false, usize::MAX)
            .map_err(|error| shown(&above, &error.to_string()))?;
        for entry in entries {
            let mut path = above.clone();
            path.extend(&*entry.name);
            let about =
                files.attributes(entry.ino).map_err(|error| shown(&path, &error.to_string()))?;
            same(&view, &path, files, &about).map_err(|said| shown(&path, &said))?;
            if about.kind == Kind::Directory {
                path.push(b'/');
                left.push((entry.ino, path));
            }
            ours.insert(entry.name.to_vec());
            count += 1;
        }
        if ours != theirs {
            return Err(shown(&above, &format!("names {ours:?} here, {theirs:?} there")));
        }
    }
    Ok(count)
}

fn shown(path: &[u8], said: &str) -> String {
    format!("{}: {said}", String::from_utf8_lossy(path))
}

fn path_of(bytes: &[u8]) -> Result<Path<'_>, String> {
    Path::try_from(bytes).map_err(|error| error.to_string())
}

/// The names that the other reader finds in a directory.
fn listed(view: &Ext4, above: &[u8]) -> Result<BTreeSet<Vec<u8>>, String> {
    let mut names = BTreeSet::new();
    for entry in view.read_dir(path_of(above)?).map_err(|it| shown(above, &it.to_string()))? {
        let entry = entry.map_err(|it| shown(above, &it.to_string()))?;
        let name = entry.file_name().as_ref().to_vec();
        if name != b"." && name != b".." {
            names.insert(name);
        }
    }
    Ok(names)
}

fn kind(of: FileType) -> Kind {
    match of {
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::Directory => Kind::Directory,
        FileType::Fifo => Kind::Fifo,
        FileType::Regular => Kind::Regular,
        FileType::Socket => Kind::Socket,
        FileType::Symlink => Kind::Symlink,
    }
}

/// Compares one thing.
fn same(view: &Ext4, path: &[u8], files: &Ext2, ours: &Attributes) -> Result<(), String> {
    let place = path_of(path)?;
    let theirs = view.symlink_metadata(place).map_err(|error| error.to_string())?;
    let left = (ours.kind, ours.permissions, ours.uid, ours.gid);
    let permissions = u32::from(theirs.mode() & 0o7777);
    let right = (kind(theirs.file_type()), permissions, theirs.uid(), theirs.gid());
    if left != right {
        return Err(format!("{left:?} here, {right:?} there"));
    }
    let mut content = Vec::new();
    let there = match ours.kind {
        Kind::Regular => {
            let read = files.read(ours.ino, 0, ours.size as usize, &mut content);
            read.map_err(|error| error.to_string())?;
            match view.read(place).map_err(|error| error.to_string()) {
                Err(said) if said.contains(HOLE) => return Ok(()),
                read => read?,
            }
        }
        Kind::Symlink => {
            content = files.read_link(ours.ino).map_err(|error| error.to_string())?;
            let target = view.read_link(place).map_err(|error| error.to_string())?;
            target.as_ref().to_vec()
        }
        _ => return Ok(()),
    };
    if content == there { Ok(()) } else { Err("its content is another".to_owned()) }
}

#[test]
fn another_reader_that_finds_something_else_is_heard() {
    let user = Caller { uid: 7, gid: 8 };
    let node = |permissions| NewNode::Node { kind: Kind::Regular, permissions, device: 0 };
    let (files, device) = crate::images::in_memory(make(JOURNALED));
    let made = files.create(user, Ino::ROOT, name("f"), node(0o640)).unwrap().ino;
    files.write(made, 0, &[0xc5; 3000], WriteOptions::default()).unwrap();
    files.close().unwrap();
    let (files, image) = mounted_bytes(&Judge::new(), device.snapshot()).unwrap();
    assert_eq!(compared(&image, &files), Ok(2), "the file and lost+found");
    let at = image.windows(3000).position(|it| it == [0xc5; 3000]).unwrap();
    let mut other = image.clone();
    other[at + 7] ^= 1;
    assert_eq!(compared(&other, &files), Err("/f: its content is another".to_owned()));
    // The journal has copies of the entry.
    let mut other = image;
    for at in 0..other.len() - 3 {
        if other[at..at + 3] == [1, 1, b'f'] {
            other[at + 2] = b'g';
        }
    }
    let said = compared(&other, &files).unwrap_err();
    assert!(said.contains("/f: ") || said.contains("/: names"), "{said}");
}
