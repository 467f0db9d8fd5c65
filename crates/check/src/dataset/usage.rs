//! Sums of what owners use: counted again from the inodes, and compared.

use super::files::FileItem;
use super::references::Fault;
use crate::finding::FindingKind;
use marram_format::key::{Key, kind};
use marram_format::record::{INODE_USAGE_BYTES_MAX, Inode, Limit, OwnerClass, OwnerId, Usage};
use std::collections::BTreeMap;

/// What content uses is rounded up to this many bytes for each inode.
const UNIT_BYTES: u64 = 4096;
/// Findings of one dataset.
const FAULTS_MAX: usize = 16;

/// Bytes and inodes of one owner.
type Sums = (i128, i128);

/// The sums that a file system keeps, and those of its inodes.
#[derive(Default)]
pub(super) struct Usages {
    kept: BTreeMap<OwnerId, Sums>,
    counted: BTreeMap<OwnerId, Sums>,
    /// Not everything could be counted.
    is_partial: bool,
}

impl Usages {
    /// A usage item.
    pub(super) fn keep(&mut self, item: &FileItem<'_>) -> Result<(), Fault> {
        let read = owner(item.key)
            .and_then(|owner| Ok((owner, Usage::decode(item.value).map_err(malformed)?)));
        match read {
            Ok((owner, usage)) => {
                self.kept.insert(owner, (usage.bytes.into(), usage.inodes.into()));
                Ok(())
            }
            Err(fault) => {
                self.is_partial = true;
                Err(fault)
            }
        }
    }

    /// A limit item.
    pub(super) fn limit(&self, item: &FileItem<'_>) -> Result<(), Fault> {
        Limit::decode(item.value).map_err(malformed)?;
        match owner(item.key)?.id {
            0 => Err((FindingKind::ItemMisplaced, "no owner of id 0 has a limit".to_owned())),
            _ => Ok(()),
        }
    }

    /// An inode.
    pub(super) fn count(&mut self, inode: &Inode) {
        let covered = inode.data_bytes.saturating_add(inode.reserved_bytes);
        let bytes = i128::from(covered.div_ceil(UNIT_BYTES)) * i128::from(UNIT_BYTES);
        let bytes = bytes.min(INODE_USAGE_BYTES_MAX.into());
        let owners = [
            (OwnerClass::User, inode.uid),
            (OwnerClass::Group, inode.gid),
            (OwnerClass::Project, inode.project),
        ];
        for (class, id) in owners {
            if (class, id) != (OwnerClass::Project, 0) {
                let sums = self.counted.entry(OwnerId { class, id }).or_default();
                *sums = (sums.0 + bytes, sums.1 + 1);
            }
        }
    }

    /// An inode of which nothing is known.
    pub(super) fn miss(&mut self) {
        self.is_partial = true;
    }

    /// All items have been seen. A file system of format 1.1 keeps no sums.
    pub(super) fn finish(&mut self) -> Vec<(Key, Fault)> {
        if self.is_partial || self.kept.is_empty() {
            return Vec::new();
        }
        let mut faults = Vec::new();
        let owners = self.kept.keys().chain(self.counted.keys());
        let mut owners: Vec<OwnerId> = owners.copied().collect();
        owners.sort_unstable();
        owners.dedup();
        for owner in owners {
            let sums = |of: &BTreeMap<OwnerId, Sums>| of.get(&owner).copied().unwrap_or_default();
            let (kept, counted) = (sums(&self.kept), sums(&self.counted));
            if kept != counted && faults.len() < FAULTS_MAX {
                let detail = format!(
                    "{:?} {}: {} bytes in {} inodes instead of {} in {}",
                    owner.class, owner.id, kept.0, kept.1, counted.0, counted.1
                );
                let key = Key::new(0, kind::USAGE, owner.to_offset());
                faults.push((key, (FindingKind::OwnerUsage, detail)));
            }
        }
        faults
    }
}

fn owner(key: Key) -> Result<OwnerId, Fault> {
    let fault = || (FindingKind::ItemMisplaced, "no owner has that offset".to_owned());
    let owner = OwnerId::from_offset(key.offset).ok_or_else(fault)?;
    if owner == (OwnerId { class: OwnerClass::Project, id: 0 }) { Err(fault()) } else { Ok(owner) }
}

fn malformed(error: marram_format::FormatError) -> Fault {
    (FindingKind::ItemMalformed, error.to_string())
}
