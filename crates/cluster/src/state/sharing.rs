//! What waits shares slices of what it replaces, before it is published.
//!
//! Files are cut anew in memory, while their content waits: what is read from then on is what will
//! be published. An operation that has read the old cut and not yet applied its batch is
//! overtaken: the moment of the dataset is another one. Views read several pages in one go, so
//! none sees a file half of each cut.

use super::{Publisher, Shared};
use crate::catalogue::{Catalogue, Link};
use crate::chain::{self, Asked};
use crate::delta::{Delta, OldSlice, Run, Slice, is_same, recut, runs};
use crate::draft::RECORD_BYTES;
use crate::format::{Reference, Section, StoredItem};
use crate::pending::{Items, Pending};
use bytes::Bytes;
use marram_format::record::{Entry, InodeKind};
use marram_store::{Block, DatasetName, Item, Key, Result, kind};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// New content of a file that is not searched, in bytes; nor is old content of so few.
const SEARCHED_BYTES_MIN: u64 = 4 << 10;
/// Sizes of records, in bytes.
const RECORDS_BYTES: RangeInclusive<usize> = 4096..=1 << 20;
/// Old content of all searches for one publication, in bytes: it is in memory until the end.
const ALL_OLD_BYTES_MAX: u64 = 256 << 20;
/// Searches for one publication: all others wait for it.
const SEARCHES_MAX: usize = 256;
/// Old content that is in memory for one search, in bytes.
const OLD_BYTES_MAX: u64 = 64 << 20;
/// New content without a match after which a search gives up, in bytes.
const GIVE_UP_BYTES: usize = 1 << 20;
/// Slices that a file has lost before are looked at for so many bytes, or twice the new ones.
const LOST_BYTES: u64 = 2 << 20;
/// Sections of a replaced file that are looked at.
const SECTIONS_ASKED: usize = 1024;
/// How long files that are read are waited for; then they are published as they are.
const PATIENCE: Duration = Duration::from_millis(50);

/// A file of which new content waits, and all edits of its sections.
struct Candidate {
    object: u64,
    edits: Vec<(Key, Option<Item>)>,
}

/// How a file is to be cut.
struct Recut {
    dataset: u64,
    candidate: Candidate,
    /// The runs that are cut anew.
    cuts: Vec<Cut>,
    /// What stands under the keys of the edits.
    standing: BTreeMap<Key, StoredItem>,
}

/// A run that is cut anew: the keys that it had, and its sections.
struct Cut {
    keys: Vec<Key>,
    sections: Vec<(Key, Item)>,
}

/// A dataset in which slices are searched for.
struct Field<'f> {
    dataset: u64,
    items: &'f Items,
    links: Vec<Link>,
    way: Delta,
    record_bytes: usize,
}

/// What searches for one publication may still cost.
struct Left {
    bytes: u64,
    searches: usize,
}

impl Left {
    /// Whether a search in some slices may begin, which keeps their blocks in memory.
    fn take(&mut self, slices: &[Slice]) -> bool {
        let blocks: BTreeMap<_, u32> =
            slices.iter().map(|slice| (slice.reference.id, slice.reference.len)).collect();
        let bytes: u64 = blocks.into_values().map(u64::from).sum();
        if bytes > self.bytes || self.searches == 0 {
            return false;
        }
        (self.bytes, self.searches) = (self.bytes - bytes, self.searches - 1);
        true
    }
}

impl Field<'_> {
    fn line(&self) -> u64 {
        self.links[0].line
    }
}

impl Shared {
    /// Lets what waits share slices. What cannot be shared is sent whole, so nothing fails here.
    pub(super) fn share_waiting(&self, publisher: &mut Publisher) {
        let (catalogue, pending) = {
            let state = self.state.read();
            let wants = |(dataset, _): (u64, &Items)| self.way(&state.catalogue, dataset).is_some();
            if state.stopped.is_some() || !state.pending.datasets().any(wants) {
                return;
            }
            (std::sync::Arc::clone(&state.catalogue), state.pending.clone())
        };
        let recuts = self.recuts(publisher, &catalogue, &pending).unwrap_or_default();
        drop(pending);
        if recuts.is_empty() {
            return;
        }
        let Some(_uncut) = self.pages.try_write_for(PATIENCE) else { return };
        let mut state = self.state.write();
        // What reads a file in several steps meets two cuts of it: it has to read anew.
        self.rows.stir();
        for recut in recuts {
            if recut.is_of(&state.pending) {
                recut.make(&mut state.pending);
                *state.recuts.entry(recut.dataset).or_default() += 1;
            }
        }
    }

