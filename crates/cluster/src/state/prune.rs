//! Rows that no state needs any more are taken away.
//!
//! They are seen by nobody, so nothing is published: a crash leaves work that is done again.

use super::{Cluster, Shared};
use crate::blocks::{loose, uses};
use crate::catalogue::Catalogue;
use crate::database::{Change, Range, Row, Table};
use crate::format::{Head, Past, Reference, StoredItem, keys};
use crate::rows::Rows;
use marram_store::{Key, Result};

/// Marks that one step looks at.
const MARKS_A_STEP: usize = 256;
/// Marks or blocks that one question is about: it has to be short, since a server does not read
/// on while it waits for its answers to be read.
pub(super) const ASKED_AT_ONCE: usize = 64;

/// What a step has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows or blocks were looked at, and there may be more.
    pub more: bool,
    /// Blocks that went.
    pub blocks: u64,
}

impl Cluster {
    /// Takes one step of the work that destructions have left, if no other client is there.
    ///
    /// # Errors
    /// The database fails.
    pub fn prune_step(&self) -> Result<Swept> {
        let shared = &*self.shared;
        let publisher = shared.publisher.lock();
        let catalogue = {
            let state = shared.state.read();
            state.refuse_stopped()?;
            if !state.is_alone || state.company.has_others(shared.session()) {
                return Ok(Swept::default());
            }
            std::sync::Arc::clone(&state.catalogue)
        };
        let first = Range::first(Table::Work, Vec::new(), vec![u8::MAX; 24], 1);
        let Some(work) = shared.rows.read(&[first])?.into_iter().flatten().next() else {
            return Ok(Swept::default());
        };
        let mut pruning = Pruning::new(shared, &catalogue);
        let next = pruning.step(&work)?;
        pruning.changes.push(match next {
            Some(next) => shared.rows.put(Table::Work, work.0.to_vec(), next),
            None => Change::remove(Table::Work, work.0.to_vec()),
        });
        let more = shared.rows.write_after(publisher.number, &pruning.changes)?;
        Ok(Swept { more, blocks: 0 })
    }
}

/// Bytes that some work would give back with a catalogue as it will be: at least these, for a
/// block to which several rows refer that go is counted only when the last is alone.
pub(crate) fn freed(shared: &Shared, catalogue: &Catalogue, work: &[[u64; 3]]) -> Result<u64> {
    let mut pruning = Pruning::new(shared, catalogue);
    for [line, after, upto] in work {
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            next = pruning.step(&(keys::work(*line, *after, *upto).into(), from.into()))?;
            pruning.changes.clear();
        }
    }
    Ok(pruning.freed_bytes)
}

/// One step of work on a line.
struct Pruning<'s> {
    shared: &'s Shared,
    catalogue: &'s Catalogue,
    changes: Vec<Change>,
    freed_bytes: u64,
}

/// A row of a line, and when it ended.
struct Lived {
    item: Option<StoredItem>,
    birth: u64,
    /// None of a head.
    death: Option<u64>,
}

