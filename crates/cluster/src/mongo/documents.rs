//! Rows as documents, and the commands that read and write them.
//!
//! MongoDB compares binary values by their length first, and texts byte by byte: so keys are
//! texts of hexadecimal digits, which have the order of their bytes. A document has at most 16 MiB;
//! an entry that is longer lies in parts.

use super::failure::{Failure, Outcome};
use crate::database::{Guard, Range, Row, Table};
use bytes::Bytes;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use std::collections::{BTreeMap, BTreeSet};

/// The collection of what does not fit into the documents of other ones.
pub(super) const PARTS: &str = "parts";
/// Bytes of a value in one document.
const PART_BYTES: usize = 8 << 20;
/// Bytes of the rows of one command. A command is a document too.
const COMMAND_BYTES: usize = 12 << 20;
/// Rows that a command writes.
const ROWS_MAX: usize = 10_000;
/// Keys that are looked for together.
const KEYS_MAX: usize = 1000;
/// Ranges that a command reads: each is a stage of it.
const RANGES_MAX: usize = 100;
/// Bytes that a document takes beside its key and value, and more.
const DOCUMENT_BYTES: usize = 100;

/// What of a value stands in the document of its row.
struct Stored {
    value: Vec<u8>,
    /// Parts of it that stand elsewhere.
    more: usize,
}

fn key_text(key: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(u32::from(half), 16).unwrap_or('0');
    key.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn key_of(text: &str) -> Option<Bytes> {
    let pair = |pair: &[u8]| match pair {
        [high, low] => {
            let digit = |letter: u8| char::from(letter).to_digit(16);
            u8::try_from(digit(*high)? << 4 | digit(*low)?).ok()
        }
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect::<Option<Vec<u8>>>().map(Bytes::from)
}

fn binary(bytes: &[u8]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() })
}

fn part_text(table: Table, key: &[u8], number: usize) -> String {
    format!("{}/{}/{number:08x}", table.name(), key_text(key))
}

/// The parts of a row that stand elsewhere, whatever their number.
fn parts_of(table: Table, key: &[u8]) -> Document {
    let row = format!("{}/{}", table.name(), key_text(key));
    doc! { "_id": { "$gte": format!("{row}/"), "$lt": format!("{row}0") } }
}

/// Only entries are ever so long: one of them has all that many files need.
fn may_be_long(table: Table) -> bool {
    table == Table::Log
}

/// Commands that are filled with statements, each up to its measure.
struct Commands {
    all: Vec<Document>,
    verb: &'static str,
    list: &'static str,
    collection: String,
    waiting: Vec<Bson>,
    bytes: usize,
}

impl Commands {
    fn of(verb: &'static str, list: &'static str, collection: &str) -> Commands {
        let collection = collection.to_owned();
        Commands { all: Vec::new(), verb, list, collection, waiting: Vec::new(), bytes: 0 }
    }

    fn push(&mut self, statement: Document, bytes: usize) {
        if self.bytes + bytes > COMMAND_BYTES || self.waiting.len() == ROWS_MAX {
            self.close();
        }
        self.bytes += bytes + DOCUMENT_BYTES;
        self.waiting.push(statement.into());
    }

    fn close(&mut self) {
        self.bytes = 0;
        let statements = std::mem::take(&mut self.waiting);
        if !statements.is_empty() {
            let mut command = doc! { self.verb: self.collection.clone(), "ordered": true };
            command.insert(self.list, statements);
            self.all.push(command);
        }
    }

    fn finish(mut self) -> Vec<Document> {
        self.close();
        self.all
    }
}

/// The document of a row, and the statements that put its other parts.
fn document(table: Table, key: &[u8], value: &[u8], put_parts: &mut Commands) -> Outcome<Document> {
    if value.len() <= PART_BYTES {
        return Ok(doc! { "v": binary(value) });
    }
    if !may_be_long(table) {
        let (name, bytes) = (table.name(), value.len());
        let text = format!("a row of {name} has {bytes} bytes, more than a document can hold");
        return Err(Failure::Unfit(text));
    }
    let mut parts = value.chunks(PART_BYTES);
    let first = parts.next().unwrap_or_default();
    let mut count = 0_i32;
    for (number, part) in parts.enumerate() {
        count += 1;
        let query = doc! { "_id": part_text(table, key, number) };
        let statement = doc! { "q": query, "u": { "v": binary(part) }, "upsert": true };
        put_parts.push(statement, part.len());
    }
    Ok(doc! { "v": binary(first), "n": count })
}

