//! Names: what is found, made, linked and removed in directories.

use crate::layout::{Intent, field};
use crate::state::commit::Plan;
use crate::state::directory::{Place, parse_page};
use crate::state::inode::{NewInode, inherit};
use crate::state::{Basics, Node, State};
use marram_vfs::{
    Attributes, Caller, DirectoryEntry, Error, Ino, Kind, LINKS_MAX, Name, NewNode, Result,
    SYMLINK_BYTES_MAX, Timestamp,
};

/// Entries of a page are found by cookies that count from its first one.
const COOKIES_IN_PAGE: u64 = crate::layout::PAGE / 8;

/// Most directories above another.
const DEPTH_MAX: u32 = 1 << 24;

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

/// Refuses another name for, or another subdirectory in, what has all it can have.
pub(crate) fn check_links(basics: &Basics) -> Result<()> {
    if basics.links >= LINKS_MAX { Err(Error::TooManyLinks) } else { Ok(()) }
}

impl State {
    /// Finds a name, and pins what it leads to.
    pub(crate) fn lookup(&mut self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let (directory, _) = self.directory(parent)?;
        let found = self.entry(directory, name)?;
        self.pinned(Ino(found.ino))
    }

    /// The parent of a directory, pinned.
    pub(crate) fn parent(&mut self, ino: Ino) -> Result<Attributes> {
        let (_, basics) = self.living_directory(ino)?;
        self.pinned(Ino(basics.size))
    }

    /// Makes a new inode under a name, and pins it.
    pub(crate) fn create(
        &mut self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        new: NewNode<'_>,
        now: Timestamp,
    ) -> Result<Attributes> {
        let (directory, above) = self.directory(parent)?;
        if self.find(directory, name)?.is_some() {
            return Err(Error::Exists);
        }
        self.living_directory(parent)?;
        check_new(new)?;
        let is_directory = matches!(new, NewNode::Directory { .. });
        if is_directory {
            check_links(&above)?;
        }
        let directory = self.own(parent)?;
        let made = self.new_inode(caller, (directory, &above), new, now)?;
        let node = made.0;
        let mut plan = Plan::default();
        let place = self.plan_entry(directory, name, (node.ino, made.1), &mut plan)?;
        if is_directory {
            let at = self.address(directory, place)?;
            self.intend(Intent::Made, above.links + 1, at)?;
        }
        if is_directory {
            self.commit(&plan)?
        } else {
            self.commit_with_times(&plan)?
        }
        self.note_inode();
        self.note_entry(directory, name, place)?;
        if is_directory {
            self.dataset.directories.entry(node.ino).or_default();
            self.set_links(directory, above.links + 1)?;
        }
        self.stamp_content(directory, now)?;
        if is_directory {
            self.close_intent()?;
        }
        self.pinned(Ino(node.ino))
    }

    /// Writes the inode that is to be made.
    fn new_inode(
        &mut self,
        caller: Caller,
        (parent, above): (Node, &Basics),
        new: NewNode<'_>,
        now: Timestamp,
    ) -> Result<(Node, Kind)> {
        let (kind, permissions, device, target) = match new {
            NewNode::Node { kind, permissions, device } => (kind, permissions, device, &[][..]),
            NewNode::Directory { permissions } => (Kind::Directory, permissions, 0, &[][..]),
            NewNode::Symlink { target } => (Kind::Symlink, 0o777, 0, target),
        };
        let gid = (self.memory.word(parent.field(field::OWNER))? >> 32) as u32;
        let (owner, permissions) = inherit(caller, kind, permissions, (above, gid));
        let links = if kind == Kind::Directory { 2 } else { 1 };
        let new = NewInode { kind, permissions, owner, links, parent: parent.ino, device, target };
        Ok((self.make_inode(&new, now)?, kind))
    }

    /// The whiteout that a rename leaves: written, and not there yet.
    pub(crate) fn new_whiteout(
        &mut self,
        caller: Caller,
        parent: (Node, &Basics),
        now: Timestamp,
    ) -> Result<(Node, Kind)> {
        let new = NewNode::Node { kind: Kind::CharDevice, permissions: 0, device: 0 };
        self.new_inode(caller, parent, new, now)
    }

    /// Makes a file without a name.
    pub(crate) fn create_anonymous(
        &mut self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        now: Timestamp,
    ) -> Result<Attributes> {
        let (directory, above) = self.living_directory(parent)?;
        let new = NewNode::Node { kind: Kind::Regular, permissions, device: 0 };
        let (node, _) = self.new_inode(caller, (directory, &above), new, now)?;
        self.set_links(node, 0)?;
        self.note_inode();
        self.pinned(Ino(node.ino))
    }

