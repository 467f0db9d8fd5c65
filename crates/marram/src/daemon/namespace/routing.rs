//! Each operation goes to the file system that it is about.

use super::control_directories::{ControlDirectories, Directory, HIDDEN_NAME};
use super::numbers::inner_of;
use super::past::is_list;
use super::{BASE_SLOT, CONTROL_SLOT, FIRST_MEMBER_SLOT, Files, Namespace, Place, join, slot_of};
use crate::engine::home::ControlDirectory;
use marram_vfs::{
    AccessRules, Allocate, Attributes, Caller, Capabilities, Copying, DirectoryEntry, Error,
    Extent, ExtentMap, FileLocks, FileSystem, GroupSync, HeldLock, Ino, LockRequest, Marked, Marks,
    Name, NewNode, OwnerUsage, QuietReads, Ranges, RenameMode, Result, SeekTarget, SetAttributes,
    SetMarks, Sharing, Shutdown, SpaceReport, Stopping, StoredAccessLists, SyncScope, UsageCounts,
    UsageOwner, WriteOptions, XattrMode,
};

impl Namespace {
    /// Whether `name` in `parent` is that of the hidden directory.
    fn is_hidden(&self, parent: Ino, name: Name<'_>) -> bool {
        name.as_bytes() == HIDDEN_NAME
            && match parent {
                Ino::ROOT => self.control.is_some(),
                _ => self.shows_past(parent) && !self.is_real(parent, name),
            }
    }

    /// The dataset, with the capabilities that it has.
    fn system(&self) -> &dyn FileSystem {
        &*self.base
    }

    pub(super) fn control(&self) -> Result<&ControlDirectories> {
        self.control.as_ref().ok_or(Error::Stale)
    }

    fn look_up_in(&self, directory: Directory, name: Name<'_>) -> Result<Attributes> {
        let control = self.control()?;
        control.note_use(directory);
        let name = name.as_bytes();
        let found = match directory {
            Directory::Hidden => ControlDirectories::find(name)?,
            Directory::Users => ControlDirectories::find_user(name)?,
            Directory::Past(of) => ControlDirectories::find_past(of, name)?,
            Directory::Listing(directory) => {
                return self.look_up_member(control, (directory, Ino::ROOT), name);
            }
            Directory::PastSnapshots(of) => {
                return self.look_up_member(control, (ControlDirectory::Snapshots, of), name);
            }
        };
        self.pin_control(found)
    }

    /// The attributes of a control directory that the kernel gets to know once more.
    pub(super) fn pin_control(&self, directory: Directory) -> Result<Attributes> {
        let found = self.control_attributes(directory)?;
        self.control()?.count_lookup(directory);
        Ok(found)
    }

    /// The attributes of a control directory: that of a past is there as long as its directory.
    fn control_attributes(&self, directory: Directory) -> Result<Attributes> {
        if let Directory::Past(of) | Directory::PastSnapshots(of) = directory {
            self.present(of)?;
        }
        Ok(self.control()?.attributes(directory))
    }

    fn look_up_member(
        &self,
        control: &ControlDirectories,
        (directory, of): (ControlDirectory, Ino),
        name: &[u8],
    ) -> Result<Attributes> {
        let name = str::from_utf8(name).map_err(|_| Error::NotFound)?;
        let place = Place { directory, name: name.to_owned(), of };
        let open = || {
            let opened = control.catalogue.open(directory, name)?;
            self.check_same_rules(&opened)?;
            Ok(opened)
        };
        let member = self.members.at(place, open, |opened| self.seen(opened, of))?;
        let root = member.files().pin(member.root())?;
        member.told(root, true)
    }

    fn parent_of(&self, ino: Ino) -> Result<Attributes> {
        if let Some(directory) = self.directory(ino) {
            return match (directory.above(), directory) {
                (Some(above), _) => self.pin_control(above),
                (None, Directory::Past(of)) => self.pin(of),
                (None, _) => self.pin(Ino::ROOT),
            };
        }
        let (files, inner) = self.at(ino)?;
        match &files {
            Files::Base(_) if ino == Ino::ROOT => self.pin(ino),
            Files::Member(member) if inner == member.root() => {
                self.pin_control(match member.place().of {
                    Ino::ROOT => Directory::Listing(member.place().directory),
                    of => Directory::PastSnapshots(of),
                })
            }
            _ => self.told(&files, files.parent(inner)?, true),
        }
    }

