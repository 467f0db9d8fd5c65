//! Items that were read or published, for as long as they are true.
//!
//! What a state has under its keys changes by entries of the log alone. So whatever was read stays
//! known until an entry that edits its line has been taken in, and that entry says what is there
//! then. Nothing is kept that could have changed unseen: of a store that is open for reading only,
//! which does not follow the log, the live ends are not remembered.
//!
//! **Ranges** are known, not single items: inside of one, a key without an item has none. An object
//! that a batch has begun is known whole, so no question is ever asked about it.
//!
//! A read takes a [`Ticket`] before it asks the database, and what it learns counts only if no
//! entry has edited the line meanwhile: else the answer may be of before, and the entry would be
//! forgotten. An answer that runs ahead of the log is no harm: the entry that it has seen is taken
//! in later, and sets the same.
//!
//! Objects that are not asked for make room in two generations: when the younger one is full, the
//! older one goes, and what is asked for there moves into the younger one.

use crate::catalogue::Link;
use crate::chain::{Asked, Page};
use crate::format::{Section, StoredItem};
use marram_store::Key;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What an item takes in memory beside its value, in bytes.
const ITEM_BYTES: usize = 160;
/// What a range takes, and an object.
const RANGE_BYTES: usize = 64;
const OBJECT_BYTES: usize = 192;

/// Where a key is in its object: its kind and offset.
type Position = u128;

/// The last position of an object.
const END: Position = ((u8::MAX as u128) << 64) | u64::MAX as u128;

fn position(key: Key) -> Position {
    (Position::from(key.kind) << 64) | Position::from(key.offset)
}

fn key_at(object: u64, at: Position) -> Key {
    // Both halves fit: a position is made of a kind and an offset.
    Key::new(object, (at >> 64) as u8, at as u64)
}

/// The items of states that are known.
pub(crate) struct ItemCache {
    bytes_max: usize,
    /// The log is followed, so live ends can be remembered.
    follows: bool,
    inner: Mutex<Inner>,
}

/// What a read must have had before it asked, so that its answer can be kept.
pub(crate) struct Ticket {
    end: Option<Link>,
    state: u64,
    edits: u64,
}

/// What is known under a key.
pub(crate) enum Known {
    /// The item, or that there is none.
    Item(Option<StoredItem>),
    /// Nothing; whether the first items of the object are known.
    Nothing(Ticket, bool),
}

/// What is known of a part of an object.
pub(crate) enum KnownPart {
    /// Its first items, or its last ones.
    Page(Page),
    /// Nothing; whether the first items of its kind in the object are known.
    Nothing(Ticket, bool),
}

#[derive(Default)]
struct Inner {
    /// States, by the line and period that they end with.
    states: HashMap<Link, State>,
    young: HashMap<(u64, u64), Object>,
    old: HashMap<(u64, u64), Object>,
    /// Bytes of the young ones.
    bytes: usize,
    /// Numbers of states that were given.
    given: u64,
    is_off: bool,
}

struct State {
    number: u64,
    links: Vec<Link>,
    /// Entries that have edited it.
    edits: u64,
}

#[derive(Default)]
struct Object {
    items: BTreeMap<Position, StoredItem>,
    /// Ranges that are known, from the first position to the last one of each.
    ranges: BTreeMap<Position, Position>,
    /// Bytes of the items, and of all of it when it was weighed last.
    items_bytes: usize,
    bytes: usize,
}

impl ItemCache {
    /// One that takes about so many bytes of memory, of a client that follows the log or does not.
    pub(crate) fn new(bytes_max: usize, follows: bool) -> ItemCache {
        ItemCache { bytes_max, follows, inner: Mutex::default() }
    }

    fn ticket(&self, inner: &mut Inner, links: &[Link]) -> Ticket {
        let end = links.first().filter(|end| self.follows || end.period.is_some());
        end.map_or(Ticket { end: None, state: 0, edits: 0 }, |end| inner.ticket(*end, links))
    }

