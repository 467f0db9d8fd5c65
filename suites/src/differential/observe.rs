//! What can be seen of a file system without changing it: attributes, and a whole tree.

use super::call::Bytes;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, Result};
use std::collections::hash_map::{DefaultHasher, Entry, HashMap};
use std::hash::Hasher;

/// How much of a file is read at each end of it: nothing is written further from the beginning
/// than that, but files may be longer.
const READ_BYTES: usize = 1 << 20;

/// A time in nanoseconds since 1970.
pub(super) type Nanoseconds = i128;

/// The present.
pub(super) fn now() -> Nanoseconds {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| Nanoseconds::try_from(since.as_nanos()).unwrap_or(Nanoseconds::MAX))
}

/// The attributes of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    /// Which inode it is; numbers of two file systems have nothing to do with each other.
    pub(super) inode: u64,
    /// Kind and permissions.
    pub(super) mode: u32,
    /// Names.
    pub(super) links: u64,
    /// Owner.
    pub(super) user: u32,
    /// Group.
    pub(super) group: u32,
    /// Which device it is, for devices.
    pub(super) device: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Access, modification and change.
    pub(super) times: [Nanoseconds; 3],
}

impl Attributes {
    /// From what the kernel tells.
    pub(super) fn of(stat: &Stat) -> Self {
        let time = |seconds: i64, nanoseconds: u64| {
            Nanoseconds::from(seconds) * 1_000_000_000 + Nanoseconds::from(nanoseconds)
        };
        Self {
            inode: stat.st_ino,
            mode: stat.st_mode,
            links: stat.st_nlink,
            user: stat.st_uid,
            group: stat.st_gid,
            device: stat.st_rdev,
            size: u64::try_from(stat.st_size).unwrap_or(u64::MAX),
            times: [
                time(stat.st_atime, stat.st_atime_nsec),
                time(stat.st_mtime, stat.st_mtime_nsec),
                time(stat.st_ctime, stat.st_ctime_nsec),
            ],
        }
    }

    /// What it is.
    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }
}

/// One entry of a tree.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    /// From the root of the tree.
    pub(super) path: Bytes,
    /// Its attributes.
    pub(super) attributes: Attributes,
    /// The first path, in the order of the walk, that leads to the same inode.
    pub(super) first_name: Bytes,
    /// Content of a file (hashed), target of a link.
    pub(super) content: Bytes,
    /// Names and values of the extended attributes.
    pub(super) extended: Vec<(Bytes, Bytes)>,
}

/// The tree below the working folder, in the order of paths.
pub(super) fn tree() -> Result<Vec<Leaf>> {
    let mut leaves = Vec::new();
    let mut first_names: HashMap<u64, Bytes> = HashMap::new();
    let mut folders = vec![Bytes::from(".")];
    while let Some(folder) = folders.pop() {
        let mut names: Vec<Vec<u8>> = list(&folder)?.into_iter().map(|(name, _)| name.0).collect();
        names.retain(|name| name != b"." && name != b"..");
        names.sort();
        for name in names {
            let path = Bytes([&folder.0[..], b"/", &name].concat());
            let mut leaf = leaf(path)?;
            match first_names.entry(leaf.attributes.inode) {
                Entry::Occupied(first) => leaf.first_name = first.get().clone(),
                Entry::Vacant(place) => drop(place.insert(leaf.path.clone())),
            }
            if leaf.attributes.kind() == FileType::Directory {
                folders.push(leaf.path.clone());
            }
            leaves.push(leaf);
        }
    }
    leaves.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(leaves)
}

fn leaf(path: Bytes) -> Result<Leaf> {
    let stat = rustix::fs::statat(CWD, &path.0[..], AtFlags::SYMLINK_NOFOLLOW)?;
    let attributes = Attributes::of(&stat);
    let content = match attributes.kind() {
        FileType::RegularFile => content(&path, attributes.size)?,
        FileType::Symlink => {
            Bytes(rustix::fs::readlinkat(CWD, &path.0[..], Vec::new())?.into_bytes())
        }
        _ => Bytes(Vec::new()),
    };
    let extended = extended(&path)?;
    Ok(Leaf { first_name: path.clone(), path, attributes, content, extended })
}

/// A hash of both ends of a file.
fn content(path: &Bytes, size: u64) -> Result<Bytes> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(CWD, &path.0[..], flags, Mode::empty())?;
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; READ_BYTES];
    for start in [0, size.saturating_sub(READ_BYTES as u64)] {
        let mut filled = 0;
        while filled < buffer.len() {
            match rustix::io::pread(&file, &mut buffer[filled..], start + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        hasher.write(&buffer[..filled]);
    }
    Ok(Bytes(hasher.finish().to_le_bytes().to_vec()))
}

fn extended(path: &Bytes) -> Result<Vec<(Bytes, Bytes)>> {
    const ROOM: usize = 1 << 16;
    let mut list = vec![0; ROOM];
    let count = rustix::fs::llistxattr(&path.0[..], &mut list[..])?;
    let mut value = vec![0; ROOM];
    let mut extended = Vec::new();
    for name in list[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let count = rustix::fs::lgetxattr(&path.0[..], name, &mut value[..])?;
        extended.push((Bytes(name.to_vec()), Bytes(value[..count].to_vec())));
    }
    extended.sort();
    Ok(extended)
}

/// The names in a folder with their kinds, in order.
pub(super) fn list(path: &Bytes) -> Result<Vec<(Bytes, FileType)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    entries(&rustix::fs::openat(CWD, &path.0[..], flags, Mode::empty())?)
}

/// The same of an open folder. It is listed on a handle of its own, from the beginning.
pub(super) fn entries(folder: impl std::os::fd::AsFd) -> Result<Vec<(Bytes, FileType)>> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        entries.push((Bytes(entry.file_name().to_bytes().to_vec()), entry.file_type()));
    }
    entries.sort_by(|left, right| left.0.cmp(&right.0));
    if entries.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Errno::LOOP); // A name twice: no file system may do that.
    }
    Ok(entries)
}
