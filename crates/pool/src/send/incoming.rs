//! Datasets that receive a stream, from their first commit to the one that shows them.
//!
//! A full stream goes into a new dataset, an incremental one into a clone of what the dataset is
//! now. Either has a name of the pool's own. In the last commit the first gets its name and its
//! snapshot; of the second the dataset takes over the tree, and the clone is gone. Both are a
//! change of records. Whatever ends before that commit has changed nothing that anyone sees.
//!
//! **The dataset takes over what a clone of its newest snapshot has become.** Snapshots may have
//! been taken since the clone began, and cannot stay between: what the stream has brought is older
//! than they are, and would count as theirs. So the dataset leaves their line first, see [`Way`].
//! It does so too if somebody has looked at it: access times that have moved are no change, and are
//! lost.
//!
//! A dataset that is to go on when its stream is cut has another name, and says how far it is in an
//! item of its own: see `partial`. That item goes in the last commit too.

use crate::Error;
use crate::commit::dead_list_reclaim;
use crate::commit::draft::Commit;
use crate::commit::draft::Publication;
use crate::commit::kept_states;
use crate::commit::operation_log;
use crate::commit::operation_log::entry;
use crate::commit::turn;
use crate::commit::turn::Turn;
use crate::memtable::settings::check_property;
use crate::send::partial;
use crate::send::partial::{ARRIVING_PREFIX, Partial, arriving};
use crate::send::unchanged;
use crate::send::unchanged::Accessed;
use crate::send::{POSITION_KEY, ReceiveRequest, identity_of};
use crate::snapshots::lineage;
use crate::snapshots::trash;
use crate::state::State;
use crate::state::records::is_hidden;
use crate::state::records::parent_of;
use crate::state::records::refuse_too_long;
use crate::state::records::root_of;
use marram_format::dataset::{DatasetRecord, DatasetState, ROOT_OBJECT_PROPERTY};
use marram_format::operation::{OperationKind, OperationRecord};
use marram_format::stream::{Received, SnapshotIdentity, StreamBegin};
use marram_format::version::feature;
use marram_store::{
    Author, Batch, DatasetName, Error as StoreError, ROOT_OBJECT, Result, Source, View,
};
use std::sync::Arc;

/// Names that are tried for what a dataset was before a stream that was forced upon it.
const KEPT_NAMES_MAX: u32 = 1 << 16;

/// A stream that is being received.
pub(crate) struct Arrival {
    /// The dataset that receives it.
    pub(crate) hidden: DatasetName,
    /// The snapshot that it will be.
    pub(crate) snapshot: Source,
    /// The snapshot that it goes on from.
    pub(crate) base: Option<Source>,
    /// It is kept when the stream is cut.
    pub(crate) is_resumable: bool,
    /// What an earlier stream has brought.
    pub(crate) received: Option<Received>,
    begin: StreamBegin,
    force: bool,
}

/// An incremental stream's place in the dataset that is there.
struct Place {
    live: Arc<DatasetRecord>,
    base: Arc<DatasetRecord>,
    /// The snapshot that the dataset goes on from: the base, or a later one without a change.
    newest: Arc<DatasetRecord>,
    /// In what the dataset, or that snapshot, is not as the base is.
    since: Since,
}

/// What has been done to a dataset since a snapshot.
enum Since {
    Nothing,
    /// Somebody has looked at it: access times have moved, and nothing else has changed.
    Looked(Accessed),
    /// In a few words.
    Changed(&'static str),
}

/// How a dataset comes to be what the clone began as that has received a stream for it. Nothing but
/// access times is lost on any way: whatever it leaves is a line of snapshots that ends.
enum Way {
    /// It is.
    There,
    /// Snapshots were taken since, and nothing has changed: it leaves the line of those.
    Aside,
    /// It leaves its line, and what it is now with access times that have moved is destroyed.
    Forgetting,
    /// It leaves its line with a snapshot of this name, which is what it is now.
    Back(Source),
}

impl Place {
    /// What the clone that receives the stream begins as.
    fn origin(&self) -> u64 {
        match self.since {
            Since::Nothing => self.newest.id,
            Since::Looked(_) | Since::Changed(_) => self.base.id,
        }
    }

