//! What a mount finds out: the pages in use and how many pointers lead to each, the inodes of the
//! datasets, and their directories.
//!
//! The scan of pages follows every pointer that counts, from the root pointers of all datasets and
//! snapshots. What lies below a page is looked through when it is met first, so the scan ends
//! whatever the image says, and what several states share costs nothing more. The scan of names
//! goes through the directories of each dataset. A snapshot's are checked as they are read.
//!
//! `frozen` says when this can be done beside operations.

use crate::layout::{FLAG_INLINE, INLINE_BYTES_MAX, INODE, INODES, PAGE, SlotKind};
use crate::memory::Memory;
use crate::space::Space;
use crate::state::checkpoint::{Checkpoint, Held};
use crate::state::counts::ContentCounts;
use crate::state::directory::{INDEXED_MAX, parse_page};
use crate::state::sharing::{Branch, Leaves, inodes_in};
use crate::state::slots::Slots;
use crate::state::tree::UNSIZED;
use crate::state::{Basics, Dataset, Node, State};
use foldhash::{HashMap, HashMapExt};
use marram_vfs::{Error, FILE_BYTES_MAX, Ino, Kind, LINKS_MAX, Name, Result, SYMLINK_BYTES_MAX};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Nothing ends a scan that a thread waits for.
pub(crate) static NEVER: AtomicBool = AtomicBool::new(false);

fn damaged(what: String) -> Error {
    Error::Damaged(what)
}

/// Ends a scan whose file system is gone.
fn go_on(stop: &AtomicBool) -> Result<()> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Error::Io("the image has been closed".to_owned())),
        false => Ok(()),
    }
}

/// The pages that a scan has met.
pub(crate) struct Pages<'s> {
    state: &'s State,
    space: Space,
    /// Of each page that has been met, what it is.
    roles: Vec<u16>,
    /// Ends it.
    stop: &'s AtomicBool,
}

/// What a page is, in few bits. Where two pointers lead to one page, they have to agree on it:
/// else one of them leads to pages that were never looked at.
fn role(branch: &Branch) -> u16 {
    let leaves = match branch.leaves {
        Leaves::Inodes => 1,
        Leaves::Bytes => 2,
    };
    let slots = if branch.height == 0 { 0 } else { branch.slots() };
    leaves | (branch.height as u16) << 2 | (slots as u16) << 5
}

/// The role of a page of slots.
const SLOTS_ROLE: u16 = 3;

impl<'s> Pages<'s> {
    /// None yet.
    pub(crate) fn of(state: &'s State, stop: &'s AtomicBool) -> Pages<'s> {
        let pages = state.memory.bytes() / PAGE;
        let roles = vec![0; usize::try_from(pages).unwrap_or(0)];
        Pages { state, space: Space::new(pages), roles, stop }
    }

    /// Meets the pages of the live slots.
    pub(crate) fn slots(&mut self, pages: &[u64]) -> Result<()> {
        pages.iter().try_for_each(|at| self.meet(*at, SLOTS_ROLE).map(drop))
    }

    /// All of them.
    pub(crate) fn into_space(self) -> Space {
        self.space
    }

    /// Meets all that a checkpoint reaches.
    pub(crate) fn hold(&mut self, at: Checkpoint) -> Result<Held> {
        let (mut pages, mut tops) = (Vec::new(), Vec::new());
        let slots = self.checkpoint_slots(at.slots, &mut pages)?;
        for slot in slots.iter() {
            if let Some(top) = self.state.top(slot)? {
                self.below(top)?;
                tops.push(top);
            }
        }
        Ok(Held { at, pages, tops })
    }

    /// Reads the slots of a checkpoint, which begin at `first`, and meets their pages.
    pub(crate) fn checkpoint_slots(&mut self, first: u64, met: &mut Vec<u64>) -> Result<Slots> {
        let state = self.state;
        let mut meet = |at| {
            met.push(at);
            self.meet(at, SLOTS_ROLE).map(drop)
        };
        meet(first)?;
        state.read_slots(first, &mut meet)
    }

    /// Meets a page; whether it is the first time.
    fn meet(&mut self, at: u64, role: u16) -> Result<bool> {
        let is_first = self.space.mark(at);
        let known = self.roles.get_mut((at / PAGE) as usize).filter(|_| at.is_multiple_of(PAGE));
        match known {
            Some(known) if is_first => *known = role,
            Some(known) if *known == role && role != SLOTS_ROLE => self.space.share(at),
            Some(_) => return Err(damaged(format!("page {at:#x} is used twice"))),
            None => return Err(damaged(format!("the pointer {at:#x} leads nowhere"))),
        }
        Ok(is_first)
    }

    /// Meets a page, and what lies below it.
    pub(crate) fn below(&mut self, top: Branch) -> Result<()> {
        let mut left = vec![top];
        while let Some(branch) = left.pop() {
            go_on(self.stop)?;
            if !self.meet(branch.at, role(&branch))? {
                continue;
            }
            if branch.height == 0 && branch.leaves == Leaves::Inodes {
                for node in inodes_in(&branch) {
                    check_inode(self.state, node)?;
                }
            }
            left.extend(self.state.children(&branch)?);
        }
        Ok(())
    }
}

