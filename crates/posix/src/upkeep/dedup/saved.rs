//! What sharing saves inside one dataset.
//!
//! Each section counts with its part of what its block takes; each block counts once. A block that
//! only one section refers to is known by that section. One that more refer to is known by the
//! store's own count of its references. So no table of blocks is needed, and the sums are exact.

use marram_records::failure::{from_record, from_store};
use marram_records::sections::Section;
use marram_store::{Item, Key, View, kind};
use marram_vfs::Result;

/// Content of a dataset or snapshot, as the last commit has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentSharing {
    /// Bytes of content, uncompressed.
    pub content_bytes: u64,
    /// Bytes that it would take as it is stored, if nothing were shared.
    pub unshared_bytes: u64,
    /// Bytes that its blocks take. Can be more, where files still use a part of a block.
    pub stored_bytes: u64,
}

/// Sums up what a dataset or snapshot has. Reads all its items, but no content. What is written
/// meanwhile may be in some sums and not in others.
///
/// # Errors
/// A failed read.
pub fn content_sharing(view: &dyn View) -> Result<ContentSharing> {
    let mut sums = ContentSharing::default();
    let mut failure = None;
    let mut add = |key: Key, item: &Item| {
        let Some(block) = &item.block else {
            return true;
        };
        let stored = view.stored_bytes(block);
        match key.kind {
            kind::REFERENCES => sums.stored_bytes += stored,
            kind::SECTION => match Section::decode(key, item) {
                Ok(section) => {
                    let part = u128::from(stored) * u128::from(section.len);
                    let part = part / block.len().max(1) as u128;
                    sums.content_bytes += section.len;
                    sums.unshared_bytes += u64::try_from(part).unwrap_or(u64::MAX);
                    if !view.place_of(block).may_be_shared {
                        sums.stored_bytes += stored;
                    }
                }
                Err(error) => failure = Some(from_record(key.object, &error)),
            },
            _ => (),
        }
        failure.is_none()
    };
    let (first, last) = (Key::new(0, 0, 0), Key::new(u64::MAX, u8::MAX, u64::MAX));
    view.scan(first, last, &mut add).map_err(from_store)?;
    failure.map_or(Ok(sums), Err)
}
