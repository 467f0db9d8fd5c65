//! What files and directories take of a store, and what deleting them would give back.
//!
//! Everything is read from one frozen state ([`marram_store::FrozenViews`]), so the answer is of
//! one moment, and no operation waits for it. A file has what its blocks take as they are stored.
//! It would give back those that nothing else refers to: no other file, no snapshot, no clone, and
//! no other dataset. A directory is looked at as a whole: what only files in it share comes back
//! with it. What the tree takes for names and records is not counted: neighbours share its nodes.
//!
//! **Memory is bounded.** A walk keeps the way down, the rows that are asked for, and blocks and
//! files of which it has seen a part. When those blocks are too many, it begins anew with half of
//! them, and further walks look at the rest: exact, for the price of reading more often.

mod ledger;

use ledger::{Ledger, Part, Sighting, Sums};
use marram_format::record::{Inode, InodeKind};
use marram_records::failure::{from_record, from_store};
use marram_records::inode::inode_key;
use marram_records::state::{Named, State};
use marram_store::{Block, Item, Key, View, kind};
use marram_vfs::{Error, Ino, Result};
use std::collections::VecDeque;
use std::sync::Arc;

/// Entries of a directory, and blocks of a file, that are read at once.
const PIECE: usize = 512;
/// Deepest directory that is looked into.
const DEPTH_MAX: usize = 4096;
/// Most rows, and most bytes of their paths.
const ROWS_MAX: usize = 100_000;
const PATH_BYTES_MAX: usize = 24 << 20;

/// What is wanted to know.
#[derive(Clone, Copy, Debug)]
pub struct FootprintOptions {
    /// How far below the directory an entry gets a row of its own; 0 is only the directory.
    pub depth: usize,
    /// Only so many, of which deletion gives back most.
    pub top: Option<usize>,
    /// Most shared blocks that are kept in mind at a time, of about 80 bytes each.
    pub blocks_max: usize,
}

impl Default for FootprintOptions {
    /// What is in the directory; about 80 MiB of memory for shared blocks.
    fn default() -> FootprintOptions {
        FootprintOptions { depth: 1, top: None, blocks_max: 1 << 20 }
    }
}

/// What one name takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// From the directory on; empty of itself.
    pub path: Vec<u8>,
    /// It is a directory, and all that is below it is one row.
    pub is_directory: bool,
    /// Names that the inode has.
    pub links: u32,
    /// Bytes that its blocks take, each counted once.
    pub referenced_bytes: u64,
    /// Bytes that would come back if it were deleted, a directory with all that is in it. 0 of one
    /// of several names of a file.
    pub released_bytes: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprints {
    /// By path, or with [`FootprintOptions::top`] by what would come back.
    pub rows: Vec<Footprint>,
    /// How often everything was walked through.
    pub passes: u32,
}

/// Why a walk does not go on.
enum Stop {
    /// There are more shared blocks than can be kept in mind.
    TooManyBlocks,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// What a directory and what is in it takes, in a view of [`marram_store::FrozenViews`].
///
/// # Errors
/// No such directory; more rows than an answer can have; a failed read.
pub fn footprints(
    view: Arc<dyn View>,
    directory: Ino,
    options: FootprintOptions,
) -> Result<Footprints> {
    let state = State::open(view, directory.0)?;
    let mut found = Footprints::default();
    let mut part = Some(Part::WHOLE);
    while let Some(this) = part {
        let known = if found.passes == 0 { None } else { Some(std::mem::take(&mut found.rows)) };
        let mut walk = Walk::new(&state, options, this, known);
        part = match walk.run() {
            Ok(()) => {
                found.passes += 1;
                this.next()
            }
            Err(Stop::TooManyBlocks) if this.half() == this => {
                return Err(Error::Damaged("too many blocks have one address".to_owned()));
            }
            Err(Stop::TooManyBlocks) => Some(this.half()),
            Err(Stop::Failed(error)) => return Err(error),
        };
        // Of a walk that was given up nothing has been added to rows of earlier ones.
        found.rows = walk.rows.given();
    }
    sort(&mut found.rows, options.top);
    Ok(found)
}

fn sort(rows: &mut Vec<Footprint>, top: Option<usize>) {
    match top {
        None => rows.sort_by(|a, b| a.path.cmp(&b.path)),
        Some(top) => {
            let weight = |row: &Footprint| (row.released_bytes, row.referenced_bytes);
            rows.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.path.cmp(&b.path)));
            rows.truncate(top);
        }
    }
}