/// Sets and removes rows.
pub(super) fn write(changes: &BTreeMap<(Table, &[u8]), Option<&[u8]>>) -> Outcome<Vec<Document>> {
    let mut commands = Vec::new();
    let mut parts_gone = Commands::of("delete", "deletes", PARTS);
    let mut parts_put = Commands::of("update", "updates", PARTS);
    for table in Table::ALL {
        let of_table = || changes.range((table, &[][..])..).take_while(move |it| it.0.0 == table);
        let mut put = Commands::of("update", "updates", table.name());
        let mut gone = Commands::of("delete", "deletes", table.name());
        for ((_, key), value) in of_table() {
            let query = doc! { "_id": key_text(key) };
            if may_be_long(table) {
                parts_gone.push(doc! { "q": parts_of(table, key), "limit": 0 }, 2 * key.len());
            }
            match value {
                Some(value) => {
                    let document = document(table, key, value, &mut parts_put)?;
                    let bytes = 2 * key.len() + value.len().min(PART_BYTES);
                    put.push(doc! { "q": query, "u": document, "upsert": true }, bytes);
                }
                None => gone.push(doc! { "q": query, "limit": 1 }, 2 * key.len()),
            }
        }
        commands.extend(put.finish());
        commands.extend(gone.finish());
    }
    Ok([parts_gone.finish(), commands, parts_put.finish()].concat())
}

/// Puts a row whose key must be free.
pub(super) fn insert(table: Table, key: &[u8], value: &[u8]) -> Outcome<Vec<Document>> {
    let mut parts = Commands::of("update", "updates", PARTS);
    let mut row = document(table, key, value, &mut parts)?;
    row.insert("_id", key_text(key));
    let put = doc! { "insert": table.name(), "documents": [row] };
    Ok([vec![put], parts.finish()].concat())
}

/// Touches a row, so that nobody else changes it in the same transaction and that it is as durable
/// as a new one. Its count is 0 if it is not there, or has another value.
pub(super) fn touch(table: Table, key: &[u8], value: &[u8]) -> Document {
    let first = &value[..value.len().min(PART_BYTES)];
    let query = doc! { "_id": key_text(key), "v": binary(first) };
    doc! { "update": table.name(), "updates": [{ "q": query, "u": { "$inc": { "g": 1_i64 } } }] }
}

/// The same of the row of a guard.
///
/// # Errors
/// It is to have none.
pub(super) fn guard(guard: &Guard) -> Outcome<Document> {
    let none = || Failure::Unfit("no row can be guarded that is not there".to_owned());
    Ok(touch(guard.table, &guard.key, guard.value.as_ref().ok_or_else(none)?))
}

/// What is asked of one table.
enum Part<'r> {
    /// The rows under some keys.
    Keys(Table, Vec<&'r [u8]>),
    /// The rows of a range.
    Between(&'r Range),
}

impl Part<'_> {
    fn table(&self) -> Table {
        match self {
            Part::Keys(table, _) => *table,
            Part::Between(range) => range.table,
        }
    }

    /// The stages that answer it. `number` tells its rows from those of others.
    fn stages(&self, number: i64) -> Vec<Document> {
        let mut stages = match self {
            Part::Keys(_, keys) => {
                let keys: Vec<String> = keys.iter().map(|key| key_text(key)).collect();
                vec![doc! { "$match": { "_id": { "$in": keys } } }]
            }
            Part::Between(range) => {
                let (from, to) = (key_text(&range.from), key_text(&range.to));
                let order = if range.descending { -1 } else { 1 };
                let limit = i64::try_from(range.limit).unwrap_or(i64::MAX);
                vec![
                    doc! { "$match": { "_id": { "$gte": from, "$lte": to } } },
                    doc! { "$sort": { "_id": order } },
                    doc! { "$limit": limit },
                ]
            }
        };
        stages.push(doc! { "$project": { "v": 1, "n": 1, "i": { "$literal": number } } });
        stages
    }
}

