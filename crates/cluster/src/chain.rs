//! The items of a state, read along the lines that it lies on.
//!
//! The nearest line that has a row for a key decides. A line that a state has only up to a period
//! is asked for its head, if that was born by then, and else for its past.

use crate::catalogue::Link;
use crate::database::{Range, Row, Table};
use crate::format::{Head, Past, StoredItem, keys};
use crate::rows::Rows;
use marram_store::{Key, Result};
use std::collections::BTreeMap;

/// Keys that one question asks for, of a state that lies on several lines.
const KEYS_ASKED: usize = 64;
/// The same where one line has all of it, so that each key is one row.
const ROWS_ASKED: usize = 512;

/// What a line has under a key: none inside where an inherited item was removed.
type Found = Option<StoredItem>;

/// Items that a page has found, and how far it has come.
pub(crate) struct Page {
    /// The items.
    pub(crate) items: BTreeMap<Key, StoredItem>,
    /// All items up to this key are in the page.
    pub(crate) complete_to: Key,
}

impl Page {
    /// What it has of a part that is asked for in ascending order.
    pub(crate) fn within(mut self, asked: Asked) -> Page {
        self.items.retain(|key, _| (asked.from..=asked.to).contains(key));
        self.complete_to = self.complete_to.min(asked.to);
        self
    }
}

/// What part of a state is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) from: Key,
    pub(crate) to: Key,
    /// Rows of each line.
    pub(crate) limit: usize,
    /// From the end on.
    pub(crate) descending: bool,
}

/// The item under a key.
pub(crate) fn get(rows: &Rows, links: &[Link], key: Key) -> Result<Option<StoredItem>> {
    Ok(get_all(rows, links, &[key])?.pop().flatten())
}

/// The items under some keys, many in one question.
pub(crate) fn get_all(
    rows: &Rows,
    links: &[Link],
    keys: &[Key],
) -> Result<Vec<Option<StoredItem>>> {
    let mut items = Vec::with_capacity(keys.len());
    let is_plain = links.len() == 1 && links.iter().all(|link| link.period.is_none());
    for keys in keys.chunks(if is_plain { ROWS_ASKED } else { KEYS_ASKED }) {
        let of_links = |key: &Key| links.iter().flat_map(|link| of_key(link, *key)).collect();
        let ranges: Vec<Vec<Range>> = keys.iter().map(of_links).collect();
        let mut answers = rows.read(&ranges.concat())?.into_iter();
        rows.stir();
        for _ in keys {
            items.push(found(links, &mut answers)?);
        }
    }
    Ok(items)
}

/// Takes the answers about one key.
fn found(
    links: &[Link],
    answers: &mut impl Iterator<Item = Vec<Row>>,
) -> Result<Option<StoredItem>> {
    let mut decided: Option<Found> = None;
    for link in links {
        let mut next = || answers.next().and_then(|rows| rows.into_iter().next());
        let head = next();
        let past = link.period.and_then(|_| next());
        if decided.is_none() {
            decided = nearest(link, head, past)?;
        }
    }
    Ok(decided.flatten())
}

fn of_key(link: &Link, key: Key) -> Vec<Range> {
    let mut ranges = vec![Range::one(Table::Heads, keys::head(link.line, key))];
    if let Some(period) = link.period {
        let (from, to) = (keys::past(link.line, key, 0), keys::past(link.line, key, period));
        ranges.push(Range { table: Table::Pasts, from, to, limit: 1, descending: true });
    }
    ranges
}

fn nearest(link: &Link, head: Option<Row>, past: Option<Row>) -> Result<Option<Found>> {
    if let Some((_, value)) = head {
        let head = Head::decode(&value)?;
        if link.period.is_none_or(|period| head.birth <= period) {
            return Ok(Some(head.item));
        }
    }
    let Some(((_, value), period)) = past.zip(link.period) else { return Ok(None) };
    let past = Past::decode(&value)?;
    Ok((past.death > period).then_some(past.item))
}

