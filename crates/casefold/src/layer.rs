//! The layer: what has a name in it is led to the name that it stands for, all else goes through.

use crate::index::Indices;
use marram_locks::{Mutex, Rank};
use marram_vfs::{
    AccessRules, Attributes, Caller, Capabilities, DirectoryEntry, Error, FileSystem, Ino, Name,
    NewNode, Patchgroup, Patchgroups, RenameMode, Result, SetAttributes, SpaceReport,
    StoredAccessLists, SyncScope, WriteOptions, XattrMode,
};
use std::sync::Arc;

/// The place of the lock of names: before all of the file system below.
const NAMES: Rank = Rank { order: 0, name: "folded names" };

/// A file system in which names are the same when only their case differs.
pub struct Folding {
    files: Arc<dyn FileSystem>,
    /// All handles of the file system share it.
    names: Arc<Mutex<Indices>>,
}

/// What a name of a directory leads to.
struct Entry {
    /// As it is stored.
    name: Vec<u8>,
    ino: Ino,
}

impl Entry {
    fn name(&self) -> Result<Name<'_>> {
        Ok(Name::new(&self.name)?)
    }
}

impl Folding {
    /// The names of a file system without case. From now on all names are made through it, unless
    /// the file system says that it is shared. It may take names away by itself.
    pub fn new(files: Arc<dyn FileSystem>) -> Folding {
        Folding { files, names: Arc::new(Mutex::new(NAMES, Indices::default())) }
    }

    /// What is stored under a name or another spelling of it, pinned; nothing if there is none.
    fn pinned(
        &self,
        names: &mut Indices,
        parent: Ino,
        name: Name<'_>,
    ) -> Result<Option<(Vec<u8>, Attributes)>> {
        match self.files.lookup(parent, name) {
            Ok(found) => return Ok(Some((name.as_bytes().to_vec(), found))),
            Err(Error::NotFound) => (),
            Err(error) => return Err(error),
        }
        let Some(stored) = names.find(&*self.files, parent, name)? else { return Ok(None) };
        match self.files.lookup(parent, Name::new(&stored)?) {
            // The file system has taken it away by itself, or an operation that failed later.
            Err(Error::NotFound) => names.forget(parent),
            found => return Ok(Some((stored, found?))),
        }
        let Some(stored) = names.find(&*self.files, parent, name)? else { return Ok(None) };
        let found = self.files.lookup(parent, Name::new(&stored)?)?;
        Ok(Some((stored, found)))
    }

    /// The same, not pinned.
    fn entry(&self, names: &mut Indices, parent: Ino, name: Name<'_>) -> Result<Option<Entry>> {
        let Some((name, found)) = self.pinned(names, parent, name)? else { return Ok(None) };
        self.files.forget(found.ino, 1);
        Ok(Some(Entry { name, ino: found.ino }))
    }

