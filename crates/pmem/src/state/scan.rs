//! What a mount finds out: pages and inodes in use, and the directories.
//!
//! The scan begins at the root directory and follows every entry. Each page is met once, so it ends
//! whatever the image says; what it has met can be followed later without another check.

use crate::layout::{
    FLAG_INLINE, INLINE_BYTES_MAX, INODE_LIMIT, INODE_NUMBER_MAX, INODES, PAGE, TABLE_ROOT, field,
    pages_of,
};
use crate::memory::Memory;
use crate::space::Space;
use crate::state::counts::ContentCounts;
use crate::state::directory::{Directory, parse_page};
use crate::state::tree::UNSIZED;
use crate::state::{Access, Basics, Node, State};
use marram_vfs::{Error, FILE_BYTES_MAX, Ino, Kind, LINKS_MAX, Result, SYMLINK_BYTES_MAX};
use std::collections::{BTreeMap, HashMap};

/// What a scan has met so far.
struct Scan<'s> {
    state: &'s State,
    space: Space,
    inodes: BTreeMap<u64, u32>,
    inodes_used: u64,
    /// Names that have been met of inodes with several, and how many the inode says.
    links: HashMap<u64, (u32, u32)>,
    directories: HashMap<u64, u64>,
    /// Directories to look into, with their parents.
    left: Vec<(u64, u64)>,
    table: BTreeMap<u64, u64>,
}

fn damaged(what: String) -> Error {
    Error::Damaged(what)
}

impl State {
    /// An image of which nothing is known yet.
    pub(crate) fn unscanned(memory: Memory) -> State {
        let space = Space::new(memory.bytes() / PAGE);
        State {
            memory,
            space,
            inodes: BTreeMap::new(),
            inodes_used: 0,
            next_inode: 0,
            directories: HashMap::new(),
            indexed: 0,
            content_counts: ContentCounts::default(),
            pins: HashMap::new(),
            access: Access::default(),
            fresh: Vec::new(),
            freed: Vec::new(),
        }
    }

    /// Finds out what is in use.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the image makes no sense, and what of it.
    pub(crate) fn scan(&mut self) -> Result<()> {
        let found = Scan::run(self, &[])?;
        let Scan { space, inodes, inodes_used, directories, .. } = found;
        let known = |(ino, entries)| (ino, Directory::with(entries));
        self.directories = directories.into_iter().map(known).collect();
        (self.space, self.inodes, self.inodes_used) = (space, inodes, inodes_used);
        self.next_inode = self.memory.word(INODE_LIMIT)?;
        if self.next_inode > INODE_NUMBER_MAX {
            return Err(damaged(format!("the bound of inode numbers is {}", self.next_inode)));
        }
        Ok(())
    }

    /// Takes the pages of the inode table that have no inode out of it.
    pub(crate) fn shed_table_pages(&mut self) -> Result<()> {
        let mut empty = Vec::new();
        self.walk(self.memory.word(TABLE_ROOT)?, (0, UNSIZED), &mut |met| {
            if met.height == 0 && !self.inodes.contains_key(&met.first) {
                empty.push(met.first);
            }
            Ok(())
        })?;
        for place in empty {
            self.empty_table_page(place)?;
        }
        self.end_operation();
        Ok(())
    }

    /// Compares what is known with what a scan finds.
    ///
    /// # Errors
    /// What differs.
    pub(crate) fn audit(&self) -> Result<()> {
        let nameless: Vec<u64> = self.pins.keys().copied().collect();
        let found = Scan::run(self, &nameless)?;
        if found.inodes_used != self.inodes_used {
            let (found, known) = (found.inodes_used, self.inodes_used);
            return Err(damaged(format!("{found} inodes are there, and {known} known")));
        }
        for (ino, directory) in &self.directories {
            let entries = found.directories.get(ino).copied();
            if entries != Some(directory.entries) {
                let known = directory.entries;
                return Err(damaged(format!("directory {ino}: {entries:?} entries, not {known}")));
            }
        }
        for (ino, known) in self.content_counts.iter() {
            let (node, basics) = self.inode(Ino(ino))?;
            let pages = self.count_pages(node, &basics)?;
            if pages != known {
                return Err(damaged(format!("inode {ino}: {pages} pages, and {known} known")));
            }
        }
        if !found.space.same_pages(&self.space) {
            let (found, known) = (found.space.free(), self.space.free());
            return Err(damaged(format!("{found} pages are free, and {known} known to be")));
        }
        Ok(())
    }
}

