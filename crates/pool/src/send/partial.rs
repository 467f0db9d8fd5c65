//! Datasets that keep what has come of a stream that was cut, until another one brings the rest.
//!
//! How far one is, is an item of its own tree. It is put with each batch, and a batch is there
//! after a crash wholly or not at all: so it says exactly what is there, and nothing is received
//! twice. A property of the dataset would be behind what later commits have taken in.
//!
//! One dataset is received at a time under a name: a second receive is refused.

use crate::Error;
use crate::commit::operation_log;
use crate::commit::operation_log::entry;
use crate::memtable::dataset::Opened;
use crate::send::{POSITION_KEY, identity_of};
use crate::snapshots::begin;
use crate::snapshots::destroy;
use crate::snapshots::plan::Plan;
use crate::snapshots::session::Session;
use crate::state::State;
use crate::state::records::parent_of;
use crate::views::live::DatasetView;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::operation::OperationKind;
use marram_format::pointer::GRAIN_BYTES;
use marram_format::stream::{Received, ResumeToken, SnapshotIdentity, StreamBegin};
use marram_store::{DatasetName, Error as StoreError, Result, Source, View};
use std::sync::Arc;

/// With this the names of the properties begin that say what a dataset is to be.
pub(crate) const ARRIVING_PREFIX: &str = ".arriving";
/// Property: the name and snapshot that it is to be.
const ARRIVING: &str = ".arriving";
/// Property: the identity of the snapshot.
const ARRIVING_ID: &str = ".arriving-id";
/// Property: the identity of the base.
const ARRIVING_BASE: &str = ".arriving-base";

/// A part of a stream that has been received.
#[derive(Clone, Debug)]
pub struct Partial {
    /// The dataset that keeps it.
    pub hidden: DatasetName,
    /// The snapshot that it is to be.
    pub snapshot: Source,
    /// That one's identity.
    pub id: SnapshotIdentity,
    /// The identity of what an incremental stream goes on from.
    pub base_id: Option<SnapshotIdentity>,
    /// How much has come; nothing that is worth going on from without it.
    pub received: Option<Received>,
    /// It is being received at this moment.
    pub is_running: bool,
    /// Bytes that it refers to, those of its base too.
    pub referenced_bytes: u64,
    /// Since when: seconds since 1970.
    pub created_seconds: i64,
}

impl Partial {
    /// What a sender needs to go on; nothing if it is to begin anew.
    pub fn token(&self) -> Option<ResumeToken> {
        let received = self.received?;
        Some(ResumeToken { snapshot: self.id, base: self.base_id, received })
    }

    /// Why another stream is not received under its name.
    pub(crate) fn in_the_way(&self) -> String {
        match self.is_running {
            true => format!("{} is being received at this moment", self.snapshot),
            false => format!(
                "a part of {} has been received: send the rest of it with its token, or drop it \
                 first",
                self.snapshot
            ),
        }
    }
}

/// The properties of a dataset that is to be `snapshot`.
pub(crate) fn arriving(snapshot: &Source, begin: &StreamBegin) -> Vec<(String, String)> {
    let mut properties = vec![
        (ARRIVING.to_owned(), snapshot.to_string()),
        (ARRIVING_ID.to_owned(), text_of(begin.snapshot)),
    ];
    properties.extend(begin.base.map(|base| (ARRIVING_BASE.to_owned(), text_of(base))));
    properties
}

fn text_of(identity: SnapshotIdentity) -> String {
    let id: String = identity.id.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{id}:{}", identity.created_seconds)
}

fn identity_from(text: &str) -> Option<SnapshotIdentity> {
    let (id, seconds) = text.split_once(':')?;
    let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
    Some(SnapshotIdentity { id, created_seconds: seconds.parse().ok()? })
}

fn partial_from(record: &DatasetRecord) -> Option<Partial> {
    let hidden: DatasetName = record.name.parse().ok()?;
    let property = |name: &str| {
        let found = record.properties.iter().find(|(one, _)| one == name);
        found.map(|(_, value)| value.as_str())
    };
    if !hidden.is_partial() {
        return None;
    }
    Some(Partial {
        hidden,
        snapshot: property(ARRIVING)?.parse().ok()?,
        id: identity_from(property(ARRIVING_ID)?)?,
        base_id: property(ARRIVING_BASE).and_then(identity_from),
        received: None,
        is_running: false,
        referenced_bytes: record.referenced_grains * GRAIN_BYTES,
        created_seconds: record.created_seconds,
    })
}

/// See `Pool::partials`. The caller has the turn to commit: nothing goes meanwhile.
fn read_partials(pool: &Arc<State>) -> Result<Vec<Partial>> {
    let live: Vec<Arc<DatasetRecord>> = {
        let records = pool.records.read();
        let is_it = |record: &&Arc<DatasetRecord>| record.state == DatasetState::Live;
        records.known().filter(is_it).cloned().collect()
    };
    let mut partials = Vec::new();
    for record in live {
        let Some(mut partial) = partial_from(&record) else { continue };
        partial.is_running = pool.running(record.id).is_some_and(|dataset| dataset.is_open());
        let position = view_of(pool, &partial.hidden)?.get(POSITION_KEY)?;
        partial.received = position.and_then(|item| Received::decode(&item.value).ok());
        partials.push(partial);
    }
    Ok(partials)
}

