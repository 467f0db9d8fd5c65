//! Items of states, from memory or from the rows.

use super::Shared;
use crate::catalogue::Link;
use crate::chain::{self, Asked, Page};
use crate::format::StoredItem;
use crate::item_cache::{Known, KnownPart, Ticket};
use marram_format::record::Entry;
use marram_store::{Key, Result, kind};

/// Rows of an object that come with the first of them from a database that is far away: of most
/// objects that is all.
const OBJECT_ROWS: usize = 64;
/// Inodes of a directory that are worth a question of their own.
const FORESEEN_MIN: usize = 2;

impl Shared {
    /// The item under a key of the state that lies on some lines.
    pub(crate) fn item(&self, links: &[Link], key: Key) -> Result<Option<StoredItem>> {
        let ticket = match self.items.find(links, key) {
            Known::Item(item) => return Ok(item),
            Known::Nothing(ticket, false) if self.is_far() => {
                let (from, to) = (Key::new(key.object, 0, 0), last_of(key.object, u8::MAX));
                let asked = Asked { from, to, limit: OBJECT_ROWS, descending: false };
                let page = chain::page(&self.rows, links, asked)?;
                self.items.learn_page(&ticket, asked, &page);
                self.foresee(links, &page);
                if key <= page.complete_to {
                    return Ok(page.items.get(&key).cloned());
                }
                ticket
            }
            Known::Nothing(ticket, _) => ticket,
        };
        let item = chain::get(&self.rows, links, key)?;
        self.items.learn(&ticket, key, item.as_ref());
        Ok(item)
    }

    /// A page of that state.
    pub(crate) fn page(&self, links: &[Link], asked: Asked) -> Result<Page> {
        if asked.from.object != asked.to.object {
            return chain::page(&self.rows, links, asked);
        }
        let ticket = match self.items.find_part(links, asked) {
            KnownPart::Page(page) => return Ok(page),
            KnownPart::Nothing(ticket) => ticket,
        };
        // What comes next in the object is likely to be asked for next.
        let to = match self.is_far() && !asked.descending {
            true => last_of(asked.to.object, asked.to.kind),
            false => asked.to,
        };
        let wide = Asked { to, ..asked };
        let mut page = chain::page(&self.rows, links, wide)?;
        self.items.learn_page(&ticket, wide, &page);
        self.foresee(links, &page);
        if !asked.descending && page.complete_to > asked.to {
            page.complete_to = asked.to;
            page.items.retain(|key, _| *key <= asked.to);
        }
        Ok(page)
    }

    /// Asks for the inodes of a page of a directory, all at once: a name that was looked for is
    /// asked for its attributes next, and so are its neighbours.
    fn foresee(&self, links: &[Link], page: &Page) {
        if !self.is_far() {
            return;
        }
        let entries = page.items.iter().filter(|(key, _)| key.kind == kind::ENTRY);
        let inode = |(_, item): (&Key, &StoredItem)| {
            let entry = Entry::decode(&item.value).ok()?;
            Some(Key::new(entry.ino, kind::INODE, 0))
        };
        let unknown = |key: Key| match self.items.find(links, key) {
            Known::Item(_) => None,
            Known::Nothing(ticket, _) => Some((key, ticket)),
        };
        let (keys, tickets): (Vec<Key>, Vec<Ticket>) =
            entries.filter_map(inode).filter_map(unknown).unzip();
        if keys.len() < FORESEEN_MIN {
            return;
        }
        // Where it fails, what is asked for next fails and says so.
        let found = chain::get_all(&self.rows, links, &keys).unwrap_or_default();
        for ((key, ticket), item) in keys.iter().zip(&tickets).zip(&found) {
            self.items.learn(ticket, *key, item.as_ref());
        }
    }

    /// Whether a question to the database is a round trip.
    pub(super) fn is_far(&self) -> bool {
        self.rows.database().is_far()
    }
}

fn last_of(object: u64, kind: u8) -> Key {
    Key::new(object, kind, u64::MAX)
}
