//! Which inodes are in use without regard to their names.
//!
//! A pin stands for a reference that the caller (in the end, the kernel) holds. It is memory
//! only: after a crash there are none. An inode without a name is kept as long as it is pinned;
//! whoever takes away the last name or the last pin hands it over to be reclaimed. Both may
//! happen at the same moment, so the count and the mark "has no name" change under one lock.

use parking_lot::Mutex;
use std::collections::HashMap;

const SHARDS: usize = 64;

#[derive(Default)]
struct Pin {
    count: u64,
    nameless: bool,
}

/// The pins of a file system.
pub(crate) struct Pins {
    shards: Vec<Mutex<HashMap<u64, Pin>>>,
}

impl Pins {
    pub(crate) fn new() -> Pins {
        Pins { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, ino: u64) -> &Mutex<HashMap<u64, Pin>> {
        let scattered = ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let index = usize::try_from(scattered).expect("32 bits are a usize") % SHARDS;
        &self.shards[index]
    }

    /// Pins once.
    pub(crate) fn add(&self, ino: u64) {
        self.shard(ino).lock().entry(ino).or_default().count += 1;
    }

    /// Takes back `count` pins; true if the inode is to be reclaimed now.
    pub(crate) fn remove(&self, ino: u64, count: u64) -> bool {
        let mut pins = self.shard(ino).lock();
        let Some(pin) = pins.get_mut(&ino) else {
            return false;
        };
        pin.count = pin.count.saturating_sub(count);
        if pin.count > 0 {
            return false;
        }
        let nameless = pin.nameless;
        pins.remove(&ino);
        nameless
    }

    /// Takes back all pins, and tells which inodes are to be reclaimed now.
    pub(crate) fn clear(&self) -> Vec<u64> {
        let mut nameless = Vec::new();
        for shard in &self.shards {
            for (ino, pin) in std::mem::take(&mut *shard.lock()) {
                if pin.nameless {
                    nameless.push(ino);
                }
            }
        }
        nameless
    }

    /// All inodes that are pinned.
    pub(crate) fn all(&self) -> Vec<u64> {
        let shard = |shard: &Mutex<HashMap<u64, Pin>>| -> Vec<u64> {
            shard.lock().keys().copied().collect()
        };
        self.shards.iter().flat_map(shard).collect()
    }

    pub(crate) fn pinned(&self, ino: u64) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }

    /// Notes whether a pinned inode has no name; false if it is not pinned.
    pub(crate) fn set_nameless(&self, ino: u64, nameless: bool) -> bool {
        let mut pins = self.shard(ino).lock();
        let pin = pins.get_mut(&ino);
        pin.map(|pin| pin.nameless = nameless).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Pins;

    #[test]
    fn the_last_pin_of_a_nameless_inode_hands_it_over() {
        let pins = Pins::new();
        pins.add(5);
        pins.add(5);
        assert!(pins.set_nameless(5, true));
        assert!(!pins.remove(5, 1));
        assert!(pins.remove(5, 9));
        assert!(!pins.pinned(5));
        assert!(!pins.remove(5, 1));
        assert!(!pins.set_nameless(5, true), "it is not pinned");
    }

    #[test]
    fn an_inode_with_a_name_is_not_handed_over() {
        let pins = Pins::new();
        pins.add(5);
        pins.set_nameless(5, true);
        pins.set_nameless(5, false);
        pins.add(6);
        pins.set_nameless(6, true);
        assert_eq!(pins.clear(), [6]);
        assert!(!pins.pinned(5));
    }
}
