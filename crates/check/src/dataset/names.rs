//! Names of entries and attributes: what they may be, and where they lie.

use crate::finding::FindingKind;
use marram_format::record::{NAME_SLOTS, NameRule, name_offset};

/// Whether an entry of a directory can have this name.
pub(super) fn is_entry_name(name: &[u8]) -> bool {
    let reserved = matches!(name, b"" | b"." | b"..");
    !reserved && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// The names of one hash, in the order of their slots: only among them can one be there twice.
#[derive(Default)]
pub(super) struct NameRun {
    base: u64,
    /// What makes them the names that they are.
    keys: Vec<Vec<u8>>,
}

impl NameRun {
    /// A name at an offset; returns what is wrong with it.
    pub(super) fn add(
        &mut self,
        seed: u64,
        rule: NameRule,
        offset: u64,
        name: &[u8],
    ) -> Option<FindingKind> {
        let key = rule.key(name);
        let base = name_offset(seed, &key);
        if offset / NAME_SLOTS != base / NAME_SLOTS {
            return Some(FindingKind::NamePlace);
        }
        if self.base != base {
            self.base = base;
            self.keys.clear();
        }
        if self.keys.iter().any(|other| *other == *key) {
            return Some(FindingKind::NameDuplicate);
        }
        self.keys.push(key.into_owned());
        None
    }
}