    /// Where access times had moved when it was looked at.
    fn accessed(&self) -> Accessed {
        match &self.since {
            Since::Looked(accessed) => accessed.clone(),
            Since::Nothing | Since::Changed(_) => Accessed::None,
        }
    }

    /// The id and name of a snapshot that has the state before, if the dataset has not changed: the
    /// newest that is in sight.
    fn before(&self) -> (u64, String) {
        let before = if is_hidden(&self.newest) { &self.base } else { &self.newest };
        (before.id, before.name.clone())
    }
}

/// The properties that the new dataset of a full stream has.
fn local_properties(begin: &StreamBegin) -> Result<Vec<(String, String)>> {
    let mut properties = Vec::new();
    for (name, value) in &begin.properties {
        properties.push((name.clone(), check_property(name, value)?));
    }
    if begin.root_object != ROOT_OBJECT {
        properties.push((ROOT_OBJECT_PROPERTY.to_owned(), begin.root_object.to_string()));
    }
    properties.sort();
    Ok(properties)
}

fn written_to(dataset: &DatasetRecord) -> StoreError {
    let holder = "it was written to at the moment at which the stream was to be shown; try again, \
                  or force it";
    StoreError::InUse { name: dataset.name.clone(), holder: holder.to_owned() }
}

/// Makes the dataset that is to receive a stream, or finds the one that has received the first
/// part of it; returns it open.
pub(crate) fn begin_arrival(
    pool: &Arc<State>,
    request: &ReceiveRequest,
    begin: StreamBegin,
) -> std::result::Result<(Arrival, Arc<dyn View>), Error> {
    let ReceiveRequest { dataset: name, force, resumable } = request;
    let snapshot: Source = format!("{name}@{}", begin.snapshot_name).parse()?;
    if snapshot.is_own() || name.is_receiving() {
        return Err(Error::Unfit(format!("{snapshot} is a name of the pool's own")));
    }
    let turn = turn::take_turn(pool)?;
    let place = refuse_unfit(pool, &turn, name, (&snapshot, &begin), *force)?;
    let partial = part_to_go_on(pool, name, &snapshot, &begin)?;
    let mut arrival = Arrival {
        hidden: name.clone(),
        snapshot,
        base: place.as_ref().map(|place| place.base.name.parse()).transpose()?,
        is_resumable: *resumable || partial.is_some(),
        received: partial.as_ref().and_then(|partial| partial.received),
        begin,
        force: *force,
    };
    match partial {
        Some(partial) => arrival.hidden = partial.hidden,
        None => {
            arrival.hidden = name_to_receive(pool, *resumable)?;
            add_arrival(pool, &turn, &arrival, place.as_ref())?;
        }
    }
    let view = partial::view_of(pool, &arrival.hidden)?;
    Ok((arrival, view))
}

fn name_to_receive(pool: &State, resumable: bool) -> std::result::Result<DatasetName, Error> {
    let is_free = |name: &DatasetName| pool.find(&Source::live(name.clone())).is_err();
    let free = match resumable {
        true => DatasetName::partial().find(is_free),
        false => DatasetName::receiving().find(is_free),
    };
    free.ok_or_else(|| {
        Error::Unfit("too many streams are being received: wait for some".to_owned())
    })
}

fn add_arrival(
    _pool: &State,
    turn: &Turn<'_>,
    arrival: &Arrival,
    place: Option<&Place>,
) -> Result<()> {
    let local = local_properties(&arrival.begin)?;
    let arriving = match arrival.is_resumable {
        true => arriving(&arrival.snapshot, &arrival.begin),
        false => Vec::new(),
    };
    turn.commit(Some(&mut |commit| {
        let mut record = match place {
            Some(place) => kept_states::clone_of(commit, place.origin(), &arrival.hidden)?,
            None => {
                let name = arrival.hidden.as_str();
                let record = commit.new_record(name, DatasetState::Live);
                let id128 = arrival.begin.dataset_id;
                DatasetRecord { id128, properties: local.clone(), ..record }
            }
        };
        record.properties.extend(arriving.iter().cloned());
        record.properties.sort();
        refuse_too_long(&record)?;
        commit.add(record)
    }))
}

/// What there is of an earlier stream, if this one goes on from it.
fn part_to_go_on(
    pool: &Arc<State>,
    name: &DatasetName,
    snapshot: &Source,
    begin: &StreamBegin,
) -> std::result::Result<Option<Partial>, Error> {
    let unfit = |reason: String| Err(Error::Unfit(reason));
    let partial = partial::partial_of(pool, name)?;
    let (after, partial) = match (begin.after, partial) {
        (None, None) => return Ok(None),
        (None, Some(partial)) => return unfit(partial.in_the_way()),
        (Some(_), None) => {
            return unfit(format!(
                "this stream is the rest of one, and nothing of {snapshot} has been received \
                 here: send it from its beginning"
            ));
        }
        (Some(after), Some(partial)) => (after, partial),
    };
    match () {
        () if partial.is_running => unfit(partial.in_the_way()),
        () if (partial.id, partial.base_id) != (begin.snapshot, begin.base) => unfit(format!(
            "the stream is the rest of another one: what has been received for {name} is a \
             part of {}; use the token of that, or drop it first",
            partial.snapshot
        )),
        () if partial.received.map(|received| received.after) != Some(after) => unfit(format!(
            "the stream does not go on where {} was cut: use its newest token",
            partial.snapshot
        )),
        () => Ok(Some(partial)),
    }
}

/// Refuses a stream that does not fit what is here; of an incremental one, says where it goes.
fn refuse_unfit(
    pool: &State,
    turn: &Turn<'_>,
    name: &DatasetName,
    (snapshot, begin): (&Source, &StreamBegin),
    force: bool,
) -> std::result::Result<Option<Place>, Error> {
    let unfit = |reason: String| Err(Error::Unfit(reason));
    let live = match pool.find_live(name) {
        Err(error @ StoreError::InDoubt(_)) => return Err(error.into()),
        found => found.ok(),
    };
    if let Some(live) = &live
        && let Some(here) = snapshot_of(pool, live, begin.snapshot)
    {
        return unfit(format!("the stream has been received before: it is {}", here.name));
    }
    let (base, live) = match (begin.base, live) {
        (None, None) => return Ok(None),
        (None, Some(_)) => {
            return unfit(format!(
                "{name} exists, and a full stream makes a dataset: name another, or rename or \
                 destroy that"
            ));
        }
        (Some(_), None) => {
            return unfit(format!(
                "the stream is incremental, and there is no dataset {name} that it could go on \
                 from: receive the full stream first"
            ));
        }
        (Some(base), Some(live)) => (base, live),
    };
    let Some(base) = snapshot_of(pool, &live, base) else {
        return unfit(format!(
            "{name} has not the snapshot that the stream goes on from: it is from another \
             dataset, or streams between were left out"
        ));
    };
    if pool.find(snapshot).is_ok() {
        return unfit(format!("there is another {snapshot} here: rename or destroy it first"));
    }
    pool.refuse_taken(snapshot)?;
    let place = place(pool, turn, &live, base)?;
    match place.since {
        Since::Changed(how) if !force => unfit(format!(
            "{name} {how} since {}: force it to go back to that first (what it is now is then \
             kept as a snapshot)",
            place.base.name
        )),
        _ => Ok(Some(place)),
    }
}

fn snapshot_of(
    pool: &State,
    live: &DatasetRecord,
    identity: SnapshotIdentity,
) -> Option<Arc<DatasetRecord>> {
    let records = pool.records.read();
    let is_it = |record: &&Arc<DatasetRecord>| {
        record.state == DatasetState::Snapshot
            && record.parent == live.id
            && identity_of(record) == identity
    };
    records.known().find(is_it).cloned()
}

fn place(
    pool: &State,
    turn: &Turn<'_>,
    live: &DatasetRecord,
    base: Arc<DatasetRecord>,
) -> Result<Place> {
    let live = unchanged::settled(pool, turn, live)?;
    let newest = pool.records.read().get(live.previous).cloned();
    let newest = newest.ok_or_else(|| StoreError::NoDataset(format!("before {}", live.name)))?;
    let between = unchanged::differ_by_access_times(pool, &base, &newest)?;
    let now = unchanged::differ_by_access_times(pool, &newest, &live)?;
    let since = match (between, now) {
        (Some(_), Some(_)) if base.root == newest.root && newest.root == live.root => {
            Since::Nothing
        }
        (Some(between), Some(now)) => Since::Looked(between.and(now)),
        (None, _) => Since::Changed("has snapshots with changes that were made"),
        (_, None) => Since::Changed("has been changed"),
    };
    Ok(Place { live, base, newest, since })
}

/// Shows what has been received; returns what the dataset was, if that was set aside, and where
/// access times are lost.
pub(crate) fn conclude_arrival(
    pool: &State,
    arrival: &Arrival,
    author: Option<&Arc<Author>>,
) -> std::result::Result<(Option<Source>, Accessed), Error> {
    if author.is_some() {
        trash::make_room_in_log(pool, 1)?;
    }
    // What is taken in now need not be while batches wait.
    turn::commit(pool)?;
    let turn = turn::take_turn(pool)?;
    let hidden = pool.find_live(&arrival.hidden)?;
    let (name, begin) = (&arrival.snapshot.dataset, &arrival.begin);
    let place = refuse_unfit(pool, &turn, name, (&arrival.snapshot, begin), arrival.force)?;
    let way = |place: Place| Ok::<_, Error>((way_to(pool, &place, parent_of(&hidden))?, place));
    let goes = place.map(way).transpose()?;
    let mut accessed = Accessed::None;
    let mut work = |commit: &mut Commit<'_>| {
        let entered = match &goes {
            Some((way, place)) => {
                let (entered, lost) = go_on_to(commit, place, way, hidden.id, arrival)?;
                accessed = lost;
                entered
            }
            None => {
                name_arrival(commit, hidden.id, arrival)?;
                entry(OperationKind::Create, hidden.id, &[name.as_str()])
            }
        };
        operation_log::enter(commit, author, entered).map(|_| ())
    };
    match pool.running(hidden.id).filter(|_| arrival.is_resumable) {
        Some(dataset) => {
            let mut position = Batch::new();
            position.remove(POSITION_KEY);
            turn.commit_batch(&dataset, position, &mut work)?;
        }
        None if goes.is_none() => turn.commit(Some(&mut work))?,
        None => turn.commit_alone(&mut work)?,
    }
    let kept = match goes {
        Some((Way::Back(kept), _)) => Some(kept),
        _ => None,
    };
    Ok((kept, accessed))
}

