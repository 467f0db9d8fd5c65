//! What holds the space of a store: one pass over heads and pasts, of one moment.
//!
//! The moment is that of an entry in which each dataset gets a snapshot, as if for a comparison.
//! What has come to be later is left out by its birth; what ends meanwhile is then a past, which is
//! read in the same question as its head. So others go on, and nothing is counted twice or missed.
//!
//! Bytes are those of values and of contents before they were compressed.

mod lineage;
mod rows;

use super::{Cluster, Shared};
use crate::blocks::uses;
use crate::catalogue::Catalogue;
use crate::database::{Range, Table};
use crate::draft::is_hidden;
use crate::format::{BlockId, BlockRow, Record, Role, keys};
use lineage::{CLASSES, Lineage, Seen, State};
use marram_store::{DatasetReport, Error, Holder, Result, Source, Usage};
use rows::{Lived, Streams};
use std::collections::{BTreeMap, BTreeSet};

/// Uses that one question asks for.
const USES_ASKED: usize = 4096;
/// Loose blocks that one question asks about.
const LOOSE_ASKED: usize = 256;
/// Blocks that are read at a time for their length.
const BLOCKS_READ: usize = 8;
/// Loose blocks of which the lengths are read; of more it is reckoned by the mean.
const LOOSE_MEASURED_MAX: u64 = 1024;
/// Numbers that are tried for the names of the snapshots of the moment.
const NAMES_MAX: u32 = 1 << 16;

/// What holds the space of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceHeld {
    /// By datasets and snapshots. What is kept for an undo is among them.
    pub usage: Usage,
    /// Bytes that datasets see as they are.
    pub live_bytes: u64,
    /// Bytes that only snapshots see.
    pub snapshot_bytes: u64,
    /// Bytes that are kept for an undo alone.
    pub undo_bytes: u64,
    /// Blocks to which nothing refers: they go when the store is swept.
    pub loose_blocks: u64,
    /// Their bytes.
    pub loose_bytes: u64,
    /// Bytes that the database takes, with all that it has for itself.
    pub database_bytes: u64,
}

impl Cluster {
    /// Tells what holds the space.
    ///
    /// # Errors
    /// The database fails, or has damaged rows.
    pub fn space_held(&self) -> Result<SpaceHeld> {
        let moment = self.begin_moment()?;
        let held = held(&self.shared, &moment);
        self.end_moment(&moment);
        held
    }

    /// Keeps the present state of all datasets.
    fn begin_moment(&self) -> Result<At> {
        if self.shared.read_only {
            let catalogue = (*self.catalogue()?).clone();
            return Ok(At { catalogue, snapshots: BTreeMap::new() });
        }
        self.without_author().publish(&mut |draft| {
            let is_live = |(number, record): (u64, &Record)| match record.role {
                Role::Dataset { .. } => Some(number),
                Role::Snapshot { .. } => None,
            };
            let live: Vec<u64> = draft.catalogue().records().filter_map(is_live).collect();
            let taken: BTreeSet<&str> =
                draft.catalogue().records().map(|(_, record)| record.name.as_str()).collect();
            let mut names = (1..NAMES_MAX).map(|number| format!("diff:{number}"));
            let name = names.find(|name| !taken.contains(name.as_str()));
            let name = name.ok_or_else(|| Error::DatasetExists("diff:1".to_owned()))?;
            let mut snapshots = BTreeMap::new();
            for number in live {
                snapshots.insert(number, draft.snapshot_quietly(number, &name)?);
            }
            Ok(At { catalogue: draft.catalogue().clone(), snapshots })
        })
    }

    /// Lets go of them. What cannot go, as when its dataset was rolled back meanwhile, goes when
    /// the home is mounted next.
    fn end_moment(&self, moment: &At) {
        if moment.snapshots.is_empty() {
            return;
        }
        let open = self.shared.state.read().all_open();
        let _goes_later = self.without_author().publish(&mut |draft| {
            for number in moment.snapshots.values() {
                if let Some(source) = draft.catalogue().source(*number) {
                    let _goes_later = draft.destroy(&[source], &|number| open.contains(&number));
                }
            }
            Ok(())
        });
    }
}

/// A moment: the records of it, and the snapshots that keep it, by their datasets.
struct At {
    catalogue: Catalogue,
    snapshots: BTreeMap<u64, u64>,
}

