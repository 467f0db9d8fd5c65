//! In what two states differ, each a snapshot or one that is kept in memory.

use crate::io::{At, Media};
use crate::memtable::dataset::Opened;
use crate::memtable::dataset::item_of;
use crate::memtable::overlay::{Entry, Layer};
use crate::snapshots::ephemeral;
use crate::snapshots::session::Session;
use crate::state::find::refuse_live;
use crate::state::pinned_commit::PinnedCommit;
use crate::tree::{self, Differing, Found};
use bytes::Bytes;
use marram_store::{Block, Error, Item, ItemChange, Key, Result, Source, Token, kind};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A state that stays readable as long as this is there.
struct Side<'p> {
    media: &'p Media,
    name: String,
    root: Option<Bytes>,
    /// What it has in memory only, oldest first.
    layers: Vec<Arc<Layer>>,
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

    /// The item under a key, from the layers or the tree.
    fn item(&self, key: Key) -> Result<Option<Item>> {
        match self.layers.iter().rev().find_map(|layer| layer.get(key)) {
            Some(Entry::Item(item)) => Ok(Some(Item::clone(item))),
            Some(Entry::Removed) => Ok(None),
            None => {
                let at = At { media: self.media, epoch: self.epoch() };
                let found = tree::get(&at, self.root.as_ref(), key)?;
                found.as_ref().map(item_of).transpose()
            }
        }
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
    if !before.layers.is_empty() || !after.layers.is_empty() {
        let walked = compare_layered((&before, &after), from, visit);
        return judge_damage([&before, &after], walked);
    }
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
    if let Some(state) = ephemeral::find_or_base(session, source)? {
        let moment = Some(Arc::clone(&state.moment));
        let (root, layers) = (state.root(), state.layers.clone().unwrap_or_default());
        return Ok(Side { media, name, root, layers, _open: None, moment });
    }
    refuse_live(source)?;
    let open = session.state.open(source)?;
    let (root, layers) = (open.root(), Vec::new());
    Ok(Side { media, name, root, layers, _open: Some(open), moment: None })
}

/// The keys in which two states with layers may differ by these: under one root, what both have in
/// common is left out.
fn layered_keys((before, after): (&Side<'_>, &Side<'_>), from: Key) -> BTreeSet<Key> {
    let pairs = before.layers.iter().zip(&after.layers);
    let common = match before.root == after.root {
        true => pairs.take_while(|(before, after)| Arc::ptr_eq(before, after)).count(),
        false => 0,
    };
    let layers = before.layers[common..].iter().chain(&after.layers[common..]);
    layers.flat_map(|layer| layer.range(from..=Key::MAX)).map(|(key, _)| *key).collect()
}

/// As [`compare`], where a part of a state is in memory.
fn compare_layered(
    sides: (&Side<'_>, &Side<'_>),
    from: Key,
    visit: &mut dyn FnMut(ItemChange) -> bool,
) -> Result<()> {
    let (before, after) = sides;
    let mut keys = layered_keys(sides, from).into_iter().peekable();
    let mut failed = None;
    let mut show = |key: Key| match change_at(sides, key) {
        Ok(Some(change)) => visit(change),
        Ok(None) => true,
        Err(error) => {
            failed = Some(error);
            false
        }
    };
    let mut goes_on = true;
    if before.root != after.root {
        let at = At { media: before.media, epoch: before.epoch().min(after.epoch()) };
        let roots = (before.root.as_ref(), after.root.as_ref());
        tree::changes(&at, roots, from, &mut |differing| {
            let found = differing.after.as_ref().or(differing.before.as_ref());
            let Some(key) = found.map(|found| found.key) else { return true };
            while goes_on && let Some(earlier) = keys.next_if(|earlier| *earlier < key) {
                goes_on = show(earlier);
            }
            if goes_on && key.kind != kind::REFERENCES {
                keys.next_if_eq(&key);
                goes_on = show(key);
            }
            goes_on
        })?;
    }
    let _stopped = goes_on && keys.all(show);
    failed.map_or(Ok(()), Err)
}

/// In what two states differ under a key.
fn change_at((before, after): (&Side<'_>, &Side<'_>), key: Key) -> Result<Option<ItemChange>> {
    let (before, after) = (before.item(key)?, after.item(key)?);
    let is_same = match (&before, &after) {
        (Some(before), Some(after)) => {
            before.value == after.value
                && is_same_block(before.block.as_ref(), after.block.as_ref())
        }
        (None, None) => true,
        _ => false,
    };
    Ok((!is_same).then_some(ItemChange { key, before, after }))
}

/// Whether two references are known to be of one block. A commit may have written it since one of
/// the states was kept.
fn is_same_block(before: Option<&Block>, after: Option<&Block>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => {
            let is_one_in_memory = match (before, after) {
                (Block::Fresh(before), Block::Fresh(after)) => Arc::ptr_eq(before, after),
                _ => false,
            };
            let places = [before, after].map(|block| stored(block).map(|token| &token.place));
            is_one_in_memory || places[0].is_some() && places[0] == places[1]
        }
        (None, None) => true,
        _ => false,
    }
}

fn stored(block: &Block) -> Option<&Token> {
    match block {
        Block::Stored(token) => Some(token),
        Block::Fresh(fresh) => fresh.stored(),
    }
}