/// A page of the items between two keys.
pub(crate) fn page(rows: &Rows, links: &[Link], asked: Asked) -> Result<Page> {
    let found = pages(rows, links, &[asked])?.pop();
    Ok(found.unwrap_or_else(|| Gathered::new(asked).finish()))
}

/// Pages of several parts, in one question.
pub(crate) fn pages(rows: &Rows, links: &[Link], all: &[Asked]) -> Result<Vec<Page>> {
    let ranges = |asked: &Asked| links.iter().flat_map(|link| of_page(link, *asked)).collect();
    let ranges: Vec<Vec<Range>> = all.iter().map(ranges).collect();
    let mut answers = rows.read(&ranges.concat())?.into_iter();
    rows.stir();
    let mut pages = Vec::with_capacity(all.len());
    for asked in all {
        let mut page = Gathered::new(*asked);
        for link in links {
            page.add_heads(link, answers.next().unwrap_or_default())?;
            if let Some(period) = link.period {
                page.add_pasts((rows, links), period, answers.next().unwrap_or_default())?;
            }
        }
        pages.push(page.finish());
    }
    Ok(pages)
}

fn of_page(link: &Link, asked: Asked) -> Vec<Range> {
    let Asked { from, to, limit, descending } = asked;
    let line = link.line;
    let (first, last) = (keys::head(line, from), keys::head(line, to));
    let mut ranges = vec![Range { table: Table::Heads, from: first, to: last, limit, descending }];
    if link.period.is_some() {
        let (from, to) = (keys::past(line, from, 0), keys::past(line, to, u64::MAX));
        ranges.push(Range { table: Table::Pasts, from, to, limit, descending });
    }
    ranges
}

/// Rows of several lines on their way into a page.
struct Gathered {
    asked: Asked,
    complete_to: Key,
    found: BTreeMap<Key, Found>,
}

impl Gathered {
    fn new(asked: Asked) -> Gathered {
        let complete_to = if asked.descending { asked.from } else { asked.to };
        Gathered { asked, complete_to, found: BTreeMap::new() }
    }

    /// The page ends with a key: behind it, rows were not read.
    fn end_with(&mut self, key: Key) {
        self.complete_to = match self.asked.descending {
            true => self.complete_to.max(key),
            false => self.complete_to.min(key),
        };
    }

    /// A nearer line has decided.
    fn add(&mut self, key: Key, item: Found) {
        self.found.entry(key).or_insert(item);
    }

    fn add_heads(&mut self, link: &Link, heads: Vec<Row>) -> Result<()> {
        if heads.len() >= self.asked.limit
            && let Some((last, _)) = heads.last()
        {
            self.end_with(keys::decode_head(last)?.1);
        }
        for (row, value) in heads {
            let head = Head::decode(&value)?;
            if link.period.is_none_or(|period| head.birth <= period) {
                self.add(keys::decode_head(&row)?.1, head.item);
            }
        }
        Ok(())
    }

    fn add_pasts(
        &mut self,
        (rows, links): (&Rows, &[Link]),
        period: u64,
        pasts: Vec<Row>,
    ) -> Result<()> {
        // Of the last key not all rows may be there: it is asked for by itself.
        let mut cut = None;
        if pasts.len() >= self.asked.limit
            && let Some((last, _)) = pasts.last()
        {
            let key = keys::decode_past(last)?.1;
            self.end_with(key);
            cut = Some(key);
        }
        for (row, value) in pasts {
            let ((_, key, birth), past) = (keys::decode_past(&row)?, Past::decode(&value)?);
            if birth <= period && period < past.death && cut != Some(key) {
                self.add(key, past.item);
            }
        }
        if let Some(key) = cut {
            self.found.insert(key, get(rows, links, key)?);
        }
        Ok(())
    }

    fn finish(self) -> Page {
        let (descending, complete_to) = (self.asked.descending, self.complete_to);
        let is_complete =
            |key: &Key| if descending { *key >= complete_to } else { *key <= complete_to };
        let items = self.found.into_iter().filter(|(key, _)| is_complete(key));
        let items = items.filter_map(|(key, item)| Some((key, item?))).collect();
        Page { items, complete_to }
    }
}