    /// The same of items that nobody sees before they are published.
    pub(super) fn share_staged(&self, publisher: &mut Publisher, staged: &mut Pending) {
        let catalogue = std::sync::Arc::clone(&self.state.read().catalogue);
        let recuts = self.recuts(publisher, &catalogue, staged).unwrap_or_default();
        recuts.iter().for_each(|recut| recut.make(staged));
    }

    /// Takes note of what the sections of an entry have replaced.
    pub(super) fn note_replaced(
        &self,
        publisher: &mut Publisher,
        catalogue: &Catalogue,
        sections: &[(u64, &Section)],
    ) {
        for (dataset, section) in sections {
            if self.way(catalogue, *dataset).is_none() {
                continue;
            }
            for (key, _) in section.edits.iter().filter(|(key, _)| key.kind == kind::SECTION) {
                let before = publisher.known.item(section.line, *key);
                if let Some(slice) = before.and_then(|item| Slice::of(*key, item)) {
                    publisher.replaced.note((*dataset, key.object), slice);
                }
            }
        }
    }

    /// How slices are searched for in a dataset, if they are. By itself only where that saves
    /// sending, or what is replaced is kept anyway. In one that is being received nothing is cut
    /// anew: later parts of the stream say what lies at which key.
    fn way(&self, catalogue: &Catalogue, dataset: u64) -> Option<Delta> {
        let record = catalogue.record(dataset)?;
        if record.name.parse::<DatasetName>().is_ok_and(|name| name.is_receiving()) {
            return None;
        }
        let is_kept = || {
            let inherits = catalogue.line(record.line).is_some_and(|line| line.parent > 0);
            inherits || catalogue.needed(record.line) > 0
        };
        match Delta::of(&record.properties) {
            Delta::Off => None,
            Delta::Auto if !self.is_far() && !is_kept() => None,
            way => Some(way),
        }
    }

    fn recuts(
        &self,
        publisher: &mut Publisher,
        catalogue: &Catalogue,
        pending: &Pending,
    ) -> Result<Vec<Recut>> {
        let mut recuts = Vec::new();
        let mut left = Left { bytes: ALL_OLD_BYTES_MAX, searches: SEARCHES_MAX };
        for (dataset, items) in pending.datasets() {
            let (Some(way), Some(record)) =
                (self.way(catalogue, dataset), catalogue.record(dataset))
            else {
                continue;
            };
            let candidates = candidates(items);
            if candidates.is_empty() {
                continue;
            }
            let bytes = record.properties.get("recordsize").map_or(RECORD_BYTES, String::as_str);
            let record_bytes = bytes.parse().ok().filter(|bytes| RECORDS_BYTES.contains(bytes));
            let record_bytes = record_bytes.unwrap_or(*RECORDS_BYTES.end());
            let links = catalogue.links(record.line, None)?;
            let field = Field { dataset, items, links, way, record_bytes };
            publisher.known.begin(publisher.number);
            publisher.known.ask_heads(&self.rows, field.line(), items.keys())?;
            publisher.known.ask_inherited(&self.rows, &field.links, items.keys())?;
            let mut replaced_by = None;
            for candidate in candidates {
                let by_name = replaced_by.get_or_insert_with(|| field.replaced_by_name(publisher));
                let earlier = by_name.get(&candidate.object).copied();
                recuts.extend(self.recut_of(publisher, &field, (candidate, earlier), &mut left)?);
            }
        }
        Ok(recuts)
    }

