//! A folder of the host as a file system: an inode is a descriptor that was opened for its place
//! alone, and the host's own number of it. Descriptors for content are opened when they are needed,
//! and a bounded number of them is kept.

use crate::errors::error;
use marram_vfs::{
    AccessRules, Allocate, Attributes, COOKIE_MAX, Caller, Capabilities, Copying, DirectoryEntry,
    Error, FileSystem, Ino, Kind, Name, NewNode, Ranges, RenameMode, Result, SeekTarget,
    SetAttributes, SetTime, SpaceReport, SyncScope, Timestamp, WriteOptions, XattrMode,
};
use rustix::fs::{
    self, AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, Statx,
    StatxFlags, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Descriptors for content that are kept open; when there are more, all are let go.
const CONTENTS_MAX: usize = 4096;
/// Entries of a directory are read in so many bytes.
const LISTING_BYTES: usize = 32 << 10;
/// Largest list of extended attributes.
const XATTR_BYTES_MAX: usize = 64 << 10;

const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An inode that the kernel knows.
struct Node {
    place: Arc<OwnedFd>,
    pins: u64,
}

/// A folder of the host.
pub(crate) struct HostFolder {
    root: Arc<OwnedFd>,
    /// The host's number of the root, which is [`Ino::ROOT`] here.
    root_number: u64,
    nodes: RwLock<HashMap<u64, Node>>,
    contents: Mutex<HashMap<u64, Arc<File>>>,
}

impl HostFolder {
    /// The folder at `path`.
    pub(crate) fn open(path: impl AsRef<Path>) -> std::io::Result<Self> {
        let flags = PLACE | OFlags::DIRECTORY;
        let root = Arc::new(fs::open(path.as_ref(), flags, Mode::empty())?);
        let root_number = stat(&root).map_err(std::io::Error::other)?.stx_ino;
        let (nodes, contents) = (RwLock::default(), Mutex::default());
        Ok(Self { root, root_number, nodes, contents })
    }

    /// Does something with the place of `ino`. No lock is held meanwhile.
    fn at<T>(&self, ino: Ino, work: impl FnOnce(&OwnedFd) -> Result<T>) -> Result<T> {
        if ino == Ino::ROOT {
            return work(&self.root);
        }
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        let place = Arc::clone(&nodes.get(&ino.0).ok_or(Error::Stale)?.place);
        drop(nodes);
        work(&place)
    }

    /// The content of `ino`, for reading and, where that can be, for writing.
    fn content(&self, ino: Ino) -> Result<Arc<File>> {
        if let Some(content) = self.contents().get(&ino.0) {
            return Ok(Arc::clone(content));
        }
        let file = self.at(ino, |place| {
            let path = name_of(place);
            let open = |flags| fs::open(&path, flags | OFlags::CLOEXEC, Mode::empty());
            open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY)).map_err(error)
        })?;
        Ok(self.keep(ino, file))
    }

    fn contents(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<File>>> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, ino: Ino, file: OwnedFd) -> Arc<File> {
        let content = Arc::new(File::from(file));
        let mut contents = self.contents();
        if contents.len() >= CONTENTS_MAX {
            contents.clear();
        }
        contents.insert(ino.0, Arc::clone(&content));
        content
    }

    /// The inode at `place`, pinned.
    fn pinned(&self, place: OwnedFd) -> Result<Attributes> {
        let attributes = self.attributes_of(&stat(&place)?);
        if attributes.ino != Ino::ROOT {
            let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
            let node = || Node { place: Arc::new(place), pins: 0 };
            nodes.entry(attributes.ino.0).or_insert_with(node).pins += 1;
        }
        Ok(attributes)
    }

    fn attributes_of(&self, stat: &Statx) -> Attributes {
        let number = stat.stx_ino;
        let mode = u32::from(stat.stx_mode);
        let (major, minor) = (stat.stx_rdev_major, stat.stx_rdev_minor);
        Attributes {
            ino: if number == self.root_number { Ino::ROOT } else { Ino(number) },
            generation: 0,
            kind: Kind::from_mode(mode).unwrap_or(Kind::Regular),
            permissions: mode & 0o7777,
            links: stat.stx_nlink,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            device: (minor & 0xFF) | (major << 8) | ((minor & !0xFF) << 12),
            size: stat.stx_size,
            blocks_512: stat.stx_blocks,
            accessed: instant(stat.stx_atime),
            modified: instant(stat.stx_mtime),
            changed: instant(stat.stx_ctime),
            created: instant(stat.stx_btime),
        }
    }

    fn make(&self, caller: Caller, parent: Ino, name: Name<'_>, node: NewNode<'_>) -> Result<()> {
        let name = name.as_bytes();
        self.at(parent, |folder| {
            let made = match node {
                NewNode::Directory { permissions } => fs::mkdirat(folder, name, mode(permissions)),
                NewNode::Symlink { target } => fs::symlinkat(target, folder, name),
                NewNode::Node { kind, permissions, device } => {
                    let kind = FileType::from_raw_mode(kind.mode_bits());
                    let device = fs::makedev((device >> 8) & 0xFFF, minor_of(device));
                    fs::mknodat(folder, name, kind, mode(permissions), device)
                }
            };
            made.map_err(error)?;
            own(folder, name, caller)
        })
    }
}