/// How a dataset comes to be what the clone began as that is to be taken over.
fn way_to(pool: &State, place: &Place, began_as: u64) -> std::result::Result<Way, Error> {
    let Place { live, base, newest, since } = place;
    let records = Arc::clone(&pool.records.read());
    let is_own = |record: &&Arc<DatasetRecord>| record.parent == live.id;
    if records.get(began_as).filter(is_own).is_none_or(|origin| origin.root != base.root) {
        return Err(Error::Unfit(format!(
            "what was received goes on from a snapshot that {} has handed over meanwhile: \
             receive it again from its beginning",
            live.name
        )));
    }
    let is_in_line = newest.parent == live.id && newest.next == live.id;
    Ok(match since {
        Since::Nothing if newest.id == began_as => Way::There,
        Since::Nothing if is_in_line => Way::Aside,
        Since::Looked(_) => Way::Forgetting,
        _ => Way::Back(name_to_keep(pool, &live.name.parse()?)?),
    })
}

/// A name for what a dataset was before it was set back.
fn name_to_keep(pool: &State, name: &DatasetName) -> Result<Source> {
    for number in 1..KEPT_NAMES_MAX {
        let kept: Source = format!("{name}@before-receive-{number}").parse()?;
        if pool.find(&kept).is_err() {
            return Ok(kept);
        }
    }
    Err(StoreError::DatasetExists(format!("{name}@before-receive-N")))
}

