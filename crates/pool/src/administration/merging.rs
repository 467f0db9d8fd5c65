//! A merge, with what it needs to be taken back: the batch, the states before and after it and the
//! entry in the log are one commit.

use super::operations::entry;
use crate::pool::Pool;
use crate::settings::undo_seconds;
use marram_format::dataset::DatasetRecord;
use marram_format::operation::{KEPT_PREFIX, OperationKind, OperationRecord};
use marram_store::{Batch, Error, MergedFrom, Result, Source, View};

impl Pool {
    /// See `Store::apply_merge`.
    pub(super) fn enter_merge(
        &self,
        view: &dyn View,
        batch: Batch<'_>,
        merged: &MergedFrom<'_>,
    ) -> Result<()> {
        if self.author.is_none() {
            return view.apply(batch);
        }
        let inner = &self.inner;
        let live = inner.find_live(merged.dataset)?;
        let gone = || Error::NoDataset(live.name.clone());
        let dataset = inner.datasets.read().get(&live.id).cloned().ok_or_else(gone)?;
        inner.check_quota(&dataset, &batch)?;
        inner.reserve(&dataset, &batch)?;
        let turn = self.begin_operation()?;
        let before = inner.find(merged.before)?.id;
        let other = inner.find(merged.fork).map_or(0, |fork| fork.id);
        let keep_seconds = undo_seconds(&live.properties);
        let mut until = i64::MAX;
        turn.commit_batch(&dataset, batch.edits, &mut |commit| {
            let texts = [merged.dataset.as_str(), &merged.fork.to_string()];
            let mut record = OperationRecord {
                undoes: self.undoes,
                other: if self.undoes == 0 { other } else { 0 },
                detail: merged.root_object,
                ..entry(OperationKind::Merge, live.id, &texts)
            };
            if keep_seconds > 0 {
                let name = format!("{}@{KEPT_PREFIX}{}", live.name, commit.next_operation()?);
                let kept =
                    DatasetRecord { name: format!("{name}:before"), ..commit.record(before)? };
                commit.keep(kept)?;
                let after: Source = format!("{name}:after").parse()?;
                record.before = before;
                record.after = commit.snapshot(live.id, &after)?;
                until = commit.now_seconds.saturating_add(keep_seconds);
                record.kept_until_seconds = until;
            }
            commit.enter(self.author.as_ref(), record).map(|_| ())
        })?;
        inner.note_expiry(until);
        Ok(())
    }
}
