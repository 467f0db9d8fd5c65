//! What a client had waiting when it was taken for lost is kept as forks.
//!
//! Another client that expels one which is alone, and may come back, takes a snapshot of each
//! dataset in the same entry: so the state on which the lost one worked stays. When that one comes
//! back, it forks the snapshots of what it had changed, and puts what waited there. The forks can
//! be compared and merged as any fork. One that never comes back leaves the snapshots, no forks.
//! What was done in transactions is gone: their forks go in that entry, too. What was being
//! received is not kept: it is no state of anything yet, and the stream can come again.
//!
//! Then it goes on as a client that has been opened in its place, with all views that it has.

use super::Cluster;
use super::company::Session;
use crate::draft::{Draft, is_hidden, left_of};
use crate::format::{Record, Role};
use crate::pending::Items;
use marram_store::{Batch, DatasetName, Edit, Error, Result, Source, Store, View};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a rescue begins anew because others have changed the fork.
const TRIES_MAX: usize = 1000;
/// Bytes of a session that tell it from all others in a name.
const NAMED_BYTES: usize = 8;

/// The name of the snapshots that are kept for a client which is expelled.
fn kept_for(lost: &Session) -> String {
    let digits = lost.iter().take(NAMED_BYTES).map(|byte| format!("{byte:02x}"));
    format!("lost-{}", digits.collect::<String>())
}

/// Keeps the state of each dataset for a client that is expelled, where there is room for one more
/// snapshot: nothing of it may stop the expulsion.
pub(crate) fn keep_for_lost(draft: &mut Draft, lost: Session) {
    let live = draft.catalogue().records();
    let live = live
        .filter(|(_, record)| matches!(record.role, Role::Dataset { .. }) && !is_hidden(record));
    let named = live.filter_map(|(_, record)| record.name.parse().ok());
    let is_state = |it: &DatasetName| it.transaction().is_none() && !it.is_receiving();
    let names: Vec<DatasetName> = named.filter(is_state).collect();
    for name in names {
        // It fails before it changes anything.
        let _is_kept = draft.snapshot(&name, &kept_for(&lost)).is_ok();
    }
}

impl Cluster {
    /// Whether this client was taken for lost while something of it waited for its publication.
    pub fn has_lost(&self) -> bool {
        let state = self.shared.state.read();
        state.is_expelled && !state.unpublished().is_empty()
    }

    /// Whether others have taken this client for lost.
    pub fn is_expelled(&self) -> bool {
        self.shared.state.read().is_expelled
    }

    /// Whether users of this client hold locks, or did when it was taken for lost and have not let
    /// go since.
    pub fn holds_locks(&self) -> bool {
        !self.shared.locks.lock().places().is_empty()
    }

    /// Goes on as a client of the same store that was opened after this one was taken for lost,
    /// with the session of that one: what is kept for a session, or locked by it, is of one life
    /// of a client. The other one is no client any more, and need not be closed. Views that are
    /// open here show from then on what that one shows: all that is kept about the store outside
    /// of it must be let go of before.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is no such client, if something waits here yet, or if locks are
    /// held: they are lost, and what works under one must not go on.
    pub fn go_on_as(&self, opened: &Cluster) -> Result<()> {
        let (own, other) = (&*self.shared, &*opened.shared);
        let (mut locks, new_locks) = (own.locks.lock(), other.locks.lock());
        let (mut publisher, from) = (own.publisher.lock(), other.publisher.lock());
        let (mut state, mut new) = (own.state.write(), other.state.write());
        let is_same = own.id == other.id;
        let is_free = state.unpublished().is_empty() && locks.places().is_empty();
        if !is_same || !state.is_expelled || !is_free {
            return Err(Error::Invalid("no such client can go on as this one".to_owned()));
        }
        own.rows.stir();
        (publisher.number, publisher.hash) = (from.number, from.hash);
        own.end.store(from.number, Ordering::Release);
        own.items.clear(false);
        std::mem::swap(&mut state.catalogue, &mut new.catalogue);
        std::mem::swap(&mut state.company, &mut new.company);
        *own.session.lock() = other.session();
        (locks.is_published, locks.unsure) = (new_locks.is_published, Default::default());
        (state.is_alone, state.is_expelled, state.stopped) = (new.is_alone, false, None);
        state.rests = false;
        own.since.store(other.since.load(Ordering::Relaxed), Ordering::Relaxed);
        state.lives += 1;
        own.blocks.hold.note_upload();
        new.stopped = Some("another one goes on as this client".to_owned());
        Ok(())
    }

