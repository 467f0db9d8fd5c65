//! The log of operations: entered with what is done, read, and taken back.

use super::Cluster;
use super::merging::Around;
use super::publish::Plan;
use crate::draft::{Draft, Judge, Merging, expired};
use bytes::Bytes;
use marram_format::operation::{OperationKind, OperationRecord, limit_text};
use marram_format::record::{Limit, OwnerId};
use marram_store::{
    Applied, Author, Batch, DatasetName, Destruction, Error, Hidden, Key, MergedFrom, Operation,
    OperationLog, Result, Reversal, Source, Store, Undo, View, kind, limit_batch,
};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a limit is set anew while others change its dataset.
const TRIES_MAX: usize = 1000;

impl Cluster {
    /// The same store for somebody: what is done through this handle is entered into the log of
    /// operations.
    pub fn acting_for(&self, author: Author) -> Cluster {
        Cluster { author: Some(Arc::new(author)), has_merged: Arc::default(), ..self.clone() }
    }

    /// The same store for what nobody has asked for: the log of operations has nothing of it.
    pub fn without_author(&self) -> Cluster {
        Cluster { author: None, has_merged: Arc::default(), ..self.clone() }
    }

    /// Publishes all that waits, together with what `plan` does for the author of this handle.
    pub(crate) fn publish<T>(&self, plan: Plan<'_, T>) -> Result<T> {
        self.shared.publish(&mut |draft| {
            draft.act_for(self.author.as_ref());
            plan(draft)
        })
    }

    /// Lets go of what was kept for an undo and has been for long enough.
    ///
    /// # Errors
    /// Something of it cannot go, which keeps no other from it; or the database fails.
    pub fn let_go_of_expired(&self) -> Result<()> {
        self.shared.look()?;
        let now = self.shared.now();
        if expired(&self.shared.state.read().catalogue, now).is_empty() {
            return Ok(());
        }
        let failed = self.shared.publish(&mut |draft| Ok(draft.let_go_of_expired()))?;
        failed.map_or(Ok(()), Err)
    }

    /// The limit of an owner in a dataset, as an operation has it.
    fn limit_now(&self, dataset: u64, owner: u64) -> Result<String> {
        let item = self.shared.get(dataset, Key::new(0, kind::LIMIT, owner))?;
        let limit = item.map_or(Ok(Limit::NONE), |item| Limit::decode(&item.value));
        let limit = limit.map_err(|error| Error::Invalid(format!("a limit: {error}")))?;
        Ok(limit_text(limit))
    }

    /// Sets a limit, with an operation that may take another one back: that is judged anew each
    /// time that another client was first. Returns the number of the operation, or 0.
    fn change_limit(
        &self,
        dataset: u64,
        (owner, limit): (u64, Limit),
        (undoes, past): (u64, bool),
    ) -> Result<u64> {
        let item = (limit != Limit::NONE).then(|| Bytes::copy_from_slice(&limit.encode()));
        for _ in 0..TRIES_MAX {
            let mut batch = limit_batch(owner, item.clone());
            batch.seen = Some(self.shared.state.read().moment(dataset));
            if undoes != 0 {
                let limit_now = |dataset, owner| self.limit_now(dataset, owner);
                self.judged()?.limit_before(undoes, (past, &limit_now))?;
            }
            let former = self.limit_now(dataset, owner)?;
            let entered = Cell::new(0);
            let after = &mut |draft: &mut Draft| {
                draft.act_for(self.author.as_ref());
                draft.taking_back(undoes);
                let name = draft.catalogue().source(dataset).map(|of| of.to_string());
                let texts = [name.unwrap_or_default(), former.clone(), limit_text(limit)];
                let texts = texts.each_ref().map(String::as_str);
                let record = OperationRecord::of(OperationKind::Limit, dataset, &texts);
                entered.set(draft.enter(OperationRecord { detail: owner, ..record })?);
                Ok(())
            };
            let before = &mut |draft: &mut Draft| {
                draft.taking_back(undoes);
                draft.refuse_undone()
            };
            let mut around = Around { before, after };
            match self.shared.publish_around((dataset, batch), &mut around) {
                Err(Error::Overtaken) => {}
                done => return done.map(|()| entered.get()),
            }
        }
        Err(Error::Overtaken)
    }

