//! A dataset in memory: the root of its last commit, and the layers over it.
//!
//! Reading takes the root under a short lock and then walks the tree without one, so that a slow
//! device holds up nobody else. A commit may replace the root meanwhile and a later one reuse the
//! grains; then the walk meets a block that fails its checksum, sees that a commit has passed, and
//! starts again from the new root. Damage is believed only if no commit has passed.

use crate::counters::{self, CommittedCounters};
use crate::media::{At, Media};
use crate::order::{self, RwLock};
use crate::overlay::{Entry, Layer, Overlay};
use crate::pointers::{decode_pointer, token_of};
use crate::quota::Allowance;
use crate::settings::Settings;
use crate::touched::Touched;
use crate::tree::{self, Found};
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_store::{Block, Edit, Error, Item, Key, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most overlay entries that a scan copies at a time.
const SCAN_ENTRIES_MAX: usize = 256;

/// A dataset or snapshot that is known to a running pool.
pub(crate) struct Dataset {
    pub(crate) id: u64,
    pub(crate) writable: bool,
    state: RwLock<State>,
    /// Where it says that it has something for a commit, and whether it has said so.
    touched: Arc<Touched>,
    is_touched: AtomicBool,
    /// How many views are open on it.
    pub(crate) views: AtomicUsize,
    /// What it may use.
    pub(crate) allowance: Allowance,
}

/// What became of edits that were to be applied.
pub(crate) enum Attempt<'a> {
    /// They have been; by how much bytes of fresh blocks and number of edits have grown.
    Applied((u64, u64)),
    /// Nothing yet: a counter must be read from the tree under this root.
    Unread { edits: Vec<Edit<'a>>, key: Key, root: Option<Bytes> },
}

struct State {
    root: Option<Bytes>,
    overlay: Overlay,
    settings: Arc<Settings>,
}

impl Dataset {
    pub(crate) fn new(
        record: &DatasetRecord,
        root: Option<Bytes>,
        settings: Settings,
        writable: bool,
        touched: Arc<Touched>,
    ) -> Dataset {
        let allowance = Allowance::new(record.referenced_grains);
        if writable {
            allowance.set(settings.quota_bytes, settings.reservation_bytes);
        }
        let id = record.id;
        let settings = Arc::new(settings);
        let state =
            RwLock::new(order::DATASET, State { root, overlay: Overlay::default(), settings });
        let (is_touched, views) = (AtomicBool::new(false), AtomicUsize::new(0));
        Dataset { id, writable, state, touched, is_touched, views, allowance }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.state.read().settings.clone()
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        self.allowance.set(settings.quota_bytes, settings.reservation_bytes);
        self.state.write().settings = Arc::new(settings);
    }

    /// Bytes of content and changed keys that are in no commit yet.
    pub(crate) fn dirty(&self) -> (u64, u64) {
        let state = self.state.read();
        let add = |sum: (u64, u64), layer: &Layer| (sum.0 + layer.fresh_bytes, sum.1 + layer.edits);
        state.overlay.layers().fold((0, 0), add)
    }

    /// Whether a commit has anything to take in.
    pub(crate) fn has_dirty(&self) -> bool {
        self.dirty() != (0, 0)
    }

    /// Whether anyone has it open.
    pub(crate) fn is_open(&self) -> bool {
        self.views.load(Ordering::Acquire) > 0
    }

    /// Applies edits without additions, or refuses all of them if a patch does not meet a fresh
    /// block. Returns by how much bytes of fresh blocks and number of edits have grown.
    pub(crate) fn apply(&self, edits: Vec<Edit<'_>>) -> Result<(u64, u64)> {
        let mut state = self.state.write();
        self.touch();
        apply_to(&mut state.overlay, edits)
    }

    /// As [`Dataset::apply`], for edits that may add to counters; refuses all of them if one would
    /// pass its limit, or must be read first.
    pub(crate) fn apply_counted<'a>(
        &self,
        mut edits: Vec<Edit<'a>>,
        committed: &mut CommittedCounters,
    ) -> Result<Attempt<'a>> {
        let mut state = self.state.write();
        committed.keep_if_under(state.root.as_ref());
        match counters::settle(&mut edits, &state.overlay, committed)? {
            None => {
                self.touch();
                apply_to(&mut state.overlay, edits).map(Attempt::Applied)
            }
            Some(key) => Ok(Attempt::Unread { edits, key, root: state.root.clone() }),
        }
    }

    /// Reads a counter from the tree that [`Dataset::apply_counted`] needs.
    pub(crate) fn read_counter(
        &self,
        media: &Media,
        (key, root): (Key, Option<Bytes>),
        committed: &mut CommittedCounters,
    ) -> Result<()> {
        match tree::get(&At { media, epoch: media.epoch() }, root.as_ref(), key) {
            // The grains of an older root may have been used again; the next attempt sees it.
            Err(Error::Damaged(_)) if self.root() != root => Ok(()),
            Err(Error::Damaged(damage)) => {
                media.keep_damage(&damage);
                Err(Error::Damaged(damage))
            }
            found => {
                let item = found?.map(|found| item_of(&found)).transpose()?;
                committed.add(root.as_ref(), key, item.as_ref())
            }
        }
    }

    fn touch(&self) {
        if !self.is_touched.swap(true, Ordering::AcqRel) {
            self.touched.put(self.id);
        }
    }

    /// Freezes what is open, for a commit; returns whether there is anything to commit. No batch
    /// is under way.
    pub(crate) fn freeze(&self, freeze: u64) -> bool {
        let mut state = self.state.write();
        state.overlay.freeze(freeze);
        let is_dirty = !state.overlay.frozen.is_empty();
        if !is_dirty && self.is_touched.swap(false, Ordering::AcqRel) {
            self.touched.take(self.id);
        }
        is_dirty
    }

    /// Takes away what was frozen under this number, which no commit has taken in.
    pub(crate) fn withdraw(&self, freeze: u64) {
        self.state.write().overlay.frozen.retain(|frozen| frozen.freeze != freeze);
    }

    /// From now on it is kept in mind what the intent log does not have.
    pub(crate) fn begin_logging(&self) {
        self.state.write().overlay.unlogged.get_or_insert_default();
    }

    /// Lets `read` see the layers, to write them into the intent log.
    pub(crate) fn collect<T>(&self, read: impl FnOnce(&mut Overlay) -> T) -> T {
        read(&mut self.state.write().overlay)
    }

    /// The root and the frozen layers that a commit puts into it.
    pub(crate) fn frozen(&self) -> (Option<Bytes>, Vec<Arc<crate::overlay::Layer>>) {
        let state = self.state.read();
        let layers = state.overlay.frozen.iter().map(|frozen| frozen.layer.clone());
        (state.root.clone(), layers.collect())
    }

    /// The root of the last commit.
    pub(crate) fn root(&self) -> Option<Bytes> {
        self.state.read().root.clone()
    }

    /// A commit that contains the frozen layers is durable.
    pub(crate) fn publish(&self, root: Option<Bytes>) {
        let mut state = self.state.write();
        state.root = root;
        state.overlay.frozen.clear();
    }

    pub(crate) fn get(&self, media: &Media, key: Key) -> Result<Option<Item>> {
        loop {
            let epoch = media.epoch();
            let root = {
                let state = self.state.read();
                match state.overlay.get(key) {
                    Some(Entry::Item(item)) => return Ok(Some(item.clone())),
                    Some(Entry::Removed) => return Ok(None),
                    None => state.root.clone(),
                }
            };
            match tree::get(&At { media, epoch }, root.as_ref(), key) {
                Err(Error::Damaged(_)) if media.epoch() != epoch => {}
                Err(Error::Damaged(damage)) => {
                    media.keep_damage(&damage);
                    return Err(Error::Damaged(damage));
                }
                found => return found?.map(|found| item_of(&found)).transpose(),
            }
        }
    }

    pub(crate) fn scan(
        &self,
        media: &Media,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &Item) -> bool,
    ) -> Result<()> {
        let mut from = from;
        while from <= to {
            match self.scan_some(media, from, to, visit)? {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// One stretch of a scan: as far as the overlay's entries were copied. Returns where to go
    /// on, if anywhere.
    fn scan_some(
        &self,
        media: &Media,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &Item) -> bool,
    ) -> Result<Option<Key>> {
        let epoch = media.epoch();
        let (entries, end, root) = {
            let state = self.state.read();
            let (entries, end) = stretch(&state.overlay, from, to);
            (entries, end, state.root.clone())
        };
        let mut merge = Merge { entries, visit, next: from, stopped: false, failed: None };
        let walked = tree::scan(&At { media, epoch }, root.as_ref(), from, end, &mut |found| {
            merge.found(&found);
            !merge.stopped
        });
        match walked {
            Err(Error::Damaged(_)) if media.epoch() != epoch => return Ok(Some(merge.next)),
            Err(Error::Damaged(damage)) => {
                media.keep_damage(&damage);
                return Err(Error::Damaged(damage));
            }
            Err(error) => return Err(error),
            Ok(_) => merge.rest(),
        }
        if let Some(error) = merge.failed {
            return Err(error);
        }
        Ok(if merge.stopped || end == to { None } else { end.successor() })
    }

    pub(crate) fn last(&self, media: &Media, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        let mut end = to;
        loop {
            let epoch = media.epoch();
            let root = self.root();
            let found = match tree::last(&At { media, epoch }, root.as_ref(), from, end) {
                Err(Error::Damaged(_)) if media.epoch() != epoch => continue,
                Err(Error::Damaged(damage)) => {
                    media.keep_damage(&damage);
                    return Err(Error::Damaged(damage));
                }
                found => found?,
            };
            let state = self.state.read();
            if state.root != root {
                // A commit has taken layers into a newer tree: what was found says nothing of it.
                end = to;
                continue;
            }
            let newest = last_entry(&state.overlay, from, to);
            let Some(found) = found else { return Ok(newest) };
            if let Some((key, item)) = newest
                && key >= found.key
            {
                return Ok(Some((key, item)));
            }
            match state.overlay.get(found.key) {
                Some(Entry::Item(item)) => return Ok(Some((found.key, item.clone()))),
                Some(Entry::Removed) => match predecessor(found.key).filter(|key| *key >= from) {
                    Some(before) => end = before,
                    None => return Ok(None),
                },
                None => return Ok(Some((found.key, item_of(&found)?))),
            }
        }
    }

    pub(crate) fn read_block(&self, media: &Media, block: &Block) -> Result<Bytes> {
        match block {
            Block::Fresh(fresh) => Ok(Bytes::copy_from_slice(fresh.data())),
            Block::Stored(token) => {
                let read = media.block(&token.place, media.epoch());
                if let Err(Error::Damaged(damage)) = &read {
                    media.keep_damage(damage);
                }
                read
            }
        }
    }

    /// As `read_block`, past the cache.
    pub(crate) fn read_block_anew(&self, media: &Media, block: &Block) -> Result<Bytes> {
        let token = match block {
            Block::Stored(token) => token,
            Block::Fresh(fresh) => match fresh.stored() {
                Some(token) => token,
                None => return Ok(Bytes::copy_from_slice(fresh.data())),
            },
        };
        let read = media.block_anew(&decode_pointer(&token.place)?, media.epoch());
        if let Err(Error::Damaged(damage)) = &read {
            media.keep_damage(damage);
        }
        read
    }
}

fn apply_to(overlay: &mut Overlay, edits: Vec<Edit<'_>>) -> Result<(u64, u64)> {
    if !overlay.can_patch(&edits) {
        return Err(Error::NotFresh);
    }
    let before = (overlay.open.fresh_bytes, overlay.open.edits);
    overlay.apply(edits);
    Ok((overlay.open.fresh_bytes - before.0, overlay.open.edits - before.1))
}

/// The overlay's entries from `from`, and the key up to which they are complete.
fn stretch(overlay: &Overlay, from: Key, to: Key) -> (BTreeMap<Key, Entry>, Key) {
    let (mut entries, full_to) = overlay.merged(from..=to, SCAN_ENTRIES_MAX);
    let Some(end) = full_to else { return (entries, to) };
    if let Some(beyond) = end.successor() {
        entries.split_off(&beyond);
    }
    (entries, end)
}

/// The greatest key in a range whose newest entry is an item.
fn last_entry(overlay: &Overlay, from: Key, to: Key) -> Option<(Key, Item)> {
    let newest = overlay.layers().filter_map(|layer| {
        let mut entries = layer.entries.range(from..=to).rev();
        entries.find_map(|(key, _)| match overlay.get(*key) {
            Some(Entry::Item(item)) => Some((*key, item.clone())),
            _ => None,
        })
    });
    newest.max_by_key(|(key, _)| *key)
}

fn predecessor(key: Key) -> Option<Key> {
    let (offset, borrow) = key.offset.overflowing_sub(1);
    let (kind, borrow) = key.kind.overflowing_sub(u8::from(borrow));
    let object = key.object.checked_sub(u64::from(borrow))?;
    Some(Key { object, kind, offset })
}

pub(crate) fn item_of(found: &Found) -> Result<Item> {
    let block = match &found.pointer {
        Some(pointer) => Some(Block::Stored(token_of(pointer)?)),
        None => None,
    };
    Ok(Item { value: found.value.clone(), block })
}

/// Puts the overlay's entries between and over what a tree scan finds.
struct Merge<'a> {
    entries: BTreeMap<Key, Entry>,
    visit: &'a mut dyn FnMut(Key, &Item) -> bool,
    /// Where a scan that was interrupted goes on.
    next: Key,
    stopped: bool,
    failed: Option<Error>,
}

impl Merge<'_> {
    fn emit(&mut self, key: Key, item: &Item) {
        self.stopped = !(self.visit)(key, item);
        match key.successor() {
            Some(next) => self.next = next,
            None => self.stopped = true,
        }
    }

    fn entries_before(&mut self, key: Option<Key>) {
        while !self.stopped
            && let Some(first) = self.entries.first_entry()
            && key.is_none_or(|key| *first.key() < key)
        {
            let (key, entry) = first.remove_entry();
            if let Entry::Item(item) = entry {
                self.emit(key, &item);
            }
        }
    }

    fn found(&mut self, found: &Found) {
        self.entries_before(Some(found.key));
        if self.stopped {
            return;
        }
        match self.entries.remove(&found.key) {
            Some(Entry::Item(item)) => self.emit(found.key, &item),
            Some(Entry::Removed) => {}
            None => match item_of(found) {
                Ok(item) => self.emit(found.key, &item),
                Err(error) => {
                    self.failed = Some(error);
                    self.stopped = true;
                }
            },
        }
    }

    fn rest(&mut self) {
        if !self.stopped {
            self.entries_before(None);
        }
    }
}
