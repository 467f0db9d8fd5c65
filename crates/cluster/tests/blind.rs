//! A view whose batches are never executed anew: a planted bug.

use bytes::Bytes;
use marram_store::{
    Batch, Block, Capabilities, Edit, Error, Item, Key, Moment, Properties, Result, Together, View,
};
use std::sync::Arc;

/// Lets each batch through as it is, whatever others have changed since it was made.
pub(crate) struct Blind(pub(crate) Arc<dyn View>);

impl Blind {
    fn together(&self) -> &dyn Together {
        self.0.capabilities().together.unwrap()
    }
}

/// Nothing is patched beside others: what they see is stored.
fn copy_of(edit: &Edit<'_>) -> Edit<'static> {
    match edit {
        Edit::Put { key, item } => Edit::Put { key: *key, item: item.clone() },
        Edit::Remove { key } => Edit::Remove { key: *key },
        Edit::Add { key, by, at_most } => Edit::Add { key: *key, by: *by, at_most: *at_most },
        Edit::Patch { key, .. } => panic!("a patch of {key:?}"),
    }
}

impl View for Blind {
    fn get(&self, key: Key) -> Result<Option<Item>> {
        self.0.get(key)
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, &Item) -> bool) -> Result<()> {
        self.0.scan(from, to, visit)
    }

    fn last(&self, from: Key, to: Key) -> Result<Option<(Key, Item)>> {
        self.0.last(from, to)
    }

    fn apply(&self, batch: Batch<'_>) -> Result<()> {
        loop {
            let seen = Some(self.together().look()?);
            let edits = batch.edits.iter().map(copy_of).collect();
            match self.0.apply(Batch { edits, seen, ..Batch::new() }) {
                Err(Error::Overtaken) => {}
                applied => return applied,
            }
        }
    }

    fn read_block(&self, block: &Block) -> Result<Bytes> {
        self.0.read_block(block)
    }

    fn sync(&self) -> Result<()> {
        self.0.sync()
    }

    fn writable(&self) -> bool {
        self.0.writable()
    }

    fn properties(&self) -> Properties {
        self.0.properties()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { together: Some(self), ..Capabilities::default() }
    }
}

impl Together for Blind {
    fn look(&self) -> Result<Moment> {
        self.together().look()
    }

    fn known_moment(&self) -> Moment {
        self.together().known_moment()
    }

    fn stirred(&self) -> u64 {
        self.together().stirred()
    }

    fn is_shared(&self) -> bool {
        self.together().is_shared()
    }

    fn has_company(&self) -> bool {
        self.together().has_company()
    }
}
