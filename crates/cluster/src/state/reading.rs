//! Items of states, from memory or from the rows.

use super::Shared;
use crate::catalogue::Link;
use crate::chain::{self, Asked, Page};
use crate::format::StoredItem;
use crate::item_cache::{Known, KnownPart, Ticket};
use marram_format::record::Entry;
use marram_store::{Key, Result, kind};
use std::collections::BTreeSet;

/// Rows of an object that come with the first of them from a database that is far away: of most
/// objects that is all.
const OBJECT_ROWS: usize = 64;
/// Inodes of a directory that are worth a question of their own.
const FORESEEN_MIN: usize = 2;
/// Rows of each of them.
const FORESEEN_ROWS: usize = 8;
/// Ranges that one question names: it has to be short, since a server does not read on while it
/// waits for its answers to be read.
const RANGES_AT_ONCE: usize = 128;

impl Shared {
    /// The item under a key of the state that lies on some lines.
    pub(crate) fn item(&self, links: &[Link], key: Key) -> Result<Option<StoredItem>> {
        let (ticket, has_begin) = match self.items.find(links, key) {
            Known::Item(item) => return Ok(item),
            Known::Nothing(ticket, has_begin) => (ticket, has_begin),
        };
        if self.is_far() {
            // The object from its beginning; of a larger one what comes next.
            let from = if has_begin { key } else { Key::new(key.object, 0, 0) };
            let to = last_of(key.object, u8::MAX);
            let asked = Asked { from, to, limit: OBJECT_ROWS, descending: false };
            let page = chain::page(&self.rows, links, asked)?;
            self.items.learn_page(&ticket, asked, &page);
            if !has_begin {
                self.foresee(links, &page);
            }
            if key <= page.complete_to {
                return Ok(page.items.get(&key).cloned());
            }
        }
        let item = chain::get(&self.rows, links, key)?;
        self.items.learn(&ticket, key, item.as_ref());
        Ok(item)
    }

    /// A page of that state.
    pub(crate) fn page(&self, links: &[Link], asked: Asked) -> Result<Page> {
        if asked.from.object != asked.to.object {
            return chain::page(&self.rows, links, asked);
        }
        let (ticket, has_begin) = match self.items.find_part(links, asked) {
            KnownPart::Page(page) => return Ok(page),
            KnownPart::Nothing(ticket, has_begin) => (ticket, has_begin),
        };
        let is_wide = self.is_far() && !asked.descending;
        // What comes before and next in the object is likely to be asked for next.
        let first = Key::new(asked.from.object, asked.from.kind, 0);
        let to = if is_wide { last_of(asked.to.object, asked.to.kind) } else { asked.to };
        if is_wide && !has_begin && asked.from != first {
            let page = self.learned(links, &ticket, Asked { from: first, to, ..asked })?;
            if page.complete_to >= asked.to {
                return Ok(page.within(asked));
            }
        }
        let page = self.learned(links, &ticket, Asked { to, ..asked })?;
        Ok(if is_wide { page.within(asked) } else { page })
    }

    /// A page from the database, of which note is taken.
    fn learned(&self, links: &[Link], ticket: &Ticket, asked: Asked) -> Result<Page> {
        let page = chain::page(&self.rows, links, asked)?;
        self.items.learn_page(ticket, asked, &page);
        self.foresee(links, &page);
        Ok(page)
    }

    /// Asks for what a page of a directory names, all at once: a name that was looked for is asked
    /// for its attributes next, and so are its neighbours.
    fn foresee(&self, links: &[Link], page: &Page) {
        if !self.is_far() {
            return;
        }
        let entries = page.items.iter().filter(|(key, _)| key.kind == kind::ENTRY);
        let inode = |(_, item): (&Key, &StoredItem)| {
            let entry = Entry::decode(&item.value).ok()?;
            Some(Key::new(entry.ino, kind::INODE, 0))
        };
        self.learn_all(links, &self.unknown(links, entries.filter_map(inode)));
    }

    /// Asks for the inodes of a snapshot in which something has changed, all at once: the rest of
    /// each is asked for next. Of a dataset these lines up to its period are no state that stays.
    pub(super) fn foresee_changed(&self, links: &[Link], keys: &[Key]) {
        if !self.is_far() {
            return;
        }
        let objects: BTreeSet<u64> = keys.iter().map(|key| key.object).collect();
        let inodes = objects.into_iter().map(|object| Key::new(object, kind::INODE, 0));
        self.learn_all(links, &self.unknown(links, inodes));
    }

    /// Asks for items of a snapshot, all at once.
    pub(crate) fn foresee_items(&self, links: &[Link], keys: &[Key]) {
        let unknown = self.unknown(links, keys.iter().copied());
        // What is asked for next fails too then, and says so.
        let _asked_for_again = self.learn_items(links, &unknown);
    }

    /// Those of these keys under which it is not known what is there.
    fn unknown(&self, links: &[Link], keys: impl Iterator<Item = Key>) -> Vec<(Key, Ticket)> {
        let unknown = |key: Key| match self.items.find(links, key) {
            Known::Item(_) => None,
            Known::Nothing(ticket, _) => Some((key, ticket)),
        };
        keys.filter_map(unknown).collect()
    }

    fn learn_all(&self, links: &[Link], unknown: &[(Key, Ticket)]) {
        if unknown.len() < FORESEEN_MIN {
            return;
        }
        let learned = match self.rows.database().asks_ranges_at_once() {
            true => self.learn_objects(links, unknown),
            false => self.learn_items(links, unknown),
        };
        // What is asked for next fails too then, and says so.
        let _asked_for_again = learned;
    }

    /// Inodes with the first items that they have beside their records: for most that is all.
    fn learn_objects(&self, links: &[Link], unknown: &[(Key, Ticket)]) -> Result<()> {
        let asked = |(key, _): &(Key, Ticket)| {
            let (from, to) = (Key::new(key.object, 0, 0), last_of(key.object, u8::MAX));
            Asked { from, to, limit: FORESEEN_ROWS, descending: false }
        };
        let ranges: usize = links.iter().map(|link| 1 + usize::from(link.period.is_some())).sum();
        for some in unknown.chunks((RANGES_AT_ONCE / ranges.max(1)).max(1)) {
            let all: Vec<Asked> = some.iter().map(asked).collect();
            let pages = chain::pages(&self.rows, links, &all)?;
            for (((_, ticket), asked), page) in some.iter().zip(&all).zip(&pages) {
                self.items.learn_page(ticket, *asked, page);
            }
        }
        Ok(())
    }

    fn learn_items(&self, links: &[Link], unknown: &[(Key, Ticket)]) -> Result<()> {
        let keys: Vec<Key> = unknown.iter().map(|(key, _)| *key).collect();
        let found = chain::get_all(&self.rows, links, &keys)?;
        for ((key, ticket), item) in unknown.iter().zip(&found) {
            self.items.learn(ticket, *key, item.as_ref());
        }
        Ok(())
    }

    /// Whether a question to the database is a round trip.
    pub(crate) fn is_far(&self) -> bool {
        self.rows.database().is_far()
    }
}

fn last_of(object: u64, kind: u8) -> Key {
    Key::new(object, kind, u64::MAX)
}
