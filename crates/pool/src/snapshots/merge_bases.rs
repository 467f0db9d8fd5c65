//! The base of merges between two datasets: the newest state of one that the other has too.
//!
//! The commit of a merge takes a snapshot of the state that the merge has read, under a name that
//! says what has it from then on ([`Source::merge_base`]). The one before it is kept for an undo of
//! that merge, which lets both change places. So the base and the content move in one commit: a
//! crash between them would let the next merge bring again what is there, or leave out what is not.

use crate::commit::draft::Commit;
use crate::state::records::Records;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_store::{Error, Result, Source};
use std::sync::Arc;

/// With this the name begins of what was a base and is kept for nothing: see [`is_forgotten`].
const FORGOTTEN_PREFIX: &str = "merge:";

/// What a merge reads, and what it goes into: their ids.
#[derive(Clone, Copy)]
pub(crate) struct Moving {
    /// The dataset whose state is read.
    pub(crate) source: u64,
    /// The snapshot that was read; 0 for the state that the last commit has left.
    pub(crate) read: u64,
    /// The dataset that has all of it then.
    pub(crate) taker: u64,
}

/// The base before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// The new base; 0 if the two have no other than what the fork began as.
    pub(crate) new: u64,
    /// The one before, in the same way.
    pub(crate) former: u64,
}

impl Moved {
    /// As the entry of the merge tells it.
    pub(crate) fn text(self) -> String {
        format!("{} {}", self.new, self.former)
    }

    fn of(text: &str) -> Option<Moved> {
        let (new, former) = text.split_once(' ')?;
        Some(Moved { new: new.parse().ok()?, former: former.parse().ok()? })
    }
}

fn base_of(record: &DatasetRecord) -> Option<(u64, u64)> {
    match record.state {
        DatasetState::Snapshot => record.name.parse::<Source>().ok()?.merge_base(),
        _ => None,
    }
}

/// The bases between two datasets, with their places in the order of merges.
fn between(records: &Records, (a, b): (u64, u64)) -> Vec<(u64, Arc<DatasetRecord>)> {
    let of = |source: u64, taker: u64| {
        records.snapshots(source).filter_map(move |record| {
            let (known_by, at) = base_of(record)?;
            (known_by == taker).then(|| (at, Arc::clone(record)))
        })
    };
    of(a, b).chain(of(b, a)).collect()
}

/// Refuses a merge between two datasets whose base is not the newest, or is one that was forgotten:
/// another merge between the two has moved it, or a rollback has taken it away.
pub(crate) fn refuse_moved(records: &Records, pair: (u64, u64), base: &Source) -> Result<()> {
    let newest = between(records, pair).into_iter().max_by_key(|(at, _)| *at);
    let is_it = match newest {
        Some((_, record)) => record.name == base.to_string(),
        None => base.merge_base().is_none(),
    };
    if is_it {
        return Ok(());
    }
    let holder = "another merge between the two has moved their base: merge again".to_owned();
    Err(Error::InUse { name: base.to_string(), holder })
}

/// All bases that a dataset has taken in.
pub(crate) fn taken_in(records: &Records, taker: u64) -> impl Iterator<Item = &Arc<DatasetRecord>> {
    records.known().filter(move |record| base_of(record).is_some_and(|(by, _)| by == taker))
}

/// The name of the base that this commit makes.
pub(crate) fn new_name(commit: &Commit<'_>, moving: Moving) -> Result<Source> {
    let source = commit.record(moving.source)?.name;
    let base = Source::merge_base_name(moving.taker, commit.group.0);
    format!("{source}@{base}").parse()
}

/// Gives a snapshot another name.
pub(crate) fn rename(commit: &mut Commit<'_>, snapshot: u64, name: &Source) -> Result<()> {
    let record = commit.record(snapshot)?;
    commit.keep(DatasetRecord { name: name.to_string(), ..record })
}

/// The bases before the new one are kept for the entry `number`, or forgotten.
pub(crate) fn supersede(
    commit: &mut Commit<'_>,
    moving: Moving,
    new: u64,
    number: Option<u64>,
) -> Result<Moved> {
    let mut all = between(&commit.pool.records.read(), (moving.source, moving.taker));
    all.retain(|(_, record)| record.id != new);
    all.sort_by_key(|(at, _)| *at);
    for (_, record) in &all {
        put_away(commit, record, number)?;
    }
    Ok(Moved { new, former: all.last().map_or(0, |(_, record)| record.id) })
}