impl Pruning<'_> {
    fn new<'s>(shared: &'s Shared, catalogue: &'s Catalogue) -> Pruning<'s> {
        Pruning { shared, catalogue, changes: Vec::new(), freed_bytes: 0 }
    }

    /// Looks at the marks from one on, which is the value of the row of work; empty at first.
    /// Returns where the next step begins.
    fn step(&mut self, (work, next): &Row) -> Result<Option<Vec<u8>>> {
        let [line, after, upto] = keys::decode_work(work)?;
        let from = match next.is_empty() {
            true => keys::mark(line, after.saturating_add(1), Key::MIN),
            false => next.to_vec(),
        };
        let to = keys::mark(line, upto, Key::MAX);
        let range = Range::first(Table::Marks, from, to, MARKS_A_STEP);
        let marks = self.shared.rows.read(&[range])?.concat();
        let mark = |(row, _): &Row| keys::decode_mark(row).map(|(_, period, key)| (period, key));
        let decoded = marks.iter().map(mark).collect::<Result<Vec<(u64, Key)>>>()?;
        for some in decoded.chunks(ASKED_AT_ONCE) {
            self.marks(line, some)?;
        }
        let last = marks.last().filter(|_| marks.len() == MARKS_A_STEP);
        Ok(last.map(|(last, _)| [&last[..], &[0]].concat()))
    }

    /// Looks at some marks. First the rows go, and then the marks: a crash between the two leaves
    /// marks that are looked at again.
    fn marks(&mut self, line: u64, marks: &[(u64, Key)]) -> Result<()> {
        let (mut going, mut done) = (Vec::new(), Vec::new());
        let around: Vec<Range> =
            marks.iter().flat_map(|(period, key)| around(line, *period, *key)).collect();
        let mut answers = self.shared.rows.read(&around)?.into_iter();
        for (period, key) in marks {
            let (born, before) = lived_around(*period, &mut answers)?;
            let stays = born.as_ref().is_some_and(|row| self.is_needed(line, row));
            if let Some(row) = born.filter(|_| !stays) {
                going.push((*key, row));
            }
            let is_its_end = |row: Lived| row.death == Some(*period) && self.is_needed(line, &row);
            if !stays && !before.is_some_and(is_its_end) {
                done.push(Change::remove(Table::Marks, keys::mark(line, *period, *key)));
            }
        }
        self.remove(line, &going)?;
        self.changes.extend(done);
        Ok(())
    }

    fn is_needed(&self, line: u64, row: &Lived) -> bool {
        let last = match row.death {
            None if self.catalogue.is_live(line) => return true,
            None => u64::MAX,
            Some(death) => death.saturating_sub(1),
        };
        self.catalogue.has_point(line, row.birth, last)
    }

    /// Lets rows go that no state needs.
    fn remove(&mut self, line: u64, going: &[(Key, Lived)]) -> Result<()> {
        let rows: &Rows = &self.shared.rows;
        let asked = |(key, row): &(Key, Lived)| {
            let users = row.block().map(|block| uses(&block.id, 2));
            let end = row.death.map(|death| around(line, death, *key));
            users.into_iter().chain(end.into_iter().flatten())
        };
        let mut answers = rows.read(&going.iter().flat_map(asked).collect::<Vec<_>>())?.into_iter();
        for (key, row) in going {
            self.freed_bytes += row.item.as_ref().map_or(0, |item| item.value.len() as u64);
            if let Some(block) = row.block() {
                let others = answers.next().unwrap_or_default();
                self.freed_bytes += if others.len() > 1 { 0 } else { u64::from(block.len) };
                self.changes.push(loose(rows, &block.id, self.shared.now()));
                let row = keys::usage(&block.id, line, *key, row.birth);
                self.changes.push(Change::remove(Table::Uses, row));
            }
            let Some(death) = row.death else {
                self.changes.push(Change::remove(Table::Heads, keys::head(line, *key)));
                continue;
            };
            self.changes.push(Change::remove(Table::Pasts, keys::past(line, *key, row.birth)));
            // The mark of its end goes, unless another row was born then.
            if lived_around(death, &mut answers)?.0.is_none() {
                self.changes.push(Change::remove(Table::Marks, keys::mark(line, death, *key)));
            }
        }
        Ok(())
    }
}

impl Lived {
    fn block(&self) -> Option<&Reference> {
        self.item.as_ref().and_then(|item| item.block.as_ref())
    }
}

/// What asks for the row of a key that was born in a period, and the one before it.
fn around(line: u64, period: u64, key: Key) -> [Range; 3] {
    let before = Range {
        table: Table::Pasts,
        from: keys::past(line, key, 0),
        to: keys::past(line, key, period.saturating_sub(1)),
        limit: 1,
        descending: true,
    };
    [
        Range::one(Table::Pasts, keys::past(line, key, period)),
        Range::one(Table::Heads, keys::head(line, key)),
        before,
    ]
}

/// Takes the answers to that.
fn lived_around(
    period: u64,
    answers: &mut impl Iterator<Item = Vec<Row>>,
) -> Result<(Option<Lived>, Option<Lived>)> {
    let mut next = || answers.next().and_then(|rows| rows.into_iter().next());
    let (past, head, before) = (next(), next(), next());
    let lived = |(row, value): Row| -> Result<Lived> {
        let (birth, Past { death, item }) = (keys::decode_past(&row)?.2, Past::decode(&value)?);
        Ok(Lived { item, birth, death: Some(death) })
    };
    let born = match (past, head) {
        (Some(past), _) => Some(lived(past)?),
        (None, Some((_, value))) => {
            let Head { birth, item } = Head::decode(&value)?;
            (birth == period).then_some(Lived { item, birth, death: None })
        }
        (None, None) => None,
    };
    Ok((born, before.map(lived).transpose()?))
}