fn own(folder: &OwnedFd, name: &[u8], caller: Caller) -> Result<()> {
    if caller.uid == 0 && caller.gid == 0 {
        return Ok(());
    }
    let (uid, gid) = (fs::Uid::from_raw(caller.uid), fs::Gid::from_raw(caller.gid));
    fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(error)
}

fn minor_of(device: u32) -> u32 {
    (device & 0xFF) | ((device >> 12) & 0xFFF00)
}

fn mode(permissions: u32) -> Mode {
    Mode::from_raw_mode(permissions)
}

/// A name by which the host finds what a descriptor stands for.
fn name_of(place: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", place.as_raw_fd())
}

fn stat(place: &OwnedFd) -> Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    fs::statx(place, "", AtFlags::EMPTY_PATH, wanted).map_err(error)
}

fn instant(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

fn to_set(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
        }
    }
}

fn failed(failure: &std::io::Error) -> Error {
    error(Errno::from_io_error(failure).unwrap_or(Errno::IO))
}

impl FileSystem for HostFolder {
    fn space(&self) -> Result<SpaceReport> {
        let space = fs::fstatvfs(&*self.root).map_err(error)?;
        Ok(SpaceReport {
            total_bytes: space.f_blocks * space.f_frsize,
            free_bytes: space.f_bavail * space.f_frsize,
            inodes_used: space.f_files - space.f_ffree,
            inodes_free: space.f_ffree,
        })
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let open = |folder: &OwnedFd| fs::openat(folder, name.as_bytes(), PLACE, Mode::empty());
        let place = self.at(parent, |folder| open(folder).map_err(error))?;
        self.pinned(place)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        let open = |folder: &OwnedFd| fs::openat(folder, "..", PLACE, Mode::empty());
        let place = self.at(ino, |folder| open(folder).map_err(error))?;
        self.pinned(place)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        let place = self.at(ino, |place| place.try_clone().map_err(|failure| failed(&failure)))?;
        self.pinned(place)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.at(ino, |place| Ok(self.attributes_of(&stat(place)?)))
    }

