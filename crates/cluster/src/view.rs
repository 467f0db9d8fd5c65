//! A dataset or snapshot that is open.

use crate::catalogue::Link;
use crate::chain::Asked;
use crate::draft::DEFAULTS;
use crate::format::{LockPlace, Reference};
use crate::pending::Items;
use crate::state::Shared;
use bytes::Bytes;
use marram_store::{
    Adoption, Batch, Block, Capabilities, CountedSpace, Counter, Edit, Error, Foresight, HeldLock,
    Item, Key, LockRequest, Locking, Moment, Part, Properties, Result, Space, Together, Unread,
    View,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of each line that a page of a scan asks for.
const PAGE_ROWS: usize = 256;
/// The same, of a search for the last item.
const LAST_ROWS: usize = 8;
/// Bytes that wait for their publication at most: a batch beyond that publishes them first.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// An open dataset, or snapshot.
pub(crate) struct ClusterView {
    pub(crate) shared: Arc<Shared>,
    /// The number of the dataset or snapshot.
    pub(crate) number: u64,
    /// The lines of a snapshot.
    pub(crate) snapshot: Option<Vec<Link>>,
    /// Tells that it is open.
    pub(crate) _open: Arc<()>,
}

impl ClusterView {
    /// What waits of a part of the dataset, and the lines that have the rest.
    fn part(&self, asked: Asked) -> Result<(Items, Vec<Link>)> {
        if let Some(links) = &self.snapshot {
            return Ok((Items::new(), links.clone()));
        }
        let state = self.shared.state.read();
        let slice = |pending: &crate::pending::Pending| {
            let how = (asked.limit, asked.descending);
            pending.slice(self.number, (asked.from, asked.to), how)
        };
        let (mut waiting, mut full) = (Items::new(), Vec::new());
        for part in [state.frozen.as_deref().map(slice), Some(slice(&state.pending))] {
            let part = part.unwrap_or_default();
            if part.len() == asked.limit {
                full.extend(end_of(&part, asked.descending));
            }
            waiting.extend(part);
        }
        let end = if asked.descending { full.iter().max() } else { full.iter().min() };
        if let Some(end) = end {
            waiting.retain(|key, _| if asked.descending { key >= end } else { key <= end });
        }
        Ok((waiting, state.links(self.number)?))
    }

    /// Lets a batch wait for its publication; false if others have come meanwhile.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if others have changed what it depends on before they went.
    fn let_wait(&self, batch: &mut Batch<'_>) -> Result<bool> {
        if self.shared.state.read().pending.bytes() > WAITING_BYTES_MAX {
            self.shared.publish_waiting()?;
        }
        let mut state = self.shared.state.write();
        state.refuse_stopped()?;
        if !state.is_alone {
            return Ok(false);
        }
        // It may have been read while others were there, and have waited here until they had gone.
        if batch.seen.is_some_and(|seen| seen != state.moment(self.number)) {
            return Err(Error::Overtaken);
        }
        let links = state.links(self.number)?;
        let counters = counters(
            &self.shared,
            &batch.edits,
            &|key| state.pending.is_patchable(self.number, key),
            &|key| state.waiting(self.number, key).cloned(),
            &links,
        )?;
        batch.begun.iter().for_each(|object| self.shared.items.begin(&links, *object));
        for edit in std::mem::take(&mut batch.edits) {
            let counter = counters.get(&edit.key()).copied();
            state.pending.make(self.number, edit, counter)?;
        }
        state.applied += 1;
        Ok(true)
    }

    /// The items of a page in key order, and where the next one begins.
    fn page(&self, asked: Asked) -> Result<(BTreeMap<Key, Item>, Option<Key>)> {
        let (waiting, links) = self.part(asked)?;
        let page = self.shared.page(&links, asked)?;
        let mut complete_to = page.complete_to;
        if waiting.len() >= asked.limit
            && let Some(end) = end_of(&waiting, asked.descending)
        {
            complete_to =
                if asked.descending { complete_to.max(end) } else { complete_to.min(end) };
        }
        let is_complete =
            |key: &Key| if asked.descending { *key >= complete_to } else { *key <= complete_to };
        let stored = page.items.into_iter().map(|(key, item)| (key, Some(item.item())));
        let mut all: Items = stored.filter(|(key, _)| is_complete(key)).collect();
        all.extend(waiting.into_iter().filter(|(key, _)| is_complete(key)));
        let next = match asked.descending {
            true => predecessor(complete_to).filter(|_| complete_to > asked.from),
            false => complete_to.successor().filter(|_| complete_to < asked.to),
        };
        let items = all.into_iter().filter_map(|(key, item)| Some((key, item?))).collect();
        Ok((items, next))
    }
}

/// What the counters of a batch are before it; refuses what cannot be made.
pub(crate) fn counters(
    shared: &Shared,
    edits: &[Edit<'_>],
    is_patchable: &dyn Fn(Key) -> bool,
    waiting: &dyn Fn(Key) -> Option<Option<Item>>,
    links: &[Link],
) -> Result<BTreeMap<Key, Counter>> {
    let mut counters = BTreeMap::new();
    for edit in edits {
        match edit {
            Edit::Patch { key, .. } if !is_patchable(*key) => return Err(Error::NotFresh),
            Edit::Add { key, by, at_most } => {
                let stored = || -> Result<Option<Item>> {
                    Ok(shared.item(links, *key)?.map(|item| item.item()))
                };
                let item = waiting(*key).map_or_else(stored, Ok)?;
                let counter = item.map_or(Ok(Counter::default()), |item| {
                    let wrong = || Error::Invalid(format!("the item under {key:?} is no counter"));
                    Counter::decode(&item.value).ok_or_else(wrong)
                })?;
                counter.add(*key, *by, *at_most)?;
                counters.insert(*key, counter);
            }
            _ => {}
        }
    }
    Ok(counters)
}

fn end_of(items: &Items, descending: bool) -> Option<Key> {
    let ends = if descending { items.first_key_value() } else { items.last_key_value() };
    ends.map(|(key, _)| *key)
}

/// The key before one in order, or `None` before the smallest.
fn predecessor(key: Key) -> Option<Key> {
    let (offset, borrow) = key.offset.overflowing_sub(1);
    let (kind, borrow) = key.kind.overflowing_sub(u8::from(borrow));
    let object = key.object.checked_sub(u64::from(borrow))?;
    Some(Key { object, kind, offset })
}

impl View for ClusterView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        match &self.snapshot {
            Some(links) => Ok(self.shared.item(links, key)?.map(|item| item.item())),
            None => self.shared.get(self.number, key),
        }
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        let _uncut = self.shared.pages.read();
        let mut next = Some(from).filter(|from| *from <= to);
        while let Some(from) = next {
            let (items, then) =
                self.page(Asked { from, to, limit: PAGE_ROWS, descending: false })?;
            for (key, item) in &items {
                if !visit(*key, item) {
                    return Ok(());
                }
            }
            next = then;
        }
        Ok(())
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        let _uncut = self.shared.pages.read();
        let mut next = Some(to).filter(|to| from <= *to);
        while let Some(to) = next {
            let (items, then) =
                self.page(Asked { from, to, limit: LAST_ROWS, descending: true })?;
            if let Some(last) = items.into_iter().next_back() {
                return Ok(Some(last));
            }
            next = then;
        }
        Ok(None)
    }

    fn apply(&self, mut batch: Batch<'_>) -> Result<()> {
        if self.snapshot.is_some() {
            return Err(Error::ReadOnly("it is a snapshot".to_owned()));
        }
        if self.shared.read_only {
            return Err(Error::ReadOnly("the store is open for reading only".to_owned()));
        }
        loop {
            let is_shared = !self.shared.state.read().is_alone;
            if is_shared && self.shared.publish_batch(self.number, &mut batch)?.is_some() {
                return Ok(());
            }
            if !is_shared && self.let_wait(&mut batch)? {
                return Ok(());
            }
        }
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        match block {
            Block::Fresh(fresh) => Ok(fresh.bytes()),
            Block::Stored(token) => self.shared.blocks.read(&Reference::of_token(token)?),
        }
    }

    /// Asks for all blocks that are not in memory in one question. What that does not bring is
    /// asked for by itself, and says what is wrong with it.
    fn read_parts(&self, parts: &[Part<'_>], out: &mut Vec<u8>) -> std::result::Result<(), Unread> {
        let stored = |part: &Part<'_>| match part.block {
            Block::Fresh(_) => None,
            Block::Stored(token) => Reference::of_token(token).ok(),
        };
        let references: Vec<Reference> = parts.iter().filter_map(stored).collect();
        let contents = match references.len() {
            0 | 1 => BTreeMap::new(),
            _ => self.shared.blocks.read_all(&references).unwrap_or_default(),
        };
        for (number, part) in parts.iter().enumerate() {
            let known = stored(part).and_then(|reference| contents.get(&reference.id).cloned());
            let content = known.map_or_else(|| self.read_block(part.block), Ok);
            let content = content.map_err(|error| Unread { number, error })?;
            out.resize(part.at, 0);
            part.append(&content, out);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.shared.publish_waiting()
    }

    fn writable(&self) -> bool {
        self.snapshot.is_none()
            && !self.shared.read_only
            && self.shared.state.read().stopped.is_none()
    }

    fn properties(&self) -> Properties {
        let catalogue = Arc::clone(&self.shared.state.read().catalogue);
        let own = catalogue.record(self.number).map(|record| record.properties.clone());
        let mut properties = Properties(own.unwrap_or_default());
        for (property, default) in DEFAULTS {
            properties.0.entry(property.to_owned()).or_insert_with(|| default.to_owned());
        }
        properties
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let space = self.shared.space.is_some().then_some(self as &dyn CountedSpace);
        let together = self.snapshot.is_none().then_some(self as &dyn Together);
        let locks = Some(self as &dyn Locking);
        // Of what changes, what was read before is not what is read next.
        let is_foreseen = self.snapshot.is_some() && self.shared.is_far();
        let foresight = is_foreseen.then_some(self as &dyn Foresight);
        let adoption = Some(self as &dyn Adoption);
        Capabilities { space, adoption, together, locks, foresight, ..Capabilities::default() }
    }
}

impl Foresight for ClusterView {
    fn foresee_items(&self, keys: &[Key]) {
        if let Some(links) = &self.snapshot {
            self.shared.foresee_items(links, keys);
        }
    }

    fn foresee_blocks(&self, blocks: &[Block]) {
        let stored = |block: &Block| match block {
            Block::Fresh(_) => None,
            Block::Stored(token) => Reference::of_token(token).ok(),
        };
        let references: Vec<Reference> = blocks.iter().filter_map(stored).collect();
        // What is asked for next fails too then, and says so.
        let _asked_for_again = self.shared.blocks.read_all(&references);
    }
}

impl Together for ClusterView {
    fn look(&self) -> Result<Moment> {
        self.shared.attend()?;
        self.shared.look()?;
        Ok(self.known_moment())
    }

    fn known_moment(&self) -> Moment {
        self.shared.state.read().moment(self.number)
    }

    fn stirred(&self) -> u64 {
        self.shared.rows.stirred()
    }

    fn is_shared(&self) -> bool {
        self.shared.is_shared()
    }

    fn has_company(&self) -> bool {
        self.shared.has_company()
    }
}

impl ClusterView {
    fn place(&self, object: u64, lock: &LockRequest) -> LockPlace {
        LockPlace { dataset: self.number, object, family: lock.family }
    }
}

impl Locking for ClusterView {
    fn set_lock(&self, object: u64, lock: &LockRequest) -> Result<Option<HeldLock>> {
        self.shared.set_lock(self.place(object, lock), lock)
    }

    fn find_lock(&self, object: u64, lock: &LockRequest) -> Result<Option<HeldLock>> {
        self.shared.find_lock(self.place(object, lock), lock)
    }
}

impl CountedSpace for ClusterView {
    fn space(&self) -> Space {
        self.shared.space.as_ref().map_or(Space::UNCOUNTED, |probe| probe())
    }
}

impl Adoption for ClusterView {
    /// Blocks are the store's, not a dataset's: the same block is referred to.
    fn adopt(&self, _from: &dyn View, block: &Block) -> Result<Block> {
        // One that waits is not known to be stored, even where it has the name of a stored one.
        Ok(block.clone())
    }
}
