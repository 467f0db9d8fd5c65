//! All that the model remembers: inodes by number, each with its attributes, its content, its
//! extended attributes and its pins. The state is a plain value: cloning it keeps a moment, and
//! shares the inodes that do not change afterwards.

use crate::sparse::SparseBytes;
use marram_vfs::{
    Attributes, Caller, Error, Ino, Kind, Name, Result, SetAttributes, SetTime, SpaceReport,
    Timestamp,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Set-user-id bit.
const SETUID: u32 = 0o4000;
/// Set-group-id bit.
pub(crate) const SETGID: u32 = 0o2000;
/// Execute permission of the group.
const GROUP_EXECUTE: u32 = 0o0010;
/// All the bits that `permissions` may hold.
pub(crate) const PERMISSION_BITS: u32 = 0o7777;
/// The file capabilities of a program, dropped with its other privileges.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
/// What `space` says there is, in bytes; nothing counts against it.
const TOTAL_BYTES: u64 = 1 << 50;
/// How many inodes `space` says can be made.
const INODES_MAX: u64 = 1 << 40;

/// One inode.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) attributes: Attributes,
    pub(crate) content: Content,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) pins: u64,
}

/// What an inode holds, by kind.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(SparseBytes),
    Directory(Directory),
    Target(Vec<u8>),
    Nothing,
}

/// The entries of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    pub(crate) parent: Ino,
    pub(crate) entries: BTreeMap<Vec<u8>, Entry>,
    pub(crate) last_cookie: u64,
}

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) ino: Ino,
    pub(crate) cookie: u64,
}

/// Every inode there is.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) nodes: BTreeMap<Ino, Arc<Node>>,
    pub(crate) last_ino: u64,
}

impl State {
    /// Gives inodes other numbers.
    pub(crate) fn show_as(&mut self, numbers: &BTreeMap<Ino, Ino>, last: Ino) {
        let number = |ino: Ino| numbers.get(&ino).copied().unwrap_or(ino);
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        self.nodes = nodes.map(|(ino, node)| (number(ino), node.renumbered(&number))).collect();
        self.last_ino = last.0;
    }
}

impl Directory {
    pub(crate) fn new(parent: Ino) -> Directory {
        Directory { parent, entries: BTreeMap::new(), last_cookie: 0 }
    }

    /// Points `name` at `ino`; a name that exists keeps its cookie.
    pub(crate) fn set(&mut self, name: Name<'_>, ino: Ino) {
        if let Some(entry) = self.entries.get_mut(name.as_bytes()) {
            entry.ino = ino;
            return;
        }
        self.last_cookie += 1;
        let cookie = self.last_cookie;
        self.entries.insert(name.as_bytes().to_vec(), Entry { ino, cookie });
    }
}

impl Node {
    /// A new inode without names or pins.
    pub(crate) fn new(ino: Ino, kind: Kind, permissions: u32, now: Timestamp) -> Node {
        let attributes = Attributes {
            ino,
            generation: 1,
            kind,
            permissions: permissions & PERMISSION_BITS,
            links: 0,
            uid: 0,
            gid: 0,
            device: 0,
            size: 0,
            blocks_512: 0,
            accessed: now,
            modified: now,
            changed: now,
            created: now,
        };
        Node { attributes, content: Content::Nothing, xattrs: BTreeMap::new(), pins: 0 }
    }

    fn renumbered(&self, number: &dyn Fn(Ino) -> Ino) -> Arc<Node> {
        let mut node = self.clone();
        node.attributes.ino = number(node.attributes.ino);
        if let Content::Directory(directory) = &mut node.content {
            directory.parent = number(directory.parent);
            directory.entries.values_mut().for_each(|entry| entry.ino = number(entry.ino));
        }
        Arc::new(node)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.attributes.kind == Kind::Directory
    }

    /// The attributes, with the space in use counted.
    pub(crate) fn report(&self) -> Attributes {
        let mut report = self.attributes.clone();
        if let Content::Bytes(bytes) = &self.content {
            report.blocks_512 = bytes.data_bytes().div_ceil(512);
        }
        report
    }

    /// The content was changed.
    pub(crate) fn touch_content(&mut self, now: Timestamp) {
        self.attributes.modified = now;
        self.attributes.changed = now;
    }

    /// Takes setuid, setgid (where it means a privilege) and file capabilities away. A
    /// directory's bits mean something else and stay.
    pub(crate) fn clear_privileges(&mut self) {
        if self.is_directory() {
            return;
        }
        self.attributes.permissions &= !SETUID;
        if self.attributes.permissions & GROUP_EXECUTE != 0 {
            self.attributes.permissions &= !SETGID;
        }
        self.drop_capability();
    }

    /// Takes file capabilities away, as every change of content and owner does.
    pub(crate) fn drop_capability(&mut self) {
        if !self.is_directory() {
            self.xattrs.remove(CAPABILITY);
        }
    }

    fn set_times(&mut self, set: &SetAttributes, now: Timestamp) {
        let resolve = |time| match time {
            SetTime::Now => now,
            SetTime::At(at) => at,
        };
        if let Some(time) = set.accessed {
            self.attributes.accessed = resolve(time);
        }
        if let Some(time) = set.modified {
            self.attributes.modified = resolve(time);
        }
        self.attributes.changed = set.changed.unwrap_or(now);
    }
}