/// How ranges are read: rows that are named by their keys together, and each other range.
pub(super) struct Reading<'r> {
    ranges: &'r [Range],
    parts: Vec<Part<'r>>,
}

fn is_single(range: &Range) -> bool {
    range.from == range.to && range.limit > 0
}

fn is_empty(range: &Range) -> bool {
    range.from > range.to || range.limit == 0
}

impl<'r> Reading<'r> {
    pub(super) fn of(ranges: &'r [Range]) -> Reading<'r> {
        let mut named: BTreeMap<Table, BTreeSet<&[u8]>> = BTreeMap::new();
        for range in ranges.iter().filter(|range| is_single(range)) {
            named.entry(range.table).or_default().insert(&range.from);
        }
        let mut parts = Vec::new();
        for (table, keys) in named {
            let keys: Vec<&[u8]> = keys.into_iter().collect();
            parts.extend(keys.chunks(KEYS_MAX).map(|keys| Part::Keys(table, keys.to_vec())));
        }
        let others = ranges.iter().filter(|range| !is_single(range) && !is_empty(range));
        parts.extend(others.map(Part::Between));
        Reading { ranges, parts }
    }

    /// The one command that answers it, if it asks one table once: that is of one moment by itself.
    pub(super) fn alone(&self) -> Option<Document> {
        self.commands().pop().filter(|_| self.parts.len() == 1)
    }

    /// Whether it asks for nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The commands that answer it.
    pub(super) fn commands(&self) -> Vec<Document> {
        let numbered: Vec<(i64, &Part<'_>)> = (0..).zip(&self.parts).collect();
        numbered.chunks(RANGES_MAX).filter_map(aggregate).collect()
    }

    /// The rows of each range, and what of them is not there yet.
    pub(super) fn answers(&self, documents: Vec<Document>) -> Outcome<Answers<'_>> {
        let mut found = Answers { reading: self, rows: BTreeMap::new() };
        documents.into_iter().try_for_each(|it| found.take(it))?;
        Ok(found)
    }
}

fn aggregate(parts: &[(i64, &Part<'_>)]) -> Option<Document> {
    let ((number, first), others) = parts.split_first()?;
    let mut pipeline = first.stages(*number);
    for (number, part) in others {
        let stages = part.stages(*number);
        pipeline.push(doc! { "$unionWith": { "coll": part.table().name(), "pipeline": stages } });
    }
    Some(doc! { "aggregate": first.table().name(), "pipeline": pipeline, "cursor": {} })
}

/// The rows that were found for each part.
pub(super) struct Answers<'r> {
    reading: &'r Reading<'r>,
    rows: BTreeMap<usize, BTreeMap<Bytes, Stored>>,
}

impl Answers<'_> {
    fn take(&mut self, mut document: Document) -> Outcome<()> {
        let part = usize::try_from(number(document.get("i"))).ok();
        let key = document.get_str("_id").ok().and_then(key_of);
        let more = document.get("n").map_or(Some(0), |count| count.as_i32());
        let more = more.and_then(|count| usize::try_from(count).ok());
        let Some(Bson::Binary(value)) = document.remove("v") else { return Err(no_row()) };
        let (part, key) = part.zip(key).ok_or_else(no_row)?;
        let stored = Stored { value: value.bytes, more: more.ok_or_else(no_row)? };
        self.rows.entry(part).or_default().insert(key, stored);
        Ok(())
    }

    /// Rows of which parts stand elsewhere: the command that reads them.
    pub(super) fn missing(&self) -> Vec<Document> {
        let mut commands = Vec::new();
        for (number, rows) in &self.rows {
            let Some(part) = self.reading.parts.get(*number) else { continue };
            for (key, _) in rows.iter().filter(|(_, stored)| stored.more > 0) {
                let stages = vec![
                    doc! { "$match": parts_of(part.table(), key) },
                    doc! { "$sort": { "_id": 1 } },
                ];
                commands.push(doc! { "aggregate": PARTS, "pipeline": stages, "cursor": {} });
            }
        }
        commands
    }

    /// Puts parts to their rows, in the order of [`Answers::missing`].
    pub(super) fn complete(&mut self, answers: Vec<Vec<Document>>) -> Outcome<()> {
        let long = self.rows.values_mut().flat_map(BTreeMap::values_mut).filter(|it| it.more > 0);
        for (stored, parts) in long.zip(answers) {
            if parts.len() != stored.more {
                return Err(Failure::Unfit("a part of a row is missing".to_owned()));
            }
            for mut part in parts {
                let Some(Bson::Binary(value)) = part.remove("v") else { return Err(no_row()) };
                stored.value.extend_from_slice(&value.bytes);
            }
            stored.more = 0;
        }
        Ok(())
    }

    /// The rows of each range.
    pub(super) fn rows(mut self) -> Vec<Vec<Row>> {
        let (mut singles, mut others) = (BTreeMap::new(), Vec::new());
        for (number, part) in self.reading.parts.iter().enumerate() {
            let rows = self.rows.remove(&number).unwrap_or_default();
            let rows = rows.into_iter().map(|(key, stored)| (key, Bytes::from(stored.value)));
            match part {
                Part::Keys(table, _) => {
                    singles.extend(rows.map(|(key, value)| ((*table, key), value)));
                }
                Part::Between(range) if range.descending => others.push(rows.rev().collect()),
                Part::Between(_) => others.push(rows.collect()),
            }
        }
        let mut others = others.into_iter();
        let mut of_range = |range: &Range| match (is_single(range), is_empty(range)) {
            (true, _) => {
                let key = (range.table, Bytes::copy_from_slice(&range.from));
                singles.get(&key).map(|value| (key.1.clone(), value.clone())).into_iter().collect()
            }
            (false, true) => Vec::new(),
            (false, false) => others.next().unwrap_or_default(),
        };
        self.reading.ranges.iter().map(&mut of_range).collect()
    }
}

/// Which of the keys a table has: commands that answer with their documents.
pub(super) fn has(table: Table, keys: &[Vec<u8>]) -> Vec<Document> {
    let command = |keys: &[Vec<u8>]| {
        let keys: Vec<String> = keys.iter().map(|key| key_text(key)).collect();
        let stages =
            vec![doc! { "$match": { "_id": { "$in": keys } } }, doc! { "$project": { "_id": 1 } }];
        doc! { "aggregate": table.name(), "pipeline": stages, "cursor": {} }
    };
    keys.chunks(KEYS_MAX).map(command).collect()
}

/// The rows that a command has found, or changed.
pub(super) fn count(answer: &Document) -> u64 {
    number(answer.get("n"))
}

/// A number, as a server says it in one way or another.
pub(super) fn number(value: Option<&Bson>) -> u64 {
    match value {
        Some(Bson::Int32(number)) => u64::try_from(*number).unwrap_or(0),
        Some(Bson::Int64(number)) => u64::try_from(*number).unwrap_or(0),
        // A size: rounded down it is near enough.
        Some(Bson::Double(number)) => *number as u64,
        _ => 0,
    }
}

/// The entries from a number on: one of them at most.
pub(super) fn from(number: &[u8]) -> Document {
    let stages = [
        doc! { "$match": { "_id": { "$gte": key_text(number) } } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 1 } },
    ];
    doc! { "aggregate": Table::Log.name(), "pipeline": stages.to_vec(), "cursor": {} }
}

/// The keys of documents.
pub(super) fn keys(documents: &[Document]) -> BTreeSet<Bytes> {
    documents.iter().filter_map(|it| it.get_str("_id").ok().and_then(key_of)).collect()
}

fn no_row() -> Failure {
    Failure::Unfit("a document of the database is no row of a home".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{key_of, key_text};

    #[test]
    fn texts_of_keys_have_the_order_of_their_bytes() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"\0\0", b"\x7f\xff", b"\x80", b"\xff"];
        assert!(keys.map(key_text).is_sorted());
        for key in keys {
            assert_eq!(key_of(&key_text(key)).unwrap(), key);
        }
        for text in ["a", "zz", "0g", "abc"] {
            assert_eq!(key_of(text), None, "{text}");
        }
    }
}
