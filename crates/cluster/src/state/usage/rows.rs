//! The rows of lines, key by key: those of one key and line are of one moment.

use crate::database::{Range, Table};
use crate::format::{Head, Past, StoredItem, keys};
use crate::rows::Rows;
use marram_store::{Key, Result};
use std::collections::BTreeMap;

/// Rows of a line that one question asks for, where there are few lines.
const ROWS_ASKED: usize = 1024;
/// Rows that are held of all lines that are read together.
const ROWS_HELD: usize = 1 << 16;
/// The fewest that one question asks for.
const ROWS_ASKED_MIN: usize = 16;

/// A row: from which period on, and up to which.
pub(super) struct Lived {
    pub(super) birth: u64,
    /// None of a head.
    pub(super) death: Option<u64>,
    pub(super) item: Option<StoredItem>,
}

/// The rows of a line on their way.
struct Stream {
    line: u64,
    /// By keys.
    rows: BTreeMap<Key, Vec<Lived>>,
    /// Where the next question begins.
    next: Option<Key>,
}

/// The rows of some lines, by ascending keys.
pub(super) struct Streams<'r> {
    rows: &'r Rows,
    streams: Vec<Stream>,
    asked: usize,
}

impl<'r> Streams<'r> {
    pub(super) fn new(rows: &'r Rows, lines: &[u64]) -> Streams<'r> {
        let asked = (ROWS_HELD / lines.len().max(1)).clamp(ROWS_ASKED_MIN, ROWS_ASKED);
        let stream =
            |line: &u64| Stream { line: *line, rows: BTreeMap::new(), next: Some(Key::MIN) };
        Streams { rows, streams: lines.iter().map(stream).collect(), asked }
    }

    /// The rows of all lines under the next key; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<BTreeMap<u64, Vec<Lived>>>> {
        for stream in &mut self.streams {
            stream.fill(self.rows, self.asked)?;
        }
        self.streams.retain(|stream| !stream.rows.is_empty());
        let first = |stream: &Stream| stream.rows.first_key_value().map(|(key, _)| *key);
        let Some(key) = self.streams.iter().filter_map(first).min() else { return Ok(None) };
        let of_key = |stream: &mut Stream| Some((stream.line, stream.rows.remove(&key)?));
        Ok(Some(self.streams.iter_mut().filter_map(of_key).collect()))
    }
}

impl Stream {
    /// Asks for more, if nothing is left.
    fn fill(&mut self, rows: &Rows, asked: usize) -> Result<()> {
        let mut limit = asked;
        while self.rows.is_empty()
            && let Some(from) = self.next
        {
            let (heads, pasts) = (
                Range::first(
                    Table::Heads,
                    keys::head(self.line, from),
                    keys::head(self.line, Key::MAX),
                    limit,
                ),
                Range::first(
                    Table::Pasts,
                    keys::past(self.line, from, 0),
                    keys::past(self.line, Key::MAX, u64::MAX),
                    limit,
                ),
            );
            let mut found = rows.read(&[heads, pasts])?.into_iter();
            let (heads, pasts) =
                (found.next().unwrap_or_default(), found.next().unwrap_or_default());
            // Behind this key not all may be there; of the last past, perhaps not all of its key.
            let mut end: Option<Key> = None;
            if heads.len() == limit
                && let Some((last, _)) = heads.last()
            {
                end = keys::decode_head(last)?.1.successor();
            }
            if pasts.len() == limit
                && let Some((last, _)) = pasts.last()
            {
                let last = keys::decode_past(last)?.1;
                end = Some(end.map_or(last, |end| end.min(last)));
            }
            for (row, value) in pasts {
                let ((_, key, birth), Past { death, item }) =
                    (keys::decode_past(&row)?, Past::decode(&value)?);
                let lived = Lived { birth, death: Some(death), item };
                self.rows.entry(key).or_default().push(lived);
            }
            for (row, value) in heads {
                let (key, Head { birth, item }) =
                    (keys::decode_head(&row)?.1, Head::decode(&value)?);
                self.rows.entry(key).or_default().push(Lived { birth, death: None, item });
            }
            if let Some(end) = end {
                drop(self.rows.split_off(&end));
            }
            // One key that has more rows than were asked for.
            limit *= 2;
            self.next = end;
        }
        Ok(())
    }
}