    /// What is known under a key of the state that lies on these lines.
    pub(crate) fn find(&self, links: &[Link], key: Key) -> Known {
        let mut inner = self.inner.lock();
        let ticket = self.ticket(&mut inner, links);
        let Some(object) = inner.object((ticket.state, key.object), self.bytes_max) else {
            return Known::Nothing(ticket, false);
        };
        let at = position(key);
        match object.around(at) {
            Some(_) => Known::Item(object.items.get(&at).cloned()),
            None => Known::Nothing(ticket, object.around(0).is_some()),
        }
    }

    /// What is known of the beginning of a part of an object, or of its end.
    pub(crate) fn find_part(&self, links: &[Link], asked: Asked) -> KnownPart {
        let mut inner = self.inner.lock();
        let ticket = self.ticket(&mut inner, links);
        let Some(object) = inner.object((ticket.state, asked.from.object), self.bytes_max) else {
            return KnownPart::Nothing(ticket, false);
        };
        let first = position(Key::new(asked.from.object, asked.from.kind, 0));
        match object.part(asked) {
            Some(page) => KnownPart::Page(page),
            None => KnownPart::Nothing(ticket, object.around(first).is_some()),
        }
    }

    /// Takes note of what is under a key.
    pub(crate) fn learn(&self, ticket: &Ticket, key: Key, item: Option<&StoredItem>) {
        self.learn_of(ticket, key.object, |object| object.set(position(key), item));
    }

    /// Takes note of a page of an object.
    pub(crate) fn learn_page(&self, ticket: &Ticket, asked: Asked, page: &Page) {
        let (from, to) = match asked.descending {
            true => (page.complete_to, asked.to),
            false => (asked.from, page.complete_to),
        };
        if from.object != to.object || from > to {
            return;
        }
        self.learn_of(ticket, from.object, |object| {
            for (key, item) in page.items.range(from..=to) {
                object.put(position(*key), item);
            }
            object.know(position(from), position(to));
        });
    }

    fn learn_of(&self, ticket: &Ticket, number: u64, learn: impl FnOnce(&mut Object)) {
        let mut inner = self.inner.lock();
        let is_true = |state: &State| state.number == ticket.state && state.edits == ticket.edits;
        let state = ticket.end.and_then(|end| inner.states.get(&end));
        if !inner.is_off && state.is_some_and(is_true) {
            inner.change((ticket.state, number), self.bytes_max, learn);
        }
    }

    /// Takes note that an object begins: nothing has ever been under its keys.
    pub(crate) fn begin(&self, links: &[Link], number: u64) {
        let mut inner = self.inner.lock();
        if !inner.is_off {
            let state = self.ticket(&mut inner, links).state;
            inner.change((state, number), self.bytes_max, |object| object.know(0, END));
        }
    }

    /// Takes in what an entry has edited, once the rows have followed it. What this client has
    /// edited itself is kept also of objects that were not known.
    pub(crate) fn take(&self, sections: &[Section], is_own: bool) {
        let mut inner = self.inner.lock();
        for section in sections {
            let end = Link { line: section.line, period: None };
            let Some(state) = inner.states.get_mut(&end) else { continue };
            state.edits += 1;
            let number = state.number;
            for (key, item) in &section.edits {
                let at = (number, key.object);
                if is_own || inner.is_known(at) {
                    let set = |object: &mut Object| object.set(position(*key), item.as_ref());
                    inner.change(at, self.bytes_max, set);
                }
            }
        }
    }

    /// Forgets everything, and remembers anew or no more.
    pub(crate) fn clear(&self, is_off: bool) {
        let mut inner = self.inner.lock();
        // Numbers of states go on, so that no ticket of before counts.
        *inner = Inner { given: inner.given, is_off, ..Inner::default() };
    }
}

impl Inner {
    fn ticket(&mut self, end: Link, links: &[Link]) -> Ticket {
        let known = self.states.get(&end).filter(|state| state.links == links);
        if let Some(state) = known {
            return Ticket { end: Some(end), state: state.number, edits: state.edits };
        }
        // Objects of the same end on other lines are not found any more, and go with their time.
        self.given += 1;
        let state = State { number: self.given, links: links.to_vec(), edits: 0 };
        self.states.insert(end, state);
        Ticket { end: Some(end), state: self.given, edits: 0 }
    }

    fn is_known(&self, at: (u64, u64)) -> bool {
        self.young.contains_key(&at) || self.old.contains_key(&at)
    }