/// Refuses an inode that makes no sense.
fn check_inode(state: &State, node: Node) -> Result<()> {
    if !state.is_used(node)? {
        return Ok(());
    }
    let basics = state.basics(node)?;
    let size_max = match basics.kind()? {
        Kind::Regular => FILE_BYTES_MAX,
        Kind::Symlink if basics.flags & FLAG_INLINE != 0 => INLINE_BYTES_MAX as u64,
        Kind::Symlink => SYMLINK_BYTES_MAX as u64,
        _ => u64::MAX,
    };
    if basics.size > size_max {
        return Err(damaged(format!("inode {} has a size of {}", node.ino, basics.size)));
    }
    Ok(())
}

/// The names that a scan of a dataset has met.
pub(crate) struct Names<'s> {
    state: &'s State,
    /// Which inodes have names: one bit an inode, by places in the inode table.
    named: BTreeMap<u64, u32>,
    /// Names that have been met of inodes with several, and how many the inode says.
    links: HashMap<u64, (u32, u32)>,
    directories: HashMap<u64, u64>,
    /// Directories to look into, with their parents.
    left: Vec<(u64, u64)>,
    table: BTreeMap<u64, u64>,
}

/// What a scan has found of a dataset.
pub(crate) struct FoundDataset {
    /// How many inodes it has.
    pub(crate) inodes_used: u64,
    /// How many entries each directory has.
    pub(crate) directories: HashMap<u64, u64>,
    /// Inodes without a name.
    pub(crate) nameless: Vec<u64>,
    /// Places of pages of the inode table without inodes.
    pub(crate) empty: Vec<u64>,
}

