//! Inodes and names that were asked for or changed lately, as they are now: one step in place of a
//! search in each layer and then in the tree.
//!
//! Kept are whole **stretches**: all the keys under which one inode's record, or one name, may lie.
//! So it is also known of a stretch that nothing is there, and a file that is about to be made is
//! looked for once.
//!
//! **What is kept is what the layers and the tree would answer.** It is looked at under the lock of
//! the dataset's state, and whoever changes an item there notes it here before that lock is given
//! back. Whoever did not find a stretch here gets a [`Stamp`], then looks for the items, and may
//! keep them only if no item of the same set of stretches was noted in between. A commit changes no
//! item of these kinds, it only moves them into the tree. Where a dataset goes on from another
//! state, it takes a new [`Owner`] number: what was kept under the old one is never found again.
//!
//! The memory is bounded by the number of places, which is fixed, and by [`VALUE_BYTES_KEPT_MAX`].
//! Values are copied out of the nodes that they come from: a short one must not keep a whole node.

use crate::order::RECENT;
use bytes::Bytes;
use marram_format::record::NAME_SLOTS;
use marram_locks::Mutex;
use marram_store::{Edit, Item, Key, kind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Stretches that compete for the same places.
const WAYS: usize = 8;
/// What a stretch takes with its value, in bytes: by this the number of places follows from the
/// memory that they may take.
const STRETCH_BYTES: usize = 256;
/// Longer values are not kept. An entry with the longest name is shorter.
const VALUE_BYTES_KEPT_MAX: usize = 512;

/// Which state of which dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

/// The keys of one object and kind that are kept together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    object: u64,
    kind: u8,
    /// The offset in units of the stretches of this kind.
    index: u64,
}

/// The one item of a stretch, if it has any: its offset and value.
type Content = Option<(u64, Bytes)>;

/// What is known of a stretch.
pub(crate) enum Answer {
    /// All that it holds.
    Known(Content),
    /// Nothing; what is found elsewhere may be kept with the stamp.
    Unknown(Stamp),
}

/// When a stretch was looked for.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    changes: u64,
}

struct Place {
    owner: Owner,
    stretch: Stretch,
    content: Content,
}

/// Places for stretches that have a part of their hashes in common.
#[derive(Default)]
struct Set {
    places: [Option<Place>; WAYS],
    /// How often an item of any stretch that belongs here was changed.
    changes: u64,
    /// The place that is given up next.
    next: usize,
}

/// The stretches of all datasets of a pool that are kept.
pub(crate) struct RecentItems {
    sets: Box<[Mutex<Set>]>,
    owners: AtomicU64,
}

/// Offsets in a stretch of this kind; 0 if such items are not kept.
fn width(item_kind: u8) -> u64 {
    match item_kind {
        kind::INODE => 1,
        kind::ENTRY => NAME_SLOTS,
        _ => 0,
    }
}

impl Stretch {
    /// The stretch that a key belongs to, if such are kept.
    pub(crate) fn of(key: Key) -> Option<Stretch> {
        let index = key.offset.checked_div(width(key.kind))?;
        Some(Stretch { object: key.object, kind: key.kind, index })
    }

    /// The stretch that a range of keys is, from the first to the last.
    pub(crate) fn spanned(from: Key, to: Key) -> Option<Stretch> {
        let stretch = Stretch::of(from).filter(|stretch| Stretch::of(to) == Some(*stretch))?;
        let width = width(from.kind);
        (from.offset.is_multiple_of(width) && to.offset % width == width - 1).then_some(stretch)
    }

    /// Whether it cannot hold more than one item.
    pub(crate) fn is_single(self) -> bool {
        width(self.kind) == 1
    }

    /// The key of an item in it.
    pub(crate) fn key(self, offset: u64) -> Key {
        Key::new(self.object, self.kind, offset)
    }
}

/// Folded product: every bit of both counts.
fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    (product as u64) ^ ((product >> 64) as u64)
}

impl RecentItems {
    /// As many places as fit in so many bytes; none if there is no room for a set.
    pub(crate) fn new(bytes: usize) -> RecentItems {
        let sets = bytes / (STRETCH_BYTES * WAYS);
        RecentItems {
            sets: (0..sets).map(|_| Mutex::new(RECENT, Set::default())).collect(),
            owners: AtomicU64::new(0),
        }
    }

    /// A number that nobody has had.
    pub(crate) fn new_owner(&self) -> Owner {
        Owner(self.owners.fetch_add(1, Ordering::Relaxed))
    }