/// What has been received for a dataset; the same holds.
pub(crate) fn partial_of(pool: &Arc<State>, dataset: &DatasetName) -> Result<Option<Partial>> {
    let partials = read_partials(pool)?;
    Ok(partials.into_iter().find(|partial| partial.snapshot.dataset == *dataset))
}

/// Opens a dataset of the pool's own; the same holds.
pub(crate) fn view_of(pool: &Arc<State>, name: &DatasetName) -> Result<Arc<dyn View>> {
    let id = pool.find(&Source::live(name.clone()))?.id;
    let dataset = pool.running(id).ok_or_else(|| StoreError::NoDataset(name.to_string()))?;
    Ok(Arc::new(DatasetView::new(Arc::clone(pool), Opened::new(dataset))))
}

/// See `Pool::partials`.
pub(crate) fn partials(session: &Session) -> std::result::Result<Vec<Partial>, Error> {
    let _no_commit = session.state.turns.committing.lock();
    Ok(read_partials(&session.state)?)
}

/// See `Pool::drop_partial`.
pub(crate) fn drop_partial(
    session: &Session,
    dataset: &DatasetName,
) -> std::result::Result<Source, Error> {
    let partials = partials(session)?;
    let found = partials.into_iter().find(|partial| partial.snapshot.dataset == *dataset);
    let Some(partial) = found else {
        return Err(Error::Unfit(format!("nothing of a stream is kept for {dataset}")));
    };
    let busy = || Error::Unfit(format!("{}: end that first", partial.in_the_way()));
    if partial.is_running {
        return Err(busy());
    }
    match abort(session, &partial) {
        Ok(()) => Ok(partial.snapshot),
        Err(StoreError::InUse { .. }) => Err(busy()),
        Err(error) => Err(error.into()),
    }
}

/// Destroys what has been received, in one commit with the entry of that. Nothing of it is kept
/// for an undo: it can be received again.
fn abort(session: &Session, partial: &Partial) -> Result<()> {
    let turn = begin::begin_operation(session)?;
    // It may be finished by now, and the name in use for the next stream.
    let now = partial_of(&session.state, &partial.snapshot.dataset)?;
    if now.is_none_or(|now| (&now.hidden, now.id) != (&partial.hidden, partial.id)) {
        return Err(StoreError::NoDataset(partial.hidden.to_string()));
    }
    let hidden = Source::live(partial.hidden.clone());
    let plan = Plan::new(&session.state, std::slice::from_ref(&hidden))?;
    plan.refuse_in_use(&session.state)?;
    let id = session.state.find(&hidden)?.id;
    turn.commit_reclaiming(0, &mut |commit, pointers| {
        destroy::destroy_planned(commit, &plan, pointers)?;
        let entry = entry(OperationKind::Abort, id, &[&partial.snapshot.to_string()]);
        operation_log::enter(commit, session.author.as_ref(), entry).map(|_| ())
    })
}

/// See `Pool::drop_empty_partials`.
pub(crate) fn drop_empty_partials(session: &Session) -> std::result::Result<(), Error> {
    for partial in partials(session)? {
        if !partial.is_running && partial.received.is_none() {
            destroy::destroy(session, &[Source::live(partial.hidden)], false)?;
        }
    }
    Ok(())
}

/// See `Pool::named_by`.
pub(crate) fn named_by(
    session: &Session,
    token: &ResumeToken,
) -> std::result::Result<(Source, Option<Source>), Error> {
    let records = session.state.records.read();
    let with = |identity: SnapshotIdentity| {
        records.known().filter(move |record| {
            record.state == DatasetState::Snapshot && identity_of(record) == identity
        })
    };
    let gone = |what: &str| {
        Error::Unfit(format!(
            "this pool has not got the snapshot that {what}: it was destroyed, or the token is \
             for another pool"
        ))
    };
    let Some(base) = token.base else {
        let found = with(token.snapshot).next();
        let found = found.ok_or_else(|| gone("the token is about"))?;
        return Ok((found.name.parse()?, None));
    };
    with(token.snapshot).next().ok_or_else(|| gone("the token is about"))?;
    with(base).next().ok_or_else(|| gone("the stream goes on from"))?;
    // What was received into the same pool has the same identities.
    let pairs = with(token.snapshot).flat_map(|one| with(base).map(move |base| (one, base)));
    let mut fit: Vec<_> =
        pairs.filter(|(one, base)| base.created_group < one.created_group).collect();
    fit.sort_by_key(|(one, base)| (parent_of(one) != base.id, one.parent != base.parent));
    let (one, base) = fit.first().ok_or_else(|| gone("the stream goes on from"))?;
    Ok((one.name.parse()?, Some(base.name.parse()?)))
}

#[cfg(test)]
mod tests {
    use super::{identity_from, text_of};
    use marram_format::stream::SnapshotIdentity;

    #[test]
    fn identities_are_read_as_they_are_written() {
        for (byte, created_seconds) in [(0, 0), (7, -1), (0xff, i64::MAX)] {
            let identity = SnapshotIdentity { id: [byte; 16], created_seconds };
            assert_eq!(identity_from(&text_of(identity)), Some(identity));
        }
        for text in ["", ":", "00", "zz:1", "00:", "00:x"] {
            assert_eq!(identity_from(text), None, "{text:?}");
        }
    }
}