    /// An object, which is young from then on.
    fn object(&mut self, at: (u64, u64), bytes_max: usize) -> Option<&Object> {
        if let Some(object) = self.old.remove(&at) {
            self.bytes += object.bytes;
            self.young.insert(at, object);
            self.age(at, bytes_max);
        }
        self.young.get(&at)
    }

    fn change(&mut self, at: (u64, u64), bytes_max: usize, change: impl FnOnce(&mut Object)) {
        let known = self.old.remove(&at);
        self.bytes += known.as_ref().map_or(0, |object| object.bytes);
        let object = self.young.entry(at).or_insert_with(|| known.unwrap_or_default());
        let before = object.bytes;
        change(object);
        object.bytes = object.weight();
        self.bytes = (self.bytes + object.bytes).saturating_sub(before);
        self.age(at, bytes_max);
    }

    /// Lets the older ones go when the younger ones are too many. The one in use stays young.
    fn age(&mut self, used: (u64, u64), bytes_max: usize) {
        if self.bytes <= bytes_max / 2 {
            return;
        }
        // One that is too large by itself puts no other one out.
        if let Some(object) = self.young.remove(&used) {
            self.bytes -= object.bytes;
            if object.bytes > bytes_max / 2 {
                return;
            }
            self.young.insert(used, object);
        }
        self.old = std::mem::take(&mut self.young);
        self.bytes = 0;
        if let Some(object) = self.old.remove(&used) {
            self.bytes = object.bytes;
            self.young.insert(used, object);
        }
        let live: HashSet<u64> =
            self.old.keys().chain(self.young.keys()).map(|(state, _)| *state).collect();
        self.states.retain(|_, state| live.contains(&state.number));
    }
}

impl Object {
    /// The known range that a position is in.
    fn around(&self, at: Position) -> Option<(Position, Position)> {
        let (from, to) = self.ranges.range(..=at).next_back()?;
        (at <= *to).then_some((*from, *to))
    }

    fn part(&self, asked: Asked) -> Option<Page> {
        let (first, last) = (position(asked.from), position(asked.to));
        let (from, to) = match asked.descending {
            true => (self.around(last)?.0.max(first), last),
            false => (first, self.around(first)?.1.min(last)),
        };
        let object = asked.from.object;
        let found = self.items.range(from..=to);
        let pair = |(at, item): (&Position, &StoredItem)| (key_at(object, *at), item.clone());
        let items: BTreeMap<Key, StoredItem> = match asked.descending {
            true => found.rev().take(asked.limit).map(pair).collect(),
            false => found.take(asked.limit).map(pair).collect(),
        };
        let is_full = items.len() >= asked.limit;
        let complete_to = match asked.descending {
            true => items.first_key_value().filter(|_| is_full).map(|(key, _)| *key),
            false => items.last_key_value().filter(|_| is_full).map(|(key, _)| *key),
        };
        let end = key_at(object, if asked.descending { from } else { to });
        Some(Page { items, complete_to: complete_to.unwrap_or(end) })
    }

    fn weight(&self) -> usize {
        OBJECT_BYTES + self.items_bytes + RANGE_BYTES * self.ranges.len()
    }

    fn put(&mut self, at: Position, item: &StoredItem) {
        self.items_bytes += ITEM_BYTES + item.value.len();
        if let Some(before) = self.items.insert(at, item.clone()) {
            self.items_bytes -= ITEM_BYTES + before.value.len();
        }
    }

    fn set(&mut self, at: Position, item: Option<&StoredItem>) {
        match item {
            Some(item) => self.put(at, item),
            None => {
                if let Some(before) = self.items.remove(&at) {
                    self.items_bytes -= ITEM_BYTES + before.value.len();
                }
            }
        }
        self.know(at, at);
    }

    /// A range is known from now on, joined with those that it meets.
    fn know(&mut self, mut from: Position, mut to: Position) {
        if let Some((first, last)) = self.around(from.saturating_sub(1)) {
            (from, to) = (from.min(first), to.max(last));
        }
        while let Some((first, last)) = self
            .ranges
            .range(from..=to.saturating_add(1))
            .next()
            .map(|(first, last)| (*first, *last))
        {
            self.ranges.remove(&first);
            to = to.max(last);
        }
        self.ranges.insert(from, to);
    }
}
