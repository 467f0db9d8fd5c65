//! Pins against a plain table of counts, and the memory that they take.

use super::{MANY, Pin, Pins};
use std::collections::BTreeMap;

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
    assert_eq!(pins.count(), 0);
}

#[test]
fn a_count_of_any_size_is_exact() {
    let pins = Pins::new();
    let many = u64::from(MANY) + 2;
    for _ in 0..many {
        pins.add(7);
    }
    pins.add(6);
    pins.set_nameless(7, true);
    // Down through the count from which on the word says no more than that there are many.
    for left in (many - 4..many).rev() {
        assert!(!pins.remove(7, 1));
        assert_eq!(pins.shard(7).lock().get(7), Some(Pin { count: left, nameless: true }));
    }
    assert!(pins.shard(7).lock().many.is_empty());
    assert!(!pins.remove(7, many - 5));
    assert!(pins.remove(7, 1));
    assert_eq!(pins.all(), [6]);
}

/// Numbers that come in a random order, always the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % sides
    }
}

#[test]
fn any_history_ends_as_in_a_plain_table() {
    let (pins, mut plain, mut dice) = (Pins::new(), BTreeMap::<u64, (u64, bool)>::new(), Dice(1));
    for step in 0..200_000 {
        // Numbers at both ends of what there is.
        let ino = (u64::MAX - 300).wrapping_add(dice.roll(600));
        match dice.roll(4) {
            0 => {
                pins.add(ino);
                plain.entry(ino).or_default().0 += 1;
            }
            1 => {
                let (count, found) = (1 + dice.roll(3), plain.get(&ino).copied());
                let is_last = found.is_some_and(|(held, _)| held <= count);
                let expected = is_last && found.is_some_and(|(_, nameless)| nameless);
                assert_eq!(pins.remove(ino, count), expected, "step {step}");
                if is_last {
                    plain.remove(&ino);
                } else if let Some((held, _)) = plain.get_mut(&ino) {
                    *held -= count;
                }
            }
            2 => {
                let nameless = dice.roll(2) == 0;
                let known = plain.get_mut(&ino).map(|pin| pin.1 = nameless).is_some();
                assert_eq!(pins.set_nameless(ino, nameless), known, "step {step}");
            }
            _ => assert_eq!(pins.pinned(ino), plain.contains_key(&ino), "step {step}"),
        }
        assert_eq!(pins.count(), plain.len(), "step {step}");
    }
    let mut all = pins.all();
    all.sort_unstable();
    assert_eq!(all, plain.keys().copied().collect::<Vec<u64>>());
    let mut left = pins.clear();
    left.sort_unstable();
    let nameless = plain.iter().filter(|(_, (_, nameless))| *nameless);
    assert_eq!(left, nameless.map(|(ino, _)| *ino).collect::<Vec<u64>>());
}

/// Room for entries in all tables.
fn room(pins: &Pins) -> usize {
    pins.shards.iter().map(|shard| shard.lock().groups.capacity()).sum()
}

#[test]
fn neighbours_share_their_memory_and_what_is_forgotten_takes_none() {
    const INODES: u64 = 200_000;
    let (pins, empty) = (Pins::new(), room(&Pins::new()));
    (0..INODES).for_each(|ino| pins.add(ino));
    // An entry takes 17 bytes: so an inode takes at most half as many, also just after a doubling.
    let full = u64::try_from(room(&pins)).unwrap();
    assert!(full * 2 <= INODES, "room for {full}");
    (0..INODES - 64).for_each(|ino| assert!(!pins.remove(ino, 1)));
    assert_eq!(pins.count(), 64);
    assert!((INODES - 64..INODES).all(|ino| pins.pinned(ino)));
    let (kept, most) = (room(&pins), super::SHARDS * super::ROOM_KEPT);
    assert!(empty == 0 && kept <= most, "room for {kept}");
    assert_eq!(size_of::<(u64, super::Group)>(), 16);
}