    fn recut_of(
        &self,
        publisher: &mut Publisher,
        field: &Field<'_>,
        (candidate, earlier): (Candidate, Option<u64>),
        left: &mut Left,
    ) -> Result<Option<Recut>> {
        let file = (field.dataset, candidate.object);
        let mut standing = BTreeMap::new();
        let mut own = Vec::new();
        for (key, _) in &candidate.edits {
            if let Some(item) = publisher.known.item(field.line(), *key) {
                standing.insert(*key, item.clone());
                own.extend(Slice::of(*key, item));
            }
        }
        if own.is_empty()
            && publisher.replaced.of(file).is_empty()
            && let Some(earlier) = earlier
        {
            own = self.slices_of(publisher, field, earlier)?;
        }
        if own.is_empty() && publisher.replaced.of(file).is_empty() {
            return Ok(None);
        }
        let give_up = if field.way == Delta::On { usize::MAX } else { GIVE_UP_BYTES };
        let (mut cuts, mut has_searched) = (Vec::new(), false);
        for run in runs(&candidate.edits).unwrap_or_default() {
            let slices = chosen(&run, &own, publisher.replaced.of(file), field.way);
            if !left.take(&slices) {
                break;
            }
            if let Some(old) = self.loaded(publisher, field, &run, (file, slices))? {
                has_searched = true;
                let cut = recut(&run, &old, field.record_bytes, give_up);
                cuts.extend(cut.map(|sections| Cut { keys: run.keys, sections }));
            }
        }
        let has_found = !cuts.is_empty();
        if has_searched {
            publisher.replaced.searched(file, has_found);
        }
        Ok(has_found.then_some(Recut { dataset: field.dataset, candidate, cuts, standing }))
    }

    /// The content of old slices, if a search in them is worth what it costs.
    fn loaded(
        &self,
        publisher: &mut Publisher,
        field: &Field<'_>,
        run: &Run,
        (file, slices): ((u64, u64), Vec<Slice>),
    ) -> Result<Option<Vec<OldSlice>>> {
        let bytes = |slices: &[Slice]| slices.iter().map(|it| u64::from(it.len)).sum::<u64>();
        let new_bytes = run.end() - run.at();
        if new_bytes < SEARCHED_BYTES_MIN || bytes(&slices) < SEARCHED_BYTES_MIN {
            return Ok(None);
        }
        let blocks: BTreeMap<_, Reference> =
            slices.iter().map(|it| (it.reference.id, it.reference)).collect();
        let blocks: Vec<Reference> = blocks.into_values().collect();
        if field.way == Delta::Auto {
            let away = blocks.iter().filter(|block| !self.blocks.is_here(block));
            let away_bytes: u64 = away.map(|block| u64::from(block.len)).sum();
            let most_bytes = match self.is_far() {
                true => 2 * new_bytes,
                false => 4 * new_bytes + field.record_bytes as u64,
            };
            if away_bytes > most_bytes || !publisher.replaced.is_promising(file) {
                return Ok(None);
            }
        }
        let contents = self.blocks.read_all(&blocks)?;
        let old = slices.into_iter().filter_map(|slice| {
            let whole: &Bytes = contents.get(&slice.reference.id)?;
            OldSlice::new(slice, whole)
        });
        let old: Vec<OldSlice> = old.collect();
        Ok((!old.is_empty()).then_some(old))
    }

    /// The slices of a file as the last publication has it.
    fn slices_of(
        &self,
        publisher: &Publisher,
        field: &Field<'_>,
        object: u64,
    ) -> Result<Vec<Slice>> {
        let (from, to) = section_keys(object);
        let edited = field.items.range(from..=to).map(|(key, _)| *key);
        let known = |key: Key| Slice::of(key, publisher.known.item(field.line(), key)?);
        let gone: Vec<Slice> = edited.filter_map(known).collect();
        if !gone.is_empty() {
            return Ok(gone);
        }
        let asked = Asked { from, to, limit: SECTIONS_ASKED, descending: false };
        let page = chain::page(&self.rows, &field.links, asked)?;
        Ok(page.items.iter().filter_map(|(key, item)| Slice::of(*key, item)).collect())
    }
}

/// Whether an item refers to an old block as the one before it did.
fn is_as_before(item: &Item, before: &StoredItem) -> bool {
    let Some(Block::Fresh(fresh)) = &item.block else { return false };
    item.value == before.value && fresh.stored() == before.block.map(|it| it.token()).as_ref()
}

fn section_keys(object: u64) -> (Key, Key) {
    (Key::new(object, kind::SECTION, 0), Key::new(object, kind::SECTION, u64::MAX))
}

/// The files of which enough new content waits.
fn candidates(items: &Items) -> Vec<Candidate> {
    let mut new_bytes: BTreeMap<u64, u64> = BTreeMap::new();
    for (key, item) in items.iter().filter(|(key, _)| key.kind == kind::SECTION) {
        if let Some(Block::Fresh(fresh)) = item.as_ref().and_then(|item| item.block.as_ref()) {
            *new_bytes.entry(key.object).or_default() += fresh.data().len() as u64;
        }
    }
    new_bytes.retain(|_, bytes| *bytes >= SEARCHED_BYTES_MIN);
    let candidate = |object: u64| {
        let (from, to) = section_keys(object);
        let edits = items.range(from..=to).map(|(key, item)| (*key, item.clone()));
        Candidate { object, edits: edits.collect() }
    };
    new_bytes.into_keys().map(candidate).collect()
}