/// A dataset that has received a full stream gets its name.
fn name_arrival(commit: &mut Commit<'_>, hidden: u64, arrival: &Arrival) -> Result<()> {
    let mut record = commit.record(hidden)?;
    record.name = arrival.snapshot.dataset.to_string();
    record.properties.retain(|(name, _)| !name.starts_with(ARRIVING_PREFIX));
    commit.keep(record)?;
    arrive(commit, hidden, arrival).map(|_| ())
}

/// What was received becomes a snapshot, with the identity that it has where it comes from;
/// returns its id.
fn arrive(commit: &mut Commit<'_>, dataset: u64, arrival: &Arrival) -> Result<u64> {
    let id = kept_states::snapshot(commit, dataset, &arrival.snapshot)?;
    let mut kept = commit.record(id)?;
    kept.id128 = arrival.begin.snapshot.id;
    kept.created_seconds = arrival.begin.snapshot.created_seconds;
    commit.keep(kept)?;
    Ok(id)
}

/// A dataset goes on to what a clone of one of its snapshots has received. Returns what is to
/// be entered into the log: to take it back is to go back to what was there before. Also where
/// access times are lost: they may have moved until this commit.
fn go_on_to(
    commit: &mut Commit<'_>,
    place: &Place,
    way: &Way,
    clone: u64,
    arrival: &Arrival,
) -> Result<(OperationRecord, Accessed)> {
    let live = place.live.id;
    let began_as = parent_of(&commit.record(clone)?);
    let mut before = place.before();
    let accessed = match way {
        Way::Back(_) => Accessed::None,
        _ => accessed_since(commit, &place.live)?.and(place.accessed()),
    };
    let is_as_newest = refuse_unlike(commit, live, place.newest.id).is_ok();
    match way {
        Way::There if is_as_newest => {}
        Way::Aside if is_as_newest => lineage::leave_line(commit, live, began_as)?,
        Way::There | Way::Aside | Way::Forgetting => {
            unchanged::go_back_for_good(commit, live, began_as)?
        }
        Way::Back(kept) => {
            before = (lineage::roll_back(commit, live, began_as, kept)?, kept.to_string());
        }
    }
    take_over(commit, live, clone)?;
    let other = arrive(commit, live, arrival)?;
    let texts = [arrival.snapshot.to_string(), before.1];
    let went = entry(OperationKind::Rollback, live, &[&texts[0], &texts[1]]);
    Ok((OperationRecord { other, before: before.0, ..went }, accessed))
}

