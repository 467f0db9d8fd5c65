//! A dataset in memory: the root of its last commit, and the layers over it.
//!
//! Reading takes the root under a short lock and then walks the tree without one, so that a slow
//! device holds up nobody else. A commit may replace the root meanwhile and a later one reuse the
//! grains; then the walk meets a block that fails its checksum, sees that a commit has passed, and
//! starts again from the new root. Damage is believed only if no commit has passed.

use crate::base::order::{self, RwLock, RwLockReadGuard};
use crate::base::pointers::{decode_pointer, token_of};
use crate::io::{At, Media};
use crate::memtable::allowance::Allowance;
use crate::memtable::counters::{self, CommittedCounters, Settled};
use crate::memtable::dirty::Dirty;
use crate::memtable::dirty_datasets::DirtyDatasets;
use crate::memtable::doubt::Doubt;
use crate::memtable::item_cache::{Answer, ItemCache, Owner, Stretch};
use crate::memtable::overlay::{Entry, Frozen, Layer, Overlay};
use crate::memtable::settings::Settings;
use crate::memtable::unlogged::Unlogged;
use crate::tree::{self, Found};
use bytes::Bytes;
use marram_format::dataset::DatasetRecord;
use marram_store::{Block, Counter, Edit, Error, Item, Key, Part, Result, Unread};
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
    dirty_datasets: Arc<DirtyDatasets>,
    is_listed_dirty: AtomicBool,
    /// Inodes and names that were asked for lately, of all datasets.
    item_cache: Arc<ItemCache>,
    /// How many views are open on it.
    views: AtomicUsize,
    /// What it may use.
    pub(crate) allowance: Allowance,
    /// Whether a transaction over two pools is prepared in it, and its decision is not known.
    pub(crate) doubt: Doubt,
}

/// A dataset that is open: it is not destroyed meanwhile.
pub(crate) struct Opened(Arc<Dataset>);

impl Opened {
    /// Opens a dataset.
    pub(crate) fn new(dataset: Arc<Dataset>) -> Opened {
        dataset.views.fetch_add(1, Ordering::AcqRel);
        Opened(dataset)
    }

    /// The dataset, however long it stays open.
    pub(crate) fn arc(&self) -> Arc<Dataset> {
        Arc::clone(&self.0)
    }
}

impl std::ops::Deref for Opened {
    type Target = Dataset;

