//! The newest superblock of a device.

use crate::base::error::Error;
use marram_device::Device;
use marram_format::FormatError;
use marram_format::group::Group;
use marram_format::superblock::{RING_OFFSETS, RING_SLOTS, SUPERBLOCK_BYTES, Superblock};

/// A new pool is whole with this group, which brings the root dataset; the one before it brings the
/// intent log.
const WHOLE_GROUP: Group = Group(2);

/// The newest valid superblock of both rings.
///
/// A slot that is torn is one that a crash interrupted: the one before it counts. A slot of a
/// newer version means that this program must keep away, whatever older slots say.
pub(crate) fn newest_superblock(device: &dyn Device) -> Result<Superblock, Error> {
    let mut newest: Option<Superblock> = None;
    let mut obstacle = "its superblock rings are empty".to_owned();
    let slots = usize::try_from(RING_SLOTS).unwrap_or(usize::MAX);
    let mut ring = vec![0; slots * SUPERBLOCK_BYTES];
    for offset in RING_OFFSETS {
        if let Err(error) = device.read(offset, &mut ring) {
            obstacle = error.to_string();
            continue;
        }
        for slot in ring.chunks_exact(SUPERBLOCK_BYTES) {
            match Superblock::decode(slot) {
                Ok(found) if newest.as_ref().is_none_or(|best| found.group > best.group) => {
                    newest = Some(found);
                }
                Ok(_) | Err(FormatError::Blank { .. }) => {}
                Err(error @ (FormatError::Newer { .. } | FormatError::Features { .. })) => {
                    return Err(Error::TooNew { device: device.name(), reason: error.to_string() });
                }
                Err(error) => obstacle = error.to_string(),
            }
        }
    }
    if newest.as_ref().is_some_and(is_unfinished) {
        newest = None;
        obstacle = "its creation was interrupted, or all newer superblocks are damaged: \
                    `marram check` says which; if it was never used, create it again"
            .to_owned();
    }
    newest.ok_or_else(|| Error::NoPool { device: device.name(), reason: obstacle })
}

/// Whether a superblock is of a pool that was still being made. A pool of format 1.0 has no log,
/// and was whole with its first group.
fn is_unfinished(newest: &Superblock) -> bool {
    newest.intent_log.is_some() && newest.group < WHOLE_GROUP
}
