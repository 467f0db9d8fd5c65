//! Which inodes are in use without regard to their names.
//!
//! A pin stands for a reference that the caller (in the end, the kernel) holds. It is memory
//! only: after a crash there are none. An inode without a name is kept as long as it is pinned;
//! the operation that takes away the last name or the last pin hands it over to be reclaimed. Both
//! may happen at the same moment, so the count and the mark "has no name" change under one lock.
//!
//! The kernel may know millions of inodes, and nothing else here grows with them. So the counts of
//! inodes with numbers next to each other, which is how numbers are given, share an entry: five to
//! ten bytes an inode, and four times as much if no two of them are neighbours
//! (docs/decisions/0030-bounded-memory.md). A table that has become nearly empty
//! gives its room back.

use parking_lot::Mutex;
use std::collections::HashMap;

const SHARDS: usize = 64;
/// Inodes that share an entry.
const GROUP_INODES: usize = 4;
/// Bit of a word: the inode has no name.
const NAMELESS: u16 = 1 << 15;
/// The other bits of a word are the count; if all are set, it is as large as that or larger, and
/// stands in [`Shard::many`].
const MANY: u16 = NAMELESS - 1;
/// Room is given back if there is more than so many times what is used,
const SPARE_ROOM_FACTOR: usize = 8;
/// and for more entries than so many.
const ROOM_KEPT: usize = 128;

/// The pins of one inode, of which there is at least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pin {
    count: u64,
    nameless: bool,
}

impl Pin {
    fn word(self) -> u16 {
        let count = u16::try_from(self.count).unwrap_or(MANY).min(MANY);
        count | if self.nameless { NAMELESS } else { 0 }
    }
}

/// Words of inodes with numbers next to each other; 0 is an inode without pins.
type Group = [u16; GROUP_INODES];

#[derive(Default)]
struct Shard {
    /// By the number that their inodes have in common. None is without pins.
    groups: HashMap<u64, Group>,
    /// Counts that have no room in their words.
    many: HashMap<u64, u64>,
    /// Inodes with pins.
    inodes: usize,
}

impl Shard {
    fn get(&self, ino: u64) -> Option<Pin> {
        let (key, at) = place_of(ino);
        let word = self.groups.get(&key)?[at];
        let count = match word & MANY {
            0 => return None,
            MANY => self.many.get(&ino).copied().unwrap_or(u64::from(MANY)),
            few => u64::from(few),
        };
        Some(Pin { count, nameless: word & NAMELESS != 0 })
    }

    fn set(&mut self, ino: u64, pin: Pin) {
        self.replace(ino, pin.word());
        if pin.word() & MANY == MANY {
            self.many.insert(ino, pin.count);
        }
    }

    fn remove(&mut self, ino: u64) {
        let (key, _) = place_of(ino);
        if self.replace(ino, 0) == Group::default() {
            self.groups.remove(&key);
            self.give_room_back();
        }
    }

    /// Sets a word; returns what its group is then.
    fn replace(&mut self, ino: u64, word: u16) -> Group {
        let (key, at) = place_of(ino);
        let group = self.groups.entry(key).or_default();
        let before = std::mem::replace(&mut group[at], word);
        self.inodes += usize::from(word != 0);
        self.inodes -= usize::from(before != 0);
        if before & MANY == MANY {
            self.many.remove(&ino);
        }
        *group
    }

    /// What the kernel forgets when memory is short must not stay here as unused room. The next
    /// time is when a fraction of them is left, so each inode pays for it once.
    fn give_room_back(&mut self) {
        let used = self.groups.len();
        if self.groups.capacity() > ROOM_KEPT.max(used * SPARE_ROOM_FACTOR) {
            self.groups.shrink_to(used * 2);
        }
    }

    /// The inodes with pins, and their words.
    fn words(&self) -> impl Iterator<Item = (u64, u16)> {
        let of_group = |(key, group): (&u64, &Group)| {
            let first = *key * GROUP_INODES as u64;
            let words = (0..).zip(*group).filter(|(_, word)| *word != 0);
            words.map(move |(at, word): (u64, u16)| (first + at, word))
        };
        self.groups.iter().flat_map(of_group)
    }
}

/// In which group an inode is, and which of it.
fn place_of(ino: u64) -> (u64, usize) {
    let inodes = GROUP_INODES as u64;
    (ino / inodes, usize::try_from(ino % inodes).expect("groups are small"))
}

/// The pins of a file system.
pub(crate) struct Pins {
    shards: Vec<Mutex<Shard>>,
}

impl Pins {
    pub(crate) fn new() -> Pins {
        Pins { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, ino: u64) -> &Mutex<Shard> {
        let (key, _) = place_of(ino);
        let scattered = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = usize::try_from(scattered).expect("32 bits are a usize") % SHARDS;
        &self.shards[index]
    }

    /// Pins once.
    pub(crate) fn add(&self, ino: u64) {
        let mut shard = self.shard(ino).lock();
        let Pin { count, nameless } = shard.get(ino).unwrap_or_default();
        shard.set(ino, Pin { count: count + 1, nameless });
    }

    /// Takes back `count` pins; true if the inode is to be reclaimed now.
    pub(crate) fn remove(&self, ino: u64, count: u64) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(pin) = shard.get(ino) else {
            return false;
        };
        if pin.count > count {
            shard.set(ino, Pin { count: pin.count - count, ..pin });
            return false;
        }
        shard.remove(ino);
        pin.nameless
    }

    /// Takes back all pins; returns the inodes that are to be reclaimed.
    pub(crate) fn clear(&self) -> Vec<u64> {
        let mut nameless = Vec::new();
        for shard in &self.shards {
            let shard = std::mem::take(&mut *shard.lock());
            let marked = shard.words().filter(|(_, word)| word & NAMELESS != 0);
            nameless.extend(marked.map(|(ino, _)| ino));
        }
        nameless
    }

    /// All inodes that are pinned.
    pub(crate) fn all(&self) -> Vec<u64> {
        let mut all = Vec::with_capacity(self.count());
        for shard in &self.shards {
            all.extend(shard.lock().words().map(|(ino, _)| ino));
        }
        all
    }

    /// How many inodes are pinned.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().inodes).sum()
    }

    pub(crate) fn pinned(&self, ino: u64) -> bool {
        self.shard(ino).lock().get(ino).is_some()
    }

    /// Notes whether a pinned inode has no name; false if it is not pinned.
    pub(crate) fn set_nameless(&self, ino: u64, nameless: bool) -> bool {
        let mut shard = self.shard(ino).lock();
        let pin = shard.get(ino);
        pin.map(|pin| shard.set(ino, Pin { nameless, ..pin })).is_some()
    }
}

#[cfg(test)]
mod tests;
