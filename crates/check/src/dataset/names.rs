//! Names of entries and attributes: what they may be, and where they lie.

use crate::finding::FindingKind;
use marram_format::record::{NAME_SLOTS, name_offset};

/// Whether an entry of a directory can have this name.
pub(super) fn is_entry_name(name: &[u8]) -> bool {
    let reserved = matches!(name, b"" | b"." | b"..");
    !reserved && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// The names of one hash, in the order of their slots: only among them can one be there twice.
#[derive(Default)]
pub(super) struct NameRun {
    base: u64,
    names: Vec<Vec<u8>>,
}

impl NameRun {
    /// A name at an offset; returns what is wrong with it.
    pub(super) fn add(&mut self, seed: u64, offset: u64, name: &[u8]) -> Option<FindingKind> {
        let base = name_offset(seed, name);
        if offset / NAME_SLOTS != base / NAME_SLOTS {
            return Some(FindingKind::NamePlace);
        }
        if self.base != base {
            self.base = base;
            self.names.clear();
        }
        if self.names.iter().any(|other| other == name) {
            return Some(FindingKind::NameDuplicate);
        }
        self.names.push(name.to_vec());
        None
    }
}