impl Names<'_> {
    /// Looks through the names of a dataset.
    ///
    /// # Errors
    /// They make no sense.
    pub(crate) fn run(state: &State, root: u64, stop: &AtomicBool) -> Result<FoundDataset> {
        let mut names = Names {
            state,
            named: BTreeMap::new(),
            links: HashMap::new(),
            directories: HashMap::new(),
            left: Vec::new(),
            table: BTreeMap::new(),
        };
        state.walk(root, (0, UNSIZED), &mut |met| {
            go_on(stop)?;
            if met.height == 0 {
                names.table.insert(met.first, met.at);
            }
            Ok(())
        })?;
        names.meet(Ino::ROOT.0, Kind::Directory, Ino::ROOT.0)?;
        while let Some((ino, parent)) = names.left.pop() {
            go_on(stop)?;
            names.look_into(ino, parent)?;
        }
        names.check_links()?;
        names.found()
    }

    fn node(&self, ino: u64) -> Result<Node> {
        let page = self.table.get(&(ino / INODES));
        let page = page.ok_or_else(|| damaged(format!("inode {ino} has no place")))?;
        let node = Node { ino, at: page + ino % INODES * INODE };
        if self.state.is_used(node)? {
            return Ok(node);
        }
        Err(damaged(format!("inode {ino} is not there, and has a name")))
    }

    fn is_named(&self, ino: u64) -> bool {
        self.named.get(&(ino / INODES)).is_some_and(|mask| mask >> (ino % INODES) & 1 != 0)
    }

    /// Meets an inode by an entry.
    fn meet(&mut self, ino: u64, kind: Kind, parent: u64) -> Result<()> {
        let basics = self.state.basics(self.node(ino)?)?;
        if basics.kind()? != kind {
            return Err(damaged(format!("inode {ino} is not of the kind that its entry says")));
        }
        if self.is_named(ino) {
            let Some(links) = self.links.get_mut(&ino) else {
                return Err(damaged(format!("inode {ino} has more names than it says")));
            };
            links.0 += 1;
            return Ok(());
        }
        if kind == Kind::Directory {
            if basics.size != parent {
                return Err(damaged(format!("directory {ino} has another parent")));
            }
            self.left.push((ino, parent));
        } else if basics.links != 1 {
            self.links.insert(ino, (1, basics.links));
        }
        *self.named.entry(ino / INODES).or_insert(0) |= 1 << (ino % INODES);
        Ok(())
    }

    /// Meets what a directory has.
    fn look_into(&mut self, ino: u64, parent: u64) -> Result<()> {
        let (node, state) = (self.node(ino)?, self.state);
        let entries = entries_of(state, node)?;
        let below = entries.iter().filter(|(_, kind)| *kind == Kind::Directory).count() as u64;
        let Basics { links, .. } = state.basics(node)?;
        if u64::from(links) != 2 + below {
            return Err(damaged(format!("directory {ino}: {below} below it, {links} links")));
        }
        self.directories.insert(ino, entries.len() as u64);
        for (found, kind) in entries {
            if found == parent && kind == Kind::Directory && parent != ino {
                return Err(damaged(format!("directory {ino} has its parent below it")));
            }
            self.meet(found, kind, ino)?;
        }
        Ok(())
    }

    /// Link counts are exact.
    fn check_links(&self) -> Result<()> {
        for (ino, (names, links)) in &self.links {
            if names != links || *links > LINKS_MAX {
                return Err(damaged(format!("inode {ino}: {names} names, {links} links")));
            }
        }
        Ok(())
    }

    fn found(self) -> Result<FoundDataset> {
        let (mut inodes_used, mut nameless, mut empty) = (0, Vec::new(), Vec::new());
        for (place, page) in &self.table {
            let page = Branch { first: *place, leaves: Leaves::Inodes, ..Branch::leaf(*page) };
            let before = inodes_used;
            for node in inodes_in(&page) {
                if self.state.is_used(node)? {
                    inodes_used += 1;
                    if !self.is_named(node.ino) {
                        nameless.push(node.ino);
                    }
                }
            }
            empty.extend((inodes_used == before).then_some(*place));
        }
        Ok(FoundDataset { inodes_used, directories: self.directories, nameless, empty })
    }
}

/// The inodes that the entries of a directory name, and their kinds.
fn entries_of(state: &State, node: Node) -> Result<Vec<(u64, Kind)>> {
    let mut entries = Vec::new();
    state.each_page(node, 0, &mut |address, page| {
        parse_page(&state.page(address)?, (address, page), &mut |it| {
            if it.word.live && it.word.units != 0 {
                let kind = Kind::from_mode((it.word.kind << 12) as u32)
                    .ok_or_else(|| damaged(format!("kind of the entry {:#x}", it.at)))?;
                Name::new(it.name)
                    .map_err(|_| damaged(format!("name of the entry {:#x}", it.at)))?;
                entries.push((it.word.ino, kind));
            }
            Ok(true)
        })
    })?;
    Ok(entries)
}

impl State {
    /// An image of which nothing is known yet.
    pub(crate) fn unscanned(memory: Memory) -> State {
        let space = Space::new(memory.bytes() / PAGE);
        State {
            memory,
            space,
            slots: Slots::default(),
            next_number: 0,
            dataset: Dataset::default(),
            others: HashMap::new(),
            forgotten: Vec::new(),
            indexed: 0,
            indexed_max: INDEXED_MAX,
            content_counts: ContentCounts::default(),
            kept_free: 0,
            prepared: 0..0,
            fresh: Vec::new(),
            made: Vec::new(),
            freed: Vec::new(),
            late: Vec::new(),
            held: None,
            checkpointed_at: None,
            removals: 0,
            full_at: None,
            is_closed: false,
            failure: None,
        }
    }

