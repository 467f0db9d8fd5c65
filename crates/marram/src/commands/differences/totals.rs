//! The numbers of a comparison: the last line of its text, and a part of its JSON.

use crate::control::protocol::DifferenceRow;
use crate::output::size_text;
use serde::Serialize;
use std::fmt;

/// How much differs. A file is what is no directory; what is in a directory that was made or
/// removed counts one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(in crate::commands) struct Totals {
    /// Files with other content; also those that another file took the place of.
    pub(in crate::commands) files_modified: u64,
    /// New files.
    pub(in crate::commands) files_created: u64,
    /// Files that are gone.
    pub(in crate::commands) files_removed: u64,
    /// Files that are elsewhere.
    pub(in crate::commands) files_renamed: u64,
    /// Further names that files have got.
    pub(in crate::commands) names_linked: u64,
    /// Names that files have lost and others kept.
    pub(in crate::commands) names_unlinked: u64,
    /// New directories.
    pub(in crate::commands) directories_created: u64,
    /// Directories that are gone.
    pub(in crate::commands) directories_removed: u64,
    /// Directories that are elsewhere.
    pub(in crate::commands) directories_renamed: u64,
    /// Files and directories of which attributes differ, and no content.
    pub(in crate::commands) attributes_changed: u64,
    /// Bytes that differ in the files that were modified.
    pub(in crate::commands) changed_bytes: u64,
    /// Bytes of the new files.
    pub(in crate::commands) created_bytes: u64,
    /// Bytes of the files that are gone.
    pub(in crate::commands) removed_bytes: u64,
}

impl Totals {
    /// Counts rows that are sorted by path.
    pub(in crate::commands) fn of(rows: &[DifferenceRow]) -> Totals {
        let mut totals = Totals::default();
        for at_one_path in rows.chunk_by(DifferenceRow::is_at) {
            at_one_path.iter().for_each(|row| totals.add(row));
            let is_told =
                |row: &DifferenceRow| matches!(row.change.as_str(), "attributes" | "xattrs");
            if at_one_path.iter().all(is_told) {
                totals.attributes_changed += 1;
            }
        }
        totals
    }

    fn add(&mut self, row: &DifferenceRow) {
        let (old_size, new_size) = row.sizes.unwrap_or((0, 0));
        match (row.change.as_str(), row.kind == "directory") {
            ("created", true) => self.directories_created += 1,
            ("removed", true) => self.directories_removed += 1,
            ("renamed", true) => self.directories_renamed += 1,
            ("created", false) => {
                self.files_created += 1;
                self.created_bytes += new_size;
            }
            ("removed", false) => {
                self.files_removed += 1;
                self.removed_bytes += old_size;
            }
            ("renamed", false) => self.files_renamed += 1,
            ("linked", _) => self.names_linked += 1,
            ("unlinked", _) => self.names_unlinked += 1,
            ("content", _) => {
                self.files_modified += 1;
                self.changed_bytes += row.ranges.iter().map(|(from, to)| to - from).sum::<u64>();
            }
            _ => (),
        }
    }
}

/// Counts of things of one kind, without those of which there is none: `2 files modified, 1
/// removed`.
fn clause((one, more): (&str, &str), counts: &[(u64, String)]) -> Option<String> {
    let mut told = String::new();
    for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
        match (told.is_empty(), *count) {
            (true, 1) => told.push_str(&format!("1 {one} {what}")),
            (true, count) => told.push_str(&format!("{count} {more} {what}")),
            (false, count) => told.push_str(&format!(", {count} {what}")),
        }
    }
    (!told.is_empty()).then_some(told)
}

impl fmt::Display for Totals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let created = match self.created_bytes {
            0..1024 => "created".to_owned(),
            bytes => format!("created ({})", size_text(bytes, false)),
        };
        let files = clause(
            ("file", "files"),
            &[
                (self.files_modified, "modified".to_owned()),
                (self.files_created, created),
                (self.files_removed, "removed".to_owned()),
                (self.files_renamed, "renamed".to_owned()),
            ],
        );
        let directories = clause(
            ("directory", "directories"),
            &[
                (self.directories_created, "created".to_owned()),
                (self.directories_removed, "removed".to_owned()),
                (self.directories_renamed, "renamed".to_owned()),
            ],
        );
        let links = clause(
            ("further name", "further names"),
            &[
                (self.names_linked, "linked".to_owned()),
                (self.names_unlinked, "unlinked".to_owned()),
            ],
        );
        let attributes = (self.attributes_changed > 0)
            .then(|| format!("attributes of {} changed", self.attributes_changed));
        let told: Vec<String> =
            [files, directories, links, attributes].into_iter().flatten().collect();
        match told.is_empty() {
            true => out.write_str("nothing differs"),
            false => out.write_str(&told.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{directory, row};
    use super::Totals;
    use crate::control::protocol::DifferenceRow;

    #[test]
    fn what_there_is_none_of_is_not_told() {
        assert_eq!(Totals::default().to_string(), "nothing differs");
        let one = Totals::of(&[directory("removed", "/d")]);
        assert_eq!(one.to_string(), "1 directory removed");
    }

    #[test]
    fn everything_is_counted_once() {
        let sized = |change: &str, path: &str, sizes| DifferenceRow {
            sizes: Some(sizes),
            ..row(change, path)
        };
        let ranges = vec![(0, 5), (9, 10)];
        let rows = [
            DifferenceRow { ranges, ..sized("content", "/a", (10, 10)) },
            row("attributes", "/a"),
            row("attributes", "/b"),
            row("xattrs", "/b"),
            directory("created", "/d"),
            sized("created", "/d/x", (0, 3000)),
            sized("created", "/d/y", (0, 72)),
            directory("renamed", "/e"),
            sized("removed", "/f", (7, 0)),
            row("linked", "/g"),
        ];
        let totals = Totals::of(&rows);
        assert_eq!((totals.changed_bytes, totals.created_bytes), (6, 3072));
        let wanted = "1 file modified, 2 created (3.00K), 1 removed; \
                      1 directory created, 1 renamed; \
                      1 further name linked; attributes of 1 changed";
        assert_eq!(totals.to_string(), wanted);
    }
}