    fn deref(&self) -> &Dataset {
        &self.0
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.views.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What became of edits that were to be applied.
pub(crate) enum Attempt<'a> {
    /// They have been; by how much what waits has grown.
    Applied(Dirty),
    /// Nothing yet: a counter must be read from the tree under this root.
    Unread { edits: Vec<Edit<'a>>, key: Key, root: Option<Bytes> },
}

struct State {
    root: Option<Bytes>,
    overlay: Overlay,
    settings: Arc<Settings>,
    /// Under which the item cache has those of this state.
    owner: Owner,
}

impl Dataset {
    pub(crate) fn new(
        record: &DatasetRecord,
        root: Option<Bytes>,
        settings: Settings,
        writable: bool,
        (dirty_datasets, item_cache): (Arc<DirtyDatasets>, Arc<ItemCache>),
    ) -> Dataset {
        let allowance = Allowance::new(record.referenced_grains);
        if writable {
            allowance.set(settings.quota_bytes, settings.reservation_bytes);
        }
        let id = record.id;
        let settings = Arc::new(settings);
        let owner = item_cache.new_owner();
        let state = State { root, overlay: Overlay::default(), settings, owner };
        let state = RwLock::new(order::DATASET, state);
        let (is_listed_dirty, views) = (AtomicBool::new(false), AtomicUsize::new(0));
        Dataset {
            id,
            writable,
            state,
            dirty_datasets,
            is_listed_dirty,
            item_cache,
            views,
            allowance,
            doubt: Doubt::default(),
        }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.state.read().settings.clone()
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        self.allowance.set(settings.quota_bytes, settings.reservation_bytes);
        self.state.write().settings = Arc::new(settings);
    }

    /// Bytes of content, new and to be adopted, and changed keys that are in no commit yet.
    pub(crate) fn dirty(&self) -> (u64, u64) {
        let state = self.state.read();
        let add = |sum: (u64, u64), layer: &Layer| {
            (sum.0 + layer.unwritten.bytes() + layer.foreign_blocks.bytes(), sum.1 + layer.edits)
        };
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

    /// Applies edits without additions that the intent log has, or refuses all of them if a patch
    /// does not meet a fresh block. Returns by how much what waits has grown.
    pub(crate) fn apply(&self, edits: Vec<Edit<'_>>) -> Result<Dirty> {
        let mut state = self.state.write();
        self.list_dirty();
        if !state.overlay.can_patch(&edits, true) {
            return Err(Error::NotFresh);
        }
        Ok(self.apply_to(&mut state, edits, Vec::new()))
    }

    /// As [`Dataset::apply`], for edits that may add to counters; refuses all of them if one would
    /// pass its limit, or must be read first.
    pub(crate) fn apply_counted<'a>(
        &self,
        edits: Vec<Edit<'a>>,
        committed: &mut CommittedCounters,
    ) -> Result<Attempt<'a>> {
        let mut state = self.state.write();
        committed.keep_if_under(state.root.as_ref());
        match counters::settle(&edits, &state.overlay, committed)? {
            Settled::Sums(_) if !state.overlay.can_patch(&edits, false) => Err(Error::NotFresh),
            Settled::Sums(sums) => {
                self.list_dirty();
                Ok(Attempt::Applied(self.apply_to(&mut state, edits, sums)))
            }
            Settled::Unread(key) => Ok(Attempt::Unread { edits, key, root: state.root.clone() }),
        }
    }

    /// Whether [`Dataset::apply_counted`] would refuse edits for passing a limit.
    pub(crate) fn check_limits(&self, media: &Media, edits: &[Edit<'_>]) -> Result<()> {
        let mut committed = CommittedCounters::default();
        loop {
            let unread = {
                let state = self.state.read();
                committed.keep_if_under(state.root.as_ref());
                match counters::settle(edits, &state.overlay, &committed)? {
                    Settled::Sums(_) => return Ok(()),
                    Settled::Unread(key) => (key, state.root.clone()),
                }
            };
            self.read_counter(media, unread, &mut committed)?;
        }
    }

    /// Reads a counter from the tree that [`Dataset::apply_counted`] needs. Nothing is read of a
    /// root that a commit has replaced: what a later one has put in the place of a copy would pass
    /// for a bad copy of now, and be made good.
    pub(crate) fn read_counter(
        &self,
        media: &Media,
        (key, root): (Key, Option<Bytes>),
        committed: &mut CommittedCounters,
    ) -> Result<()> {
        let epoch = media.epoch();
        if self.root() != root {
            return Ok(());
        }
        match tree::get(&At { media, epoch }, root.as_ref(), key) {
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

    /// Applies edits whose patches are possible and whose additions make these sums.
    fn apply_to(
        &self,
        state: &mut State,
        mut edits: Vec<Edit<'_>>,
        sums: Vec<(usize, Counter)>,
    ) -> Dirty {
        let State { overlay, owner, .. } = state;
        overlay.held.let_go(&edits);
        overlay.held.take_over(&mut edits, sums);
        edits.iter().for_each(|edit| self.item_cache.note(*owner, edit));
        let before = overlay.open.dirty();
        overlay.apply(edits);
        overlay.open.dirty().since(before)
    }

    /// The state, with all counters in a range of keys as they are now.
    fn up_to_date(&self, from: Key, to: Key) -> RwLockReadGuard<'_, State> {
        loop {
            let state = self.state.read();
            if !state.overlay.held.is_ahead(from, to) {
                return state;
            }
            drop(state);
            self.state.write().overlay.write_held();
        }
    }

    fn list_dirty(&self) {
        if !self.is_listed_dirty.swap(true, Ordering::AcqRel) {
            self.dirty_datasets.put(self.id);
        }
    }

    /// Freezes what is open, for a commit; returns whether there is anything to commit. No batch
    /// is under way.
    pub(crate) fn freeze(&self, freeze: u64) -> bool {
        let mut state = self.state.write();
        state.overlay.freeze(freeze);
        let is_dirty = !state.overlay.frozen.is_empty();
        if !is_dirty && self.is_listed_dirty.swap(false, Ordering::AcqRel) {
            self.dirty_datasets.take(self.id);
        }
        is_dirty
    }

    /// Takes away what was frozen under this number, which no commit has taken in.
    pub(crate) fn withdraw(&self, freeze: u64) {
        let mut state = self.state.write();
        state.overlay.frozen.retain(|frozen| frozen.freeze != freeze);
        state.owner = self.item_cache.new_owner();
    }

    /// From now on it is kept in mind what the intent log does not have.
    pub(crate) fn begin_logging(&self) {
        self.state.write().overlay.unlogged.get_or_insert_default();
    }

    /// Lets `read` see the layers, to write them into the intent log.
    pub(crate) fn collect<T>(&self, read: impl FnOnce(&mut Overlay) -> T) -> T {
        let mut state = self.state.write();
        state.overlay.write_held();
        read(&mut state.overlay)
    }

    /// The root and the frozen layers that a commit puts into it.
    pub(crate) fn frozen(&self) -> (Option<Bytes>, Vec<Arc<crate::memtable::overlay::Layer>>) {
        let state = self.state.read();
        let layers = state.overlay.frozen.iter().map(|frozen| frozen.layer.clone());
        (state.root.clone(), layers.collect())
    }

    /// What has changed since the last commit, layer by layer, oldest first.
    pub(crate) fn uncommitted_layers(&self) -> Vec<BTreeMap<Key, Entry>> {
        let state = self.state.read();
        state.overlay.layers().map(|layer| layer.entries.clone()).collect()
    }

    /// The root of the last commit, what has changed since, and bytes of blocks to be adopted.
    pub(crate) fn uncommitted(&self) -> (Option<Bytes>, BTreeMap<Key, Entry>, u64) {
        let state = self.state.read();
        let (entries, _all) = state.overlay.merged(Key::MIN..=Key::MAX, usize::MAX);
        let adopted = state.overlay.layers().map(|layer| layer.foreign_blocks.bytes()).sum();
        (state.root.clone(), entries, adopted)
    }

    /// The root of the last commit.
    pub(crate) fn root(&self) -> Option<Bytes> {
        self.state.read().root.clone()
    }

    /// A commit that contains the first `taken` of the frozen layers is durable.
    pub(crate) fn publish(&self, root: Option<Bytes>, taken: usize) {
        let mut state = self.state.write();
        state.root = root;
        let taken = taken.min(state.overlay.frozen.len());
        state.overlay.frozen.drain(..taken);
    }

    /// The root and the layers as they are now, of which none changes any more: what is open is
    /// frozen, for the commit that has the number `freeze`.
    pub(crate) fn stand_still(&self, freeze: u64) -> (Option<Bytes>, Vec<Arc<Layer>>) {
        let mut state = self.state.write();
        state.overlay.freeze(freeze);
        let layers = state.overlay.frozen.iter().map(|frozen| frozen.layer.clone());
        (state.root.clone(), layers.collect())
    }

    /// Begins over the layers of another one, which no frame gets from here.
    pub(crate) fn begin_over(&self, layers: Vec<Arc<Layer>>, freeze: u64) {
        let frozen = |layer| Frozen { layer, freeze, unlogged: Unlogged::default() };
        self.state.write().overlay.frozen = layers.into_iter().map(frozen).collect();
    }

    /// Whether the newest of the frozen layers is of this freeze.
    pub(crate) fn has_frozen(&self, freeze: u64) -> bool {
        self.state.read().overlay.frozen.last().is_some_and(|frozen| frozen.freeze == freeze)
    }

    /// What waits in the frozen layers, without the first `others`.
    pub(crate) fn frozen_dirty(&self, others: usize) -> Dirty {
        let state = self.state.read();
        let frozen = state.overlay.frozen.iter().skip(others);
        frozen.fold(Dirty::default(), |sum, frozen| sum.plus(frozen.layer.dirty()))
    }

    /// How many layers are frozen.
    pub(crate) fn frozen_layers(&self) -> usize {
        self.state.read().overlay.frozen.len()
    }

    /// Whether a batch has been applied that no commit has taken in, beside the first `others` of
    /// the frozen layers.
    pub(crate) fn has_own_dirty(&self, others: usize) -> bool {
        let state = self.state.read();
        !state.overlay.open.is_empty() || state.overlay.frozen.len() > others
    }

    /// Drops all that waits; returns how much that was, without the first `others` of the frozen
    /// layers.
    pub(crate) fn discard(&self, others: usize) -> Dirty {
        let mut state = self.state.write();
        let overlay = std::mem::take(&mut state.overlay);
        state.owner = self.item_cache.new_owner();
        if self.is_listed_dirty.swap(false, Ordering::AcqRel) {
            self.dirty_datasets.take(self.id);
        }
        let frozen = overlay.frozen.iter().skip(others).map(|frozen| frozen.layer.dirty());
        frozen.fold(overlay.open.dirty(), Dirty::plus)
    }

    /// A commit is durable after which the dataset has another state.
    pub(crate) fn go_on_from(&self, root: Option<Bytes>) {
        let mut state = self.state.write();
        state.root = root;
        state.overlay.frozen.clear();
        state.owner = self.item_cache.new_owner();
    }

    /// Whether what is under a key has changed since the last commit.
    pub(crate) fn is_waiting(&self, key: Key) -> bool {
        self.state.read().overlay.get(key).is_some()
    }

    pub(crate) fn get(&self, media: &Media, key: Key) -> Result<Option<Item>> {
        let Some(stretch) = Stretch::of(key) else { return self.search(media, key) };
        let (owner, stamp) = {
            let state = self.state.read();
            match self.item_cache.find(state.owner, stretch) {
                Answer::Known(content) => {
                    let content = content.filter(|(offset, _)| *offset == key.offset);
                    return Ok(content.map(|(_, value)| Item::plain(value)));
                }
                Answer::Unknown(stamp) => (state.owner, stamp),
            }
        };
        let found = self.search(media, key)?;
        if stretch.is_single() && found.as_ref().is_none_or(|item| item.block.is_none()) {
            let content = found.as_ref().map(|item| (key.offset, item.value.clone()));
            self.item_cache.keep(owner, stretch, stamp, content);
        }
        Ok(found)
    }

    /// The item under a key, from the layers or the tree.
    fn search(&self, media: &Media, key: Key) -> Result<Option<Item>> {
        loop {
            let epoch = media.epoch();
            let root = {
                let state = self.up_to_date(key, key);
                match state.overlay.get(key) {
                    Some(Entry::Item(item)) => return Ok(Some(Item::clone(item))),
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
        match Stretch::spanned(from, to) {
            Some(stretch) => self.scan_stretch(media, stretch, (from, to), visit),
            None => self.scan_all(media, from, to, visit),
        }
    }

    /// Visits the items of one stretch, which may be known.
    fn scan_stretch(
        &self,
        media: &Media,
        stretch: Stretch,
        (from, to): (Key, Key),
        visit: &mut dyn FnMut(Key, &Item) -> bool,
    ) -> Result<()> {
        let (owner, stamp) = {
            let state = self.state.read();
            match self.item_cache.find(state.owner, stretch) {
                Answer::Known(None) => return Ok(()),
                Answer::Known(Some((offset, value))) => {
                    drop(state);
                    visit(stretch.key(offset), &Item::plain(value));
                    return Ok(());
                }
                Answer::Unknown(stamp) => (state.owner, stamp),
            }
        };
        let mut found: Vec<(Key, Item)> = Vec::new();
        self.scan_all(media, from, to, &mut |key, item| {
            found.push((key, item.clone()));
            true
        })?;
        match found.as_slice() {
            [] => self.item_cache.keep(owner, stretch, stamp, None),
            [(key, Item { value, block: None })] => {
                self.item_cache.keep(owner, stretch, stamp, Some((key.offset, value.clone())));
            }
            _ => {}
        }
        let _stopped = found.iter().all(|(key, item)| visit(*key, item));
        Ok(())
    }

    fn scan_all(
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
            let state = self.up_to_date(from, to);
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
            let state = self.up_to_date(from, to);
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
                Some(Entry::Item(item)) => return Ok(Some((found.key, Item::clone(item)))),
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
            Block::Fresh(fresh) => Ok(fresh.bytes()),
            Block::Stored(token) => {
                let read = media.block(&token.place, media.epoch());
                read.inspect_err(|error| keep_if_damage(media, error))
            }
        }
    }

    /// Appends the parts of one request: what lies side by side is read in one go.
    pub(crate) fn read_parts(
        &self,
        media: &Media,
        parts: &[Part<'_>],
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), Unread> {
        let joined = match parts {
            [_] => vec![None],
            _ => media.joined(&parts.iter().map(place_of).collect::<Vec<_>>()),
        };
        for (number, (part, content)) in parts.iter().zip(joined).enumerate() {
            out.resize(part.at, 0);
            match content {
                Some(content) => part.append(&content, out),
                None => {
                    self.read_part(media, part, out).map_err(|error| Unread { number, error })?
                }
            }
        }
        Ok(())
    }

    fn read_part(&self, media: &Media, part: &Part<'_>, out: &mut Vec<u8>) -> Result<()> {
        match part.block {
            Block::Stored(token) if part.passes_by && part.is_whole() => {
                out.resize(part.at + part.len, 0);
                let read = media.block_into(&token.place, media.epoch(), &mut out[part.at..]);
                read.inspect_err(|error| keep_if_damage(media, error))
            }
            block => self.read_block(media, block).map(|content| part.append(&content, out)),
        }
    }

    /// As `read_block`, past the cache.
    pub(crate) fn read_block_anew(&self, media: &Media, block: &Block) -> Result<Bytes> {
        let token = match block {
            Block::Stored(token) => token,
            Block::Fresh(fresh) => match fresh.stored() {
                Some(token) => token,
                None => return Ok(fresh.bytes()),
            },
        };
        let read = media.block_anew(&decode_pointer(&token.place)?, media.epoch());
        read.inspect_err(|error| keep_if_damage(media, error))
    }
}

/// The encoded pointer of a block that has been written.
fn place_of(part: &Part<'_>) -> Option<Bytes> {
    match part.block {
        Block::Fresh(_) => None,
        Block::Stored(token) => Some(token.place.clone()),
    }
}

/// Damage is kept for the report.
fn keep_if_damage(media: &Media, error: &Error) {
    if let Error::Damaged(damage) = error {
        media.keep_damage(damage);
    }
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
            Some(Entry::Item(item)) => Some((*key, Item::clone(item))),
            _ => None,
        })
    });
    newest.max_by_key(|(key, _)| *key)
}

/// The key before one.
pub(crate) fn predecessor(key: Key) -> Option<Key> {
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