    /// All pages that are in use, and all slots.
    fn scan_pages(&self) -> Result<(Space, Slots)> {
        let mut pages = Pages::of(self, &NEVER);
        let (slots, slot_pages) = self.all_slots()?;
        pages.slots(&slot_pages)?;
        for slot in slots.iter() {
            if let Some(top) = self.top(slot)? {
                pages.below(top)?;
            }
        }
        if let Some(kept) = self.kept_checkpoint()? {
            pages.hold(kept)?;
        }
        Ok((pages.space, slots))
    }

    /// Takes away what a crash has left: inodes that nothing names, and pages of the inode table
    /// without inodes. What there is no space for stays for the next mount.
    pub(crate) fn shed_left(&mut self) -> Result<()> {
        let all = self.others.keys().copied().chain([self.dataset.number]);
        let numbers: Vec<u64> = all.filter(|number| *number != 0).collect();
        for number in numbers {
            self.enter(number)?;
            let left = std::mem::take(&mut self.dataset.left);
            self.dataset.has_left = false;
            for ino in left.nameless {
                if self.is_pinned(ino) {
                    self.dataset.has_left = true;
                    continue;
                }
                match self.take_away(Ino(ino)) {
                    Ok(()) => self.end_operation(),
                    Err(Error::NoSpace) => {
                        self.give_up();
                        self.dataset.has_left = true;
                        self.dataset.waiting.push(ino);
                    }
                    // It went meanwhile, with the last that had it open.
                    Err(Error::Stale) => self.give_up(),
                    Err(error) => return Err(error),
                }
            }
            left.empty.into_iter().try_for_each(|place| self.empty_table_page(place))?;
            self.end_operation();
        }
        Ok(())
    }

    fn take_away(&mut self, ino: Ino) -> Result<()> {
        let node = self.own(ino)?;
        let basics = self.basics(node)?;
        self.remove_inode(node, &basics)
    }

    /// Compares what is known with what a scan finds.
    ///
    /// # Errors
    /// What differs.
    pub(crate) fn audit(&self) -> Result<()> {
        let (space, slots) = self.scan_pages()?;
        if !space.same_pages(&self.space) {
            let (found, known) = (space.free(), self.space.free());
            return Err(damaged(format!("{found} pages are free, and {known} known to be")));
        }
        if !slots.iter().eq(self.slots.iter()) {
            return Err(damaged("the slots are not as they are known".to_owned()));
        }
        for slot in slots.iter().filter(|slot| slot.kind == SlotKind::Dataset) {
            let here = Some(&self.dataset).filter(|dataset| dataset.number == slot.number);
            let Some(known) = here.or_else(|| self.others.get(&slot.number)) else { continue };
            self.audit_dataset(known)?;
        }
        Ok(())
    }

    fn audit_dataset(&self, dataset: &Dataset) -> Result<()> {
        let found = Names::run(self, self.memory.word(dataset.root_at())?, &NEVER)?;
        if let Some(known) = dataset.inodes_used.filter(|known| *known != found.inodes_used) {
            let found = found.inodes_used;
            return Err(damaged(format!("{found} inodes are there, and {known} known")));
        }
        let is_pinned = |ino: &u64| dataset.pins.contains_key(ino);
        let unknown = found.nameless.iter().find(|ino| !is_pinned(ino));
        if let (Some(ino), false) = (unknown, dataset.has_left) {
            return Err(damaged(format!("inode {ino} has neither name nor pin")));
        }
        for (ino, directory) in &dataset.directories {
            let entries = found.directories.get(ino).copied();
            let is_nameless = found.nameless.contains(ino) && directory.entries == 0;
            if entries != Some(directory.entries) && !is_nameless {
                let known = directory.entries;
                return Err(damaged(format!("directory {ino}: {entries:?} entries, not {known}")));
            }
        }
        for (ino, known) in self.content_counts.of(dataset.number) {
            let page = self.page_at(self.memory.word(dataset.root_at())?, ino / INODES)?;
            let node = Node { ino, at: page + ino % INODES * INODE };
            let pages = self.count_pages(node, &self.basics(node)?)?;
            if pages != known {
                return Err(damaged(format!("inode {ino}: {pages} pages, and {known} known")));
            }
        }
        Ok(())
    }
}
