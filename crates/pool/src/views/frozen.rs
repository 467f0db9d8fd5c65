//! A dataset or snapshot as a pinned commit has it, read-only.
//!
//! **What is read without an error is of that commit**; a view whose blocks were overwritten says
//! so.

use crate::admission::room;
use crate::base::pointers::{decode_pointer, is_shared};
use crate::memtable::dataset::item_of;
use crate::memtable::settings::Settings;
use crate::snapshots::ephemeral::EphemeralState;
use crate::state::State;
use crate::state::pinned_commit::PinnedCommit;
use crate::tree;
use crate::views::layered::LayeredView;
use crate::views::place::place_of;
use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_format::space::{ReferenceRecord, references_key};
use marram_store::{
    Batch, Block, BlockPlace, Capabilities, CountedSpace, Damage, Error, Halting, Holding, Item,
    Key, Ownership, Placement, Properties, Result, Source, Space, View,
};
use std::sync::Arc;

/// A dataset or snapshot as it was at a held moment. Knows what holds each of its blocks.
pub(crate) struct FrozenView {
    moment: Arc<PinnedCommit>,
    record: Arc<DatasetRecord>,
    root: Option<Bytes>,
    has_owners: bool,
}

/// See [`marram_store::FrozenViews::frozen`].
pub(crate) fn open(pool: &Arc<State>, source: &Source) -> Result<Arc<dyn View>> {
    let moment = PinnedCommit::hold(pool);
    let record = moment.records.named(&source.to_string()).cloned();
    let record = record.ok_or_else(|| Error::NoDataset(source.to_string()))?;
    Ok(Arc::new(FrozenView::of(Arc::new(moment), record)?))
}

/// An ephemeral snapshot, readable as long as it is not overwritten.
pub(crate) fn open_ephemeral(snapshot: &EphemeralState) -> Result<Arc<dyn View>> {
    let opened = FrozenView::of(Arc::clone(&snapshot.moment), Arc::clone(&snapshot.record));
    let under = snapshot.moment.judge_damage(&snapshot.record.name, opened)?;
    match snapshot.layers.clone() {
        None => Ok(Arc::new(under)),
        Some(layers) => Ok(Arc::new(LayeredView { under, layers })),
    }
}

impl FrozenView {
    /// As a record of the moment has it.
    fn of(moment: Arc<PinnedCommit>, record: Arc<DatasetRecord>) -> Result<FrozenView> {
        let root = record.root.as_ref().map(Pointer::encode);
        let has_owners = moment.has_owners()?;
        Ok(FrozenView { moment, record, root, has_owners })
    }

    /// Damage that is none: what was read has been given back and overwritten.
    fn judge_damage<T>(&self, read: Result<T>) -> Result<T> {
        self.moment.judge_damage(&self.record.name, read)
    }

    fn references(&self, pointer: &Pointer, address: u64) -> Result<u64> {
        if !is_shared(pointer) {
            return Ok(1);
        }
        let key = references_key(address, pointer.adopted());
        let found = tree::get(&*self.moment, self.root.as_ref(), key)?;
        let found =
            found.ok_or_else(|| damaged("a reference count", format!("{key:?}: there is none")))?;
        let record = ReferenceRecord::decode(&found.value);
        Ok(record.map_err(|error| damaged("a reference count", error.to_string()))?.count)
    }

    fn holding_of(&self, pointer: &Pointer, address: u64) -> Result<Holding> {
        let is_live = self.record.state == DatasetState::Live;
        Ok(Holding {
            address,
            adopted: pointer.adopted().map_or(0, |group| group.0),
            stored_bytes: pointer.grains() * GRAIN_BYTES,
            references: self.references(pointer, address)?,
            owners: if self.has_owners { self.moment.owners_of(address)? } else { 1 },
            comes_back: is_live && pointer.birth > self.record.previous_group,
        })
    }
}

impl View for FrozenView {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        let found = self.judge_damage(tree::get(&*self.moment, self.root.as_ref(), key))?;
        found.map(|found| item_of(&found)).transpose()
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        let mut failed = None;
        let walked =
            tree::scan(&*self.moment, self.root.as_ref(), from, to, &mut |found| match item_of(
                &found,
            ) {
                Ok(item) => visit(found.key, &item),
                Err(error) => {
                    failed = Some(error);
                    false
                }
            });
        self.judge_damage(walked)?;
        failed.map_or(Ok(()), Err)
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        let found = self.judge_damage(tree::last(&*self.moment, self.root.as_ref(), from, to))?;
        found.map(|found| Ok((found.key, item_of(&found)?))).transpose()
    }

    fn apply(&self, _batch: Batch<'_>) -> Result<()> {
        Err(Error::ReadOnly("a state that is being looked at".to_owned()))
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        match block {
            Block::Fresh(fresh) => Ok(fresh.bytes()),
            Block::Stored(token) => {
                let at = self.moment.at();
                self.judge_damage(at.media.block(&token.place, at.epoch))
            }
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn writable(&self) -> bool {
        false
    }

    fn properties(&self) -> Properties {
        Settings::new(&self.record.properties).map_or_else(|_| Properties::default(), |it| it.all)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            space: Some(self),
            placement: Some(self),
            ownership: Some(self),
            halting: Some(self),
            ..Capabilities::default()
        }
    }
}

impl CountedSpace for FrozenView {
    fn space(&self) -> Space {
        room::space(&self.moment.pool)
    }
}

impl Placement for FrozenView {
    fn stored_bytes(&self, block: &Block) -> u64 {
        match block {
            Block::Fresh(fresh) => fresh.data().len() as u64,
            Block::Stored(token) => {
                decode_pointer(&token.place).map_or(0, |pointer| pointer.grains() * GRAIN_BYTES)
            }
        }
    }

    fn place_of(&self, block: &Block) -> BlockPlace {
        place_of(block).unwrap_or_else(|| BlockPlace::in_memory(self.stored_bytes(block)))
    }

    fn read_block_anew(&self, block: &Block) -> Result<Bytes> {
        self.read_block(block)
    }

    fn is_held_only_by(&self, _block: &Block, _keys: &[Key]) -> Result<bool> {
        Ok(false)
    }
}

impl Ownership for FrozenView {
    fn holding(&self, block: &Block) -> Result<Option<Holding>> {
        let Block::Stored(token) = block else { return Ok(None) };
        let pointer = decode_pointer(&token.place)?;
        let Some(address) = pointer.address() else { return Ok(None) };
        self.judge_damage(self.holding_of(&pointer, address)).map(Some)
    }
}

impl Halting for FrozenView {
    fn halt(&self) {
        self.moment.pool.halt();
    }
}

fn damaged(what: &'static str, reason: String) -> Error {
    Error::Damaged(Damage { what, place: "the pool".to_owned(), reason })
}
