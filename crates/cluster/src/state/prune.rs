//! Rows that no state needs any more, and blocks that no row refers to, are taken away.
//!
//! Both are seen by nobody, so neither is published: a crash leaves work that is done again.

use super::{Cluster, Shared};
use crate::blocks::{LetGo, loose, uses};
use crate::catalogue::Catalogue;
use crate::database::{Change, Range, Row, Table};
use crate::format::{BlockId, Head, ObjectName, Past, StoredItem, keys};
use crate::rows::Rows;
use marram_store::{Error, Key, Result};

/// Marks that one step looks at.
const MARKS_A_STEP: usize = 256;
/// Loose blocks that one step looks at.
const LOOSE_A_STEP: usize = 256;
/// Bytes of the longest key of what is loose, and one more.
const LOOSE_KEY_BYTES: usize = 41;
/// Seconds for which a block stays to which nothing refers: a reader may have found it just before.
const GRACE_SECONDS: i64 = 60;

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
            if !state.is_alone {
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

    /// Takes away some of the blocks, behind `after`, to which nothing has referred for a while,
    /// and objects outside of the database that no block needs.
    /// Returns where the next step begins, if there is more. Does nothing while another client is
    /// there: one that publishes may have found a block just before it goes. What one row or object
    /// has wrong keeps it where it is, and no other: the first such error comes with the last step.
    ///
    /// # Errors
    /// The database fails, or the place of the blocks does; or the store is open for reading only.
    pub fn sweep_step(&self, after: Vec<u8>) -> Result<(Swept, Vec<u8>)> {
        let shared = &*self.shared;
        refuse_read_only(shared)?;
        let publisher = shared.publisher.lock();
        if !is_alone(shared)? {
            return Ok((Swept::default(), Vec::new()));
        }
        shared.blocks.hold.take_to_remove(shared.session())?;
        let now = shared.now();
        let (mut changes, mut first_error) = (Vec::new(), shared.blocks.failed_sweep.lock().take());
        if after.is_empty() {
            let strays = shared.blocks.strays(now);
            first_error = strays.map(|strays| changes = strays).err();
        }
        let range = Range::first(Table::Loose, after, vec![u8::MAX; LOOSE_KEY_BYTES], LOOSE_A_STEP);
        let rows = shared.rows.read_each(range)?.into_iter();
        let (mut swept, mut next, mut going) = (Swept::default(), Vec::new(), None);
        let mut unneeded = Vec::new();
        for (number, (key, since)) in rows.enumerate() {
            next = [&key[..], &[0]].concat();
            swept.more = number + 1 == LOOSE_A_STEP;
            let since = match since {
                Ok(since) => since.as_ref().try_into().map_or(i64::MIN, i64::from_le_bytes),
                Err(error) => {
                    first_error = first_error.or(Some(error));
                    continue;
                }
            };
            if since > now - GRACE_SECONDS {
                continue;
            }
            let looked = match ObjectName::of_key(&key) {
                // The object of a block that goes in this step is loose from then on.
                Some(name) if going == Some(name.block) => continue,
                Some(name) => shared.blocks.let_go(&name).map(|what| match what {
                    LetGo::Keep => {}
                    LetGo::Forget => changes.push(Change::remove(Table::Loose, key.to_vec())),
                    LetGo::Unlink => unneeded.push(name),
                }),
                None => sweep_row(shared, (&key, now), &mut changes).map(|block| {
                    swept.blocks += u64::from(block.is_some());
                    going = block.or(going);
                }),
            };
            let Err(error) = looked else { continue };
            let is_of_the_row = matches!(error, Error::Damaged(_));
            first_error = first_error.or(Some(error));
            if !is_of_the_row {
                // A database that does not answer is not asked for each row.
                swept.more = true;
                break;
            }
        }
        let (gone, error) = shared.blocks.unlink(unneeded);
        changes.extend(gone.iter().map(|name| Change::remove(Table::Loose, name.key())));
        first_error = first_error.or(error);
        if !shared.rows.write_after(publisher.number, &changes)? {
            // Another client comes.
            return Ok((Swept::default(), Vec::new()));
        }
        match first_error {
            Some(error) if !swept.more => Err(error),
            kept => {
                *shared.blocks.failed_sweep.lock() = kept;
                Ok((swept, next))
            }
        }
    }
}