    /// Gives an inode another name, and pins it.
    pub(crate) fn link(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: Name<'_>,
        now: Timestamp,
    ) -> Result<Attributes> {
        let (node, basics) = self.inode(ino)?;
        let (directory, _) = self.directory(parent)?;
        if self.find(directory, name)?.is_some() {
            return Err(Error::Exists);
        }
        self.living_directory(parent)?;
        if basics.is_directory() {
            return Err(Error::NotPermitted);
        }
        check_links(&basics)?;
        let (node, directory) = (self.own(Ino(node.ino))?, self.own(parent)?);
        let mut plan = Plan::default();
        let place = self.plan_entry(directory, name, (ino.0, basics.kind()?), &mut plan)?;
        let at = self.address(directory, place)?;
        self.intend(Intent::Made, basics.links + 1, at)?;
        self.commit(&plan)?;
        self.note_entry(directory, name, place)?;
        self.set_links(node, basics.links + 1)?;
        self.stamp_change(node, now)?;
        self.stamp_content(directory, now)?;
        self.close_intent()?;
        self.pinned(ino)
    }

    /// Removes a name of something that is not a directory.
    pub(crate) fn unlink(&mut self, parent: Ino, name: Name<'_>, now: Timestamp) -> Result<()> {
        let (directory, _) = self.directory(parent)?;
        let found = self.entry(directory, name)?;
        let (node, basics) = self.inode(Ino(found.ino))?;
        if basics.is_directory() {
            return Err(Error::IsDirectory);
        }
        let (directory, node) = (self.own(parent)?, self.own(Ino(node.ino))?);
        let mut plan = Plan::default();
        self.plan_removal(directory, found.place, &mut plan)?;
        if basics.links > 1 {
            let at = self.address(directory, found.place)?;
            self.intend(Intent::Removed, basics.links - 1, at)?;
        }
        self.commit(&plan)?;
        self.note_removal(directory, name)?;
        self.stamp_content(directory, now)?;
        self.lose_name(node, &basics, now)?;
        if basics.links > 1 { self.close_intent() } else { Ok(()) }
    }

    /// What follows when an inode that is no directory has lost a name.
    pub(crate) fn lose_name(&mut self, node: Node, basics: &Basics, now: Timestamp) -> Result<()> {
        if basics.links <= 1 && !self.is_pinned(node.ino) {
            return self.remove_inode(node, basics);
        }
        self.set_links(node, basics.links.saturating_sub(1))?;
        self.stamp_change(node, now)
    }