    /// Something has been made under a name: undoes it if it cannot be shown.
    fn made(
        &self,
        (files, parent): (&Files<'_>, Ino),
        name: Name<'_>,
        made: Attributes,
    ) -> Result<Attributes> {
        let is_directory = made.kind == marram_vfs::Kind::Directory;
        self.told(files, made, true).inspect_err(|_| {
            let _left_without_a_number = match is_directory {
                true => files.remove_directory(parent, name),
                false => files.unlink(parent, name),
            };
        })
    }

    /// As [`Namespace::at`], to take away a name.
    fn at_name(&self, parent: Ino, name: Name<'_>) -> Result<(Files<'_>, Ino)> {
        match self.is_hidden(parent, name) {
            true => Err(Error::NotPermitted),
            false => self.at(parent),
        }
    }

    /// Two inodes that must be of one file system.
    fn both(&self, one: Ino, other: Ino) -> Result<(Files<'_>, Ino, Ino)> {
        if slot_of(one) != slot_of(other) {
            return Err(Error::CrossDevice);
        }
        let (files, one) = self.at(one)?;
        let (_, other) = self.at(other)?;
        Ok((files, one, other))
    }

    /// Lists a directory whose numbers are not those of the mount, or that hides a name.
    fn list_shown(
        &self,
        (files, inner): (&Files<'_>, Ino),
        is_root: bool,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let hides = is_root && self.control.is_some();
        let (mut failure, mut hidden) = (None, None);
        let listed = files.read_directory(inner, after, with_attributes, &mut |entry| {
            if hides && entry.name == HIDDEN_NAME {
                hidden = entry.attributes.map(|found| found.ino);
                return true;
            }
            let entry = match self.shown_entry(files, entry) {
                Ok(entry) => entry,
                Err(error) => {
                    failure = Some(error);
                    return false;
                }
            };
            let pinned = entry.attributes.is_some();
            let accepted = visit(entry);
            if let (Files::Member(member), true) = (files, pinned && accepted) {
                member.count_pin();
            }
            accepted
        });
        if let Some(ino) = hidden {
            files.forget(ino, 1);
        }
        listed.and_then(|()| failure.map_or(Ok(()), Err))
    }

    /// An entry with the numbers that the kernel is to know; its pin is not counted yet.
    fn shown_entry<'a>(
        &self,
        files: &Files<'_>,
        entry: DirectoryEntry<'a>,
    ) -> Result<DirectoryEntry<'a>> {
        let ino = match files {
            Files::Base(_) => self.shown(entry.ino),
            Files::Member(member) => join(member.slot(), entry.ino)?,
        };
        let attributes = entry.attributes.map(|found| self.told(files, found, false));
        Ok(DirectoryEntry { ino, attributes: attributes.transpose()?, ..entry })
    }
}

impl FileSystem for Namespace {
    fn space(&self) -> Result<SpaceReport> {
        self.base.space()
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        if name.as_bytes() == HIDDEN_NAME && self.control.is_some() {
            if parent == Ino::ROOT {
                return self.pin_control(Directory::Hidden);
            }
            if self.shows_past(parent) {
                return self.look_up_past(parent, name);
            }
        }
        if let Some(directory) = self.directory(parent) {
            return self.look_up_in(directory, name);
        }
        let (files, parent) = self.at(parent)?;
        self.told(&files, files.lookup(parent, name)?, true)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.parent_of(ino)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        if let Some(directory) = self.directory(ino) {
            return self.pin_control(directory);
        }
        let (files, ino) = self.at(ino).map_err(|_| Error::Stale)?;
        self.told(&files, files.pin(ino)?, true)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        if let Some(directory) = self.directory(ino) {
            return self.control_attributes(directory);
        }
        let (files, ino) = self.at(ino)?;
        self.told(&files, files.attributes(ino)?, false)
    }

    fn forget(&self, ino: Ino, count: u64) {
        match slot_of(ino) {
            BASE_SLOT => self.base.forget(self.in_base(ino), count),
            CONTROL_SLOT..FIRST_MEMBER_SLOT => {
                self.control.iter().for_each(|control| control.forget(ino, count));
            }
            slot => self.members.forget(slot, inner_of(ino), count),
        }
    }

