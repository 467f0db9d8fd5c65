//! The bitmaps of free space, as the last commit has them.

use crate::io::{At, Media};
use crate::space::ZoneSource;
use crate::tree;
use bytes::Bytes;
use marram_format::space::{ZONE_BITMAP_BYTES, zone_key};
use marram_store::{Damage, Error, Result};

/// Bitmaps as the last commit has them.
pub(crate) struct Committed<'a> {
    pub(super) media: &'a Media,
    pub(super) root: Option<Bytes>,
}

impl ZoneSource for Committed<'_> {
    fn bitmap(&self, zone: u64) -> Result<Option<[u8; ZONE_BITMAP_BYTES]>> {
        let at = At { media: self.media, epoch: self.media.epoch() };
        match tree::get(&at, self.root.as_ref(), zone_key(0, zone))? {
            None => Ok(None),
            Some(found) => match <[u8; ZONE_BITMAP_BYTES]>::try_from(&found.value[..]) {
                Ok(bitmap) => Ok(Some(bitmap)),
                Err(_) => Err(malformed(format!("the bitmap of zone {zone}"))),
            },
        }
    }
}

/// Damage of the pool's own tree.
pub(super) fn malformed(what: String) -> Error {
    Error::Damaged(Damage {
        what: "the pool's own tree",
        place: what,
        reason: "it has the wrong form".to_owned(),
    })
}