    fn set(&self, owner: Owner, stretch: Stretch) -> Option<&Mutex<Set>> {
        let place = stretch.index ^ (u64::from(stretch.kind) << 56);
        let hash = mixed(mixed(stretch.object, place), owner.0);
        let index = (u128::from(hash) * self.sets.len() as u128) >> 64;
        self.sets.get(index as usize)
    }

    /// What is known of a stretch. The lock of the dataset's state is held.
    pub(crate) fn find(&self, owner: Owner, stretch: Stretch) -> Answer {
        let Some(set) = self.set(owner, stretch) else {
            return Answer::Unknown(Stamp { changes: u64::MAX });
        };
        let mut set = set.lock();
        match set.place(owner, stretch).and_then(|place| place.as_ref()) {
            Some(place) => Answer::Known(place.content.clone()),
            None => Answer::Unknown(Stamp { changes: set.changes }),
        }
    }

    /// Keeps what a stretch holds, as it was found after the stamp was given; unless it may have
    /// changed since.
    pub(crate) fn keep(&self, owner: Owner, stretch: Stretch, stamp: Stamp, content: Content) {
        let is_long = |(_, value): &(u64, Bytes)| value.len() > VALUE_BYTES_KEPT_MAX;
        let Some(set) = self.set(owner, stretch) else { return };
        if content.as_ref().is_some_and(is_long) {
            return;
        }
        let content = content.map(|(offset, value)| (offset, Bytes::copy_from_slice(&value)));
        let mut set = set.lock();
        if set.changes == stamp.changes {
            set.put(Place { owner, stretch, content });
        }
    }

    /// An edit is applied. The lock of the dataset's state is held for it.
    pub(crate) fn note(&self, owner: Owner, edit: &Edit<'_>) {
        let key = edit.key();
        let Some(stretch) = Stretch::of(key) else { return };
        let Some(set) = self.set(owner, stretch) else { return };
        let mut set = set.lock();
        set.changes += 1;
        match edit {
            Edit::Put { item: Item { value, block: None }, .. }
                if value.len() <= VALUE_BYTES_KEPT_MAX =>
            {
                set.note_item(owner, stretch, (key.offset, value.clone()));
            }
            Edit::Remove { .. } => set.note_removal(owner, stretch, key.offset),
            Edit::Put { .. } | Edit::Patch { .. } | Edit::Add { .. } => set.drop(owner, stretch),
        }
    }
}

impl Set {
    fn place(&mut self, owner: Owner, stretch: Stretch) -> Option<&mut Option<Place>> {
        let is_it = |place: &Place| place.stretch == stretch && place.owner == owner;
        self.places.iter_mut().find(|place| place.as_ref().is_some_and(is_it))
    }

    fn drop(&mut self, owner: Owner, stretch: Stretch) {
        if let Some(place) = self.place(owner, stretch) {
            *place = None;
        }
    }

