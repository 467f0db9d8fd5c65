//! Blocks that several items of a dataset share: counted by an item that comes before all others.

use crate::block_set::fingerprint;
use crate::finding::FindingKind;
use crate::tree::Item;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::space::ReferenceRecord;
use std::collections::BTreeMap;

/// A shared block.
struct Reference {
    counted: u64,
    seen: u64,
    fingerprint: u128,
    lost: bool,
}

/// The shared blocks of a dataset, by address.
#[derive(Default)]
pub(super) struct References {
    blocks: BTreeMap<u64, Reference>,
}

/// What is wrong, and its particulars.
pub(super) type Fault = (FindingKind, String);

impl References {
    /// An item that counts; `lost` says that the block cannot be read.
    pub(super) fn count(&mut self, item: &Item, lost: bool) -> Result<(), Fault> {
        let pointer = item.pointer.as_ref();
        let Some((pointer, address)) = pointer.and_then(|it| Some((it, it.address()?))) else {
            return Err((FindingKind::ItemBlock, "no block is counted".to_owned()));
        };
        if address != item.key.offset {
            return Err((FindingKind::ItemMisplaced, format!("it counts block {address:#x}")));
        }
        let record = ReferenceRecord::decode(&item.value)
            .map_err(|error| (FindingKind::ItemMalformed, error.to_string()))?;
        let counted = record.count;
        let reference = Reference { counted, seen: 0, fingerprint: fingerprint(pointer), lost };
        self.blocks.insert(address, reference);
        if record.used_bytes > u64::from(pointer.logical_len) {
            let detail = format!("{} bytes in use of {}", record.used_bytes, pointer.logical_len);
            return Err((FindingKind::ItemMalformed, detail));
        }
        if !pointer.flags.contains(PointerFlags::SHARED) {
            let detail = "the count's own pointer is not flagged as shared".to_owned();
            return Err((FindingKind::ReferencesFlag, detail));
        }
        Ok(())
    }

    /// Another item that refers to a block; returns whether the block is known to be lost.
    pub(super) fn refer(&mut self, pointer: &Pointer) -> Result<bool, Fault> {
        let Some(address) = pointer.address() else { return Ok(false) };
        let flagged = pointer.flags.contains(PointerFlags::SHARED);
        let wrong = |detail: &str| {
            Err((FindingKind::ReferencesFlag, format!("block {address:#x} {detail}")))
        };
        let Some(reference) = self.blocks.get_mut(&address) else {
            return if flagged {
                wrong("is flagged as shared, but not counted")
            } else {
                Ok(false)
            };
        };
        if reference.fingerprint != fingerprint(pointer) {
            return wrong("is counted as another block of the same place");
        }
        reference.seen += 1;
        if !flagged {
            return wrong("is counted, but referred to as if it were not shared");
        }
        Ok(reference.lost)
    }

    /// All items have been seen.
    pub(super) fn finish(&self) -> Vec<(u64, Fault)> {
        let wrong = self.blocks.iter().filter(|(_, it)| it.seen != it.counted || it.counted == 0);
        let fault = |(address, it): (&u64, &Reference)| {
            let detail = format!("{} references counted, {} found", it.counted, it.seen);
            (*address, (FindingKind::ReferencesCount, detail))
        };
        wrong.map(fault).collect()
    }
}