impl Scan<'_> {
    fn run<'s>(state: &'s State, nameless: &[u64]) -> Result<Scan<'s>> {
        let mut scan = Scan {
            state,
            space: Space::new(state.memory.bytes() / PAGE),
            inodes: BTreeMap::new(),
            inodes_used: 0,
            links: HashMap::new(),
            directories: HashMap::new(),
            left: Vec::new(),
            table: BTreeMap::new(),
        };
        scan.table()?;
        scan.meet(Ino::ROOT.0, Kind::Directory, Ino::ROOT.0)?;
        scan.all_directories()?;
        scan.check_links()?;
        for ino in nameless {
            scan.nameless(*ino)?;
        }
        scan.all_directories()?;
        Ok(scan)
    }

    fn mark(space: &mut Space, at: u64) -> Result<()> {
        if space.mark(at) { Ok(()) } else { Err(damaged(format!("page {at:#x} is used twice"))) }
    }

    /// Meets the inode table.
    fn table(&mut self) -> Result<()> {
        let root = self.state.memory.word(TABLE_ROOT)?;
        let (space, table) = (&mut self.space, &mut self.table);
        self.state.walk(root, (0, UNSIZED), &mut |met| {
            if met.height == 0 {
                table.insert(met.first, met.at);
            }
            Scan::mark(space, met.at)
        })
    }

    fn all_directories(&mut self) -> Result<()> {
        while let Some((ino, parent)) = self.left.pop() {
            self.look_into(ino, parent)?;
        }
        Ok(())
    }

    fn node(&self, ino: u64) -> Result<Node> {
        let page = self.table.get(&(ino / INODES));
        let page = page.ok_or_else(|| damaged(format!("inode {ino} has no place")))?;
        Ok(Node { ino, at: page + ino % INODES * crate::layout::INODE })
    }

    fn is_met(&self, ino: u64) -> bool {
        let mask = self.inodes.get(&(ino / INODES)).copied().unwrap_or(0);
        mask >> (ino % INODES) & 1 != 0
    }

    fn note(&mut self, ino: u64) {
        *self.inodes.entry(ino / INODES).or_insert(0) |= 1 << (ino % INODES);
        self.inodes_used += 1;
    }

    /// Meets an inode by an entry.
    fn meet(&mut self, ino: u64, kind: Kind, parent: u64) -> Result<()> {
        let node = self.node(ino)?;
        let basics = self.state.basics(node)?;
        if basics.kind()? != kind {
            return Err(damaged(format!("inode {ino} is not of the kind that its entry says")));
        }
        if self.is_met(ino) {
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
        self.note(ino);
        self.pages(node, &basics)
    }

    /// Meets the pages of an inode.
    fn pages(&mut self, node: Node, basics: &Basics) -> Result<()> {
        let ino = node.ino;
        let root = self.state.memory.word(node.field(field::ROOT))?;
        let too_long = || damaged(format!("inode {ino} has a size of {}", basics.size));
        let valid = match basics.kind()? {
            Kind::Directory => UNSIZED,
            Kind::Regular if basics.size <= FILE_BYTES_MAX => pages_of(basics.size),
            Kind::Symlink if basics.flags & FLAG_INLINE != 0 => {
                return if basics.size <= INLINE_BYTES_MAX as u64 {
                    self.xattrs(node, basics)
                } else {
                    Err(too_long())
                };
            }
            Kind::Symlink if basics.size <= SYMLINK_BYTES_MAX as u64 => 1,
            Kind::Regular | Kind::Symlink => return Err(too_long()),
            _ => 0,
        };
        self.tree(root, valid)?;
        self.xattrs(node, basics)
    }

    fn xattrs(&mut self, node: Node, basics: &Basics) -> Result<()> {
        if !basics.has_xattrs() {
            return Ok(());
        }
        let (root, pages) = self.state.xattr_tree(node)?;
        self.tree(root, pages)
    }

    fn tree(&mut self, root: u64, valid: u64) -> Result<()> {
        let space = &mut self.space;
        self.state.walk(root, (0, valid), &mut |met| Scan::mark(space, met.at))
    }

    /// Meets what a directory has.
    fn look_into(&mut self, ino: u64, parent: u64) -> Result<()> {
        let node = self.node(ino)?;
        let mut entries = Vec::new();
        let state = self.state;
        state.each_page(node, 0, &mut |address, page| {
            parse_page(&state.page(address)?, (address, page), &mut |it| {
                if it.word.live && it.word.units != 0 {
                    let kind = Kind::from_mode((it.word.kind << 12) as u32)
                        .ok_or_else(|| damaged(format!("kind of the entry {:#x}", it.place.at)))?;
                    marram_vfs::Name::new(it.name)
                        .map_err(|_| damaged(format!("name of the entry {:#x}", it.place.at)))?;
                    entries.push((it.word.ino, kind));
                }
                Ok(true)
            })
        })?;
        let below = entries.iter().filter(|(_, kind)| *kind == Kind::Directory).count() as u64;
        let basics = state.basics(node)?;
        if basics.links != 0 && u64::from(basics.links) != 2 + below {
            let links = basics.links;
            return Err(damaged(format!("directory {ino}: {below} below it, {links} links")));
        }
        if basics.links == 0 && (!entries.is_empty() || parent == ino) {
            return Err(damaged(format!("directory {ino} has entries and no name")));
        }
        self.directories.insert(ino, entries.len() as u64);
        for (found, kind) in entries {
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

    /// Meets an inode that only a pin keeps.
    fn nameless(&mut self, ino: u64) -> Result<()> {
        if self.is_met(ino) || !self.state.is_used(ino) {
            return Ok(());
        }
        let node = self.node(ino)?;
        let basics = self.state.basics(node)?;
        self.note(ino);
        if basics.is_directory() {
            self.left.push((ino, 0));
        }
        self.pages(node, &basics)
    }
}