impl State {
    /// An empty file system: a root directory of user 0 with mode 0755.
    pub(crate) fn new(now: Timestamp) -> State {
        let mut root = Node::new(Ino::ROOT, Kind::Directory, 0o755, now);
        root.attributes.links = 2;
        root.content = Content::Directory(Directory::new(Ino::ROOT));
        State { nodes: BTreeMap::from([(Ino::ROOT, Arc::new(root))]), last_ino: Ino::ROOT.0 }
    }

    pub(crate) fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).map(Arc::as_ref).ok_or(Error::Stale)
    }

    pub(crate) fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).map(Arc::make_mut).ok_or(Error::Stale)
    }

    /// An inode that an entry or a check before has shown to exist.
    pub(crate) fn known(&mut self, ino: Ino) -> &mut Node {
        Arc::make_mut(self.nodes.get_mut(&ino).expect("entries name inodes that exist"))
    }

    pub(crate) fn directory(&self, ino: Ino) -> Result<&Directory> {
        match &self.node(ino)?.content {
            Content::Directory(directory) => Ok(directory),
            _ => Err(Error::NotDirectory),
        }
    }

    /// A directory that can take entries: one that has been removed cannot.
    pub(crate) fn living_directory(&self, ino: Ino) -> Result<&Directory> {
        let directory = self.directory(ino)?;
        if self.node(ino)?.attributes.links == 0 {
            return Err(Error::NotFound);
        }
        Ok(directory)
    }

    /// The entries of a directory that a check before has shown to be one.
    pub(crate) fn entries_of(&mut self, ino: Ino) -> &mut Directory {
        match &mut self.known(ino).content {
            Content::Directory(directory) => directory,
            _ => unreachable!("inode {} was checked to be a directory", ino.0),
        }
    }

    /// Which inode `name` in `parent` is, if there is such an entry.
    pub(crate) fn find(&self, parent: Ino, name: Name<'_>) -> Result<Option<Ino>> {
        let entries = &self.directory(parent)?.entries;
        Ok(entries.get(name.as_bytes()).map(|entry| entry.ino))
    }

    /// As [`State::find`], for a name that must be there.
    pub(crate) fn entry(&self, parent: Ino, name: Name<'_>) -> Result<Ino> {
        self.find(parent, name)?.ok_or(Error::NotFound)
    }

    pub(crate) fn pin(&mut self, ino: Ino) -> Result<Attributes> {
        let node = self.node_mut(ino)?;
        node.pins += 1;
        Ok(node.report())
    }

    pub(crate) fn forget(&mut self, ino: Ino, count: u64) {
        if let Ok(node) = self.node_mut(ino) {
            node.pins = node.pins.saturating_sub(count);
            self.free_if_unused(ino);
        }
    }

    /// Frees an inode that has neither a name nor a pin.
    pub(crate) fn free_if_unused(&mut self, ino: Ino) {
        let node = self.known(ino);
        if node.attributes.links == 0 && node.pins == 0 {
            self.nodes.remove(&ino);
        }
    }

    /// What a crash or an unmount does to pins.
    pub(crate) fn forget_all(&mut self) {
        self.nodes.retain(|_, node| {
            if node.pins > 0 {
                Arc::make_mut(node).pins = 0;
            }
            node.attributes.links > 0
        });
    }

    pub(crate) fn set_attributes(
        &mut self,
        ino: Ino,
        set: &SetAttributes,
        now: Timestamp,
    ) -> Result<Attributes> {
        if let Some(size) = set.size {
            self.set_size(ino, size, now)?;
        }
        let node = self.node_mut(ino)?;
        if set.clear_privileges {
            node.clear_privileges();
        }
        if set.clear_setgid && !node.is_directory() {
            node.attributes.permissions &= !SETGID;
        }
        if set.size.is_some() || set.uid.is_some() || set.gid.is_some() {
            node.drop_capability();
        }
        if let Some(permissions) = set.permissions {
            node.attributes.permissions = permissions & PERMISSION_BITS;
        }
        node.attributes.uid = set.uid.unwrap_or(node.attributes.uid);
        node.attributes.gid = set.gid.unwrap_or(node.attributes.gid);
        node.set_times(set, now);
        Ok(node.report())
    }

    /// Adds an inode without a name, owned as what `caller` makes in `parent` is.
    pub(crate) fn add_node(
        &mut self,
        caller: Caller,
        parent: Ino,
        kind: Kind,
        permissions: u32,
        now: Timestamp,
    ) -> Ino {
        self.last_ino += 1;
        let ino = Ino(self.last_ino);
        let mut node = Node::new(ino, kind, permissions, now);
        node.attributes.uid = caller.uid;
        node.attributes.gid = caller.gid;
        let above = &self.known(parent).attributes;
        if above.permissions & SETGID != 0 {
            node.attributes.gid = above.gid;
            if kind == Kind::Directory {
                node.attributes.permissions |= SETGID;
            }
        }
        self.nodes.insert(ino, Arc::new(node));
        ino
    }

    pub(crate) fn space(&self) -> SpaceReport {
        let inodes_used = self.nodes.len() as u64;
        SpaceReport {
            total_bytes: TOTAL_BYTES,
            free_bytes: TOTAL_BYTES,
            inodes_used,
            inodes_free: INODES_MAX - inodes_used,
        }
    }
}