/// Lets the base of a merge that is taken back, and the one before it, change places; nothing if
/// another merge between the two has moved the base since.
pub(crate) fn swap(
    commit: &mut Commit<'_>,
    undone: &str,
    number: Option<u64>,
) -> Result<Option<Moved>> {
    let Some(Moved { new, former }) = Moved::of(undone) else { return Ok(None) };
    let (gone, back, current) = {
        let records = commit.pool.records.read();
        let gone = records.get(new).filter(|record| base_of(record).is_some()).cloned();
        let back = records.get(former).filter(|record| kept_base(record).is_some()).cloned();
        let pair = gone.as_deref().and_then(pair_of).or(back.as_deref().and_then(pair_of));
        let Some(pair) = pair else { return Ok(None) };
        let current = between(&records, pair).into_iter().max_by_key(|(at, _)| *at);
        (gone, back, current.map_or(0, |(_, record)| record.id))
    };
    if current != gone.as_ref().map_or(0, |gone| gone.id) {
        return Ok(None);
    }
    if let Some(gone) = &gone {
        put_away(commit, gone, number)?;
    }
    if let Some((back, name)) = back.as_ref().and_then(|back| Some((back.id, kept_base(back)?))) {
        rename(commit, back, &name)?;
    }
    Ok(Some(Moved { new: former, former: new }))
}

/// The dataset goes back to a snapshot: what it or another has taken in since is no base any more,
/// and no undo makes it one again.
pub(crate) fn forget_later(
    commit: &mut Commit<'_>,
    dataset: u64,
    to: &DatasetRecord,
) -> Result<()> {
    let records = Arc::clone(&commit.pool.records.read());
    let is_lost = |record: &&Arc<DatasetRecord>| {
        placed(record).is_some_and(|(taker, at)| {
            record.parent == dataset && record.created_group > to.created_group
                || taker == dataset && at > to.created_group.0
        })
    };
    for record in records.known().filter(is_lost) {
        put_away(commit, record, None)?;
    }
    Ok(())
}

/// Gives a base a name by which it is kept for an entry, or for nothing.
fn put_away(commit: &mut Commit<'_>, record: &DatasetRecord, number: Option<u64>) -> Result<()> {
    let name = kept_base(record).map_or_else(|| record.name.clone(), |base| base.to_string());
    let (dataset, base) = parts(&name)?;
    let name = match number {
        Some(number) => Source::former_base_name(number, base),
        None => {
            commit.pool.note_expiry(commit.now_seconds);
            format!("{FORGOTTEN_PREFIX}{base}")
        }
    };
    let name: Source = format!("{dataset}@{name}").parse()?;
    rename(commit, record.id, &name)
}

/// The name that a base had before it was kept for an entry.
fn kept_base(record: &DatasetRecord) -> Option<Source> {
    record.name.parse::<Source>().ok()?.former_base().map(|(_, base)| base)
}

/// Whether it was a base and is kept for nothing: it goes as soon as nobody reads it. The merge
/// that has moved the base reads it until the end.
pub(crate) fn is_forgotten(record: &DatasetRecord) -> bool {
    let base = || {
        let (dataset, snapshot) = record.name.split_once('@')?;
        let base = snapshot.strip_prefix(FORGOTTEN_PREFIX)?;
        format!("{dataset}@{base}").parse::<Source>().ok()?.merge_base()
    };
    record.state == DatasetState::Snapshot && base().is_some()
}

/// Whether it is a base that is kept for an entry.
pub(crate) fn is_kept_for(record: &DatasetRecord, number: u64) -> bool {
    let former = || record.name.parse::<Source>().ok()?.former_base();
    record.state == DatasetState::Snapshot && former().is_some_and(|(entry, _)| entry == number)
}

/// Which dataset has taken a base in, and its place in the order of merges, whether it is still one
/// or kept for an entry.
fn placed(record: &DatasetRecord) -> Option<(u64, u64)> {
    base_of(record).or_else(|| kept_base(record)?.merge_base())
}

/// The two datasets that a base is between, whatever it is kept for.
fn pair_of(record: &DatasetRecord) -> Option<(u64, u64)> {
    placed(record).map(|(taker, _)| (record.parent, taker))
}

fn parts(snapshot: &str) -> Result<(&str, &str)> {
    let parts = snapshot.split_once('@');
    parts.ok_or_else(|| Error::Invalid(format!("{snapshot} is no snapshot")))
}
