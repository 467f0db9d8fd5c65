//! Which directory a block belongs to: the lowest below which everything lies that refers to it.
//!
//! A walk goes down the tree and comes back up, and has an **account** for each directory on its
//! way, and for the file that it is at. Accounts are numbered as they are opened. So for a place of
//! earlier on, known by the number of its account, the deepest account that is still open and not
//! younger is the lowest that both have in common: nothing else has to be remembered of a block
//! that was seen before.
//!
//! The sums of a directory are added up when the walk leaves it. So each block is added where it is
//! seen, and taken off where two of its places meet.

use marram_store::Holding;
use marram_vfs::{Error, Result};
use std::collections::HashMap;

/// Files with several names of which not all have been seen yet: most that are kept in mind, of
/// about 60 bytes each.
const LINKED_MAX: usize = 1 << 21;

/// What is summed up of a file or directory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Can pass below 0 until what lies below has been added.
    pub(super) referenced: i64,
    pub(super) released: i64,
}

/// Which name of a file the walk is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    /// The only one.
    Only,
    /// The first that is seen of several.
    First,
    /// One between.
    Later,
    /// The last one.
    Last,
}

/// The shared blocks that a walk looks at: those whose address has its hash in a range. Blocks
/// that nothing shares are looked at by the first walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    first: u64,
    last: u64,
}

impl Part {
    /// All.
    pub(super) const WHOLE: Part = Part { first: 0, last: u64::MAX };

    /// About half of this part.
    pub(super) fn half(self) -> Part {
        Part { last: self.first + (self.last - self.first) / 2, ..self }
    }

    /// The next part of the same size, if there is more.
    pub(super) fn next(self) -> Option<Part> {
        let first = self.last.checked_add(1)?;
        Some(Part { first, last: first.saturating_add(self.last - self.first) })
    }

    fn is_first(self) -> bool {
        self.first == 0
    }

