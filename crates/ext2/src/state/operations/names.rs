//! Names: what is found, made, linked and removed in directories.

use crate::error::failed;
use crate::inode::{FLAG_EXTENTS, Inode, SHORT_TARGET_BYTES_MAX, Time};
use crate::state::directory::first_block;
use crate::state::rules::{FREED, Rule};
use crate::state::{State, Work, check_changeable, damaged, number, shown};
use marram_patch::{After, Content};
use marram_vfs::{
    Attributes, Caller, Error, Ino, Kind, Name, NewNode, Result, SYMLINK_BYTES_MAX, Timestamp,
};

/// Most names of an inode, and two more than a directory has subdirectories.
const LINKS_MAX: u32 = 32_000;
/// Set-group-id bit.
pub(crate) const SETGID: u32 = 0o2000;

/// What a new inode is.
struct New<'n> {
    kind: Kind,
    permissions: u32,
    /// What is taken off the permissions unless an access list of the directory counts.
    umask: u32,
    device: u32,
    target: &'n [u8],
}

/// Refuses what no file system could make.
fn checked(node: NewNode<'_>, block_bytes: usize) -> Result<New<'_>> {
    match node {
        NewNode::Node { kind: Kind::Directory | Kind::Symlink, .. } => {
            Err(Error::InvalidArgument("kind of node"))
        }
        NewNode::Node { kind, permissions, device } => {
            Ok(New { kind, permissions, umask: 0, device, target: &[] })
        }
        NewNode::Directory { permissions } => {
            Ok(New { kind: Kind::Directory, permissions, umask: 0, device: 0, target: &[] })
        }
        NewNode::Symlink { target: [] } => Err(Error::InvalidArgument("empty target")),
        NewNode::Symlink { target }
            if target.len() > SYMLINK_BYTES_MAX || target.len() >= block_bytes =>
        {
            Err(Error::NameTooLong)
        }
        NewNode::Symlink { target } => {
            Ok(New { kind: Kind::Symlink, permissions: 0o777, umask: 0, device: 0, target })
        }
    }
}

/// Refuses another name for, or another subdirectory in, what has all it can have.
pub(crate) fn check_links(inode: &Inode) -> Result<()> {
    if inode.links() >= LINKS_MAX { Err(Error::TooManyLinks) } else { Ok(()) }
}

/// Owner and permissions of what is made in a directory, if no access list says otherwise.
fn inherit(caller: Caller, new: &New<'_>, parent: &Inode) -> (Caller, u32) {
    let permissions = new.permissions & 0o7777;
    if parent.permissions() & SETGID == 0 {
        return (caller, permissions);
    }
    let setgid = if new.kind == Kind::Directory { SETGID } else { 0 };
    (Caller { gid: parent.gid(), ..caller }, permissions | setgid)
}

impl Work<'_> {
    /// Finds a name.
    pub(crate) fn lookup(&mut self, parent: Ino, name: Name<'_>) -> Result<u64> {
        let (directory, inode) = self.directory(parent)?;
        if inode.links() == 0 {
            return Err(Error::NotFound);
        }
        Ok(self.entry((directory, &inode), name)?.number)
    }

    /// Makes a new inode under a name.
    pub(crate) fn create(
        &mut self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        (node, umask): (NewNode<'_>, u32),
    ) -> Result<u64> {
        let (directory, mut above) = self.directory(parent)?;
        if above.links() > 0 && self.find((directory, &above), name)?.is_some() {
            return Err(Error::Exists);
        }
        self.living_directory(parent)?;
        let new = New { umask, ..checked(node, self.state.geometry.block_bytes)? };
        let is_directory = new.kind == Kind::Directory;
        if is_directory {
            check_links(&above)?;
        }
        let links = if is_directory { 2 } else { 1 };
        above.touch_content(self.now);
        let mut counted = Vec::new();
        if is_directory {
            // The entry `..` of a directory counts, whether the directory has a name or not.
            above.change_links(1);
            counted = self.store(directory, &above, &[])?;
        }
        let counted = self.by(Rule::DirectoryAfterParent, counted);
        let (made, after) = self.new_inode(caller, (directory, &above), &new, (links, counted))?;
        let after = self.by(Rule::EntryAfterInode, after);
        let mut named = self.add_entry((directory, &mut above), name, (made, new.kind), &after)?;
        self.store(directory, &above, &[])?;
        named.extend(self.recent_of(directory));
        match is_directory {
            true => self.written = Some((made, named)),
            false => self.note_leads(made, &named),
        }
        Ok(made)
    }

    /// Writes the inode that is to be made; returns it, and the steps before which nothing may
    /// name it.
    fn new_inode(
        &mut self,
        caller: Caller,
        (parent, above): (u64, &Inode),
        new: &New<'_>,
        (links, counted): (u32, Vec<After>),
    ) -> Result<(u64, Vec<After>)> {
        let (owner, mut permissions) = inherit(caller, new, above);
        let mut lists = Vec::new();
        if new.kind != Kind::Symlink {
            match self.inherited(above, permissions, new.kind == Kind::Directory)? {
                Some((left, own)) => (permissions, lists) = (left, own),
                None => permissions &= !new.umask,
            }
        }
        let is_directory = new.kind == Kind::Directory;
        let (made, bit) = self.take_inode(parent, is_directory)?;
        self.for_inode(made);
        let mut after = self.by(Rule::InodeAfterBit, bit);
        after.extend(counted);
        let old = self.raw_inode(made)?;
        let mode = new.kind.mode_bits() | permissions;
        let mut inode = Inode::new(&old, &self.state.geometry, mode, self.now);
        inode.set_uid(owner.uid);
        inode.set_gid(owner.gid);
        inode.set_links(links);
        match new.kind {
            Kind::Directory => {
                let block = self.new_directory(parent, made, &mut inode)?;
                after.extend(self.by(Rule::DirectoryAfterBlock, block));
            }
            Kind::Symlink => after.extend(self.new_target(made, &mut inode, new.target)?),
            Kind::CharDevice | Kind::BlockDevice => {
                let slot = usize::from(new.device > 0xffff);
                inode.set_pointer(slot, u64::from(new.device));
            }
            _ => (),
        }
        // All of it: what was there before may not be durable, and comes first.
        let (block, at) = self.state.place(made)?;
        let parts = [(at, &inode.bytes[..])];
        let whole = self.plan.put(&mut self.state.cache, block, &parts, &after).map_err(failed)?;
        after.push(whole);
        let mut steps = self.store_attributes((made, &mut inode), lists, &after)?;
        steps.push(whole);
        Ok((made, steps))
    }

    /// Gives a directory its first block.
    fn new_directory(&mut self, parent: u64, made: u64, inode: &mut Inode) -> Result<Vec<After>> {
        let (block_bytes, has_kinds) =
            (self.state.geometry.block_bytes, self.state.geometry.has_kinds);
        let bytes = first_block(made, parent, has_kinds, block_bytes);
        self.new_directory = Some(made);
        self.give_block(made, inode, (Content::Metadata, &bytes), block_bytes as u64)
    }

    /// Writes the target of a symbolic link.
    fn new_target(&mut self, made: u64, inode: &mut Inode, target: &[u8]) -> Result<Vec<After>> {
        if target.len() <= SHORT_TARGET_BYTES_MAX {
            inode.pointer_bytes_mut()[..target.len()].copy_from_slice(target);
            inode.set_size(target.len() as u64);
            return Ok(Vec::new());
        }
        let mut bytes = target.to_vec();
        bytes.resize(self.state.geometry.block_bytes, 0);
        self.give_block(made, inode, (Content::Data, &bytes), target.len() as u64)
    }

    /// Gives a new inode its only block; what the inode has to wait for.
    fn give_block(
        &mut self,
        made: u64,
        inode: &mut Inode,
        (content, bytes): (Content, &[u8]),
        size: u64,
    ) -> Result<Vec<After>> {
        let goal = self.goal(made, inode, 0)?;
        let (block, mut after) = self.take_block(goal)?;
        after.extend(self.plan.fresh(&self.state.cache, (block, content), bytes, &[]));
        inode.set_pointer(0, block);
        inode.add_blocks(1, self.state.geometry.block_bytes);
        inode.set_size(size);
        Ok(after)
    }

    /// The whiteout that a rename leaves, and the steps before which nothing may name it.
    pub(crate) fn new_whiteout(
        &mut self,
        caller: Caller,
        parent: (u64, &Inode),
    ) -> Result<(u64, Vec<After>)> {
        let new = New { kind: Kind::CharDevice, permissions: 0, umask: 0, device: 0, target: &[] };
        self.new_inode(caller, parent, &new, (1, Vec::new()))
    }

    /// Makes a file without a name.
    pub(crate) fn create_anonymous(
        &mut self,
        caller: Caller,
        parent: Ino,
        (permissions, umask): (u32, u32),
    ) -> Result<u64> {
        let (directory, above) = self.living_directory(parent)?;
        let new = New { kind: Kind::Regular, permissions, umask, device: 0, target: &[] };
        let (made, _) = self.new_inode(caller, (directory, &above), &new, (0, Vec::new()))?;
        let mut inode = self.raw_inode(made)?;
        self.add_orphan(made, &mut inode)?;
        self.store(made, &inode, &[])?;
        Ok(made)
    }

    /// Gives an inode another name.
    pub(crate) fn link(&mut self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<()> {
        let target = number(ino)?;
        let mut inode = self.inode(target)?;
        let (directory, mut above) = self.directory(parent)?;
        if above.links() > 0 && self.find((directory, &above), name)?.is_some() {
            return Err(Error::Exists);
        }
        self.living_directory(parent)?;
        if inode.is_directory() {
            return Err(Error::NotPermitted);
        }
        check_changeable(&inode)?;
        check_links(&inode)?;
        self.for_inode(target);
        let mut made = Vec::new();
        if inode.links() == 0 {
            self.drop_orphan(target, &mut inode)?;
            made.push(self.state.inode_bytes(target)?);
        }
        inode.set_links(inode.links() + 1);
        inode.set_time(Time::Changed, self.now);
        let counted = self.store(target, &inode, &made)?;
        let mut after = self.by(Rule::LinkAfterCount, counted);
        after.extend(made);
        after.extend(self.recent_of(target));
        let kind = inode.kind().ok_or_else(|| damaged(format!("inode {target}")))?;
        let mut named = self.add_entry((directory, &mut above), name, (target, kind), &after)?;
        named.extend(self.recent_of(directory));
        self.written = Some((target, named));
        above.touch_content(self.now);
        self.store(directory, &above, &[])?;
        Ok(())
    }

    /// What a name waits for before it is taken from an inode: that the other names of a file are
    /// there, and that nothing is left in a directory.
    pub(crate) fn before_loss(&mut self, (number, inode): (u64, &Inode)) -> Result<Vec<After>> {
        match inode.is_directory() {
            true => self.emptied(inode).map(|after| self.by(Rule::LossAfterEmptied, after)),
            false if inode.links() > 1 => {
                let names = self.state.names.get(&number);
                let names = names.into_iter().flatten().map(|patch| After::Patch(*patch));
                let after = names.chain(self.recent_of(number)).collect();
                Ok(self.by(Rule::LossAfterNames, after))
            }
            false => Ok(Vec::new()),
        }
    }

    /// What was written to a file, new names of it, or what leads to a new directory: as far as it
    /// may not be durable yet.
    pub(crate) fn recent_of(&self, number: u64) -> Vec<After> {
        let (recent, cleared) = (self.state.recent.get(&number), self.state.cleared.get(&number));
        let all = recent.into_iter().chain(cleared).flatten();
        all.map(|patch| After::Patch(*patch)).collect()
    }

    /// Removes a name of something that is not a directory; returns an inode that has none left.
    pub(crate) fn unlink(&mut self, parent: Ino, name: Name<'_>) -> Result<Option<u64>> {
        let (directory, mut above) = self.living_directory(parent)?;
        let found = self.entry((directory, &above), name)?;
        let inode = self.inode(found.number)?;
        if inode.is_directory() {
            return Err(Error::IsDirectory);
        }
        check_changeable(&inode)?;
        self.for_inode(found.number);
        let kept = self.before_loss((found.number, &inode))?;
        let gone = self.remove_entry((directory, name), &found, &kept)?;
        above.touch_content(self.now);
        self.store(directory, &above, &[])?;
        let gone = self.by(Rule::CountAfterAway, gone);
        self.lose_name(found.number, inode, &gone)
    }

    /// What follows when an inode that is no directory has lost a name, which is durable after
    /// `gone`.
    pub(crate) fn lose_name(
        &mut self,
        target: u64,
        mut inode: Inode,
        gone: &[After],
    ) -> Result<Option<u64>> {
        inode.set_links(inode.links().saturating_sub(1));
        inode.set_time(Time::Changed, self.now);
        if inode.links() == 0 {
            self.add_orphan(target, &mut inode)?;
        }
        if inode.links() > 0 {
            self.store(target, &inode, gone)?;
            return Ok(None);
        }
        let steps = self.store_of(FREED, (target, &inode), gone)?;
        self.nameless = Some((target, steps));
        Ok(Some(target))
    }

    /// What follows when a directory has lost its name; the steps before which its parent counts
    /// it still, for its entry `..`.
    pub(crate) fn lose_directory(
        &mut self,
        target: u64,
        mut inode: Inode,
        gone: &[After],
    ) -> Result<Vec<After>> {
        inode.set_links(0);
        inode.set_time(Time::Changed, self.now);
        self.add_orphan(target, &mut inode)?;
        let steps = self.store_of(FREED, (target, &inode), gone)?;
        self.nameless = Some((target, steps.clone()));
        Ok(steps)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&mut self, parent: Ino, name: Name<'_>) -> Result<Option<u64>> {
        let (directory, mut above) = self.living_directory(parent)?;
        let found = self.entry((directory, &above), name)?;
        let inode = self.inode(found.number)?;
        if !inode.is_directory() {
            return Err(Error::NotDirectory);
        }
        if !self.is_empty(found.number, &inode)? {
            return Err(Error::NotEmpty);
        }
        check_changeable(&inode)?;
        self.refuse_two_names(&inode)?;
        self.for_inode(found.number);
        let emptied = self.before_loss((found.number, &inode))?;
        let gone = self.remove_entry((directory, name), &found, &emptied)?;
        above.touch_content(self.now);
        self.store(directory, &above, &[])?;
        let gone = self.by(Rule::CountAfterAway, gone);
        let cleared = self.lose_directory(found.number, inode, &gone)?;
        let cleared = self.by(Rule::ParentAfterDirectory, cleared);
        above.change_links(-1);
        self.store(directory, &above, &cleared)?;
        Ok(Some(found.number))
    }

    /// Refuses to let go of a directory to which a crash has left two names: the search gives one
    /// of them back first.
    pub(crate) fn refuse_two_names(&self, directory: &Inode) -> Result<()> {
        let is_searched = self.state.census.is_some();
        if is_searched && directory.links() > 2 { Err(Error::Busy) } else { Ok(()) }
    }

    /// Whether `at` is `top` or lies below it.
    pub(crate) fn is_within(&mut self, at: u64, top: u64) -> Result<bool> {
        let mut at = at;
        for _ in 0..=self.state.geometry.inodes {
            if at == top {
                return Ok(true);
            }
            let inode = self.inode(at)?;
            if at == crate::state::ROOT || !inode.is_directory() || inode.links() == 0 {
                return Ok(false);
            }
            at = self.parent_of(at, &inode)?;
        }
        Err(damaged("directories lie in a circle"))
    }
}

impl State {
    /// The parent of a directory, pinned.
    pub(crate) fn parent(&mut self, ino: Ino) -> Result<Attributes> {
        let mut work = Work::new(self, Timestamp::default());
        let (number, inode) = work.directory(ino)?;
        if inode.links() == 0 {
            return Err(Error::NotFound);
        }
        let parent = work.parent_of(number, &inode)?;
        self.pinned(parent)
    }

    /// Takes back pins of an inode, which is gone if nothing else keeps it.
    pub(crate) fn forget(&mut self, ino: Ino, count: u64, now: Timestamp) {
        let Ok(number) = number(ino) else { return };
        let Some(pins) = self.pins.get_mut(&number) else { return };
        *pins = pins.saturating_sub(count);
        if *pins == 0 {
            self.drop_unpinned(number, now);
        }
    }

    /// Takes back all pins.
    pub(crate) fn forget_all(&mut self, now: Timestamp) {
        let pinned: Vec<u64> = self.pins.keys().copied().collect();
        pinned.into_iter().for_each(|number| self.drop_unpinned(number, now));
    }

    /// An inode whose last pin is gone. If it cannot be removed, it stays without a name.
    fn drop_unpinned(&mut self, number: u64, now: Timestamp) {
        let is_nameless = self.raw_inode(number).is_ok_and(|inode| inode.links() == 0);
        if is_nameless && self.damage.is_none() {
            // What fails otherwise is left to the next mount.
            if let Err(Error::Damaged(what)) = self.remove_inode(number, now) {
                self.note_damage(&what, now);
            }
        }
        self.pins.remove(&number);
    }

    /// Removes an inode that has no name, unless it is pinned.
    pub(crate) fn remove_unless_pinned(&mut self, number: u64, now: Timestamp) -> Result<()> {
        if self.pins.contains_key(&number) { Ok(()) } else { self.remove_inode(number, now) }
    }

    /// Frees an inode that has no name, and all that it has.
    fn remove_inode(&mut self, number: u64, now: Timestamp) -> Result<()> {
        self.directories.remove(&number);
        self.recent.remove(&number);
        self.cleared.remove(&number);
        self.names.remove(&number);
        self.touched.remove(&number);
        // It counts as there while it is taken apart.
        let nameless = self.nameless.get(&number).into_iter().flatten();
        let after: Vec<After> = nameless.map(|patch| After::Patch(*patch)).collect();
        self.cut_in_pieces(shown(number), 0, &after, now)?;
        let mut work = Work::new(self, now);
        let done = work.clear_inode(number, &after);
        work.end(done)?;
        self.nameless.remove(&number);
        Ok(())
    }
}

impl Work<'_> {
    /// Clears an inode without content.
    fn clear_inode(&mut self, number: u64, after: &[After]) -> Result<()> {
        let mut inode = self.raw_inode(number)?;
        let is_directory = inode.is_directory();
        let attributes = inode.attribute_block();
        inode.set_attribute_block(0);
        self.drop_orphan(number, &mut inode)?;
        inode.set_removed(self.now.seconds.clamp(1, i64::from(u32::MAX)) as u32);
        if attributes != 0 {
            inode.add_blocks(-1, self.state.geometry.block_bytes);
        }
        // What was cut off it is away before its number is another's.
        let after = [after, &[self.state.inode_bytes(number)?]].concat();
        let steps = self.store(number, &inode, &after)?;
        let steps = self.by(Rule::FreeAfterInode, steps);
        let freed = self.release_attributes(attributes, &steps)?;
        self.free(freed, Some((number, is_directory)), &steps)
    }

    /// Takes a reference of a block of extended attributes back; the block, if it was the last.
    pub(crate) fn release_attributes(&mut self, block: u64, after: &[After]) -> Result<Vec<u64>> {
        if block == 0 {
            return Ok(Vec::new());
        }
        self.state.check_block(block)?;
        let references = crate::bytes::u32_at(self.read(block)?, 4);
        if references <= 1 {
            return Ok(vec![block]);
        }
        self.write(block, 4, &(references - 1).to_le_bytes(), after)?;
        Ok(Vec::new())
    }

    /// Makes all of it happen if it could be planned; else nothing.
    pub(crate) fn end<R>(self, done: Result<R>) -> Result<R> {
        match done {
            Ok(done) => self.finish().map(|()| done),
            Err(error) => {
                self.give_up();
                Err(error)
            }
        }
    }
}

/// Reads through an operation that changes nothing.
pub(crate) fn reading<R>(
    state: &mut State,
    run: impl FnOnce(&mut Work<'_>) -> Result<R>,
) -> Result<R> {
    run(&mut Work::new(state, Timestamp::default()))
}

/// Bytes of the target of a symbolic link.
pub(crate) fn read_target(work: &mut Work<'_>, ino: Ino) -> Result<Vec<u8>> {
    let number = number(ino)?;
    let inode = work.inode(number)?;
    if inode.kind() != Some(Kind::Symlink) {
        return Err(Error::InvalidArgument("not a symbolic link"));
    }
    let len = inode.size() as usize;
    let block_bytes = work.state.geometry.block_bytes;
    // Space in use may be counted in clusters of blocks where there are extents.
    let is_ext4 = work.state.geometry.has_extents && inode.flags() & FLAG_EXTENTS == 0;
    if is_ext4 && len <= SHORT_TARGET_BYTES_MAX {
        return Ok(inode.pointer_bytes()[..len].to_vec());
    }
    let own = if inode.attribute_block() == 0 { 0 } else { block_bytes as u64 / 512 };
    if inode.sectors(block_bytes) == own && len <= SHORT_TARGET_BYTES_MAX + 1 {
        return Ok(inode.pointer_bytes()[..len].to_vec());
    }
    let block = work.map(&inode, 0)?;
    if len > block_bytes || block == 0 {
        return Err(damaged(format!("the target of inode {number} makes no sense")));
    }
    let mut bytes = work.state.cache.read_data(block).map_err(failed)?;
    bytes.truncate(len);
    Ok(bytes)
}
