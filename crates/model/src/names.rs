//! Names: what is found, made, linked, removed and moved in directories.
//!
//! Each operation checks everything first and changes the state only when nothing can fail any
//! more. The order of the checks is Linux's, so that errors agree with other file systems.

use crate::sparse::SparseBytes;
use crate::state::{Content, Directory, State};
use marram_vfs::{
    Attributes, Caller, DirectoryEntry, Error, Ino, Kind, LINKS_MAX, Name, NewNode, RenameMode,
    Result, SYMLINK_BYTES_MAX, Timestamp,
};

/// From where to where a name moves.
#[derive(Clone, Copy)]
pub(crate) struct Move<'a> {
    pub(crate) parent: Ino,
    pub(crate) name: Name<'a>,
    pub(crate) new_parent: Ino,
    pub(crate) new_name: Name<'a>,
}

/// Refuses what no file system could make.
fn check_new(node: NewNode<'_>) -> Result<()> {
    match node {
        NewNode::Node { kind: Kind::Directory | Kind::Symlink, .. } => {
            Err(Error::InvalidArgument("kind of node"))
        }
        NewNode::Symlink { target: [] } => Err(Error::InvalidArgument("empty target")),
        NewNode::Symlink { target } if target.len() > SYMLINK_BYTES_MAX => Err(Error::NameTooLong),
        _ => Ok(()),
    }
}

impl State {
    pub(crate) fn lookup(&mut self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let ino = self.entry(parent, name)?;
        self.pin(ino)
    }

    pub(crate) fn parent(&mut self, ino: Ino) -> Result<Attributes> {
        let parent = self.living_directory(ino)?.parent;
        self.pin(parent)
    }

    pub(crate) fn create(
        &mut self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        new: NewNode<'_>,
        now: Timestamp,
    ) -> Result<Attributes> {
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        self.living_directory(parent)?;
        check_new(new)?;
        if matches!(new, NewNode::Directory { .. }) {
            self.check_links(parent)?;
        }
        let ino = self.add_new(caller, parent, new, now);
        self.attach(parent, name, ino, now);
        self.pin(ino)
    }

    pub(crate) fn create_anonymous(
        &mut self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        now: Timestamp,
    ) -> Result<Attributes> {
        self.living_directory(parent)?;
        let ino = self.add_node(caller, parent, Kind::Regular, permissions, now);
        self.known(ino).content = Content::Bytes(SparseBytes::default());
        self.pin(ino)
    }

    pub(crate) fn link(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: Name<'_>,
        now: Timestamp,
    ) -> Result<Attributes> {
        let is_directory = self.node(ino)?.is_directory();
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        self.living_directory(parent)?;
        if is_directory {
            return Err(Error::NotPermitted);
        }
        self.check_links(ino)?;
        self.attach(parent, name, ino, now);
        self.known(ino).attributes.changed = now;
        self.pin(ino)
    }

    pub(crate) fn unlink(&mut self, parent: Ino, name: Name<'_>, now: Timestamp) -> Result<()> {
        let ino = self.entry(parent, name)?;
        if self.node(ino)?.is_directory() {
            return Err(Error::IsDirectory);
        }
        self.detach(parent, name, now);
        self.drop_name(ino, now);
        Ok(())
    }

    pub(crate) fn remove_directory(
        &mut self,
        parent: Ino,
        name: Name<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let ino = self.entry(parent, name)?;
        if !self.directory(ino)?.entries.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.detach(parent, name, now);
        self.drop_name(ino, now);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        caller: Caller,
        way: Move<'_>,
        mode: RenameMode,
        now: Timestamp,
    ) -> Result<()> {
        let source = self.entry(way.parent, way.name)?;
        let target = self.find(way.new_parent, way.new_name)?;
        self.living_directory(way.new_parent)?;
        match (mode, target) {
            (mode, Some(_)) if mode.refuses_to_replace() => return Err(Error::Exists),
            (RenameMode::Exchange, None) => return Err(Error::NotFound),
            _ => (),
        }
        if target == Some(source) {
            return Ok(());
        }
        if self.is_within(way.new_parent, source) {
            return Err(Error::InvalidArgument("a directory cannot go into itself"));
        }
        let holds_source = target.is_some_and(|target| self.is_within(way.parent, target));
        match (mode, target) {
            (RenameMode::Exchange, Some(_)) if holds_source => {
                Err(Error::InvalidArgument("a directory cannot go into itself"))
            }
            (RenameMode::Exchange, Some(target)) => self.exchange(way, source, target, now),
            (_, Some(_)) if holds_source => Err(Error::NotEmpty),
            _ => {
                self.replace(way, source, target, now)?;
                if mode.leaves_whiteout() {
                    self.leave_whiteout(caller, way, now);
                }
                Ok(())
            }
        }
    }

    /// Visits entries in order of their cookies; see the trait.
    pub(crate) fn read_directory(
        &mut self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let entries = &self.directory(ino)?.entries;
        let mut rest: Vec<_> = entries
            .iter()
            .filter(|(_, entry)| entry.cookie > after)
            .map(|(name, entry)| (entry.cookie, name.clone(), entry.ino))
            .collect();
        rest.sort();
        for (cookie, name, ino) in rest {
            let node = self.known(ino);
            let accepted = visit(DirectoryEntry {
                name: &name,
                ino,
                kind: node.attributes.kind,
                cookie,
                attributes: with_attributes.then(|| node.report()),
            });
            if !accepted {
                break;
            }
            node.pins += u64::from(with_attributes);
        }
        Ok(())
    }

