//! What a store in memory can do beside the core.

use super::MemoryStore;
use super::dataset::{self, Contents, MemoryDataset, State};
use crate::{
    DatasetKind, DatasetName, DatasetReport, Error, ForkBegin, Holder, Holds, Key, Lineage,
    MergeInto, Result, SeveralDatasets, Source, SpaceUsage, Store, Usage, VolatileForks, name,
};
use std::collections::BTreeMap;

impl SpaceUsage for MemoryStore {
    fn usage(&self, _exact: bool) -> Result<Usage> {
        let reports = self.list()?;
        let history = self.history.lock();
        let used = |keep: &dyn Fn(&Source) -> bool| {
            let kept = history.named.iter().filter(|(source, _)| keep(source));
            dataset::used_bytes(kept.map(|(_, view)| view.contents()))
        };
        let allocated_bytes = used(&|_| true);
        let holder = |report: DatasetReport| {
            let source = &report.source;
            let parent = history.parent_of(source);
            let with_parent = used(&|other| other == source || Some(other) == parent.as_ref());
            let added_bytes = with_parent - used(&|other| Some(other) == parent.as_ref());
            let unique_bytes = allocated_bytes - used(&|other| other != source);
            Holder { report, added_bytes, unique_bytes }
        };
        let holders: Vec<Holder> = reports.into_iter().map(holder).collect();
        let added: u64 = holders.iter().map(|holder| holder.added_bytes).sum();
        let shared_bytes = added - allocated_bytes;
        Ok(Usage { holders, shared_bytes, allocated_bytes, ..Usage::default() })
    }
}

impl VolatileForks for MemoryStore {
    fn begin_fork(
        &self,
        dataset: &DatasetName,
        name: &DatasetName,
        root_object: u64,
    ) -> Result<()> {
        if name.transaction().is_none() {
            return Err(Error::Invalid(format!("{name} is not to be a fork of {dataset}")));
        }
        self.fork(dataset, name, root_object)?;
        self.volatile.lock().insert(name.clone());
        Ok(())
    }

    fn end_fork(&self, name: &DatasetName) -> Result<()> {
        let fork = Source::live(name.clone());
        if !self.volatile.lock().contains(name) {
            return Err(Error::NoDataset(fork.to_string()));
        }
        self.destroy(&fork, false)?;
        self.volatile.lock().remove(name);
        Ok(())
    }

    fn is_unchanged(&self, name: &DatasetName) -> Result<bool> {
        let fork = Source::live(name.clone());
        let is_volatile = self.volatile.lock().contains(name);
        let history = self.history.lock();
        let view = history.find(&fork)?;
        let origin = history.origin(&fork).filter(|_| is_volatile);
        let base = history.snapshot(&origin.ok_or(Error::NoDataset(fork.to_string()))?)?;
        drop(history);
        let (before, after) = (Contents::clone(&base.contents()), view.contents());
        let mut is_unchanged = true;
        dataset::changes(&before, &after, Key::MIN, &mut |_| {
            is_unchanged = false;
            false
        });
        Ok(is_unchanged)
    }

    /// Whatever waits here is better committed.
    fn present_state(&self, dataset: &DatasetName, _purpose: &str) -> Result<Option<Source>> {
        self.live(dataset).map(|_| None)
    }
}

impl SeveralDatasets for MemoryStore {
    fn begin_forks(&self, forks: &[ForkBegin<'_>]) -> Result<()> {
        ForkBegin::check_several(forks)?;
        let mut history = self.history.lock();
        let mut lives = BTreeMap::new();
        // Whatever refuses one does so before the first begins.
        for ForkBegin { dataset, name, root_object } in forks {
            history.refuse_taken(&Source::live((*name).clone()))?;
            let live = history.find(&Source::live((*dataset).clone()))?;
            let base = Source::fork_base(dataset, name, &|it| history.named.contains_key(it))?;
            lives.insert(live.id, (live, base, *name, *root_object));
        }
        // Batches of all of them wait until the state of each is taken.
        let guards: Vec<_> = lives.values().map(|(live, ..)| live.contents()).collect();
        let states = lives.values().zip(&guards).map(|((live, ..), it)| live.state_of(it));
        let states: Vec<State> = states.collect();
        drop(guards);
        for ((live, base, name, root_object), state) in lives.into_values().zip(states) {
            let base = self.add_snapshot(&mut history, (state, live.id), base);
            let state = State { root_object, ..base.state() };
            let view = self.view(&mut history, state, DatasetKind::Live);
            history.add_fork(name, view, base.id);
        }
        drop(history);
        self.volatile.lock().extend(forks.iter().map(|fork| fork.name.clone()));
        Ok(())
    }

    fn apply_merges(&self, merges: Vec<MergeInto<'_>>) -> Result<()> {
        let mut all = BTreeMap::new();
        for MergeInto { batch, merged, .. } in merges {
            merged.refuse_among_several()?;
            let dataset = self.live(merged.dataset)?;
            if all.insert(dataset.id, (dataset, batch)).is_some() {
                return Err(Error::Invalid(format!("{} is named twice", merged.dataset)));
            }
        }
        MemoryDataset::apply_to_all(all.into_values().collect())
    }
}

impl Holds for MemoryStore {
    fn hold(&self, snapshot: &Source, tag: &str) -> Result<()> {
        name::check_tag(tag)?;
        let mut history = self.history.lock();
        let id = history.snapshot(snapshot)?.id;
        if history.hold(id, tag) {
            return Ok(());
        }
        Err(Error::Invalid(format!("{snapshot} is held with the tag {tag} already")))
    }

    fn release(&self, snapshot: &Source, tag: &str) -> Result<()> {
        let mut history = self.history.lock();
        let id = history.snapshot(snapshot)?.id;
        if history.release(id, tag) {
            return Ok(());
        }
        Err(Error::Invalid(format!("{snapshot} has no hold with the tag {tag}")))
    }
}

impl Lineage for MemoryStore {
    fn rollback(&self, to: &Source, keep: &str) -> Result<()> {
        let kept: Source = format!("{}@{keep}", to.dataset).parse()?;
        let live = self.live(&to.dataset)?;
        let mut history = self.history.lock();
        let target = history.snapshot(to)?;
        history.refuse_taken(&kept)?;
        let mut contents = live.lock_contents();
        let state = State { contents: Contents::clone(&contents), ..live.properties_alone() };
        let view = self.view(&mut history, state, DatasetKind::Snapshot);
        history.add_snapshot(kept, view, live.id);
        history.roll_back(live.id, target.id);
        history.forget_bases(&to.dataset, live.id, target.id);
        *contents = Contents::clone(&target.contents());
        Ok(())
    }

    fn promote(&self, name: &DatasetName) -> Result<()> {
        self.history.lock().promote(name)
    }
}
