//! Whether users would see a difference between a snapshot and the present.

use crate::stable_source::StableSource;
use marram_format::record::{Inode, Time};
use marram_records::failure::from_store;
use marram_records::inode::decode_inode;
use marram_records::state::State;
use marram_store::{DatasetName, ItemChange, Key, Source, Store, kind};
use marram_vfs::Result;

/// Whether anything has changed in a dataset since a snapshot of it but times of access; without a
/// snapshot, whether there is anything in it. Ends at the first change: what users change moves a
/// time in a record, so no others are looked at.
///
/// # Errors
/// No such dataset or snapshot; a failed read.
pub fn has_changed(
    store: &dyn Store,
    dataset: &DatasetName,
    since: Option<&Source>,
) -> Result<bool> {
    let live = Source::live(dataset.clone());
    let present = StableSource::of(store, &live, "diff")?;
    let Some(since) = since else {
        let root = store.report(&live).map_err(from_store)?.root_object;
        let view = store.open(present.source()).map_err(from_store)?;
        let mut is_empty = true;
        State::open(view, root)?.visit_entries(root, 0, u64::MAX, &mut |_| {
            is_empty = false;
            false
        })?;
        return Ok(!is_empty);
    };
    let mut found = Ok(false);
    let mut visit = |change: ItemChange| {
        found = is_seen(&change);
        matches!(found, Ok(false))
    };
    store.changes(since, present.source(), Key::MIN, &mut visit).map_err(from_store)?;
    found
}

/// Whether a change of an item is one that users see.
fn is_seen(change: &ItemChange) -> Result<bool> {
    let ItemChange { key, before, after } = change;
    if key.kind != kind::INODE || key.object == 0 {
        return Ok(false);
    }
    let named = |item: &Option<marram_store::Item>| -> Result<Option<Inode>> {
        let inode = item.as_ref().map(|item| decode_inode(key.object, item)).transpose()?;
        let inode = inode.filter(|inode| inode.links > 0);
        // Space and access are no content.
        Ok(inode.map(|inode| Inode {
            accessed: Time::default(),
            data_bytes: 0,
            reserved_bytes: 0,
            state: 0,
            ..inode
        }))
    };
    Ok(named(before)? != named(after)?)
}