    fn add_new(&mut self, caller: Caller, parent: Ino, new: NewNode<'_>, now: Timestamp) -> Ino {
        let (kind, permissions) = match new {
            NewNode::Node { kind, permissions, .. } => (kind, permissions),
            NewNode::Directory { permissions } => (Kind::Directory, permissions),
            NewNode::Symlink { .. } => (Kind::Symlink, 0o777),
        };
        let ino = self.add_node(caller, parent, kind, permissions, now);
        let node = self.known(ino);
        match new {
            NewNode::Directory { .. } => {
                node.attributes.links = 1;
                node.content = Content::Directory(Directory::new(parent));
            }
            NewNode::Symlink { target } => {
                node.attributes.size = target.len() as u64;
                node.content = Content::Target(target.to_vec());
            }
            NewNode::Node { device, .. } => {
                if kind == Kind::Regular {
                    node.content = Content::Bytes(SparseBytes::default());
                }
                if matches!(kind, Kind::CharDevice | Kind::BlockDevice) {
                    node.attributes.device = device;
                }
            }
        }
        ino
    }

    /// Refuses another name for, or another subdirectory in, `ino` when it has all it can have.
    fn check_links(&self, ino: Ino) -> Result<()> {
        if self.node(ino)?.attributes.links >= LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        Ok(())
    }

    /// Whether `ino` is `top` or lies below it.
    fn is_within(&self, ino: Ino, top: Ino) -> bool {
        let mut at = ino;
        loop {
            if at == top {
                return true;
            }
            match self.directory(at) {
                Ok(directory) if directory.parent != at => at = directory.parent,
                _ => return false,
            }
        }
    }

    /// Adds a name, and what it means for link counts and times.
    pub(crate) fn attach(&mut self, parent: Ino, name: Name<'_>, ino: Ino, now: Timestamp) {
        self.entries_of(parent).set(name, ino);
        self.known(parent).touch_content(now);
        let node = self.known(ino);
        node.attributes.links += 1;
        if let Content::Directory(directory) = &mut node.content {
            directory.parent = parent;
            self.known(parent).attributes.links += 1;
        }
    }

    /// Takes a name away; the inode stays, with one link less.
    pub(crate) fn detach(&mut self, parent: Ino, name: Name<'_>, now: Timestamp) {
        let directory = self.entries_of(parent);
        let entry = directory.entries.remove(name.as_bytes()).expect("the name was found before");
        self.known(parent).touch_content(now);
        self.lose_link(parent, entry.ino);
    }

    /// The inode `ino` loses its name in `parent`.
    fn lose_link(&mut self, parent: Ino, ino: Ino) {
        let node = self.known(ino);
        node.attributes.links -= 1;
        if node.is_directory() {
            self.known(parent).attributes.links -= 1;
        }
    }

    /// What follows when an inode has lost a name for good.
    fn drop_name(&mut self, ino: Ino, now: Timestamp) {
        let node = self.known(ino);
        node.attributes.changed = now;
        if node.is_directory() {
            node.attributes.links = 0;
        }
        self.free_if_unused(ino);
    }

    fn replace(
        &mut self,
        way: Move<'_>,
        source: Ino,
        target: Option<Ino>,
        now: Timestamp,
    ) -> Result<()> {
        let moves_directory = self.node(source)?.is_directory();
        let mut replaces_directory = false;
        if let Some(target) = target {
            replaces_directory = self.node(target)?.is_directory();
            match (moves_directory, replaces_directory) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if !self.directory(target)?.entries.is_empty() => {
                    return Err(Error::NotEmpty);
                }
                _ => (),
            }
        }
        if moves_directory && !replaces_directory && way.parent != way.new_parent {
            self.check_links(way.new_parent)?;
        }
        if let Some(target) = target {
            self.lose_link(way.new_parent, target);
            self.drop_name(target, now);
        }
        self.detach(way.parent, way.name, now);
        self.attach(way.new_parent, way.new_name, source, now);
        self.known(source).attributes.changed = now;
        Ok(())
    }

    fn exchange(&mut self, way: Move<'_>, source: Ino, target: Ino, now: Timestamp) -> Result<()> {
        let moves_directory = self.node(source)?.is_directory();
        let brings_directory = self.node(target)?.is_directory();
        if way.parent != way.new_parent {
            match (moves_directory, brings_directory) {
                (true, false) => self.check_links(way.new_parent)?,
                (false, true) => self.check_links(way.parent)?,
                _ => (),
            }
        }
        self.lose_link(way.parent, source);
        self.lose_link(way.new_parent, target);
        self.attach(way.parent, way.name, target, now);
        self.attach(way.new_parent, way.new_name, source, now);
        self.known(source).attributes.changed = now;
        self.known(target).attributes.changed = now;
        Ok(())
    }

    fn leave_whiteout(&mut self, caller: Caller, way: Move<'_>, now: Timestamp) {
        let ino = self.add_node(caller, way.parent, Kind::CharDevice, 0, now);
        self.attach(way.parent, way.name, ino, now);
    }
}
