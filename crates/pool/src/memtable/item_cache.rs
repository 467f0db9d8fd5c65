//! Inodes and names that were asked for or changed lately, as they are now: one step in place of a
//! search in each layer and then in the tree.
//!
//! Kept are whole **stretches**: all the keys under which one inode's record, or one name, may lie.
//! So it is also known of a stretch that nothing is there, and a file that is about to be made is
//! looked for once.
//!
//! **What is kept is what the layers and the tree would answer.** A look at it takes the lock of
//! the dataset's state. A change of an item notes it here before that lock is given back. A lookup
//! that does not find a stretch here gets a [`Stamp`] before it searches the layers and the tree.
//! What it finds is kept only if no item of the same set of stretches was noted in between. A
//! commit changes no item of these kinds, it only moves them into the tree. Where a dataset goes on
//! from another state, it takes a new [`Owner`] number: what was kept under the old one is never
//! found again.
//!
//! **A cache that is too small must still help.** A walk over a tree looks up each inode and name
//! once in a round. If the oldest gave way to the newest, each entry of a tree that does not fit
//! would go just before its next lookup. The cache would then answer nothing at all, so any entry
//! may go. What is known not to be there goes first.
//!
//! The memory is bounded by the number of places, which is fixed, and by [`VALUE_BYTES_KEPT_MAX`].
//! Values are copied out of the nodes that they come from: a short one must not keep a whole node.
//! They lie in their places, so that an answer costs two reads of memory that nobody has looked at
//! for long: the line of the set and the place.