    /// A draft by which the log is judged.
    fn judged(&self) -> Result<Draft> {
        let catalogue = self.catalogue()?;
        Ok(Draft::new((*catalogue).clone(), 0, self.shared.now()))
    }
}

impl OperationLog for Cluster {
    fn apply_merge(
        &self,
        view: &dyn View,
        batch: Batch<'_>,
        merged: &MergedFrom<'_>,
    ) -> Result<Applied> {
        if !view.writable() {
            return Err(Error::ReadOnly("a snapshot, or a store that takes no changes".to_owned()));
        }
        let dataset = self.catalogue()?.dataset(merged.dataset)?;
        let merging = RefCell::new(Merging::default());
        let before = &mut |draft: &mut Draft| {
            draft.act_for(self.author.as_ref());
            draft.taking_back(self.undoes);
            draft.refuse_foreign(merged.fork, &self.shared.session())?;
            *merging.borrow_mut() = draft.begin_merge(merged)?;
            Ok(())
        };
        let after = &mut |draft: &mut Draft| {
            let mut state = self.shared.state.write();
            let is_open = |number| state.is_open(number);
            let gone = draft.end_merge(&merging.borrow(), merged, &is_open)?;
            state.going.extend(gone);
            Ok(())
        };
        self.shared.publish_around((dataset, batch), &mut Around { before, after })?;
        self.has_merged.store(true, Ordering::Release);
        Ok(Applied::Durable)
    }

    fn settle_merges(&self) -> Result<()> {
        Ok(())
    }

    fn set_owner_limit(&self, name: &DatasetName, owner: u64, limit: Option<Bytes>) -> Result<()> {
        if OwnerId::from_offset(owner).is_none() {
            return Err(Error::Invalid(format!("{owner:#x} is the number of no owner")));
        }
        let limit = limit.map_or(Ok(Limit::NONE), |limit| Limit::decode(&limit));
        let limit = limit.map_err(|error| Error::Invalid(error.to_string()))?;
        let dataset = self.catalogue()?.dataset(name)?;
        self.change_limit(dataset, (owner, limit), (0, false)).map(drop)
    }
}

impl Undo for Cluster {
    fn operations(&self) -> Result<Vec<Operation>> {
        let draft = self.judged()?;
        let limit_now = |dataset, owner| self.limit_now(dataset, owner);
        Ok(Judge::new(&draft, false, &limit_now).operations())
    }

    fn reversal(&self, number: Option<u64>, past: bool) -> Result<(u64, Reversal)> {
        let draft = self.judged()?;
        let limit_now = |dataset, owner| self.limit_now(dataset, owner);
        Judge::new(&draft, past, &limit_now).reversal(number)
    }

    fn undo(&self, number: u64, past: bool) -> Result<u64> {
        let limit_now = |dataset, owner| self.limit_now(dataset, owner);
        let limit = self.judged()?.limit_before(number, (past, &limit_now))?;
        if let Some((dataset, owner, limit)) = limit {
            return self.change_limit(dataset, (owner, limit), (number, past));
        }
        self.publish(&mut |draft| {
            let mut state = self.shared.state.write();
            let (entered, gone) = draft.take_back((number, past), &|it| state.is_open(it))?;
            state.going.extend(gone);
            Ok(entered)
        })
    }

    fn taking_back(&self, number: u64) -> Box<dyn Store + '_> {
        Box::new(Cluster { undoes: number, ..self.clone() })
    }

    fn hide_together(&self, sources: &[Source]) -> Result<Hidden> {
        let plan = self.plan_of_destruction(sources)?;
        let (gone, kept_until_seconds) = self.publish(&mut |draft| {
            let mut state = self.shared.state.write();
            let before = Arc::clone(&state.catalogue);
            let (gone, until) = draft.hide(sources, &|number| state.is_open(number))?;
            let numbers = gone.iter().filter_map(|source| before.find(source).ok());
            state.going.extend(numbers);
            Ok((gone, until))
        })?;
        let destruction = Destruction { sources: gone, ..plan };
        Ok(Hidden { destruction, kept_until_seconds })
    }
}
