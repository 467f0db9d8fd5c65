//! Receiving into any store: a stream becomes a dataset that nobody sees, and is shown at once.

use crate::apply::Applier;
use crate::reader::{Step, StreamReader};
use crate::{Arrival, Error, Progress, Since, StreamTotals, Transfers};
use marram_format::stream::StreamBegin;
use marram_store::{DatasetName, Source};
use std::io::Read;

/// Names that are tried for what a dataset was before it was set back.
const KEPT_NAMES_MAX: u32 = 1 << 16;

/// Where a stream is to go.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The dataset: made by a full stream, brought further by an incremental one.
    pub dataset: DatasetName,
    /// A dataset that has changed since the base, in more than access times, goes back to that
    /// first; what it was is kept as a snapshot.
    pub force: bool,
    /// What has come is kept when the stream is cut, and another one can go on from it.
    pub resumable: bool,
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
    /// How the dataset had changed since the base.
    pub since: Since,
    /// What the stream had in it.
    pub totals: StreamTotals,
}

/// A stream that is whole and has been verified, and of which nobody sees anything yet. Dropping
/// it gives it back.
pub struct Incoming<'h> {
    home: &'h dyn Transfers,
    arrival: Arrival,
    force: bool,
    totals: StreamTotals,
    is_shown: bool,
}

impl Incoming<'_> {
    /// What it is.
    pub fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// Shows it: the dataset, or what is new of it, and its snapshot, as [`Transfers::show`] does.
    ///
    /// # Errors
    /// The dataset has changed meanwhile, names have been taken, a failed write: then nothing is
    /// left of it.
    pub fn publish(mut self) -> Result<Received, Error> {
        let Arrival { snapshot, begin, .. } = self.arrival.clone();
        let since = refuse_unfit(self.home, (&snapshot, &begin), self.force)?;
        let since = since.map_or(Since::Nothing, |(_, since)| since);
        let kept = match since {
            Since::Changed => Some(keep(self.home, &snapshot.dataset)?),
            _ => None,
        };
        self.arrival.stands = kept.clone().or_else(|| self.arrival.base.clone());
        let shown = self.home.show(&self.arrival);
        if let (Err(_), Some(kept)) = (&shown, &kept) {
            self.home.discard_kept(kept);
        }
        shown?;
        self.is_shown = true;
        let Arrival { snapshot, base, .. } = self.arrival.clone();
        Ok(Received { snapshot, base, kept, since, totals: self.totals })
    }
}

impl dyn Transfers + '_ {
    /// What was kept before something that has failed goes again.
    fn discard_kept(&self, kept: &Source) {
        let _stays_at_worst = self.destroy(kept, false);
    }
}

impl Drop for Incoming<'_> {
    /// What cannot be destroyed now stays, as after a crash, until the home is next served.
    fn drop(&mut self) {
        if !self.is_shown {
            let _stays = self.home.destroy(&Source::live(self.arrival.hidden.clone()), false);
        }
    }
}

/// Reads a stream to its end into a dataset of the store's own.
///
/// # Errors
/// [`Error::Stream`] for a stream that is cut, damaged or altered, [`Error::Unfit`] for one that
/// does not fit what is here, [`Error::Transfer`] if it cannot be read; no space, a failed write.
/// Then nothing is left of it.
pub fn receive<'h>(
    home: &'h dyn Transfers,
    request: &ReceiveRequest,
    input: &mut dyn Read,
    progress: Progress<'_>,
) -> Result<Incoming<'h>, Error> {
    if request.resumable {
        let reason = "this kind of home keeps no part of a stream that is cut: receive it whole";
        return Err(Error::Unfit(reason.to_owned()));
    }
    let (mut reader, begin) = StreamReader::open(input)?;
    let name = &request.dataset;
    let snapshot: Source = format!("{name}@{}", begin.snapshot_name).parse()?;
    if snapshot.is_own() || Source::live(name.clone()).is_own() {
        return Err(Error::Unfit(format!("{snapshot} is a name of the home's own")));
    }
    if begin.after.is_some() {
        return Err(Error::Unfit(format!(
            "this stream is the rest of one, and nothing of {snapshot} has been received here: \
             send it from its beginning"
        )));
    }
    let base = refuse_unfit(home, (&snapshot, &begin), request.force)?.map(|(base, _)| base);
    let hidden = home.hide(&begin, base.as_ref())?;
    // From here on dropping it takes back what has been made.
    let mut incoming = Incoming {
        home,
        arrival: Arrival { hidden, snapshot, base, begin, stands: None },
        force: request.force,
        totals: StreamTotals::default(),
        is_shown: false,
    };
    take_all(home, &incoming.arrival, &mut reader, progress)?;
    incoming.totals = *reader.totals();
    progress(&incoming.totals);
    Ok(incoming)
}

fn take_all(
    home: &dyn Transfers,
    arrival: &Arrival,
    reader: &mut StreamReader<'_>,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let view = home.open(&Source::live(arrival.hidden.clone()))?;
    let base = arrival.base.as_ref().map(|base| home.open(base)).transpose()?;
    let mut applier = Applier::new(view, base, |now, before| Ok(now.same(before)));
    loop {
        let step = reader.step()?;
        if matches!(step, Step::End) {
            return applier.finish();
        }
        if applier.take(step)? {
            progress(reader.totals());
        }
    }
}

/// Refuses a stream that does not fit what is here; of an incremental one, says what it goes on
/// from, and how the dataset has changed since.
fn refuse_unfit(
    home: &dyn Transfers,
    (snapshot, begin): (&Source, &StreamBegin),
    force: bool,
) -> Result<Option<(Source, Since)>, Error> {
    let unfit = |reason: String| Err(Error::Unfit(reason));
    let name = &snapshot.dataset;
    let is_there = home.report(&Source::live(name.clone())).is_ok();
    if is_there && let Some(here) = home.identified(begin.snapshot, Some(name))? {
        return unfit(format!("the stream has been received before: it is {here}"));
    }
    let base = match (begin.base, is_there) {
        (None, false) => return Ok(None),
        (None, true) => {
            return unfit(format!(
                "{name} exists, and a full stream makes a dataset: name another, or rename or \
                 destroy that"
            ));
        }
        (Some(_), false) => {
            return unfit(format!(
                "the stream is incremental, and there is no dataset {name} that it could go on \
                 from: receive the full stream first"
            ));
        }
        (Some(base), true) => home.identified(base, Some(name))?,
    };
    let Some(base) = base else {
        return unfit(format!(
            "{name} has not the snapshot that the stream goes on from: it is from another \
             dataset, or streams between were left out"
        ));
    };
    if home.report(snapshot).is_ok() {
        return unfit(format!("there is another {snapshot} here: rename or destroy it first"));
    }
    match home.since(&base)? {
        Since::Changed if !force => unfit(format!(
            "{name} has been changed since {base}: force it to go back to that first (what it is \
             now is then kept as a snapshot)"
        )),
        since => Ok(Some((base, since))),
    }
}

/// Keeps what a dataset is before it is set back.
fn keep(home: &dyn Transfers, name: &DatasetName) -> Result<Source, Error> {
    for number in 1..KEPT_NAMES_MAX {
        let kept = format!("before-receive-{number}");
        match home.snapshot(name, &kept) {
            Ok(()) => return Ok(Source { dataset: name.clone(), snapshot: Some(kept) }),
            Err(marram_store::Error::DatasetExists(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(marram_store::Error::DatasetExists(format!("{name}@before-receive-N")).into())
}