impl At {
    /// All that hold space, in the order of their names, but for the snapshots of the moment.
    fn holders(&self) -> Result<(Vec<DatasetReport>, Vec<State>)> {
        let own: BTreeSet<u64> = self.snapshots.values().copied().collect();
        let (mut reports, mut states) = (Vec::new(), Vec::new());
        for (source, number) in self.catalogue.named() {
            let Some(record) = self.catalogue.record(number).filter(|_| !own.contains(&number))
            else {
                continue;
            };
            states.push(self.state(number, record, &source));
            reports.push(self.catalogue.report(number, source)?);
        }
        Ok((reports, states))
    }

    /// The period of each line from which on its rows are of later, if anybody writes to it.
    fn ends(&self) -> BTreeMap<u64, u64> {
        let live = self.snapshots.keys().filter_map(|number| self.catalogue.record(*number));
        live.map(|record| (record.line, record.period)).collect()
    }

    fn state(&self, number: u64, record: &Record, source: &Source) -> State {
        let class = match record.role {
            _ if is_hidden(record) || source.is_in_trash() => 2,
            Role::Dataset { .. } => 0,
            Role::Snapshot { .. } => 1,
        };
        // A dataset is as its snapshot of the moment has it.
        let kept = self.snapshots.get(&number).and_then(|number| self.catalogue.record(*number));
        let record = kept.unwrap_or(record);
        State { line: record.line, period: record.period, class }
    }
}

/// What refers to a block to which more than one row does.
#[derive(Default)]
struct SharedBlock {
    seen: Seen,
    rows: u64,
    only: Only,
    len: u64,
}

/// Whether one alone refers to something.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Only {
    #[default]
    Nobody,
    One(usize),
    Several,
}

struct Counting {
    held: SpaceHeld,
    added: Vec<u64>,
    unique: Vec<u64>,
    classes: [u64; CLASSES],
    shared: BTreeMap<BlockId, SharedBlock>,
}

impl Counting {
    fn row(&mut self, row: &Lived, seen: Seen) {
        let Some(item) = &row.item else { return };
        let (value, len) = (item.value.len() as u64, item.block.map_or(0, |it| u64::from(it.len)));
        let shared = item.block.as_ref().and_then(|block| self.shared.get_mut(&block.id));
        let mut own = value + len;
        if let Some(block) = shared {
            own = value;
            block.len = len;
            block.rows += 1;
            let by = match (seen.count(), seen.first) {
                (0, _) | (_, None) => Only::Nobody,
                (1, Some(first)) => Only::One(first),
                _ => Only::Several,
            };
            block.only = match (block.only, by) {
                (Only::Nobody, by) => by,
                (only, Only::Nobody) => only,
                (only, by) if only == by => only,
                _ => Only::Several,
            };
            for (count, more) in block.seen.counts.iter_mut().zip(seen.counts) {
                *count += more;
            }
        }
        match (seen.first, seen.class()) {
            (Some(first), Some(class)) => {
                self.added[first] += value + len;
                self.classes[class] += own;
                if seen.count() == 1 {
                    self.unique[first] += own;
                }
            }
            _ => self.held.usage.leaving_bytes += value + len,
        }
    }

    /// Counts what several rows refer to, each once.
    fn finish(&mut self) {
        for block in std::mem::take(&mut self.shared).into_values() {
            self.held.usage.shared_bytes += block.len * block.rows.saturating_sub(1);
            if let Some(class) = block.seen.class() {
                self.classes[class] += block.len;
            }
            if let Only::One(holder) = block.only {
                self.unique[holder] += block.len;
            }
        }
        [self.held.live_bytes, self.held.snapshot_bytes, self.held.undo_bytes] = self.classes;
    }
}