/// Whether no other client is there.
fn is_alone(shared: &Shared) -> Result<bool> {
    let state = shared.state.read();
    state.refuse_stopped()?;
    Ok(state.is_alone)
}

fn refuse_read_only(shared: &Shared) -> Result<()> {
    match shared.read_only {
        true => Err(Error::ReadOnly("the store is open for reading only".to_owned())),
        false => Ok(()),
    }
}

/// Changes for a loose row that is not that of an object: the block goes if nothing refers to it,
/// and is the answer.
fn sweep_row(
    shared: &Shared,
    (key, now): (&[u8], i64),
    changes: &mut Vec<Change>,
) -> Result<Option<BlockId>> {
    let loose = Change::remove(Table::Loose, key.to_vec());
    let Ok(block) = BlockId::try_from(key) else {
        changes.push(loose);
        return Ok(None);
    };
    if !shared.rows.read(&[uses(&block, 1)])?.concat().is_empty() {
        changes.push(loose);
        return Ok(None);
    }
    // First the block: a crash between the two leaves it loose.
    changes.splice(0..0, shared.blocks.removal(&block, now)?);
    changes.push(loose);
    Ok(Some(block))
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
        for (row, _) in &marks {
            let (_, period, key) = keys::decode_mark(row)?;
            self.mark(line, period, key)?;
        }
        let last = marks.last().filter(|_| marks.len() == MARKS_A_STEP);
        Ok(last.map(|(last, _)| [&last[..], &[0]].concat()))
    }

    fn mark(&mut self, line: u64, period: u64, key: Key) -> Result<()> {
        let (born, before) = self.around(line, period, key)?;
        let stays = born.as_ref().is_some_and(|row| self.is_needed(line, row));
        if let Some(row) = born.filter(|_| !stays) {
            self.remove(line, key, &row)?;
        }
        let ended =
            before.is_some_and(|row| row.death == Some(period) && self.is_needed(line, &row));
        if !stays && !ended {
            self.changes.push(Change::remove(Table::Marks, keys::mark(line, period, key)));
        }
        Ok(())
    }

    /// The row of a key that was born in a period, and the one before it.
    fn around(&self, line: u64, period: u64, key: Key) -> Result<(Option<Lived>, Option<Lived>)> {
        let past = |upto: u64| Range {
            table: Table::Pasts,
            from: keys::past(line, key, 0),
            to: keys::past(line, key, upto),
            limit: 1,
            descending: true,
        };
        let ranges = [
            Range::one(Table::Pasts, keys::past(line, key, period)),
            Range::one(Table::Heads, keys::head(line, key)),
            past(period.saturating_sub(1)),
        ];
        let mut found =
            self.shared.rows.read(&ranges)?.into_iter().map(|rows| rows.into_iter().next());
        let mut next = || found.next().flatten();
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

    fn is_needed(&self, line: u64, row: &Lived) -> bool {
        let last = match row.death {
            None if self.catalogue.is_live(line) => return true,
            None => u64::MAX,
            Some(death) => death.saturating_sub(1),
        };
        self.catalogue.has_point(line, row.birth, last)
    }

    fn remove(&mut self, line: u64, key: Key, row: &Lived) -> Result<()> {
        let rows: &Rows = &self.shared.rows;
        let item = row.item.as_ref();
        self.freed_bytes += item.map_or(0, |item| item.value.len() as u64);
        if let Some(block) = item.and_then(|item| item.block) {
            let others = rows.read(&[uses(&block.id, 2)])?.concat();
            self.freed_bytes += if others.len() > 1 { 0 } else { u64::from(block.len) };
            self.changes.push(loose(rows, &block.id, self.shared.now()));
            let row = keys::usage(&block.id, line, key, row.birth);
            self.changes.push(Change::remove(Table::Uses, row));
        }
        let Some(death) = row.death else {
            self.changes.push(Change::remove(Table::Heads, keys::head(line, key)));
            return Ok(());
        };
        self.changes.push(Change::remove(Table::Pasts, keys::past(line, key, row.birth)));
        // The mark of its end goes, unless another row was born then.
        if self.around(line, death, key)?.0.is_none() {
            self.changes.push(Change::remove(Table::Marks, keys::mark(line, death, key)));
        }
        Ok(())
    }
}