    /// What follows when a directory has lost its name.
    pub(crate) fn lose_directory(
        &mut self,
        node: Node,
        basics: &Basics,
        now: Timestamp,
    ) -> Result<()> {
        if !self.is_pinned(node.ino) {
            return self.remove_inode(node, basics);
        }
        self.set_links(node, 0)?;
        self.stamp_change(node, now)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(
        &mut self,
        parent: Ino,
        name: Name<'_>,
        now: Timestamp,
    ) -> Result<()> {
        let (directory, above) = self.directory(parent)?;
        let found = self.entry(directory, name)?;
        let (node, basics) = self.directory(Ino(found.ino))?;
        if self.entry_count(node)? != 0 {
            return Err(Error::NotEmpty);
        }
        let (directory, node) = (self.own(parent)?, self.own(Ino(node.ino))?);
        let links = above.links.saturating_sub(1);
        let mut plan = Plan::default();
        self.plan_removal(directory, found.place, &mut plan)?;
        let at = self.address(directory, found.place)?;
        self.intend(Intent::Removed, links, at)?;
        self.commit(&plan)?;
        self.note_removal(directory, name)?;
        self.set_links(directory, links)?;
        self.stamp_content(directory, now)?;
        // The inode may be the last one of its page, and take that with it.
        self.close_intent()?;
        self.lose_directory(node, &basics, now)
    }

    /// Stores a link count.
    pub(crate) fn set_links(&mut self, node: Node, links: u32) -> Result<()> {
        self.memory.store(node.field(field::LINKS), 4, u64::from(links))
    }

    /// Visits entries in the order of their places.
    pub(crate) fn read_directory(
        &mut self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let (node, _) = self.directory(ino)?;
        let mut pages = Vec::new();
        let from = after.saturating_sub(1) / COOKIES_IN_PAGE;
        self.each_page(node, from, &mut |address, page| {
            pages.push((address, page));
            Ok(())
        })?;
        for page in pages {
            if !self.visit_page(page, after, with_attributes, visit)? {
                break;
            }
        }
        Ok(())
    }

    /// Visits the entries of a page; whether to go on.
    fn visit_page(
        &mut self,
        page: (u64, u64),
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<bool> {
        let bytes = self.page(page.0)?;
        let mut goes_on = true;
        parse_page(&bytes, page, &mut |it| {
            if !it.word.live || it.word.units == 0 || it.place.cookie <= after {
                return Ok(true);
            }
            let ino = Ino(it.word.ino);
            let kind = Kind::from_mode((it.word.kind << 12) as u32)
                .ok_or_else(|| Error::Damaged(format!("kind of {:#x}", it.at)))?;
            let attributes = match with_attributes {
                true => {
                    let node = self.node(ino)?;
                    Some(self.attributes(node)?)
                }
                false => None,
            };
            let cookie = it.place.cookie;
            goes_on = visit(DirectoryEntry { name: it.name, ino, kind, cookie, attributes });
            if goes_on && with_attributes {
                self.pin(ino.0);
            }
            Ok(goes_on)
        })?;
        Ok(goes_on)
    }

    /// Takes back pins of an inode, which is gone if nothing else keeps it; in what is read only it
    /// stays.
    pub(crate) fn forget(&mut self, ino: Ino, count: u64, writable: bool) {
        let Some(pins) = self.dataset.pins.get_mut(&ino.0) else { return };
        *pins = pins.saturating_sub(count);
        if *pins == 0 {
            self.dataset.pins.remove(&ino.0);
            if writable {
                self.drop_unpinned(ino);
            }
        }
    }

    /// Takes back all pins.
    pub(crate) fn forget_all(&mut self, writable: bool) {
        for ino in std::mem::take(&mut self.dataset.pins).into_keys().filter(|_| writable) {
            self.drop_unpinned(Ino(ino));
        }
    }

    /// An inode whose last pin is gone. On an image that makes no sense there it stays.
    fn drop_unpinned(&mut self, ino: Ino) {
        if self.check_changeable().is_err() {
            self.dataset.has_left = true;
            return;
        }
        self.end_epoch();
        let dropped = self.node(ino).and_then(|node| self.drop_if_unused(node));
        match dropped {
            Ok(()) => self.end_operation(),
            Err(error) => {
                self.dataset.has_left = true;
                if error == Error::NoSpace {
                    self.dataset.waiting.push(ino.0);
                }
                self.give_up();
            }
        }
    }

    /// Takes away what there was no space to take away before.
    pub(crate) fn drop_waiting(&mut self) {
        let all = self.others.values().chain([&self.dataset]);
        let waits = all.filter(|dataset| !dataset.waiting.is_empty());
        let numbers: Vec<u64> = waits.map(|dataset| dataset.number).collect();
        self.kept_free = self.kept_for_checkpoint();
        for number in numbers {
            if self.enter(number).is_ok() {
                let waiting = std::mem::take(&mut self.dataset.waiting);
                waiting.into_iter().for_each(|ino| self.drop_unpinned(Ino(ino)));
            }
        }
    }

    /// Whether `ino` is `top` or lies below it.
    pub(crate) fn is_within(&self, ino: u64, top: u64) -> Result<bool> {
        let mut at = ino;
        for _ in 0..DEPTH_MAX {
            if at == top {
                return Ok(true);
            }
            let (_, basics) = self.inode(Ino(at))?;
            if !basics.is_directory() || basics.size == at {
                return Ok(false);
            }
            at = basics.size;
        }
        Err(Error::Damaged(format!("directory {ino} lies too deep")))
    }

    /// An entry that is found, with what it leads to.
    pub(crate) fn led(&self, place: Place, ino: u64) -> Result<Led> {
        let (node, basics) = self.inode(Ino(ino))?;
        Ok(Led { place, node, basics, kind: basics.kind()? })
    }
}

/// An entry and its inode.
#[derive(Clone, Copy)]
pub(crate) struct Led {
    /// Where the entry is.
    pub(crate) place: Place,
    /// The inode.
    pub(crate) node: Node,
    /// Its basics.
    pub(crate) basics: Basics,
    /// Its kind.
    pub(crate) kind: Kind,
}

impl Led {
    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }
}
