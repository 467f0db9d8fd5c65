//! Damage, as reports have it.

use serde::{Deserialize, Serialize};

/// Bytes that cannot be read as they were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DamageRow {
    /// The file, `DATASET:/path`, or the place on a device when no file is known.
    pub(crate) place: String,
    /// The dataset or snapshot, if a file is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// The number of the file there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) inode: Option<u64>,
    /// Where in the file, in bytes.
    pub(crate) offset: Option<u64>,
    /// How much of the file, in bytes.
    pub(crate) len: Option<u64>,
    /// What was found.
    pub(crate) reason: String,
}

impl DamageRow {
    /// What is known of no file.
    pub(crate) fn of_no_file(place: String, reason: String) -> DamageRow {
        DamageRow { place, source: None, inode: None, offset: None, len: None, reason }
    }

    /// Whether both tell of the same: of a range of one file, whatever that is called, or of what
    /// was found at one place.
    pub(crate) fn is_same(&self, other: &DamageRow) -> bool {
        let range =
            |row: &DamageRow| row.inode.map(|inode| (row.source.clone(), inode, row.offset));
        match (range(self), range(other)) {
            (Some(one), Some(other)) => one == other,
            (None, None) => (&self.place, &self.reason) == (&other.place, &other.reason),
            // A file is not known at first, when only its block is seen.
            _ => self.reason == other.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DamageRow;

    #[test]
    fn what_is_found_below_a_file_and_in_it_is_one_damage() {
        let reason = "a data block at p offset 4096 is damaged".to_owned();
        let block = DamageRow::of_no_file("p offset 4096".to_owned(), reason);
        let named = |place: &str, inode, offset| DamageRow {
            place: place.to_owned(),
            source: Some("root".to_owned()),
            inode: Some(inode),
            offset: Some(offset),
            ..block.clone()
        };
        assert!(named("root:/a", 7, 0).is_same(&block) && block.is_same(&named("root:/a", 7, 0)));
        assert!(named("root:/a", 7, 0).is_same(&named("root:/renamed", 7, 0)));
        assert!(!named("root:/a", 7, 0).is_same(&named("root:/a", 7, 4096)));
        assert!(!named("root:/a", 7, 0).is_same(&named("root:/a", 8, 0)));
        let other = DamageRow { reason: "another".to_owned(), ..block.clone() };
        assert!(!block.is_same(&other));
    }
}
