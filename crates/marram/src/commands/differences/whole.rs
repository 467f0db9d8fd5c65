//! Directories that were made or removed with all that is in them: one entry each.
//!
//! A directory is whole if it was made and all that is below it now is new, or if it was removed
//! and nothing of what was below it is elsewhere. Of whole directories in each other the outermost
//! is the entry. What was there before is judged apart from what came: both may have one path.

use crate::control::protocol::DifferenceRow;
use std::collections::{BTreeMap, HashMap};

/// What stands in one line.
pub(super) enum Entry<'r> {
    /// One difference.
    One(&'r DifferenceRow),
    /// A directory with all that is in it.
    Whole(Whole<'r>),
}

/// A directory that was made or removed whole.
#[derive(Clone, Copy)]
pub(super) struct Whole<'r> {
    /// The directory itself.
    pub(super) row: &'r DifferenceRow,
    /// How many names below it lead to what is no directory.
    pub(super) files: u64,
    /// How many directories are below it.
    pub(super) directories: u64,
    /// How large those files are together.
    pub(super) bytes: u64,
}

impl Whole<'_> {
    /// How much is in it, behind its path.
    pub(super) fn count(&self) -> String {
        let of = |count: u64, one: &str, more: &str| {
            format!(" ({count} {})", if count == 1 { one } else { more })
        };
        match (self.files, self.directories) {
            (0, 0) => String::new(),
            (0, directories) => of(directories, "directory", "directories"),
            (files, _) => of(files, "file", "files"),
        }
    }
}

/// Directories of one side by their paths, each with its row and whether it is whole so far.
type Candidates = HashMap<Vec<u8>, (usize, bool)>;

/// The two states.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// The entries, in the order of the rows; with `folds` a whole directory is one entry.
pub(super) fn entries(rows: &[DifferenceRow], folds: bool) -> Vec<Entry<'_>> {
    if !folds {
        return rows.iter().map(Entry::One).collect();
    }
    let (mut before, mut after) = (candidates(rows, "removed"), candidates(rows, "created"));
    for row in rows {
        if let Some(old) = row.old_path_in_bytes() {
            break_above(&mut before, &old);
        }
        match (side(row), row.change.as_str()) {
            (Side::Before, _) | (Side::After, "created" | "linked") => {}
            (Side::After, _) => break_above(&mut after, &row.path_in_bytes()),
        }
    }
    let mut told: BTreeMap<usize, Entry<'_>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        let found = match side(row) {
            Side::Before => outermost(&before, row),
            Side::After => outermost(&after, row),
        };
        match found {
            None => _ = told.insert(at, Entry::One(row)),
            Some(directory) => add(&mut told, (directory, &rows[directory]), (at, row)),
        }
    }
    told.into_values().collect()
}

/// Counts a row in a whole directory; that of the directory itself makes its entry.
fn add<'r>(
    told: &mut BTreeMap<usize, Entry<'r>>,
    (directory, own): (usize, &'r DifferenceRow),
    (at, row): (usize, &DifferenceRow),
) {
    let empty = Whole { row: own, files: 0, directories: 0, bytes: 0 };
    let entry = told.entry(directory).or_insert(Entry::Whole(empty));
    let Entry::Whole(whole) = entry else { return };
    if at == directory {
        return;
    }
    match row.kind.as_str() {
        "directory" => whole.directories += 1,
        _ => whole.files += 1,
    }
    whole.bytes += row.sizes.map_or(0, |(old, new)| old.max(new));
}

/// In which state its path is.
fn side(row: &DifferenceRow) -> Side {
    match row.change.as_str() {
        "removed" | "unlinked" => Side::Before,
        _ => Side::After,
    }
}

fn candidates(rows: &[DifferenceRow], change: &str) -> Candidates {
    let directories = rows.iter().enumerate();
    let directories =
        directories.filter(|(_, row)| row.kind == "directory" && row.change == change);
    directories.map(|(at, row)| (row.path_in_bytes(), (at, true))).collect()
}

