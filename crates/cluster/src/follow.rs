//! Rows follow the log: what an entry changes in them.
//!
//! The changes of an entry stand in an order in which any first part of them can be made once more
//! from the entry: what is found by way of a head is written before the head.

use crate::blocks::loose;
use crate::database::{Change, Range, Table};
use crate::format::{
    ClientRecord, Entry, Head, LineRecord, Past, Presence, Record, Section, StoredItem, keys,
};
use crate::rows::Rows;
use marram_store::{Key, Result};
use std::collections::BTreeMap;

/// Entries that are kept for clients that follow the log.
pub(crate) const ENTRIES_KEPT: u64 = 1024;
/// Heads that one question asks for.
const HEADS_ASKED: usize = 1000;

/// The heads that the edits of an entry replace, by line and key.
pub(crate) type Heads = BTreeMap<(u64, Key), Head>;

/// The heads under the keys of some sections.
pub(crate) fn heads(rows: &Rows, sections: &[Section]) -> Result<Heads> {
    let mut heads = Heads::new();
    for section in sections {
        let keys: Vec<Key> = section.edits.iter().map(|(key, _)| *key).collect();
        heads.extend(heads_under(rows, section.line, &keys)?);
    }
    Ok(heads)
}

/// The heads under some keys of a line.
pub(crate) fn heads_under(rows: &Rows, line: u64, keys: &[Key]) -> Result<Heads> {
    let mut heads = Heads::new();
    for keys in keys.chunks(HEADS_ASKED) {
        let one = |key: &Key| Range::one(Table::Heads, keys::head(line, *key));
        let ranges: Vec<Range> = keys.iter().map(one).collect();
        for (key, found) in keys.iter().zip(rows.read(&ranges)?) {
            if let Some((_, value)) = found.first() {
                heads.insert((line, *key), Head::decode(value)?);
            }
        }
    }
    Ok(heads)
}

/// What an entry changes in the rows, given the heads under its keys.
pub(crate) fn changes(rows: &Rows, number: u64, entry: &Entry, heads: &Heads) -> Vec<Change> {
    let mut following = Following { rows, number, entry, first: Vec::new(), last: Vec::new() };
    for section in &entry.sections {
        for (key, item) in &section.edits {
            following.edit(section, (*key, item.as_ref()), heads.get(&(section.line, *key)));
        }
    }
    following.catalogue();
    following.presence();
    let Following { first: mut changes, last, .. } = following;
    changes.extend(last);
    if let Some(old) = number.checked_sub(ENTRIES_KEPT) {
        changes.push(Change::remove(Table::Log, keys::number(old)));
    }
    changes.push(rows.put_followed(number));
    changes
}

/// The beat of a client from the entry on by which it says how it is there. It is none that the
/// client has had before: one that has answered in the log has not stood still.
pub(crate) fn first_beat(number: u64) -> u64 {
    number << 32
}

struct Following<'e> {
    rows: &'e Rows,
    number: u64,
    entry: &'e Entry,
    /// Changes that are found by way of a head, and the heads themselves.
    first: Vec<Change>,
    last: Vec<Change>,
}

impl Following<'_> {
    fn edit(&mut self, section: &Section, edit: (Key, Option<&StoredItem>), old: Option<&Head>) {
        let (key, item) = edit;
        let line = section.line;
        match old {
            Some(old) if old.birth > section.needed => {
                self.loosen((line, key), old, item);
                self.set((section, old.birth), key, item);
            }
            Some(old) => {
                let past = Past { death: section.period, item: old.item.clone() };
                let row = keys::past(line, key, old.birth);
                self.mark(section, key);
                self.first.push(self.rows.put(Table::Pasts, row, past.encode()));
                self.set((section, section.period), key, item);
            }
            None if item.is_some() || section.inherits => {
                self.mark(section, key);
                self.set((section, section.period), key, item);
            }
            None => {}
        }
    }

    fn mark(&mut self, section: &Section, key: Key) {
        let row = keys::mark(section.line, section.period, key);
        self.first.push(self.rows.put(Table::Marks, row, Vec::new()));
    }

    /// A head that nothing needs loses its block, unless the new one has it.
    fn loosen(&mut self, (line, key): (u64, Key), old: &Head, new: Option<&StoredItem>) {
        let block = |item: Option<&StoredItem>| item.and_then(|item| item.block).map(|it| it.id);
        let (before, after) = (block(old.item.as_ref()), block(new));
        if let Some(id) = before.filter(|_| before != after) {
            self.first.push(loose(self.rows, &id, self.entry.seconds));
            let row = keys::usage(&id, line, key, old.birth);
            self.first.push(Change::remove(Table::Uses, row));
        }
    }

    /// Sets the head, or takes it away where there is nothing to inherit.
    fn set(&mut self, (section, birth): (&Section, u64), key: Key, item: Option<&StoredItem>) {
        let row = keys::head(section.line, key);
        if let Some(block) = item.and_then(|item| item.block) {
            let row = keys::usage(&block.id, section.line, key, birth);
            // Before a use of the same block by the same row is taken away.
            self.first.push(self.rows.put(Table::Uses, row, Vec::new()));
        }
        if item.is_none() && !section.inherits {
            if section.needed == 0 {
                let row = keys::mark(section.line, birth, key);
                self.last.push(Change::remove(Table::Marks, row));
            }
            return self.last.push(Change::remove(Table::Heads, row));
        }
        let head = Head { birth, item: item.cloned() };
        self.last.push(self.rows.put(Table::Heads, row, head.encode()));
    }

    fn catalogue(&mut self) {
        let rows = self.rows;
        for (number, record) in &self.entry.records {
            self.last.push(set_or_remove(
                rows,
                Table::Datasets,
                *number,
                record.as_ref().map(Record::encode),
            ));
        }
        for (number, line) in &self.entry.lines {
            self.last.push(set_or_remove(
                rows,
                Table::Lines,
                *number,
                line.as_ref().map(LineRecord::encode),
            ));
        }
        for (number, operation) in &self.entry.operations {
            let operation = operation.as_ref().map(|it| it.encode().to_vec());
            self.last.push(set_or_remove(rows, Table::Operations, *number, operation));
        }
        for [line, after, upto] in &self.entry.work {
            let row = keys::work(*line, *after, *upto);
            self.last.push(rows.put(Table::Work, row, Vec::new()));
        }
    }

    fn presence(&mut self) {
        let session = self.entry.session.to_vec();
        self.last.push(match &self.entry.presence {
            None => return,
            Some(Presence::Closed) => Change::remove(Table::Clients, session),
            Some(Presence::Expelled(lost)) => Change::remove(Table::Clients, lost.to_vec()),
            Some(Presence::Here { name, stance, since }) => {
                let (stance, since, name) = (*stance, *since, name.clone());
                let record = ClientRecord { stance, since, name, beat: first_beat(self.number) };
                self.rows.put(Table::Clients, session, record.encode())
            }
        });
    }
}

fn set_or_remove(rows: &Rows, table: Table, number: u64, value: Option<Vec<u8>>) -> Change {
    match value {
        Some(value) => rows.put(table, keys::number(number), value),
        None => Change::remove(table, keys::number(number)),
    }
}
