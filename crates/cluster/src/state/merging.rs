//! A batch published at once, in one entry with changes of records: a merge, or a limit.

use super::Shared;
use super::publish::Plan;
use crate::catalogue::Catalogue;
use crate::draft::Draft;
use crate::pending::Pending;
use crate::state::Publisher;
use marram_store::{Batch, Error, Result};
use std::sync::Arc;

/// How often a publication is tried anew while others publish.
const TRIES_MAX: usize = 10_000;

/// What is done to records before the items of a batch come into them, and what after that.
pub(super) struct Around<'p> {
    pub(super) before: Plan<'p, ()>,
    pub(super) after: Plan<'p, ()>,
}

impl Shared {
    /// Publishes all that waits, and then a batch together with what is done around it: all of
    /// this, or nothing.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if others have changed what the batch depends on.
    pub(super) fn publish_around(
        &self,
        (dataset, batch): (u64, Batch<'_>),
        around: &mut Around<'_>,
    ) -> Result<()> {
        if self.read_only {
            return Err(Error::ReadOnly("it is open for reading only".to_owned()));
        }
        let mut publisher = self.publisher_awake()?;
        self.publish_what_waits(&mut publisher)?;
        let Batch { edits, seen, .. } = batch;
        let staged = {
            let state = self.state.read();
            state.refuse_stopped()?;
            let is_of_now = match seen {
                Some(seen) => seen == state.moment(dataset),
                None => state.is_alone,
            };
            if !is_of_now {
                return Err(Error::Overtaken);
            }
            Arc::new(self.staged(dataset, edits, &state)?)
        };
        // What reads while rows follow the entry sees all of it.
        self.state.write().frozen = Some(Arc::clone(&staged));
        let done = self.put_around(&mut publisher, (dataset, &staged), around);
        let mut state = self.state.write();
        state.going.clear();
        match done {
            Ok(catalogue) => {
                if let Some(catalogue) = catalogue {
                    state.catalogue = Arc::new(catalogue);
                }
                state.frozen = None;
                Ok(())
            }
            // What is in the log already stays in sight until the rows have it. What others have
            // refused by taking this client for lost is not there, and is not rescued.
            Err(error) if state.stopped.is_some() && !state.is_expelled => Err(error),
            Err(error) => {
                state.frozen = None;
                Err(error)
            }
        }
    }

    fn put_around(
        &self,
        publisher: &mut Publisher,
        (dataset, staged): (u64, &Pending),
        around: &mut Around<'_>,
    ) -> Result<Option<Catalogue>> {
        let moment = self.state.read().moment(dataset);
        for _ in 0..TRIES_MAX {
            let catalogue = Arc::clone(&self.state.read().catalogue);
            let before: Plan<'_, ()> = &mut *around.before;
            let after: Plan<'_, ()> = &mut *around.after;
            match self.put(publisher, (staged, &catalogue), None, (Some(before), after)) {
                Err(Error::Overtaken) => self.take_in(publisher)?,
                done => return done.map(|((), catalogue)| catalogue),
            }
            if self.state.read().moment(dataset) != moment {
                break;
            }
        }
        Err(Error::Overtaken)
    }

    fn publish_what_waits(&self, publisher: &mut Publisher) -> Result<()> {
        let nothing = Pending::default();
        let plan: Plan<'_, ()> = &mut |_: &mut Draft| Ok(());
        for _ in 0..TRIES_MAX {
            match self.try_publish(publisher, None, &nothing, plan) {
                Err(Error::Overtaken) => self.take_in(publisher)?,
                done => return done,
            }
        }
        Err(Error::Overtaken)
    }
}