    fn forget_all(&self) {
        self.base.forget_all();
        self.control.iter().for_each(ControlDirectories::forget_all);
        self.members.clear();
    }

    fn set_attributes(&self, caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let (files, ino) = self.at(ino)?;
        self.told(&files, files.set_attributes(caller, ino, set)?, false)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let (files, ino) = self.at(ino)?;
        files.read_link(ino)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.create_masked(caller, parent, name, node, 0)
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.create_anonymous_masked(caller, parent, permissions, 0)
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        if self.is_hidden(parent, name) {
            return Err(Error::Exists);
        }
        let (files, ino, parent) = self.both(ino, parent)?;
        self.told(&files, files.link(ino, parent, name)?, true)
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let (files, parent) = self.at_name(parent, name)?;
        files.unlink(parent, name)
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        let (files, parent) = self.at_name(parent, name)?;
        files.remove_directory(parent, name)
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
        if self.is_hidden(parent, name) || self.is_hidden(new_parent, new_name) {
            return Err(Error::NotPermitted);
        }
        let (files, parent, new_parent) = self.both(parent, new_parent)?;
        files.rename(caller, parent, name, new_parent, new_name, mode)
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let (files, ino) = self.at(ino)?;
        files.read(ino, offset, len, out)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        let (files, ino) = self.at(ino)?;
        files.write(ino, offset, data, options)
    }

    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        let (files, ino) = self.at(ino)?;
        files.append(ino, data, options)
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        if let Some(directory) = self.directory(ino) {
            let names = self.names_in(directory)?;
            return self.control()?.visit(directory, &names, after, with_attributes, visit);
        }
        let (files, inner) = self.at(ino)?;
        match &files {
            Files::Base(base) if ino != Ino::ROOT && self.root == Ino::ROOT => {
                base.read_directory(inner, after, with_attributes, visit)
            }
            _ => {
                let is_root = ino == Ino::ROOT;
                self.list_shown((&files, inner), is_root, after, with_attributes, visit)
            }
        }
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if self.directory(ino).is_some() {
            return Err(Error::NoAttribute);
        }
        let (files, ino) = self.at(ino)?;
        if matches!(&files, Files::Member(member) if member.hides_list(ino)) && is_list(name) {
            return Err(Error::NoAttribute);
        }
        files.xattr(ino, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let (files, ino) = self.at(ino)?;
        files.set_xattr(ino, name, value, mode)
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        if self.directory(ino).is_some() {
            return Ok(Vec::new());
        }
        let (files, ino) = self.at(ino)?;
        files.list_xattrs(ino)
    }

    fn access_rules(&self) -> AccessRules<'_> {
        match self.base.access_rules() {
            AccessRules::Own(_) => AccessRules::Own(self),
            kernels => kernels,
        }
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let (files, ino) = self.at(ino)?;
        files.remove_xattr(ino, name)
    }

    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()> {
        if self.directory(ino).is_some() {
            return Ok(());
        }
        let (files, ino) = self.at(ino)?;
        files.sync(ino, scope)
    }

    fn sync_all(&self) -> Result<()> {
        for member in self.members.all() {
            member.files().sync_all()?;
        }
        self.base.sync_all()
    }

    fn is_shared(&self) -> bool {
        self.base.is_shared()
    }

    fn has_company(&self) -> bool {
        self.base.has_company()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let below = self.base.capabilities();
        Capabilities {
            ranges: below.ranges.and(Some(self)),
            copying: below.copying.and(Some(self)),
            sharing: below.sharing.and(Some(self)),
            extents: below.extents.and(Some(self)),
            trimming: below.trimming,
            label: below.label,
            usage: below.usage.and(Some(self)),
            marks: below.marks.and(Some(self)),
            access_lists: below.access_lists.and(Some(self)),
            group_sync: below.group_sync.and(Some(self)),
            patchgroups: None,
            stopping: below.stopping.and(Some(self)),
            quiet_reads: below.quiet_reads.and(Some(self)),
            locks: below.locks.and(Some(self)),
            folds_names: below.folds_names,
        }
    }
}

impl Ranges for Namespace {
    fn allocate(&self, ino: Ino, how: Allocate, offset: u64, len: u64) -> Result<()> {
        let (files, ino) = self.at(ino)?;
        files.system().allocate(ino, how, offset, len)
    }