    fn has(self, address: u64) -> bool {
        (self.first..=self.last).contains(&address.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

struct Account {
    number: u64,
    sums: Sums,
}

/// A block that has been seen, but not everything that holds it.
struct Shared {
    /// References that have not been seen.
    references: u64,
    /// References of files that have names that have not been seen.
    unnamed: u64,
    /// The account in which all that was seen meets.
    meeting: u64,
    /// The account that was at work when it was seen last.
    last: u64,
}

/// A file of which not all names have been seen.
struct Linked {
    names: u32,
    meeting: u64,
    last: u64,
    /// Of blocks that only it refers to.
    sums: Sums,
    has_shared: bool,
}

/// See the module.
pub(super) struct Ledger {
    part: Part,
    open: Vec<Account>,
    opened: u64,
    shared: HashMap<(u64, u64), Shared>,
    /// Blocks with several owners, some of which go: how many do not, and where those meet.
    owned: HashMap<u64, (u64, u64)>,
    linked: HashMap<u64, Linked>,
    /// Of the file that is at hand, if it has several names.
    own: Sums,
    saw_shared: bool,
    blocks_max: usize,
}

impl Ledger {
    pub(super) fn new(part: Part, blocks_max: usize) -> Ledger {
        Ledger {
            part,
            open: Vec::new(),
            opened: 0,
            shared: HashMap::new(),
            owned: HashMap::new(),
            linked: HashMap::new(),
            own: Sums::default(),
            saw_shared: false,
            blocks_max,
        }
    }

    /// Goes into a directory or file.
    pub(super) fn enter(&mut self) {
        self.open.push(Account { number: self.opened, sums: Sums::default() });
        self.opened += 1;
    }

    /// Comes out of it again.
    pub(super) fn leave(&mut self) -> Sums {
        let Some(account) = self.open.pop() else { return Sums::default() };
        if let Some(above) = self.open.last_mut() {
            above.sums.referenced += account.sums.referenced;
            above.sums.released += account.sums.released;
        }
        account.sums
    }

    /// A name of a file is seen; and whether the file's blocks have to be looked at.
    pub(super) fn sight(&mut self, ino: u64, links: u32) -> (Sighting, bool) {
        (self.own, self.saw_shared) = (Sums::default(), false);
        match self.linked.get(&ino) {
            _ if links < 2 => (Sighting::Only, true),
            None => (Sighting::First, true),
            Some(linked) if linked.names == 1 => (Sighting::Last, linked.has_shared),
            Some(linked) => (Sighting::Later, linked.has_shared),
        }
    }

    /// A block of the file or directory that is at hand; false if there are more blocks than can
    /// be kept in mind.
    pub(super) fn add(&mut self, block: &Holding, sighting: Sighting) -> bool {
        let is_only = block.references == 1 && (block.owners == 1 || !block.comes_back);
        if is_only {
            let sums = match sighting {
                _ if !self.part.is_first() => return true,
                Sighting::Only => &mut self.open.last_mut().expect("a file is at hand").sums,
                Sighting::First => &mut self.own,
                Sighting::Later | Sighting::Last => return true,
            };
            sums.referenced += bytes_of(block);
            sums.released += if block.comes_back { bytes_of(block) } else { 0 };
            return true;
        }
        self.saw_shared = true;
        !self.part.has(block.address) || self.add_shared(block, sighting)
    }

    fn add_shared(&mut self, block: &Holding, sighting: Sighting) -> bool {
        let (name, here) = ((block.address, block.adopted), self.here());
        let known = self.shared.remove(&name);
        if known.is_none() && self.shared.len() + self.owned.len() >= self.blocks_max {
            return false;
        }
        let mut shared = known.unwrap_or_else(|| {
            let references = block.references;
            self.top().referenced += bytes_of(block);
            Shared { references, unnamed: 0, meeting: here, last: here }
        });
        self.meet_again(shared.last, bytes_of(block));
        shared.last = here;
        shared.meeting = self.number_at(self.depth_of(shared.meeting));
        match sighting {
            Sighting::Only => shared.references = shared.references.saturating_sub(1),
            Sighting::First => {
                shared.references = shared.references.saturating_sub(1);
                shared.unnamed += 1;
            }
            Sighting::Later => {}
            Sighting::Last => shared.unnamed = shared.unnamed.saturating_sub(1),
        }
        if (shared.references, shared.unnamed) != (0, 0) {
            self.shared.insert(name, shared);
        } else if block.comes_back {
            self.give_back(block, shared.meeting);
        }
        true
    }

    /// All that refers to a block lies below one account: its dataset would give it back.
    fn give_back(&mut self, block: &Holding, meeting: u64) {
        let (others, before) = match self.owned.remove(&block.address) {
            Some((others, before)) => (others, before),
            None => (block.owners, meeting),
        };
        let depth = self.depth_of(before).min(self.depth_of(meeting));
        match others.saturating_sub(1) {
            0 => self.open[depth].sums.released += bytes_of(block),
            others => {
                self.owned.insert(block.address, (others, self.number_at(depth)));
            }
        }
    }

    /// The file at hand has been looked at under one of its names.
    ///
    /// # Errors
    /// There are more files with several names than can be kept in mind.
    pub(super) fn seen(&mut self, ino: u64, links: u32) -> Result<()> {
        if links < 2 {
            return Ok(());
        }
        let here = self.here();
        let Some(mut linked) = self.linked.remove(&ino) else {
            if self.linked.len() >= LINKED_MAX {
                return Err(Error::InvalidArgument(
                    "too many files with several names, some of them elsewhere: name a directory \
                     further down",
                ));
            }
            self.top().referenced += self.own.referenced;
            let (sums, has_shared) = (self.own, self.saw_shared);
            let linked = Linked { names: links - 1, meeting: here, last: here, sums, has_shared };
            self.linked.insert(ino, linked);
            return Ok(());
        };
        self.meet_again(linked.last, linked.sums.referenced);
        linked.last = here;
        linked.names -= 1;
        let depth = self.depth_of(linked.meeting);
        linked.meeting = self.number_at(depth);
        match linked.names {
            0 => self.open[depth].sums.released += linked.sums.released,
            _ => drop(self.linked.insert(ino, linked)),
        }
        Ok(())
    }

    /// What was added at an earlier place is added here too, and counts once where both meet.
    fn meet_again(&mut self, last: u64, bytes: i64) {
        if last != self.here() {
            let depth = self.depth_of(last);
            self.open[depth].sums.referenced -= bytes;
            self.top().referenced += bytes;
        }
    }

    fn top(&mut self) -> &mut Sums {
        &mut self.open.last_mut().expect("a file or directory is at hand").sums
    }

    fn here(&self) -> u64 {
        self.number_at(self.open.len() - 1)
    }

    fn number_at(&self, depth: usize) -> u64 {
        self.open[depth].number
    }

    /// Where a place of earlier on and this one meet. The first account is never closed while
    /// there are others, and is older than all.
    fn depth_of(&self, number: u64) -> usize {
        self.open.partition_point(|account| account.number <= number).saturating_sub(1)
    }
}

fn bytes_of(block: &Holding) -> i64 {
    i64::try_from(block.stored_bytes).unwrap_or(i64::MAX)
}