/// The rows of one walk, and those that earlier walks have begun: all walks come by the same names
/// in the same order.
struct Rows {
    options: FootprintOptions,
    /// All rows are wanted only by their sums, so the least can go before the end.
    may_drop: bool,
    earlier: Option<Vec<Footprint>>,
    sums: Vec<Sums>,
    rows: Vec<Footprint>,
    path_bytes: usize,
    is_done: bool,
}

impl Rows {
    fn add(&mut self, path: &[u8], (is_directory, links): (bool, u32), sums: Sums) -> Result<()> {
        if self.earlier.is_some() {
            self.sums.push(sums);
            return Ok(());
        }
        let bytes = |sum: i64| u64::try_from(sum).unwrap_or(0);
        self.path_bytes += path.len();
        self.rows.push(Footprint {
            path: path.to_vec(),
            is_directory,
            links,
            referenced_bytes: bytes(sums.referenced),
            released_bytes: bytes(sums.released),
        });
        if self.rows.len() <= ROWS_MAX && self.path_bytes <= PATH_BYTES_MAX {
            return Ok(());
        }
        match self.options.top.filter(|_| self.may_drop) {
            Some(top) => {
                sort(&mut self.rows, Some(top.min(ROWS_MAX / 2)));
                self.path_bytes = self.rows.iter().map(|row| row.path.len()).sum();
                Ok(())
            }
            None => Err(Error::InvalidArgument(
                "more than 100,000 files and directories to be listed: ask for fewer levels, for \
                 the first of them, or for a directory further down",
            )),
        }
    }

    /// What there is now, with what this walk has added if it came to its end.
    fn given(&mut self) -> Vec<Footprint> {
        let Some(mut rows) = self.earlier.take() else { return std::mem::take(&mut self.rows) };
        let sums = if self.is_done { std::mem::take(&mut self.sums) } else { Vec::new() };
        for (row, sums) in rows.iter_mut().zip(sums) {
            row.referenced_bytes = row.referenced_bytes.saturating_add_signed(sums.referenced);
            row.released_bytes = row.released_bytes.saturating_add_signed(sums.released);
        }
        rows
    }
}

/// A directory on the way down.
struct Level {
    directory: u64,
    path_len: usize,
    /// Where to read on; `None` at the end.
    next: Option<u64>,
    entries: VecDeque<Named>,
    links: u32,
}

struct Walk<'s> {
    state: &'s State,
    ledger: Ledger,
    rows: Rows,
    path: Vec<u8>,
    levels: Vec<Level>,
}

