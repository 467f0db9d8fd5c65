//! What differs between two states, as people read it: the one summary of `diff`, of `merge`, and
//! of whatever else has rows of differences to show.
//!
//! [`summary`] is the text: a line for each difference, or with [`Detail::Bytes`] how many bytes of
//! it differ, and a last line that sums up. A directory that was made or removed whole is one line
//! with the number of its files, unless [`Directories::Each`] is asked for. [`Totals`] are the
//! numbers of that last line, for JSON too. [`patches()`] is what patch(1) reads.
//!
//! Rows come sorted by path, as a comparison or a merge gives them. Where nothing differs the
//! summary is empty, and the [`Totals`] say so in words.

mod patches;
mod totals;
mod whole;

pub(super) use patches::patches;
pub(super) use totals::Totals;

use crate::control::protocol::DifferenceRow;
use crate::names::printable;
use crate::output::size_text;
use crate::timestamps::local_instant;
use whole::{Entry, Whole, entries};

/// What is said of each difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// A letter and the path, and the old and new values of attributes.
    Lines,
    /// How many bytes differ.
    Bytes,
}

/// What is said of directories that were made or removed with all that is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directories {
    /// A line for all of each.
    Whole,
    /// A line for each thing in them.
    Each,
}

/// What differs, and a last line that sums up; nothing where nothing differs.
pub(super) fn summary(rows: &[DifferenceRow], detail: Detail, directories: Directories) -> String {
    let mut text = lines(rows, detail, directories);
    if !rows.is_empty() {
        text.push_str(&format!("{}\n", Totals::of(rows)));
    }
    text
}

/// The summary without its last line.
pub(super) fn lines(rows: &[DifferenceRow], detail: Detail, directories: Directories) -> String {
    let told = |entry: Entry<'_>| match (entry, detail) {
        (Entry::One(row), Detail::Lines) => line(row),
        (Entry::One(row), Detail::Bytes) => bytes_line(row),
        (Entry::Whole(whole), Detail::Lines) => format!("{}{}\n", head(whole.row), whole.count()),
        (Entry::Whole(whole), Detail::Bytes) => whole_bytes_line(&whole),
    };
    entries(rows, directories == Directories::Whole).into_iter().map(told).collect()
}

/// One difference in a line: a letter, the path, and values.
fn line(row: &DifferenceRow) -> String {
    let values = row.values.iter().map(|(name, old, new)| {
        let value = |value: &Option<String>| match value {
            None => "-".to_owned(),
            Some(at) if row.change == "attributes" && name == "modified" => local_instant(at),
            Some(value) => printable(value.clone()),
        };
        format!(" {}: {} -> {}", printable(name.clone()), value(old), value(new))
    });
    format!("{}{}\n", head(row), values.collect::<String>())
}

/// A letter and the path; two paths of what was renamed.
fn head(row: &DifferenceRow) -> String {
    let letter = match row.change.as_str() {
        "created" => 'A',
        "removed" => 'D',
        "renamed" => 'R',
        "linked" => 'L',
        "unlinked" => 'U',
        "content" => 'M',
        "attributes" => 't',
        _ => 'x',
    };
    let slash = slash(row);
    match row.old_place() {
        Some(old) => format!("{letter} {old}{slash} -> {}{slash}", row.place()),
        None => format!("{letter} {}{slash}", row.place()),
    }
}

fn slash(row: &DifferenceRow) -> &'static str {
    if row.kind == "directory" && row.path != "/" { "/" } else { "" }
}

/// How many bytes of a difference there are.
fn bytes_line(row: &DifferenceRow) -> String {
    let bytes: u64 = row.ranges.iter().map(|(from, to)| to - from).sum();
    let said = match (row.change.as_str(), row.sizes) {
        ("content", Some((old, new))) => format!("{bytes} bytes differ, {old} -> {new}"),
        ("content", None) => format!("{bytes} bytes differ"),
        ("removed", Some((old, _))) => format!("removed, {old} bytes"),
        (change, Some((_, new))) => format!("{change}, {new} bytes"),
        (change, None) => change.to_owned(),
    };
    format!("{}{} | {said}\n", row.place(), slash(row))
}

fn whole_bytes_line(whole: &Whole<'_>) -> String {
    let Whole { row, files, bytes, .. } = whole;
    let noun = if *files == 1 { "file" } else { "files" };
    let size = size_text(*bytes, false);
    format!("{}/ | {}, {files} {noun}, {size}\n", row.place(), row.change)
}

#[cfg(test)]
mod tests {
    use super::{Detail, Directories, lines, summary};
    use crate::control::protocol::DifferenceRow;

    pub(super) fn row(change: &str, path: &str) -> DifferenceRow {
        DifferenceRow {
            change: change.to_owned(),
            path: path.to_owned(),
            path_bytes: None,
            old_path: None,
            old_path_bytes: None,
            kind: "file".to_owned(),
            ranges: Vec::new(),
            sizes: None,
            values: Vec::new(),
            patch: None,
        }
    }

    pub(super) fn directory(change: &str, path: &str) -> DifferenceRow {
        DifferenceRow { kind: "directory".to_owned(), ..row(change, path) }
    }

    fn told(row: DifferenceRow) -> String {
        lines(&[row], Detail::Lines, Directories::Whole)
    }

    #[test]
    fn a_difference_is_told_in_a_line() {
        assert_eq!(told(row("created", "/a")), "A /a\n");
        let renamed =
            DifferenceRow { old_path: Some("/b".to_owned()), ..directory("renamed", "/c") };
        assert_eq!(told(renamed), "R /b/ -> /c/\n");
        let values = vec![("mode".to_owned(), Some("0644".to_owned()), Some("0600".to_owned()))];
        let changed = DifferenceRow { values, ..row("attributes", "/d") };
        assert_eq!(told(changed), "t /d mode: 0644 -> 0600\n");
    }

    #[test]
    fn no_name_looks_like_another_line() {
        let values = vec![("user.x".to_owned(), None, Some("1\n2".to_owned()))];
        let row = DifferenceRow {
            path_bytes: Some("2f61ff".to_owned()),
            old_path: Some("/b\nD /c".to_owned()),
            values,
            ..row("renamed", "/a\u{fffd}")
        };
        let bytes = lines(std::slice::from_ref(&row), Detail::Bytes, Directories::Whole);
        assert_eq!(bytes, "\"/a\\377\" | renamed\n");
        assert_eq!(told(row), "R \"/b\\nD /c\" -> \"/a\\377\" user.x: - -> 1\\n2\n");
    }

    #[test]
    fn bytes_that_differ_are_told_and_a_last_line_sums_up() {
        let changed = DifferenceRow {
            ranges: vec![(0, 4), (10, 11)],
            sizes: Some((20, 21)),
            ..row("content", "/f")
        };
        let gone = DifferenceRow { sizes: Some((7, 0)), ..row("removed", "/a") };
        let made = DifferenceRow { sizes: Some((0, 3)), ..row("created", "/g") };
        let text = summary(&[gone, changed, made], Detail::Bytes, Directories::Whole);
        let wanted = "/a | removed, 7 bytes\n/f | 5 bytes differ, 20 -> 21\n\
                      /g | created, 3 bytes\n1 file modified, 1 created, 1 removed\n";
        assert_eq!(text, wanted);
        assert_eq!(summary(&[], Detail::Lines, Directories::Whole), "");
    }
}
