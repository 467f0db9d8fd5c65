//! In what two states differ, each a snapshot or one that is kept in memory.

use crate::io::{At, Media};
use crate::memtable::dataset::Opened;
use crate::memtable::dataset::item_of;
use crate::snapshots::ephemeral;
use crate::snapshots::session::Session;
use crate::state::find::refuse_live;
use crate::state::pinned_commit::PinnedCommit;
use crate::tree::{self, Differing, Found};
use bytes::Bytes;
use marram_store::{Error, ItemChange, Key, Result, Source, kind};
use std::sync::Arc;

/// A state that stays readable as long as this is there.
struct Side<'p> {
    media: &'p Media,
    name: String,
    root: Option<Bytes>,
    /// As long as a snapshot is open it cannot be destroyed, and no block of its used again.
    _open: Option<Opened>,
    moment: Option<Arc<PinnedCommit>>,
}

impl Side<'_> {
    /// The commit under which it is read. **That of its moment, if it is kept in memory**: what a
    /// later one has overwritten is no bad copy. One would be made good over what lies there now.
    fn epoch(&self) -> u64 {
        self.moment.as_ref().map_or_else(|| self.media.epoch(), |moment| moment.at().epoch)
    }

    fn overwritten(&self) -> Option<&PinnedCommit> {
        self.moment.as_deref().filter(|moment| moment.is_broken())
    }
}

/// What has come of a walk through both: damage is none if one of them was overwritten.
fn judge_damage<T>(sides: [&Side<'_>; 2], walked: Result<T>) -> Result<T> {
    let overwritten = sides.iter().find_map(|side| Some((side, side.overwritten()?)));
    match (overwritten, &walked) {
        (Some((side, moment)), _) => moment.judge_damage(&side.name, walked),
        (None, Err(Error::Damaged(damage))) => {
            sides[0].media.keep_damage(damage);
            walked
        }
        _ => walked,
    }
}

/// A change as callers see it; none of what the engine keeps for itself.
fn change_of(differing: &Differing) -> Result<Option<ItemChange>> {
    let found = differing.after.as_ref().or(differing.before.as_ref());
    let Some(key) = found.map(|found| found.key).filter(|key| key.kind != kind::REFERENCES) else {
        return Ok(None);
    };
    let item = |found: &Option<Found>| found.as_ref().map(item_of).transpose();
    let (before, after) = (item(&differing.before)?, item(&differing.after)?);
    Ok(Some(ItemChange { key, before, after }))
}

/// See `Store::changes`.
pub(crate) fn compare(
    session: &Session,
    (before, after): (&Source, &Source),
    from: Key,
    visit: &mut dyn FnMut(ItemChange) -> bool,
) -> Result<()> {
    let (before, after) = (side(session, before)?, side(session, after)?);
    let media = &session.state.media;
    let at = At { media, epoch: before.epoch().min(after.epoch()) };
    let mut failed = None;
    let mut show = |differing: Differing| match change_of(&differing) {
        Ok(Some(change)) => visit(change),
        Ok(None) => true,
        Err(error) => {
            failed = Some(error);
            false
        }
    };
    let walked = tree::changes(&at, (before.root.as_ref(), after.root.as_ref()), from, &mut show);
    failed.map_or(judge_damage([&before, &after], walked), Err)
}

fn side<'p>(session: &'p Session, source: &Source) -> Result<Side<'p>> {
    let (media, name) = (&session.state.media, source.to_string());
    if let Some(state) = ephemeral::find(session, source) {
        let moment = Some(Arc::clone(&state.moment));
        return Ok(Side { media, name, root: state.root(), _open: None, moment });
    }
    refuse_live(source)?;
    let open = session.state.open(source)?;
    Ok(Side { media, name, root: open.root(), _open: Some(open), moment: None })
}