    fn forget(&self, ino: Ino, count: u64) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let Some(node) = nodes.get_mut(&ino.0) else { return };
        node.pins = node.pins.saturating_sub(count);
        if node.pins == 0 {
            nodes.remove(&ino.0);
            drop(nodes);
            self.contents().remove(&ino.0);
        }
    }

    fn forget_all(&self) {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner).clear();
        self.contents().clear();
    }

    fn set_attributes(&self, _: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        if let Some(size) = set.size {
            fs::ftruncate(&*self.content(ino)?, size).map_err(error)?;
        }
        self.at(ino, |place| {
            if set.uid.is_some() || set.gid.is_some() {
                let (uid, gid) = (set.uid.map(fs::Uid::from_raw), set.gid.map(fs::Gid::from_raw));
                fs::chownat(place, "", uid, gid, AtFlags::EMPTY_PATH).map_err(error)?;
            }
            if let Some(permissions) = set.permissions {
                fs::chmod(name_of(place), mode(permissions)).map_err(error)?;
            }
            if set.accessed.is_some() || set.modified.is_some() {
                let (last_access, last_modification) = (to_set(set.accessed), to_set(set.modified));
                let times = Timestamps { last_access, last_modification };
                fs::utimensat(place, "", &times, AtFlags::EMPTY_PATH).map_err(error)?;
            }
            Ok(self.attributes_of(&stat(place)?))
        })
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let read = |place: &OwnedFd| fs::readlinkat(place, "", Vec::new()).map_err(error);
        Ok(self.at(ino, read)?.into_bytes())
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.make(caller, parent, name, node)?;
        self.lookup(parent, name)
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let open = |folder: &OwnedFd| fs::openat(folder, ".", flags, mode(permissions));
        let file = self.at(parent, |folder| open(folder).map_err(error))?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let place = fs::open(name_of(&file), flags, Mode::empty()).map_err(error)?;
        let (uid, gid) = (fs::Uid::from_raw(caller.uid), fs::Gid::from_raw(caller.gid));
        fs::fchown(&file, Some(uid), Some(gid)).map_err(error)?;
        let attributes = self.pinned(place)?;
        self.keep(attributes.ino, file);
        Ok(attributes)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let link = |place: &OwnedFd, folder: &OwnedFd| {
            fs::linkat(place, "", folder, name.as_bytes(), AtFlags::EMPTY_PATH).map_err(error)
        };
        self.at(ino, |place| self.at(parent, |folder| link(place, folder)))?;
        self.lookup(parent, name)
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let none = AtFlags::empty();
        self.at(parent, |folder| fs::unlinkat(folder, name.as_bytes(), none).map_err(error))
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let flags = AtFlags::REMOVEDIR;
        self.at(parent, |folder| fs::unlinkat(folder, name.as_bytes(), flags).map_err(error))
    }

    fn rename(
        &self,
        _: Caller,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        how: RenameMode,
    ) -> Result<()> {
        let mut flags = RenameFlags::empty();
        flags.set(RenameFlags::NOREPLACE, how.refuses_to_replace());
        flags.set(RenameFlags::WHITEOUT, how.leaves_whiteout());
        flags.set(RenameFlags::EXCHANGE, how == RenameMode::Exchange);
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        self.at(parent, |from| {
            self.at(new_parent, |to| {
                fs::renameat_with(from, name, to, new_name, flags).map_err(error)
            })
        })
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let (content, start) = (self.content(ino)?, out.len());
        out.resize(start + len, 0);
        let mut filled = start;
        while filled < out.len() {
            let at = offset + (filled - start) as u64;
            match content.read_at(&mut out[filled..], at) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(failure) => return Err(failed(&failure)),
            }
        }
        out.truncate(filled);
        Ok(())
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], _: WriteOptions<'_>) -> Result<()> {
        self.content(ino)?.write_all_at(data, offset).map_err(|failure| failed(&failure))
    }

    /// As long as nothing else changes the folder, its end is where the kernel has it.
    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        let end = self.attributes(ino)?.size;
        self.write(ino, end, data, options)?;
        Ok(end)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |place: &OwnedFd| fs::openat(place, ".", flags, Mode::empty());
        let folder = self.at(ino, |place| open(place).map_err(error))?;
        fs::seek(&folder, SeekFrom::Start(after)).map_err(error)?;
        let mut buffer = vec![MaybeUninit::uninit(); LISTING_BYTES];
        let mut listing = fs::RawDir::new(folder, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(error)?;
            let Ok(name) = Name::new(entry.file_name().to_bytes()) else { continue };
            let attributes = match with_attributes {
                true => Some(self.lookup(ino, name)?),
                false => None,
            };
            let kind = Kind::from_mode(entry.file_type().as_raw_mode()).unwrap_or(Kind::Regular);
            let entry_ino = Ino(entry.ino());
            let accepted = visit(DirectoryEntry {
                name: name.as_bytes(),
                ino: entry_ino,
                kind,
                cookie: entry.next_entry_cookie().min(COOKIE_MAX),
                attributes,
            });
            if !accepted {
                if with_attributes {
                    self.forget(entry_ino, 1);
                }
                break;
            }
        }
        Ok(())
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let mut value = vec![0; XATTR_BYTES_MAX];
        let mut get = |place: &OwnedFd| fs::getxattr(name_of(place), name, &mut value[..]);
        let len = self.at(ino, |place| get(place).map_err(error))?;
        value.truncate(len);
        Ok(value)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let flags = match mode {
            XattrMode::Any => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        self.at(ino, |place| fs::setxattr(name_of(place), name, value, flags).map_err(error))
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = vec![0; XATTR_BYTES_MAX];
        let mut list = |place: &OwnedFd| fs::listxattr(name_of(place), &mut names[..]);
        let len = self.at(ino, |place| list(place).map_err(error))?;
        let names = names[..len].split(|byte| *byte == 0);
        Ok(names.filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.at(ino, |place| fs::removexattr(name_of(place), name).map_err(error))
    }

    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()> {
        let content = self.content(ino)?;
        match scope {
            SyncScope::Data => fs::fdatasync(&*content).map_err(error),
            SyncScope::All => fs::fsync(&*content).map_err(error),
        }
    }

    fn sync_all(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::openat(&*self.root, ".", flags, Mode::empty()).map_err(error)?;
        fs::syncfs(&root).map_err(error)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { ranges: Some(self), copying: Some(self), ..Capabilities::default() }
    }

    fn access_rules(&self) -> AccessRules<'_> {
        AccessRules::ModeBits
    }
}

