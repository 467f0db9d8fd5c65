//! The counters of a file system: the next inode number, the seed and the rule of its names, and
//! the count of inodes.
//!
//! The count is a sum of up to [`COUNTS_MAX`] items, so that operations on different inodes need
//! not change the same one.

use crate::failure::{from_record, from_store};
use marram_format::record::{Counters, InodeCount};
use marram_store::{Batch, Item, Key, View, kind};
use marram_vfs::{Error, Result};

/// Items of which the count of inodes is the sum, at most.
pub const COUNTS_MAX: usize = 1024;

fn counters_key() -> Key {
    Key::new(0, kind::COUNTERS, 0)
}

fn count_key(place: usize) -> Key {
    Key::new(0, kind::COUNTERS, 1 + place as u64)
}

/// Reads the counters; `None` if the view holds no file system yet.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn read_counters(view: &dyn View) -> Result<Option<Counters>> {
    let item = view.get(counters_key()).map_err(from_store)?;
    let decode = |item: Item| Counters::decode(&item.value).map_err(|error| from_record(0, &error));
    item.map(decode).transpose()
}

/// Puts the counters into a batch.
pub fn put_counters(batch: &mut Batch<'_>, counters: &Counters) {
    batch.put(counters_key(), Item::plain(counters.encode().to_vec()));
}

/// Visits the items of the count of inodes: the place of each, and what it adds.
///
/// # Errors
/// A failed read, or a record that makes no sense.
pub fn visit_counts(view: &dyn View, visit: &mut dyn FnMut(usize, i64)) -> Result<()> {
    let mut failure = None;
    let mut step = |key: Key, item: &Item| {
        let place = usize::try_from(key.offset - 1).ok().filter(|place| *place < COUNTS_MAX);
        match (place, InodeCount::decode(&item.value)) {
            (Some(place), Ok(count)) => visit(place, count.0),
            (None, Ok(_)) => failure = Some(Error::Damaged(format!("counter {key:?}"))),
            (_, Err(error)) => failure = Some(from_record(0, &error)),
        }
        true
    };
    view.scan(count_key(0), Key::new(0, kind::COUNTERS, u64::MAX), &mut step)
        .map_err(from_store)?;
    failure.map_or(Ok(()), Err)
}

/// Puts an item of the count of inodes into a batch.
pub fn put_count(batch: &mut Batch<'_>, place: usize, count: i64) {
    batch.put(count_key(place), Item::plain(InodeCount(count).encode().to_vec()));
}