    fn put(&mut self, new: Place) {
        if let Some(place) = self.place(new.owner, new.stretch) {
            *place = Some(new);
            return;
        }
        let free = self.places.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.next = (self.next + 1) % WAYS;
            self.next
        });
        self.places[index] = Some(new);
    }

    fn note_item(&mut self, owner: Owner, stretch: Stretch, item: (u64, Bytes)) {
        match self.place(owner, stretch) {
            Some(Some(Place { content, .. })) => match content {
                Some((offset, _)) if *offset != item.0 => self.drop(owner, stretch),
                _ => *content = Some(item),
            },
            _ if stretch.is_single() => {
                self.put(Place { owner, stretch, content: Some(item) });
            }
            _ => {}
        }
    }

    fn note_removal(&mut self, owner: Owner, stretch: Stretch, offset: u64) {
        if let Some(Some(Place { content, .. })) = self.place(owner, stretch)
            && content.as_ref().is_some_and(|(at, _)| *at == offset)
        {
            *content = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Owner, RecentItems, STRETCH_BYTES, Stretch, WAYS};
    use bytes::Bytes;
    use marram_store::{Block, Edit, Item, Key, kind};

    const NAME: Key = Key::new(5, kind::ENTRY, 0x700);

    fn name(slot: u64) -> Key {
        Key { offset: NAME.offset + slot, ..NAME }
    }

    fn stretch() -> Stretch {
        Stretch::of(NAME).expect("names are kept")
    }

    fn put(key: Key, value: &'static str) -> Edit<'static> {
        Edit::Put { key, item: Item::plain(value.as_bytes()) }
    }

    fn some(offset: u64, value: &'static str) -> Option<(u64, Bytes)> {
        Some((offset, Bytes::from_static(value.as_bytes())))
    }

    /// What is known, if anything.
    fn known(recent: &RecentItems, owner: Owner, stretch: Stretch) -> Option<super::Content> {
        match recent.find(owner, stretch) {
            Answer::Known(content) => Some(content),
            Answer::Unknown(_) => None,
        }
    }

    fn learn(recent: &RecentItems, owner: Owner, content: super::Content) {
        let Answer::Unknown(stamp) = recent.find(owner, stretch()) else { panic!("known") };
        recent.keep(owner, stretch(), stamp, content);
    }

    #[test]
    fn a_name_is_followed_through_its_changes() {
        let recent = RecentItems::new(1 << 20);
        let owner = recent.new_owner();
        recent.note(owner, &put(name(0), "one"));
        assert_eq!(known(&recent, owner, stretch()), None, "others may be beside it");
        learn(&recent, owner, some(NAME.offset, "one"));
        recent.note(owner, &put(name(0), "two"));
        assert_eq!(known(&recent, owner, stretch()), Some(some(NAME.offset, "two")));
        recent.note(owner, &Edit::Remove { key: name(1) });
        assert_eq!(known(&recent, owner, stretch()), Some(some(NAME.offset, "two")));
        recent.note(owner, &Edit::Remove { key: name(0) });
        assert_eq!(known(&recent, owner, stretch()), Some(None));
        recent.note(owner, &put(name(3), "three"));
        assert_eq!(known(&recent, owner, stretch()), Some(some(NAME.offset + 3, "three")));
        recent.note(owner, &put(name(0), "four"));
        assert_eq!(known(&recent, owner, stretch()), None, "two are not kept");
    }

    #[test]
    fn what_changed_while_it_was_looked_for_is_not_kept() {
        let recent = RecentItems::new(1 << 20);
        let owner = recent.new_owner();
        for edit in [put(name(9), "new"), Edit::Remove { key: name(9) }] {
            let Answer::Unknown(stamp) = recent.find(owner, stretch()) else { panic!("known") };
            recent.note(owner, &edit);
            recent.keep(owner, stretch(), stamp, some(NAME.offset, "old"));
            assert_eq!(known(&recent, owner, stretch()), None);
        }
    }

    #[test]
    fn other_states_are_other_owners() {
        let recent = RecentItems::new(1 << 20);
        let (one, other) = (recent.new_owner(), recent.new_owner());
        let inode = Key::new(5, kind::INODE, 0);
        let record = Stretch::of(inode).expect("inodes are kept");
        recent.note(one, &put(inode, "record"));
        assert_eq!(known(&recent, one, record), Some(some(0, "record")));
        assert_eq!(known(&recent, other, record), None);
        let block = Item::with_block("record", Block::fresh(vec![1]));
        recent.note(one, &Edit::Put { key: inode, item: block });
        assert_eq!(known(&recent, one, record), None, "an item with a block is not kept");
    }

    #[test]
    fn places_are_few_and_values_short() {
        let recent = RecentItems::new(STRETCH_BYTES * WAYS);
        let owner = recent.new_owner();
        let record = |object| Stretch::of(Key::new(object, kind::INODE, 0)).expect("kept");
        (0..100).for_each(|object| recent.note(owner, &put(Key::new(object, kind::INODE, 0), "x")));
        let kept = (0..100).filter(|object| known(&recent, owner, record(*object)).is_some());
        assert_eq!(kept.count(), WAYS);
        let long = Item::plain(vec![0; super::VALUE_BYTES_KEPT_MAX + 1]);
        recent.note(owner, &Edit::Put { key: Key::new(99, kind::INODE, 0), item: long });
        assert_eq!(known(&recent, owner, record(99)), None);
        let nothing = RecentItems::new(0);
        nothing.note(owner, &put(NAME, "x"));
        assert_eq!(known(&nothing, owner, stretch()), None);
    }

    #[test]
    fn only_whole_stretches_are_spanned() {
        let name_to = |slot| Stretch::spanned(NAME, name(slot));
        assert_eq!((name_to(255), name_to(254), name_to(256)), (Some(stretch()), None, None));
        assert_eq!(Stretch::spanned(name(1), name(255)), None);
        let other = |item_kind| Key::new(5, item_kind, 0);
        assert_eq!(
            Stretch::spanned(other(kind::INODE), other(kind::INODE)).map(|s| s.key(0)),
            Some(other(kind::INODE))
        );
        assert_eq!(Stretch::of(other(kind::SECTION)), None);
    }
}