/// The old slices that a run is searched for: what is replaced now, and of what was before, that
/// which lay nearest. Slices of one block that follow each other are one.
fn chosen(run: &Run, own: &[Slice], lost: &[Slice], way: Delta) -> Vec<Slice> {
    let new_bytes = run.end() - run.at();
    let lost_bytes = match way {
        Delta::On => OLD_BYTES_MAX,
        _ => LOST_BYTES.max(2 * new_bytes),
    };
    let own_bytes = match way {
        Delta::On => OLD_BYTES_MAX,
        _ => OLD_BYTES_MAX.min(LOST_BYTES.max(4 * new_bytes)),
    };
    let own_chosen = nearest(run, own, own_bytes);
    let rest = OLD_BYTES_MAX.saturating_sub(own_chosen.iter().map(|it| u64::from(it.len)).sum());
    let is_new = |slice: &&Slice| !own.contains(slice);
    let lost: Vec<Slice> = lost.iter().rev().filter(is_new).copied().collect();
    let mut all = own_chosen;
    all.extend(nearest(run, &lost, lost_bytes.min(rest)));
    let mut joined: Vec<Slice> = Vec::with_capacity(all.len());
    for slice in all {
        match joined.last_mut() {
            Some(last) if last.reference == slice.reference && last.end() == slice.start => {
                last.len += slice.len;
            }
            _ => joined.push(slice),
        }
    }
    joined
}

/// Those of some slices that lay nearest to a run, so many bytes of them, in the order of the file.
fn nearest(run: &Run, slices: &[Slice], bytes_max: u64) -> Vec<Slice> {
    let distance = |slice: &Slice| {
        let end = slice.at + u64::from(slice.len);
        slice.at.saturating_sub(run.end()).max(run.at().saturating_sub(end))
    };
    let mut ordered = slices.to_vec();
    ordered.sort_by_key(distance);
    let mut bytes = 0;
    let fits = |slice: &Slice| {
        bytes += u64::from(slice.len);
        bytes <= bytes_max
    };
    let mut chosen: Vec<Slice> = ordered.into_iter().take_while(fits).collect();
    chosen.sort_by_key(|slice| slice.at);
    chosen
}

impl Field<'_> {
    /// Which file had the name before that another one has now, by the new one.
    fn replaced_by_name(&self, publisher: &Publisher) -> BTreeMap<u64, u64> {
        let file = |value: &[u8]| match Entry::decode(value) {
            Ok(entry) if entry.kind == InodeKind::Regular => Some(entry.ino),
            _ => None,
        };
        let pair = |(key, item): (&Key, &Option<Item>)| {
            let now = file(&item.as_ref()?.value)?;
            let before = file(&publisher.known.item(self.line(), *key)?.value)?;
            (now != before).then_some((now, before))
        };
        self.items.iter().filter(|(key, _)| key.kind == kind::ENTRY).filter_map(pair).collect()
    }
}

impl Recut {
    /// Whether what waits is still what was looked at.
    fn is_of(&self, pending: &Pending) -> bool {
        let now =
            pending.slice(self.dataset, section_keys(self.candidate.object), (usize::MAX, false));
        let mut pairs = now.iter().zip(&self.candidate.edits);
        now.len() == self.candidate.edits.len()
            && pairs.all(|((key, item), (looked_at, was))| {
                key == looked_at && is_same(item.as_ref(), was.as_ref())
            })
    }

    /// Cuts the file anew.
    fn make(&self, pending: &mut Pending) {
        for Cut { keys, sections } in &self.cuts {
            for key in keys {
                match self.standing.contains_key(key) {
                    true => pending.set(self.dataset, *key, None),
                    false => pending.unset(self.dataset, *key),
                }
            }
            for (key, item) in sections {
                match self.standing.get(key).is_some_and(|before| is_as_before(item, before)) {
                    true => pending.unset(self.dataset, *key),
                    false => pending.set(self.dataset, *key, Some(item.clone())),
                }
            }
        }
    }
}
