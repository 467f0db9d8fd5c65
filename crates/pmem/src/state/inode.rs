//! Inodes: their times, their attributes, how they are made and how they go.
//!
//! An inode is there if an entry that is there names it. So a new one is free memory until its
//! entry is committed, and one without a name is gone after a crash by itself.

use crate::layout::{
    FANOUT, FLAG_INLINE, INLINE_BYTES_MAX, INODE, INODES, PAGE, field, span, split_root,
};
use crate::state::commit::Plan;
use crate::state::sharing::{Branch, Leaves, inodes_in};
use crate::state::tree::{Pages, Tree, UNSIZED};
use crate::state::{Basics, Node, State};
use crate::time::{EXPLICIT, Which, cut, decode, encode, is_explicit, is_wide};
use marram_vfs::{Attributes, Caller, Error, Ino, Kind, Result, Timestamp};

/// Set-group-id bit.
pub(crate) const SETGID: u32 = 0o2000;

/// An inode that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewInode<'a> {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its permissions.
    pub(crate) permissions: u32,
    /// Its owner and group.
    pub(crate) owner: Caller,
    /// Its first link count.
    pub(crate) links: u32,
    /// Its parent, for a directory.
    pub(crate) parent: u64,
    /// Its device number.
    pub(crate) device: u32,
    /// Its target, for a symbolic link.
    pub(crate) target: &'a [u8],
}

/// Where a time and its extension lie.
fn places(node: Node, which: Which) -> (u64, u64) {
    let number = which as u64;
    (node.field(field::TIMES) + number * 8, node.field(field::WIDE) + number * 4)
}

/// The owner and permissions of what `caller` makes in a directory.
pub(crate) fn inherit(
    caller: Caller,
    kind: Kind,
    permissions: u32,
    above: (&Basics, u32),
) -> (Caller, u32) {
    let permissions = permissions & 0o7777;
    let (parent, parent_gid) = above;
    if parent.permissions() & SETGID == 0 {
        return (caller, permissions);
    }
    let setgid = if kind == Kind::Directory { SETGID } else { 0 };
    (Caller { gid: parent_gid, ..caller }, permissions | setgid)
}

impl State {
    /// A time of an inode, as its word says it.
    fn time(&self, node: Node, which: Which) -> Result<Timestamp> {
        let (at, wide_at) = places(node, which);
        let word = self.memory.word(at)?;
        let high = if is_wide(word) { self.memory.half(wide_at)? } else { 0 };
        Ok(decode(word, high))
    }

    /// The time of the last change: that of content too, unless a user has set that.
    pub(crate) fn changed(&self, node: Node) -> Result<Timestamp> {
        let changed = self.time(node, Which::Changed)?;
        if is_explicit(self.memory.word(places(node, Which::Modified).0)?) {
            return Ok(changed);
        }
        Ok(changed.max(self.time(node, Which::Modified)?))
    }

    /// The time of the last change of content.
    pub(crate) fn modified(&self, node: Node) -> Result<Timestamp> {
        self.time(node, Which::Modified)
    }

    /// Sets a time with the rest of a plan.
    pub(crate) fn set_time(
        &self,
        node: Node,
        which: Which,
        time: Timestamp,
        plan: &mut Plan,
    ) -> Result<()> {
        let (at, wide_at) = places(node, which);
        let stored = encode(time, true);
        plan.edit(at, stored.word);
        if let Some(high) = stored.high {
            plan.narrow(wide_at, 4, u64::from(high));
        }
        Ok(())
    }

    /// Moves a time to the present, apart from the operation: by four bytes mostly.
    pub(crate) fn stamp(&mut self, node: Node, which: Which, now: Timestamp) -> Result<()> {
        let (at, wide_at) = places(node, which);
        let stored = encode(cut(now), false);
        if let Some(high) = stored.high {
            self.memory.store(wide_at, 4, u64::from(high))?;
            self.memory.persist();
        }
        let old = self.memory.word(at)?;
        if old >> 32 == stored.word >> 32 {
            return self.memory.store(at, 4, stored.word & 0xffff_ffff);
        }
        self.memory.store(at, 8, stored.word)
    }