use crate::base::order::ITEM_CACHE;
use bytes::Bytes;
use marram_format::record::{INODE_BYTES, NAME_SLOTS};
use marram_locks::Mutex;
use marram_store::{Edit, Item, Key, kind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Stretches that compete for the same places.
const WAYS: usize = 16;
/// The longest value of an entry that lies in its place, in bytes: a name of 51 bytes. That of an
/// inode is always as long as a record.
const ENTRY_BYTES: usize = 61;
/// Longer values are not kept. An entry with the longest name is shorter.
const VALUE_BYTES_KEPT_MAX: usize = 512;
/// What a set of inodes and one of names take when they are full, in bytes: by this the number of
/// sets follows from the memory that they may take. Entries with long names, which have memory of
/// their own, could need as much again.
const SETS_BYTES: usize = Set::<INODE_BYTES>::BYTES + Set::<ENTRY_BYTES>::BYTES;
/// What the allocator needs for itself, in bytes.
const ALLOCATION_BYTES: usize = 16;
/// Bit of a tag: nothing is in that stretch. The other bits are of the stretch's hash.
const NOTHING: u8 = 1;

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

/// What is kept of one stretch, by its number among those of its kind.
struct Place<const N: usize> {
    whose: Whose,
    kept: Kept<N>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Whose {
    owner: Owner,
    object: u64,
    index: u64,
}

/// The one item of a stretch, if it has any: how far behind the first key, and its value.
enum Kept<const N: usize> {
    Nothing,
    Short { slot: u8, len: u8, bytes: [u8; N] },
    Long { slot: u8, value: Box<[u8]> },
}

/// Places for stretches that have a part of their hashes in common.
#[derive(Default)]
struct Set<const N: usize> {
    /// How often an item of any stretch that belongs here was changed.
    changes: u64,
    /// Says which place is given up next.
    random: u32,
    /// What to look at before the places, in their order.
    tags: [u8; WAYS],
    places: Vec<Place<N>>,
}

/// A set has a line of the processor's cache for itself, but for the places.
#[repr(align(64))]
struct Line<const N: usize>(Mutex<Set<N>>);

/// All sets of one kind.
struct Table<const N: usize> {
    lines: Box<[Line<N>]>,
}

/// The stretches of all datasets of a pool that are kept.
pub(crate) struct ItemCache {
    inodes: Table<INODE_BYTES>,
    names: Table<ENTRY_BYTES>,
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

    fn offset(self, slot: u8) -> u64 {
        self.index * width(self.kind) + u64::from(slot)
    }

    fn of_owner(self, owner: Owner) -> Whose {
        Whose { owner, object: self.object, index: self.index }
    }
}

/// How far behind the first key of its stretch an item is.
fn slot_of(item_kind: u8, offset: u64) -> u8 {
    u8::try_from(offset % width(item_kind)).unwrap_or(u8::MAX)
}

/// Folded product: every bit of both counts.
fn mixed(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x9e37_79b9_7f4a_7c15) * u128::from(b ^ 0xd1b5_4a32_d192_ed03);
    (product as u64) ^ ((product >> 64) as u64)
}

impl ItemCache {
    /// As many places as fit in so many bytes; none if there is no room for a set of each kind.
    pub(crate) fn new(bytes: usize) -> ItemCache {
        let sets = bytes / SETS_BYTES;
        let owners = AtomicU64::new(0);
        ItemCache { inodes: Table::new(sets), names: Table::new(sets), owners }
    }

    /// A number that nobody has had.
    pub(crate) fn new_owner(&self) -> Owner {
        Owner(self.owners.fetch_add(1, Ordering::Relaxed))
    }

    /// What is known of a stretch. The lock of the dataset's state is held.
    pub(crate) fn find(&self, owner: Owner, stretch: Stretch) -> Answer {
        match stretch.is_single() {
            true => self.inodes.find(owner, stretch),
            false => self.names.find(owner, stretch),
        }
    }

    /// Keeps what a stretch holds, as it was found after the stamp was given; unless it may have
    /// changed since.
    pub(crate) fn keep(&self, owner: Owner, stretch: Stretch, stamp: Stamp, content: Content) {
        let is_long = |(_, value): &(u64, Bytes)| value.len() > VALUE_BYTES_KEPT_MAX;
        if content.as_ref().is_some_and(is_long) {
            return;
        }
        match stretch.is_single() {
            true => self.inodes.keep(owner, stretch, stamp, content),
            false => self.names.keep(owner, stretch, stamp, content),
        }
    }

    /// An edit is applied. The lock of the dataset's state is held for it.
    pub(crate) fn note(&self, owner: Owner, edit: &Edit<'_>) {
        let key = edit.key();
        let Some(stretch) = Stretch::of(key) else { return };
        let change = match edit {
            Edit::Put { item: Item { value, block: None }, .. }
                if value.len() <= VALUE_BYTES_KEPT_MAX =>
            {
                Change::Item(value)
            }
            Edit::Remove { .. } => Change::Removal,
            Edit::Put { .. } | Edit::Patch { .. } | Edit::Add { .. } => Change::Other,
        };
        match stretch.is_single() {
            true => self.inodes.note(owner, stretch, key, change),
            false => self.names.note(owner, stretch, key, change),
        }
    }
}

/// What an edit makes of an item.
enum Change<'a> {
    Item(&'a [u8]),
    Removal,
    /// An item that is not kept.
    Other,
}

impl<const N: usize> Table<N> {
    fn new(sets: usize) -> Table<N> {
        let line = |_| Line(Mutex::new(ITEM_CACHE, Set::default()));
        Table { lines: (0..sets).map(line).collect() }
    }

    /// The set of a stretch, and its tag there.
    fn set(&self, whose: Whose) -> Option<(&Mutex<Set<N>>, u8)> {
        let hash = mixed(mixed(whose.object, whose.index), whose.owner.0);
        let index = (u128::from(hash) * self.lines.len() as u128) >> 64;
        let line = self.lines.get(index as usize)?;
        Some((&line.0, hash as u8 | NOTHING))
    }

    fn find(&self, owner: Owner, stretch: Stretch) -> Answer {
        let whose = stretch.of_owner(owner);
        let Some((set, tag)) = self.set(whose) else {
            return Answer::Unknown(Stamp { changes: u64::MAX });
        };
        let set = set.lock();
        let Some(at) = set.position(tag, whose) else {
            return Answer::Unknown(Stamp { changes: set.changes });
        };
        let content = |(slot, value)| (stretch.offset(slot), Bytes::copy_from_slice(value));
        Answer::Known(set.places[at].kept.item().map(content))
    }

    fn keep(&self, owner: Owner, stretch: Stretch, stamp: Stamp, content: Content) {
        let whose = stretch.of_owner(owner);
        let Some((set, tag)) = self.set(whose) else { return };
        let kept = content.map_or(Kept::Nothing, |(offset, value)| {
            Kept::of(slot_of(stretch.kind, offset), &value)
        });
        let mut set = set.lock();
        if set.changes == stamp.changes {
            set.put(tag, Place { whose, kept });
        }
    }

    fn note(&self, owner: Owner, stretch: Stretch, key: Key, change: Change<'_>) {
        let whose = stretch.of_owner(owner);
        let Some((set, tag)) = self.set(whose) else { return };
        let slot = slot_of(key.kind, key.offset);
        let mut set = set.lock();
        set.changes += 1;
        let Some(at) = set.position(tag, whose) else {
            if let (Change::Item(value), true) = (change, stretch.is_single()) {
                set.put(tag, Place { whose, kept: Kept::of(slot, value) });
            }
            return;
        };
        let is_it = set.places[at].kept.item().map(|(kept, _)| kept == slot);
        match (change, is_it) {
            (Change::Item(value), None | Some(true)) => set.set(at, Kept::of(slot, value)),
            (Change::Removal, Some(true)) => set.set(at, Kept::Nothing),
            (Change::Removal, _) => {}
            (Change::Item(_), Some(false)) | (Change::Other, _) => set.drop(at),
        }
    }
}

impl<const N: usize> Kept<N> {
    fn of(slot: u8, value: &[u8]) -> Kept<N> {
        let mut bytes = [0; N];
        match (bytes.get_mut(..value.len()), u8::try_from(value.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(value);
                Kept::Short { slot, len, bytes }
            }
            _ => Kept::Long { slot, value: value.into() },
        }
    }

    /// Where the item is, and its value.
    fn item(&self) -> Option<(u8, &[u8])> {
        match self {
            Kept::Nothing => None,
            Kept::Short { slot, len, bytes } => Some((*slot, &bytes[..usize::from(*len)])),
            Kept::Long { slot, value } => Some((*slot, &value[..])),
        }
    }
}

impl<const N: usize> Set<N> {
    /// What one takes when it is full.
    const BYTES: usize = size_of::<Line<N>>() + WAYS * size_of::<Place<N>>() + ALLOCATION_BYTES;

    fn position(&self, tag: u8, whose: Whose) -> Option<usize> {
        let mut tagged = self.tags.iter().zip(&self.places);
        tagged.position(|(other, place)| other | NOTHING == tag && place.whose == whose)
    }

    fn set(&mut self, at: usize, kept: Kept<N>) {
        match kept {
            Kept::Nothing => self.tags[at] |= NOTHING,
            Kept::Short { .. } | Kept::Long { .. } => self.tags[at] &= !NOTHING,
        }
        self.places[at].kept = kept;
    }

    fn drop(&mut self, at: usize) {
        self.places.swap_remove(at);
        self.tags[at] = self.tags[self.places.len()];
    }

    fn put(&mut self, tag: u8, new: Place<N>) {
        let at = self.position(tag, new.whose).unwrap_or_else(|| self.room());
        self.tags[at] = tag;
        if at == self.places.len() {
            self.places.push(Place { whose: new.whose, kept: Kept::Nothing });
        }
        self.places[at].whose = new.whose;
        self.set(at, new.kept);
    }

    /// Where a stretch can go that is not here.
    fn room(&mut self) -> usize {
        if self.places.len() < WAYS {
            return self.places.len();
        }
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let any = self.random as usize >> (u32::BITS - WAYS.trailing_zeros());
        self.tags.iter().position(|tag| tag & NOTHING != 0).unwrap_or(any)
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, ENTRY_BYTES, ItemCache, Owner, SETS_BYTES, Stretch, WAYS};
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
    fn known(cache: &ItemCache, owner: Owner, stretch: Stretch) -> Option<super::Content> {
        match cache.find(owner, stretch) {
            Answer::Known(content) => Some(content),
            Answer::Unknown(_) => None,
        }
    }

    fn learn(cache: &ItemCache, owner: Owner, content: super::Content) {
        let Answer::Unknown(stamp) = cache.find(owner, stretch()) else { panic!("known") };
        cache.keep(owner, stretch(), stamp, content);
    }

    #[test]
    fn a_name_is_followed_through_its_changes() {
        let cache = ItemCache::new(1 << 20);
        let owner = cache.new_owner();
        cache.note(owner, &put(name(0), "one"));
        assert_eq!(known(&cache, owner, stretch()), None, "others may be beside it");
        learn(&cache, owner, some(NAME.offset, "one"));
        cache.note(owner, &put(name(0), "two"));
        assert_eq!(known(&cache, owner, stretch()), Some(some(NAME.offset, "two")));
        cache.note(owner, &Edit::Remove { key: name(1) });
        assert_eq!(known(&cache, owner, stretch()), Some(some(NAME.offset, "two")));
        cache.note(owner, &Edit::Remove { key: name(0) });
        assert_eq!(known(&cache, owner, stretch()), Some(None));
        cache.note(owner, &put(name(3), "three"));
        assert_eq!(known(&cache, owner, stretch()), Some(some(NAME.offset + 3, "three")));
        cache.note(owner, &put(name(0), "four"));
        assert_eq!(known(&cache, owner, stretch()), None, "two are not kept");
    }

    #[test]
    fn what_changed_while_it_was_looked_for_is_not_kept() {
        let cache = ItemCache::new(1 << 20);
        let owner = cache.new_owner();
        for edit in [put(name(9), "new"), Edit::Remove { key: name(9) }] {
            let Answer::Unknown(stamp) = cache.find(owner, stretch()) else { panic!("known") };
            cache.note(owner, &edit);
            cache.keep(owner, stretch(), stamp, some(NAME.offset, "old"));
            assert_eq!(known(&cache, owner, stretch()), None);
        }
    }

    #[test]
    fn other_states_are_other_owners() {
        let cache = ItemCache::new(1 << 20);
        let (one, other) = (cache.new_owner(), cache.new_owner());
        let inode = Key::new(5, kind::INODE, 0);
        let record = Stretch::of(inode).expect("inodes are kept");
        cache.note(one, &put(inode, "record"));
        assert_eq!(known(&cache, one, record), Some(some(0, "record")));
        assert_eq!(known(&cache, other, record), None);
        let block = Item::with_block("record", Block::fresh(vec![1]));
        cache.note(one, &Edit::Put { key: inode, item: block });
        assert_eq!(known(&cache, one, record), None, "an item with a block is not kept");
    }

    #[test]
    fn places_are_few_and_values_short() {
        let cache = ItemCache::new(SETS_BYTES);
        let owner = cache.new_owner();
        let record = |object| Stretch::of(Key::new(object, kind::INODE, 0)).expect("kept");
        (0..100).for_each(|object| cache.note(owner, &put(Key::new(object, kind::INODE, 0), "x")));
        let kept = (0..100).filter(|object| known(&cache, owner, record(*object)).is_some());
        assert_eq!(kept.count(), WAYS);
        let long = Item::plain(vec![0; super::VALUE_BYTES_KEPT_MAX + 1]);
        cache.note(owner, &Edit::Put { key: Key::new(99, kind::INODE, 0), item: long });
        assert_eq!(known(&cache, owner, record(99)), None);
        let nothing = ItemCache::new(0);
        nothing.note(owner, &put(NAME, "x"));
        assert_eq!(known(&nothing, owner, stretch()), None);
    }

    #[test]
    fn names_of_any_length_are_kept() {
        let cache = ItemCache::new(1 << 20);
        let owner = cache.new_owner();
        learn(&cache, owner, None);
        for len in [ENTRY_BYTES - 1, ENTRY_BYTES, ENTRY_BYTES + 1, 265] {
            let value = Bytes::from(vec![b'n'; len]);
            cache.note(owner, &Edit::Put { key: name(7), item: Item::plain(value.clone()) });
            let at = NAME.offset + 7;
            assert_eq!(known(&cache, owner, stretch()), Some(Some((at, value))), "{len} bytes");
        }
    }

    #[test]
    fn a_walk_over_more_than_there_are_places_finds_some() {
        let cache = ItemCache::new(SETS_BYTES);
        let owner = cache.new_owner();
        let inode = |object| Key::new(object, kind::INODE, 0);
        let mut found = 0;
        for object in (0..WAYS as u64 + 4).cycle().take(1000) {
            let record = Stretch::of(inode(object)).expect("kept");
            match cache.find(owner, record) {
                Answer::Known(_) => found += 1,
                Answer::Unknown(stamp) => {
                    cache.keep(owner, record, stamp, some(0, "record"));
                }
            }
        }
        assert!((500..1000).contains(&found), "{found} of 1000");
    }

    #[test]
    fn what_is_not_there_goes_first() {
        let cache = ItemCache::new(SETS_BYTES);
        let owner = cache.new_owner();
        let name = |at: u64| Stretch::of(Key::new(5, kind::ENTRY, at << 8)).expect("kept");
        let learn = |at: u64, content: super::Content| {
            let Answer::Unknown(stamp) = cache.find(owner, name(at)) else { panic!("known") };
            cache.keep(owner, name(at), stamp, content);
        };
        (0..WAYS as u64 - 1).for_each(|at| learn(at, some(at << 8, "a file")));
        (100..200).for_each(|at| learn(at, None));
        let is_there = |at: &u64| known(&cache, owner, name(*at)) == Some(some(*at << 8, "a file"));
        assert_eq!((0..WAYS as u64 - 1).filter(is_there).count(), WAYS - 1);
        assert_eq!(known(&cache, owner, name(199)), Some(None), "the last is known");
        cache.note(owner, &Edit::Put { key: name(199).key(199 << 8), item: Item::plain("new") });
        learn(300, None);
        let is_there = known(&cache, owner, name(199)).is_some();
        let kept = (0..WAYS as u64 - 1).filter(|at| known(&cache, owner, name(*at)).is_some());
        assert_eq!(kept.count() + usize::from(is_there), WAYS - 1, "all were there: any one goes");
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
