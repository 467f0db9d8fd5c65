//! Receiving: a stream becomes a dataset that nobody sees, and that shows itself in one commit.

use super::apply::Applier;
use super::reader::{Step, StreamReader};
use super::{Progress, StreamTotals};
use crate::Error;
use crate::administration::Arrival;
use crate::pool::Pool;
use marram_store::{DatasetName, Source, Store};
use std::io::Read;

/// Where a stream is to go.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The dataset: made by a full stream, brought further by an incremental one.
    pub dataset: DatasetName,
    /// A dataset that has changed since the base goes back to that first; what it was is kept as a
    /// snapshot.
    pub force: bool,
}

/// What has been received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The snapshot.
    pub snapshot: Source,
    /// The snapshot that the stream went on from.
    pub base: Option<Source>,
    /// What the dataset was before, if that had to be set aside.
    pub kept: Option<Source>,
    /// What the stream had in it.
    pub totals: StreamTotals,
}

/// A stream that is whole and has been verified, and of which nobody sees anything yet. Dropping
/// it gives it back.
pub struct Incoming<'p> {
    pool: &'p Pool,
    arrival: Arrival,
    totals: StreamTotals,
    is_published: bool,
}

impl Pool {
    /// Reads a stream to its end into a dataset of the pool's own.
    ///
    /// # Errors
    /// [`Error::Stream`] for a stream that is cut, damaged or altered, [`Error::Unfit`] for one
    /// that does not fit what is here, [`Error::Transfer`] if it cannot be read; no space, a failed
    /// device. Then nothing is left of it.
    pub fn receive(
        &self,
        request: &ReceiveRequest,
        input: &mut dyn Read,
        progress: Progress<'_>,
    ) -> Result<Incoming<'_>, Error> {
        let (mut reader, begin) = StreamReader::open(input)?;
        let arrival = self.inner.begin_arrival(&request.dataset, begin, request.force)?;
        // From here on dropping it takes back what has been made.
        let mut incoming =
            Incoming { pool: self, arrival, totals: StreamTotals::default(), is_published: false };
        let view = self.open(&Source::live(incoming.arrival.hidden.clone()))?;
        let base = incoming.arrival.base.as_ref().map(|base| self.open(base)).transpose()?;
        let mut applier = Applier::new(view, base);
        loop {
            let step = reader.step()?;
            if matches!(step, Step::End) {
                break;
            }
            if applier.take(step)? {
                progress(&reader.totals);
            }
        }
        applier.flush()?;
        incoming.totals = reader.totals;
        progress(&incoming.totals);
        Ok(incoming)
    }
}

impl Incoming<'_> {
    /// The snapshot that it will be.
    pub fn snapshot(&self) -> &Source {
        &self.arrival.snapshot
    }

    /// The snapshot that it goes on from, in the dataset that is there already.
    pub fn base(&self) -> Option<&Source> {
        self.arrival.base.as_ref()
    }

    /// Shows it: the dataset, or what is new of it, and its snapshot, in one commit. Views that are
    /// open on the dataset see the new state at once; see [`Store::rollback`] for what that asks of
    /// whoever prepares a batch.
    ///
    /// # Errors
    /// The dataset has changed meanwhile, names have been taken, a failed device: then nothing is
    /// left of it.
    pub fn publish(mut self) -> Result<Received, Error> {
        let kept = self.pool.inner.conclude_arrival(&self.arrival)?;
        self.is_published = true;
        Ok(Received {
            snapshot: self.arrival.snapshot.clone(),
            base: self.arrival.base.clone(),
            kept,
            totals: self.totals,
        })
    }
}

impl Drop for Incoming<'_> {
    /// What cannot be destroyed now stays, as after a crash, until the pool is next served.
    fn drop(&mut self) {
        if !self.is_published {
            let hidden = Source::live(self.arrival.hidden.clone());
            let _stays = self.pool.destroy(&hidden, false);
        }
    }
}