    /// Puts what waited here when this client was taken for lost into forks, through another client
    /// of the same store. Returns their names.
    ///
    /// # Errors
    /// The state of a dataset was not kept, or the database fails. What is in no fork goes on
    /// waiting here; it may be tried anew.
    pub fn rescue(&self, through: &Cluster) -> Result<Vec<DatasetName>> {
        let unpublished = {
            let state = self.shared.state.read();
            if !state.is_expelled {
                return Ok(Vec::new());
            }
            state.unpublished()
        };
        let mut rest = unpublished.clone();
        let unkept = self.unkept();
        unkept.iter().for_each(|dataset| rest.forget(*dataset));
        let (mut forks, mut failed) = (Vec::new(), None);
        let kept = unpublished.datasets().filter(|(dataset, _)| !unkept.contains(dataset));
        for (dataset, items) in kept {
            match self.rescue_dataset(through, (dataset, items)) {
                Ok(fork) => {
                    forks.push(fork);
                    rest.forget(dataset);
                }
                Err(error) => failed = Some(error),
            }
        }
        let mut state = self.shared.state.write();
        (state.frozen, state.pending) = (None, rest);
        drop(state);
        match failed {
            Some(error) if forks.is_empty() => return Err(error),
            Some(_) => {}
            None => self.forget_kept(through)?,
        }
        Ok(forks)
    }

    /// The forks that its transactions worked in, and the datasets into which streams came.
    fn unkept(&self) -> BTreeSet<u64> {
        let catalogue = Arc::clone(&self.shared.state.read().catalogue);
        let forks = left_of(&catalogue, &|_| false);
        let of_transactions = forks.iter().filter_map(|fork| catalogue.find(fork).ok());
        let receives = |(_, record): &(u64, &Record)| {
            record.name.parse().is_ok_and(|name: DatasetName| name.is_receiving())
        };
        let received = catalogue.records().filter(receives).map(|(number, _)| number);
        of_transactions.chain(received).collect()
    }

    /// Takes away the snapshots of what this client had not changed, but for those that somebody
    /// holds or has cloned.
    fn forget_kept(&self, through: &Cluster) -> Result<()> {
        let kept = kept_for(&self.shared.session());
        for Source { dataset, snapshot } in through.known() {
            if snapshot.as_ref() == Some(&kept) {
                match through.destroy(&Source { dataset, snapshot }, false) {
                    Ok(_) | Err(Error::InUse { .. } | Error::NoDataset(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn rescue_dataset(
        &self,
        through: &Cluster,
        (dataset, items): (u64, &Items),
    ) -> Result<DatasetName> {
        let kept = kept_for(&self.shared.session());
        let name: DatasetName = format!("{kept}-{dataset}").parse()?;
        // An attempt before this one may have made it.
        let fork = Source::live(name.clone());
        if through.report(&fork).is_err() {
            through.shared.publish(&mut |draft| draft.fork_kept(dataset, &kept, &name))?;
        }
        put(&*through.open(&fork)?, items)?;
        Ok(name)
    }
}

/// Puts items into a fork, whatever others change there.
fn put(fork: &dyn View, items: &Items) -> Result<()> {
    let together = fork.capabilities().together;
    for _ in 0..TRIES_MAX {
        let seen = together.map(|together| together.look()).transpose()?;
        let mut batch = Batch { seen, ..Batch::new() };
        batch.edits.extend(items.iter().map(|(key, item)| match item {
            Some(item) => Edit::Put { key: *key, item: item.clone() },
            None => Edit::Remove { key: *key },
        }));
        match fork.apply(batch) {
            Err(Error::Overtaken) => {}
            applied => return applied.and_then(|()| fork.sync()),
        }
    }
    Err(Error::Overtaken)
}