    /// The last change of content is at the present, and with it that of anything: by one store,
    /// unless a change is said to have been later.
    pub(crate) fn stamp_content(&mut self, node: Node, now: Timestamp) -> Result<()> {
        self.stamp(node, Which::Modified, now)?;
        if self.time(node, Which::Changed)? > cut(now) {
            self.stamp(node, Which::Changed, now)?;
        }
        Ok(())
    }

    /// The last change of anything is at the present. A change of content that is said to have been
    /// later counts by itself from then on.
    pub(crate) fn stamp_change(&mut self, node: Node, now: Timestamp) -> Result<()> {
        self.stamp(node, Which::Changed, now)?;
        let at = places(node, Which::Modified).0;
        let word = self.memory.word(at)?;
        if !is_explicit(word) && self.time(node, Which::Modified)? > cut(now) {
            self.memory.store(at, 8, word | EXPLICIT)?;
        }
        Ok(())
    }

    /// Whether reading has to move the access time, if it does so relative to changes.
    pub(crate) fn is_access_due(&self, node: Node, now: Timestamp) -> Result<bool> {
        const DAY: i64 = 86_400;
        let accessed = self.time(node, Which::Accessed)?;
        let modified = self.time(node, Which::Modified)?;
        let is_old = now.seconds.saturating_sub(accessed.seconds) >= DAY;
        Ok(is_old || accessed <= modified || accessed <= self.changed(node)?)
    }

    /// The attributes of an inode by its number.
    pub(crate) fn attributes_of(&mut self, ino: Ino) -> Result<Attributes> {
        let node = self.node(ino)?;
        self.attributes(node)
    }

    /// What is known of an inode.
    pub(crate) fn attributes(&mut self, node: Node) -> Result<Attributes> {
        let basics = self.basics(node)?;
        let entries = if basics.is_directory() { self.entry_count(node)? } else { 0 };
        let pages = self.content_pages(node, &basics)?;
        self.counted_attributes(node, entries, pages)
    }

    /// The same, of an inode whose entries and pages of content are counted.
    pub(crate) fn counted_attributes(
        &self,
        node: Node,
        entries: u64,
        pages: u64,
    ) -> Result<Attributes> {
        let basics = self.basics(node)?;
        let kind = basics.kind()?;
        let owner = self.memory.word(node.field(field::OWNER))?;
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let device = if is_device { self.memory.half(node.field(field::DEVICE))? } else { 0 };
        Ok(Attributes {
            ino: Ino(node.ino),
            generation: 1,
            kind,
            permissions: basics.permissions(),
            links: basics.links,
            uid: (owner & 0xffff_ffff) as u32,
            gid: (owner >> 32) as u32,
            device,
            size: match kind {
                Kind::Directory => entries,
                _ => basics.size,
            },
            blocks_512: pages * (PAGE / 512),
            accessed: self.time(node, Which::Accessed)?,
            modified: self.time(node, Which::Modified)?,
            changed: self.changed(node)?,
            created: self.time(node, Which::Created)?,
        })
    }

    /// As [`State::attributes`], of an inode that is pinned once more.
    pub(crate) fn pinned(&mut self, ino: Ino) -> Result<Attributes> {
        let node = self.node(ino)?;
        let attributes = self.attributes(node)?;
        self.pin(ino.0);
        Ok(attributes)
    }

    /// A number that no inode has had, with a place in the inode table that is the dataset's own.
    fn give_number(&mut self) -> Result<Node> {
        if self.dataset.numbers.is_empty() {
            let next = self.next_number;
            let end = (next / INODES + 1) * INODES;
            self.promise(end)?;
            (self.dataset.numbers, self.next_number) = (next..end, end);
        }
        let ino = self.dataset.numbers.start;
        let place = ino / INODES;
        let mut page = self.own_way(self.table_way(), place)?;
        if page == 0 {
            page = self.apart(|state| state.add_table_page(place))?;
        }
        self.dataset.numbers.start += 1;
        let node = Node { ino, at: page + ino % INODES * INODE };
        match self.is_used(node)? {
            true => Err(Error::Damaged(format!("inode {ino} is there already"))),
            false => Ok(node),
        }
    }