/// Where access times have moved since a record was looked at. Refuses a dataset that has
/// changed in anything else.
fn accessed_since(commit: &Commit<'_>, live: &DatasetRecord) -> Result<Accessed> {
    let now = commit.record(live.id)?;
    let accessed = unchanged::differ_by_access_times(commit.pool, live, &now)?;
    accessed.filter(|_| now.previous == live.previous).ok_or_else(|| written_to(&now))
}

/// Refuses a dataset that is not as its newest snapshot is, or has another one.
fn refuse_unlike(commit: &Commit<'_>, dataset: u64, newest: u64) -> Result<()> {
    let (live, newest) = (commit.record(dataset)?, commit.record(newest)?);
    if live.previous == newest.id && live.root == newest.root && live.dead_grains == 0 {
        return Ok(());
    }
    Err(written_to(&live))
}

/// A dataset takes over the tree and the dead list of a clone of the snapshot that it goes on
/// from, and the clone is gone. The dataset must be as that snapshot is.
fn take_over(commit: &mut Commit<'_>, dataset: u64, clone: u64) -> Result<()> {
    let clone = commit.record(clone)?;
    refuse_unlike(commit, dataset, parent_of(&clone))?;
    let mut live = commit.record(dataset)?;
    let mut origin = commit.record(parent_of(&clone))?;
    origin.clones = origin.clones.saturating_sub(1);
    commit.keep(origin)?;
    dead_list_reclaim::lead_on(commit, &[live.dead_list], clone.previous_group, clone.dead_list);
    live.root = clone.root.clone();
    live.referenced_grains = clone.referenced_grains;
    live.dead_list = clone.dead_list;
    live.dead_grains = clone.dead_grains;
    commit.publications.push(Publication::Root(dataset, root_of(&live)));
    commit.publications.push(Publication::Remove(clone.id));
    commit.records.insert(clone.id, None);
    // Its nodes say that they were written for the clone, as after a promotion.
    commit.set_feature(feature::OWNERS);
    commit.keep(live)
}