fn held(shared: &Shared, moment: &At) -> Result<SpaceHeld> {
    let (reports, states) = moment.holders()?;
    let lineage = Lineage::new(&moment.catalogue, &states);
    let ends = moment.ends();
    let mut counting = Counting {
        held: SpaceHeld::default(),
        added: vec![0; states.len()],
        unique: vec![0; states.len()],
        classes: [0; CLASSES],
        shared: used_by_several(shared)?,
    };
    for lines in families(shared, &lineage)? {
        let mut streams = Streams::new(&shared.rows, &lines);
        while let Some(mut rows) = streams.next()? {
            for (line, rows) in &mut rows {
                let end = ends.get(line).copied().unwrap_or(u64::MAX);
                rows.retain(|row| row.birth < end);
            }
            let seen = lineage.seen_by(&rows);
            for (line, rows) in &rows {
                let seen = seen.get(line).map_or(&[][..], Vec::as_slice);
                rows.iter().zip(seen).for_each(|(row, seen)| counting.row(row, *seen));
            }
        }
    }
    counting.finish();
    let Counting { mut held, added, unique, .. } = counting;
    (held.loose_blocks, held.loose_bytes) = loose(shared)?;
    held.database_bytes = shared.rows.database().bytes()?;
    let is_origin = |report: &DatasetReport| {
        let number = report.number;
        moment.catalogue.clones_of(number).next().is_some()
    };
    let holders = reports.into_iter().zip(added.into_iter().zip(unique));
    held.usage.holders = holders
        .map(|(report, (added_bytes, unique_bytes))| Holder {
            unique_bytes: if is_origin(&report) { 0 } else { unique_bytes },
            added_bytes,
            report,
        })
        .collect();
    let added: u64 = held.usage.holders.iter().map(|holder| holder.added_bytes).sum();
    held.usage.allocated_bytes = (added + held.usage.leaving_bytes + held.loose_bytes)
        .saturating_sub(held.usage.shared_bytes);
    Ok(held)
}

/// The lines that are read together: those of one root. Lines that are gone are each by itself.
fn families(shared: &Shared, lineage: &Lineage) -> Result<Vec<Vec<u64>>> {
    let mut families: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in lineage.numbers() {
        families.entry(lineage.root(line)).or_default().push(line);
    }
    let known: BTreeSet<u64> = lineage.numbers().collect();
    for (work, _) in shared.rows.all(Table::Work)? {
        let [line, ..] = keys::decode_work(&work)?;
        if !known.contains(&line) {
            families.entry(line).or_insert_with(|| vec![line]);
        }
    }
    Ok(families.into_values().collect())
}

/// The blocks to which more than one row refers.
fn used_by_several(shared: &Shared) -> Result<BTreeMap<BlockId, SharedBlock>> {
    let (mut found, mut last): (BTreeMap<BlockId, SharedBlock>, Option<BlockId>) =
        (BTreeMap::new(), None);
    each(shared, Table::Uses, USES_ASKED, &mut |rows| {
        for row in rows {
            let block = keys::decode_usage(row)?.0;
            if last == Some(block) {
                found.entry(block).or_default();
            }
            last = Some(block);
        }
        Ok(())
    })?;
    Ok(found)
}

/// How many blocks there are to which nothing refers, and their bytes.
fn loose(shared: &Shared) -> Result<(u64, u64)> {
    let (mut count, mut measured, mut bytes) = (0_u64, 0_u64, 0_u64);
    each(shared, Table::Loose, LOOSE_ASKED, &mut |rows| {
        let ids: Vec<BlockId> =
            rows.iter().filter_map(|row| row.as_slice().try_into().ok()).collect();
        let used = shared.rows.read(&ids.iter().map(|id| uses(id, 1)).collect::<Vec<_>>())?;
        let unused = ids.into_iter().zip(used).filter(|(_, uses)| uses.is_empty());
        let unused: Vec<BlockId> = unused.map(|(id, _)| id).collect();
        for some in unused.chunks(BLOCKS_READ) {
            count += some.len() as u64;
            if measured < LOOSE_MEASURED_MAX {
                let one = |id: &BlockId| Range::one(Table::Blocks, id.to_vec());
                let blocks = shared.rows.read(&some.iter().map(one).collect::<Vec<_>>())?;
                for (_, value) in blocks.concat() {
                    bytes += u64::from(BlockRow::decode(&value)?.len);
                    measured += 1;
                }
            }
        }
        Ok(())
    })?;
    let all = u128::from(bytes) * u128::from(count) / u128::from(measured.max(1));
    let all = if count > LOOSE_MEASURED_MAX { all } else { u128::from(bytes) };
    Ok((count, u64::try_from(all).unwrap_or(u64::MAX)))
}

/// Visits the keys of all rows of a table, some at a time.
fn each(
    shared: &Shared,
    table: Table,
    asked: usize,
    visit: &mut dyn FnMut(&[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    let mut next = Vec::new();
    loop {
        let range = Range::first(table, next, vec![u8::MAX; 80], asked);
        let rows = shared.rows.read(&[range])?.concat();
        let keys: Vec<Vec<u8>> = rows.iter().map(|(key, _)| key.to_vec()).collect();
        visit(&keys)?;
        match keys.last() {
            Some(last) if keys.len() == asked => next = [&last[..], &[0]].concat(),
            _ => return Ok(()),
        }
    }
}