    /// Puts a page without inodes into the inode table. No caller sees it.
    fn add_table_page(&mut self, place: u64) -> Result<u64> {
        let page = self.take_page()?;
        for which in 0..INODES {
            self.memory.store(page + which * INODE + field::MODE, 2, 0)?;
        }
        let mut plan = Plan::default();
        let tree = Tree { way: self.table_way(), end: UNSIZED };
        self.put(tree, &Pages::from([(place, page)]), &mut plan)?;
        self.commit(&plan)?;
        Ok(page)
    }

    /// Writes a new inode, which nothing refers to yet.
    pub(crate) fn make_inode(&mut self, new: &NewInode<'_>, now: Timestamp) -> Result<Node> {
        let target_page = if new.target.len() > INLINE_BYTES_MAX {
            let page = self.take_page()?;
            self.memory.fill(page, new.target)?;
            page
        } else {
            0
        };
        let node = self.give_number()?;
        let is_inline = new.kind == Kind::Symlink && target_page == 0;
        let flags = if is_inline { FLAG_INLINE } else { 0 };
        let size = match new.kind {
            Kind::Directory => new.parent,
            _ => new.target.len() as u64,
        };
        let stored = encode(cut(now), false);
        let words = [
            u64::from(new.kind.mode_bits() | new.permissions)
                | u64::from(flags) << 16
                | u64::from(new.links) << 32,
            u64::from(new.owner.uid) | u64::from(new.owner.gid) << 32,
            size,
            target_page,
            stored.word,
            stored.word,
            stored.word,
            stored.word,
        ];
        let bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
        self.memory.fill(node.at + 8, &bytes)?;
        if let Some(high) = stored.high {
            self.memory.fill(node.field(field::WIDE), &high.to_le_bytes().repeat(4))?;
        }
        if is_inline {
            self.memory.fill(node.field(field::INLINE), new.target)?;
        }
        if matches!(new.kind, Kind::CharDevice | Kind::BlockDevice) {
            self.memory.fill(node.field(field::DEVICE), &new.device.to_le_bytes())?;
        }
        // A crash may leave an inode that nothing names: what it leads to has to make sense. So its
        // mode comes last, in the line of its pointer.
        self.memory.store(node.at, 8, words[0])?;
        self.made.push(node);
        Ok(node)
    }

    /// An inode without a name is gone, unless it is pinned.
    pub(crate) fn drop_if_unused(&mut self, node: Node) -> Result<()> {
        if self.is_pinned(node.ino) {
            return Ok(());
        }
        let basics = self.basics(node)?;
        if basics.links != 0 {
            return Ok(());
        }
        let node = self.own(Ino(node.ino))?;
        self.remove_inode(node, &basics)
    }

    /// An inode that has no name any more is gone, whatever its link count says. Its page is the
    /// dataset's own.
    pub(crate) fn remove_inode(&mut self, node: Node, basics: &Basics) -> Result<()> {
        let trees = self.trees_of(node, basics)?;
        self.freed.extend(trees);
        self.dataset.directories.remove(&node.ino);
        self.content_counts.drop((self.dataset.number, node.ino));
        self.memory.store(node.field(field::MODE), 2, 0)?;
        self.dataset.inodes_used = self.dataset.inodes_used.map(|used| used.saturating_sub(1));
        self.empty_table_page(node.ino / INODES)
    }

    /// Takes a page out of the inode table, if it has no inodes, gets none, and is the dataset's
    /// own.
    pub(crate) fn empty_table_page(&mut self, place: u64) -> Result<()> {
        if self.dataset.numbers.start / INODES == place || !self.is_own_way(place)? {
            return Ok(());
        }
        let (mut at, mut height) = split_root(self.memory.word(self.dataset.root_at())?);
        let mut pointer = self.dataset.root_at();
        while height > 0 {
            height -= 1;
            pointer = at + place / span(height) % FANOUT * 8;
            at = self.memory.word(pointer)?;
        }
        let page = Branch { leaves: Leaves::Inodes, first: place, ..Branch::leaf(at) };
        for node in inodes_in(&page) {
            if self.is_used(node)? {
                return Ok(());
            }
        }
        self.memory.persist();
        self.memory.store(pointer, 8, 0)?;
        self.freed.push(page);
        Ok(())
    }
}