    /// Makes an entry by `make`, unless some spelling of its name is taken.
    fn make(
        &self,
        parent: Ino,
        name: Name<'_>,
        make: impl FnOnce() -> Result<Attributes>,
    ) -> Result<Attributes> {
        let mut names = self.names.lock();
        if self.entry(&mut names, parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        let made = make()?;
        names.insert(parent, name.as_bytes());
        // A directory of before may have had this number.
        names.forget(made.ino);
        Ok(made)
    }

    /// Removes an entry by `remove`, which gets its name as it is stored.
    fn remove(
        &self,
        parent: Ino,
        name: Name<'_>,
        remove: impl FnOnce(Name<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut names = self.names.lock();
        let entry = self.entry(&mut names, parent, name)?.ok_or(Error::NotFound)?;
        remove(entry.name()?)?;
        names.remove(parent, &entry.name);
        names.forget(entry.ino);
        Ok(())
    }

    /// Gives an entry that has replaced another one the spelling of the rename. Where that cannot
    /// be done the name is spelled as it was.
    fn spell(&self, caller: Caller, (parent, stored, name): (Ino, Name<'_>, Name<'_>)) -> bool {
        let mode = RenameMode::NoReplace;
        stored != name && self.files.rename(caller, parent, stored, parent, name, mode).is_ok()
    }
}

impl FileSystem for Folding {
    fn space(&self) -> Result<SpaceReport> {
        self.files.space()
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let found = self.pinned(&mut self.names.lock(), parent, name)?;
        found.map(|(_, attributes)| attributes).ok_or(Error::NotFound)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.files.parent(ino)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.files.pin(ino)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.files.attributes(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.files.forget(ino, count);
    }

    fn forget_all(&self) {
        self.files.forget_all();
    }

    fn set_attributes(&self, caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        self.files.set_attributes(caller, ino, set)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        self.files.read_link(ino)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.make(parent, name, || self.files.create(caller, parent, name, node))
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.files.create_anonymous(caller, parent, permissions)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let mut names = self.names.lock();
        if self.entry(&mut names, parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        let linked = self.files.link(ino, parent, name)?;
        names.insert(parent, name.as_bytes());
        Ok(linked)
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.remove(parent, name, |stored| self.files.unlink(parent, stored))
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.remove(parent, name, |stored| self.files.remove_directory(parent, stored))
    }

    /// A rename to another spelling of the same name changes the spelling. One over another name
    /// brings its own spelling: it is replaced first, then spelled.
    fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let mut names = self.names.lock();
        let from = self.entry(&mut names, parent, name)?.ok_or(Error::NotFound)?;
        let known = self.entry(&mut names, new_parent, new_name)?;
        let is_same = |to: &Entry| parent == new_parent && to.name == from.name;
        let (to, is_respelled) = match &known {
            Some(to) if is_same(to) && new_name.as_bytes() != to.name => (new_name, true),
            Some(to) => (to.name()?, false),
            None => (new_name, false),
        };
        if is_respelled && mode == RenameMode::Exchange {
            return Ok(());
        }
        if is_respelled && mode.leaves_whiteout() {
            return Err(Error::InvalidArgument("the whiteout would have the same name"));
        }
        self.files.rename(caller, parent, from.name()?, new_parent, to, mode)?;
        match known {
            _ if mode == RenameMode::Exchange => return Ok(()),
            // POSIX: two names of one file, and nothing happens.
            Some(to) if !is_respelled && to.ino == from.ino => return Ok(()),
            Some(to) if !is_respelled => {
                names.forget(to.ino);
                if self.spell(caller, (new_parent, to.name()?, new_name)) {
                    names.remove(new_parent, &to.name);
                    names.insert(new_parent, new_name.as_bytes());
                }
            }
            _ => names.insert(new_parent, to.as_bytes()),
        }
        if !mode.leaves_whiteout() {
            names.remove(parent, &from.name);
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.files.read(ino, offset, len, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        self.files.write(ino, offset, data, options)
    }

    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        self.files.append(ino, data, options)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        self.files.read_directory(ino, after, with_attributes, visit)
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.files.xattr(ino, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.files.set_xattr(ino, name, value, mode)
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.files.list_xattrs(ino)
    }

    fn access_rules(&self) -> AccessRules<'_> {
        self.files.access_rules()
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.files.remove_xattr(ino, name)
    }

    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()> {
        self.files.sync(ino, scope)
    }

    fn sync_all(&self) -> Result<()> {
        self.files.sync_all()
    }

    fn is_shared(&self) -> bool {
        self.files.is_shared()
    }

    fn has_company(&self) -> bool {
        self.files.has_company()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let below = self.files.capabilities();
        let (lists, groups): (&dyn StoredAccessLists, &dyn Patchgroups) = (self, self);
        Capabilities {
            access_lists: below.access_lists.and(Some(lists)),
            patchgroups: below.patchgroups.and(Some(groups)),
            folds_names: true,
            ..below
        }
    }
}

impl Folding {
    fn lists_below(&self) -> Result<&dyn StoredAccessLists> {
        self.files.capabilities().access_lists.ok_or(Error::NotSupported)
    }

    fn groups_below(&self) -> Result<&dyn Patchgroups> {
        self.files.capabilities().patchgroups.ok_or(Error::NotSupported)
    }
}

impl StoredAccessLists for Folding {
    fn create_masked(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
        umask: u32,
    ) -> Result<Attributes> {
        let lists = self.lists_below()?;
        self.make(parent, name, || lists.create_masked(caller, parent, name, node, umask))
    }

    fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes> {
        self.lists_below()?.create_anonymous_masked(caller, parent, permissions, umask)
    }

    fn set_access_list(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        clear_setgid: bool,
    ) -> Result<()> {
        self.lists_below()?.set_access_list(ino, name, value, clear_setgid)
    }
}

impl Patchgroups for Folding {
    fn make_group(&self) -> Result<Patchgroup> {
        self.groups_below()?.make_group()
    }

    fn depend(&self, later: Patchgroup, earlier: Patchgroup) -> Result<()> {
        self.groups_below()?.depend(later, earlier)
    }

    fn engaged(&self, groups: &[Patchgroup]) -> Result<Arc<dyn FileSystem>> {
        let files = self.groups_below()?.engaged(groups)?;
        Ok(Arc::new(Folding { files, names: Arc::clone(&self.names) }))
    }

    fn sync_group(&self, group: Patchgroup) -> Result<()> {
        self.groups_below()?.sync_group(group)
    }

    fn close_group(&self, group: Patchgroup) -> Result<()> {
        self.groups_below()?.close_group(group)
    }
}