impl<'s> Walk<'s> {
    fn new(
        state: &'s State,
        options: FootprintOptions,
        part: Part,
        earlier: Option<Vec<Footprint>>,
    ) -> Walk<'s> {
        let rows = Rows {
            options,
            may_drop: part == Part::WHOLE,
            earlier,
            sums: Vec::new(),
            rows: Vec::new(),
            path_bytes: 0,
            is_done: false,
        };
        let ledger = Ledger::new(part, options.blocks_max);
        Walk { state, ledger, rows, path: Vec::new(), levels: Vec::new() }
    }

    fn run(&mut self) -> std::result::Result<(), Stop> {
        self.go_into(self.state.root)?;
        while let Some(level) = self.levels.last_mut() {
            self.path.truncate(level.path_len);
            if level.entries.is_empty() && !fill(self.state, level)? {
                let links = level.links;
                self.levels.pop();
                self.come_out((true, links), self.levels.len())?;
                continue;
            }
            let Some(entry) = level.entries.pop_front() else { continue };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            match entry.kind {
                InodeKind::Directory => self.go_into(entry.ino)?,
                _ => self.file(entry.ino)?,
            }
        }
        self.rows.is_done = true;
        Ok(())
    }

    fn go_into(&mut self, directory: u64) -> std::result::Result<(), Stop> {
        if self.levels.len() >= DEPTH_MAX {
            return Err(Error::InvalidArgument("directories are nested too deeply").into());
        }
        self.ledger.enter();
        let inode = self.state.named_inode(directory)?.ok_or(Error::Stale)?;
        if inode.kind != InodeKind::Directory {
            return Err(Error::NotDirectory.into());
        }
        let from = Key::new(directory, kind::XATTR, 0);
        self.blocks(from, &mut |ledger, block| ledger.add(block, Sighting::Only))?;
        let (path_len, links) = (self.path.len(), inode.links);
        let (next, entries) = (Some(0), VecDeque::new());
        self.levels.push(Level { directory, path_len, next, entries, links });
        Ok(())
    }

    /// Looks at a file under one of its names.
    fn file(&mut self, ino: u64) -> std::result::Result<(), Stop> {
        let item = self.state.view.get(inode_key(ino)).map_err(from_store)?.ok_or(Error::Stale)?;
        let inode = Inode::decode(&item.value).map_err(|error| from_record(ino, &error))?;
        self.ledger.enter();
        let (sighting, has_blocks) = self.ledger.sight(ino, inode.links);
        if has_blocks {
            let from = Key::new(ino, kind::XATTR, 0);
            self.blocks(from, &mut |ledger, block| ledger.add(block, sighting))?;
        }
        self.ledger.seen(ino, inode.links)?;
        self.come_out((false, inode.links), self.levels.len())
    }

    fn come_out(&mut self, what: (bool, u32), depth: usize) -> std::result::Result<(), Stop> {
        let sums = self.ledger.leave();
        if depth <= self.rows.options.depth {
            self.rows.add(&self.path, what, sums)?;
        }
        Ok(())
    }

    /// Hands on the blocks of an inode from a key on, piece by piece.
    fn blocks(
        &mut self,
        from: Key,
        add: &mut dyn FnMut(&mut Ledger, &marram_store::Holding) -> bool,
    ) -> std::result::Result<(), Stop> {
        let view = &self.state.view;
        let end = Key::new(from.object, u8::MAX, u64::MAX);
        let mut from = Some(from);
        while let Some(first) = from.take() {
            let mut blocks: Vec<Block> = Vec::new();
            let mut gather = |key: Key, item: &Item| {
                blocks.extend(item.block.clone());
                from = key.successor().filter(|_| blocks.len() >= PIECE);
                from.is_none()
            };
            view.scan(first, end, &mut gather).map_err(from_store)?;
            for block in blocks {
                let holding = view.holding(&block).map_err(from_store)?;
                if !holding.is_none_or(|holding| add(&mut self.ledger, &holding)) {
                    return Err(Stop::TooManyBlocks);
                }
            }
        }
        Ok(())
    }
}

/// Reads on in a directory; false at its end.
fn fill(state: &State, level: &mut Level) -> Result<bool> {
    let Some(from) = level.next.take() else { return Ok(false) };
    let (entries, next) = (&mut level.entries, &mut level.next);
    state.visit_entries(level.directory, from, u64::MAX, &mut |entry| {
        *next = entry.offset.checked_add(1).filter(|_| entries.len() + 1 >= PIECE);
        entries.push_back(entry);
        next.is_none()
    })?;
    Ok(!level.entries.is_empty())
}
