//! The records of a merge: the states before and after it, and the base of later ones.
//!
//! They are in the entry that has the items of the merge: a crash leaves all of it or nothing.

use super::{Draft, IsOpen};
use crate::format::{Record, Role};
use marram_format::operation::{OperationKind, OperationRecord, TRASH_PREFIX};
use marram_store::operations::{taken_back_by, undone_by};
use marram_store::{Error, MergedFrom, Result, Source};

/// Which text of a merge's operation tells how the base has moved.
const MOVED_TEXT: usize = 2;

/// A merge whose items are to come.
#[derive(Default)]
pub(crate) struct Merging {
    dataset: u64,
    /// The snapshot that was read.
    read: u64,
    /// How long the states before and after it are kept; 0 is not at all.
    seconds: i64,
    /// The snapshot with the state before, or 0.
    before: u64,
}

/// The base before and after a merge; 0 is what the fork began as.
struct Moved {
    new: u64,
    former: u64,
}

impl Moved {
    fn text(&self) -> String {
        format!("{} {}", self.new, self.former)
    }

    fn of(text: &str) -> Option<Moved> {
        let (new, former) = text.split_once(' ')?;
        Some(Moved { new: new.parse().ok()?, former: former.parse().ok()? })
    }
}

impl Draft {
    /// Keeps the state before a merge. What is changed of its dataset from then on is the merge.
    ///
    /// # Errors
    /// [`Error::InUse`] if it was computed on another base than there is; [`Error::Invalid`] if it
    /// takes back what was taken back meanwhile.
    pub(crate) fn begin_merge(&mut self, merged: &MergedFrom<'_>) -> Result<Merging> {
        let dataset = self.catalogue.dataset(merged.dataset)?;
        let read = self.catalogue.find(merged.read)?;
        self.refuse_moved(dataset, merged)?;
        self.refuse_undone()?;
        if let Some(keep) = merged.keep {
            self.snapshot(merged.dataset, keep)?;
        }
        let seconds = if self.author.is_some() { self.seconds_kept(dataset) } else { 0 };
        let before = match seconds {
            0 => 0,
            _ => self.keep_state(dataset, "before")?,
        };
        Ok(Merging { dataset, read, seconds, before })
    }

    /// Enters a merge whose items are those of this entry, and keeps the state after it.
    pub(crate) fn end_merge(
        &mut self,
        merging: &Merging,
        merged: &MergedFrom<'_>,
        is_open: IsOpen<'_>,
    ) -> Result<Vec<u64>> {
        let mut gone = Vec::new();
        let number = if merging.seconds > 0 { self.next_operation() } else { 0 };
        let moved = match (merged.moves_base, self.undone_move()) {
            (true, _) => Some(self.move_base(merging, merged, (number, is_open), &mut gone)?),
            (false, Some(undone)) => self.move_base_back(&undone, number)?,
            (false, None) => None,
        };
        let mut record = OperationRecord::of(
            OperationKind::Merge,
            merging.dataset,
            &[merged.dataset.as_str(), &merged.fork.to_string()],
        );
        record.texts.extend(moved.map(|moved| moved.text()));
        record.detail = merged.root_object;
        if self.undoes == 0 {
            record.other = self.catalogue.find(merged.fork).unwrap_or(0);
        }
        if merging.seconds > 0 {
            record.before = merging.before;
            record.after = self.keep_state(merging.dataset, "after")?;
            record.kept_until_seconds = self.now.saturating_add(merging.seconds);
        }
        self.enter(record)?;
        Ok(gone)
    }

    /// Takes a snapshot of a dataset for an undo of the operation that is entered next.
    fn keep_state(&mut self, dataset: u64, which: &str) -> Result<u64> {
        let name = format!("{TRASH_PREFIX}{}:{which}", self.next_operation());
        self.snapshot_quietly(dataset, &name)
    }

    /// The bases between two datasets with their places in the order of merges, oldest first.
    fn bases_between(&self, (a, b): (u64, u64)) -> Vec<(u64, u64)> {
        let base = |(number, record): (u64, &Record)| {
            let Role::Snapshot { of } = record.role else { return None };
            let (taker, at) = self.catalogue.source(number)?.merge_base()?;
            ((of, taker) == (a, b) || (of, taker) == (b, a)).then_some((at, number))
        };
        let mut found: Vec<(u64, u64)> = self.catalogue.records().filter_map(base).collect();
        found.sort_unstable();
        found
    }