/// No directory above this path is whole.
fn break_above(candidates: &mut Candidates, path: &[u8]) {
    for above in directories_above(path) {
        if let Some((_, is_whole)) = candidates.get_mut(above) {
            *is_whole = false;
        }
    }
}

/// The outermost whole directory that a row is in, or is.
fn outermost(candidates: &Candidates, row: &DifferenceRow) -> Option<usize> {
    if candidates.is_empty() {
        return None;
    }
    let path = row.path_in_bytes();
    // Another thing at the path of a directory is no part of it.
    let is_one = row.kind == "directory" && matches!(row.change.as_str(), "created" | "removed");
    let itself = is_one.then_some(path.as_slice());
    let whole = |at: &[u8]| candidates.get(at).filter(|(_, is_whole)| *is_whole);
    directories_above(&path).chain(itself).find_map(whole).map(|(at, _)| *at)
}

/// The paths of the directories above, from the outermost on, without the root.
fn directories_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
    ends.map(|(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{directory, row};
    use super::super::{Detail, Directories, lines};
    use crate::control::protocol::DifferenceRow;

    fn told(rows: &[DifferenceRow]) -> String {
        lines(rows, Detail::Lines, Directories::Whole)
    }

    #[test]
    fn a_new_directory_is_one_line_with_the_number_of_its_files() {
        let rows = [
            directory("created", "/d"),
            row("created", "/d-1"),
            row("created", "/d/a"),
            directory("created", "/d/in"),
            row("created", "/d/in/b"),
            directory("created", "/empty"),
        ];
        assert_eq!(told(&rows), "A /d/ (2 files)\nA /d-1\nA /empty/\n");
        assert_eq!(told(&[rows[0].clone(), rows[3].clone()]), "A /d/ (1 directory)\n");
        let all = lines(&rows, Detail::Lines, Directories::Each);
        assert_eq!(all.lines().count(), rows.len(), "{all}");
        let sized = DifferenceRow { sizes: Some((0, 2048)), ..row("created", "/d/a") };
        let bytes = lines(&[rows[0].clone(), sized], Detail::Bytes, Directories::Whole);
        assert_eq!(bytes, "/d/ | created, 1 file, 2.00K\n");
    }

    #[test]
    fn a_directory_into_which_something_was_moved_is_told_name_by_name() {
        let moved = DifferenceRow { old_path: Some("/x".to_owned()), ..row("renamed", "/d/x") };
        let rows = [
            directory("created", "/d"),
            row("created", "/d/a"),
            directory("created", "/d/in"),
            row("created", "/d/in/b"),
            moved,
        ];
        assert_eq!(told(&rows), "A /d/\nA /d/a\nA /d/in/ (1 file)\nR /x -> /d/x\n");
    }

    #[test]
    fn a_directory_of_which_something_was_saved_is_told_name_by_name() {
        let moved = DifferenceRow { old_path: Some("/d/x".to_owned()), ..row("renamed", "/x") };
        let rows =
            [directory("removed", "/d"), row("removed", "/d/a"), row("removed", "/d/b"), moved];
        assert_eq!(told(&rows), "D /d/\nD /d/a\nD /d/b\nR /d/x -> /x\n");
        assert_eq!(told(&rows[..3]), "D /d/ (2 files)\n");
    }

    #[test]
    fn one_directory_in_the_place_of_another_is_two_lines() {
        let rows = [
            directory("removed", "/d"),
            directory("created", "/d"),
            row("removed", "/d/a"),
            row("created", "/d/b"),
            row("created", "/d/c"),
        ];
        assert_eq!(told(&rows), "D /d/ (1 file)\nA /d/ (2 files)\n");
        let file = [row("removed", "/d"), directory("created", "/d"), row("created", "/d/b")];
        assert_eq!(told(&file), "D /d\nA /d/ (1 file)\n");
    }
}