    fn seek(&self, ino: Ino, offset: u64, target: SeekTarget) -> Result<u64> {
        let (files, ino) = self.at(ino)?;
        files.system().seek(ino, offset, target)
    }
}

impl Copying for Namespace {
    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        if slot_of(from) == slot_of(to) {
            let (files, from, to) = self.both(from, to)?;
            return files.system().copy_range(from, from_offset, to, to_offset, len);
        }
        // Datasets of one pool share blocks as files of one dataset do.
        let ((source, from), (target, to)) = (self.at(from)?, self.at(to)?);
        target.exchange().ok_or(Error::CrossDevice)?.copy_range_from(
            &*source,
            (from, from_offset),
            (to, to_offset),
            len,
        )
    }
}

impl Sharing for Namespace {
    fn share_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        if slot_of(from) == slot_of(to) {
            let (files, from, to) = self.both(from, to)?;
            return files.system().share_range(from, from_offset, to, to_offset, len);
        }
        let ((source, from), (target, to)) = (self.at(from)?, self.at(to)?);
        target.exchange().ok_or(Error::CrossDevice)?.share_range_from(
            &*source,
            (from, from_offset),
            (to, to_offset),
            len,
        )
    }
}

impl ExtentMap for Namespace {
    fn extents(&self, ino: Ino, offset: u64, max: usize) -> Result<Vec<Extent>> {
        let (files, ino) = self.at(ino)?;
        files.system().extents(ino, offset, max)
    }
}

impl UsageCounts for Namespace {
    fn usage(&self, ino: Ino, owner: UsageOwner) -> Result<OwnerUsage> {
        let (files, ino) = self.at(ino)?;
        files.system().usage(ino, owner)
    }
}

impl Marked for Namespace {
    fn marks(&self, ino: Ino) -> Result<Marks> {
        if self.directory(ino).is_some() {
            return Ok(Marks::default());
        }
        let (files, ino) = self.at(ino)?;
        files.system().marks(ino)
    }

    fn set_marks(&self, ino: Ino, set: SetMarks) -> Result<()> {
        let (files, ino) = self.at(ino)?;
        files.system().set_marks(ino, set)
    }
}

impl StoredAccessLists for Namespace {
    fn create_masked(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
        umask: u32,
    ) -> Result<Attributes> {
        if self.is_hidden(parent, name) {
            return Err(Error::Exists);
        }
        let (files, parent) = self.at(parent)?;
        let made = files.system().create_masked(caller, parent, name, node, umask)?;
        self.made((&files, parent), name, made)
    }

    fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes> {
        let (files, parent) = self.at(parent)?;
        let made = files.system().create_anonymous_masked(caller, parent, permissions, umask)?;
        self.told(&files, made, true)
    }

    fn set_access_list(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        clear_setgid: bool,
    ) -> Result<()> {
        let (files, ino) = self.at(ino)?;
        files.system().set_access_list(ino, name, value, clear_setgid)
    }
}

impl GroupSync for Namespace {
    fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
        let is_of_base = |(ino, _): &(Ino, SyncScope)| slot_of(*ino) == BASE_SLOT;
        if inodes.iter().all(is_of_base) && self.root == Ino::ROOT {
            return self.system().sync_many(inodes);
        }
        inodes.iter().map(|(ino, scope)| self.sync(*ino, *scope)).collect()
    }
}

impl Stopping for Namespace {
    fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.system().shutdown(how)?;
        for member in self.members.all() {
            (&**member.files() as &dyn FileSystem).shutdown(Shutdown::Now)?;
        }
        Ok(())
    }
}

impl QuietReads for Namespace {
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let (files, ino) = self.at(ino)?;
        files.system().read_unnoticed(ino, offset, len, out)
    }
}

impl FileLocks for Namespace {
    fn set_lock(&self, ino: Ino, lock: &LockRequest) -> Result<Option<HeldLock>> {
        let (files, ino) = self.at(ino)?;
        files.system().set_lock(ino, lock)
    }

    fn find_lock(&self, ino: Ino, lock: &LockRequest) -> Result<Option<HeldLock>> {
        let (files, ino) = self.at(ino)?;
        files.system().find_lock(ino, lock)
    }
}