impl Ranges for HostFolder {
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let keep = FallocateFlags::KEEP_SIZE;
        let flags = match how {
            Allocate::Reserve => FallocateFlags::empty(),
            Allocate::ReserveKeepSize => keep,
            Allocate::PunchHole => FallocateFlags::PUNCH_HOLE | keep,
            Allocate::Zero => FallocateFlags::ZERO_RANGE,
            Allocate::ZeroKeepSize => FallocateFlags::ZERO_RANGE | keep,
            Allocate::Collapse => FallocateFlags::COLLAPSE_RANGE,
            Allocate::Insert => FallocateFlags::INSERT_RANGE,
            Allocate::Unshare => FallocateFlags::UNSHARE_RANGE,
            Allocate::UnshareKeepSize => FallocateFlags::UNSHARE_RANGE | keep,
        };
        fs::fallocate(&*self.content(ino)?, flags, offset, len).map_err(error)
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        let target = match target {
            SeekTarget::Data => SeekFrom::Data(offset),
            SeekTarget::Hole => SeekFrom::Hole(offset),
        };
        fs::seek(&*self.content(ino)?, target).map_err(error)
    }
}

impl Copying for HostFolder {
    fn copy_range(
        &self,
        from: Ino,
        mut from_offset: u64,
        to: Ino,
        mut to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let (from, to) = (self.content(from)?, self.content(to)?);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let (at, to_at) = (Some(&mut from_offset), Some(&mut to_offset));
        let copied = fs::copy_file_range(&*from, at, &*to, to_at, len).map_err(error)?;
        Ok(copied as u64)
    }
}
