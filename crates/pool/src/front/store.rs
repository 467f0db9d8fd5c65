//! The pool as a store: each operation takes its turn, and is one commit.

use crate::admission::room;
use crate::front::Pool;
use crate::memtable::settings::{Settings, check_property};
use crate::snapshots::begin::{begin_operation, begin_operations};
use crate::snapshots::ephemeral::EphemeralState;
use crate::snapshots::operation_log::{self, entry, is_ephemeral};
use crate::snapshots::{
    comparing, destroy, ephemeral, limits, lineage, list, merge_commit, properties, trash, usage,
};
use crate::state::find::refuse_hidden;
use crate::state::pinned_commit::PinnedCommit;
use crate::views::frozen::FrozenView;
use crate::views::live::DatasetView;
use bytes::Bytes;
use marram_format::dataset::DatasetState;
use marram_format::operation::{OperationKind, OperationRecord};
use marram_store::{
    Batch, DatasetName, DatasetReport, Destruction, ItemChange, Key, MergedFrom, Properties,
    PropertySource, Result, Source, Store, Usage, View, check_rename, check_tag,
};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Store for Pool {
    fn open(&self, source: &Source) -> Result<Arc<dyn View>> {
        match ephemeral::find(&self.session, source) {
            Some(state) => Ok(Arc::new(ephemeral_view(&state)?)),
            None => Ok(Arc::new(DatasetView::new(
                Arc::clone(&self.session.state),
                self.session.state.open(source)?,
            ))),
        }
    }

    fn list(&self) -> Result<Vec<DatasetReport>> {
        list::list(&self.session.state)
    }

    fn create(&self, name: &DatasetName, properties: &Properties) -> Result<()> {
        let local = checked(properties)?;
        let turn = begin_operation(&self.session)?;
        self.session.state.refuse_taken(&Source::live(name.clone()))?;
        turn.commit(Some(&mut |commit| {
            let mut record = commit.new_record(name.as_str(), DatasetState::Live);
            record.properties = local.clone();
            room::check_record_reservation(commit.pool, &record, 0)?;
            let entry = entry(OperationKind::Create, record.id, &[name.as_str()]);
            commit.add(record)?;
            operation_log::enter(commit, self.session.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn snapshot_together(&self, datasets: &[DatasetName], snapshot: &str) -> Result<()> {
        let turn = begin_operations(&self.session, datasets.len())?;
        let mut kept = BTreeMap::new();
        for dataset in datasets {
            let source: Source = format!("{dataset}@{snapshot}").parse()?;
            self.session.state.refuse_taken(&source)?;
            kept.insert(self.session.state.find_live(dataset)?.id, source);
        }
        turn.commit(Some(&mut |commit| {
            for (id, source) in &kept {
                let id = lineage::snapshot(commit, *id, source)?;
                if !is_ephemeral(source) {
                    let entry = entry(OperationKind::Snapshot, id, &[&source.to_string()]);
                    operation_log::enter(commit, self.session.author.as_ref(), entry)?;
                }
            }
            Ok(())
        }))
    }

    fn clone_snapshot(&self, origin: &Source, name: &DatasetName) -> Result<()> {
        let turn = begin_operation(&self.session)?;
        self.session.state.refuse_taken(&Source::live(name.clone()))?;
        let origin = self.session.state.find_snapshot(origin)?;
        turn.commit(Some(&mut |commit| {
            let record = lineage::clone_of(commit, origin.id, name)?;
            let texts = [name.as_str(), &origin.name];
            let entry = entry(OperationKind::Clone, record.id, &texts);
            let entry = OperationRecord { other: origin.id, ..entry };
            commit.add(record)?;
            operation_log::enter(commit, self.session.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn fork(&self, dataset: &DatasetName, name: &DatasetName, root_object: u64) -> Result<()> {
        let turn = begin_operation(&self.session)?;
        self.session.state.refuse_taken(&Source::live(name.clone()))?;
        let id = self.session.state.find_live(dataset)?.id;
        let is_taken = |base: &Source| self.session.state.find(base).is_ok();
        let base = Source::fork_base(dataset, name, &is_taken)?;
        turn.commit(Some(&mut |commit| {
            let record = lineage::fork(commit, id, &base, name, root_object)?;
            let texts = [name.as_str(), dataset.as_str()];
            let entry = entry(OperationKind::Fork, record.id, &texts);
            let entry = OperationRecord { other: record.origin, ..entry };
            commit.add(record)?;
            operation_log::enter(commit, self.session.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn rollback(&self, to: &Source, keep: &str) -> Result<()> {
        let kept: Source = format!("{}@{keep}", to.dataset).parse()?;
        let turn = begin_operation(&self.session)?;
        self.session.state.refuse_taken(&kept)?;
        let target = self.session.state.find_snapshot(to)?.id;
        let id = self.session.state.find_live(&to.dataset)?.id;
        turn.commit_alone(&mut |commit| {
            let before = lineage::roll_back(commit, id, target, &kept)?;
            let texts = [to.to_string(), kept.to_string()];
            let entry = entry(OperationKind::Rollback, id, &[texts[0].as_str(), &texts[1]]);
            let entry = OperationRecord { other: target, before, ..entry };
            operation_log::enter(commit, self.session.author.as_ref(), entry).map(|_| ())
        })
    }

    fn promote(&self, name: &DatasetName) -> Result<()> {
        let turn = begin_operation(&self.session)?;
        let id = lineage::refuse_promotion(&self.session.state, name)?;
        let (other, whose) = lineage::holder_of_origin(&self.session.state, id)?;
        turn.commit(Some(&mut |commit| {
            let detail = lineage::promote(commit, id)?;
            let entry = entry(OperationKind::Promote, id, &[name.as_str(), &whose]);
            let entry = OperationRecord { other, detail, ..entry };
            operation_log::enter(commit, self.session.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn hold(&self, snapshot: &Source, tag: &str) -> Result<()> {
        check_tag(tag)?;
        let turn = begin_operation(&self.session)?;
        properties::change_holds(&self.session, &turn, snapshot, tag, (true, 0))
    }

    fn release(&self, snapshot: &Source, tag: &str) -> Result<()> {
        let turn = begin_operation(&self.session)?;
        properties::change_holds(&self.session, &turn, snapshot, tag, (false, 0))
    }

    fn rename(&self, from: &Source, to: &Source) -> Result<()> {
        check_rename(from, to)?;
        let turn = begin_operation(&self.session)?;
        self.session.state.refuse_taken(to)?;
        let renamed = self.session.state.find(from)?;
        refuse_hidden(&renamed)?;
        turn.commit(Some(&mut |commit| {
            trash::give_name(commit, renamed.id, to)?;
            let texts = [renamed.name.as_str(), &to.to_string()];
            let entry = entry(OperationKind::Rename, renamed.id, &texts);
            operation_log::enter(commit, self.session.author.as_ref(), entry).map(|_| ())
        }))
    }

    fn apply_merge(
        &self,
        view: &dyn View,
        batch: Batch<'_>,
        merged: &MergedFrom<'_>,
    ) -> Result<()> {
        merge_commit::enter_merge(&self.session, view, batch, merged)
    }

    fn changes(
        &self,
        before: &Source,
        after: &Source,
        from: Key,
        visit: &mut dyn FnMut(ItemChange) -> bool,
    ) -> Result<()> {
        comparing::compare(&self.session, (before, after), from, visit)
    }

    fn keep_for_now(&self, dataset: &DatasetName, purpose: &str) -> Result<Source> {
        ephemeral::take(&self.session, dataset, purpose)
    }

    fn let_go(&self, kept: &Source) {
        if !ephemeral::forget(&self.session, kept) {
            let _stays = self.destroy(kept, false);
        }
    }

    fn is_overtaken(&self, kept: &Source) -> bool {
        ephemeral::find(&self.session, kept).is_some_and(|state| state.is_overtaken())
    }

    fn report(&self, source: &Source) -> Result<DatasetReport> {
        let ephemeral =
            ephemeral::find(&self.session, source).map(|state| Arc::clone(&state.record));
        let record = ephemeral.map_or_else(|| self.session.state.find(source), Ok)?;
        list::report(&self.session.state.records.read(), &record)
    }

    fn usage(&self, exact: bool) -> Result<Usage> {
        usage::usage(&self.session.state, exact)
    }

    fn frozen(&self, source: &Source) -> Result<Arc<dyn View>> {
        let moment = PinnedCommit::hold(&self.session.state);
        Ok(Arc::new(FrozenView::open(moment, &source.to_string())?))
    }

    fn destroy_together(&self, sources: &[Source], dry_run: bool) -> Result<Destruction> {
        destroy::destroy(&self.session, sources, dry_run)
    }

    fn properties(&self, name: &DatasetName) -> Result<BTreeMap<String, (String, PropertySource)>> {
        let record = self.session.state.find_live(name)?;
        let all = Settings::new(&record.properties)?.all.0;
        let local = |name: &str| record.properties.iter().any(|(set, _)| set == name);
        Ok(all
            .into_iter()
            .map(|(name, value)| {
                let set = local(&name);
                let source = if set { PropertySource::Local } else { PropertySource::Default };
                (name, (value, source))
            })
            .collect())
    }

    fn set_property(&self, name: &DatasetName, property: &str, value: Option<&str>) -> Result<()> {
        let value = value.map(ToOwned::to_owned);
        self.set_properties(name, &BTreeMap::from([(property.to_owned(), value)]))
    }

    fn set_owner_limit(&self, name: &DatasetName, owner: u64, limit: Option<Bytes>) -> Result<()> {
        limits::enter_limit(&self.session, name, owner, limit)
    }

    fn sync(&self) -> Result<()> {
        self.commit()
    }
}

fn checked(properties: &Properties) -> Result<Vec<(String, String)>> {
    let check =
        |(name, value): (&String, &String)| Ok((name.clone(), check_property(name, value)?));
    properties.0.iter().map(check).collect()
}

/// A state that is compared, as long as it is not overwritten.
fn ephemeral_view(state: &EphemeralState) -> Result<FrozenView> {
    let opened = FrozenView::of(Arc::clone(&state.moment), Arc::clone(&state.record));
    state.moment.judge_damage(&state.record.name, opened)
}
