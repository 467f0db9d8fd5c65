//! Receiving: a stream becomes a dataset that nobody sees, and that shows itself in one commit.

use super::{POSITION_KEY, Progress, ReceiveRequest, StreamTotals};
use crate::Error;
use crate::base::pointers::decode_pointer;
use crate::commit::turn;
use crate::send::incoming;
use crate::send::incoming::Arrival;
use crate::send::partial;
use crate::send::unchanged::Accessed;
use crate::snapshots::destroy;
use crate::snapshots::session::Session;
use crate::views::live;
use marram_store::{Block, Source};
use marram_stream::apply::Applier;
use marram_stream::reader::{Step, StreamReader};
use std::io::Read;

/// What has been received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The snapshot.
    pub snapshot: Source,
    /// The snapshot that the stream went on from.
    pub base: Option<Source>,
    /// What the dataset was before, if that had to be set aside.
    pub kept: Option<Source>,
    /// Where access times had moved since the base, and nothing else: they are as those of the
    /// snapshot now.
    pub accessed: Accessed,
    /// What the stream had in it.
    pub totals: StreamTotals,
}

/// A stream that is whole and has been verified, and of which nobody sees anything yet. Dropping
/// it gives it back, but for what is to be kept.
pub struct Incoming<'p> {
    session: &'p Session,
    arrival: Arrival,
    totals: StreamTotals,
    /// What has come stays whatever happens.
    is_kept: bool,
    is_published: bool,
}

/// Seconds after which what has come is made durable, if it is to be kept.
const COMMIT_SECONDS: i64 = 5;

impl Incoming<'_> {
    /// Counts in what an earlier stream has brought.
    fn add_earlier(&mut self) {
        if let Some(earlier) = &self.arrival.received {
            self.totals.puts += earlier.puts;
            self.totals.removals += earlier.removals;
            self.totals.blocks += earlier.blocks;
            self.totals.stored_bytes += earlier.stored_bytes;
        }
    }

    /// The snapshot that it will be.
    pub fn snapshot(&self) -> &Source {
        &self.arrival.snapshot
    }

    /// The snapshot that it goes on from, in the dataset that is there already.
    pub fn base(&self) -> Option<&Source> {
        self.arrival.base.as_ref()
    }

    /// Shows it: the dataset, or what is new of it, and its snapshot, in one commit. Views that are
    /// open on the dataset see the new state at once. A batch that was prepared before it must not
    /// be applied after it, as for a [rollback](marram_store::Lineage::rollback).
    ///
    /// # Errors
    /// The dataset has changed meanwhile, names have been taken, a failed device: then nothing is
    /// left of it, unless it is resumable: then only the end of the stream has to come again.
    pub fn publish(mut self) -> Result<Received, Error> {
        let author = self.session.author.as_ref();
        let (kept, accessed) =
            incoming::conclude_arrival(&self.session.state, &self.arrival, author)?;
        self.is_published = true;
        Ok(Received {
            snapshot: self.arrival.snapshot.clone(),
            base: self.arrival.base.clone(),
            kept,
            accessed,
            totals: self.totals,
        })
    }
}

impl Drop for Incoming<'_> {
    /// What cannot be destroyed now stays, as after a crash, until the pool is next served.
    fn drop(&mut self) {
        if !self.is_published && !self.is_kept {
            let hidden = Source::live(self.arrival.hidden.clone());
            let _stays = destroy::destroy(self.session, &[hidden], false);
        }
    }
}

/// See `Pool::receive`.
pub(crate) fn receive<'p>(
    session: &'p Session,
    request: &ReceiveRequest,
    input: &mut dyn Read,
    progress: Progress<'_>,
) -> Result<Incoming<'p>, Error> {
    let (mut reader, begin) = StreamReader::open(input)?;
    partial::drop_empty_partials(session)?;
    let (arrival, view) = incoming::begin_arrival(&session.state, request, begin)?;
    // From here on dropping it takes back what has been made.
    let mut incoming = Incoming {
        session,
        is_kept: arrival.received.is_some(),
        arrival,
        totals: StreamTotals::default(),
        is_published: false,
    };
    let arrival = &incoming.arrival;
    let base = arrival.base.as_ref().map(|base| live::open(&session.state, base)).transpose()?;
    let mut applier = Applier::new(view, base, is_same);
    if arrival.is_resumable {
        applier.record_progress(POSITION_KEY, arrival.received);
    }
    let taken = take_all(session, &mut reader, &mut applier, arrival.is_resumable, progress);
    incoming.totals = *reader.totals();
    let resumable = incoming.arrival.is_resumable;
    if taken.is_err() && resumable {
        // What cannot be kept any more is not: the part ends before it.
        let _kept_so_far = applier.flush().map(|()| turn::commit(&session.state));
        incoming.is_kept |= applier.has_recorded_progress();
    }
    taken?;
    incoming.is_kept |= resumable;
    incoming.add_earlier();
    progress(&incoming.totals);
    Ok(incoming)
}

/// Whether both are one block, at one address.
fn is_same(now: &Block, before: &Block) -> Result<bool, marram_stream::Error> {
    let address = |block: &Block| -> Result<Option<u64>, marram_store::Error> {
        let token = match block {
            Block::Stored(token) => Some(token),
            Block::Fresh(fresh) => fresh.stored(),
        };
        let pointer = token.map(|token| decode_pointer(&token.place)).transpose()?;
        Ok(pointer.and_then(|pointer| pointer.address()))
    };
    let before = address(before)?;
    Ok(before.is_some() && before == address(now)?)
}

/// Reads a stream to its end, and applies it.
fn take_all(
    session: &Session,
    reader: &mut StreamReader<'_>,
    applier: &mut Applier,
    is_resumable: bool,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let now = || (session.state.options.now_seconds)();
    let mut committed = now();
    loop {
        let step = reader.step()?;
        if matches!(step, Step::End) {
            return Ok(applier.flush()?);
        }
        if applier.take(step)? {
            progress(reader.totals());
            if is_resumable && now() >= committed.saturating_add(COMMIT_SECONDS) {
                turn::commit(&session.state)?;
                committed = now();
            }
        }
    }
}
