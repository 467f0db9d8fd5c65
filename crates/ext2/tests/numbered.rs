//! An image seen with inode numbers that are never used again, as a model has them: each is the
//! image's own number together with its generation.

use marram_ext2::Ext2;
use marram_vfs::{
    AccessRules, Attributes, Caller, Capabilities, DirectoryEntry, Error, FileSystem, Ino, Name,
    NewNode, RenameMode, Result, SetAttributes, SpaceReport, SyncScope, WriteOptions, XattrMode,
};
use std::sync::Arc;

/// The wrapper.
pub(crate) struct Numbered(pub(crate) Arc<Ext2>);

fn outer(ino: Ino, generation: u64) -> Ino {
    if ino == Ino::ROOT { ino } else { Ino(ino.0 | generation << 32) }
}

fn seen(attributes: Attributes) -> Attributes {
    Attributes { ino: outer(attributes.ino, attributes.generation), generation: 1, ..attributes }
}

impl Numbered {
    /// The image's own number of what is still there.
    fn inner(&self, ino: Ino) -> Result<Ino> {
        if ino == Ino::ROOT {
            return Ok(ino);
        }
        let own = Ino(ino.0 & 0xffff_ffff);
        let known = self.0.attributes(own)?;
        if known.generation == ino.0 >> 32 { Ok(own) } else { Err(Error::Stale) }
    }
}

impl FileSystem for Numbered {
    fn space(&self) -> Result<SpaceReport> {
        self.0.space()
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.0.lookup(self.inner(parent)?, name).map(seen)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.0.parent(self.inner(ino)?).map(seen)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.0.pin(self.inner(ino)?).map(seen)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.0.attributes(self.inner(ino)?).map(seen)
    }

    fn forget(&self, ino: Ino, count: u64) {
        if let Ok(own) = self.inner(ino) {
            self.0.forget(own, count);
        }
    }

    fn forget_all(&self) {
        self.0.forget_all();
    }

    fn set_attributes(&self, caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.0.set_attributes(caller, self.inner(ino)?, set).map(seen)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.0.read_link(self.inner(ino)?)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.0.create(caller, self.inner(parent)?, name, node).map(seen)
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.0.create_anonymous(caller, self.inner(parent)?, permissions).map(seen)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.0.link(self.inner(ino)?, self.inner(parent)?, name).map(seen)
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.0.unlink(self.inner(parent)?, name)
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.0.remove_directory(self.inner(parent)?, name)
    }

    fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        // Whether the old name is there is asked first.
        let (from, to) = (self.inner(parent)?, self.inner(new_parent).unwrap_or(Ino(u64::MAX)));
        self.0.rename(caller, from, name, to, new_name, mode)
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.0.read(self.inner(ino)?, offset, len, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        self.0.write(self.inner(ino)?, offset, data, options)
    }

    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        self.0.append(self.inner(ino)?, data, options)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let own = self.inner(ino)?;
        // Generations are asked for first: the image has one lock.
        let mut generations = std::collections::HashMap::new();
        let mut known = Vec::new();
        self.0.read_directory(own, after, false, &mut |entry| {
            known.push(entry.ino);
            true
        })?;
        for ino in known {
            generations.insert(ino, self.0.attributes(ino)?.generation);
        }
        self.0.read_directory(own, after, with_attributes, &mut |entry| {
            let ino = outer(entry.ino, generations[&entry.ino]);
            let attributes = entry.attributes.clone().map(seen);
            visit(DirectoryEntry { ino, attributes, ..entry })
        })
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.0.xattr(self.inner(ino)?, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.0.set_xattr(self.inner(ino)?, name, value, mode)
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.0.list_xattrs(self.inner(ino)?)
    }

    fn access_rules(&self) -> AccessRules<'_> {
        self.0.access_rules()
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.0.remove_xattr(self.inner(ino)?, name)
    }

    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()> {
        self.0.sync(self.inner(ino)?, scope)
    }

    fn sync_all(&self) -> Result<()> {
        self.0.sync_all()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        self.0.capabilities()
    }
}