    fn refuse_moved(&self, dataset: u64, merged: &MergedFrom<'_>) -> Result<()> {
        let Some(base) = merged.base else { return Ok(()) };
        let other = self.catalogue.dataset(&merged.read.dataset)?;
        let newest = self.bases_between((dataset, other)).pop();
        let newest = newest.and_then(|(_, number)| self.catalogue.source(number));
        if newest.as_ref().map_or_else(|| base.merge_base().is_none(), |newest| newest == base) {
            return Ok(());
        }
        let holder = "another merge between the two has moved their base: merge again".to_owned();
        Err(Error::InUse { name: base.to_string(), holder })
    }

    /// Another client may have taken the same back first.
    pub(crate) fn refuse_undone(&self) -> Result<()> {
        let entries = self.catalogue.operations().iter().map(|(number, it)| (*number, it));
        let mut undone = undone_by(entries).into_iter();
        match undone.find(|(number, _)| self.undoes != 0 && *number == self.undoes) {
            Some((_, by)) => Err(Error::Invalid(taken_back_by(by))),
            None => Ok(()),
        }
    }

    /// Makes the state that was read the base. Those before it are kept for an operation, or go.
    fn move_base(
        &mut self,
        merging: &Merging,
        merged: &MergedFrom<'_>,
        (number, is_open): (u64, IsOpen<'_>),
        gone: &mut Vec<u64>,
    ) -> Result<Moved> {
        let other = self.catalogue.dataset(&merged.read.dataset)?;
        let before = self.bases_between((merging.dataset, other));
        let name = Source::merge_base_name(merging.dataset, merging.read);
        self.change(merging.read, |record| record.name = name)?;
        for (_, base) in &before {
            self.put_away(*base, number)?;
            if number == 0 && !is_open(*base) {
                let record = self.record(*base)?;
                self.set(*base, None)?;
                self.end(record.line, record.period);
                gone.push(*base);
            }
        }
        Ok(Moved { new: merging.read, former: before.last().map_or(0, |(_, base)| *base) })
    }

    /// What the merge that is taken back tells of the base.
    fn undone_move(&self) -> Option<String> {
        let undone = self.catalogue.operations().get(&self.undoes)?;
        undone.texts.get(MOVED_TEXT).cloned()
    }

    /// Lets the base of a merge that is taken back, and the one before it, change places; nothing
    /// if another merge between the two has moved the base since.
    fn move_base_back(&mut self, undone: &str, number: u64) -> Result<Option<Moved>> {
        let Some(Moved { new, former }) = Moved::of(undone) else { return Ok(None) };
        let pair = |number: u64| {
            let source = self.catalogue.source(number)?;
            let base = source.former_base().map_or(source, |(_, base)| base);
            let Role::Snapshot { of } = self.catalogue.record(number)?.role else { return None };
            base.merge_base().map(|(taker, _)| (of, taker))
        };
        let Some(pair) = pair(new).or_else(|| pair(former)) else { return Ok(None) };
        let current = self.bases_between(pair).last().map_or(0, |(_, base)| *base);
        let is_known = |number: u64| self.catalogue.record(number).is_some();
        if current != if is_known(new) { new } else { 0 } {
            return Ok(None);
        }
        if is_known(new) {
            self.put_away(new, number)?;
        }
        let back = self.catalogue.source(former).and_then(|source| source.former_base());
        if let Some((_, base)) = back {
            self.change(former, |record| record.name = base.snapshot.unwrap_or_default())?;
        }
        Ok(Some(Moved { new: former, former: new }))
    }

    /// Gives a base a name by which it is kept for an operation; or for nothing, so that the next
    /// mount takes it away if it is read now.
    fn put_away(&mut self, base: u64, number: u64) -> Result<()> {
        self.change(base, |record| {
            record.name = match number {
                0 => format!("merge:{base}"),
                number => Source::former_base_name(number, &record.name),
            };
        })
    }
}
