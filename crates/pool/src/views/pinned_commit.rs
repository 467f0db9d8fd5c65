//! One moment of a pool, readable while commits go on.
//!
//! What a commit gives back the next one may use again, so whoever reads an older state for long
//! would find other bytes there. While somebody holds a moment, what is given back is not used
//! again ([`SpaceMap::hold`](crate::space::SpaceMap::hold)), unless there is nothing else: then the
//! moment is broken, and its reader begins anew. **What was read without an error is always of that
//! moment**: each node is verified by the checksum in the pointer that led to it.

use crate::base::pointers::decode_pointer;
use crate::commit::is_shared;
use crate::front::Inner;
use crate::io::At;
use crate::memtable::dataset::item_of;
use crate::state::records::Records;
use crate::state::settings::Settings;
use crate::tree::{self, NodeSource};
use crate::views::live::place_of;
use bytes::Bytes;
use marram_format::dataset::{DatasetRecord, DatasetState};
use marram_format::node::Node;
use marram_format::pointer::{GRAIN_BYTES, Pointer};
use marram_format::space::{OwnersRecord, ReferenceRecord, owners_key, references_key};
use marram_format::superblock::Superblock;
use marram_store::{
    Batch, Block, BlockPlace, Capabilities, CountedSpace, Damage, Error, Halting, Holding, Item,
    Key, Ownership, Placement, Properties, Result, Space, View,
};
use std::sync::Arc;

/// How often a moment that was broken is taken anew before commits have to wait.
const TRIES_MAX: usize = 3;

/// See the module.
pub(crate) struct Moment {
    pub(crate) pool: Arc<Inner>,
    pub(crate) superblock: Superblock,
    pub(crate) records: Arc<Records>,
    pool_tree: Option<Bytes>,
    epoch: u64,
    /// What [`crate::space::SpaceMap::breaks`] said when it was held, if it is.
    held: Option<u64>,
}

impl Moment {
    /// The last commit, held.
    pub(crate) fn hold(pool: &Arc<Inner>) -> Moment {
        let _no_commit = pool.committing.lock();
        let mut moment = Moment::still(pool);
        moment.held = Some(pool.space.lock().hold());
        moment
    }

    /// The last commit, for one who has the turn to commit: nothing is given back meanwhile.
    pub(crate) fn still(pool: &Arc<Inner>) -> Moment {
        let superblock = pool.superblock.lock().clone();
        Moment {
            pool: Arc::clone(pool),
            pool_tree: superblock.pool_tree.as_ref().map(Pointer::encode),
            superblock,
            records: Arc::clone(&pool.records.read()),
            epoch: pool.media.epoch(),
            held: None,
        }
    }

    /// Lets `look` read one moment. Commits wait for it only if the pool is so short of space
    /// that nothing can be held back.
    pub(crate) fn look<T>(
        pool: &Arc<Inner>,
        look: &mut dyn FnMut(&Moment) -> Result<T>,
    ) -> Result<T> {
        for _ in 0..TRIES_MAX {
            let moment = Moment::hold(pool);
            match look(&moment) {
                Err(Error::Damaged(_)) if moment.is_broken() => {}
                seen => return seen,
            }
        }
        let _no_commit = pool.committing.lock();
        look(&Moment::still(pool))
    }

    /// Whether something that it has may have been overwritten.
    pub(crate) fn is_broken(&self) -> bool {
        self.held.is_some_and(|before| self.pool.space.lock().breaks() != before)
    }

    /// Damage of what is called `name` that is none: what was read has been given back and
    /// overwritten.
    pub(crate) fn told<T>(&self, name: &str, read: Result<T>) -> Result<T> {
        match read {
            Err(Error::Damaged(_)) if self.is_broken() => Err(Error::InUse {
                name: name.to_owned(),
                holder: "the pool has little space, and what is being read was overwritten; try \
                         again when less is written"
                    .to_owned(),
            }),
            Err(Error::Damaged(damage)) => {
                self.pool.media.keep_damage(&damage);
                Err(Error::Damaged(damage))
            }
            read => read,
        }
    }

    /// Where its nodes are read from.
    pub(crate) fn at(&self) -> At<'_> {
        At { media: &self.pool.media, epoch: self.epoch }
    }

    /// The root of the pool's own tree.
    pub(crate) fn pool_tree(&self) -> Option<&Bytes> {
        self.pool_tree.as_ref()
    }

    /// Whether any block of the pool has several owners.
    pub(crate) fn has_owners(&self) -> Result<bool> {
        let (from, to) = (owners_key(0), owners_key(u64::MAX));
        Ok(!tree::scan(&self.at(), self.pool_tree(), from, to, &mut |_| false)?)
    }

    /// Owners of a block that is in use.
    pub(crate) fn owners_of(&self, address: u64) -> Result<u64> {
        owners_in(&self.at(), self.pool_tree(), address)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        if self.held.is_some() {
            self.pool.space.lock().let_go();
        }
    }
}

impl NodeSource for Moment {
    fn node(&self, pointer: &Bytes) -> Result<Arc<Node>> {
        self.at().node(pointer)
    }
}

/// Owners of a block, as a tree of the pool's own has them.
pub(crate) fn owners_in(
    source: &dyn NodeSource,
    pool_tree: Option<&Bytes>,
    address: u64,
) -> Result<u64> {
    match tree::get(source, pool_tree, owners_key(address))? {
        None => Ok(1),
        Some(found) => {
            let record = OwnersRecord::decode(&found.value);
            Ok(record.map_err(|error| damaged("the owners of a block", error.to_string()))?.count)
        }
    }
}

fn damaged(what: &'static str, reason: String) -> Error {
    Error::Damaged(Damage { what, place: "the pool".to_owned(), reason })
}

/// A dataset or snapshot as it was at a held moment. Tells what each of its blocks is held by.
pub(crate) struct FrozenView {
    moment: Arc<Moment>,
    record: Arc<DatasetRecord>,
    root: Option<Bytes>,
    has_owners: bool,
}

impl FrozenView {
    /// As the last commit has it.
    pub(crate) fn open(moment: Moment, name: &str) -> Result<FrozenView> {
        let record = moment.records.named(name).cloned();
        let record = record.ok_or_else(|| Error::NoDataset(name.to_owned()))?;
        FrozenView::of(Arc::new(moment), record)
    }

    /// As a record of the moment has it.
    pub(crate) fn of(moment: Arc<Moment>, record: Arc<DatasetRecord>) -> Result<FrozenView> {
        let root = record.root.as_ref().map(Pointer::encode);
        let has_owners = moment.has_owners()?;
        Ok(FrozenView { moment, record, root, has_owners })
    }

    /// Damage that is none: what was read has been given back and overwritten.
    fn told<T>(&self, read: Result<T>) -> Result<T> {
        self.moment.told(&self.record.name, read)
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
        let found = self.told(tree::get(&*self.moment, self.root.as_ref(), key))?;
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
        self.told(walked)?;
        failed.map_or(Ok(()), Err)
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        let found = self.told(tree::last(&*self.moment, self.root.as_ref(), from, to))?;
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
                self.told(at.media.block(&token.place, at.epoch))
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
        self.moment.pool.space()
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
        self.told(self.holding_of(&pointer, address)).map(Some)
    }
}

impl Halting for FrozenView {
    fn halt(&self) {
        self.moment.pool.halt();
    }
}
