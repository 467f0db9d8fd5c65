//! Blocks that several items of a dataset share.
//!
//! The item that counts the references to a block comes before all that refer to it, or, where the
//! dataset has adopted the block, behind them: those are judged when all have been seen.

use crate::block_set::fingerprint;
use crate::finding::FindingKind;
use crate::tree::Item;
use marram_format::group::Group;
use marram_format::key::Key;
use marram_format::pointer::{Pointer, PointerFlags};
use marram_format::space::{ReferenceRecord, references_key};
use std::collections::BTreeMap;

/// A block that is shared or adopted.
struct Reference {
    counted: Option<u64>,
    /// References with the flag shared.
    seen: u64,
    /// References without it; only of adopted blocks.
    plain: u64,
    fingerprint: u128,
    lost: bool,
}

/// Address, and of an adopted block the group in which it was adopted.
type Identity = (u64, Option<Group>);

/// The shared and adopted blocks of a dataset.
#[derive(Default)]
pub(super) struct References {
    blocks: BTreeMap<Identity, Reference>,
}

/// What is wrong, and its particulars.
pub(super) type Fault = (FindingKind, String);

impl Reference {
    fn new(pointer: &Pointer) -> Reference {
        let fingerprint = fingerprint(pointer);
        Reference { counted: None, seen: 0, plain: 0, fingerprint, lost: false }
    }

    fn fault(&self) -> Option<Fault> {
        let flag = |detail: &str| Some((FindingKind::ReferencesFlag, detail.to_owned()));
        match self.counted {
            None if self.seen > 0 => flag("the block is flagged as shared, but not counted"),
            None if self.plain > 1 => flag("several items refer to the block as if alone"),
            None => None,
            Some(_) if self.plain > 0 => {
                flag("the block is counted, but referred to as if it were not shared")
            }
            Some(counted) if counted != self.seen || counted == 0 => {
                let detail = format!("{counted} references counted, {} found", self.seen);
                Some((FindingKind::ReferencesCount, detail))
            }
            Some(_) => None,
        }
    }
}

impl References {
    /// An item that counts; `lost` says that the block cannot be read.
    pub(super) fn count(&mut self, item: &Item, lost: bool) -> Result<(), Fault> {
        let pointer = item.pointer.as_ref();
        let Some((pointer, address)) = pointer.and_then(|it| Some((it, it.address()?))) else {
            return Err((FindingKind::ItemBlock, "no block is counted".to_owned()));
        };
        if references_key(address, pointer.adopted()) != item.key {
            return Err((FindingKind::ItemMisplaced, format!("it counts block {address:#x}")));
        }
        let record = ReferenceRecord::decode(&item.value)
            .map_err(|error| (FindingKind::ItemMalformed, error.to_string()))?;
        let identity = (address, pointer.adopted());
        let reference = self.blocks.entry(identity).or_insert_with(|| Reference::new(pointer));
        reference.counted = Some(record.count);
        reference.lost = lost;
        if reference.fingerprint != fingerprint(pointer) {
            let detail = "the block that is counted is another one of the same place".to_owned();
            return Err((FindingKind::ReferencesFlag, detail));
        }
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
        let adopted = pointer.adopted();
        if adopted.is_some() {
            let identity = (address, adopted);
            self.blocks.entry(identity).or_insert_with(|| Reference::new(pointer));
        }
        let wrong = |detail: &str| {
            Err((FindingKind::ReferencesFlag, format!("block {address:#x} {detail}")))
        };
        let Some(reference) = self.blocks.get_mut(&(address, adopted)) else {
            return if flagged {
                wrong("is flagged as shared, but not counted")
            } else {
                Ok(false)
            };
        };
        if reference.fingerprint != fingerprint(pointer) {
            return wrong("is counted as another block of the same place");
        }
        match (flagged, adopted) {
            (true, _) => reference.seen += 1,
            (false, Some(_)) => reference.plain += 1,
            (false, None) => {
                reference.seen += 1;
                return wrong("is counted, but referred to as if it were not shared");
            }
        }
        Ok(reference.lost)
    }

    /// All items have been seen.
    pub(super) fn finish(&self) -> Vec<(Key, Fault)> {
        let fault = |(&(address, adopted), reference): (&Identity, &Reference)| {
            Some((references_key(address, adopted), reference.fault()?))
        };
        self.blocks.iter().filter_map(fault).collect()
    }
}
